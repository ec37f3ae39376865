"""``enum.StrEnum`` of Python 3.11, for 3.10 as well: a closed set of words that are strings."""

from __future__ import annotations

from enum import Enum


class StrEnum(str, Enum):
    """Members are the same keys as the plain strings, sort as these do, and look like them in text and JSON."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]  # the same, but for the name of the parameter
    __hash__ = str.__hash__
