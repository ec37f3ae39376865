"""The line that fills a container, read from the code of a function that runs in a thread that cannot be traced."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from types import CodeType

from torchmemlint.growth.worker.frames import Place, name_of

METHODS = frozenset(
    {"add", "append", "appendleft", "extend", "extendleft", "insert", "push", "put", "put_nowait", "setdefault", "update"}
)
"""What the containers and queues of Python call it."""


def line_that_fills(code: CodeType, name: str) -> Place | None:
    """The one line of a function that puts something into its variable; None if there are others, or none."""
    text = "".join(linecache.getlines(code.co_filename))
    try:
        functions = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name
        ]
    except (SyntaxError, ValueError, RecursionError):
        return None
    here = [
        node for node in functions if min([node.lineno, *(one.lineno for one in node.decorator_list)]) == code.co_firstlineno
    ]
    lines = {line for function in here for line in _fills(function, name)}
    return Place(code.co_filename, lines.pop(), name_of(code)) if len(lines) == 1 else None


def _fills(function: ast.AST, name: str) -> Iterator[int]:
    for node in ast.walk(function):
        target: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            target = node.func.value
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node.value
        elif isinstance(node, ast.AugAssign):
            target = node.target
        if isinstance(target, ast.Name) and target.id == name:
            yield target.lineno


__all__ = ["line_that_fills"]
