"""Attributes that hold nothing until a method sets them to a module that it freezes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torchmemlint.errors import SourceError
from torchmemlint.index.facts import AttrFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.mode import callees, reaches
from torchmemlint.semantics.roots.root_run import run_root
from torchmemlint.semantics.state import (
    EMPTY,
    FROZEN,
    MAYBE_FROZEN,
    Condition,
    Machine,
    Meter,
    Mode,
    Obj,
    RunLimit,
    World,
    const,
    memoized,
    new_machine,
)
from torchmemlint.torch_facts import TORCH

FREEZING_WORDS = TORCH.words["may-freeze"] | TORCH.words["changes-flags"]
"""Words of a method that may freeze what it sets."""
CHANGES_PARAMETERS = TORCH.words["changes-flags"] | {f"{flag}=False" for flag in TORCH.words["gradient-flags"]}
SETS_FLAGS = CHANGES_PARAMETERS | {f"{flag}=" for flag in TORCH.words["gradient-flags"]}
"""Words of a function that may freeze what it is given: ``p.requires_grad = flag``."""
MAX_METHODS = 4
"""Methods of one name that are looked at: a name that many have says nothing."""


@memoized
def mentions_freezing(world: World, cls: ClassRef) -> bool:
    """Whether the ``__init__`` of a class, or a function that it calls, may freeze something by its words."""
    project = world.project
    init = project.method(cls, "__init__")
    if init is None:
        return False
    facts = world.facts(init)
    if facts.names & FREEZING_WORDS:
        return True
    called = [
        ref for call in facts.calls for ref in project.callees(init.path, init.qualname, call.callee, *call.keywords).refs
    ]
    own = {call.callee.removeprefix("self.") for call in facts.calls if call.callee.startswith("self.")}
    methods = [project.method(cls, name) for name in sorted(own) if "." not in name]
    return any(ref is not None and reaches(world, ref, FREEZING_WORDS, 1) for ref in [*called, *methods])


def set_frozen(world: World, cls: ClassRef, machine: Callable[[FunctionRef], Machine]) -> dict[str, Condition | None]:
    """Attributes of the class that all who set them, other than to None, leave frozen: ``self.old = self.net.copy().freeze()``; with the
    condition under which one does, or None. ``machine`` makes one that asks for no other function's run: no question can come back
    to itself."""
    setters: dict[str, set[FunctionRef] | None] = {}
    lines = [each for each in world.project.mro(cls) if isinstance(each, ClassRef)]
    for name in sorted({fact.name for each in lines for fact in world.project.attrs(each) if fact.method}):
        methods: set[FunctionRef] = set()
        for fact, holder in [*world.project.attr(cls, name), *_set_below(world, cls, name)]:
            if fact.const == "None":
                continue
            ref = FunctionRef(holder.path, fact.method)
            if not fact.method or fact.method.endswith("__init__") or not _may_freeze(world, ref):
                break
            methods.add(ref)
        else:
            setters[name] = methods
    asked = {ref for methods in setters.values() if methods for ref in methods}
    frozen = {ref: _left_frozen(world, ref, machine) for ref in sorted(asked)}
    return {
        name: next((frozen[ref][name] for ref in sorted(methods) if frozen[ref][name] is not None), None)
        for name, methods in setters.items()
        if methods and all(name in frozen[ref] for ref in methods)
    }


def _set_below(world: World, cls: ClassRef, name: str) -> Iterator[tuple[AttrFact, ClassRef]]:
    for below in world.project.subclasses(cls):
        yield from ((fact, below) for fact in world.project.attrs(below) if fact.name == name)


@memoized
def _may_freeze(world: World, ref: FunctionRef) -> bool:
    """Whether a method may freeze what it sets: by its own words, by a method that it calls on it, or by a function that it gives it to."""
    facts = world.facts(ref)
    if facts.names & (FREEZING_WORDS | CHANGES_PARAMETERS):
        return True
    given = [call for call in facts.calls if any(arg.name.startswith("self.") for arg in call.args)]
    if any(world.facts(each).names & SETS_FLAGS for call in given for each in callees(world, ref, call).refs):
        return True
    called = {call.callee.rpartition(".")[2] for call in facts.calls if "." in call.callee}
    return any(freezes_itself(world, name) for name in sorted(called))


@memoized
def freezes_itself(world: World, name: str) -> bool:
    """Whether the project has methods of that name, and all of them are of modules and freeze all that the module has."""
    methods = world.project.methods_named(name)
    if not 0 < len(methods) <= MAX_METHODS or not all(world.facts(ref).names & CHANGES_PARAMETERS for ref in methods):
        return False
    return all(_leaves_itself_frozen(world, ref) for ref in methods)


def _leaves_itself_frozen(world: World, ref: FunctionRef) -> bool:
    facts = world.facts(ref)
    if len(facts.params) != 1 or not world.is_of_module(ref):
        return False
    m = _run(world, ref, lambda ref: new_machine(world, ref, Mode.ON, Meter()))
    final = m.record.final if m is not None else None
    if m is None or final is None:
        return False
    me = [atom for atom in final.vars.get((m.frame, facts.params[0].name), EMPTY) if isinstance(atom, Obj)]
    return bool(me) and all(final.vars.get((atom.oid, FROZEN)) == const(True) for atom in me)


def _run(world: World, ref: FunctionRef, machine: Callable[[FunctionRef], Machine]) -> Machine | None:
    """A machine that ran a method to its end; None where it could not."""
    try:
        found = world.function(ref)
        if found is None:
            return None
        m = machine(ref)
        run_root(m, *found, world.class_of_method(ref))
    except (SourceError, RunLimit, RecursionError):
        return None
    return m


def _left_frozen(world: World, ref: FunctionRef, machine: Callable[[FunctionRef], Machine]) -> dict[str, Condition | None]:
    """Attributes of ``self`` whose parameters are all frozen where a method ends, with the condition where that depends on one."""
    m = _run(world, ref, machine)
    final = m.record.final if m is not None else None
    if m is None or final is None:
        return {}
    me = {atom.oid for atom in final.vars.get((m.frame, "self"), EMPTY) if isinstance(atom, Obj)}
    found: dict[str, Condition | None] = {}
    for (oid, name), value in final.vars.items():
        objects = [atom for atom in value if isinstance(atom, Obj)]
        held = [final.vars.get((atom.oid, FROZEN)) for atom in objects]
        if oid not in me or not objects or len(objects) < len(value):
            continue
        if all(each == const(True) for each in held):
            found[name] = None
        elif all(each in (const(True), MAYBE_FROZEN) for each in held):
            condition = next((m.record.conditions[atom.oid] for atom in objects if atom.oid in m.record.conditions), None)
            if condition is not None:
                found[name] = Condition(condition.test, None, ref)
    return found
