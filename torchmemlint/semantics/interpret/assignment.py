"""Assignment: to names, attributes, elements, several targets at once."""

from __future__ import annotations

from itertools import product

from torchmemlint.index.queries.contents import BACKWARD_ALONE
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import reads_item
from torchmemlint.lower.written import text_of
from torchmemlint.semantics.identity import FLAG, METHOD, assign_requires_grad, looks_like_module, overwrite_method
from torchmemlint.semantics.interpret.accumulation import (
    fresh_graphs,
    is_scaled,
    made_longer,
    note_regrowth,
    outside_total,
    record_accumulation,
    term_of,
)
from torchmemlint.semantics.interpret.call_effects import gradients_freed, record_environment
from torchmemlint.semantics.interpret.elements import adopt, iterate, put
from torchmemlint.semantics.interpret.iterations import same_in
from torchmemlint.semantics.interpret.stores import keep_attribute, keep_on_context, note_kept, store_in
from torchmemlint.semantics.interpret.unknown_parts import part_of, thing_element
from torchmemlint.semantics.state import (
    CERTAIN_KINDS,
    CONTAINERS,
    ELEMENTS,
    EMPTY,
    FREE_TENSOR,
    FROZEN,
    GUESSED,
    NOTHING,
    PLAIN,
    SCALAR,
    STATEMENTS,
    TARGETS,
    UNKNOWN,
    Const,
    Ext,
    GraphKind,
    Kind,
    Machine,
    Mode,
    Obj,
    Plain,
    Seen,
    State,
    Store,
    StoreKind,
    Tensor,
    Tuple,
    Value,
    add_marks,
    assign,
    const,
    evaluate,
    graphs_of,
    handles,
    is_none,
    join,
    only_const,
    place_of,
    shallow,
    sorted_atoms,
    truth,
    with_flags_set,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

DATA = TORCH.names["data"]
GRADIENT = TORCH.names["gradient"]
WEIGHT_ALONE = TORCH.words["weight-alone"]
"""Modules with no parameter but their ``weight``."""


@handles(STATEMENTS, ir.Assign)
def run_assignment(m: Machine, statement: ir.Assign, state: State) -> State | None:
    if made_longer(m, statement, state):
        return state
    value = evaluate(m, statement.value, state)
    for target in statement.targets:
        if m.loops and isinstance(statement.value, (ir.Call, ir.IfExp)):
            note_regrowth(m, target, statement.value, state)
        assign(m, target, value, state, statement.node, statement.value)
        if m.record.frames[m.frame].depth == 0 and is_none(value):
            m.deleted.append((text_of(target), tuple(m.loops)))
    return state


@handles(TARGETS, ir.Name)
def assign_name(m: Machine, target: ir.Name, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
    value = by_evidence(m, target.id, value, node)
    place = place_of(m, target.id)
    value = record_accumulation(m, place, target.id, value, state, node, source)
    note_reset(m, place, value, state, node)
    state.vars[place] = shallow(value)
    if place[0] == -2:
        keep_global(m, target.id, value, state, node, source)


def note_reset(m: Machine, place: tuple[int, str], value: Value, state: State, node: int) -> None:
    """Record that an iteration of the loops around gives a place that was added to what has no graph (``total = 0``,
    ``total = torch.zeros(())``, ``total = total.item()``), or the name of a container another one (``losses = []``)."""
    before = state.vars.get(place, EMPTY) if m.loops else EMPTY
    held = {atom.oid for atom in before if type(atom) is Obj and m.heap[atom.oid].kind in CONTAINERS}
    if held and all(type(atom) is Obj and atom.oid not in held for atom in value):
        inside = (each for oid in held for part in m.contents(oid, state) for each in part if type(each) is Obj)
        held |= {each.oid for each in inside if m.heap[each.oid].kind in CONTAINERS}
        for oid, loop in product(held, m.loops):
            m.record.resets.setdefault(((oid, ""), loop), set()).add(m.site(node).guards)
    if not all(type(atom) in (Const, Plain) or (type(atom) is Tensor and not atom.graphs | atom.hints) for atom in value):
        return
    graphs = (m.record.graphs[g] for atom in before if type(atom) is Tensor for g in atom.graphs | atom.hints)
    if any(graph.kind is GraphKind.ADDED and graph.what.rpartition(".")[2] == place[1] for graph in graphs):
        for loop in m.loops:
            m.record.resets.setdefault((place, loop), set()).add(m.site(node).guards)


@handles(TARGETS, ir.Star)
def assign_star(m: Machine, target: ir.Star, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
    assign(m, target.value, value, state, node, source)


def keep_global(m: Machine, name: str, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
    oid = m.outside(Kind.THING, name, None, key=("global", m.path))
    keep_attribute(m, oid, name, name, value, node, source, state)


def by_evidence(m: Machine, text: str, value: Value, node: int) -> Value:
    """An opaque result on which the code calls ``eval()`` or ``parameters()`` is a module (what it was made by, annotated as a
    module, is the module's class); a tensor that is back-propagated as it is, in whatever phase, has one element."""
    for atom in value:
        if type(atom) is Tensor:
            break
    else:
        return value
    words = m.evidence.get(text)
    if not words:
        return value
    if BACKWARD_ALONE in words and all(type(a) in (Tensor, Const) for a in value):
        return with_flags_set(value, SCALAR)  # a backward that is given no gradient starts at a single number
    if not looks_like_module(words):
        return value
    made = [m.record.graphs[g] for atom in value if type(atom) is Tensor for g in atom.graphs]
    if any(graph.kind in CERTAIN_KINDS and not (graph.kind is GraphKind.FORWARD and graph.cls is None) for graph in made):
        return value
    return frozenset((Obj(m.allocate(Kind.MODULE, node, text, None, tag=text)),))


@handles(TARGETS, ir.Attr)
def assign_attribute(m: Machine, target: ir.Attr, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
    owners = evaluate(m, target.value, state)
    if target.name == FLAG:
        assign_requires_grad(m, target, owners, truth(value), state, node)
        return
    if target.name == METHOD:
        overwrite_method(m, target, owners, value, state, node)
    if target.name in (DATA, GRADIENT):
        if target.name == GRADIENT and is_none(value):
            gradients_freed(m, node, owners)
        return
    text = text_of(target)
    value = by_evidence(m, text, value, node)
    note_kept(m, m.deep(value, state)[3])
    for atom in owners:
        if type(atom) is not Obj:
            m.notice(graphs_of(frozenset((atom,))), Seen.FIELDS)
            continue
        info = m.heap[atom.oid]
        place = (atom.oid, target.name)
        if target.name == TORCH.names["weight"] and info.cls in WEIGHT_ALONE and value == FREE_TENSOR:
            state.vars[atom.oid, FROZEN] = const(True)  # a module takes a parameter alone: one that requires no grad
        if info.kind is Kind.MODULE:
            take_parts(m, atom.oid, value, state)
        if atom.oid in m.contexts:
            value = keep_on_context(m, text, value, state, node, source)
        marked = record_accumulation(m, place, text, value, state, node, source)
        note_reset(m, place, marked, state, node)
        if marked == value and (info.external or m.outlived_loop(atom.oid) is not None):
            keep_attribute(m, atom.oid, target.name, text, value, node, source, state)
        m.set_attribute(*place, shallow(marked), state)


def take_parts(m: Machine, oid: int, value: Value, state: State) -> None:
    """A module that is given another one as a part wants gradients where the part does, though it was frozen before."""
    for atom in value:
        if type(atom) is Obj and atom.oid != oid and m.heap[atom.oid].kind is Kind.MODULE:
            m.holders.setdefault(atom.oid, oid)
            if state.vars.get((oid, FROZEN)) == const(True) and state.vars.get((atom.oid, FROZEN)) != const(True):
                m.set_frozen(atom.oid, False, state)


@handles(TARGETS, ir.Subscript)
def assign_item(m: Machine, target: ir.Subscript, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
    owners = evaluate(m, target.value, state)
    index = [evaluate(m, i, state) for i in target.index]
    for atom in sorted_atoms(owners):
        if type(atom) is Ext and atom.name == "os.environ" and len(index) == 1:
            record_environment(m, index[0], value, node)
        elif (
            type(atom) is Obj and m.heap[atom.oid].kind is Kind.THING and state.mode is Mode.OFF and is_of_array(target, index)
        ):
            continue  # what is written into a tensor with grad mode off is copied without its graph
        elif type(atom) is Obj and (m.heap[atom.oid].kind in CONTAINERS or m.heap[atom.oid].kind is Kind.THING):
            put_item(m, atom.oid, target, index, value, state, node, source)
        elif type(atom) is Tensor:
            write_into(m, atom, target, value, state, node, source)


def is_of_array(target: ir.Subscript, index: list[Value]) -> bool:
    """Whether an index can be one of an array alone: several, of which one is a slice, or a tensor."""
    (only,) = index if len(index) == 1 else (EMPTY,)
    by_tensor = bool(only) and all(type(atom) is Tensor and not atom.flags & (SCALAR | GUESSED) for atom in only)
    return by_tensor or (len(target.index) > 1 and any(isinstance(each, ir.Slice) for each in target.index))


def put_item(
    m: Machine,
    oid: int,
    target: ir.Subscript,
    index: list[Value],
    value: Value,
    state: State,
    node: int,
    source: ir.Expr | None,
) -> None:
    """``container[index] = value``."""
    key = only_const(index[0]) if len(index) == 1 else None
    text = text_of(target)
    slots = len(target.index) == 1 and isinstance(target.index[0], ir.Binary) and target.index[0].op == "%"
    carried = isinstance(source, ir.Binary) and (reads_item(source.left, target) or reads_item(source.right, target))
    if is_scaled(m, text, source, state):
        marked = value
    elif carried and (m.heap[oid].external or m.outlived_loop(oid) is not None):
        graphs, hints, _, _ = m.deep(value, state)
        place = f"[{key.value!r}]" if key is not None else ELEMENTS
        marked = outside_total(m, oid, place, text, "+", value, fresh_graphs(m, graphs), hints, node, term_of(source, text))
    else:
        stored = source if source is not None else target
        replaced = same_in(m, target.index) if key is None else frozenset()
        marked = store_in(
            m, oid, text, StoreKind.ITEM, value, node, stored, state, keyed=True, constant_key=key is not None or slots,
            replaced=replaced,
        )  # fmt: skip
    put(m, oid, index[0] if len(index) == 1 else PLAIN, shallow(marked), state)
    if not slots and is_missing(target, key, m.site(node).guards):
        adopt(m, oid, value)
    site = (m.frame, m.turn, target.node)
    m.stored_items[site] = join(m.stored_items.get(site, EMPTY), marked)


def is_missing(target: ir.Subscript, key: Const | None, guards: tuple[str, ...]) -> bool:
    """Whether a key was not there before: it changes, or a test says so (``if name not in log: log[name] = []``)."""
    return key is None or any(f" not in {text_of(target.value)}" in guard for guard in guards)


def write_into(
    m: Machine, atom: Tensor, target: ir.Subscript, value: Value, state: State, node: int, source: ir.Expr | None
) -> None:
    """``tensor[index] = value``: it depends on what is written from here on."""
    site = (m.frame, m.turn, target.node)
    m.stored_items[site] = join(m.stored_items.get(site, EMPTY), value)
    graphs, hints, _, _ = m.deep(value, state)
    if not (graphs or hints) or state.mode is Mode.OFF:
        return
    match target.value:
        case ir.Attr() as held:
            write_into_attribute(m, held, value, state, node, source)
            return
        case ir.Subscript() as held:
            write_into_item(m, held, value, state, node, source)
            return
        case ir.Name(id=name):
            place = place_of(m, name)
        case _:
            return
    old = state.vars.get(place)
    if old is None:
        return
    carried = {
        graph.site.loops[-1]
        for graph in (m.record.graphs[gid] for gid in atom.graphs)
        if graph.kind is GraphKind.CARRIED and graph.place == place and graph.site.loops
    }
    outlived = tuple(loop for loop in m.loops if loop in carried and loop not in m.once)
    mark = m.graph(GraphKind.STORED, node, text_of(target), key=place)
    m.stored_items[site] = add_marks(m.stored_items[site], frozenset((mark,)))
    if outlived:
        m.emit(
            Store(
                m.site(node), text_of(target.value), -1, StoreKind.ITEM, mark, fresh_graphs(m, graphs), hints, NOTHING, 0, outlived[-1],
                source.node if source is not None else node, False, outlived=outlived,
            )
        )  # fmt: skip
    state.vars[place] = with_graphs(old, graphs | {mark}, hints)


def write_into_attribute(m: Machine, target: ir.Attr, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
    """``self.chart[:, k] = scores``: the tensor that the attribute holds depends on what is written, and so does who reads it."""
    for owner in evaluate(m, target.value, state):
        held = state.vars.get((owner.oid, target.name)) if type(owner) is Obj else None
        if type(owner) is not Obj or held is None:
            continue
        if m.heap[owner.oid].external or m.outlived_loop(owner.oid) is not None:
            keep_attribute(m, owner.oid, target.name, text_of(target), value, node, source, state)
        graphs, hints, _, _ = m.deep(value, state)
        m.set_attribute(owner.oid, target.name, with_graphs(held, graphs, hints), state)


def write_into_item(m: Machine, target: ir.Subscript, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
    """``charts["left"][:, k] = scores``, and ``chart[1:][:, k] = scores``, which writes into what the view is one of."""
    index = [evaluate(m, i, state) for i in target.index]
    for owner in sorted_atoms(evaluate(m, target.value, state)):
        if type(owner) is Tensor:
            write_into(m, owner, target, value, state, node, source)
        elif type(owner) is Obj and m.heap[owner.oid].kind in CONTAINERS:
            graphs, hints, _, _ = m.deep(value, state)
            held = evaluate(m, target, state)
            put_item(m, owner.oid, target, index, with_graphs(held, graphs, hints), state, node, source)


def with_graphs(held: Value, graphs: frozenset[int], hints: frozenset[int]) -> Value:
    """Tensors that what is attached to these graphs was written into."""
    return frozenset(Tensor(a.graphs | graphs, a.hints | hints, a.outputs, a.flags) if type(a) is Tensor else a for a in held)


def comes_with_others(m: Machine, atom: Obj) -> bool:
    """Whether a function of a library gave a module, or a tuple that starts with one (``net, preprocess = clip.load(name)``)."""
    info = m.heap[atom.oid]
    return info.kind is Kind.MODULE and isinstance(info.cls, str) and TORCH.function_effect(info.cls) is Effect.MODULE


@handles(TARGETS, ir.Sequence)
def unpack(m: Machine, target: ir.Sequence, value: Value, state: State, node: int, source: ir.Expr | None) -> None:
    count = len(target.items)
    starred = any(type(t) is ir.Star for t in target.items)
    parts: list[Value] = [EMPTY] * count
    for atom in sorted_atoms(value):
        if type(atom) is Tuple and len(atom.items) == count and not starred:
            for i in range(count):
                parts[i] = join(parts[i], atom.items[i])
            continue
        single = frozenset((atom,))
        for i in range(count):
            if type(atom) is Tensor:
                piece = part_of(m, atom, f"[{i}]", node, unpacked=True)
            elif type(atom) is Obj and m.heap[atom.oid].kind is Kind.THING:
                piece = thing_element(m, atom.oid, Const(i, "int"))
            elif type(atom) is Obj and comes_with_others(m, atom):
                piece = single if i == 0 else UNKNOWN
            else:
                piece = iterate(m, single, node, state)
            parts[i] = join(parts[i], piece)
    sources: list[ir.Expr | None] = [None] * count
    if isinstance(source, ir.Sequence) and len(source.items) == count:
        sources = list(source.items)
    for item, part, origin in zip(target.items, parts, sources, strict=True):
        assign(
            m,
            item.value if type(item) is ir.Star else item,
            part or UNKNOWN,
            state,
            node,
            origin if origin is not None else source,
        )
