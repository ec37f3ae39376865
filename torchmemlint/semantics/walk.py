"""Walks over the IR: every statement and expression of a part of it, in text order. Nested functions are not entered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from torchmemlint.lower import ir


def nodes_of(body: list[ir.Stmt]) -> Iterator[object]:
    """Every statement and expression in a block."""
    for statement in body:
        yield from walk(statement)


def nodes_of_expr(expr: ir.Expr) -> Iterator[object]:
    yield from walk(expr)


FIELDS: dict[type, tuple[str, ...]] = {
    kind: tuple(part.name for part in fields(kind))
    for kind in vars(ir).values()
    if isinstance(kind, type) and is_dataclass(kind)
}
"""Type of a node of the IR → the names of its fields."""


def walk(node: object) -> Iterator[object]:
    if isinstance(node, ir.Function):
        return
    if isinstance(node, (list, tuple)):
        for item in node:
            yield from walk(item)
        return
    names = FIELDS.get(type(node))
    if names is None:
        return
    yield node
    for name in names:
        value = getattr(node, name)
        if type(value) in FIELDS or isinstance(value, (list, tuple)):
            yield from walk(value)


def everything(part: object) -> Iterator[object]:
    """As ``walk``, and into nested functions."""
    waiting = [part]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (list, tuple)):
            waiting += reversed(node)
        elif (names := FIELDS.get(type(node))) is not None:
            yield node
            waiting += [getattr(node, name) for name in reversed(names)]


def names_inside(part: object) -> set[str]:
    return {n.id for n in walk(part) if isinstance(n, ir.Name)}
