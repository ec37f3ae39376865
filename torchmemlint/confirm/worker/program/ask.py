"""The expressions that call the harness."""

from __future__ import annotations

import ast
from collections.abc import Sequence

HARNESS = "__tml__"


def ask(method: str, *arguments: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
    """A call of this method of the harness."""
    return ast.Call(ast.Attribute(ast.Name(HARNESS, ast.Load()), method, ast.Load()), list(arguments), list(keywords))


class Transformer(ast.NodeTransformer):
    """Leaves lambdas alone: when they run, they run as a whole."""

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node


def later(expression: ast.expr) -> ast.expr:
    """``lambda: expression``; the expression itself where a lambda cannot hold it."""
    if any(isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) for node in ast.walk(expression)):
        return expression
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, expression)
