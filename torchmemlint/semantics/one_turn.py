"""Tests that one iteration of a loop passes at most: they compare the loop's own count with what stays the same in the loop."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.lower import ir
from torchmemlint.semantics.machine import Machine
from torchmemlint.semantics.state import Kind
from torchmemlint.semantics.syntax import names_bound
from torchmemlint.semantics.values import Obj, Value
from torchmemlint.semantics.walk import names_inside, nodes_of, nodes_of_expr

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
    """Whether an expression of numbers, names, and the length of what the loop goes over is the same in all of its iterations."""
    names = names_inside(expr)
    over = names_inside(statement.iterable) if isinstance(statement, ir.For) else set()
    for part in nodes_of_expr(expr):
        match part:
            case ir.Call(func=ir.Name(id="len"), args=[ir.Arg(value=ir.Name(id=measured))]) if measured in over:
                pass
            case ir.Const() | ir.Name() | ir.Binary() | ir.Unary() | ir.Arg():
                pass
            case _:
                return False
    return names.isdisjoint(names_bound(statement))


def counter_of(m: Machine, target: ir.Expr, iterable: Value) -> str:
    """The name that counts the iterations of a loop over ``range`` or ``enumerate``; "" where there is none."""
    made = {m.heap[atom.oid].name if type(atom) is Obj and m.heap[atom.oid].kind is Kind.GENERATOR else "" for atom in iterable}
    match target:
        case ir.Name(id=name) if made == {"range"}:
            return name
        case ir.Sequence(items=[ir.Name(id=name), _]) if made == {"enumerate"}:
            return name
    return ""
