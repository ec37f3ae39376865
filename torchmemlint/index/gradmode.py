"""The grad mode in which a function's body starts: by its decorators, by frameworks that call it, and by all its callers.

The mode at a call is set by the last thing around or before it that touches grad mode; where nothing does, it is the mode in
which the calling function starts. So the answer is the least solution over the call graph: every function collects the modes
of its callers, sets only grow, and circles need no special case.

An *effect*, here, is what a manager, decorator or statement does: "off", "on", "mixed" (either, not known which),
"param:TEST" (on exactly when TEST holds, a parameter's name, ``not`` of it or its comparison with a literal), "start" (back to
the mode in which the function began) or None (nothing).
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torchmemlint.index import keys
from torchmemlint.index.arguments import argument_for
from torchmemlint.index.calls import Caller, Calls, argument_calls
from torchmemlint.index.evidence import Evidence, Instance, Method, Value
from torchmemlint.index.facts import ArgFact, CallableUse, CallFact
from torchmemlint.index.layout import is_test
from torchmemlint.index.names import Names
from torchmemlint.index.plain import shape
from torchmemlint.index.quiet import is_quiet
from torchmemlint.index.reader import Head, Scope
from torchmemlint.index.references import TOP, ClassRef, FunctionRef, Outside
from torchmemlint.index.trail import MISSING, Answered, Step, answered
from torchmemlint.torch_facts import TorchFacts

Mode = Literal["on", "off", "mixed", "no-callers", "unseen-base", "escapes"]

_MAX_DEPTH = 8
_TEST = re.compile(r"^(not )?(\w+)(?: (==|!=|is|is not) (.+))?$")

# What another package, out of sight, calls its managers that switch grad mode off.
_SAYS_OFF = re.compile(r"(^|\.)(inference(_mode)?|(no|without|disable)_?grad(ient)?s?)(\.|$)", re.IGNORECASE)

# The branch on which another framework than torch runs.
_ELSEWHERE = re.compile(r"not .* (==|is) .*\b(torch|pytorch|pt)'?$|not .*\bis_torch_available\(\)$", re.IGNORECASE)

# torch calls these itself, inside its own no_grad (the backward of a Function, unless create_graph is asked for).
_FUNCTION_HOOKS = frozenset({"forward", "backward", "setup_context", "vjp", "jvp"})


@dataclass(frozen=True, slots=True)
class CallerMode:
    """The grad mode in which a function starts.

    mode   "on", "off": under every caller. "mixed": on under some callers, off under others. "no-callers": nothing in sight
           calls it, or only what nothing in sight calls. "unseen-base": it overrides a method of a class that is not in
           sight, which may call it in any mode. "escapes": it is handed on as a value
    path   the calls through which grad is on (or the start is unknown), the immediate caller first; empty for "off". Some may
           not be certain (``Caller.certain``), but only where no chain of certain calls leads there
    assumed  True when the path ends at a function that nothing in sight calls: "on" is an assumption there
    chosen   for "mixed": grad is on only under managers and statements that leave it to a flag (``set_grad_enabled(training)``,
             ``no_grad() if fast else nullcontext()``): who asks for it there wants it
    """

    mode: Mode
    path: tuple[Caller, ...] = ()
    assumed: bool = False
    chosen: bool = False


_LIGHTNING = "pytorch_lightning.LightningModule"
_HOOK_SET = ("training_step", "configure_optimizers")
"""What a class has that a loop of its own or of a framework drives, by names that Lightning gave to them."""


@dataclass(slots=True)
class _Node:
    """What is known of a function without its callers' modes, and the callers whose own start mode it takes."""

    fixed: dict[str, Caller | None]
    edges: list[tuple[Caller, bool]]  # with whether the call is deferred


class GradMode:
    """Answers about grad mode over one project."""

    def __init__(
        self,
        names: Names,
        evidence: Evidence,
        calls: Calls,
        torch: TorchFacts,
        no_grad_wrappers: Sequence[str] = (),
        complete: bool = True,
    ) -> None:
        self._names = names
        self._reader = names.reader
        self._classes = names.classes
        self._evidence = evidence
        self._calls = calls
        self._torch = torch
        self._wrappers = frozenset(no_grad_wrappers)
        self._complete = complete
        self._hook_names = _FUNCTION_HOOKS | {name for _, name in torch.hooks}
        self._trail = trail = names.trail
        self._nodes = answered(trail, self._make_node)
        self._modes: Answered[FunctionRef, frozenset[str]] = answered(trail, self._solve)
        self._answers = answered(trail, self._find_mode)
        self._leaks: dict[FunctionRef, list[tuple[CallFact, str]]] | None = None

    # --- effects

    def manager_effect(self, path: str, qualname: str, use: CallableUse, depth: int = 0) -> str | None:
        """What entering ``use``, as a with item or statement in the function ``qualname`` of ``path``, does to grad mode."""
        if depth > _MAX_DEPTH:
            return None
        if use.alternative is not None:
            one = self.manager_effect(path, qualname, CallableUse(use.callee, use.args, use.called), depth + 1)
            other = self.manager_effect(path, qualname, use.alternative, depth + 1)
            return one if one == other else "mixed"
        if not use.callee:
            return None
        values = self._evidence.values(path, qualname, use.callee)
        receiver, _, name = use.callee.rpartition(".")
        if not values and receiver and self._torch.functions.get(f"torch.{name}", "").startswith("grad-"):
            # torch itself, handed on as an argument
            return self._outside_effect(path, qualname, f"torch.{name}", use.args if use.called else None)
        return _agreed([self._value_effect(path, qualname, value, use, depth) for value in values])

    def _value_effect(self, path: str, qualname: str, value: Value, use: CallableUse, depth: int) -> str | None:
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

    def _outside_effect(self, path: str, qualname: str, name: str, args: tuple[ArgFact, ...] | None) -> str | None:
        if name in self._wrappers:
            return "off"
        effect = self._torch.functions.get(name)
        if effect == "grad-off":
            flag = args[0] if args else None
            if flag is None or not name.endswith("inference_mode"):
                return "off"
            return _negated(self._argument_effect(path, qualname, flag))
        if effect == "grad-on":
            return "on"
        if effect == "grad-set":
            return self._argument_effect(path, qualname, args[0]) if args else "mixed"
        return "off" if _SAYS_OFF.search(name) and not name.startswith("torch.") else None

    def _argument_effect(self, path: str, qualname: str, arg: ArgFact) -> str:
        """The effect of switching grad on exactly when ``arg`` is true."""
        if arg.const:
            return "on" if _truth(arg.const) else "off"
        facts = self._reader.scope(path, qualname)
        if facts is None or not (arg.name or arg.test):
            return "mixed"
        texts = self._evidence.bound(path, qualname).get(arg.name, [arg.name])
        text = arg.test or (texts[0] if len(texts) == 1 else "")
        if text.endswith("is_grad_enabled()"):
            return "start"
        match = _TEST.match(text)
        if match and self._parameter_owner(path, facts, match[2]) is not None:
            return f"param:{text}"
        constant = self._attribute_constant(path, qualname, text)
        return "mixed" if constant is None else "on" if _truth(constant) else "off"

    def _parameter_owner(self, path: str, facts: Scope | None, name: str) -> Scope | None:
        """The function, this or one around it, whose parameter ``name`` is inside it."""
        while facts is not None and not any(param.name == name for param in facts.params):
            facts = self._reader.scope(path, facts.parent) if facts.parent and name not in facts.locals else None
        return facts

    def _attribute_constant(self, path: str, qualname: str, text: str) -> str | None:
        """The literal that ``self.x`` always is, as its repr."""
        receiver, _, name = text.rpartition(".")
        klass = self._evidence.class_of(path, qualname, receiver) if receiver else None
        if not isinstance(klass, ClassRef):
            return None
        constants = {fact.const for fact, _ in self._classes.attr(klass, name)}
        return constants.pop() or None if len(constants) == 1 else None

    def _class_effect(self, path: str, qualname: str, klass: ClassRef, use: CallableUse, depth: int) -> str | None:
        for base in self._classes.mro(klass):
            if isinstance(base, str) and self._torch.functions.get(base, "").startswith("grad-"):
                return self._outside_effect(path, qualname, base, None)
        enter = self._classes.method(klass, "__enter__") or self._classes.method(klass, "__aenter__")
        if enter is None:
            return None
        facts = self._reader.flow(enter)
        effect = _agreed([self.manager_effect(enter.path, enter.qualname, left, depth + 1) for left in facts.leaves[-1:]])
        if effect != "mixed":
            return effect
        # `set_grad_enabled(self.mode)`, where __init__ keeps its argument in self.mode
        init = self._classes.method(klass, "__init__")
        for arg in facts.leaves[-1].args[:1]:
            kept = {fact.value for fact, _ in self._classes.attr(klass, arg.name.rpartition(".")[2])} if arg.name else set()
            if init is not None and len(kept) == 1:
                return self._with_arguments(path, qualname, f"param:{kept.pop()}", init, use, True)
        return effect

    def _function_effect(
        self, path: str, qualname: str, ref: FunctionRef, use: CallableUse, bound: bool, depth: int
    ) -> str | None:
        facts = self._reader.flow(ref)
        if not use.called and not use.statement:
            return None
        if use.statement and facts.leaves:
            effects: list[str | None] = [
                self.manager_effect(ref.path, ref.qualname, left, depth + 1) for left in facts.leaves[-1:]
            ]
        elif any(each.callee.rpartition(".")[2] in ("contextmanager", "asynccontextmanager") for each in facts.decorators):
            effects = [self._last_effect(ref, managers, depth + 1) for managers in facts.yields]
        else:
            effects = [self.manager_effect(ref.path, ref.qualname, each, depth + 1) for each in facts.returned]
        return self._with_arguments(path, qualname, _agreed(effects), ref, use, bound)

    def _last_effect(self, ref: FunctionRef, managers: Sequence[CallableUse], depth: int = 0) -> str | None:
        for use in reversed(managers):
            effect = self.manager_effect(ref.path, ref.qualname, use, depth)
            if effect is not None:
                return None if effect == "start" else effect
        return None

    def _with_arguments(
        self, path: str, qualname: str, effect: str | None, ref: FunctionRef, use: CallableUse, bound: bool
    ) -> str | None:
        """An effect that depends on a parameter of ``ref``, with the arguments of ``use`` (in ``qualname``) in its place."""
        match = _TEST.match(effect.removeprefix("param:")) if effect is not None and effect.startswith("param:") else None
        if match is None:
            return effect
        facts = self._reader.header(ref)
        skip = 1 if bound and facts.owner and not any(d.callee == "staticmethod" for d in facts.decorators) else 0
        arg = argument_for(facts.params[skip:], match[2], use.args)
        if arg is None:
            return "mixed"
        if arg.const:
            holds = _holds(match, arg.const)
            return "mixed" if holds is None else "on" if holds else "off"
        if match[3] is None:
            passed = self._argument_effect(path, qualname, arg)
            return _negated(passed) if match[1] else passed
        caller = self._reader.head(path, qualname)
        if caller is not None and any(param.name == arg.name for param in caller.params):
            return f"param:{match[1] or ''}{arg.name} {match[3]} {match[4]}"
        return "mixed"

    def decorator_effect(self, path: str, scope: str, use: CallableUse, lazy: bool = False) -> str | None:
        """What the decorator ``use`` (standing in the function ``scope``, or "<module>") does to the body that it decorates.

        ``lazy``: the body is a generator's, which runs after a home-made wrapper has returned (torch's own managers follow it).
        """
        effects: list[str | None] = []
        for value in self._evidence.values(path, scope, use.callee):
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

    def _wrapper_effect(self, path: str, scope: str, decorator: FunctionRef, use: CallableUse, lazy: bool) -> str | None:
        functions = self._reader.inside(decorator)
        wraps: list[str | None] = [
            self.manager_effect(decorator.path, facts.qualname, wrap) for facts in functions.values() for wrap in facts.wraps
        ]
        if wraps:
            return self._with_arguments(path, scope, _agreed(wraps), decorator, use, False)
        if lazy:
            return None
        effects: list[str | None] = []
        for ref, call in argument_calls(self._reader, decorator):
            effect = self._last_effect(ref, call.managers)
            effects.append(effect if effect is not None else self._own_effect(functions[ref.qualname], ref.path))
        return self._with_arguments(path, scope, _agreed(effects), decorator, use, False)

    def _own_effect(self, facts: Head, path: str) -> str | None:
        """What a function's own decorators do to its body; the innermost that touches grad mode wins."""
        if facts.is_async:
            return None  # a coroutine's body runs after every wrapper has returned
        for use in reversed(facts.decorators):
            effect = self.decorator_effect(path, facts.parent or TOP, use, facts.is_generator)
            if effect is not None:
                return effect
        return None

    # --- start modes

    def grad_mode(self, ref: FunctionRef) -> CallerMode:
        """The grad mode in which the body of ``ref`` starts."""
        return self._answers.answer(ref)

    def _find_mode(self, ref: FunctionRef) -> CallerMode:
        modes = self._solve(ref)
        if modes <= {"no-callers", "off"} and "no-callers" in modes:
            meant = self._meant(ref)
            if meant == "off":
                modes = frozenset({"off"})
            elif meant == "either":
                return CallerMode("escapes", self._path(ref, "no-callers"), True)
        if "on" in modes or "no-callers" in modes:
            wanted = "on" if "on" in modes else "no-callers"
            path, assumed = self._path(ref, wanted), wanted == "no-callers"
            if "off" in modes or "chosen" in modes:
                return CallerMode("mixed", path, assumed)
            if "escapes" in modes and wanted == "on" and not all(caller.certain for caller in path):
                return CallerMode("escapes", path, True)
            return CallerMode("on" if wanted == "on" else "no-callers", path, assumed)
        if "chosen" in modes:
            return CallerMode("mixed", self._path(ref, "chosen"), chosen=True)
        if "off" in modes:
            return CallerMode("off")
        if "unseen-base" in modes:
            return CallerMode("unseen-base", self._path(ref, "unseen-base"), True)
        return CallerMode("escapes", self._path(ref, "escapes"), True)

    def _meant(self, ref: FunctionRef) -> str:
        """What the calls in sight of namesakes tell of the methods from which nobody in sight is known to call ``ref``, directly or
        not: one of these calls may be it, on an object that is of no class in sight (``self.task.valid_step(…)``, and there
        ``model.predict(…)``). "off" where all of them have namesakes that are called, and all of these calls run with grad mode
        off; "either" where some of these do; "" where none. What is solved for others does not rest on this."""
        seen, queue, found, off, on = {ref}, [ref], False, False, False
        while queue:
            current = queue.pop()
            node = self._node(current)
            if "no-callers" in node.fixed:
                found = True
                others = [
                    caller
                    for caller in self._calls.namesakes(current)
                    if caller.ref not in seen and not self._is_test(caller.ref)
                ]
                guarded = [self._guarded(each) or self._solve(each.ref) == {"off"} for each in others]
                off |= any(guarded)
                on |= not all(guarded) or not guarded
                if off and on:
                    return "either"
            new = {caller.ref for caller, _ in node.edges} - seen
            seen |= new
            queue += sorted(new)
        return "off" if found and off else ""

    def _solve(self, ref: FunctionRef) -> frozenset[str]:
        known = self._modes.known(ref)
        if known is MISSING:
            self._solve_around(ref)
            known = self._modes.known(ref)
        return known

    def _solve_around(self, ref: FunctionRef) -> None:
        """Solves for a function and all whose start mode it takes: which are made of each other, also in circles."""
        nodes: dict[FunctionRef, _Node] = {}
        pages: dict[FunctionRef, list[Step]] = {}
        solved: dict[FunctionRef, frozenset[str]] = {}
        queue = [ref]
        with self._trail.apart():
            while queue:
                current = queue.pop()
                if current in nodes or current in solved:
                    continue
                self._trail.page = []
                known = self._modes.known(current)
                if known is not MISSING:
                    solved[current] = known
                    pages[current] = self._trail.page
                    continue
                node = nodes[current] = self._nodes.answer(current)
                pages[current] = self._trail.page
                queue.extend(caller.ref for caller, _ in node.edges)
        sets: dict[FunctionRef, set[str]] = {each: set(node.fixed) for each, node in nodes.items()}
        callees: dict[FunctionRef, list[tuple[FunctionRef, bool]]] = defaultdict(list)
        for each, node in nodes.items():
            for caller, deferred in node.edges:
                if caller.ref in solved:
                    sets[each] |= _through(solved[caller.ref], deferred)
                else:
                    callees[caller.ref].append((each, deferred))
        _spread(sets, callees, list(sets))
        # Circles that nothing outside calls.
        empty = [each for each, modes in sets.items() if not modes]
        for each in empty:
            sets[each].add("no-callers")
        _spread(sets, callees, empty)
        first = self._trail.next
        places = {each: first + place for place, each in enumerate(nodes)}
        if self._trail.on:
            for each, node in nodes.items():
                for caller, _ in node.edges:
                    if caller.ref in places:
                        pages[each].append(places[caller.ref])
                    else:
                        pages[each] += pages[caller.ref]
            self._trail.together([pages[each] for each in nodes])
        with self._trail.apart():
            for each, modes in sets.items():
                self._modes.put(each, frozenset(modes), places[each])

    def _node(self, ref: FunctionRef) -> _Node:
        return self._nodes.answer(ref)

    def _make_node(self, ref: FunctionRef) -> _Node:
        if ref.qualname == TOP:
            return _Node({"on": None}, [])
        facts = self._reader.header(ref)
        effect = self._own_effect(facts, ref.path)
        if effect is not None:
            return _Node(dict.fromkeys(self._effect_modes(ref, effect, 0)), [])
        if facts.owner and self._class_switches_off(ClassRef(ref.path, facts.owner), ref):
            return _Node({"off": None}, [])
        node = _Node({}, [])
        hook = self._hook(ref, facts)
        if hook is not None:
            node.fixed[hook] = None
        if self._reader.calls_backward(ref):
            node.fixed["on"] = None  # with grad mode off under every caller it would raise
        callers = self._calls.callers(ref)
        others = [caller for caller in callers.calls if caller.ref != ref]
        if not self._is_test(ref):
            # What a unit test calls is there for others, who are not in sight.
            others = [caller for caller in others if not self._is_test(caller.ref)]
        others = [caller for caller in others if not any(_ELSEWHERE.match(test) for test in caller.call.branch)] or others
        certain = [caller for caller in others if caller.certain]
        for caller in certain or others:
            self._add_caller(node, caller)
        if callers.escapes and not certain:
            handed = self._calls.handed(ref)
            for caller in handed:
                self._add_caller(node, caller)
            if not handed:
                node.fixed.setdefault("escapes", None)
        if not node.fixed and not node.edges:
            node.fixed[self._root_mode(ref, facts, callers.escapes)] = None
        return node

    def _is_test(self, ref: FunctionRef) -> bool:
        """As ``layout.is_test``, but not in a file that is named like one of tests (``test_audio.py``), and has none."""
        if not is_test(ref.path, ref.qualname):
            return False
        folder = ref.path.replace("\\", "/").rpartition("/")[0]
        return is_test(f"{folder}/", ref.qualname) or self._reader.has_tests(ref.path)

    def _root_mode(self, ref: FunctionRef, facts: Head, escapes: bool) -> str:
        """The start of a function that nothing in sight calls."""
        top = FunctionRef(ref.path, TOP)
        if self._last_effect(top, self._reader.flow(top).leaves) == "off":
            return "off"
        namesakes = self._calls.namesakes(ref)
        if namesakes and all(self._guarded(caller) for caller in namesakes):
            return "off"
        if facts.owner and self._runs_guarded(ref, ClassRef(ref.path, facts.owner)):
            return "off"
        name = ref.qualname.rpartition(".")[2]
        if facts.owner and name not in _HOOK_SET and self._torch.hooks.get((_LIGHTNING, name)) == "grad-off":
            methods = [self._classes.method(ClassRef(ref.path, facts.owner), hook) for hook in _HOOK_SET]
            if all(method is not None and not self._calls.callers(method).calls for method in methods):
                return "unseen-base"  # a loop out of sight runs the hooks of such a class, in the mode that it chooses
        if facts.owner and not (name.startswith("__") and name.endswith("__")):
            bases = self._classes.mro(ClassRef(ref.path, facts.owner))
            if any(isinstance(base, str) and not is_quiet(base) for base in bases):
                return "unseen-base"
        return "escapes" if escapes or not self._complete else "no-callers"

    def _runs_guarded(self, ref: FunctionRef, owner: ClassRef) -> bool:
        """Whether all that others in sight run of a method's module, by its other methods, runs with grad mode off, or its own
        forward does: what nobody calls yet is there for the same use."""
        if not self._classes.is_subclass(owner, "torch.nn.Module"):
            return False
        forward = self._reader.head(owner.path, f"{owner.qualname}.forward")
        if forward is not None and self._own_effect(forward, owner.path) == "off":
            return True
        found: list[str] = []

        def is_run_unguarded(qualname: str) -> bool:
            if qualname.rpartition(".")[2] == "__init__" or qualname == ref.qualname:
                return False
            for caller in self._calls.calls_of(FunctionRef(owner.path, qualname)):
                inside = self._reader.header(caller.ref).owner == owner.qualname
                if inside or self._is_test(caller.ref):
                    continue
                if not caller.certain or not self._guarded(caller):
                    return True
                found.append(qualname)
            return False

        def methods() -> list[str]:
            # The forward first: it is what others call, and mostly decides.
            return sorted(self._reader.methods_of(owner), key=lambda each: not each.endswith(".forward"))

        return not self._trail.any(methods, is_run_unguarded) and bool(found)

    def _guarded(self, caller: Caller) -> bool:
        """Whether grad mode is off at a call by what its own function says."""
        effect = self._effect_at(caller.ref, caller.call)
        if effect is None and caller.ref.qualname != TOP:
            effect = self._own_effect(self._reader.header(caller.ref), caller.ref.path)
        return effect == "off"

    def _hook(self, ref: FunctionRef, facts: Head) -> str | None:
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

    def _hook_of(self, klass: ClassRef, name: str) -> str | None:
        """The mode in which an outside framework calls the method ``name`` of a class's objects."""
        for base in self._classes.mro(klass):
            if not isinstance(base, str):
                continue
            if base.startswith("torch.autograd.") and base.endswith("Function") and name in _FUNCTION_HOOKS:
                return "off"
            effect = self._torch.hooks.get((base, name))
            if effect is not None:
                return "off" if effect == "grad-off" else "on"
        return None

    def _class_switches_off(self, klass: ClassRef, method: FunctionRef) -> bool:
        """Whether constructing the class switches grad off for the rest of the program."""
        init = self._classes.method(klass, "__init__")
        if init is None or init == method:
            return False
        leaves = self._reader.flow(init).leaves
        return bool(leaves) and self._last_effect(init, leaves) == "off"

    def _add_caller(self, node: _Node, caller: Caller) -> None:
        effect = self._effect_at(caller.ref, caller.call)
        if effect is None:
            node.edges.append((caller, caller.call.deferred))
            return
        for mode in self._effect_modes(caller.ref, effect, 0):
            node.fixed.setdefault("escapes" if caller.call.deferred and mode != "off" else mode, caller)

    def _effect_at(self, ref: FunctionRef, call: CallFact) -> str | None:
        """The last effect on grad mode in force at a call; None when the function's start mode still holds."""
        leak = self._leak_before(ref, call)
        managers = call.managers
        if leak is not None:
            switch, effect = leak
            inner = self._last_effect(ref, managers[len(switch.managers) :])
            return inner if inner is not None else effect
        return self._last_effect(ref, managers)

    def _leak_before(self, ref: FunctionRef, call: CallFact) -> tuple[CallFact, str] | None:
        """The last call before ``call`` of a project function that leaves grad mode switched."""
        if self._trail.on:
            self._trail.page.append((keys.LEAK, ref.path, ref.qualname))
        if self._leaks is None:
            self._leaks = self._find_leaks()
        found = None
        for leak, effect in self._leaks.get(ref, ()):
            if leak.place < call.place and leak.branch == call.branch[: len(leak.branch)]:
                found = (leak, effect)
        return found

    def leaks_again(self) -> list[str]:
        """The leaks, as the values of their root."""
        self._leaks = self._find_leaks()
        return _told(self._leaks)

    def _find_leaks(self) -> dict[FunctionRef, list[tuple[CallFact, str]]]:
        """The calls that leave grad mode switched, by the functions in which they stand: a root of the trail."""
        leaks: dict[FunctionRef, list[tuple[CallFact, str]]] = defaultdict(list)
        with self._trail.apart():
            self._trail.page = []
            for ref, facts in self._calls.tables.switching():
                if ref.qualname == TOP or ref.qualname.rpartition(".")[2] in ("__enter__", "__exit__"):
                    continue
                effect = self._last_effect(ref, facts.leaves)
                if effect is None:
                    continue
                self._note_places(keys.PLACES, ref)
                for caller in self._calls.calls_of(ref):
                    if not caller.certain:
                        continue
                    use = CallableUse(caller.call.callee, caller.call.args, True)
                    bound = bool(facts.owner)
                    given = self._with_arguments(caller.ref.path, caller.ref.qualname, effect, ref, use, bound)
                    if given is not None:
                        leaks[caller.ref].append((caller.call, given))
            for places in leaks.values():
                places.sort(key=lambda leak: leak[0].place)
            self._trail.root(keys.LEAKS, self._trail.page, (), _told(leaks) if self._trail.on else ())
        return leaks

    def _effect_modes(self, ref: FunctionRef, effect: str, depth: int) -> tuple[str, ...]:
        """The modes that an effect inside ``ref`` can mean, its parameters followed to the callers."""
        if effect in ("on", "off"):
            return (effect,)
        match = _TEST.match(effect.removeprefix("param:")) if effect.startswith("param:") else None
        if match is None or depth > _MAX_DEPTH:
            return ("off", "chosen")
        facts = self._parameter_owner(ref.path, self._reader.scope(ref.path, ref.qualname), match[2])
        if facts is None:
            return ("off", "chosen")
        ref = FunctionRef(ref.path, facts.qualname)
        callers = [caller for caller in self._calls.calls_of(ref) if caller.ref != ref]
        certain = [caller for caller in callers if caller.certain] or callers
        if not certain:
            default = next((param.default for param in facts.params if param.name == match[2]), "")
            holds = _holds(match, default) if default else None
            return ("off",) if holds is False else ("no-callers",) if holds else ("no-callers", "off")
        found: dict[str, None] = {}
        for caller in certain:
            use = CallableUse(caller.call.callee, caller.call.args, True)
            given = self._with_arguments(caller.ref.path, caller.ref.qualname, effect, ref, use, bool(facts.owner))
            for mode in self._effect_modes(caller.ref, given or "mixed", depth + 1):
                found[mode] = None
        return tuple(sorted(found))

    def test_holds(self, ref: FunctionRef, test: str) -> bool | None:
        """Whether a test of a parameter of ``ref`` ("eval", "mode == 'train'") comes out the same under every
        caller in sight, and how; by the parameter's default where there is no caller; None where callers differ or are not
        known."""
        match = _TEST.match(test)
        facts = self._reader.head(ref.path, ref.qualname)
        if match is None or facts is None or not any(param.name == match[2] for param in facts.params):
            return None
        callers = self._calls.callers(ref)
        if callers.escapes:
            return None
        if not callers.calls:  # the way that is meant unless a caller out of sight asks for another
            default = next(param.default for param in facts.params if param.name == match[2])
            return _holds(match, default) if default else None
        found: set[str] = set()
        for caller in callers.calls:
            use = CallableUse(caller.call.callee, caller.call.args, True)
            given = self._with_arguments(caller.ref.path, caller.ref.qualname, f"param:{test}", ref, use, bool(facts.owner))
            found.update(self._effect_modes(caller.ref, given or "mixed", 1))
            if len(found) > 1:
                return None
        return {"on": True, "off": False}.get(found.pop()) if found else None

    def _path(self, ref: FunctionRef, wanted: str) -> tuple[Caller, ...]:
        """The shortest chain of calls by which ``wanted`` reaches ``ref``, the immediate caller first; a certain one if any."""
        path = self._chain(ref, wanted, True) or self._chain(ref, wanted, False)
        for caller in path:  # of several calls in one function, the first was taken
            self._note_places(keys.PLACED, caller.ref)
        return path

    def _note_places(self, kind: int, ref: FunctionRef) -> None:
        if self._trail.on:
            self._trail.page.append((kind, ref.path, ref.qualname))

    def _chain(self, ref: FunctionRef, wanted: str, certain: bool) -> tuple[Caller, ...]:
        queue: deque[tuple[FunctionRef, tuple[Caller, ...]]] = deque([(ref, ())])
        seen = {ref}
        while queue:
            current, path = queue.popleft()
            node = self._node(current)
            last = node.fixed.get(wanted)
            if wanted in node.fixed and (last is None or last.certain or not certain):
                return path if last is None else (*path, last)
            for caller, deferred in node.edges:
                if (
                    caller.ref not in seen
                    and (caller.certain or not certain)
                    and wanted in (_through(self._solve(caller.ref), True) if deferred else self._solve(caller.ref))
                ):
                    seen.add(caller.ref)
                    queue.append((caller.ref, (*path, caller)))
        return ()


def _told(leaks: dict[FunctionRef, list[tuple[CallFact, str]]]) -> list[str]:
    return [part for ref in sorted(leaks) for part in (ref.path, ref.qualname, shape(leaks[ref]))]


def _spread(
    sets: dict[FunctionRef, set[str]],
    callees: dict[FunctionRef, list[tuple[FunctionRef, bool]]],
    changed: Iterable[FunctionRef],
) -> None:
    """Pass modes from callers to callees until nothing grows."""
    queue = deque(changed)
    while queue:
        current = queue.popleft()
        for callee, deferred in callees.get(current, ()):
            new = _through(sets[current], deferred) - sets[callee]
            if new:
                sets[callee] |= new
                queue.append(callee)


def _through(modes: Iterable[str], deferred: bool) -> set[str]:
    """A caller's modes at the call. A lambda made with grad on may be called under no_grad; the other way round is rare."""
    return {"off" if mode == "off" else "escapes" for mode in modes} if deferred else set(modes)


def _agreed(effects: Sequence[str | None]) -> str | None:
    """One effect for all alternatives: the same in all, else "mixed"; None when none has any."""
    different = set(effects)
    if not different or different == {None}:
        return None
    return different.pop() if len(different) == 1 else "mixed"


def _negated(effect: str) -> str:
    if effect.startswith("param:"):
        text = effect.removeprefix("param:")
        return f"param:{text.removeprefix('not ')}" if text.startswith("not ") else f"param:not {text}"
    return {"on": "off", "off": "on"}.get(effect, "mixed")


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _truth(const: str) -> bool:
    return bool(_literal(const))


def _holds(match: re.Match[str], const: str) -> bool | None:
    """Whether the test that ``match`` took apart holds when its name is the literal ``const``."""
    value = _literal(const)
    if match[3] is None:
        holds = bool(value)
    else:
        same = value == _literal(match[4])
        holds = same if match[3] in ("==", "is") else not same
    return not holds if match[1] else holds
