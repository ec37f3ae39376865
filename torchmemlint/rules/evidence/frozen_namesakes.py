"""Networks under a name of which another function freezes the parameters.

Callers give them, or their method is called: what a helper makes and freezes goes by one name through a program
(``ema_model``).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import everything, names_inside
from torchmemlint.lower.written import dotted
from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.identity import is_held, may_freeze
from torchmemlint.semantics.roots import MAX_CALLERS
from torchmemlint.semantics.state import Graph, World, memoized
from torchmemlint.torch_facts import TORCH

UP = 3
"""Calls from a method to where the object that it is called on has a name of its own."""
FREEZES = TORCH.names["sets-gradient-flag"]
ITERATORS = sorted(TORCH.words["parameter-iterators"])


def frozen_elsewhere(event: Graph, flow: Flow) -> tuple[Fact, ...]:
    """The doubt about a network that every visible caller knows by a name under which it, or a function above it, gets a frozen one;
    nothing where a caller has no name for it."""
    world, root = flow.runs.world, flow.record.root
    given = [*names_given(world, root, event.what.partition(".")[0])]
    if not given or not all(_gets_frozen(world, *each) for each in given):
        return ()
    return (assumed.frozen_by_name(given[0][1]),)


def names_given(world: World, ref: FunctionRef, first: str, up: int = UP) -> Iterator[tuple[FunctionRef, str]]:
    """The callers, each with the name by which it knows what a function calls ``first``: a parameter, or the object of a method; ""
    for one that has no name for it."""
    if first != "self":
        yield from ((caller, text.rpartition(".")[2]) for caller, text in world.project.objects_given(ref, first))
        return
    for caller in world.project.callers(ref).calls[:MAX_CALLERS]:
        receiver = caller.call.callee.rpartition(".")[0]
        if receiver.partition(".")[0] != "self":
            yield caller.ref, receiver.rpartition(".")[2]
        elif up and caller.ref != ref:
            yield from names_given(world, caller.ref, "self", up - 1)
        else:
            yield caller.ref, ""


@memoized
def _gets_frozen(world: World, ref: FunctionRef, name: str) -> bool:
    """Whether a function, or one that leads to it, binds that name to what a function gives that freezes a network of the name."""
    if not name or is_held(world, ref, name):
        return False
    frozen = {each for each in world.project.functions_calling(f"{name}.{FREEZES}") if is_frozen_in(world.facts(each), name)}
    looked = [each for iterator in ITERATORS for each in world.project.functions_calling(f"{name}.{iterator}")]
    frozen.update(each for each in looked if may_freeze(world.facts(each), name, frozenset()))
    binding = {
        caller.ref
        for each in frozen
        if gives_back(world, each, name)
        for caller in world.project.callers(each).calls
        if binds(world, caller.ref, name, caller.call.callee)
    }
    todo = [ref] if binding else []
    for _ in range(UP):
        if not binding.isdisjoint(todo):
            return True
        todo = [caller.ref for each in todo for caller in world.project.callers(each).calls[:MAX_CALLERS]]
    return not binding.isdisjoint(todo)


def gives_back(world: World, ref: FunctionRef, name: str) -> bool:
    """Whether a function returns what it calls by that name, alone or among others."""
    returned = [each.value for each in everything(world.body(ref)) if isinstance(each, ir.Return) and each.value is not None]
    return any(name in names_inside(value) for value in returned)


def binds(world: World, ref: FunctionRef, name: str, callee: str) -> bool:
    """Whether a function binds a name, alone or among others, to what a call gives."""
    return any(
        isinstance(each, ir.Assign)
        and isinstance(each.value, ir.Call)
        and dotted(each.value.func) == callee
        and any(name in names_inside(target) for target in each.targets)
        for each in everything(world.body(ref))
    )


def is_frozen_in(facts: FunctionFacts, name: str) -> bool:
    return any(call.callee == f"{name}.{FREEZES}" and any(arg.const == "False" for arg in call.args) for call in facts.calls)
