"""Small questions about parsed code, for whoever plans an experiment."""

from __future__ import annotations

import ast
from collections.abc import Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def functions_in(tree: ast.AST) -> Iterator[FunctionNode]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def is_definition(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def last_name(place: ast.expr | None) -> str:
    """``loss`` of ``self.loss`` or ``loss``, "" of anything else."""
    return place.attr if isinstance(place, ast.Attribute) else place.id if isinstance(place, ast.Name) else ""


def target_of(statement: ast.stmt | None) -> ast.expr | None:
    """What a statement stores into, or calls a method of: ``total`` of ``total += x``, ``xs`` of ``xs.append(x)``."""
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return statement.target
    if isinstance(statement, ast.Assign):
        return statement.targets[0]
    called = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    return called.value if isinstance(called, ast.Attribute) else None


def names_in(node: ast.AST) -> set[str]:
    """All names and attributes."""
    found = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return found | {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}


def calls_at(tree: ast.AST, start: tuple[int, int], end: tuple[int, int]) -> tuple[list[ast.Call], list[ast.Call]]:
    """The calls that a finding's span covers, and those that start where it does: rows and columns from 1, the end exclusive."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    starting = [node for node in calls if (node.lineno, node.col_offset + 1) == start]
    return [node for node in starting if (node.end_lineno, (node.end_col_offset or 0) + 1) == end], starting
