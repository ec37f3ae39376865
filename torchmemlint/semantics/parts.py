"""Parts of what is not known: an element or attribute of an opaque result, of an unknown object, a parameter used directly."""

from __future__ import annotations

from torchmemlint.semantics.events import UNSURE_KINDS, GraphKind
from torchmemlint.semantics.machine import Machine
from torchmemlint.semantics.state import Kind, Mode, State
from torchmemlint.semantics.values import FREE_TENSOR, NOTHING, SCALAR, Const, Obj, Tensor, Value, tensor

MAX_PART_TEXT = 60
"""Parts of parts of unknown things stop having an identity of their own beyond this length of their text: ``x = x.next`` in a
loop would make new ones for ever."""
MANY_GRAPHS = 800
"""Graphs of one run after which parts are no longer told apart."""


def part_of(m: Machine, atom: Tensor, key: str, node: int, unpacked: bool = False) -> Value:
    """A named part of a result: of a module's output it hangs on the same graph; of an opaque result each part has an
    identity of its own, because only evidence about that very part tells whether it is attached."""
    graphs = NOTHING
    hints = atom.hints
    for gid in atom.graphs:
        graph = m.record.graphs[gid]
        # What a module out of sight returns beside a loss may be a number: each piece that is unpacked stands for itself.
        apart = graph.kind in UNSURE_KINDS or (unpacked and graph.kind is GraphKind.FORWARD)
        if apart and len(graph.what) < MAX_PART_TEXT and len(m.record.graphs) < MANY_GRAPHS:
            graphs |= {
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
            }
        elif apart and graph.kind is not GraphKind.FORWARD:
            hints |= {gid}  # no longer told apart: this part may be a number beside the loss
        else:
            graphs |= {gid}
    return tensor(graphs, hints, atom.outputs, atom.flags & ~SCALAR)


def thing_element(m: Machine, oid: int, key: Const | None) -> Value:
    """An element of an unknown object: a part of what came in with it."""
    info = m.heap[oid]
    if len(info.name) >= MAX_PART_TEXT:
        return frozenset((Obj(oid),))
    label = f"[{key.value!r}]" if key is not None else "[…]"
    inner = m.outside(Kind.THING, info.name + label, None, key=(oid, label))
    m.holders.setdefault(inner, oid)
    if oid in m.loaded:
        m.loaded[inner] = m.loaded[oid]
    return frozenset((Obj(inner),))


def hold_loaded(m: Machine, state: State) -> None:
    """Notes which loaded files a name still holds where steps run."""
    if m.loaded and m.loops:
        m.record.alive |= {a.oid for value in state.vars.values() for a in value if type(a) is Obj and a.oid in m.loaded}


def leaf_tensor(m: Machine, node: int, text: str, state: State | None) -> Value:
    """A parameter used directly: an operation on it makes a graph."""
    if state is not None and state.mode is Mode.OFF:
        return FREE_TENSOR
    return tensor(frozenset((m.graph(GraphKind.LEAF, node, text, key=text),)))
