"""What a name can mean: a function, class, module or variable of the project, or something outside of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Union

from torchmemlint.index.layout import Module

TOP = "<module>"
UNKNOWN_BASE = "?"
"""Stands among a class's bases for one that cannot be resolved."""
"""The name by which a module's own statements go, among its functions."""


class FunctionRef(NamedTuple):
    """A function of the project: its file and its qualified name there. (A tuple, because it is the key of most tables: its
    hash costs a tenth of a dataclass's. ``of`` keeps it apart from a class of that name.)"""

    path: str
    qualname: str
    of: Literal["function"] = "function"


class ClassRef(NamedTuple):
    """A class of the project: its file and its qualified name there."""

    path: str
    qualname: str
    of: Literal["class"] = "class"


@dataclass(frozen=True, slots=True)
class Outside:
    """Something that is not in the project, by its absolute name."""

    name: str


_MANY_NAMES = 100_000
_outside: dict[str, Outside] = {}


def outside(name: str) -> Outside:
    """What is outside by this name: the same object for the same name, for there are many of few."""
    found = _outside.get(name)
    if found is None:
        if len(_outside) > _MANY_NAMES:
            _outside.clear()
        found = _outside[name] = Outside(name)
    return found


@dataclass(frozen=True, slots=True)
class Variable:
    """A module-level name that is assigned a value (no function, class or alias of one)."""

    path: str
    name: str
    text: str


Symbol = Union[FunctionRef, ClassRef, Outside, Variable, Module]
