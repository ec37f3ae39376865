"""Modules that are frozen on one branch alone: no more is known than that they may be."""

from __future__ import annotations

from typing import NamedTuple

from torchmemlint.index.project import ClassRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.state import EVERYTHING, FROZEN, MAYBE_FROZEN, Condition, Machine, Obj, State, Tuple, Value, const
from torchmemlint.torch_facts import TORCH


class Freezing(NamedTuple):
    """What a constructor leaves frozen of its object: attributes, or ``EVERYTHING``.

    surely  those whose parameters are frozen in any case
    maybe   those that are frozen under a condition
    """

    surely: frozenset[str]
    maybe: tuple[tuple[str, Condition], ...]


def note_conditions(m: Machine, statement: ir.If, then_state: State, else_state: State, joined: State) -> None:
    """After an ``if``: what one branch froze, and the other left as it was, may be frozen. What the branch itself made is frozen
    wherever it is there at all."""
    for oid in sorted(m.freezes):
        place = (oid, FROZEN)
        for state, other in ((then_state, else_state), (else_state, then_state)):
            if state.vars.get(place) == const(True) and place not in other.vars and is_known_in(m, oid, other):
                if restores(statement.then if state is then_state else statement.orelse, oid, state):
                    continue
                joined.vars[place] = MAYBE_FROZEN
                text = m.texts[id(statement)]
                negated = text.removeprefix("not ") if text.startswith("not ") else f"not {text}"
                m.record.conditions[oid] = Condition(text if state is then_state else negated, m.site(statement.node))


def restores(branch: list[ir.Stmt], oid: int, state: State) -> bool:
    """Whether a branch gives a module its weights, too: without it the module is not there yet, and what runs it has come by here."""
    names = {name for (_, name), value in state.vars.items() if holds(value, oid)}
    for node in nodes_of(branch):
        if isinstance(node, ir.Call) and isinstance(node.func, ir.Attr) and node.func.name == RESTORES:
            if dotted(node.func.value).rpartition(".")[2] in names:
                return True
    return False


RESTORES = TORCH.names["restores"]


def is_known_in(m: Machine, oid: int, state: State) -> bool:
    """Whether an object is there in a state: it was before the run, or some place holds it."""
    seen = {oid}
    while m.heap[oid].external and m.holders.get(oid, oid) not in seen:
        oid = m.holders[oid]
        seen.add(oid)
    state.meter.take(len(state.vars))
    return m.heap[oid].external or any(place[0] == oid or holds(value, oid) for place, value in state.vars.items())


def holds(value: Value, oid: int) -> bool:
    for atom in value:
        if type(atom) is Obj and atom.oid == oid:
            return True
        if type(atom) is Tuple and any(holds(item, oid) for item in atom.items):
            return True
    return False


def condition_of(m: Machine, oid: int, state: State) -> Condition | None:
    """The condition under which a module is frozen, by what is known of it or of a module that holds it (see
    ``Machine.frozen``)."""
    seen: set[int] = set()
    while oid not in seen:
        seen.add(oid)
        held = state.vars.get((oid, FROZEN))
        if held is not None:
            return m.record.conditions.get(oid) if held == MAYBE_FROZEN else None
        info = m.heap[oid]
        built = dict(m.frozen_maybe(info.cls)) if isinstance(info.cls, ClassRef) else {}
        if EVERYTHING in built:
            return built[EVERYTHING]
        holder = m.holders.get(oid, oid)
        around = m.heap[holder].cls
        if holder != oid and isinstance(around, ClassRef):
            named = dict(m.frozen_maybe(around))
            found = named.get(EVERYTHING) or named.get(info.name.rpartition(".")[2])
            if found is not None:
                return found
        oid = holder
    return None
