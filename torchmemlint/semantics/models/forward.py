"""A module runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from torchmemlint.index.project import ClassRef
from torchmemlint.semantics.identity import condition_of, has_parameters
from torchmemlint.semantics.interpret import arithmetic, function_value, hold_loaded
from torchmemlint.semantics.mode import BACKWARD, back_propagates, decorated_mode, guards_what_it_runs
from torchmemlint.semantics.state import (
    BATCH,
    CERTAIN_KINDS,
    COMPUTED,
    CONTAINERS,
    EMPTY,
    FREE_TENSOR,
    FROZEN,
    HOST,
    INTEGER,
    MADE_KINDS,
    MARK_KINDS,
    NOTHING,
    PACKED,
    SCALAR,
    THAWED_IN_PART,
    UNKNOWN,
    Atom,
    Call,
    Const,
    Graph,
    GraphKind,
    Kind,
    Machine,
    Mode,
    Obj,
    Plain,
    RecordFlag,
    SinkKind,
    State,
    Tensor,
    Tuple,
    Unknown,
    Value,
    call_atom,
    is_single_number,
    only_indices,
    reshape,
    tensor,
)
from torchmemlint.torch_facts import TORCH

FORWARD = TORCH.names["forward"]
RETURNED = CONTAINERS | {Kind.DISTRIBUTION}
"""Objects in which a forward returns tensors."""
TO_INDICES = TORCH.words["gives-indices"]
"""Words of a forward that may give class ids: others are not run for it."""


def run_forward(m: Machine, oid: int, call: Call, state: State, text: str, by_method: bool = False) -> Value:
    """A module runs: with grad mode on its result is attached to a new graph. ``by_method``: by a method, or a part, that is not
    visible (``net.encode(x)``), of which the class's own forward says nothing."""
    info = m.heap[oid]
    cls = info.cls if isinstance(info.cls, ClassRef) and not by_method else None
    own_class = cls if info.kind is Kind.MODULE else None
    if own_class is not None:
        free = gives_no_graph(m, own_class)
        if free is not None:
            for value in call.all():
                graphs, hints, _, _ = m.deep(value, state)
                cut(m, graphs | hints, call)
            return free
    if oid in m.bare or (own_class is not None and not has_parameters(m.world, own_class)):
        # Its result depends on what it is given, unless it cuts that off itself.
        through = inside_forward(m, oid, call, state, as_function=True)
        return through if through is not None else arithmetic(m, call.all(), call.node, state)
    given = [m.deep(value, state) for value in call.all()]
    certain = NOTHING.union(*(graphs for graphs, _, _, _ in given)) if given else NOTHING
    graphs = certain.union(*(hints for _, hints, _, _ in given))
    training = m.training(oid, state)
    frozen = stays_free(m, oid, graphs, state)
    inner = None if by_method else inside_forward(m, oid, call, state)
    if inner is None and own_class is not None and guards_what_it_runs(m.world, own_class):
        return arithmetic(m, call.all(), call.node, state)
    m.record.flags.add(RecordFlag.FORWARD)
    hold_loaded(m, state)
    if training is None:
        training = m.world.training_of(m.ref, info.name)
    if state.mode is Mode.OFF:
        cut(m, graphs, call)
        return forward_without_grad(m, oid, cls, call, inner, state, text)
    if inner is not None and not has_graph(m, inner, state):
        return inner
    frozen = frozen or (inner is not None and is_given_data(m, graphs) and comes_of_frozen(m, inner, state))
    gid = m.graph(
        GraphKind.FORWARD,
        call.node,
        text,
        key=text,
        parents=graphs,
        mode=Mode.UNKNOWN if inner is not None and is_made_in_unknown_mode(m, inner, state) else state.mode,
        training=training,
        module=oid,
        frozen=frozen,
    )
    graph = m.record.graphs[gid]
    graph.cls = cls
    graph.given_on_host = is_given_on_host(call)
    graph.fixed = m.frozen(oid, state)
    graph.in_part = is_given_data(m, graphs) and state.vars.get((oid, FROZEN)) == THAWED_IN_PART
    graph.frozen_if = condition_of(m, oid, state) if not frozen and is_given_data(m, graphs) else None
    graph.training = training if graph.training == training else None
    return attached_output(m, gid, frozenset((gid, *through_module(m, certain))), call, inner, state)


def cut(m: Machine, graphs: frozenset[int], call: Call) -> None:
    """What a module is given is cut off there: its result has no graph."""
    m.sink(graphs, SinkKind.CUT, "no_grad", call.node)


def is_given_on_host(call: Call) -> bool:
    """Whether the first argument of a call is a tensor that was made on the host, and not moved. Others may stay there: the lengths of
    sequences, and numbers."""
    first = call.positional[0] if call.positional else EMPTY
    return len(first) == 1 and all(type(atom) is Tensor and atom.flags & HOST and not atom.flags & SCALAR for atom in first)


def gives_no_graph(m: Machine, cls: ClassRef) -> Value | None:
    """What a module's own forward gives where it guards itself, gives indices alone, or goes back through what it computed itself;
    None where it may give a graph that somebody else wants."""
    own = m.world.project.method(cls, FORWARD)
    if own is None:
        return None
    if decorated_mode(m, own) is Mode.OFF:
        return FREE_TENSOR
    if not BACKWARD.isdisjoint(m.world.facts(own).names) and back_propagates(m.world, own):
        return UNKNOWN
    if m.world.facts(own).names & TO_INDICES and only_indices(m.result_of(own, Mode.OFF)):
        return tensor(flags=INTEGER)
    return None


def keeps_packed(call: Call, inner: Value | None) -> int:
    """The flag of an output that is a ``PackedSequence``: a recurrent network that is given one returns one."""
    packed = inner is None and any(type(a) is Tensor and a.flags & PACKED for v in call.positional for a in v)
    return PACKED if packed else 0


def forward_without_grad(
    m: Machine, oid: int, cls: ClassRef | None, call: Call, inner: Value | None, state: State, text: str
) -> Value:
    """The output of a forward with grad mode off: its storage is on the device all the same."""
    gid = m.number("graph", "forward-off", m.frame, call.node, m.turn, text)
    if gid not in m.record.forwards:
        m.record.forwards[gid] = Graph(
            gid, GraphKind.FORWARD, m.site(call.node), text, mode=Mode.OFF, module=oid, module_loops=m.heap[oid].loops, cls=cls
        )
    # What is no bigger than a number stays so: layers want a dimension at least, so this one works element by element.
    if inner is None and is_single_number(call.positional):
        return tensor(flags=SCALAR | COMPUTED)
    packed = keeps_packed(call, inner)

    def free(t: Tensor) -> Tensor:
        return Tensor(NOTHING, NOTHING, output_of(t, gid), t.flags | BATCH | packed)

    return remade(m, inner, state, free)


def attached_output(m: Machine, gid: int, marks: frozenset[int], call: Call, inner: Value | None, state: State) -> Value:
    # Where some of its outputs are attached to a graph, the others are those that it detaches itself, and may be those that an unknown
    # function gave it.
    if inner is not None and gives_things_alone(m, inner):
        inner = as_parameters(m, inner)
    by_place = inner is not None and is_attached(m, inner, state)
    packed = keeps_packed(call, inner)

    def marked(t: Tensor) -> Tensor:
        mine = NOTHING if by_place and not is_attached(m, frozenset((t,)), state) else marks
        if t.flags & INTEGER:
            return Tensor(NOTHING, t.hints, output_of(t, gid), t.flags | BATCH | packed)
        if by_place and t.hints and not is_attached(m, frozenset((t._replace(hints=NOTHING),)), state):
            return Tensor(t.graphs, t.hints | mine, output_of(t, gid), t.flags | BATCH | packed)
        return Tensor(t.graphs | mine, t.hints, output_of(t, gid), t.flags | BATCH | packed)

    return remade(m, inner, state, marked)


def gives_things_alone(m: Machine, value: Value) -> bool:
    """Whether a result is nothing but objects of which nothing is known: the parameters themselves (``return self.users["all"]``)."""
    return bool(value) and all(
        gives_things_alone(m, EMPTY.union(*atom.items)) if type(atom) is Tuple else is_thing(m, atom) for atom in value
    )


def is_thing(m: Machine, atom: Atom) -> bool:
    return type(atom) is Obj and m.heap[atom.oid].kind in (Kind.THING, Kind.MODULE)  # or an element of a `ParameterDict`


def as_parameters(m: Machine, value: Value) -> Value:
    """What a forward gives of which nothing is known, as tensors."""
    out: list[Atom] = []
    for atom in value:
        if type(atom) is Tuple:
            out.append(Tuple(tuple(as_parameters(m, item) for item in atom.items)))
        elif type(atom) is Obj:
            out.append(Tensor(frozenset((m.thing_graph(atom.oid),))))
    return frozenset(out)


def remade(m: Machine, inner: Value | None, state: State, make: Callable[[Tensor], Tensor]) -> Value:
    """The result, and what the containers and distributions in it hold, with each tensor remade."""
    todo, seen = [inner or EMPTY], set[int]()
    while todo:
        for atom in todo.pop():
            if type(atom) is Tuple:
                todo += atom.items
            elif type(atom) is Obj and atom.oid not in seen and m.heap[atom.oid].kind in RETURNED:
                seen.add(atom.oid)
                for place in m.places(atom.oid, state):
                    todo.append(state.vars[place])
                    state.vars[place] = reshape(state.vars[place], make)
    return reshape(inner, make)


def output_of(t: Tensor, gid: int) -> frozenset[int]:
    return frozenset((gid,)) if not t.flags & (SCALAR | INTEGER) else NOTHING


WAYS = MARK_KINDS - {GraphKind.CARRIED, GraphKind.WANTED}
"""By what way a value came: it was returned, or stood in a list."""
SAYS_NO_GRAPH = WAYS | {GraphKind.WANTED, GraphKind.PARAM}
"""As ``WAYS``, or it is what the root was given, which may well be data."""


def is_attached(m: Machine, value: Value, state: State, depth: int = 3) -> bool:
    """Whether any tensor inside depends on more than the way by which it came."""
    for atom in value:
        if type(atom) is Tensor and any(m.record.graphs[gid].kind not in SAYS_NO_GRAPH for gid in atom.graphs | atom.hints):
            return True
        if depth and any(is_attached(m, item, state, depth - 1) for item in m.inside(atom, state)):
            return True
    return False


def stays_free(m: Machine, oid: int, graphs: Iterable[int], state: State) -> bool:
    """Whether a call of a module records nothing, though grad mode is on: it is frozen, and so is all that its input is
    attached to."""
    return m.frozen(oid, state) and is_given_data(m, graphs)


def comes_of_frozen(m: Machine, inner: Value, state: State) -> bool:
    """Whether all that a forward returns comes of its frozen parts, with the arguments of this call (``net(x)`` with the default
    ``target=True``)."""
    graphs, hints, _, _ = m.deep(inner, state)
    made = [m.record.graphs[gid] for gid in m.record.ancestors(graphs | hints) if m.record.graphs[gid].kind in MADE_KINDS]
    return bool(made) and all(graph.frozen for graph in made)


def is_made_in_unknown_mode(m: Machine, inner: Value, state: State) -> bool:
    """Whether a forward makes all graphs of its result under a switch that the analysis cannot tell
    (``with torch.set_grad_enabled(self.as_loss)``)."""
    graphs, hints, _, _ = m.deep(inner, state)
    made = [m.record.graphs[gid] for gid in graphs | hints if m.record.graphs[gid].kind in MADE_KINDS]
    return bool(made) and all(graph.mode is Mode.UNKNOWN for graph in made)


def is_given_data(m: Machine, graphs: Iterable[int]) -> bool:
    """Whether none of these graphs has saved anything that wants a gradient."""
    return not any(m.record.graphs[g].kind in CERTAIN_KINDS and not m.record.graphs[g].frozen for g in graphs)


def through_module(m: Machine, graphs: Collection[int]) -> set[int]:
    """Marks of loop-carried places, renamed to say that they went through a module: a recurrent state. What it gives is spent
    where that is."""
    out = {gid for gid in graphs if m.record.graphs[gid].kind is GraphKind.SPENT}
    spent = bool(out)
    for gid in graphs:
        graph = m.record.graphs[gid]
        if graph.kind is GraphKind.CARRIED and graph.place != (-1, ""):
            key = m.number("mark", "through", gid)
            if key not in m.record.graphs:
                m.record.graphs[key] = Graph(
                    key, GraphKind.CARRIED, graph.site, graph.what, mode=Mode.MODULE, place=graph.place
                )
            out.add(key)
            if spent:
                m.record.reused.add(graph.place)
    return out


def has_graph(m: Machine, value: Value, state: State, depth: int = 3) -> bool:
    """Whether any tensor inside may be attached to a graph (unknown parts may)."""
    for atom in value:
        if type(atom) is Tensor:
            if any(m.record.graphs[gid].kind not in WAYS for gid in atom.graphs | atom.hints):
                return True
        elif type(atom) is Tuple or (type(atom) is Obj and is_known_output(m, atom)):
            held = m.inside(atom, state)
            if not depth or not held or any(has_graph(m, item, state, depth - 1) for item in held):
                return True
        elif type(atom) not in (Plain, Const):
            return True
    return not value


def inside_forward(m: Machine, oid: int, call: Call, state: State, *, as_function: bool = False) -> Value | None:
    """What a module's own ``forward`` returns, when the project shows it; None when it is not visible. Inside functions that the root
    calls, only a module without parameters is followed, which is no more than a function (``as_function``)."""
    info = m.heap[oid]
    if not isinstance(info.cls, ClassRef) or (m.record.frames[m.frame].depth > 0 and not as_function):
        return None
    method = m.world.project.method(info.cls, FORWARD)
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
    return result if result and all(is_known_output(m, atom) for atom in result) else None


def is_known_output(m: Machine, atom: Atom) -> bool:
    """Whether a forward that returns this has shown all that it returns."""
    if type(atom) is Obj:
        info = m.heap[atom.oid]
        return info.kind in RETURNED and not info.external
    return type(atom) is not Unknown
