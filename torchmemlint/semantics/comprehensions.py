"""Comprehensions and generator expressions: loops whose names are a scope of their own."""

from __future__ import annotations

from torchmemlint.lower import ir
from torchmemlint.semantics.dispatch import EXPRESSIONS, assign, evaluate, handles
from torchmemlint.semantics.elements import forget, iterate
from torchmemlint.semantics.loops import loop_passes, note_loop, turns_over
from torchmemlint.semantics.machine import Machine
from torchmemlint.semantics.phases import decide
from torchmemlint.semantics.state import ELEMENTS, Kind, State
from torchmemlint.semantics.syntax import target_names
from torchmemlint.semantics.values import EMPTY, Obj, Value, join, shallow


@handles(EXPRESSIONS, ir.Comprehension)
def evaluate_comprehension(m: Machine, expr: ir.Comprehension, state: State) -> Value:
    oid = m.allocate(Kind(expr.kind), expr.node)
    forget(m, oid, state)
    comprehension_clause(m, expr, 0, oid, state)
    return frozenset((Obj(oid),))


def comprehension_clause(m: Machine, expr: ir.Comprehension, index: int, oid: int, state: State) -> None:
    if index == len(expr.clauses):
        value = shallow(evaluate(m, expr.element, state))
        if expr.key is not None:
            evaluate(m, expr.key, state)
        state.vars[oid, ELEMENTS] = join(state.vars.get((oid, ELEMENTS), EMPTY), value)
        return
    clause = expr.clauses[index]
    iterable = evaluate(m, clause.iterable, state)

    def body(inner: State) -> State | None:
        names = target_names(clause.target)
        m.comprehension_names.append(names)
        assign(m, clause.target, iterate(m, iterable, clause.node, inner), inner, clause.node)
        m.comprehension_names.pop()
        for condition in clause.conditions:
            if decide(m, condition, inner) is False:
                return None
        comprehension_clause(m, expr, index + 1, oid, inner)
        return inner

    loop, listed = (m.frame, clause.node), expr.kind is ir.Display.LIST
    turns = turns_over(m, clause.iterable, state)
    note_loop(m, loop, clause.iterable, iterable, target_names(clause.target), listed=listed, turns=turns)
    # The clause's names are a scope of their own: what they held before, they hold again afterwards.
    places = [(m.frame, name) for name in target_names(clause.target)]
    before = {place: state.vars.pop(place, None) for place in places}
    # What the comprehension has collected so far is in nobody's reach yet, and its names are bound by each iteration.
    own = frozenset((*places, (oid, ELEMENTS)))
    after = loop_passes(m, (m.frame, clause.node), state, body, own=own)
    if after is not None:
        state.vars, state.mode = after.vars, after.mode
    for place, held in before.items():
        state.vars.pop(place, None)
        if held is not None:
            state.vars[place] = held
