"""Parts of what is not known: an element or attribute of an opaque result, of an unknown object, a parameter used directly."""

from __future__ import annotations

from torchmemlint.semantics.state import (
    ANY_PART,
    COMPUTED,
    ELEMENTS,
    FREE_TENSOR,
    MOVED,
    SCALAR,
    UNSURE_KINDS,
    VIEW,
    Const,
    GraphKind,
    Key,
    Kind,
    Machine,
    Mode,
    Obj,
    State,
    Tensor,
    Tuple,
    Unknown,
    Value,
    hints_of,
    tensor,
)

MAX_PART_TEXT = 60
"""Parts of parts of unknown things stop having an identity of their own beyond this length of their text: ``x = x.next`` in a
loop would make new ones for ever."""
MANY_GRAPHS = 800
"""Graphs of one run after which parts are no longer distinguished."""


def part_of(m: Machine, atom: Tensor, key: str, node: int, unpacked: bool = False) -> Value:
    """A named part of a result: of a module's output it is attached to the same graph; of an opaque result each part has an
    identity of its own, because only evidence about that very part shows whether it is attached."""
    graphs: set[int] = set()
    hints = set(atom.hints)
    for gid in atom.graphs:
        graph = m.record.graphs[gid]
        # What a module that is not visible returns beside a loss may be a number: each piece that is unpacked stands for itself.
        whole = unpacked and not atom.flags & (VIEW | COMPUTED)  # else they are pieces of a tensor, which an operation made
        apart = graph.kind in UNSURE_KINDS or (whole and graph.kind is GraphKind.FORWARD)
        if apart and len(graph.what) < MAX_PART_TEXT and len(m.record.graphs) < MANY_GRAPHS:
            graphs.add(
                m.graph(
                    GraphKind.OPAQUE,
                    graph.site.node,
                    graph.what + key,
                    key=(gid, key),
                    parents=frozenset((gid,)),
                    mode=graph.mode,
                    site=graph.site,
                    direct=graph.direct or graph.kind is GraphKind.FORWARD,
                    training=graph.training,
                )
            )
        elif apart and graph.kind is not GraphKind.FORWARD:
            hints.add(gid)  # no longer distinguished: this part may be a number beside the loss
        else:
            graphs.add(gid)
    return tensor(frozenset(graphs), frozenset(hints), atom.outputs, atom.flags & ~SCALAR)


def thing_element(m: Machine, oid: int, key: Const | None) -> Value:
    """An element of an unknown object: a part of what came in with it."""
    info = m.heap[oid]
    if len(info.name) >= MAX_PART_TEXT:
        return frozenset((Obj(oid),))
    label = f"[{key.value!r}]" if key is not None else ANY_PART
    cls = m.element_classes.get(oid)
    inner = m.outside(Kind.THING if cls is None else Kind.INSTANCE, info.name + label, cls, key=(oid, label))
    m.holders.setdefault(inner, oid)
    if oid in m.loaded:
        m.loaded[inner] = m.loaded[oid]
    return frozenset((Obj(inner),))


def hold_loaded(m: Machine, state: State, call: int = -1) -> None:
    """Notes which loaded files a name still holds where steps run, and the loops and calls around the step: at a forward or backward
    in a loop, or at a ``call`` of what runs steps."""
    if not m.loaded or not (m.loops or call >= 0):
        return
    places = reachable(m, state)
    held = {(place, a.oid) for place, value in places for a in value if type(a) is Obj and a.oid in m.loaded}
    m.record.alive |= {oid for place, oid in held if place[0] not in m.heap or not m.heap[oid].name.endswith(ANY_PART)}
    in_dicts = {oid for place, value in places if is_of_dict(m, place) for oid in loaded_of(m, value)}
    m.record.alive |= in_dicts
    m.record.in_dicts |= in_dicts
    m.record.stepping |= {*m.loops, (m.frame, call)}
    frame = m.record.frames[m.frame]
    while frame.parent >= 0:
        m.record.stepping.add((frame.parent, frame.call))
        frame = m.record.frames[frame.parent]


def note_given_away(m: Machine, result: Value, state: State) -> None:
    """Notes of which loaded files a root returns something, or leaves it in an object that its callers have."""
    if not m.loaded:
        return
    outer = {oid for oid, info in m.heap.items() if info.external and oid not in m.loaded}
    values = [result, *(value for place, value in state.vars.items() if place[0] in outer)]
    values += [value for _, value in reached_from(m, values, state)]
    for value in values:  # and what is in a tuple, too
        values += [item for atom in value if type(atom) is Tuple for item in atom.items]
    held = {m.loaded[atom.oid] for value in values for atom in value if type(atom) is Obj and atom.oid in m.loaded}
    tensors = {gid for value in values for gid in hints_of(value)}
    m.record.given_away |= held | {m.record.graphs[gid].module for gid in tensors if gid in m.record.graphs} & m.loaded.keys()


def reachable(m: Machine, state: State) -> list[tuple[Key, Value]]:
    """The places that a name leads to, with what they hold: what a function that has returned made is gone, if nothing else has it."""
    found = [(place, value) for place, value in state.vars.items() if place[0] not in m.heap]
    return found + reached_from(m, [value for _, value in found], state)


def reached_from(m: Machine, values: list[Value], state: State) -> list[tuple[Key, Value]]:
    """The places inside the objects that values lead to, with what they hold."""
    m.meter.take(len(state.vars))
    inside: dict[int, list[Key]] = {}
    for place in state.vars:
        if place[0] in m.heap:
            inside.setdefault(place[0], []).append(place)
    found: list[tuple[Key, Value]] = []
    todo = [*values]
    while todo:
        for atom in todo.pop():
            if type(atom) is Obj and atom.oid in inside:
                for place in inside.pop(atom.oid):
                    found.append((place, state.vars[place]))
                    todo.append(state.vars[place])
            elif type(atom) is Tuple:
                todo.extend(atom.items)
    return found


def is_of_dict(m: Machine, place: Key) -> bool:
    """Whether a place is that of the values of a dict that the run made: ``{key[7:]: value for key, value in saved.items()}``."""
    info = m.heap.get(place[0]) if place[1] == ELEMENTS else None
    return info is not None and info.kind is Kind.DICT


def loaded_of(m: Machine, value: Value) -> set[int]:
    """The files of which an element that is not distinguished is a part, where it was not moved to the host."""
    graphs: set[int] = set()
    for atom in value:
        if type(atom) is Tensor and not atom.flags & MOVED:
            graphs |= atom.graphs | atom.hints
        elif type(atom) is Unknown:
            graphs |= atom.hints
    m.meter.take(len(graphs))
    return {m.record.graphs[gid].module for gid in m.record.ancestors(frozenset(graphs))} & m.loaded.keys()


def leaf_tensor(m: Machine, node: int, text: str, state: State | None) -> Value:
    """A parameter used directly: an operation on it makes a graph."""
    if state is not None and state.mode is Mode.OFF:
        return FREE_TENSOR
    return tensor(frozenset((m.graph(GraphKind.LEAF, node, text, key=text),)))
