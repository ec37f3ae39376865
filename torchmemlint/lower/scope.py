"""What a function, class or module body binds, while it is lowered."""

from __future__ import annotations

from collections.abc import Iterable

from torchmemlint.lower import ir


class Scope:
    """What is bound so far, and how the names of definitions inside begin."""

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
