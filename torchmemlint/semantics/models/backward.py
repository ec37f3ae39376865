"""Back-propagation: ``backward()``, or whatever does the same."""

from __future__ import annotations

from dataclasses import replace

from torchmemlint.lower.written import text_of
from torchmemlint.semantics.interpret import hold_loaded
from torchmemlint.semantics.state import (
    CALLED_KINDS,
    Atom,
    Backward,
    Call,
    GraphKind,
    Kind,
    Machine,
    Obj,
    RecordFlag,
    Seen,
    SinkKind,
    Site,
    State,
    Tensor,
    Tuple,
    Value,
    is_none,
    truth,
)
from torchmemlint.torch_facts import TORCH

BACKWARD = TORCH.names["backward"]
CREATES_GRAPH = TORCH.names["creates-graph"]
KEEPS_GRAPH = TORCH.names["keeps-graph"]


def back_propagate(
    m: Machine,
    values: list[Value],
    call: Call,
    state: State,
    partial: bool = False,
    retain_at: int = -1,
) -> None:
    """``retain_at`` is the position of ``retain_graph`` in the call, -1 where it has none; ``create_graph`` is the next."""
    graphs: set[int] = set()
    hints: set[int] = set()
    for value in values:
        g, h, _, _ = m.deep(value, state)
        graphs |= g
        hints |= h
        for atom in value:
            if type(atom) is Obj and m.heap[atom.oid].kind is Kind.THING:
                graphs.add(m.thing_graph(atom.oid))
    created = call.get(retain_at + 1 if retain_at >= 0 else -1, CREATES_GRAPH)
    retained = call.get(retain_at, KEEPS_GRAPH)
    create = truth(created) if created is not None else False
    retain = truth(retained) if retained is not None and not is_none(retained) else create
    kept_by = call.keyword_exprs.get(KEEPS_GRAPH)
    m.record.flags |= {RecordFlag.BACKWARD, RecordFlag.CREATE_GRAPH} if create is True else {RecordFlag.BACKWARD}
    hold_loaded(m, state)
    sole = [
        g for g in graphs if m.record.graphs[g].kind in (GraphKind.OPAQUE, GraphKind.PARAM, GraphKind.FORWARD, GraphKind.LEAF)
    ]
    if len(sole) == 1:
        m.notice(sole, BACKWARD)
        m.notice(m.record.wholes(sole[0]), Seen.PART_BACKWARD)
    m.sink(graphs | hints, SinkKind.BACKWARD, text_of(call.func), call.node)
    event = Backward(
        m.site(call.node), frozenset(graphs), frozenset(hints), retain is not False,
        partial or "inputs" in call.keywords, retain is True, create is True,
        kept_by.node if kept_by is not None else -1, retain_at == 3, all(type(atom) is Tensor for value in values for atom in value),
    )  # fmt: skip
    old = m.record.events.get(("Backward", m.frame, call.node, f"/{m.turn}"))
    if isinstance(old, Backward):
        event = replace(event, graphs=event.graphs | old.graphs, hints=event.hints | old.hints, known=event.known and old.known)
    m.emit(event)
    if m.loops:
        spend(m, graphs, state)


def spend(m: Machine, graphs: set[int], state: State) -> None:
    """Marks all values that are attached to a graph which the backward ran through: in the next iteration of the loop it is an
    earlier one's."""
    record = m.record
    through = {g for g in record.ancestors(frozenset(graphs)) if record.graphs[g].kind in CALLED_KINDS}
    if not through:
        return
    hanging, todo = m.hanging, list(through)
    while todo:
        new = [gid for gid in hanging.get(todo.pop(), ()) if gid not in through]
        through.update(new)
        todo += new
    m.meter.take(len(record.graphs) + len(through) + len(state.vars))
    mark = m.graph(GraphKind.SPENT, -1, "", site=Site(max(m.frame, 0), -1))
    marks = frozenset((mark,))
    for place, value in state.vars.items():
        for atom in value:
            if type(atom) is Tuple or (type(atom) is Tensor and not through.isdisjoint(atom.graphs)):
                state.vars[place] = spent(value, through, marks)
                break


def spent(value: Value, through: set[int], marks: frozenset[int]) -> Value:
    """The value, with the marks on those of its tensors that are attached to such a graph."""
    out: list[Atom] = []
    for atom in value:
        if type(atom) is Tensor and not through.isdisjoint(atom.graphs):
            out.append(atom._replace(graphs=atom.graphs | marks))
        elif type(atom) is Tuple:
            out.append(Tuple(tuple(spent(item, through, marks) for item in atom.items)))
        else:
            out.append(atom)
    return frozenset(out)
