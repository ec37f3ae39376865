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


def names_in(node: ast.AST) -> set[str]:
    """All names and attributes."""
    found = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return found | {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}
