"""What the engine can look up: the project's graph, lowered functions, torch facts. One per process, shared by all runs."""

from __future__ import annotations

import re
from collections.abc import Callable

from torchmemlint.errors import SourceError
from torchmemlint.index.facts import ArgFact, AttrFact, FunctionFacts, ParamFact
from torchmemlint.index.gradmode import argument_for
from torchmemlint.index.ledger import Page
from torchmemlint.index.project import ClassRef, FunctionRef, Project
from torchmemlint.index.sources import split_lines
from torchmemlint.lower import ir
from torchmemlint.semantics import purpose
from torchmemlint.semantics.state import Mode
from torchmemlint.settings import Settings
from torchmemlint.torch_facts import MODULE_KINDS, TORCH
from torchmemlint.torch_facts.words import ClassKind, Effect, HookEffect

MODULE = "<module>"
KEPT_TEXTS = 100
"""Files whose lines are kept at hand: those of a large tree would be a large part of the process."""
KEPT_REGIONS = 300
"""Lowered functions that are kept from one file to the next, for the same reason."""
CALLS_INSIDE = 2
"""How deep a module's forward is followed into methods of its own class."""

HOOKS = frozenset(name for _, name in TORCH.hooks)
"""Names of methods that a framework calls."""

AFFINE = {
    **dict.fromkeys(TORCH.words["affine-norms"], True),
    **dict.fromkeys(TORCH.words["plain-norms"], False),
}
"""Normalisations, and whether they have parameters unless they are told otherwise."""


class World:
    """Looks things up, each once. What is remembered goes through the project's ledger (``index.ledger``), because a finding
    rests on what was looked up for it, whoever asked first.

    ``read`` gives the text of a file by its path (raises SourceError); lowering happens on demand, an outermost function at a
    time, so that only regions that a run reaches are ever parsed again.
    """

    def __init__(self, project: Project, settings: Settings, read: Callable[[str], str]) -> None:
        self.project = project
        self.settings = settings
        self._read = read
        self.ledger = project.ledger
        self._lines: dict[str, list[str]] = {}
        self._regions: dict[tuple[str, str], tuple[object, Page]] = {}
        self._let_go: set[tuple[str, str]] = set()
        self._again: set[tuple[str, str]] = set()
        self._functions: dict[FunctionRef, tuple[tuple[ir.Function, object] | None, Page]] = {}
        self._evidence: dict[tuple[str, str], tuple[dict[str, frozenset[str]], Page]] = {}
        self._is_module: dict[ClassRef, tuple[bool | None, Page]] = {}
        self._guarding: dict[str, tuple[bool, Page]] = {}
        self._guarded_inside: dict[ClassRef, tuple[bool, Page]] = {}
        self._parametric: dict[tuple[ClassRef, bool], tuple[frozenset[str] | None, Page]] = {}
        self._variables: dict[tuple[str, str], tuple[tuple[str, str] | None, Page]] = {}
        self._said: dict[tuple[str, str], tuple[frozenset[str], Page]] = {}
        self._resolved: dict[tuple[str, str], tuple[str | None, Page]] = {}
        self._symbols: dict[str, tuple[FunctionRef | ClassRef | None, Page]] = {}

    # --- source ---------------------------------------------------------------------------------------------------

    def lines(self, path: str) -> list[str]:
        """A file's lines. Whatever asks rests on all of its text, and on where everything in it stands."""
        self.ledger.open.questions.add(("text", path))
        return self._lines_of(path)

    def _lines_of(self, path: str) -> list[str]:
        if path not in self._lines:
            if len(self._lines) == KEPT_TEXTS:
                del self._lines[next(iter(self._lines))]
            self._lines[path] = split_lines(self._read(path))
        return self._lines[path]

    def length(self, ref: FunctionRef) -> int:
        """The rows of a function's body. This reads the text, as everything must that uses positions (``index.facts.POSITIONS``)."""
        facts = self.facts(ref)
        self.ledger.open.questions.add(("text", ref.path))
        return facts.end_row - facts.row

    def within(self, path: str, qualname: str) -> tuple[FunctionFacts, ...]:
        """The function of that name in a file and all that are inside it, or inside the class of that name; in order."""
        return self.project.within(path, qualname)

    def forget(self) -> None:
        """Let go of lowered functions when there are many, but for those that were lowered again after they had been let go of:
        what many files call."""
        if len(self._regions) > KEPT_REGIONS + len(self._again):
            if len(self._again) > KEPT_REGIONS:
                self._again.clear()
            self._let_go |= self._regions.keys()
            self._regions = {key: found for key, found in self._regions.items() if key in self._again}
            self._functions = {ref: found for ref, found in self._functions.items() if (ref.path, ref.qualname) in self._again}

    def lowered(self, path: str, outermost: str):  # type: ignore[no-untyped-def]
        """The lowered region of an outermost function, or of the module's own statements; None where it cannot be lowered.
        Who asks of a function rests on its text alone: for its rows and columns ask ``placed``."""
        return self.ledger.remember(self._regions, (path, outermost), lambda: self._lower(path, outermost))

    def placed(self, path: str, outermost: str):  # type: ignore[no-untyped-def]
        """As ``lowered``, for whoever tells where in the file something stands."""
        self.ledger.open.questions.add(("text", path))
        return self.lowered(path, outermost)

    def _lower(self, path: str, outermost: str) -> object:
        from torchmemlint.lower import quick, regions

        if (path, outermost) in self._let_go:
            self._again.add((path, outermost))
        try:
            if outermost == MODULE:
                region = regions.cut_module(self.lines(path), self.project.module(path))
            else:
                self.ledger.open.questions.add(("source", path, outermost))
                region = regions.cut_function(self._lines_of(path), self.facts(FunctionRef(path, outermost)), path)
            return quick.lower(region)
        except (SourceError, RecursionError) as error:
            self.ledger.note(f"{path}: {outermost}: not analysed: {error}")
            return None

    def facts(self, ref: FunctionRef) -> FunctionFacts:
        """The facts of a function; of a lambda, which has none of its own, those of the function around it."""
        while ref.qualname.endswith("<lambda>"):
            around = ref.qualname.rpartition(".")[0] or MODULE
            ref = FunctionRef(ref.path, around)
        try:
            return self.project.facts(ref)
        except KeyError:
            # A function that facts do not keep apart (a redefinition in a branch, a class inside a function).
            around = ref.qualname.rpartition(".")[0] or MODULE
            return self.facts(FunctionRef(ref.path, around))

    def outermost(self, ref: FunctionRef) -> str:
        facts = self.facts(ref)
        while facts.parent:
            facts = self.facts(FunctionRef(ref.path, facts.parent))
        return facts.qualname

    def function(self, ref: FunctionRef) -> tuple[ir.Function, object] | None:
        """The IR of a function that is not nested in another, and its lowered region."""
        return self.ledger.remember(self._functions, ref, lambda: self._function(ref))

    def _function(self, ref: FunctionRef) -> tuple[ir.Function, object] | None:
        lowered = self.lowered(ref.path, ref.qualname)
        found = lowered.functions.get(ref.qualname) if lowered is not None else None
        return None if found is None else (found, lowered)

    def methods_named(self, name: str) -> tuple[FunctionRef, ...]:
        """Every method of that name in the project, sorted."""
        return self.project.methods_named(name)

    def is_attribute_only(self, name: str) -> bool:
        """As ``Project.is_attribute_only``."""
        return self.project.is_attribute_only(name)

    def training_of(self, ref: FunctionRef, text: str) -> bool | None:
        """False for a module attribute (``self.x``) on which its class calls ``eval()`` and never ``train()``, in a class that
        trains nothing; None when nothing is known."""
        if not text.startswith("self."):
            return None
        attribute = ".".join(text.split(".")[:2])
        words = self.evidence(ref).get(attribute, frozenset())
        facts = self.facts(ref)
        if "eval" not in words or "train" in words or not facts.owner:
            return None
        return None if self.project.saying(ref.path, facts.owner, "backward", "manual_backward", "zero_grad") else False

    def has_parameters(self, cls: ClassRef) -> bool:
        """Whether a module class may have parameters: False only when all its classes are in sight and none of them makes a
        parameter, or holds anything that may have one."""
        return self.parametric(cls) != frozenset()

    def parametric(self, cls: ClassRef, exact: bool = False) -> frozenset[str] | None:
        """The parameters of a module class's constructor by which modules with parameters may come in; None where the class may
        make some itself, or is not wholly in sight. ``exact``: what is asked of is constructed from this very class, and from
        none below it."""
        if self.ledger.meanwhile(self._parametric, (cls, exact)):
            return None  # a class that holds its own kind
        return self.ledger.remember(self._parametric, (cls, exact), lambda: self._finds_parameters(cls, exact))

    def _finds_parameters(self, cls: ClassRef, exact: bool) -> frozenset[str] | None:
        project = self.project
        forward = project.method(cls, "forward")
        if forward is None or not self.facts(forward).names - {"NotImplementedError", "self"}:
            return None  # an abstract class
        if not exact and project.subclasses(cls):
            return None  # one that stands for its subclasses
        needed: frozenset[str] = frozenset()
        params: tuple[ParamFact, ...] = ()
        for base in reversed(project.mro(cls)):
            if isinstance(base, str):
                if base not in ("torch.nn.Module", "torch.nn.modules.module.Module") and base.split(".")[0] not in PLAIN_ROOTS:
                    if TORCH.class_kind(base) not in (ClassKind.LOSS, ClassKind.MODULE_NOPARAM):
                        return None
                continue
            init = FunctionRef(base.path, f"{base.qualname}.__init__")
            own = self.facts(init) if project.method(base, "__init__") == init else None
            if own is not None:
                if own.names & {"register_parameter", "add_module", "register_module", "setattr"}:
                    return None
                if "append" in own.names and own.names & {"ModuleList", "Sequential", "ModuleDict", "ParameterList"}:
                    return None
                handed = self._handed_on(init, own, params, needed)
                if handed is None:
                    return None
                needed, params = handed, own.params[1:]
            given = {param.name for param in own.params[1:]} if own is not None else set()
            for attr in self._attributes(base):
                if attr.kind == "const" or not self._may_hold_parameter(base, attr):
                    continue
                if attr.kind != "name" or attr.method != init.qualname or attr.value not in given:
                    return None
                needed |= {attr.value}
        return needed

    def _handed_on(
        self, init: FunctionRef, facts: FunctionFacts, params: tuple[ParamFact, ...], needed: frozenset[str]
    ) -> frozenset[str] | None:
        """Of the ``needed`` parameters (``params``) of the constructor above this one, those that get what this one is given, by
        its own names; None where one of them may get a module that is made here."""
        own = {param.name for param in facts.params}
        found: set[str] = set()
        for call in facts.calls if needed else ():
            receiver, _, name = call.callee.rpartition(".")
            if name != "__init__":
                continue
            args = call.args if receiver == "super()" else call.args[1:]
            for word in needed:
                arg = argument_for(params, word, args)
                if arg is None:
                    if any(one.keyword in ("*", "**") for one in args):
                        found.add(word)
                elif arg.name in own:
                    found.add(arg.name)
                elif not self._is_without_parameters(init, arg):
                    return None
        return frozenset(found)

    def made_without_parameters(self, ref: FunctionRef, callee: str, cls: ClassRef) -> bool:
        """Whether every call of ``callee`` in a function, which constructs ``cls``, makes a module that has no parameters."""
        needed = self.parametric(cls, exact=True)
        if not needed:
            return needed is not None
        init = self.project.method(cls, "__init__")
        calls = [call for call in self.facts(ref).calls if call.callee == callee]
        if init is None or not calls:
            return False
        params = self.facts(init).params[1:]
        for call in calls:
            for word in needed:
                arg = argument_for(params, word, call.args)
                if arg is None and any(one.keyword in ("*", "**") for one in call.args):
                    return False
                if arg is not None and not self._is_without_parameters(ref, arg):
                    return False
        return True

    def _is_without_parameters(self, ref: FunctionRef, arg: ArgFact) -> bool:
        """Whether an argument in a function is no module with parameters, by what it says: a literal, a function."""
        if arg.const:
            return True
        return bool(arg.name) and self._is_known_function(ref.path, ref.qualname, arg.name)

    def _is_known_function(self, path: str, qualname: str, text: str) -> bool:
        """Whether dotted text is a function or method of the project, or one of torch's functions."""
        if self.project.is_function(path, qualname, text):
            return True
        absolute = self.project.resolve(path, text, qualname)
        return absolute is not None and is_torch_function(absolute)

    def parametric_attributes(self, cls: ClassRef) -> frozenset[str]:
        """The attributes of a class, inherited ones too, that may hold a module with parameters, or a parameter."""
        return frozenset(
            attr.name
            for base in self.project.mro(cls)
            if isinstance(base, ClassRef)
            for attr in self._attributes(base)
            if attr.kind != "const" and self._may_hold_parameter(base, attr)
        )

    def guards_what_it_runs(self, cls: ClassRef) -> bool:
        """Whether a module's forward, and what it calls of its own class, runs modules of its own, and each with grad mode off."""
        return self.ledger.remember(self._guarded_inside, cls, lambda: self._runs_of(cls, "forward", 0) == {"off"})

    def _runs_of(self, cls: ClassRef, name: str, depth: int) -> set[str]:
        """How a method runs the parts of its object that may have parameters, and its parameters: "off", "on", or both."""
        method = self.project.method(cls, name)
        if method is None or depth > CALLS_INSIDE:
            return {"on"}
        facts, parts = self.facts(method), self.parametric_attributes(cls)
        found: set[str] = set()
        called: set[str] = set()
        for call in facts.calls:
            start, _, rest = call.callee.partition(".")
            part = rest.partition(".")[0].partition("[")[0].partition("(")[0]
            if start == "super()":
                found.add("on")
            if start != "self" or not part:
                continue
            own = part == rest and self.project.method(cls, part) is not None
            if not own and part not in parts:
                continue
            called.add(part)
            effects = [self.project.manager_effect(method.path, method.qualname, use) for use in reversed(call.managers)]
            off = next((effect for effect in effects if effect is not None), None) == "off"
            found |= {"off"} if off and not own else set() if off else self._runs_of(cls, part, depth + 1) if own else {"on"}
        if any(self._is_made_parametric(cls, part) for part in sorted(facts.names & (parts - called))):
            found.add("on")  # a parameter, or a part that is handed on or gone through
        return found

    def _is_made_parametric(self, cls: ClassRef, name: str) -> bool:
        """Whether an attribute is assigned a parameter, or a module, that is made there by its name."""
        for attr, at in self.project.attr(cls, name):
            absolute = (
                self.project.resolve(at.path, attr.value.partition("()")[0], attr.method) if attr.kind == "call" else None
            )
            if absolute is None:
                continue
            inner = self.project.klass(absolute)
            if inner is not None and self.is_module_class(inner) is not False:
                return True
            if TORCH.class_kind(absolute) in MODULE_KINDS or TORCH.function_effect(absolute) in (
                Effect.LEAF,
                Effect.MODULE,
            ):
                return True
        return False

    def makes_bare(self, ref: FunctionRef, callee: str, absolute: str) -> bool:
        """Whether every call of ``callee`` in the function makes one of torch's normalisations (``absolute``) without its affine
        parameters, all that it could have, or an embedding of given weights that stay as they are."""
        calls = [call for call in self.facts(ref).calls if call.callee == callee]
        if absolute in TORCH.given_weights:
            return bool(calls) and not any(
                arg.keyword == "freeze" and arg.const != "True" for call in calls for arg in call.args
            )
        default = AFFINE.get(absolute)
        if default is None:
            return False
        given = [[arg.const for arg in call.args if arg.keyword in ("affine", "elementwise_affine")] for call in calls]
        return bool(calls) and all(
            one == ["False"] or (not one and not default and len(call.args) < 4) for one, call in zip(given, calls, strict=True)
        )

    def may_hold_module(self, cls: ClassRef, name: str) -> bool:
        """Whether a class's own assignments to an attribute may put a module there: not where all of them are literals, or
        objects of classes that are known to be none."""
        for attr in self._attributes(cls):
            if attr.name != name or attr.kind == "const":
                continue
            absolute = (
                self.project.resolve(cls.path, attr.value.removesuffix("()"), attr.method) if attr.kind == "call" else None
            )
            inner = self.project.klass(absolute) if absolute is not None else None
            if inner is None or self.is_module_class(inner) is not False:
                return True
        return False

    def _attributes(self, cls: ClassRef) -> tuple[AttrFact, ...]:
        return self.project.attrs(cls)

    def _may_hold_parameter(self, cls: ClassRef, attr: AttrFact) -> bool:
        if attr.kind == "function" or (attr.kind == "name" and self._is_known_function(cls.path, attr.method, attr.value)):
            return False
        if attr.kind != "call":
            # A bare name or an expression: a number from the arguments, unless it is called somewhere as a module would be.
            return bool(self._said_of(cls, attr) & {"()", "parameters", "forward"})
        made, _, method = attr.value.removesuffix("()").partition("().")
        absolute = self.project.resolve(cls.path, made, attr.method)
        if absolute is None:
            # `given.clone()`: a tensor, by a method that modules do not have.
            last = (method or made).rpartition(".")[2]
            return "." not in attr.value or last not in TORCH.methods or last in TORCH.module_methods
        if method and "(" not in method and method in TORCH.methods:
            # `torch.ones(3).bool()`: a tensor, which is no parameter of the module that holds it.
            return absolute != "torch.Tensor" and TORCH.function_effect(absolute) is not Effect.SOURCE
        inner = self.project.klass(absolute)
        if inner is not None:
            if not self.is_module_class(inner):
                return False
            return not self.made_without_parameters(FunctionRef(cls.path, attr.method or MODULE), made, inner)
        if absolute in HOLDERS and attr.element:
            text = attr.element.removesuffix("()")
            found = self.project.resolve(cls.path, text, attr.method) if text != attr.element else None
            each = self.project.klass(found) if found is not None else None
            return each is None or not self.made_without_parameters(FunctionRef(cls.path, attr.method or MODULE), text, each)
        kind = TORCH.class_kind(absolute)
        bare = kind is ClassKind.MODULE or absolute in TORCH.given_weights
        if bare and attr.method and self.makes_bare(FunctionRef(cls.path, attr.method), made, absolute):
            return False
        if kind is not None:
            return kind not in (
                ClassKind.MODULE_NOPARAM,
                ClassKind.LOSS,
                ClassKind.OPTIMIZER,
                ClassKind.LOADER,
                ClassKind.DISTRIBUTION,
            )
        effect = TORCH.function_effect(absolute)
        if effect is Effect.LOAD:
            return "()" in self._said_of(cls, attr)  # what is called is a compiled module
        if effect is not None or absolute.split(".")[0] in PLAIN_ROOTS | {"math", "numpy"}:
            return effect in (Effect.LEAF, Effect.MODULE, Effect.COMPILE)
        function = self.project.function(absolute)
        if function is not None:
            return self._may_make_module(function)
        # An object of another package: no module where all that is asked of it is what modules do not have.
        words = self._said_of(cls, attr)
        return not words or any(word == "()" or word in TORCH.module_methods or RUNS.match(word) for word in words)

    def _said_of(self, cls: ClassRef, attr: AttrFact) -> frozenset[str]:
        """What the class calls on an attribute (see ``evidence``)."""
        return (
            self.evidence(FunctionRef(cls.path, attr.method)).get(f"self.{attr.name}", frozenset())
            if attr.method
            else frozenset()
        )

    def _may_make_module(self, ref: FunctionRef) -> bool:
        """Whether a function may construct anything: it names a class or torch's modules, or calls what is in the project."""
        facts = self.facts(ref)
        if facts.returns in ("int", "float", "str", "bool"):
            return False
        if "nn" in facts.names or any(name[:1].isupper() for name in facts.names):
            return True
        return any(self.project.callees(ref.path, ref.qualname, call.callee, *call.keywords).refs for call in facts.calls)

    def is_session(self, cls: ClassRef | str) -> bool:
        """Whether the objects of a class are called like a network and run in another library: no module, and its ``__call__``
        works on arrays."""
        if isinstance(cls, str) or self.is_module_class(cls) is not False:
            return False
        call = self.project.method(cls, "__call__")
        return call is not None and bool(self.facts(call).names & {"numpy", "from_numpy"})

    def is_autograd_function(self, cls: ClassRef) -> bool:
        """Whether a class of the project is below ``torch.autograd.Function``."""
        return any(
            isinstance(base, str) and base.startswith("torch.autograd.") and base.endswith("Function")
            for base in self.project.mro(cls)
        )

    def trains_result(self, ref: FunctionRef) -> bool:
        """Whether a framework back-propagates what the function returns (Lightning's ``training_step``)."""
        return self._hook_effect(ref) is HookEffect.BACKWARD_RETURN

    def is_hook(self, ref: FunctionRef) -> bool:
        """Whether a framework calls the method by itself, once for each batch (Lightning's ``predict_step``)."""
        return self._hook_effect(ref) is not None

    def _hook_effect(self, ref: FunctionRef) -> HookEffect | None:
        facts = self.facts(ref)
        if ref.qualname == MODULE or not facts.owner:
            return None
        name = facts.qualname.rpartition(".")[2]
        if name not in HOOKS:
            return None
        owner = ClassRef(ref.path, facts.owner)
        below = self.project.subclasses(owner) if name != "forward" else ()
        mixed_in = [cls for cls in below if self.project.method(cls, name) == ref]
        bases = [base for cls in (owner, *mixed_in) for base in self.project.mro(cls) if isinstance(base, str)]
        return next((effect for base in bases if (effect := TORCH.hooks.get((base, name))) is not None), None)

    def start_mode(self, ref: FunctionRef) -> Mode:
        """The grad mode in which a root starts, as ``CallerMode.mode``; "unknown" where only a guess would say "on": a path
        through a call that merely has the same method name, or a method without callers of a class that is driven where grad mode is
        switched off by a statement."""
        found = self.project.grad_mode(ref)
        if found.mode == "mixed" and any(not c.certain for c in found.path):
            return Mode.UNKNOWN
        owner = self.facts(ref).owner
        if found.mode == "no-callers" and owner:
            if self.project.driven_without_grad(ClassRef(ref.path, owner)) or self.called_by_name(ref):
                return Mode.UNKNOWN
        return Mode(found.mode)

    def called_by_name(self, ref: FunctionRef) -> bool:
        """Whether some call in the project, in a place where grad mode may be off, has the method's name and a receiver of which
        nothing is known: the method's caller may be there."""
        last = ref.qualname.rpartition(".")[2]
        if last.startswith("__") or last in TORCH.methods or any(last == name for _, name in TORCH.kind_methods):
            return False  # tensors, distributions and optimizers have a method of that name: a call of it tells nothing
        for caller, receiver, guarded in self.project.calls_by_name(last):
            if self.project.class_of(caller.path, caller.qualname, receiver) is not None or self.is_imported(
                caller.path, receiver
            ):
                continue
            if guarded or self.project.grad_mode(caller).mode in ("off", "mixed", "unseen-base", "escapes"):
                return True
        return False

    def is_imported(self, path: str, receiver: str) -> bool:
        root = receiver.partition(".")[0]
        return any(local == root for local, _ in self.project.imports(path))

    def imports_package(self, path: str, package: str) -> bool:
        """Whether a file imports a top package of this name, or anything from it."""
        return any(target.partition(".")[0] == package for _, target in self.project.imports(path))

    def guards_itself(self, name: str) -> bool:
        """Whether most methods of that name in the project switch grad mode off by themselves: by decorator, or inside. Those that
        only hand on to another object's method of that name, as they are called, say nothing."""
        return self.ledger.remember(self._guarding, name, lambda: self._guard_themselves(name))

    def _guard_themselves(self, name: str) -> bool:
        methods = self.methods_named(name)
        guarding = {ref for ref in methods if self._guards(ref)}
        others = [ref for ref in methods if ref not in guarding and not self._hands_on(ref, name)]
        return len(guarding) > len(others)

    def _hands_on(self, ref: FunctionRef, name: str) -> bool:
        calls = self.facts(ref).calls
        return any(call.callee.endswith("." + name) for call in calls) and not any(
            purpose.may_be_network(call.callee) for call in calls
        )

    def _guards(self, ref: FunctionRef) -> bool:
        facts = self.facts(ref)
        if facts.names & {"no_grad", "inference_mode", "set_grad_enabled"}:
            return True
        return any(self.project.decorator_effect(ref.path, facts.parent, use) == "off" for use in facts.decorators)

    def ends_as_data(self, ref: FunctionRef, depth: int = 0) -> bool:
        """Whether a method turns what it works on into arrays or lists, and nothing back into tensors; itself, or by a method of
        its own class that it calls."""
        facts = self.facts(ref)
        if facts.names & TENSORS_AGAIN or facts.returns.rpartition(".")[2] == "Tensor":
            return False
        if facts.names & {"numpy", "tolist"} or facts.returns in ("str", "bytes"):
            return True
        if depth == 2 or not facts.owner:
            return False
        own = [call.callee.removeprefix("self.") for call in facts.calls if call.callee.startswith("self.")]
        methods = [self.project.method(ClassRef(ref.path, facts.owner), name) for name in own if "." not in name]
        return any(each is not None and self.ends_as_data(each, depth + 1) for each in methods)

    # --- names ----------------------------------------------------------------------------------------------------

    def resolved(self, path: str, ident: str) -> str | None:
        """The absolute name of a module-level name of a file (see ``Project.resolve``)."""
        return self.ledger.remember(self._resolved, (path, ident), lambda: self.project.resolve(path, ident))

    def variable(self, path: str, ident: str) -> tuple[str, str] | None:
        """See ``Project.variable``."""
        return self.ledger.remember(self._variables, (path, ident), lambda: self.project.variable(path, ident))

    def said_of_variable(self, path: str, name: str) -> frozenset[str]:
        """The methods that a file calls on one of its module-level variables; "()" where it is itself called."""
        return self.ledger.remember(self._said, (path, name), lambda: self._find_said(path, name))

    def _find_said(self, path: str, name: str) -> frozenset[str]:
        words = set()
        for facts in self.project.module(path).functions:
            if name in facts.locals and facts.qualname != MODULE:
                continue
            for call in facts.calls:
                receiver, _, method = call.callee.rpartition(".")
                if receiver == name:
                    words.add(method)
                elif call.callee == name and call.args:
                    words.add("()")
        return frozenset(words)

    def may_freeze_variable(self, path: str, name: str) -> bool:
        """Whether a file's own statements may leave a module frozen that one of its variables holds."""
        top = self.facts(FunctionRef(path, MODULE))
        if not top.names & {"requires_grad", "requires_grad_", "freeze"}:
            return False
        if self.said_of_variable(path, name) & {"requires_grad_", "freeze"}:
            return True
        looped = any(text.startswith(f"{name}.") and text.endswith("[]") for _, text in (*top.bound, *top.rebound))
        return looped or any("freeze" in call.callee and any(arg.name == name for arg in call.args) for call in top.calls)

    def trains_in(self, path: str) -> bool:
        """Whether any function of a file back-propagates."""
        return any(facts.names & {"backward", "zero_grad"} for facts in self.project.module(path).functions)

    def symbol(self, absolute: str) -> FunctionRef | ClassRef | None:
        """The project's function or class of an absolute name."""
        return self.ledger.remember(
            self._symbols, absolute, lambda: self.project.function(absolute) or self.project.klass(absolute)
        )

    # --- what facts tell of names ---------------------------------------------------------------------------------

    def evidence(self, ref: FunctionRef) -> dict[str, frozenset[str]]:
        """Receiver text → names of the methods that the function (closures too) calls on it; ``self.x`` receivers tell of the
        whole class."""
        facts = self.facts(ref)
        return self.ledger.remember(self._evidence, (ref.path, facts.qualname), lambda: self._gather_evidence(ref.path, facts))

    def _gather_evidence(self, path: str, facts: FunctionFacts) -> dict[str, frozenset[str]]:
        found = self.project.receivers(path, facts.owner or facts.qualname, facts.qualname)
        return {receiver: frozenset(methods) for receiver, methods in found}

    def is_module_class(self, cls: ClassRef) -> bool | None:
        """Whether a class of the project is an ``nn.Module``; None when a base is out of sight."""
        return self.ledger.remember(self._is_module, cls, lambda: self._find_module(cls))

    def is_plain_record(self, cls: ClassRef) -> bool:
        """Whether objects of a class of the project hold numbers and words alone, as the annotations of all its fields say."""
        mro = self.project.mro(cls)
        fields = [field for base in mro if isinstance(base, ClassRef) for field in self._attributes(base)]
        known = self.is_module_class(cls) is False and not any(isinstance(b, str) and TORCH.class_kind(b) for b in mro)
        return known and bool(fields) and all(field.annotation in PLAIN_FIELDS for field in fields)

    def _find_module(self, cls: ClassRef) -> bool | None:
        answer: bool | None = False
        for base in self.project.mro(cls):
            if isinstance(base, str):
                kind = TORCH.class_kind(base) or ""
                if base == "torch.nn.Module" or kind in MODULE_KINDS:
                    return True
                if base == "?" or (base.split(".")[0] not in PLAIN_ROOTS and not kind):
                    answer = None
        return answer


PLAIN_FIELDS = frozenset({"int", "float", "bool", "str", "bytes", "complex"})
"""Annotations of a field that holds no tensor."""


def is_torch_function(absolute: str) -> bool:
    """Whether an absolute name is that of a function of torch's, and none that gives a module."""
    return TORCH.class_kind(absolute) is None and TORCH.function_effect(absolute) not in (None, Effect.MODULE, Effect.LEAF)


TENSORS_AGAIN = TORCH.words["tensors-again"]
"""Words of a function that makes tensors, also of arrays."""
HOLDERS = TORCH.words["holders"]
"""Modules of which the parameters are those of what they are given."""
RUNS = re.compile(r"_?(forward|encode|decode|generate|extract|predict|apply|get)(_|$)")
"""Methods of other packages' objects that may run a module, or give one."""
PLAIN_ROOTS = frozenset({"builtins", "abc", "typing", "enum", "collections", "dataclasses", "object", "Generic"})
