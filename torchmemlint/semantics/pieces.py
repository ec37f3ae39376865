"""What a loop goes over, where that is a piece of something: the slice of a list that one batch is."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.references import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.text import dotted, text_of
from torchmemlint.semantics.walk import names_inside, nodes_of
from torchmemlint.semantics.world import World

NO_PIECE = -1
ANY_WIDTH = 0
MAX_DEPTH = 4
"""How far names, and functions that give pieces, are followed."""


def width_of_loop(world: World, ref: FunctionRef, node: int) -> int:
    """The width of the piece that a loop of a function goes over, by the node of its statement."""
    function = world.function(ref)
    for each in nodes_of(function[0].body) if function is not None else ():
        if isinstance(each, ir.For) and each.node == node and function is not None:
            return width_of(world, ref, function[0].body, each.iterable)
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
        function = world.function(each)
        for value in given_out(function[0].body) if function is not None else ():
            whole = value.value if isinstance(value, ir.Yield) else value
            if function is None or whole is None:
                continue
            ask = width_of if isinstance(value, ir.Yield) else width_of_items
            found.append(ask(world, each, function[0].body, whole, depth + 1))
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
