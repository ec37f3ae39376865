"""The project: all modules' facts as one, and the questions that the analysis asks of it.

Answers do not depend on the order in which files were given. Everything beyond the tables of names is worked out when asked
for, and remembered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from torchmemlint.index import keys
from torchmemlint.index.callgraph import CallGraph
from torchmemlint.index.edges import Callees, Caller, Callers
from torchmemlint.index.effects import Effects
from torchmemlint.index.evidence import Evidence, Instance, Method
from torchmemlint.index.facts import AttrFact, CallableUse, ClassFacts, FunctionFacts, ModuleFacts
from torchmemlint.index.gradmode import GradMode
from torchmemlint.index.leaks import Leaks
from torchmemlint.index.ledger import Ledger
from torchmemlint.index.modes import CallerMode
from torchmemlint.index.modules import Modules
from torchmemlint.index.names import Names
from torchmemlint.index.reader import FactReader
from torchmemlint.index.references import TOP, ClassRef, FunctionRef, Outside, Variable
from torchmemlint.index.starts import Starts
from torchmemlint.index.trail import MISSING, Trail, answered
from torchmemlint.torch_facts import TORCH

if TYPE_CHECKING:
    from torchmemlint.board import Board

__all__ = ["TOP", "Callees", "Caller", "CallerMode", "Callers", "ClassRef", "FunctionRef", "Project"]

_DOTTED = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")
_GUARDS = re.compile(r"no_grad|inference|grad|eval", re.IGNORECASE)
_MAX_CALLS = 30
_INWARDS = 8
"""Calls between a module's forward and the gradients that it takes, at the most."""
_OF_SO_MANY = 50
_LOSS = re.compile(r"loss|penalty|regulari|criterion", re.IGNORECASE)

BACKWARD_ALONE = "backward()"
"""What ``Project.receivers`` says of ``x.backward()`` without a gradient."""

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def question(
    method: Callable[Concatenate[Project, Arguments], Answer],
) -> Callable[Concatenate[Project, Arguments], Answer]:
    """A method whose answers findings rest on: every call is written into the project's ledger. Arguments go by place, and
    are of the kinds that ``index.answers`` can write down."""
    name = method.__name__

    def ask(self: Project, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        ledger = self.ledger
        if ledger.writes:
            ledger.open.questions.add((name, *args))
        if self.earlier is not None:
            found: Answer = self.earlier.answer((name, *args))
            if found is not MISSING:
                if self.trail.on:
                    self.trail.page = [self.earlier.step((name, *args))]
                return found
        if self.trail.on:
            self.trail.page = []  # no question asks another: these are the steps to this answer
        return method(self, *args, **kwargs)

    update_wrapper(ask, method)
    return ask


class Known(Protocol):
    """Answers that are known to hold in a project (see ``index.answers.Earlier``)."""

    def answer(self, question: tuple[Hashable, ...], /) -> Any:
        """The answer to a question, ``MISSING`` where it is not among them."""

    def step(self, question: tuple[Hashable, ...], /) -> int:
        """The step of the project's trail that the answer is."""


class Project:
    """The modules of one run.

    no_grad_wrappers  absolute names of decorators and managers outside the project that switch grad off
    complete          False where modules were left out that may hold callers: then "no caller" is never an answer
    trail             the number of the first node, where it is written down of what answers are made; else None
    earlier           answers that are known to hold
    """

    def __init__(
        self,
        modules: Modules,
        no_grad_wrappers: Sequence[str] = (),
        complete: bool = True,
        trail: int | None = None,
        earlier: Known | None = None,
    ) -> None:
        self.earlier = earlier
        self.trail = Trail()
        if trail is not None:
            self.trail.begin(trail)
        self.ledger = Ledger()
        self._at_hand = False
        self._within: dict[str, dict[str, tuple[FunctionFacts, ...]]] = {}
        self._reader = FactReader(modules, self.trail)
        self._names = Names(self._reader)
        self._classes = self._names.classes
        self._evidence = Evidence(self._names, TORCH)
        self._differentiating = answered(self.trail, self._find_differentiating)
        self._calls = CallGraph(self._names, self._evidence, TORCH)
        self._effects = Effects(self._names, self._evidence, TORCH, no_grad_wrappers)
        self._leaks = Leaks(self._effects, self._calls, self.trail)
        self._starts = Starts(self._names, self._calls, self._effects, self._leaks, TORCH, complete)
        self._grad = GradMode(self._starts, self._calls, self.trail)

    @classmethod
    def build(
        cls,
        facts: Iterable[ModuleFacts],
        no_grad_wrappers: Sequence[str] = (),
        complete: bool = True,
        trail: int | None = None,
    ) -> Project:
        """The project of modules whose facts are at hand, linked: what every question needs of all of them is there."""
        project = cls(Modules.of(facts), no_grad_wrappers, complete, trail)
        project._at_hand = True
        project._names.link()
        project._calls.resolver.link()
        return project

    def _note(self, kind: int, path: str, qualname: str = "") -> None:
        if self.trail.on:
            self.trail.page.append((kind, path, qualname))

    def meet(self, board: Board) -> None:
        """From now on other processes, forked from this one, are told on a board what all of them need, and tell this one; not
        where few questions are asked of the project. Where a trail is written, what was told are roots, which one process alone
        writes down."""
        if self._at_hand:
            board.sign, board.believes = self.trail.sign, self.trail.believes
            self._calls.meet(board)

    # --- what there is

    @property
    def parts(self) -> tuple[Names, CallGraph, Leaks]:
        """What the answers come from, for ``index.roots``."""
        return self._names, self._calls, self._leaks

    @property
    def modules(self) -> Modules:
        """The facts of all modules."""
        return self._reader.modules

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all modules, sorted."""
        return tuple(self._reader.modules)

    @question
    def module(self, path: str) -> ModuleFacts:
        """The facts of the module at ``path``; KeyError when it is not in the project."""
        self._note(keys.MODULE, path)
        return self._reader.whole(path)

    @question
    def imports(self, path: str) -> tuple[tuple[str, str], ...]:
        """What the module at ``path`` imports (see ``ModuleFacts.imports``): ask for this alone where no more is wanted, so that
        findings do not rest on all that the module says."""
        self._note(keys.IMPORTS, path)
        return self._reader.whole(path).imports

    @question
    def assigned(self, path: str, name: str) -> str | None:
        """What the module at ``path`` assigns to a name, as ``ModuleFacts.assigned`` has it; None where it does not."""
        self._note(keys.NAME, path, name)
        return next((text for assigned, text in self._reader.whole(path).assigned if name == assigned), None)

    @question
    def within(self, path: str, qualname: str) -> tuple[FunctionFacts, ...]:
        """The function of that name in the module at ``path`` and all that are inside it, or inside the class of that name; in the
        order of the file, every definition of each."""
        return self._inside(path, qualname)

    def _inside(self, path: str, qualname: str) -> tuple[FunctionFacts, ...]:
        self._note(keys.INSIDE, path, qualname)
        known = self._within.get(path)
        if known is None:
            known = {}
            for facts in self._reader.whole(path).functions:
                around = facts.qualname
                while around:
                    known[around] = (*known.get(around, ()), facts)
                    around = around.rpartition(".")[0]
            self._within[path] = known
        return known.get(qualname, ())

    @question
    def receivers(self, path: str, around: str, qualname: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """On what the function of that name calls which methods, sorted; of the others in the class or function ``around``, on
        what of ``self``. "()" is the method of what is called itself with arguments, ``BACKWARD_ALONE`` that of a plain
        ``backward()``. Of all that ``within`` gives, what others mostly want to know."""
        gathered: dict[str, set[str]] = {}
        for other in self._inside(path, around):
            same = other.qualname == qualname or other.qualname.startswith(f"{qualname}.")
            if not same and other.qualname == around:
                continue
            for call in other.calls:
                if call.args and "(" not in call.callee and (same or call.callee.startswith("self.")):
                    gathered.setdefault(call.callee, set()).add("()")
                receiver, _, method = call.callee.rpartition(".")
                if receiver and (same or receiver.startswith("self.")):
                    gathered.setdefault(receiver, set()).add(method)
                    if method == "backward" and all(a.keyword in ("retain_graph", "create_graph") for a in call.args):
                        gathered[receiver].add(BACKWARD_ALONE)
        return tuple((receiver, tuple(sorted(methods))) for receiver, methods in sorted(gathered.items()))

    @question
    def saying(self, path: str, qualname: str, *words: str) -> tuple[str, ...]:
        """The functions inside a class that say one of the words (see ``FunctionFacts.names``), by name, in the order of the file."""
        inside = self._inside(path, qualname)
        return tuple(f.qualname for f in inside if f.qualname.startswith(f"{qualname}.") and not f.names.isdisjoint(words))

    @question
    def module_name(self, path: str) -> str:
        """The module's absolute dotted name, unique in the project."""
        return self._names.layout.names[path]

    @overload
    def facts(self, ref: FunctionRef) -> FunctionFacts: ...
    @overload
    def facts(self, ref: ClassRef) -> ClassFacts: ...
    def facts(self, ref: FunctionRef | ClassRef) -> FunctionFacts | ClassFacts:
        """The facts behind a reference; of a name that is defined several times, the last definition (a property's getter)."""
        if self.ledger.writes:
            self.ledger.open.questions.add(("facts", ref))
        self._note(keys.WHOLE, ref.path, ref.qualname)
        return self._reader.facts_of(ref)

    # --- names

    @question
    def resolve(self, path: str, dotted: str, function_qualname: str = "") -> str | None:
        """The absolute name of dotted text in the function ``function_qualname`` ("": module level) of ``path``.

        None for locals of the function and of the functions around it, for names that nothing binds, and for text that is
        more than names and dots. Names of outside packages are given as the imports spell them.
        """
        if not _DOTTED.match(dotted):
            return None
        head, *rest = dotted.split(".")
        facts = self._reader.scope(path, function_qualname) if function_qualname != TOP else None
        while facts is not None:
            symbol = self._reader.inner(facts, path, head)
            if symbol is not None:
                found = self._names.member(symbol, rest[0]) if len(rest) == 1 else None if rest else symbol
                return self._names.absolute(found) if found is not None else None
            if head in facts.locals:
                return None
            facts = self._reader.scope(path, facts.parent) if facts.parent else None
        found = self._names.dotted(path, dotted)
        if found is None:
            return None
        if isinstance(found, Variable) and rest:
            return None
        return self._names.absolute(found)

    @question
    def variable(self, path: str, name: str) -> tuple[str, str] | None:
        """The file and name of the variable that a module-level name stands for, imports followed; None for anything else."""
        found = self._names.lookup(path, name)
        return (found.path, found.name) if isinstance(found, Variable) else None

    @question
    def function(self, absolute: str) -> FunctionRef | None:
        """The function of an absolute name, re-exports and inheritance followed."""
        found = self._names.by_absolute(absolute)
        if isinstance(found, FunctionRef):
            return found
        return self._nested_function(absolute) if found is None else None

    @question
    def klass(self, absolute: str) -> ClassRef | None:
        """The class of an absolute name, re-exports followed."""
        found = self._names.by_absolute(absolute)
        return found if isinstance(found, ClassRef) else None

    def _nested_function(self, absolute: str) -> FunctionRef | None:
        parts = absolute.split(".")
        for count in range(len(parts) - 1, 0, -1):
            path = self._names.layout.path_of.get(".".join(parts[:count]))
            if path is not None and self._reader.has_function(path, ".".join(parts[count:])):
                return FunctionRef(path, ".".join(parts[count:]))
        return None

    # --- classes

    @question
    def mro(self, ref: ClassRef) -> tuple[ClassRef | str, ...]:
        """The method resolution order, ``ref`` first; outside bases by absolute name, "?" for what cannot be resolved."""
        return self._classes.mro(ref)

    @question
    def method(self, ref: ClassRef, name: str) -> FunctionRef | None:
        """The function that the method ``name`` is, in the class or its bases."""
        return self._classes.method(ref, name)

    @question
    def subclasses(self, ref: ClassRef) -> tuple[ClassRef, ...]:
        """All classes of the project below ``ref``, sorted."""
        return self._classes.subclasses(ref)

    @question
    def attr(self, ref: ClassRef, name: str) -> tuple[tuple[AttrFact, ClassRef], ...]:
        """Every assignment to an attribute, with the class that makes it, the nearest class first."""
        return self._classes.attr(ref, name)

    @question
    def attrs(self, ref: ClassRef) -> tuple[AttrFact, ...]:
        """The assignments to attributes that a class makes itself; KeyError when there is no such class."""
        self._note(keys.ATTRS, ref.path, ref.qualname)
        facts = self._reader.facts_of(ref)
        assert isinstance(facts, ClassFacts)
        return facts.attrs

    @question
    def is_subclass(self, ref: ClassRef, absolute_name: str) -> bool | None:
        """Whether the class is (below) ``absolute_name``; None when that is not seen, and a base is not in sight."""
        return self._classes.is_subclass(ref, absolute_name)

    @question
    def class_of(self, path: str, function_qualname: str, dotted: str) -> ClassRef | str | None:
        """The class that an expression's text is an instance of, by evidence; a str for a class outside; None: not known."""
        return self._evidence.class_of(path, function_qualname or TOP, dotted)

    @question
    def methods_named(self, name: str) -> tuple[FunctionRef, ...]:
        """Every method of that name in the project, sorted."""
        return self._calls.tables.named(name)

    @question
    def is_function(self, path: str, function_qualname: str, dotted: str) -> bool:
        """Whether dotted text is a function or method of the project, whatever it is of what is possible."""
        values = self._evidence.values(path, function_qualname or TOP, dotted)
        return bool(values) and all(isinstance(value, FunctionRef | Method) for value in values)

    @question
    def attribute_class(self, ref: ClassRef, name: str) -> ClassRef | str | None:
        """The class of what an attribute holds on an object of ``ref``, by assignments and annotations, those in the class body
        included; None when there is no evidence, or evidence of several."""
        classes = {value.klass for value in self._evidence.attribute(ref, name) if isinstance(value, Instance)}
        return classes.pop() if len(classes) == 1 else None

    @question
    def attribute_classes(self, ref: ClassRef, name: str) -> tuple[ClassRef | str, ...]:
        """As ``attribute_class``, every class of which there is evidence, the first assigned first."""
        return tuple(dict.fromkeys(value.klass for value in self._evidence.attribute(ref, name) if isinstance(value, Instance)))

    @question
    def is_attribute_only(self, name: str) -> bool:
        """Whether classes of the project assign an attribute of that name and none defines a method of it: ``x.name(…)`` calls
        an object that is held there."""
        return self._calls.tables.is_held(name) and not self._calls.tables.named(name)

    @question
    def is_attribute(self, name: str) -> bool:
        """Whether a method of some class of the project assigns an attribute of that name."""
        return self._calls.tables.is_held(name)

    @question
    def classes_with_attribute(self, name: str) -> tuple[ClassRef, ...]:
        """Every class of which a method assigns an attribute of that name, sorted."""
        return self._calls.tables.holders(name)

    @question
    def is_inside(self, absolute: str) -> bool:
        """Whether an absolute name is that of something in a module of the project, or of such a module."""
        self._names.note_absolute(absolute)
        parts = absolute.split(".")
        return any(".".join(parts[:count]) in self._names.layout.path_of for count in range(len(parts), 0, -1))

    # --- calls

    @question
    def calls_by_name(self, name: str) -> tuple[tuple[FunctionRef, str, bool], ...]:
        """The first calls of a method of that name on something other than ``self``: in which function, the receiver's text,
        and whether a manager that may switch grad mode off, by its name, is around the call."""
        found = []
        for ref, call in self._calls.tables.calls(name):
            receiver = call.callee.rpartition(".")[0]
            if receiver and receiver not in ("self", "cls", "super()"):
                found.append((ref, receiver, any(_GUARDS.search(use.callee) for use in call.managers)))
                if len(found) == _MAX_CALLS:
                    break
        return tuple(found)

    @question
    def callees(self, path: str, qualname: str, callee: str, *keywords: str) -> Callees:
        """The functions of the project that a call of ``callee``, with these ``CallFact.keywords``, can reach in the function
        ``qualname`` of ``path``."""
        return self._calls.resolver.callees(path, qualname, callee, keywords)

    @question
    def callers(self, ref: FunctionRef) -> Callers:
        """The calls that can reach a function, and whether it is also handed on as a value."""
        self._note(keys.PLACES, ref.path, ref.qualname)
        return self._calls.callers(ref)

    @question
    def functions_given(self, ref: FunctionRef, parameter: str) -> tuple[FunctionRef, ...]:
        """The functions and bound methods that calls give for a parameter, sorted; none where not all calls are in sight, or one
        gives anything else."""
        callers = self._calls.callers(ref)
        if callers.escapes:
            return ()
        facts = self._reader.header(ref)
        names = [param.name for param in facts.params if param.kind == "positional"]
        if facts.owner and not any(use.callee == "staticmethod" for use in facts.decorators):
            names = names[1:]
        found: set[FunctionRef] = set()
        for caller in callers.calls:
            places = iter(names)
            for arg in caller.call.args:
                if arg.keyword in ("*", "**"):
                    return ()
                if (arg.keyword or next(places, "")) != parameter or arg.const == "None":
                    continue
                for value in self._evidence.values(caller.ref.path, caller.ref.qualname, arg.name) or (None,):
                    if isinstance(value, Outside) and value.name.startswith("builtins."):
                        continue
                    if not isinstance(value, FunctionRef | Method):
                        return ()
                    found.add(value if isinstance(value, FunctionRef) else value.function)
        return tuple(sorted(found))

    # --- grad mode

    @question
    def grad_mode(self, ref: FunctionRef) -> CallerMode:
        """The grad mode in which the function's body starts."""
        return self._grad.grad_mode(ref)

    @question
    def test_holds(self, ref: FunctionRef, test: str) -> bool | None:
        """How a test of a parameter comes out under every caller in sight; None where that is not known, or not one answer."""
        return self._starts.test_holds(ref, test)

    @question
    def manager_effect(self, path: str, qualname: str, use: CallableUse) -> str | None:
        """What a with item or statement does to grad mode: "off", "on", "mixed", "start", "param:TEST" or None (nothing)."""
        return self._effects.manager_effect(path, qualname or TOP, use)

    @question
    def decorator_effect(self, path: str, scope: str, use: CallableUse) -> str | None:
        """What a decorator, standing in the function ``scope`` ("": module level), does to the body under it."""
        return self._effects.decorator_effect(path, scope or TOP, use)

    @question
    def driven_without_grad(self, ref: ClassRef) -> bool:
        """Whether a file of the class's top package that has ``torch.set_grad_enabled(False)`` as a statement calls a method of that
        name as one of the class: objects that it does not know the class of may be of this one."""
        layout = self._names.layout
        top = layout.top_package(ref.path)
        switching = {
            site.path
            for site, call in self._calls.tables.calls("set_grad_enabled")
            if call.used == "dropped" and [arg.const for arg in call.args] == ["False"] and layout.top_package(site.path) == top
        }
        if not switching:
            return False
        classes = [base for base in self._classes.mro(ref) if isinstance(base, ClassRef)]
        methods = {method.rpartition(".")[2] for base in classes for method in self._reader.methods_of(base)}
        return any(
            site.path in switching
            for name in sorted(methods)
            if not name.startswith("__")
            for site, _ in self._calls.tables.calls(name)
        )

    @question
    def says(self, word: str) -> bool:
        """Whether any function of the project says this word (see ``FunctionFacts.names``), or gives an argument of that name."""
        return self._calls.tables.has_word(word)

    @question
    def speaks_of_cuda(self) -> bool:
        """Whether the project works with CUDA devices: some function says ``.cuda`` or ``torch.cuda``, or "cuda" is given for a
        device."""
        return self._calls.tables.has_word("cuda") or self._calls.tables.gives_cuda()

    @question
    def differentiates(self, ref: ClassRef) -> bool:
        """Whether a class's own forward takes gradients (the forces of an energy), itself or in what it calls."""
        return self._classes.method(ref, "forward") in self._forwards_with_gradients()

    @question
    def differentiates_somewhere(self, path: str) -> bool:
        """Whether the forward of some class in the top package or the folder of a file takes gradients, of a package that is
        about such models: of one class in fifty at the least. Losses, by their names, are left aside."""
        layout = self._names.layout
        found = [each for each in self._forwards_with_gradients() if not _LOSS.search(each.qualname.partition(".")[0])]
        near = [each for each in found if layout.near(each.path, path)]
        top = layout.top_package(path)
        forwards = sum(layout.top_package(ref.path) == top for ref in self._calls.tables.named("forward")) if near else 0
        return bool(near) and len(near) * _OF_SO_MANY >= forwards

    def _forwards_with_gradients(self) -> frozenset[FunctionRef]:
        return self._differentiating.answer("")

    def _find_differentiating(self, whole: str) -> frozenset[FunctionRef]:
        level = {
            ref
            for word in ("grad", "jacobian", "hessian", "vjp", "jvp")
            for ref, call in self._calls.tables.calls(word)
            if any(
                isinstance(value, Outside) and value.name.startswith(("torch.autograd.", "torch.func."))
                for value in self._evidence.values(ref.path, ref.qualname, call.callee)
            )
        }
        seen: set[FunctionRef] = set()
        for _ in range(_INWARDS):
            level -= seen
            seen |= level
            level = {caller.ref for ref in level for caller in self._calls.calls_of(ref) if caller.certain}
        return frozenset(ref for ref in seen if ref.qualname.endswith(".forward"))

    @question
    def outside(self, path: str, function_qualname: str, dotted: str) -> str | None:
        """The absolute outside name of a callee, also through objects of known classes ("torch.nn.Linear.forward")."""
        values = self._evidence.values(path, function_qualname or TOP, dotted)
        names = {value.name for value in values if isinstance(value, Outside)}
        return names.pop() if len(values) == 1 and names else None
