"""Accumulations: the value assigned to a place holds what the place held when the loop's pass began."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence

from torchmemlint.index.project import ClassRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import takes_part
from torchmemlint.lower.walk import everything, names_inside
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.interpret.elements import iterate, note_key
from torchmemlint.semantics.interpret.names import function_value
from torchmemlint.semantics.interpret.operators import operate
from torchmemlint.semantics.interpret.stores import store_in
from torchmemlint.semantics.state import (
    ELEMENTS,
    EMPTY,
    INTEGER,
    NOTHING,
    SCALAR,
    STATEMENTS,
    Accumulate,
    Ext,
    GraphKind,
    Kind,
    Machine,
    Mode,
    Obj,
    Regrowth,
    SinkKind,
    State,
    Store,
    StoreKind,
    Tensor,
    Unknown,
    Value,
    add_marks,
    assign,
    call_at,
    call_atom,
    evaluate,
    graphs_of,
    handles,
    join,
    only_const,
    place_of,
    shallow,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

SIZES = TORCH.words["sizes"]
_LEAVES = frozenset({str, int, bool, float, bytes, type(None)})
"""Types of fields that have no parts."""
Branch = tuple[int, bool]
"""An ``if`` by its node, and which of its blocks."""


def grown_in(source: ir.Expr | None, text: str) -> ir.Call | None:
    """The call in ``text = source`` whose first argument is a display with ``text`` itself in it; also in one branch of a
    conditional expression.

    A value that is only added to could be collected in a list. One that the loop reads as well, beyond its size, or resets,
    could not; that is a question about all statements of the loop at once, so ``only_grows`` answers it by a walk over its IR.
    """
    match source:
        case ir.IfExp():
            return grown_in(source.then, text) or grown_in(source.orelse, text)
        case ir.Call(func=ir.Name() | ir.Attr()):
            first = next((a.value for a in source.args if a.keyword in (None, "tensors") and not a.star), None)
            if isinstance(first, ir.Sequence) and any(text_of(item) == text for item in first.items):
                return source
    return None


def bound_in(loop: ir.For | ir.While) -> tuple[frozenset[str], int]:
    """The texts of what an iteration of the loop binds, and how many parts its IR has."""
    names: set[str] = set()
    count = 0
    todo: list[object] = [loop]
    while todo:
        node = todo.pop()
        count += 1
        if isinstance(node, ir.For):
            names.update(map(text_of, _walk_target(node.target)))
        elif isinstance(node, ir.Assign):
            for target in node.targets:
                names.update(map(text_of, _walk_target(target)))
        todo.extend(_children(node))
    return frozenset(names), count


def only_grows(loop: ir.For | ir.While, target: ir.Expr, call: ir.Call, changing: frozenset[str]) -> bool:
    """Whether nothing in the loop reads the value but the call that makes it longer (and what asks for its size), nothing
    binds it again, unless on the other branch (the first iteration), and each iteration adds to the same place. ``changing``
    are the texts of what the loop binds."""
    text = text_of(target)
    if {text_of(name) for name in _walk(target)} & changing - {text} or (
        isinstance(loop, ir.For) and _binds(loop.target, text)
    ):
        return False
    base = text_of(target.value) if isinstance(target, ir.Subscript) else ""
    if _reads(loop, text, call) or (base and _reads_whole(loop, base, text)):
        return False
    if any(_is_let_go(loop, part) for part in added_to(call, text)):
        return False
    bindings = list(_bindings(loop.body, text, ()))
    own = [path for value, path in bindings if grown_in(value, text) is call]
    others = [path for value, path in bindings if grown_in(value, text) is not call]
    return bool(own) and all(_apart(path, own[0]) for path in others)


def added_to(call: ir.Call, text: str) -> list[ir.Expr]:
    """What the call puts beside the value."""
    return [item for item in _display(call).items if text_of(item) != text]


def _display(call: ir.Call) -> ir.Sequence:
    first = next(a.value for a in call.args if a.keyword in (None, "tensors") and not a.star)
    assert isinstance(first, ir.Sequence)
    return first


def _is_let_go(loop: ir.For | ir.While, part: ir.Expr) -> bool:
    """Whether the loop lets each part go as it takes it (``parts[k] = 0``): it is written to save memory."""
    while isinstance(part, ir.Call) and isinstance(part.func, ir.Attr):
        part = part.func.value
    return isinstance(part, ir.Subscript) and bool(list(_bindings(loop.body, text_of(part), ())))


def _binds(target: ir.Expr, text: str) -> bool:
    return any(text_of(inner) == text for inner in _walk_target(target))


def _reads_whole(node: object, base: str, text: str) -> bool:
    """Whether a container is read otherwise than for its element ``text`` (or for ``key in container``)."""
    match node:
        case ir.Subscript() if text_of(node) == text:
            return False
        case ir.Compare(ops=["in" | "not in"], comparators=[other]) if text_of(other) == base:
            return False
        case ir.Name() | ir.Attr() if text_of(node) == base:
            return True
    return any(_reads_whole(child, base, text) for child in _children(node))


def _apart(left: tuple[Branch, ...], right: tuple[Branch, ...]) -> bool:
    return any((node, not side) in right for node, side in left)


def _bindings(body: list[ir.Stmt], text: str, path: tuple[Branch, ...]) -> Iterator[tuple[ir.Expr | None, tuple[Branch, ...]]]:
    """The values that statements of a block bind to the text, with the branches that they stand on. A block that leaves the
    loop is run once: what it binds is not known."""
    if _leaves(body):
        return
    for statement in body:
        match statement:
            case ir.Assign() if any(_binds(t, text) for t in statement.targets):
                yield statement.value, path
            case ir.If():
                yield from _bindings(statement.then, text, (*path, (statement.node, True)))
                yield from _bindings(statement.orelse, text, (*path, (statement.node, False)))
            case ir.For() | ir.While():
                yield from _bindings([*statement.body, *statement.orelse], text, path)
                if isinstance(statement, ir.For) and _binds(statement.target, text):
                    yield None, path
            case ir.With():
                yield from _bindings(statement.body, text, path)
            case ir.Try():
                handlers = [inner for handler in statement.handlers for inner in handler.body]
                yield from _bindings([*statement.body, *handlers, *statement.orelse, *statement.final], text, path)


def _leaves(body: list[ir.Stmt]) -> bool:
    return any(isinstance(statement, (ir.Break, ir.Return, ir.Raise)) for statement in body)


def _walk_target(target: ir.Expr) -> Iterator[ir.Expr]:
    yield target
    if isinstance(target, ir.Sequence):
        for item in target.items:
            yield from _walk_target(item)


def _reads(node: object, text: str, call: ir.Call) -> bool:
    """Whether a part of the IR reads the text, its size and ``is None`` apart, outside the call's first argument."""
    match node:
        case ir.Name() | ir.Attr() | ir.Subscript() if text_of(node) == text:
            return True
        case ir.Attr(value=value, name=name) if name in SIZES and text_of(value) == text:
            return False
        case ir.Call(func=ir.Name(id="len"), args=[ir.Arg(value=value)]) if text_of(value) == text:
            return False
        case ir.Compare(left=left, ops=["is" | "is not"]) if text_of(left) == text:
            return False
        case ir.Call() if node is call:
            first = _display(node)
            parts: list[object] = [i for i in first.items if text_of(i) != text]
            parts += [a.value for a in node.args if a.value is not first]
            return any(_reads(part, text, call) for part in parts)
        case ir.Return():
            return False  # once, at the end
        case ir.If() if _leaves(node.then) or _leaves(node.orelse):
            stays = [*(node.then if not _leaves(node.then) else []), *(node.orelse if not _leaves(node.orelse) else [])]
            return any(_reads(part, text, call) for part in (node.test, *stays))
        case ir.Assign(targets=targets, value=value):
            # A bare name that is bound is not read; ``x[i] = …`` reads ``x``.
            bound = [t for t in targets if text_of(t) != text]
            return _reads(value, text, call) or any(_reads(t, text, call) for t in bound)
        case ir.Delete():
            return False
    return any(_reads(child, text, call) for child in _children(node))


def _walk(node: object) -> Iterator[ir.Expr]:
    if isinstance(node, (ir.Name, ir.Attr)):
        yield node
    for child in _children(node):
        yield from _walk(child)


def _children(node: object) -> Iterator[object]:
    """The parts of an IR node, those in lists and pairs too."""
    todo = [getattr(node, name) for name in getattr(node, "__slots__", ())]
    while todo:
        part = todo.pop()
        kind = type(part)
        if kind in _LEAVES:
            continue
        if kind is list or kind is tuple:
            todo.extend(part)
        elif hasattr(part, "__dataclass_fields__"):
            yield part


WALK = 25
"""Steps that are counted for each part of a loop that is looked through."""
PASSING = frozenset({GraphKind.CARRIED, GraphKind.RESULT, GraphKind.SPENT})
"""Marks of where a value comes from and what was done with it, which is no addition."""
OPERATORS = {"+": "__iadd__", "-": "__isub__", "*": "__imul__", "|": "__ior__", "@": "__imatmul__"}


def record_accumulation(
    m: Machine,
    place: tuple[int, str],
    text: str,
    value: Value,
    state: State,
    node: int,
    source: ir.Expr | None,
    how: str = "",
    sure_tensor: bool = False,
) -> Value:
    """Records an accumulation: the value assigned to a place holds what the place held when the loop's pass began."""
    graphs, hints, _, _ = m.deep(value, state)
    both = graphs | hints
    if not both:
        return value
    carried = [g for g in both if m.record.graphs[g].kind is GraphKind.CARRIED and m.record.graphs[g].place == place]
    if not carried or "()" in m.evidence.get(text, ()):
        return value  # what is called itself is no tensor: a network that a function changes
    fresh = fresh_graphs(m, graphs)
    maybe = fresh_graphs(m, hints)
    if not fresh and not maybe:
        return value
    if fresh and all(m.record.graphs[g].kind is GraphKind.LEAF and m.record.graphs[g].what == text for g in fresh | maybe):
        return value  # a module's attribute that is a parameter takes nothing but a parameter, which has no history
    if isinstance(source, ir.IfExp):
        if not any(takes_part(text, branch) for branch in (source.then, source.orelse)):
            return value  # one of several values is chosen
        source = None  # no one term is added
    if is_scaled(m, text, source, state):
        return value
    if isinstance(source, ir.BoolOp) or (isinstance(source, ir.Call) and dotted(source.func) in TORCH.words["picks-one"]):
        return value
    rounds = {m.record.graphs[g].site.loops[-1] for g in carried if m.record.graphs[g].site.loops}
    if rounds:
        rounds.difference_update(m.once)
        if rounds.isdisjoint(m.loops):
            return value  # after the loop, or in one of its iterations: once, and not in each of them
    outlived = tuple(sorted(rounds, key=lambda known: (m.loops.index(known) if known in m.loops else -1, known)))
    loop = outlived[-1] if outlived else None
    certain = [g for g in carried if g in graphs] or carried
    inside = [g for g in certain if m.record.graphs[g].mode is Mode.MODULE]
    through = bool(inside) and (len(inside) == len(certain) or writes_into(m, text, source, inside, state))
    mark = m.graph(GraphKind.ADDED, node, text, key=place)
    m.emit(
        Accumulate(
            m.site(node), text, place, how or "+", mark, fresh - {mark}, maybe - {mark}, loop, term_of(source, text),
            through, sure_tensor, place[0] if place[0] < len(m.record.frames) else m.heap[place[0]].frame, outlived,
        ),
        tag=text,
    )  # fmt: skip
    m.sink(fresh - {mark}, SinkKind.STORED, text, node)
    return add_marks(value, frozenset((mark,)))


def is_scaled(m: Machine, text: str, source: ir.Expr | None, state: State) -> bool:
    """Whether nothing is added to a place: ``total = total / steps``."""
    if (
        not isinstance(source, ir.Binary)
        or f"{source.op}=" not in SCALES
        or text not in map(text_of, (source.left, source.right))
    ):
        return False
    by = source.right if text_of(source.left) == text else source.left
    called = [dotted(each.func) for each in everything(by) if isinstance(each, ir.Call)]
    return all(hasattr(builtins, name) for name in called) and not m.deep(evaluate(m, by, state), state)[0]


SCALES = ("/=", "*=", "//=", "**=", "%=", "@=", ">>=", "<<=")
"""Operators that add nothing."""


def fresh_graphs(m: Machine, gids: Iterable[int]) -> frozenset[int]:
    """Graphs without the marks that only say by what way a value came."""
    return frozenset(gid for gid in gids if m.record.graphs[gid].kind not in PASSING)


def writes_into(m: Machine, text: str, source: ir.Expr | None, inside: Sequence[int], state: State) -> bool:
    """Whether a new value of a place is its former one with something written into it that a module computed of that one: the memory
    of a graph network (``memory = memory.index_copy(0, nodes, cell(messages, memory[nodes]))``)."""
    if not isinstance(source, ir.Call) or dotted(source.func).partition(".")[0] != text:
        return False
    given = (state.vars.get((m.frame, name), EMPTY) for arg in source.args for name in names_inside(arg.value))
    return any(not graphs_of(value).isdisjoint(inside) for value in given)


def term_of(source: ir.Expr | None, text: str) -> int:
    """Node of the term in ``place = place + term``."""
    if isinstance(source, ir.Binary) and source.op == "+":
        if text_of(source.left) == text:
            return source.right.node
        if text_of(source.right) == text:
            return source.left.node
    return -1


def outside_total(
    m: Machine,
    oid: int,
    name: str,
    text: str,
    how: str,
    value: Value,
    fresh: frozenset[int],
    maybe: frozenset[int],
    node: int,
    term: int,
) -> Value:
    mark = m.graph(GraphKind.ADDED, node, text, key=(oid, name))
    outlived = m.outlived_loops(oid)
    loop = outlived[-1] if outlived else None
    m.emit(
        Accumulate(
            m.site(node), text, (oid, name), how, mark, fresh - {mark}, maybe - {mark}, loop, term, False, False,
            m.heap[oid].frame, outlived,
        ),
        tag=text,
    )  # fmt: skip
    m.sink(fresh - {mark}, SinkKind.STORED, text, node)
    return add_marks(value, frozenset((mark,)))


def accumulate_into(
    m: Machine, target: ir.Expr, how: str, value: Value, added: Value, state: State, node: int, term: int
) -> None:
    """``target op= added``: for attributes and elements the holder decides whether the place outlives a loop."""
    graphs, hints, _, _ = m.deep(added, state)
    things = frozenset(m.thing_graph(a.oid) for a in added if type(a) is Obj and m.heap[a.oid].kind is Kind.THING)
    graphs |= things
    if how in SCALES and not graphs:
        assign(m, target, value, state, node, ir.Binary(node, how.removesuffix("="), target, ir.Const(term, 0)))
        return
    if isinstance(target, ir.Name):
        place = place_of(m, target.id)
        sure = all(type(a) is Tensor for a in added)
        carried = record_accumulation(
            m, place, target.id, value, state, node, ir.Binary(node, "+", target, ir.Const(term, 0)), how, sure
        )
        if place[0] == -2 and carried == value:
            oid = m.outside(Kind.THING, target.id, None, key=("global", m.path))
            carried = outside_total(m, oid, target.id, target.id, how, value, graphs, hints, node, term)
        state.vars[place] = shallow(carried)
        return
    owners: list[tuple[int, str]] = []
    if isinstance(target, ir.Attr):
        owners = [(a.oid, target.name) for a in evaluate(m, target.value, state) if type(a) is Obj]
    elif isinstance(target, ir.Subscript):
        index = [evaluate(m, i, state) for i in target.index]
        key = only_const(index[0]) if len(index) == 1 else None
        name = f"[{key.value!r}]" if key is not None else ELEMENTS
        owners = [(a.oid, name) for a in evaluate(m, target.value, state) if type(a) is Obj]
        if not owners and isinstance(target.value, (ir.Name, ir.Attr, ir.Subscript)):
            # An element of a tensor: the tensor itself is the total.
            accumulate_into(m, target.value, how, value, added, state, node, term)
            return
    fresh = fresh_graphs(m, graphs)
    maybe = fresh_graphs(m, hints)
    for oid, name in owners:
        info = m.heap[oid]
        loop = m.outlived_loop(oid)
        if (loop is not None or info.external) and (fresh or maybe):
            value = outside_total(m, oid, name, text_of(target), how, value, fresh, maybe, node, term)
        if name.startswith("["):
            state.vars[oid, name] = join(state.vars.get((oid, name), EMPTY), shallow(value))
            if name != "[]":
                note_key(oid, name, state)
        else:
            m.set_attribute(oid, name, shallow(value), state)


def may_have_operator(m: Machine, op: str, old: Value) -> bool:
    """Whether nothing is known of what is added to, and the class whose method runs here, or the function, names a class of the
    project that has the operator: it may be an object of that."""
    if not all(type(a) is Unknown or (type(a) is Obj and m.heap[a.oid].kind is Kind.THING) for a in old):
        return False
    with_operator = m.world.project.methods_named(OPERATORS[op]) if op in OPERATORS else ()
    if not with_operator:
        return False
    owner = m.world.header(m.ref).owner
    around = m.world.project.within(m.path, owner) if owner else (m.world.facts(m.ref),)
    classes = {m.world.header(method).owner.rpartition(".")[2] for method in with_operator}
    return any(classes & facts.names for facts in around)


@handles(STATEMENTS, ir.AugAssign)
def run_augmented(m: Machine, statement: ir.AugAssign, state: State) -> State | None:
    target = statement.target
    old = evaluate(m, target, state)
    added = evaluate(m, statement.value, state)
    own = [a for a in old if type(a) is Obj and isinstance(m.heap[a.oid].cls, ClassRef)]
    if own:
        # An object of the project: its own operator, if it has one, says what becomes of the operand.
        for atom in own:
            name = OPERATORS.get(statement.op, "")
            method = m.world.project.method(m.heap[atom.oid].cls, name) if name else None  # type: ignore[arg-type]
            if method is not None:
                (function,) = function_value(m, method, atom.oid)
                operator = ir.Attr(statement.node, target, name)
                call_atom(m, function, call_at(statement.node, operator, [added], [statement.value]), state)
        return state
    if may_have_operator(m, statement.op, old):
        return state
    if any(type(a) is Obj and m.heap[a.oid].kind is Kind.PARAMS for a in old):
        return state  # a parameter changes in place, and stays what it is
    if statement.op != "|" and old and all(type(a) is Obj and m.heap[a.oid].kind is Kind.DICT for a in old):
        return state  # a dict has no such operator: the statement raises
    lists = [a for a in old if type(a) is Obj and m.heap[a.oid].kind is Kind.LIST]
    if lists and statement.op == "+":
        item = iterate(m, added, statement.node, state)
        for atom in lists:
            store_in(m, atom.oid, text_of(target), StoreKind.EXTEND, item, statement.node, statement.value, state)
        return state
    value = operate(m, statement.op, old, added, statement.node, state, in_place=True)
    tensors = frozenset(a for a in old if type(a) is Tensor)
    if state.mode is Mode.OFF and tensors and isinstance(target, ir.Name):
        # In place on a tensor, with grad mode off: it keeps the history that it has, and gets none from the operand.
        state.vars[place_of(m, target.id)] = tensors if len(tensors) == len(old) else join(tensors, value)
        return state
    accumulate_into(m, target, statement.op + "=", value, added, state, statement.node, statement.value.node)
    return state


def note_regrowth(m: Machine, target: ir.Expr, source: ir.Expr, state: State) -> None:
    """``out = torch.cat([out, x])`` in a loop of this function."""
    text = text_of(target)
    loop = m.loop_statements.get(m.loops[-1])
    call = grown_in(source, text) if loop is not None and m.loops[-1][0] == m.frame else None
    if call is None or loop is None or not dotted(call.func):
        return
    if m.loops[-1] in m.once:
        return  # in one iteration
    site = m.site(call.node)
    if isinstance(source, ir.IfExp) and {text_of(source.test), f"not {text_of(source.test)}"} & set(site.guards):
        return  # the branch around it has decided the test
    if any(type(a) is Ext and a.name in TORCH.concatenations for a in evaluate(m, call.func, state)):
        parts = added_to(call, text)
        if grows_alone(m, loop, target, call) and not all(is_little(m, part, state) for part in parts):
            m.emit(Regrowth(site, text, m.loops[-1]))
            note_grown(m, text, parts, call.node, state)


def made_longer(m: Machine, statement: ir.Assign, state: State) -> bool:
    """``rows = rows + [row]``, ``rows = [*rows, row]``: a list that is bound again with more in it is taken for the same list, and
    what is new in it is kept as by ``extend``."""
    if len(statement.targets) != 1 or type(statement.value) not in (ir.Binary, ir.Sequence):
        return False
    target = statement.targets[0]
    added = put_beside(statement.value, text_of(target))
    old = evaluate(m, target, state) if added else EMPTY
    lists = [a.oid for a in old if type(a) is Obj and m.heap[a.oid].kind is Kind.LIST]
    if not lists or len(lists) < len(old):
        return False
    m.meter.take(len(state.vars))
    if isinstance(target, ir.Name) and any(m.heap[oid].external or m.heap[oid].frame != m.frame for oid in lists):
        return False  # whoever gave it still has the shorter one
    if any(sum(Obj(oid) in held for held in state.vars.values()) > 1 for oid in lists):
        return False  # by another name it stays as it was
    for how, part in added:
        value = evaluate(m, part, state)
        if how is StoreKind.EXTEND:
            value = iterate(m, value, statement.node, state)
        for oid in lists:
            store_in(m, oid, text_of(target), how, value, statement.node, part, state)
    return True


def put_beside(expr: ir.Expr, text: str) -> list[tuple[StoreKind, ir.Expr]]:
    """The parts of an expression that puts something beside the elements of the list of that name: lists, or single elements."""
    match expr:
        case ir.Binary(op="+", left=left, right=right) if text in (text_of(left), text_of(right)):
            return [(StoreKind.EXTEND, right if text_of(left) == text else left)]
        case ir.Sequence(kind=ir.Display.LIST, items=items):
            stars = [each.value for each in items if isinstance(each, ir.Star)]
            if [text_of(each) for each in stars] == [text]:
                return [(StoreKind.APPEND, each) for each in items if not isinstance(each, ir.Star)]
    return []


def note_grown(m: Machine, text: str, parts: list[ir.Expr], node: int, state: State) -> None:
    """The outputs that a concatenation adds are kept as those that are put in a list."""
    if state.mode is not Mode.OFF:
        return
    aside = state.copy()
    for part in parts:
        _, _, outputs, flags = m.deep(evaluate(m, part, aside), aside)
        if outputs:
            loop = m.loops[-1]
            m.emit(
                Store(
                    m.site(node), text, -1, StoreKind.GROWN, -1, NOTHING, NOTHING, outputs, flags, loop, -1, False,
                    holder_frame=m.frame, sure_tensor=True, outlived=(loop,),
                ),
                tag=text,
            )  # fmt: skip


def grows_alone(m: Machine, loop: ir.For | ir.While, target: ir.Expr, call: ir.Call) -> bool:
    """``only_grows``, asked once for each call of a loop: that looks through all of the loop."""
    key = (id(loop), id(call))
    known = m.growing.get(key)
    if known is None:
        bound = m.bound_names.get(id(loop))
        if bound is None:
            bound = m.bound_names[id(loop)] = bound_in(loop)
        names, size = bound
        m.meter.take(WALK * size)
        known = m.growing[key] = only_grows(loop, target, call, names)
    return known


def is_little(m: Machine, part: ir.Expr, state: State) -> bool:
    """Whether what is joined is a constant, a number, indices or an array, as far as the expression or its name shows."""
    while isinstance(part, ir.Call) and isinstance(part.func, ir.Attr) and part.func.name in RESHAPES:
        part = part.func.value
    if isinstance(part, ir.Name):
        atoms = state.vars.get(place_of(m, part.id), EMPTY)
        return bool(atoms) and all(type(a) is Tensor and bool(a.flags & (SCALAR | INTEGER)) for a in atoms)
    if isinstance(part, ir.Call) and isinstance(part.func, ir.Attr) and part.func.name in LITTLE:
        return True
    from_array = isinstance(part, ir.Call) and any(
        type(a) is Ext and a.name in TORCH.words["from-arrays"]
        for a in (evaluate(m, part.func, state) if dotted(part.func) else ())
    )
    return from_array or is_constant(m, part, state)


RESHAPES = TORCH.words["reshapes"] | TORCH.words["reshapes-by-one"]
LITTLE = TORCH.words["reads-out"] | TORCH.words["best-index"]


def is_constant(m: Machine, part: ir.Expr, state: State) -> bool:
    """``torch.ones(1)``: a source of tensors with literals alone."""
    if not isinstance(part, ir.Call) or not all(type(a.value) is ir.Const for a in part.args) or not dotted(part.func):
        return False
    return any(type(a) is Ext and TORCH.function_effect(a.name) is Effect.SOURCE for a in evaluate(m, part.func, state))
