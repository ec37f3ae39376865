"""A value is put into a holder that may outlive a loop, or the calls of the root function."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import INSIDE, half_fix
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.state import (
    CONTAINERS,
    ELEMENTS,
    EMPTY,
    GUESSED,
    LOGITS,
    NOTHING,
    SCALAR,
    UNKNOWN,
    WEIGHTS,
    Atom,
    Call,
    ContextStore,
    GraphKind,
    HookStore,
    Kind,
    Machine,
    Obj,
    RecordFlag,
    SinkKind,
    State,
    Store,
    StoreKind,
    Tensor,
    Tuple,
    Value,
    World,
    add_marks,
    join,
    memoized,
    place_of,
    shallow,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

RECORDED = StoreKind.RECORDED
FILLS_LISTS = {
    "append": StoreKind.APPEND,
    "extend": StoreKind.EXTEND,
    "insert": StoreKind.INSERT,
    "appendleft": StoreKind.APPEND,
    "extendleft": StoreKind.EXTEND,
}
"""Methods of lists and deques that keep their last argument, or its elements."""
STORING = {**FILLS_LISTS, "add": StoreKind.ADD, "put": StoreKind.APPEND}
"""The same of every container."""


def note_kept(m: Machine, flags: int) -> None:
    """Attention's weights are kept or given away; the logits of all positions are used."""
    if flags & WEIGHTS:
        m.record.flags.add(RecordFlag.WEIGHTS_KEPT)
    if flags & LOGITS:
        m.record.flags.add(RecordFlag.LOGITS_USED)


def store_in(
    m: Machine,
    oid: int,
    place: str,
    how: StoreKind,
    value: Value,
    node: int,
    stored: ir.Expr,
    state: State,
    keyed: bool = False,
    constant_key: bool = False,
    replaced: frozenset[tuple[int, int]] = frozenset(),
) -> Value:
    """A value is put into a holder; emitted when the holder outlives a loop or the calls of the root function. Returns the value
    as it lies in the holder, marked. In the loops in which it is ``replaced``, an iteration keeps nothing of the one before."""
    graphs, hints, outputs, flags = m.deep(value, state)
    note_kept(m, flags)
    things = frozenset(m.thing_graph(a.oid) for a in value if type(a) is Obj and m.heap[a.oid].kind is Kind.THING)
    graphs |= things
    if m.hook_arguments & (graphs | hints) and not keyed and m.heap[oid].frame != m.frame:
        single = len(value) == 1 and bool(things)
        m.emit(HookStore(m.site(node), place, stored.node, single and how is StoreKind.APPEND), tag=place)
    mark = m.graph(GraphKind.STORED, node, place, key=(oid, how))
    value = add_marks(value, frozenset((mark,)))
    mark_elements(m, value, mark, state)
    info = m.heap[oid]
    if (not keyed and info.kind in CONTAINERS) or (info.kind is Kind.THING and not keyed):
        state.vars[oid, ELEMENTS] = join(state.vars.get((oid, ELEMENTS), EMPTY), shallow(value))
    outlived = tuple(loop for loop in m.outlived_loops(oid) if loop not in replaced)
    loop = outlived[-1] if outlived else None
    if loop is None and not info.external:
        return value
    if (not graphs and not hints and not outputs) or is_number_either_way(stored):
        return value
    if graphs | hints:
        m.sink(graphs | hints, SinkKind.STORED, place, node)
    m.emit(
        Store(
            m.site(node), place, oid, how, mark, graphs, hints, outputs, flags, loop, stored.node, info.external,
            *half_fix(stored), constant_key, info.frame,
            all(type(a) is Tensor for a in value), outlived, bool(outputs) and is_of_tensors(m, value, state),
        ),
        tag=f"{oid}",
    )  # fmt: skip
    return value


def is_number_either_way(stored: ir.Expr) -> bool:
    """``kept.append(gamma.item() if learned else gamma)``: who takes the number out in one case has a number in the other."""
    if not isinstance(stored, ir.IfExp):
        return False
    return any(
        isinstance(taken, ir.Call)
        and isinstance(taken.func, ir.Attr)
        and TORCH.methods.get(taken.func.name) is Effect.ITEM
        and text_of(taken.func.value) == text_of(other)
        for taken, other in ((stored.then, stored.orelse), (stored.orelse, stored.then))
    )


def mark_elements(m: Machine, value: Value, mark: int, state: State) -> None:
    """What lies in a list that is put into a holder goes the same way."""
    for atom in value:
        if type(atom) is Obj and m.heap[atom.oid].kind in CONTAINERS and not m.heap[atom.oid].external:
            m.held_whole.setdefault(atom.oid, set()).add(mark)
            for place in m.places(atom.oid, state):
                state.vars[place] = add_marks(state.vars[place], frozenset((mark,)))


def is_of_tensors(m: Machine, value: Value, state: State) -> bool:
    """Whether a value is a container of nothing but tensors that are known to be some."""
    inside = [inner for atom in value if type(atom) in (Tuple, Obj) for inner in flattened(atom, m, state)]
    return (
        bool(inside)
        and not any(type(atom) is Tensor for atom in value)
        and all(type(atom) is Tensor and not atom.flags & GUESSED for atom in inside)
    )


def keep_attribute(
    m: Machine, oid: int, name: str, text: str, value: Value, node: int, source: ir.Expr | None, state: State
) -> None:
    """``self.last = out``: the attribute holds one value at a time; emitted as a store with a constant key."""
    graphs, hints, outputs, flags = m.deep(value, state)
    if not graphs and not hints and not outputs:
        return
    mark = m.graph(GraphKind.STORED, node, text, key=(oid, name))
    m.sink(graphs | hints, SinkKind.STORED, text, node)
    info = m.heap[oid]
    m.emit(
        Store(
            m.site(node), text, oid, StoreKind.ATTR, mark, graphs, hints, outputs, flags, m.outlived_loop(oid),
            source.node if source is not None else node, info.external, *half_fix(source), True, info.frame,
        ),
        tag=f"{oid}",
    )  # fmt: skip


def makes_recorder(name: str, m: Machine) -> bool:
    """Whether a class that is not visible has a method that keeps what it is given, by the setting ``recorders``."""
    return any(recorder.rpartition(".")[0] == name for recorder in m.world.settings.recorders)


def record(m: Machine, name: str, call: Call, state: State) -> Value:
    """A call of a function or method that is not visible that keeps what it is given (the setting ``recorders``)."""
    oid = m.outside(Kind.THING, name, name, key=("recorder", name))
    for position, value in enumerate(call.positional):
        store_in(
            m,
            oid,
            name,
            StoreKind.RECORDED,
            value,
            call.node,
            call.exprs[position] if position < len(call.exprs) else INSIDE,
            state,
            keyed=True,
        )
    for word, value in call.keywords.items():
        store_in(m, oid, name, StoreKind.RECORDED, value, call.node, call.keyword_exprs.get(word, INSIDE), state, keyed=True)
    for value in call.more:
        store_in(m, oid, name, StoreKind.RECORDED, value, call.node, INSIDE, state, keyed=True)
    return UNKNOWN


def keep_on_context(m: Machine, text: str, value: Value, state: State, node: int, source: ir.Expr | None) -> Value:
    """``ctx.x = x`` in an ``autograd.Function``. Grad mode is off there, so that a mark on the value stays with this very
    tensor: where it is returned, it is an output."""
    atoms = [inner for atom in value for inner in flattened(atom, m, state)]
    graphs = NOTHING
    for atom in atoms:
        if type(atom) is Obj and m.heap[atom.oid].kind is Kind.THING:
            graphs |= {m.thing_graph(atom.oid)}
    tensors = [a for a in atoms if type(a) is Tensor and not a.flags & (SCALAR | GUESSED)]
    if not tensors and not graphs:
        return value
    mark = m.graph(GraphKind.STORED, node, text, key=("context", text))
    m.emit(ContextStore(m.site(node), text, mark, bool(tensors), graphs), tag=text)
    marked = add_marks(value, frozenset((mark,)))
    if isinstance(source, ir.Name):
        state.vars[place_of(m, source.id)] = marked
    return marked


def flattened(atom: Atom, m: Machine, state: State, depth: int = 2) -> list[Atom]:
    """The atom, or what a tuple or a known container of that name holds."""
    inner: list[Value] = []
    if depth and type(atom) is Tuple:
        inner = list(atom.items)
    elif depth and type(atom) is Obj and m.heap[atom.oid].kind in CONTAINERS:
        inner = m.contents(atom.oid, state)
    else:
        return [atom]
    return [one for value in inner for part in value for one in flattened(part, m, state, depth - 1)]


PUTS_ONE = frozenset(name for name, how in STORING.items() if how is not StoreKind.EXTEND) | {"setdefault"}
"""Methods of containers that keep their last argument."""


@memoized
def filled_with(world: World, cls: ClassRef, name: str) -> ClassRef | None:
    """The class of all that the methods of a class put there one by one (``self.meters[name] = Meter()``); None where it is not known of
    any of it."""
    found: set[ClassRef | str | None] = set()
    for facts in world.project.within(cls.path, cls.qualname):
        ref = FunctionRef(cls.path, facts.qualname)
        for value in put_into(world.body(ref), f"self.{name}") if name in facts.names and not facts.parent else ():
            if isinstance(value, ir.Const) and value.value is None:
                continue
            text = f"{dotted(value.func)}()" if isinstance(value, ir.Call) else dotted(value)
            found.add(world.project.class_of(ref.path, ref.qualname, text) if text.strip("()") else None)
    only = found.pop() if len(found) == 1 else None
    return only if isinstance(only, ClassRef) else None


def put_into(body: list[ir.Stmt], holder: str) -> Iterator[ir.Expr]:
    """What the statements of a block put into the container of that text."""
    for each in nodes_of(body):
        if isinstance(each, ir.Assign):
            if any(isinstance(target, ir.Subscript) and text_of(target.value) == holder for target in each.targets):
                yield each.value
        elif isinstance(each, ir.Call) and isinstance(each.func, ir.Attr) and text_of(each.func.value) == holder:
            if each.func.name in PUTS_ONE and each.args:
                yield each.args[-1].value
