"""Where a name that an import binds is used: asked before a fix renames the import.

It must rewrite every use or none: calls and decorators, with their arguments as spans, and whether anything else is done with
it.

For fixes that rename an import, which must rewrite every use of it or none.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING

from torchmemlint.findings import Span
from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.state import MODULE, World

if TYPE_CHECKING:
    from torchmemlint.lower.lowered import Lowered


@dataclass(frozen=True, slots=True)
class Written:
    """A call as it is written.

    callee      span of what is called, parentheses around it included
    arguments   for each argument its keyword (None for a positional one), its star ("", "*", "**"), and its value's span
    called      False for a decorator without parentheses
    """

    callee: Span
    arguments: tuple[tuple[str | None, str, Span], ...]
    called: bool = True


def written(lowered: Lowered, node: int) -> Written | None:
    """The call, or the bare decorator, that a node of a region is."""
    for function in lowered.functions.values():
        for found in _nodes(function):
            if isinstance(found, ir.Call) and found.node == node:
                return _call(found, lowered)
            if isinstance(found, ir.Function) and any(d.node == node for d in found.decorators):
                bare = next(d for d in found.decorators if d.node == node)
                return _call(bare, lowered) if isinstance(bare, ir.Call) else Written(lowered.outer_span(node), (), False)
    return None


def uses_of(world: World, path: str, scope: str, name: str) -> list[Written] | None:
    """Every use of a name that an import in ``scope`` (a function, or the module) binds, as far as all of them are calls,
    decorators and annotations; None where the name is also bound, read or written otherwise, so that no use may be rewritten."""
    found: list[Written] = []
    hidden: list[tuple[int, int]] = []
    seen = 1  # the import itself
    for facts in world.project.module(path).functions:
        if facts.parent or (scope != MODULE and facts.qualname != scope):
            continue
        if facts.qualname != MODULE and name not in facts.names:
            continue
        lowered = world.placed(path, facts.qualname)
        if lowered is None:
            return None
        function = lowered.functions[facts.qualname]
        if scope == MODULE and facts.qualname != MODULE and name in function.locals:
            hidden.append((facts.row, facts.end_row))
            continue
        # What stands above and in the header of a module's function is part of that function's region.
        parts = [function.body] if facts.qualname == scope else [function]
        for node in _nodes(parts, name, headers=facts.qualname != MODULE):
            match node:
                case ir.Call(func=ir.Name(id=ident)) if ident == name:
                    found.append(_call(node, lowered))
                    seen += 1
                case ir.Function():
                    bare = [d for d in node.decorators if isinstance(d, ir.Name) and d.id == name]
                    found += [Written(lowered.outer_span(d.node), (), False) for d in bare]
                    annotations = [node.returns, *(p.annotation for p in node.params)]
                    seen += len(bare) + _names(annotations, name)
                case ir.Assign() | ir.Declare():
                    seen += _names(node.annotation, name)
    lines = list(world.lines(path))
    for first, last in hidden:
        lines[first - 1 : last] = ["\n"] * (last - first + 1)
    if scope != MODULE:
        facts = world.facts(FunctionRef(path, scope))
        lines = lines[facts.row - 1 : facts.end_row]
    return found if _tokens(lines, name) == seen else None


def _names(node: object, name: str) -> int:
    return sum(isinstance(n, ir.Name) and n.id == name for n in _nodes(node))


def _call(call: ir.Call, lowered: Lowered) -> Written:
    arguments = tuple((a.keyword, a.star, lowered.outer_span(a.value.node)) for a in call.args)
    return Written(lowered.outer_span(call.func.node), arguments)


def _nodes(node: object, hidden: str = "", headers: bool = True) -> Iterator[object]:
    """Every IR node below one, itself included; functions that bind ``hidden`` are left out, and without ``headers`` all."""
    if isinstance(node, (list, tuple)):
        for item in node:
            yield from _nodes(item, hidden, headers)
        return
    if not is_dataclass(node):
        return
    if isinstance(node, ir.Function) and (not headers or (hidden and hidden in node.locals and node.name != MODULE)):
        return
    yield node
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, (list, tuple)) or is_dataclass(value):
            yield from _nodes(value, hidden, headers)


def _tokens(lines: list[str], name: str) -> int:
    """How often a name stands in source, but as an attribute's; -1 where the source does not split into tokens."""
    count, before = 0, ""
    try:
        for token in tokenize.generate_tokens(io.StringIO("".join(lines)).readline):
            if token.type == tokenize.NAME and token.string == name and before != ".":
                count += 1
            before = token.string
    except (tokenize.TokenError, IndentationError):
        return -1
    return count
