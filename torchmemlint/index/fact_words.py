"""The closed sets of words in the facts of a module."""

from __future__ import annotations

from torchmemlint.str_enum import StrEnum


class ResultUse(StrEnum):
    """What becomes of a call's result."""

    DROPPED = "dropped"
    """By an expression statement."""
    RETURNED = "returned"
    UNPACKED = "unpacked"
    """Into several targets."""
    OTHER = "other"


class ParamKind(StrEnum):
    POSITIONAL = "positional"
    """Positional-only parameters, too."""
    KEYWORD = "keyword"
    """Keyword-only."""
    VAR_POSITIONAL = "*"
    VAR_KEYWORD = "**"


class AttrKind(StrEnum):
    """The form of what an attribute is assigned."""

    CALL = "call"
    NAME = "name"
    CONST = "const"
    LIST = "list"
    DICT = "dict"
    SET = "set"
    TUPLE = "tuple"
    FUNCTION = "function"
    """A lambda."""
    PART = "part"
    """One of several targets."""
    OTHER = "other"
