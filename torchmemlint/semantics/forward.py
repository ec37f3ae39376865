"""A module runs."""

from __future__ import annotations

from collections.abc import Iterable

from torchmemlint.index.project import ClassRef
from torchmemlint.semantics.arithmetic import arithmetic
from torchmemlint.semantics.call import Call
from torchmemlint.semantics.dispatch import call_atom
from torchmemlint.semantics.events import Graph
from torchmemlint.semantics.machine import Machine
from torchmemlint.semantics.models.grad_managers import decorated_mode
from torchmemlint.semantics.names import function_value
from torchmemlint.semantics.state import State
from torchmemlint.semantics.values import (
    BATCH,
    COMPUTED,
    FREE_TENSOR,
    INTEGER,
    NOTHING,
    PACKED,
    SCALAR,
    UNKNOWN,
    Const,
    Obj,
    Plain,
    Tensor,
    Tuple,
    Unknown,
    Value,
    is_single_number,
    only_indices,
    reshape,
    tensor,
    truth,
)

TO_INDICES = frozenset({"argmax", "argmin", "argsort", "bucketize", "multinomial", "searchsorted", "topk"})
"""Words of a forward that may give class ids: others are not run for it."""


def run_forward(m: Machine, oid: int, call: Call, state: State, text: str) -> Value:
    """A module runs: with grad mode on its result hangs on a new graph."""
    info = m.heap[oid]
    bare = oid in m.bare
    if isinstance(info.cls, ClassRef) and info.kind == "module":
        own = m.world.project.method(info.cls, "forward")
        if own is not None and decorated_mode(m, own) == "off":
            return FREE_TENSOR
        if own is not None and m.world.facts(own).names & TO_INDICES and only_indices(m.result_of(own, "off")):
            return tensor(flags=INTEGER)
        bare = bare or not m.world.has_parameters(info.cls)
    if bare:
        # Its result hangs on what it is given, unless it cuts that off itself.
        through = inside_forward(m, oid, call, state)
        return through if through is not None else arithmetic(m, call.all(), call.node, state)
    graphs: set[int] = set()
    certain: set[int] = set()
    for value in call.all():
        g, h, _, _ = m.deep(value, state)
        graphs |= g | h
        certain |= g
    # A recurrent network that is given a PackedSequence returns one.
    # What is no bigger than a number stays so: layers want a dimension at least, so this one works element by element.
    number = is_single_number(call.positional)
    packed = PACKED if any(type(a) is Tensor and a.flags & PACKED for v in call.positional for a in v) else 0
    training = truth(state.vars.get((oid, "$training"), UNKNOWN))
    frozen = stays_free(m, oid, graphs, state)
    inner = inside_forward(m, oid, call, state)
    if inner is None and isinstance(info.cls, ClassRef) and info.kind == "module" and m.world.guards_what_it_runs(info.cls):
        return arithmetic(m, call.all(), call.node, state)
    m.record.flags.add("forward")
    if training is None:
        training = m.world.training_of(m.frame_closure[m.frame].ref, info.name)
    if state.mode == "off":
        m.sink(graphs, "cut", "no_grad", call.node)
        gid = m.number("graph", "forward-off", m.frame, call.node, m.turn, text)
        if gid not in m.record.forwards:
            m.record.forwards[gid] = Graph(
                gid, "forward", m.site(call.node), text, mode="off", module=oid, module_loops=info.loops,
                cls=info.cls if isinstance(info.cls, ClassRef) else None,
            )  # fmt: skip
        if inner is None and number:
            return tensor(flags=SCALAR | COMPUTED)
        return reshape(
            inner,
            lambda t: Tensor(
                NOTHING,
                NOTHING,
                frozenset((gid,)) if not t.flags & (SCALAR | INTEGER) else NOTHING,
                t.flags | BATCH | (packed if inner is None else 0),
            ),
        )
    if inner is not None and not has_graph(m, inner):
        return inner
    gid = m.graph(
        "forward", call.node, text, key=text, parents=frozenset(graphs), mode=state.mode, training=training, module=oid,
        frozen=frozen,
    )  # fmt: skip
    graph = m.record.graphs[gid]
    graph.cls = info.cls if isinstance(info.cls, ClassRef) else None
    graph.training = training if graph.training == training else None
    marks = frozenset((gid, *through_module(m, certain)))
    # Where some of its outputs hang on a graph, the others are those that it detaches itself.
    by_place = inner is not None and is_attached(m, inner)

    def marked(t: Tensor) -> Tensor:
        mine = NOTHING if by_place and not is_attached(m, frozenset((t,))) else marks
        return Tensor(
            NOTHING if t.flags & INTEGER else t.graphs | mine,
            t.hints,
            frozenset((gid,)) if not t.flags & (SCALAR | INTEGER) else NOTHING,
            t.flags | BATCH | (packed if inner is None else 0),
        )

    return reshape(inner, marked)


def is_attached(m: Machine, value: Value) -> bool:
    """Whether any tensor inside hangs on more than the call that returned it."""
    for atom in value:
        if type(atom) is Tensor and (atom.hints or any(m.record.graphs[gid].kind != "result" for gid in atom.graphs)):
            return True
        if type(atom) is Tuple and any(is_attached(m, item) for item in atom.items):
            return True
    return False


def stays_free(m: Machine, oid: int, graphs: Iterable[int], state: State) -> bool:
    """Whether a call of a module records nothing, though grad mode is on: it is frozen, and so is all that its input hangs on."""
    return m.frozen(oid, state) and not any(
        m.record.graphs[g].kind in ("forward", "leaf") and not m.record.graphs[g].frozen for g in graphs
    )


def through_module(m: Machine, graphs: set[int]) -> set[int]:
    """Marks of loop-carried places, renamed to say that they went through a module: a recurrent state."""
    out = set()
    for gid in graphs:
        graph = m.record.graphs[gid]
        if graph.kind == "carried" and graph.place != (-1, ""):
            key = m.number("mark", "through", gid)
            if key not in m.record.graphs:
                m.record.graphs[key] = Graph(key, "carried", graph.site, graph.what, mode="module", place=graph.place)
                m.record.graphs[key].parents = frozenset()
            out.add(key)
    return out


def has_graph(m: Machine, value: Value) -> bool:
    """Whether any tensor inside may hang on a graph (unknown parts may)."""
    for atom in value:
        if type(atom) is Tensor:
            if atom.graphs or atom.hints:
                return True
        elif type(atom) is Tuple:
            if any(has_graph(m, i) for i in atom.items):
                return True
        elif type(atom) not in (Plain, Const):
            return True
    return not value


def inside_forward(m: Machine, oid: int, call: Call, state: State) -> Value | None:
    """What a module's own ``forward`` returns, when the project shows it; None when it is out of sight."""
    info = m.heap[oid]
    if not isinstance(info.cls, ClassRef) or m.record.frames[m.frame].depth > 0:
        return None
    method = m.world.project.method(info.cls, "forward")
    if method is None:
        return None
    if m.world.length(method) > 120 or method == m.record.root:
        return None
    (atom,) = function_value(m, method, oid)
    before = state.copy()
    try:
        result = call_atom(m, atom, call, state)
    finally:
        state.mode = before.mode
    return result if result and not any(type(a) in (Unknown, Obj) for a in result) else None
