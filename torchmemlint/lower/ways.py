"""The way to a place of the IR: what was surely evaluated before it, by how each test came out.

A statement is on the way if it stands before the place in the same block, or in a block around that: it was executed, and did not raise.
Of what only some runs evaluate (a branch, the right side of ``and``, a body that a ``try`` or a ``with`` may end early) nothing is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import takewhile
from operator import attrgetter

from torchmemlint.lower import ir
from torchmemlint.lower.walk import FIELDS, walk

Step = tuple["ir.Expr | ir.ImportStmt", "bool | None"]  # what was evaluated, or with True and False a test that came out so

SURE = {
    ir.Lambda: (), ir.Comprehension: (), ir.BoolOp: ("left",), ir.IfExp: FIELDS[ir.IfExp][:2], ir.Compare: FIELDS[ir.Compare][:2],
}  # fmt: skip
"""Parts of expressions that are evaluated with them in every run, where not all are."""
VALUED = ir.ExprStmt | ir.Return | ir.Raise | ir.Assign | ir.AugAssign
LEAVES = ir.Return | ir.Raise | ir.Continue | ir.Break


def way_to(block: list[ir.Stmt], node: int) -> Iterator[Step]:
    """The way through a block to a node; up to the nested function, or class, in which that is."""
    for at, statement in enumerate(block):
        if statement.node > node:
            return
        if not isinstance(statement, ir.Try):
            yield from header(statement)
        if at + 1 < len(block) and block[at + 1].node <= node:
            if isinstance(statement, ir.If):
                ends = ((statement.then, False), (statement.orelse, True))
                yield from ((statement.test, value) for inner, value in ends if inner and isinstance(inner[-1], LEAVES))
            continue
        around = [each for each in _blocks(statement) if each[0] and each[0][0].node <= node]
        if around:
            inner, test = max(around, key=lambda each: each[0][0].node)
            yield from test
            yield from way_to(inner, node)


def tests_to(block: list[ir.Stmt], node: int) -> Iterator[tuple[ir.Expr, bool]]:
    """The tests on the way to a node, each with how it came out."""
    for test, value in way_to(block, node):
        if value is not None and not isinstance(test, ir.ImportStmt):
            yield test, value


def evaluated(block: list[ir.Stmt]) -> list[tuple[ir.Expr | ir.ImportStmt, bool]]:
    """Every expression, or import, that is a step of some way through a block, and whether it is a test that leads to places."""
    found = []
    for statement in block:
        found += [(expr, isinstance(statement, ir.If | ir.While)) for expr, _ in header(statement)]
        for inner, _ in _blocks(statement):
            found += evaluated(inner)
    return found


def behind(block: list[ir.Stmt], node: int) -> list[ir.Stmt]:
    """The statements that follow a node's own in the innermost block around it."""
    at = bisect_right(block, node, key=attrgetter("node")) - 1
    if at < 0:
        return []
    own = block[at]
    blocks = [own.function.body] if isinstance(own, ir.FunctionDef) else [each for each, _ in _blocks(own)]
    inner = [each for each in blocks if each and each[0].node <= node]
    return behind(max(inner, key=lambda each: each[0].node), node) if inner else block[at + 1 :]


def rest_of_turn(block: list[ir.Stmt], node: int, repeated: bool) -> list[ir.Stmt]:
    """What every turn executes behind a node that a turn comes to: the statements that follow in the very body of a loop, up to one that
    may leave it. ``repeated``: the block itself is run again and again."""
    at = bisect_right(block, node, key=attrgetter("node")) - 1
    inner = [each for each, _ in _blocks(block[at]) if each and each[0].node <= node] if at >= 0 else []
    if inner:
        body = max(inner, key=lambda each: each[0].node)
        return rest_of_turn(body, node, isinstance(block[at], ir.For | ir.While) and body is block[at].body)  # type: ignore[union-attr]
    stays = takewhile(lambda each: not any(isinstance(part, LEAVES) for part in walk(each)), block[at + 1 :])
    return [*stays] if repeated and at >= 0 else []


def header(statement: ir.Stmt) -> Iterator[Step]:
    """What a statement evaluates whatever happens inside its blocks."""
    values: list[ir.Expr | ir.ImportStmt | None] = (
        [item.manager for item in statement.items] if isinstance(statement, ir.With)
        else [statement.test] if isinstance(statement, ir.If | ir.While)
        else [statement.iterable] if isinstance(statement, ir.For)
        else [statement.subject] if isinstance(statement, ir.Match)
        else [statement.value] if isinstance(statement, VALUED)
        else [statement] if isinstance(statement, ir.ImportStmt)
        else []
    )  # fmt: skip
    yield from ((each, None) for each in values if each is not None)


def _blocks(statement: ir.Stmt) -> list[tuple[list[ir.Stmt], list[Step]]]:
    """The blocks of a statement, each with what holds in it."""
    if isinstance(statement, ir.If):
        return [(statement.then, [(statement.test, True)]), (statement.orelse, [(statement.test, False)])]
    if not isinstance(statement, ir.While | ir.For | ir.With | ir.Try):
        return []
    handlers = [each.body for each in statement.handlers] if isinstance(statement, ir.Try) else []
    others = [*handlers, getattr(statement, "orelse", []), getattr(statement, "final", [])]
    holds: list[Step] = [(statement.test, True)] if isinstance(statement, ir.While) else []
    return [(statement.body, holds), *((each, []) for each in others)]


def parts_of(expr: ir.Expr | ir.ImportStmt) -> list[object]:
    """An expression and all parts of it that are evaluated with it, whatever they give."""
    found: list[object] = []
    waiting: list[object] = [expr]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting += reversed(node)
        elif (names := SURE.get(type(node), FIELDS.get(type(node)))) is not None:
            found.append(node)
            waiting += [getattr(node, name) for name in reversed(names)]
    return found
