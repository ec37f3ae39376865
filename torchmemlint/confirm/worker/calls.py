"""Puts the harness in the place of a call in the flagged statement: of a join, a checkpoint, of what fills gradients with zeros."""

from __future__ import annotations

import ast

from torchmemlint.rules.card import Correction
from torchmemlint.torch_facts import TORCH

JOINS = frozenset(name.rpartition(".")[2] for name in TORCH.concatenations)
CHECKPOINTS = frozenset({"checkpoint", "checkpoint_sequential"})
FILLS = frozenset({"zero_", "fill_"})
OF_PARAMETERS = frozenset({"parameters", "named_parameters", "param_groups", "params"})


def last(node: ast.expr) -> str:
    """The last word of a name or attribute."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def over_parameters(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a loop runs over parameters: it is no loop of steps."""
    return not isinstance(loop, ast.While) and any(
        last(node) in OF_PARAMETERS for node in ast.walk(loop.iter) if isinstance(node, (ast.Name, ast.Attribute))
    )


class InPlace(ast.NodeTransformer):
    """Replaces the calls of a statement that a correction is about."""

    def __init__(self, correction: Correction, harness: str) -> None:
        self._correction, self._harness = correction, harness

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = last(node.func)
        if self._correction is Correction.ROOM and name in JOINS:
            return self._through("joined", node)
        if self._correction is Correction.NO_CHECKPOINT and name in CHECKPOINTS:
            return self._through("checkpointed", node)
        if self._correction is Correction.FREE and isinstance(node.func, ast.Attribute):
            receiver = node.func.value if name == "zero_grad" else _parameter(node.func) if name in FILLS else None
            if receiver is not None:
                return ast.copy_location(self._call("zeroed", [receiver, _later(node)], []), node)
        return node

    def _through(self, method: str, node: ast.Call) -> ast.expr:
        return ast.copy_location(self._call(method, [node.func, *node.args], node.keywords), node)

    def _call(self, method: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> ast.Call:
        function = ast.Attribute(ast.Name(self._harness, ast.Load()), method, ast.Load())
        return ast.Call(function, arguments, keywords)


def _later(node: ast.expr) -> ast.expr:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, node)


def _parameter(node: ast.Attribute) -> ast.expr | None:
    """``p`` of ``p.grad.zero_`` and ``p.grad.data.zero_``."""
    value = node.value
    while isinstance(value, ast.Attribute):
        if value.attr == "grad":
            return value.value
        value = value.value
    return None
