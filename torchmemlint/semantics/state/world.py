"""What the engine can look up: the project's graph, lowered functions, torch facts.

One per process, shared by all runs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from torchmemlint.errors import Cancelled, SourceError
from torchmemlint.index.facts import AttrFact, FunctionFacts, Header
from torchmemlint.index.project import ClassRef, FunctionRef, Project
from torchmemlint.index.query_log import QueryTrace
from torchmemlint.index.references import UNKNOWN_BASE
from torchmemlint.index.sources import rows_of, split_lines
from torchmemlint.lower import ir
from torchmemlint.semantics.state.flow_state import UNBOUNDED, Meter
from torchmemlint.torch_facts import MODULE_KINDS, TORCH
from torchmemlint.torch_facts.words import HookEffect

if TYPE_CHECKING:
    from threading import Event


class EngineSettings(Protocol):
    """What users declare about code that is not visible, and the oldest torch that theirs must run with (see
    ``project.settings.Settings``)."""

    @property
    def no_grad_wrappers(self) -> tuple[str, ...]: ...
    @property
    def detaching_calls(self) -> tuple[str, ...]: ...
    @property
    def recorders(self) -> tuple[str, ...]: ...
    @property
    def target_torch(self) -> tuple[int, int] | None: ...


MODULE = "<module>"
KEPT_TEXTS = 100
"""Files whose lines are kept at hand: those of a large tree would be a large part of the process."""
KEPT_REGIONS = 300
"""Lowered functions that are kept from one file to the next, for the same reason."""

HOOKS = frozenset(name for _, name in TORCH.hooks)
"""Names of methods that a framework calls."""
BATCH_HOOKS = TORCH.words["batch-hooks"]
"""Those that it calls once for each batch."""

PLAIN_ROOTS = TORCH.words["plain-bases"]
"""The first parts of names of classes that bring no module or tensor to those below them."""
PLAIN_FIELDS = TORCH.words["plain-fields"]
"""Annotations of a field that holds no tensor."""
TENSORS_AGAIN = TORCH.words["tensors-again"]
"""Words of a function that makes tensors, also of arrays."""

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Question = Callable[Concatenate["World", Asked], Answer]
Known = TypeVar("Known")

CALLED = re.compile(r"\.(\w+)\(\)")
"""A method that is called, in the text of an expression."""


class World:
    """Looks things up, each once. What is memoized goes through the project's query_log (``index.query_log``), because a
    finding rests on what was looked up for it, whoever asked first.

    ``read`` gives the text of a file by its path (raises SourceError); lowering happens on demand, an outermost function at a
    time, so that only regions that a run reaches are ever parsed again.
    """

    def __init__(self, project: Project, settings: EngineSettings, read: Callable[[str], str]) -> None:
        self.project = project
        self.settings = settings
        self._read = read
        self.query_log = project.query_log
        self.asking = Meter(UNBOUNDED)
        """Counts what questions look at that go from graph to graph (``Record.children``)."""
        self.following = Meter(UNBOUNDED)
        """Counts what is followed before a fix (``semantics.dataflow.tracking``), over the functions of a file."""
        self.cancel: Event | None = None
        """Set, by another thread, when nobody waits any more: runs then raise Cancelled."""
        self._lines: dict[str, list[str]] = {}
        self._lines_around: dict[tuple[str, str], tuple[list[str], QueryTrace]] = {}
        self._regions: dict[tuple[str, str], tuple[object, QueryTrace]] = {}
        self._let_go: set[tuple[str, str]] = set()
        self._again: set[tuple[str, str]] = set()
        self._functions: dict[FunctionRef, tuple[tuple[ir.Function, object] | None, QueryTrace]] = {}
        self._evidence: dict[tuple[str, str], tuple[dict[str, frozenset[str]], QueryTrace]] = {}
        self._is_module: dict[ClassRef, tuple[bool | None, QueryTrace]] = {}
        self._memo: dict[object, dict[Any, tuple[Any, QueryTrace]]] = defaultdict(dict)
        self._of_functions: dict[object, dict[Any, tuple[Any, QueryTrace]]] = defaultdict(dict)
        self._variables: dict[tuple[str, str], tuple[tuple[str, str] | None, QueryTrace]] = {}
        self._resolved: dict[tuple[str, str], tuple[str | None, QueryTrace]] = {}
        self._symbols: dict[str, tuple[FunctionRef | ClassRef | None, QueryTrace]] = {}

    def go_on(self) -> None:
        """Raises Cancelled where nobody waits any more."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled

    def memoize(self, find: Callable[..., Answer], *key: Hashable) -> Answer:
        """``find(self, *key)``, worked out once (see ``memoized``). Where the answer is the same after an edit, whatever rests on it
        stays, whatever ``find`` looked at."""
        answer: Answer = self.query_log.memoize(self._memo[find], key, lambda: find(self, *key), find)
        return answer

    def memoize_with_code(self, find: Callable[..., Answer], *key: Hashable) -> Answer:
        """As ``memoize``, for what holds the IR of a function: it is let go with lowered functions."""
        answer: Answer = self.query_log.memoize(self._of_functions[find], key, lambda: find(self, *key))
        return answer

    def is_finding(self, find: Callable[..., Answer], *key: Hashable) -> bool:
        """Whether ``find`` is being worked out for ``key`` now (see ``QueryLog.is_open``)."""
        return self.query_log.is_open(self._memo[find], key)

    # --- source ---------------------------------------------------------------------------------------------------

    def lines(self, path: str) -> list[str]:
        """A file's lines. Whatever asks rests on all of its text, and on where everything in it stands."""
        self.query_log.current.queries.add(("text", path))
        return self._lines_of(path)

    def _lines_of(self, path: str) -> list[str]:
        if path not in self._lines:
            if len(self._lines) == KEPT_TEXTS:
                del self._lines[next(iter(self._lines))]
            text = self._read(path)
            if self.project.modules[path].recovered:  # which goes by the text: nothing else is asked of the facts
                from torchmemlint.source.tolerant import readable

                text = readable(text)
            self._lines[path] = split_lines(text)
        return self._lines[path]

    def lines_around(self, ref: FunctionRef) -> list[str]:
        """As ``lines``, with nothing in the rows that are not of the outermost function around one. Whatever asks rests on that
        function's text, and on the row where it begins."""
        outermost = self.outermost(ref).qualname
        if outermost == MODULE:
            return self.lines(ref.path)
        return self.query_log.memoize(self._lines_around, (ref.path, outermost), lambda: self._cut(ref.path, outermost))

    def _cut(self, path: str, outermost: str) -> list[str]:
        self.query_log.current.queries.add(("placed", path, outermost))
        lines = self._lines_of(path)
        first, last = rows_of(lines, self.facts(FunctionRef(path, outermost)))
        return [*[""] * (first - 1), *lines[first - 1 : last], ""]

    def lines_of(self, ref: FunctionRef) -> list[str]:
        """The lines of a function, from its ``def`` on. Whatever asks rests on the text of the outermost function around it, wherever
        that stands."""
        facts = self.facts(ref)
        outermost = self.outermost(ref).qualname
        if outermost == MODULE:
            return self.lines(ref.path)
        self.query_log.current.queries.add(("source", ref.path, outermost))
        return self._lines_of(ref.path)[facts.row - 1 : facts.end_row]

    def length(self, ref: FunctionRef) -> int:
        """The rows of a function's body. This reads the text, as everything must that uses positions (``index.facts.POSITIONS``)."""
        return len(self.lines_of(ref)) - 1

    def forget(self) -> None:
        """Let go of lowered functions when there are many, but for those that were lowered again after they had been let go of:
        what many files call."""
        if len(self._regions) > KEPT_REGIONS + len(self._again):
            if len(self._again) > KEPT_REGIONS:
                self._again.clear()
            self._let_go |= self._regions.keys()
            self._of_functions.clear()
            self._regions = {key: found for key, found in self._regions.items() if key in self._again}
            self._functions = {ref: found for ref, found in self._functions.items() if (ref.path, ref.qualname) in self._again}

    def lowered(self, path: str, outermost: str):  # type: ignore[no-untyped-def]
        """The lowered region of an outermost function, or of the module's own statements; None where it cannot be lowered.
        Who asks of a function rests on its code alone: for its rows and columns ask ``placed``."""
        return self.query_log.memoize(self._regions, (path, outermost), lambda: self._lower(path, outermost))

    def placed(self, path: str, outermost: str):  # type: ignore[no-untyped-def]
        """As ``lowered``, for callers that need rows of the file."""
        self.query_log.current.queries.add(("placed", path, outermost) if outermost != MODULE else ("text", path))
        return self.lowered(path, outermost)

    def _lower(self, path: str, outermost: str) -> object:
        from torchmemlint.lower import quick, regions

        if (path, outermost) in self._let_go:
            self._again.add((path, outermost))
        try:
            if outermost == MODULE:
                region = regions.cut_module(self.lines(path), self.project.module(path))
            else:
                self.query_log.current.queries.add(("code", path, outermost))
                region = regions.cut_function(self._lines_of(path), self.facts(FunctionRef(path, outermost)), path)
            return quick.lower(region)
        except (SourceError, RecursionError) as error:
            self.query_log.note(f"{path}: {outermost}: not analysed: {error}")
            return None

    def facts(self, ref: FunctionRef) -> FunctionFacts:
        """The facts of a function; of what has none of its own, those of the function around it (see ``_at_hand``)."""
        return self._at_hand(self.project.facts, ref)[1]

    def _at_hand(self, ask: Callable[[FunctionRef], Answer], ref: FunctionRef) -> tuple[FunctionRef, Answer]:
        """A function, or the innermost around it of which there are facts: there are none of a lambda, nor of what they do not keep
        apart (a redefinition in a branch, a class inside a function)."""
        while True:
            if not ref.qualname.endswith("<lambda>"):
                try:
                    return ref, ask(ref)
                except KeyError:
                    if ref.qualname == MODULE:
                        raise
            ref = FunctionRef(ref.path, ref.qualname.rpartition(".")[0] or MODULE)

    def header(self, ref: FunctionRef) -> Header:
        """As ``facts``, of the header alone: whoever asks does not rest on the body."""
        return self._at_hand(self.project.header, ref)[1]

    def outermost(self, ref: FunctionRef) -> FunctionRef:
        """The function around one that is in no other; of a function that is in none, and of a module's own statements, itself."""
        if ref.qualname == MODULE:
            return ref
        found, header = self._at_hand(self.project.header, ref)
        while header.parent:
            found, header = self._at_hand(self.project.header, FunctionRef(ref.path, header.parent))
        return found

    def function(self, ref: FunctionRef) -> tuple[ir.Function, object] | None:
        """As ``ir_of``, and the lowered region with what is known of its places."""
        return self.query_log.memoize(self._functions, ref, lambda: self._function(ref))

    def _function(self, ref: FunctionRef) -> tuple[ir.Function, object] | None:
        lowered = self.lowered(ref.path, ref.qualname)
        found = lowered.functions.get(ref.qualname) if lowered is not None else None
        return None if found is None else (found, lowered)

    def ir_of(self, ref: FunctionRef) -> ir.Function | None:
        """The IR of a function that is not nested in another; None where it cannot be read."""
        found = self.function(ref)
        return None if found is None else found[0]

    def body(self, ref: FunctionRef) -> list[ir.Stmt]:
        """The statements of such a function; none where it cannot be read."""
        found = self.function(ref)
        return [] if found is None else found[0].body

    def training_of(self, ref: FunctionRef, text: str) -> bool | None:
        """False for a module attribute (``self.x``) on which its class calls ``eval()``, be it where it is assigned, and never
        ``train()``, in a class that trains nothing; None when nothing is known."""
        header = self.header(ref)
        if not text.startswith("self.") or not header.owner:
            return None
        name = text.split(".")[1]
        words = set(self.evidence(ref).get(f"self.{name}", ()))
        for attr in self.project.attrs(ClassRef(ref.path, header.owner)):
            if attr.name == name:
                words.update(CALLED.findall(attr.value))  # `self.x = make().eval().to(device)`
        if TORCH.names["evaluates"] not in words or TORCH.names["trains"] in words:
            return None
        return None if self.project.saying(ref.path, header.owner, *sorted(TORCH.words["trains-something"])) else False

    def is_autograd_function(self, cls: ClassRef) -> bool:
        """Whether a class of the project is below ``torch.autograd.Function``."""
        return any(
            isinstance(base, str) and base.startswith("torch.autograd.") and base.endswith("Function")
            for base in self.project.mro(cls)
        )

    def hook(self, ref: FunctionRef) -> HookEffect | None:
        """What surrounds a method that a framework calls by itself (Lightning's ``predict_step``); None for any other."""
        return self.as_overriding(ref, TORCH.hooks)

    def as_overriding(self, ref: FunctionRef, table: Mapping[tuple[str, str], Known]) -> Known | None:
        """What a table says of the method of another package's class that a method overrides."""
        facts = self.facts(ref)
        if ref.qualname == MODULE or not facts.owner:
            return None
        name = facts.qualname.rpartition(".")[2]
        if name not in HOOKS:
            return None
        owner = ClassRef(ref.path, facts.owner)
        below = self.project.subclasses(owner) if name != TORCH.names["forward"] else ()
        mixed_in = [cls for cls in below if self.project.method(cls, name) == ref]
        bases = [base for cls in (owner, *mixed_in) for base in self.project.mro(cls) if isinstance(base, str)]
        return next((known for base in bases if (known := table.get((base, name))) is not None), None)

    def ends_as_data(self, ref: FunctionRef, depth: int = 0) -> bool:
        """Whether a method turns what it works on into arrays or lists, and nothing back into tensors; itself, or by a method of
        its own class that it calls."""
        facts = self.facts(ref)
        if facts.names & TENSORS_AGAIN or facts.returns.rpartition(".")[2] == "Tensor":
            return False
        if facts.names & TORCH.words["as-data"] or facts.returns in ("str", "bytes"):
            return True
        if depth == 2 or not facts.owner:
            return False
        own = [call.callee.removeprefix("self.") for call in facts.calls if call.callee.startswith("self.")]
        methods = [self.project.method(ClassRef(ref.path, facts.owner), name) for name in own if "." not in name]
        return any(each is not None and self.ends_as_data(each, depth + 1) for each in methods)

    # --- names ----------------------------------------------------------------------------------------------------

    def resolved(self, path: str, ident: str) -> str | None:
        """The absolute name of a module-level name of a file (see ``Project.resolve``)."""
        found = self._resolved.get((path, ident))
        if found is not None and not (found[1].speaks or self.query_log.records):
            return found[0]
        return self.query_log.memoize(self._resolved, (path, ident), lambda: self.project.resolve(path, ident))

    def variable(self, path: str, ident: str) -> tuple[str, str] | None:
        """See ``Project.variable``."""
        found = self._variables.get((path, ident))
        if found is not None and not (found[1].speaks or self.query_log.records):
            return found[0]
        return self.query_log.memoize(self._variables, (path, ident), lambda: self.project.variable(path, ident))

    def symbol(self, absolute: str) -> FunctionRef | ClassRef | None:
        """The project's function or class of an absolute name."""
        return self.query_log.memoize(
            self._symbols, absolute, lambda: self.project.function(absolute) or self.project.klass(absolute)
        )

    # --- what facts say about names ---------------------------------------------------------------------------------

    def evidence(self, ref: FunctionRef) -> dict[str, frozenset[str]]:
        """Receiver text → names of the methods that the function (closures too) calls on it; ``self.x`` receivers concern the
        whole class."""
        facts = self.facts(ref)
        return self.query_log.memoize(
            self._evidence, (ref.path, facts.qualname), lambda: self._gather_evidence(ref.path, facts)
        )

    def _gather_evidence(self, path: str, facts: FunctionFacts) -> dict[str, frozenset[str]]:
        found = self.project.receivers(path, facts.owner or facts.qualname, facts.qualname)
        return {receiver: frozenset(methods) for receiver, methods in found}

    def is_module_class(self, cls: ClassRef) -> bool | None:
        """Whether a class of the project is an ``nn.Module``; None when a base is not visible."""
        return self.query_log.memoize(self._is_module, cls, lambda: self._find_module(cls))

    def class_of_method(self, ref: FunctionRef) -> ClassRef | None:
        """The class of which a function is a method; None for any other function."""
        owner = self.header(ref).owner
        return ClassRef(ref.path, owner) if owner else None

    def is_of_module(self, ref: FunctionRef) -> bool | None:
        """Whether a function is a method of an ``nn.Module``; None when a base of its class is not visible."""
        cls = self.class_of_method(ref)
        return cls is not None and self.is_module_class(cls)

    def assigned(self, ref: FunctionRef, text: str) -> tuple[tuple[AttrFact, ClassRef], ...]:
        """What the class of a method and those above it assign to an attribute of the object, by its text (``self.net``); nothing for
        any other text."""
        cls, name = self.class_of_method(ref), text.removeprefix("self.")
        return self.project.attr(cls, name) if cls is not None and name != text and name.isidentifier() else ()

    def is_forward(self, ref: FunctionRef) -> bool:
        """Whether a function is the forward of a module, or of what may be one; objects of other classes may as well be called."""
        return ref.qualname.rpartition(".")[2] in TORCH.words["forward"] and self.is_of_module(ref) is not False

    def is_plain_record(self, cls: ClassRef) -> bool:
        """Whether objects of a class of the project hold numbers and words alone, as the annotations of all its fields say."""
        mro = self.project.mro(cls)
        fields = [field for base in mro if isinstance(base, ClassRef) for field in self.project.attrs(base)]
        known = self.is_module_class(cls) is False and not any(isinstance(b, str) and TORCH.class_kind(b) for b in mro)
        return known and bool(fields) and all(field.annotation in PLAIN_FIELDS for field in fields)

    def _find_module(self, cls: ClassRef) -> bool | None:
        answer: bool | None = False
        for base in self.project.mro(cls):
            if isinstance(base, str):
                kind = TORCH.class_kind(base)
                if base == TORCH.names["module"] or kind in MODULE_KINDS:
                    return True
                if base == UNKNOWN_BASE or (base.split(".")[0] not in PLAIN_ROOTS and not kind):
                    answer = None
        return answer


def is_batch_hook(world: World, ref: FunctionRef) -> bool:
    """Whether a framework calls a method by itself, and once for each batch: each call is an iteration of its loop."""
    return ref.qualname.rpartition(".")[2] in BATCH_HOOKS and world.hook(ref) is not None


def does_nothing(world: World, ref: FunctionRef) -> bool:
    """Whether a method reads nothing: classes below have the real one."""
    return not world.facts(ref).names - {"NotImplementedError", "self"}


def memoized(question: Question[Asked, Answer]) -> Question[Asked, Answer]:
    """For a question of more than one place in the code: its answer is worked out once for the same arguments, which are given by
    their places (``World.memoize``)."""

    @wraps(question)
    def ask(world: World, *key: Hashable) -> Answer:
        return world.memoize(question, *key)

    return cast(Question[Asked, Answer], ask)


def memoized_or(within_itself: Any) -> Callable[[Question[Asked, Answer]], Question[Asked, Answer]]:
    """As ``memoized``, for a question that may lead back to itself, and then gets this answer."""

    def memoized(question: Question[Asked, Answer]) -> Question[Asked, Answer]:
        @wraps(question)
        def ask(world: World, *key: Hashable) -> Answer:
            return within_itself if world.is_finding(question, *key) else world.memoize(question, *key)

        return cast(Question[Asked, Answer], ask)

    return memoized


def memoized_with_code(question: Question[Asked, Answer]) -> Question[Asked, Answer]:
    """As ``memoized``, for an answer that holds the IR of a function (``World.memoize_with_code``)."""

    @wraps(question)
    def ask(world: World, *key: Hashable) -> Answer:
        return world.memoize_with_code(question, *key)

    return cast(Question[Asked, Answer], ask)
