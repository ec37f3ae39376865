"""What a block of a function gives to the function's caller."""

from __future__ import annotations

from torchmemlint.lower import ir
from torchmemlint.semantics.walk import nodes_of, nodes_of_expr


def hands_out(block: list[ir.Stmt], body: list[ir.Stmt]) -> bool:
    """Whether a function's block returns a value, or binds a name that a return of the function gives as it is."""
    returns = [node.value for node in nodes_of(block) if isinstance(node, ir.Return)]
    if any(value is not None and not isinstance(value, ir.Const) for value in returns):
        return True
    targets = [t for node in nodes_of(block) if isinstance(node, ir.Assign) for t in node.targets]
    bound = {t.id for target in targets for t in nodes_of_expr(target) if isinstance(t, ir.Name)}
    given = [node.value for node in nodes_of(body) if isinstance(node, ir.Return)]
    parts = [part for value in given if isinstance(value, ir.Sequence) for part in value.items]
    return any(isinstance(part, ir.Name) and part.id in bound for part in [*given, *parts])
