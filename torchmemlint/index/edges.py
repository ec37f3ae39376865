"""Edges of the call graph, seen from either end."""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.index.facts import CallFact
from torchmemlint.index.references import FunctionRef


@dataclass(frozen=True, slots=True)
class Callees:
    """The functions of the project that a call can reach. ``certain`` is False where only a method's name matched."""

    refs: tuple[FunctionRef, ...]
    certain: bool


@dataclass(frozen=True, slots=True)
class Caller:
    """One call of a function: in which function it stands."""

    ref: FunctionRef
    call: CallFact
    certain: bool


@dataclass(frozen=True, slots=True)
class Callers:
    """All calls of a function, sorted by place. ``escapes``: it is also handed on as a value, so that others may call it."""

    calls: tuple[Caller, ...]
    escapes: bool
