"""Walks over the IR of a part: all that is in it, in text order.

Nested functions are not entered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass

from torchmemlint.lower import ir


def nodes_of(body: list[ir.Stmt]) -> Iterator[object]:
    """Every statement and expression in a block."""
    return walk(body)


FIELDS: dict[type, tuple[str, ...]] = {
    kind: tuple(part.name for part in fields(kind))
    for kind in vars(ir).values()
    if isinstance(kind, type) and is_dataclass(kind)
}
"""Type of a node of the IR → the names of its fields."""


_PARTS = {kind: names[::-1] for kind, names in FIELDS.items()}
"""As ``FIELDS``, the last name first: what is taken from the end of a list is then in the order of the text."""


def walk(part: object) -> Iterator[object]:
    return _below(part, _OUTSIDE_FUNCTIONS)


def everything(part: object) -> Iterator[object]:
    """As ``walk``, and into nested functions."""
    return _below(part, _PARTS)


_OUTSIDE_FUNCTIONS = {kind: names for kind, names in _PARTS.items() if kind is not ir.Function}


def _below(part: object, parts: dict[type, tuple[str, ...]]) -> Iterator[object]:
    """The nodes of these types, with a list of what is to be looked at: a generator in a generator hands on each node at each level."""
    waiting = [part]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind is list or kind is tuple:
            waiting += node[::-1]  # type: ignore[index]
        elif (names := parts.get(kind)) is not None:
            yield node
            for name in names:
                value = getattr(node, name)
                if value and type(value) not in _PLAIN:
                    waiting.append(value)


_PLAIN = frozenset({str, int, bool})


def names_inside(part: object) -> set[str]:
    return {n.id for n in walk(part) if isinstance(n, ir.Name)}


def names_used(part: object) -> set[str]:
    """The names that are read in a part of the IR, nested functions included, for more than a value of names that are not: neither those
    that a statement only gives a value, nor what stands in the call-free value of a name that is never used."""
    nodes = [*everything(part)]
    given = {id(node): {name.id for target in targets_of(node) for name in _given(target)} for node in nodes}
    plain = [
        node
        for node in nodes
        if isinstance(node, ir.Assign)
        and given[id(node)]
        and not any(isinstance(each, ir.Call) for each in everything(node.value))
    ]
    aside = {id(each) for node in plain for each in everything(node)}
    aside |= {id(name) for node in nodes for target in targets_of(node) for name in _given(target)}
    used = {node.id for node in nodes if isinstance(node, ir.Name) and id(node) not in aside}
    while feeding := [node for node in plain if given[id(node)] & used]:
        plain = [node for node in plain if not given[id(node)] & used]
        used = used.union(*(names_inside(node.value) for node in feeding))
    return used


def targets_of(node: object) -> Iterable[object]:
    """What a statement gives values to, without reading it first."""
    match node:
        case ir.Assign():
            return node.targets
        case ir.For():
            return [node.target]
        case ir.With():
            return [item.target for item in node.items]
        case _:
            return ()


def _given(target: object) -> Iterator[ir.Name]:
    """The names of a target that get a value themselves: none in ``name.field`` and ``name[index]``."""
    match target:
        case ir.Name():
            yield target
        case ir.Sequence():
            for item in target.items:
                yield from _given(item)
        case ir.Star():
            yield from _given(target.value)
