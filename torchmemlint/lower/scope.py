"""What both ways of lowering share: the names that a scope binds, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from torchmemlint.lower import ir

LONGEST_CHAIN: Final = 1000
"""Operands of one ``and`` or ``or``. libcst 1.9 reads 3,000 with 8 MiB of stack and crashes at 10,000."""
TOO_LONG: Final = f"a chain of more than {LONGEST_CHAIN} 'and' or 'or' cannot be analysed"
TOO_DEEP: Final = "this source is nested too deeply to be analysed"


class Scope:
    """What a function, class or module body binds, while it is lowered."""

    __slots__ = ("bound", "is_generator", "outside", "prefix")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.bound: set[str] = set()
        self.outside: set[str] = set()
        self.is_generator = False

    @property
    def locals(self) -> frozenset[str]:
        return frozenset(self.bound - self.outside)

    def inner(self, name: str, params: Iterable[ir.Param] = ()) -> Scope:
        """The scope of a function or class called ``name`` in this one."""
        scope = Scope(f"{self.prefix}.{name}" if self.prefix else name)
        scope.bound.update(param.name for param in params)
        return scope

    def bind(self, target: ir.Expr) -> ir.Expr:
        """Notes the names that an assignment to ``target`` binds."""
        if isinstance(target, ir.Name):
            self.bound.add(target.id)
        elif isinstance(target, ir.Sequence):
            for item in target.items:
                self.bind(item)
        elif isinstance(target, ir.Star):
            self.bind(target.value)
        return target


def case_literal(value: ir.Expr) -> ir.Const | None:
    """The literal that a ``case`` compares with, a negative number included."""
    if isinstance(value, ir.Unary) and isinstance(value.value, ir.Const):
        amount = value.value.value
        return ir.Const(value.node, -amount) if isinstance(amount, int | float | complex) else None
    return value if isinstance(value, ir.Const) else None
