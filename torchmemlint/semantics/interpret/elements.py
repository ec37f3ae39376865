"""Elements: of containers, of tensors, of unknown objects; what one iteration of a loop gets."""

from __future__ import annotations

from torchmemlint.lower import ir
from torchmemlint.semantics.interpret.operators import made_in_mode
from torchmemlint.semantics.interpret.unknown_parts import part_of, thing_element
from torchmemlint.semantics.state import (
    ANY_PART,
    CONTAINERS,
    EACH_PART,
    ELEMENTS,
    EMPTY,
    EXPRESSIONS,
    FREE_TENSOR,
    ITEMS,
    KEYS,
    LOGITS,
    PLAIN,
    UNKNOWN,
    UNSURE_KINDS,
    VIEW,
    Atom,
    Const,
    Ext,
    Kind,
    LastLogits,
    Machine,
    Obj,
    Plain,
    RecordFlag,
    Seen,
    State,
    Tensor,
    Tuple,
    Unknown,
    Value,
    evaluate,
    graphs_of,
    handles,
    is_text,
    join,
    join_all,
    only_const,
    shallow,
    sorted_atoms,
    unknown,
    with_flags,
)


@handles(EXPRESSIONS, ir.Subscript)
def evaluate_subscript(m: Machine, expr: ir.Subscript, state: State) -> Value:
    receiver = evaluate(m, expr.value, state)
    index = [evaluate(m, i, state) for i in expr.index]
    if is_text(index[0]):
        m.notice(graphs_of(receiver), Seen.KEYED)
    return join_all(element_of(m, atom, index, expr, state) for atom in sorted_atoms(receiver)) or UNKNOWN


def element_of(m: Machine, atom: Atom, index: list[Value], expr: ir.Subscript, state: State) -> Value:
    key = only_const(index[0]) if len(index) == 1 else None
    match atom:
        case Tuple():
            if key is not None and isinstance(key.value, int) and -len(atom.items) <= key.value < len(atom.items):
                return atom.items[key.value]
            return join_all(atom.items)
        case Obj():
            return element_of_object(m, atom, key, expr, state)
        case Tensor():
            return element_of_tensor(m, atom, key, index, expr, state)
        case Unknown():
            return unknown(atom.hints)
        case Const() | Plain():
            return PLAIN
        case _:
            return UNKNOWN


def element_of_object(m: Machine, atom: Obj, key: Const | None, expr: ir.Subscript, state: State) -> Value:
    info = m.heap[atom.oid]
    held = state.vars.get((atom.oid, f"[{key.value!r}]")) if key is not None else None
    if info.kind in CONTAINERS:
        if isinstance(expr.index[0], ir.Slice):
            return frozenset((atom,))
        if held is not None and info.kind is Kind.DICT:
            return held
        return join_all(m.contents(atom.oid, state)) or (thing_element(m, atom.oid, key) if info.external else UNKNOWN)
    if info.kind in (Kind.MODULE, Kind.SELF):
        return frozenset((Obj(part_of_module(m, atom.oid, Kind.THING)),))
    if info.kind is Kind.LOADER:
        return FREE_TENSOR
    return held if held is not None else thing_element(m, atom.oid, key)


def part_of_module(m: Machine, oid: int, kind: Kind) -> int:
    """An element of a container of modules, which is a module too."""
    info = m.heap[oid]
    inner = m.outside(kind, f"{info.name}[…]", None, key=(oid, ELEMENTS))
    m.holders.setdefault(inner, oid)
    if info.kind is Kind.MODULE and m.heap[inner].kind is Kind.THING:
        m.retype(inner, Kind.MODULE)
    if oid in m.bare:
        m.bare.add(inner)
    return inner


def element_of_tensor(
    m: Machine, atom: Tensor, key: Const | None, index: list[Value], expr: ir.Subscript, state: State
) -> Value:
    view = VIEW if atom.outputs and takes_small_part(expr.index, index) else 0
    label = f"[{key.value!r}]" if key is not None else EACH_PART if is_own_key(m, atom, index) else None
    part = part_of(m, atom, label, expr.node) if label is not None else frozenset((atom,))
    if len(expr.index) > 1:  # no tuple of outputs is indexed so, only a tensor
        part = made_in_mode(m, part, expr.node, state)
    if atom.flags & LOGITS:
        if is_last(expr.index, index):
            m.emit(LastLogits(m.site(expr.node)))
        else:
            m.record.flags.add(RecordFlag.LOGITS_USED)
        part = frozenset(a._replace(flags=a.flags & ~LOGITS) if type(a) is Tensor else a for a in part)
    return with_flags(part, view)


def is_own_key(m: Machine, atom: Tensor, index: list[Value]) -> bool:
    """Whether the index comes from a loop over the same object, which visits every part: ``for key in losses: losses[key]``."""
    graphs = m.record.graphs
    hung = {gid for a in index[0] if type(a) is Tensor for gid in a.graphs | a.hints} if len(index) == 1 else set()
    return any(graphs[gid].what.endswith(ANY_PART) and not graphs[gid].parents.isdisjoint(atom.graphs) for gid in hung)


def iterate(m: Machine, value: Value, node: int, state: State) -> Value:
    """What one iteration of a loop over the value gets."""
    return join_all(turn_of(m, atom, node, state) for atom in sorted_atoms(value)) or UNKNOWN


def turn_of(m: Machine, atom: Atom, node: int, state: State) -> Value:
    match atom:
        case Obj():
            return turn_of_object(m, atom, state)
        case Tuple():
            return join_all(atom.items)
        case Tensor():
            graphs = [m.record.graphs[g] for g in atom.graphs]
            apart = any(g.kind in UNSURE_KINDS and not g.what.endswith(EACH_PART) for g in graphs)
            return part_of(m, atom, ANY_PART, node) if apart else frozenset((atom,))
        case Unknown():
            return unknown(atom.hints)
        case Ext():
            return UNKNOWN
        case _:
            return PLAIN


def turn_of_object(m: Machine, atom: Obj, state: State) -> Value:
    info = m.heap[atom.oid]
    match info.kind:
        case Kind.DICT:
            return PLAIN
        case Kind.LIST | Kind.SET | Kind.GENERATOR:
            held = join_all(m.contents(atom.oid, state))
            return held or (thing_element(m, atom.oid, None) if info.external else EMPTY) or UNKNOWN
        case Kind.LOADER:
            return FREE_TENSOR
        case Kind.PARAMS:
            return frozenset((atom,))
        case Kind.MODULE:
            return frozenset((Obj(part_of_module(m, atom.oid, Kind.MODULE)),))
        case Kind.THING:
            return unknown(frozenset((m.thing_graph(atom.oid),)))
        case _:
            return UNKNOWN


def is_last(exprs: list[ir.Expr], values: list[Value]) -> bool:
    """Whether an indexing is ``[:, -1]``, perhaps with whole dimensions behind."""
    if len(exprs) < 2 or not all(type(e) is ir.Slice and not e.parts for i, e in enumerate(exprs) if i != 1):
        return False
    single = only_const(values[1])
    return single is not None and single.value == -1


def takes_small_part(exprs: list[ir.Expr], values: list[Value]) -> bool:
    """Whether this indexing gives a view of a small part: a whole dimension (the batch) kept, and one position picked in a later
    one (``hidden[:, 0]``). A tensor or list of indices copies; a slice may cover nearly everything; ``x[i]`` alone may be one
    of the pieces that are all kept."""
    picked = False
    for position, (expr, value) in enumerate(zip(exprs, values, strict=True)):
        if type(expr) is ir.Slice:
            if position == 0 and expr.parts:
                return False
            continue
        single = only_const(value)
        if single is not None and isinstance(single.value, int) and not isinstance(single.value, bool):
            picked = picked or position > 0
            continue
        if single is not None and single.value is None:
            continue
        if type(expr) is ir.Const and expr.value is ...:
            continue
        return False
    return picked


def forget(m: Machine, oid: int, state: State) -> None:
    """A container is created again: what the same site held before is gone."""
    state.vars.pop((oid, ITEMS), None)
    keys = state.vars.pop((oid, KEYS), None)
    if keys:
        for atom in keys:
            name = getattr(atom, "value", None)
            if isinstance(name, str):
                state.vars.pop((oid, name), None)
    state.vars[oid, ELEMENTS] = EMPTY


def put(m: Machine, oid: int, key: Value, value: Value, state: State) -> None:
    """Set ``container[key]``: a constant key is replaced, any other key is joined to what is held."""
    single = only_const(key)
    if single is not None and m.heap[oid].kind is Kind.DICT:
        name = f"[{single.value!r}]"
        state.vars[oid, name] = value
        note_key(oid, name, state)
    else:
        state.vars[oid, ELEMENTS] = join(state.vars.get((oid, ELEMENTS), EMPTY), value)


def adopt(m: Machine, oid: int, value: Value) -> None:
    """A container that is put into another one, to be filled there, lives as long as that does."""
    info = m.heap[oid]
    for atom in value:
        if type(atom) is not Obj:
            continue
        inner = m.heap[atom.oid]
        if inner.kind in CONTAINERS and not inner.external and len(inner.loops) >= len(info.loops):
            m.heap[atom.oid] = inner._replace(name=info.name, loops=info.loops, external=info.external)


def note_key(oid: int, name: str, state: State) -> None:
    """A container has a constant key now."""
    keys = state.vars.get((oid, KEYS), EMPTY)
    key = Const(name, "str")
    if key not in keys:
        state.meter.take(len(keys))
        state.vars[oid, KEYS] = keys | {key}


def copy_contents(source: int, target: int, state: State) -> None:
    state.meter.take(len(state.vars))
    for (owner, name), value in list(state.vars.items()):
        if owner == source and name.startswith("["):
            state.vars[target, name] = join(state.vars.get((target, name), EMPTY), value)
    keys = state.vars.get((source, KEYS))
    if keys:
        state.vars[target, KEYS] = state.vars.get((target, KEYS), EMPTY) | keys


def put_all(m: Machine, oid: int, atom: Atom, node: int, state: State) -> None:
    """Put into a dict what another mapping holds, or pairs give; what is not known to be either stands for all that it holds."""
    held = m.heap[atom.oid].kind if type(atom) is Obj else None
    if type(atom) is Obj and held is Kind.DICT:
        copy_contents(atom.oid, oid, state)
        return
    value: Value = frozenset((atom,))
    if held in (Kind.LIST, Kind.SET):
        pairs = iterate(m, value, node, state)
        value = join_all([one.items[1] if type(one) is Tuple and len(one.items) == 2 else frozenset((one,)) for one in pairs])
    put(m, oid, UNKNOWN, value, state)


def items_of(m: Machine, value: Value, state: State) -> tuple[Value, ...] | None:
    """The items of a tuple, or of a list that was written out and holds the same still; None where they are not known."""
    single = next(iter(value)) if len(value) == 1 else None
    if type(single) is Tuple:
        return single.items
    if type(single) is not Obj or state.vars.get((single.oid, KEYS)):
        return None
    listed = state.vars.get((single.oid, ITEMS), EMPTY)
    (items,) = listed if len(listed) == 1 else (None,)
    if type(items) is not Tuple or shallow(join_all(items.items)) != state.vars.get((single.oid, ELEMENTS)):
        return None
    return items.items
