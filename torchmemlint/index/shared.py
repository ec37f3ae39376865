"""Equal parts of facts, kept once.

Functions are copied from file to file, and what is the same in them would take up a sixth of the memory of all facts.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

Value = TypeVar("Value", bound=Hashable)

_MANY = 100_000
_seen: dict[type, dict[Hashable, Hashable]] = {}


def same(of: type, value: Value) -> Value:
    """This value, or an equal one that is there already. ``of`` is what it is made of, which keeps named tuples of different
    kinds apart."""
    seen = _seen.setdefault(of, {})
    if len(seen) > _MANY:
        seen.clear()
    return seen.setdefault(value, value)  # type: ignore[return-value]


def forget() -> None:
    """To be called when no more facts are made for a while: what they share, they have."""
    _seen.clear()
