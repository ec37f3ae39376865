"""How many iterations a loop has over what, by its own text.

It ends after a known number, or has tests that one iteration passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torchmemlint.index.references import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import names_bound
from torchmemlint.lower.walk import names_inside, nodes_of, walk
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.state import Kind, Machine, Obj, Value, World
from torchmemlint.torch_facts import TORCH

AFTER = {">=": 0, "==": 0, ">": 1}
"""Comparisons with the number after which a body leaves its loop, and how many iterations come on top of that number."""


ADDS = TORCH.words["fills-lists"]


def iterations_until_break(statement: ir.For, counts: str, known: Callable[[ir.Expr], object]) -> int:
    """The most iterations of a loop that counts them, in the name ``counts`` or by the length of a list that each one adds to, and breaks
    at a number; -1 where there is none of it. ``known`` says what constant an expression is."""
    found = [ends for test in statement.body if (ends := _ends(statement, counts, test, known)) > 0]
    return min(found, default=-1)


def _ends(statement: ir.For, counts: str, test: ir.Stmt, known: Callable[[ir.Expr], object]) -> int:
    if not isinstance(test, ir.If) or not test.then or not isinstance(test.then[-1], ir.Break):
        return -1
    compared = test.test
    if not isinstance(compared, ir.Compare) or len(compared.ops) != 1 or compared.ops[0] not in AFTER:
        return -1
    first = _counted_from(statement, counts, compared.left)
    number = known(compared.comparators[0]) if first >= 0 else None
    return number + AFTER[compared.ops[0]] + first if type(number) is int and number >= 0 else -1


def _counted_from(statement: ir.For, counts: str, counter: ir.Expr) -> int:
    """How many more iterations than its number begin until a count reaches it: one more where the count starts at 0 in the first
    (``enumerate``), none where each adds an element before; -1 where it is no count of iterations."""
    if isinstance(counter, ir.Call) and isinstance(counter.func, ir.Name) and counter.func.id == "len" and counter.args:
        place = text_of(counter.args[0].value)
        return 0 if any(_adds_to(place, each) for each in statement.body) else -1
    return 1 if counts and text_of(counter) == counts else -1


def _adds_to(place: str, statement: ir.Stmt) -> bool:
    """Whether a statement is ``place.append(…)``."""
    if not isinstance(statement, ir.ExprStmt) or not isinstance(statement.value, ir.Call):
        return False
    func = statement.value.func
    return isinstance(func, ir.Attr) and func.name in ADDS and text_of(func.value) == place


Loop = tuple[int, int]
WALK = 25
"""Steps that are counted for each loop that is looked through."""


def loops_passed_once(m: Machine, test: ir.Expr, holds: bool) -> list[Loop]:
    """The loops around in the same function of which one iteration at most finds the test true, or false."""
    compared = list(_compared(test, holds))
    own = [loop for loop in m.loops if loop[0] == m.frame and loop in m.loop_statements] if compared else []
    return [
        loop
        for loop in own
        if any(_counts(m, loop, name) and _stays(m.loop_statements[loop], other) for name, other in compared)
    ]


def same_in(m: Machine, exprs: list[ir.Expr]) -> frozenset[Loop]:
    """The loops around in the same function in whose iterations these expressions stay the same: what one stores under such a key, the next
    replaces."""
    own = [loop for loop in m.loops if loop[0] == m.frame and loop in m.loop_statements]
    return frozenset(loop for loop in own if all(_stays(m.loop_statements[loop], expr) for expr in exprs))


def _compared(test: ir.Expr, holds: bool) -> Iterator[tuple[str, ir.Expr]]:
    """The names that equal an expression wherever the test is true, or false."""
    match test:
        case ir.Unary(op="not", value=inner):
            yield from _compared(inner, not holds)
        case ir.BoolOp(op=op, left=left, right=right) if op == ("and" if holds else "or"):
            yield from _compared(left, holds)
            yield from _compared(right, holds)
        case ir.Compare(ops=[op], left=left, comparators=[right]) if op == ("==" if holds else "!="):
            for one, other in ((left, right), (right, left)):
                if isinstance(one, ir.Name):
                    yield one.id, other
        case ir.Name(id=name) if not holds:
            yield name, ir.Const(test.node, 0)


def _counts(m: Machine, loop: Loop, name: str) -> bool:
    """Whether a name has another number in each iteration of a loop."""
    known = m.counts.get((loop, name))
    if known is None:
        statement = m.loop_statements[loop]
        m.meter.take(WALK * len(statement.body))
        binding = [each for each in statement.body if name in names_bound(each)]
        given = name == m.counters.get(loop)
        known = m.counts[loop, name] = not binding if given else _is_counted_up(statement, binding)
    return known


def _is_counted_up(statement: ir.For | ir.While, binding: list[ir.Stmt]) -> bool:
    """Whether each iteration adds to what these statements bind: ``step += 1``, which no ``continue`` leaves out."""
    match binding:
        case [ir.AugAssign(op="+", target=ir.Name(), value=ir.Const(value=int(added)))] if added > 0:
            return not any(isinstance(node, ir.Continue) for node in nodes_of(statement.body))
    return False


def _stays(statement: ir.For | ir.While, expr: ir.Expr) -> bool:
    """Whether an expression of constants, names, and the length of what the loop goes over is the same in all of its iterations."""
    names = names_inside(expr)
    over = names_inside(statement.iterable) if isinstance(statement, ir.For) else set()
    for part in walk(expr):
        match part:
            case ir.Call(func=ir.Name(id="len"), args=[ir.Arg(value=ir.Name(id=measured))]) if measured in over:
                pass
            case ir.Const() | ir.Name() | ir.Binary() | ir.Unary() | ir.FormattedString() | ir.Arg():
                pass
            case _:
                return False
    return not names or names.isdisjoint(names_bound(statement))


def counter_of(m: Machine, target: ir.Expr, iterable: Value) -> str:
    """The name that counts the iterations of a loop over ``range`` or ``enumerate``; "" where there is none."""
    made = {m.heap[atom.oid].name if type(atom) is Obj and m.heap[atom.oid].kind is Kind.GENERATOR else "" for atom in iterable}
    match target:
        case ir.Name(id=name) if made == {"range"}:
            return name
        case ir.Sequence(items=[ir.Name(id=name), _]) if made == {"enumerate"}:
            return name
    return ""


NO_PIECE = -1
ANY_WIDTH = 0
MAX_DEPTH = 4
"""How far names, and functions that give pieces, are followed."""


def width_of_loop(world: World, ref: FunctionRef, node: int) -> int:
    """The width of the piece that a loop of a function goes over, by the node of its statement."""
    body = world.body(ref)
    for each in nodes_of(body):
        if isinstance(each, ir.For) and each.node == node:
            return width_of(world, ref, body, each.iterable)
    return NO_PIECE


def width_of(world: World, ref: FunctionRef, body: list[ir.Stmt], expr: ir.Expr, depth: int = 0) -> int:
    """How many items a piece has: ``data[i : i + 64]``, or a name of one, also of each that a loop goes over. ``ANY_WIDTH``: as
    many as something says that is no literal; ``NO_PIECE``: it is none."""
    if depth > MAX_DEPTH:
        return NO_PIECE
    if isinstance(expr, ir.Subscript) and len(expr.index) == 1 and isinstance(expr.index[0], ir.Slice):
        return window(expr.index[0])
    if not isinstance(expr, ir.Name):
        return NO_PIECE
    found = [width_of(world, ref, body, value, depth + 1) for value in bound(body, expr.id)]
    for node in nodes_of(body):
        if isinstance(node, ir.For) and isinstance(node.target, ir.Name) and node.target.id == expr.id:
            found.append(width_of_items(world, ref, body, node.iterable, depth + 1))
    return min(found, default=NO_PIECE)


def window(part: ir.Slice) -> int:
    """The width of a slice from a place that moves: ``i : i + 64``."""
    if len(part.parts) != 2 or isinstance(part.parts[0], ir.Const):
        return NO_PIECE
    start, end = part.parts
    if isinstance(end, ir.Unary | ir.Const):
        return NO_PIECE
    if isinstance(end, ir.Binary) and end.op == "+" and text_of(end.left) == text_of(start):
        return end.right.value if isinstance(end.right, ir.Const) and isinstance(end.right.value, int) else ANY_WIDTH
    return ANY_WIDTH


def width_of_items(world: World, ref: FunctionRef, body: list[ir.Stmt], expr: ir.Expr, depth: int) -> int:
    """As ``width_of``, of each item of a list, or of what a function of the project yields."""
    if depth > MAX_DEPTH:
        return NO_PIECE
    if isinstance(expr, ir.Comprehension):
        return width_of(world, ref, body, expr.element, depth + 1)
    if isinstance(expr, ir.Name):
        return min((width_of_items(world, ref, body, value, depth + 1) for value in bound(body, expr.id)), default=NO_PIECE)
    if not isinstance(expr, ir.Call):
        return NO_PIECE
    found: list[int] = []
    callees = world.project.callees(ref.path, ref.qualname, dotted(expr.func))
    for each in callees.refs if callees.certain else ():
        body = world.body(each)
        for value in given_out(body):
            ask, whole = (width_of, value.value) if isinstance(value, ir.Yield) else (width_of_items, value)
            if whole is not None:
                found.append(ask(world, each, body, whole, depth + 1))
    return min(found, default=NO_PIECE)


def given_out(body: list[ir.Stmt]) -> Iterator[ir.Expr]:
    for node in nodes_of(body):
        if isinstance(node, ir.Yield):
            yield node
        elif isinstance(node, ir.Return) and node.value is not None:
            yield node.value


def bound(body: list[ir.Stmt], name: str) -> list[ir.Expr]:
    """What a block binds a name to."""
    return [
        node.value
        for node in nodes_of(body)
        if isinstance(node, ir.Assign)
        and any(isinstance(t, ir.Name) and t.id == name for t in node.targets)
        and name not in names_inside(node.value)
    ]
