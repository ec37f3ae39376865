"""One call: the callee as it is written, with its arguments as they were evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.facts import ParamFact
from torchmemlint.lower import ir
from torchmemlint.semantics.state.values import Value


class Shape(NamedTuple):
    """How many arguments a call gives by position, and which by name."""

    positional: int
    keywords: frozenset[str]

    def fits(self, params: Sequence[ParamFact]) -> bool:
        """Whether a method with these parameters, the object first, takes so many arguments of these names."""
        kinds = [param.kind for param in params]
        if ParamKind.VAR_POSITIONAL in kinds or ParamKind.VAR_KEYWORD in kinds:
            return True
        by_position = [param for param in params[1:] if param.kind is ParamKind.POSITIONAL]
        given = {param.name for param in by_position[: self.positional]} | self.keywords
        wanted = {param.name for param in params[1:] if param.required}
        return self.positional <= len(by_position) and wanted <= given and self.keywords <= {param.name for param in params}


@dataclass(slots=True)
class Call:
    """A call whose arguments are evaluated; ``exprs`` runs beside ``positional``.

    func     the callee, as it is written
    node     the number of the call's node: with the frame, its site
    stars    which stars its arguments have: "", "*", "**" or "***" for both
    """

    func: ir.Expr
    node: int
    positional: list[Value]
    keywords: dict[str, Value]
    exprs: list[ir.Expr]
    keyword_exprs: dict[str, ir.Expr]
    more: list[Value]
    """Values that came in with * or **."""
    stars: str = ""

    def all(self) -> list[Value]:
        return [*self.positional, *self.keywords.values(), *self.more]

    @property
    def shape(self) -> Shape:
        return Shape(len(self.positional), frozenset(self.keywords))

    def get(self, position: int, keyword: str) -> Value | None:
        if keyword in self.keywords:
            return self.keywords[keyword]
        if 0 <= position < len(self.positional):
            return self.positional[position]
        return None

    def given(self, positional: list[Value], exprs: list[ir.Expr]) -> Call:
        """A call at the same place that is given these values alone."""
        return replace(self, positional=positional, keywords={}, exprs=exprs, keyword_exprs={}, more=[])

    def without_first(self) -> Call:
        """The call of what the first argument is, with the others."""
        return replace(self, positional=self.positional[1:], exprs=self.exprs[1:])


def call_at(node: int, func: ir.Expr, positional: list[Value], exprs: list[ir.Expr]) -> Call:
    """A call that is not written as one: an operator's method, a property, what a framework does with a result."""
    return Call(func, node, positional, {}, exprs, {}, [])
