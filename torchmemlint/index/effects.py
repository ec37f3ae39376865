"""Transfer functions of grad mode: what a manager, decorator or statement does to it, as an *effect*.

An effect is a ``GradEffect``, or None for what leaves grad mode alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchmemlint.index.arguments import argument_for
from torchmemlint.index.conditions import TEST, member_holds, test_holds, truth
from torchmemlint.index.decorators import argument_calls
from torchmemlint.index.facts import ArgFact, CallableUse
from torchmemlint.index.grad_effects import MIXED, OFF, ON, START, Becomes, GradEffect, negated, on_if
from torchmemlint.index.names import Names
from torchmemlint.index.points_to import Instance, Method, PointsTo, Value
from torchmemlint.index.reader import Head, HeadWithLocals
from torchmemlint.index.references import TOP, ClassRef, FunctionRef, Outside
from torchmemlint.torch_facts import TORCH, TorchFacts
from torchmemlint.torch_facts.words import GRAD_EFFECTS, Effect

MAX_DEPTH = 8
"""Managers that are made of others, and callers of callers whose arguments decide, at the most."""

# What another package, which is not visible, calls its managers that switch grad mode off.
_SAYS_OFF = re.compile(r"(^|\.)(inference(_mode)?|(no|without|disable)_?grad(ient)?s?)(\.|$)", re.IGNORECASE)


class Effects:
    """The effects of a project's managers and decorators."""

    def __init__(self, names: Names, points_to: PointsTo, torch: TorchFacts, no_grad_wrappers: Sequence[str] = ()) -> None:
        self._reader = names.reader
        self._classes = names.classes
        self._points_to = points_to
        self._torch = torch
        self._wrappers = frozenset(no_grad_wrappers)

    def manager_effect(self, path: str, qualname: str, use: CallableUse, depth: int = 0) -> GradEffect | None:
        """What entering ``use``, as a with item or statement in the function ``qualname`` of ``path``, does to grad mode."""
        if depth > MAX_DEPTH:
            return None
        if use.alternative is not None:
            one = self.manager_effect(path, qualname, CallableUse(use.callee, use.args, use.called), depth + 1)
            other = self.manager_effect(path, qualname, use.alternative, depth + 1)
            return one if one == other else MIXED
        if not use.callee:
            return None
        values = self._points_to.values(path, qualname, use.callee)
        receiver, _, name = use.callee.rpartition(".")
        if not values and receiver and self._torch.functions.get(f"torch.{name}") in GRAD_EFFECTS:
            # torch itself, handed on as an argument
            return self._outside_effect(path, qualname, f"torch.{name}", use.args if use.called else None)
        return _agreed([self._value_effect(path, qualname, value, use, depth) for value in values])

    def _value_effect(self, path: str, qualname: str, value: Value, use: CallableUse, depth: int) -> GradEffect | None:
        if isinstance(value, Outside):
            return self._outside_effect(path, qualname, value.name, use.args if use.called else None)
        if isinstance(value, Instance):
            if isinstance(value.klass, str):
                return self._outside_effect(path, qualname, value.klass, None)
            return self._class_effect(path, qualname, value.klass, CallableUse(use.callee, (), True), depth)
        if isinstance(value, ClassRef):
            return self._class_effect(path, qualname, value, use, depth)
        if isinstance(value, FunctionRef | Method):
            ref = value if isinstance(value, FunctionRef) else value.function
            return self._function_effect(path, qualname, ref, use, isinstance(value, Method), depth)
        return None

    def _outside_effect(self, path: str, qualname: str, name: str, args: tuple[ArgFact, ...] | None) -> GradEffect | None:
        if name in self._wrappers:
            return OFF
        effect = self._torch.functions.get(name)
        if effect is Effect.GRAD_OFF:
            flag = args[0] if args else None
            if flag is None or not name.endswith(TORCH.names["inference-mode"]):
                return OFF
            return negated(self._argument_effect(path, qualname, flag))
        if effect is Effect.GRAD_ON:
            return ON
        if effect is Effect.GRAD_SET:
            return self._argument_effect(path, qualname, args[0]) if args else MIXED
        return OFF if _SAYS_OFF.search(name) and not name.startswith("torch.") else None

    def _argument_effect(self, path: str, qualname: str, arg: ArgFact) -> GradEffect:
        """The effect of switching grad on exactly when ``arg`` is true."""
        if arg.const:
            return ON if truth(arg.const) else OFF
        facts = self._reader.scope(path, qualname)
        if facts is None or not (arg.name or arg.test):
            return MIXED
        texts = self._points_to.bound(path, qualname).get(arg.name, [arg.name])
        text = arg.test or (texts[0] if len(texts) == 1 else "")
        if text.endswith("is_grad_enabled()"):
            return START
        match = TEST.match(text)
        if match and self.parameter_owner(path, facts, match[2]) is not None:
            return on_if(text)
        constant = self._attribute_constant(path, qualname, text)
        return MIXED if constant is None else ON if truth(constant) else OFF

    def parameter_owner(self, path: str, facts: HeadWithLocals | None, name: str) -> HeadWithLocals | None:
        """The function, this or one around it, whose parameter ``name`` is inside it."""
        while facts is not None and not any(param.name == name for param in facts.params):
            facts = self._reader.scope(path, facts.parent) if facts.parent and name not in facts.locals else None
        return facts

    def _attribute_constant(self, path: str, qualname: str, text: str) -> str | None:
        """The literal that ``self.x`` always is, as its repr."""
        receiver, _, name = text.rpartition(".")
        klass = self._points_to.class_of(path, qualname, receiver) if receiver else None
        if not isinstance(klass, ClassRef):
            return None
        constants = {fact.const for fact, _ in self._classes.attr(klass, name)}
        return constants.pop() or None if len(constants) == 1 else None

    def _class_effect(self, path: str, qualname: str, klass: ClassRef, use: CallableUse, depth: int) -> GradEffect | None:
        for base in self._classes.mro(klass):
            if isinstance(base, str) and self._torch.functions.get(base) in GRAD_EFFECTS:
                return self._outside_effect(path, qualname, base, None)
        enter = self._classes.method(klass, "__enter__") or self._classes.method(klass, "__aenter__")
        if enter is None:
            return None
        facts = self._reader.flow(enter)
        effect = _agreed([self.manager_effect(enter.path, enter.qualname, left, depth + 1) for left in facts.leaves[-1:]])
        if effect != MIXED:
            return effect
        # `set_grad_enabled(self.mode)`, where __init__ keeps its argument in self.mode
        init = self._classes.method(klass, "__init__")
        for arg in facts.leaves[-1].args[:1]:
            kept = {fact.value for fact, _ in self._classes.attr(klass, arg.name.rpartition(".")[2])} if arg.name else set()
            if init is not None and len(kept) == 1:
                return self.with_arguments(path, qualname, on_if(kept.pop()), init, use, True)
        return effect

    def _function_effect(
        self, path: str, qualname: str, ref: FunctionRef, use: CallableUse, bound: bool, depth: int
    ) -> GradEffect | None:
        facts = self._reader.flow(ref)
        if not use.called and not use.statement:
            return None
        if use.statement and facts.leaves:
            effects: list[GradEffect | None] = [
                self.manager_effect(ref.path, ref.qualname, left, depth + 1) for left in facts.leaves[-1:]
            ]
        elif any(each.callee.rpartition(".")[2] in TORCH.words["makes-managers"] for each in facts.decorators):
            effects = [self.last_effect(ref, managers, depth + 1) for managers in facts.yields]
        else:
            effects = [self.manager_effect(ref.path, ref.qualname, each, depth + 1) for each in facts.returned]
        return self.with_arguments(path, qualname, _agreed(effects), ref, use, bound)

    def last_effect(self, ref: FunctionRef, managers: Sequence[CallableUse], depth: int = 0) -> GradEffect | None:
        """The effect of several managers in a function, in the order in which they take effect; None where its start mode holds."""
        for use in reversed(managers):
            effect = self.manager_effect(ref.path, ref.qualname, use, depth)
            if effect is not None:
                return None if effect == START else effect
        return None

    def with_arguments(
        self, path: str, qualname: str, effect: GradEffect | None, ref: FunctionRef, use: CallableUse, bound: bool
    ) -> GradEffect | None:
        """An effect that depends on a parameter of ``ref``, with the arguments of ``use`` (in ``qualname``) in its place."""
        match = TEST.match(effect.test) if effect is not None and effect.becomes is Becomes.TESTED else None
        if match is None:
            return effect
        facts = self._reader.header(ref)
        skip = 1 if bound and facts.owner and not any(d.callee == "staticmethod" for d in facts.decorators) else 0
        arg = argument_for(facts.params[skip:], match[2], use.args)
        if arg is None:
            return MIXED
        if arg.const:
            holds = test_holds(match, arg.const)
            return MIXED if holds is None else ON if holds else OFF
        if match[3] is None:
            passed = self._argument_effect(path, qualname, arg)
            return negated(passed) if match[1] else passed
        known = member_holds(match, arg.name)
        if known is not None:
            return ON if known else OFF
        caller = self._reader.head(path, qualname)
        if caller is not None and any(param.name == arg.name for param in caller.params):
            return on_if(f"{match[1] or ''}{arg.name} {match[3]} {match[4]}")
        return MIXED

    def decorator_effect(self, path: str, scope: str, use: CallableUse, lazy: bool = False) -> GradEffect | None:
        """What the decorator ``use`` (standing in the function ``scope``, or "<module>") does to the body that it decorates.

        ``lazy``: the body is a generator's, which runs after a home-made wrapper has returned (torch's own managers follow it).
        """
        effects: list[GradEffect | None] = []
        for value in self._points_to.values(path, scope, use.callee):
            if isinstance(value, FunctionRef):
                wrapped = self._wrapper_effect(path, scope, value, use, lazy)
                if wrapped is None:
                    wrapped = self._value_effect(path, scope, value, CallableUse(use.callee, use.args, True), 1)
                effects.append(wrapped)
            elif isinstance(value, ClassRef):
                call = self._classes.method(value, "__call__")
                wrapped = self._wrapper_effect(path, scope, call, use, lazy) if call is not None else None
                effects.append(wrapped if wrapped is not None else self._class_effect(path, scope, value, use, 1))
            else:
                effects.append(self._value_effect(path, scope, value, use, 1))
        return _agreed(effects)

    def _wrapper_effect(self, path: str, scope: str, decorator: FunctionRef, use: CallableUse, lazy: bool) -> GradEffect | None:
        functions = self._reader.inside(decorator)
        wraps: list[GradEffect | None] = [
            self.manager_effect(decorator.path, facts.qualname, wrap) for facts in functions.values() for wrap in facts.wraps
        ]
        if wraps:
            return self.with_arguments(path, scope, _agreed(wraps), decorator, use, False)
        if lazy:
            return None
        effects: list[GradEffect | None] = []
        for ref, call in argument_calls(self._reader, decorator):
            effect = self.last_effect(ref, call.managers)
            effects.append(effect if effect is not None else self.own_effect(functions[ref.qualname], ref.path))
        return self.with_arguments(path, scope, _agreed(effects), decorator, use, False)

    def own_effect(self, facts: Head, path: str) -> GradEffect | None:
        """What a function's own decorators do to its body; the innermost that touches grad mode wins."""
        if facts.is_async:
            return None  # a coroutine's body runs after every wrapper has returned
        for use in reversed(facts.decorators):
            effect = self.decorator_effect(path, facts.parent or TOP, use, facts.is_generator)
            if effect is not None:
                return effect
        return None


def _agreed(effects: Sequence[GradEffect | None]) -> GradEffect | None:
    """One effect for all alternatives: the same in all, else ``MIXED``; None when none has any."""
    different = set(effects)
    if not different or different == {None}:
        return None
    return different.pop() if len(different) == 1 else MIXED
