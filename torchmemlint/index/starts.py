"""What decides the grad mode in which a function starts, but for its callers' modes.

Its decorators, frameworks that call it, and what stands around its calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchmemlint.index import keys
from torchmemlint.index.callgraph import CallGraph
from torchmemlint.index.conditions import TEST, test_holds
from torchmemlint.index.dependency_log import memoized
from torchmemlint.index.edges import Caller
from torchmemlint.index.effects import MAX_DEPTH, Effects
from torchmemlint.index.facts import CallableUse, FunctionFacts
from torchmemlint.index.grad_effects import MIXED, OFF, ON, Becomes, GradEffect, on_if
from torchmemlint.index.layout import is_test
from torchmemlint.index.leaks import Leaks
from torchmemlint.index.modes import StartMode
from torchmemlint.index.names import Names
from torchmemlint.index.quiet import is_quiet
from torchmemlint.index.reader import Head
from torchmemlint.index.references import TOP, ClassRef, FunctionRef
from torchmemlint.index.views import imports_tests
from torchmemlint.torch_facts import TORCH, TorchFacts
from torchmemlint.torch_facts.words import ClassKind, HookEffect

# The branch on which another framework than torch runs.
_ELSEWHERE = re.compile(r"not .* (==|is) .*\b(torch|pytorch|pt)'?$|not .*\bis_torch_available\(\)$", re.IGNORECASE)

_FUNCTION_HOOKS = TORCH.words["function-hooks"]
"""Methods of a ``Function`` that torch calls itself, with grad mode off."""

MAX_TO_BACKWARD = 3
"""Calls from a function that is handed on to one that back-propagates."""
_DRIVEN = sorted(TORCH.words["driven-module"], reverse=True)
"""What a class has that a loop of its own or of a framework drives, by names that Lightning gave to them."""


def may_call(base: str, name: str) -> bool:
    """Whether a class that is not visible may call a method of this name: of Lightning's module all methods are known, and its
    hooks, of which there are more in each version, are named ``on_…``."""
    return (
        TORCH.class_kind(base) is not ClassKind.LIGHTNING_MODULE
        or name.startswith(TORCH.names["lightning-hooks"])
        or name in TORCH.words["lightning-methods"]
    )


@dataclass(slots=True)
class Node:
    """What is known of a function without its callers' modes, and the callers whose own start mode it takes."""

    fixed: dict[StartMode, Caller | None]
    edges: list[tuple[Caller, bool]]  # with whether the call is deferred


class Starts:
    """The equations of grad mode, one a function. ``complete`` is False where modules were left out that may hold callers."""

    def __init__(
        self, names: Names, calls: CallGraph, effects: Effects, leaks: Leaks, torch: TorchFacts, complete: bool
    ) -> None:
        self._reader = names.reader
        self._classes = names.classes
        self._calls = calls
        self._effects = effects
        self._leaks = leaks
        self._torch = torch
        self._complete = complete
        self._hook_names = _FUNCTION_HOOKS | {name for _, name in torch.hooks}
        self._log = log = names.log
        self._nodes = memoized(log, self._make_node)

    def node(self, ref: FunctionRef) -> Node:
        """The equation of a function."""
        return self._nodes.answer(ref)

    def _make_node(self, ref: FunctionRef) -> Node:
        if ref.qualname == TOP:
            return Node({StartMode.ON: None}, [])
        facts = self._reader.header(ref)
        effect = self._effects.own_effect(facts, ref.path)
        if effect is not None:
            return Node(dict.fromkeys(self._effect_modes(ref, effect, 0)), [])
        if facts.owner and self._class_switches_off(ClassRef(ref.path, facts.owner), ref):
            return Node({StartMode.OFF: None}, [])
        node = Node({}, [])
        hook = self._hook(ref, facts)
        if hook is not None:
            node.fixed[hook] = None
        if self._reader.calls_backward(ref):
            node.fixed[StartMode.ON] = None  # with grad mode off under every caller it would raise
        callers = self._calls.callers(ref)
        others = [caller for caller in callers.calls if caller.ref != ref]
        if not self.is_test(ref):
            # What a unit test calls exists for other code, which is not visible.
            others = [caller for caller in others if not self.is_test(caller.ref)]
        others = [caller for caller in others if not any(_ELSEWHERE.match(test) for test in caller.call.branch)] or others
        certain = [caller for caller in others if caller.certain]
        for caller in certain or others:
            self._add_caller(node, caller)
        if callers.escapes and not certain:
            self._add_unseen_callers(node, ref)
        elif not others:
            for caller in self._calls.escapes.given_where_defined(ref):
                self._add_runner(node, caller)
        if not node.fixed and not node.edges:
            node.fixed[self._root_mode(ref, facts, callers.escapes)] = None
        return node

    def _add_unseen_callers(self, node: Node, ref: FunctionRef) -> None:
        """What is known of whoever calls a function that is handed on as a value."""
        handed = self._calls.escapes.handed(ref)
        for caller in handed:
            self._add_runner(node, caller)
        if not handed:
            node.fixed.setdefault(StartMode.ON if not node.fixed and self._trains(ref) else StartMode.ESCAPES, None)

    def _add_runner(self, node: Node, caller: Caller) -> None:
        """As ``_add_caller``, of a call that runs the function which it is given."""
        if self._calls.escapes.starts_a_thread(caller):
            node.fixed.setdefault(StartMode.ON, caller)
        else:
            self._add_caller(node, caller)

    def _trains(self, ref: FunctionRef, depth: int = 0) -> bool:
        """Whether a function surely calls, in the mode in which it starts, one that back-propagates: with grad mode off that would
        raise, whoever calls it (``launch(main)``)."""
        if depth and self._reader.calls_backward(ref):
            return True
        if depth == MAX_TO_BACKWARD:
            return False
        self._log.read(keys.WHOLE, ref.path, ref.qualname)
        facts = self._reader.facts_of(ref)
        assert isinstance(facts, FunctionFacts)
        for call in facts.calls:
            if call.deferred or self._leaks.effect_at(ref, call) is not None:
                continue
            found = self._calls.resolver.meaning(ref.path, ref.qualname, call.callee)
            if found is None or not found.certain or len(found.refs) != 1 or found.refs[0] == ref:
                continue
            callee = found.refs[0]
            if self._effects.own_effect(self._reader.header(callee), callee.path) is None and self._trains(callee, depth + 1):
                return True
        return False

    def is_test(self, ref: FunctionRef) -> bool:
        """As ``layout.is_test``, but not in a file that is named like one of tests (``test_audio.py``), or lies in a folder ``test``
        as others do in ``train``, and has none; nor one to which a program in the same file gives arguments: a test gets them from its
        runner."""
        if not is_test(ref.path, ref.qualname):
            return False
        if "tests" in ref.path.replace("\\", "/").split("/")[:-1]:
            return True
        return self._reader.has_tests(ref.path) and (is_test(ref.path, "") or not self._is_part_of_program(ref))

    def _is_part_of_program(self, ref: FunctionRef) -> bool:
        """Whether a function without decorators, in a file without a library for tests, gets arguments from one there that is no test."""
        if imports_tests(self._reader.imports(ref.path)) or self._reader.header(ref).decorators:
            return False
        return any(
            caller.certain and caller.call.args and caller.ref.path == ref.path and not is_test(ref.path, caller.ref.qualname)
            for caller in self._calls.callers(ref).calls
        )

    def _root_mode(self, ref: FunctionRef, facts: Head, escapes: bool) -> StartMode:
        """The start of a function that no visible code calls."""
        top = FunctionRef(ref.path, TOP)
        if self._effects.last_effect(top, self._reader.flow(top).leaves) == OFF:
            return StartMode.OFF
        namesakes = self._calls.namesakes(ref)
        if namesakes and all(self.guarded(caller) for caller in namesakes):
            return StartMode.OFF
        if facts.owner and self._runs_guarded(ref, ClassRef(ref.path, facts.owner)):
            return StartMode.OFF
        name = ref.qualname.rpartition(".")[2]
        if (
            facts.owner
            and name not in _DRIVEN
            and self._torch.hooks.get((TORCH.names["lightning-module"], name)) is HookEffect.GRAD_OFF
        ):
            methods = [self._classes.method(ClassRef(ref.path, facts.owner), hook) for hook in _DRIVEN]
            if all(method is not None and not self._calls.callers(method).calls for method in methods):
                return (
                    StartMode.UNSEEN_BASE
                )  # a loop that is not visible runs the hooks of such a class, in the mode that it chooses
        if facts.owner and not (name.startswith("__") and name.endswith("__")):
            bases = self._classes.mro(ClassRef(ref.path, facts.owner))
            if any(isinstance(base, str) and not is_quiet(base) and may_call(base, name) for base in bases):
                return StartMode.UNSEEN_BASE
        return StartMode.ESCAPES if escapes or not self._complete else StartMode.NO_CALLERS

    def _runs_guarded(self, ref: FunctionRef, owner: ClassRef) -> bool:
        """Whether all that other visible code runs of a method's module, by its other methods, runs with grad mode off, or its
        own forward does: what nobody calls yet is there for the same use."""
        if not self._classes.is_subclass(owner, TORCH.names["module"]):
            return False
        forward = self._reader.head(owner.path, f"{owner.qualname}.forward")
        if forward is not None and self._effects.own_effect(forward, owner.path) == OFF:
            return True
        found: list[str] = []

        def is_run_unguarded(qualname: str) -> bool:
            if qualname.rpartition(".")[2] == "__init__" or qualname == ref.qualname:
                return False
            for caller in self._calls.calls_of(FunctionRef(owner.path, qualname)):
                inside = self._reader.header(caller.ref).owner == owner.qualname
                if inside or self.is_test(caller.ref):
                    continue
                if not caller.certain or not self.guarded(caller):
                    return True
                found.append(qualname)
            return False

        def methods() -> list[str]:
            # The forward first: it is what others call, and mostly decides.
            return sorted(self._reader.methods_of(owner), key=lambda each: not each.endswith(".forward"))

        return not self._log.any(methods, is_run_unguarded) and bool(found)

    def guarded(self, caller: Caller) -> bool:
        """Whether grad mode is off at a call by what its own function says."""
        effect = self._leaks.effect_at(caller.ref, caller.call)
        if effect is None and caller.ref.qualname != TOP:
            effect = self._effects.own_effect(self._reader.header(caller.ref), caller.ref.path)
        return effect == OFF

    def _hook(self, ref: FunctionRef, facts: Head) -> StartMode | None:
        """The mode in which an outside framework calls the method: as one of the class itself, or of a class that mixes it in."""
        name = ref.qualname.rpartition(".")[2]
        if not facts.owner or name not in self._hook_names:
            return None
        owner = ClassRef(ref.path, facts.owner)
        effect = self._hook_of(owner, name)
        if effect is not None or name in _FUNCTION_HOOKS:
            return effect
        below = [cls for cls in self._classes.subclasses(owner) if self._classes.method(cls, name) == ref]
        return next((found for cls in below if (found := self._hook_of(cls, name)) is not None), None)

    def _hook_of(self, klass: ClassRef, name: str) -> StartMode | None:
        """The mode in which an outside framework calls the method ``name`` of a class's objects."""
        for base in self._classes.mro(klass):
            if not isinstance(base, str):
                continue
            if base.startswith("torch.autograd.") and base.endswith("Function") and name in _FUNCTION_HOOKS:
                return StartMode.OFF
            effect = self._torch.hooks.get((base, name))
            if effect is not None:
                return StartMode.OFF if effect is HookEffect.GRAD_OFF else StartMode.ON
        return None

    def _class_switches_off(self, klass: ClassRef, method: FunctionRef) -> bool:
        """Whether constructing the class switches grad off for the rest of the program."""
        init = self._classes.method(klass, "__init__")
        if init is None or init == method:
            return False
        leaves = self._reader.flow(init).leaves
        return bool(leaves) and self._effects.last_effect(init, leaves) == OFF

    def _add_caller(self, node: Node, caller: Caller) -> None:
        effect = self._leaks.effect_at(caller.ref, caller.call)
        if effect is None:
            node.edges.append((caller, caller.call.deferred))
            return
        for mode in self._effect_modes(caller.ref, effect, 0):
            node.fixed.setdefault(StartMode.ESCAPES if caller.call.deferred and mode is not StartMode.OFF else mode, caller)

    def _effect_modes(self, ref: FunctionRef, effect: GradEffect, depth: int) -> tuple[StartMode, ...]:
        """The modes that an effect inside ``ref`` can mean, its parameters followed to the callers."""
        if effect == ON:
            return (StartMode.ON,)
        if effect == OFF:
            return (StartMode.OFF,)
        match = TEST.match(effect.test) if effect.becomes is Becomes.TESTED else None
        if match is None or depth > MAX_DEPTH:
            return (StartMode.OFF, StartMode.CHOSEN)
        facts = self._effects.parameter_owner(ref.path, self._reader.scope(ref.path, ref.qualname), match[2])
        if facts is None:
            return (StartMode.OFF, StartMode.CHOSEN)
        ref = FunctionRef(ref.path, facts.qualname)
        callers = [caller for caller in self._calls.calls_of(ref) if caller.ref != ref]
        certain = [caller for caller in callers if caller.certain] or callers
        if not certain:
            default = next((param.default for param in facts.params if param.name == match[2]), "")
            holds = test_holds(match, default) if default else None
            return (
                (StartMode.OFF,)
                if holds is False
                else (StartMode.NO_CALLERS,)
                if holds
                else (StartMode.NO_CALLERS, StartMode.OFF)
            )
        found: dict[StartMode, None] = {}
        for caller in certain:
            use = CallableUse(caller.call.callee, caller.call.args, True)
            given = self._effects.with_arguments(caller.ref.path, caller.ref.qualname, effect, ref, use, bool(facts.owner))
            for mode in self._effect_modes(caller.ref, given or MIXED, depth + 1):
                found[mode] = None
        return tuple(sorted(found))

    def test_holds(self, ref: FunctionRef, test: str) -> bool | None:
        """Whether a test of a parameter of ``ref`` ("eval", "mode == 'train'") comes out the same under every
        visible caller, and how; None where callers differ, are not known, or there are none."""
        match = TEST.match(test)
        facts = self._reader.head(ref.path, ref.qualname)
        if match is None or facts is None or not any(param.name == match[2] for param in facts.params):
            return None
        callers = self._calls.callers(ref)
        if callers.escapes:
            return None
        found: set[StartMode] = set()
        for caller in callers.calls:
            use = CallableUse(caller.call.callee, caller.call.args, True)
            given = self._effects.with_arguments(caller.ref.path, caller.ref.qualname, on_if(test), ref, use, bool(facts.owner))
            found.update(self._effect_modes(caller.ref, given or MIXED, 1))
            if len(found) > 1:
                return None
        return {StartMode.ON: True, StartMode.OFF: False}.get(found.pop()) if found else None

    def mode_at(self, caller: Caller) -> GradEffect | None:
        """What the calling function itself does to grad mode at a call: an effect, None where its start mode holds."""
        return self._leaks.effect_at(caller.ref, caller.call)

    def for_which(self, ref: FunctionRef, test: str) -> list[Caller]:
        """The calls of ``ref`` under which a test of a parameter surely holds, by what they give for it."""
        match = TEST.match(test)
        facts = self._reader.head(ref.path, ref.qualname)
        if match is None or facts is None or not any(param.name == match[2] for param in facts.params):
            return []
        effect = on_if(test)
        return [
            caller
            for caller in self._calls.calls_of(ref)
            if caller.ref != ref
            and not self.is_test(caller.ref)
            and self._effects.with_arguments(
                caller.ref.path,
                caller.ref.qualname,
                effect,
                ref,
                CallableUse(caller.call.callee, caller.call.args, True),
                bool(facts.owner),
            )
            == ON
        ]
