"""A fact about a candidate, with how it is known."""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.str_enum import StrEnum


class Known(StrEnum):
    """How a fact is known, the surest first."""

    RESOLVED = "resolved"
    """By a class, an alias, an import, or all that becomes of a value."""
    ALL_CALLERS = "all callers"
    SOME_CALLERS = "some callers"
    METHOD = "by method name"
    NAME = "by a user's name"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, order=True)
class Fact:
    """What speaks about a candidate. What it decides stands in the scorecard, under its name.

    name      what the scorecard calls it
    words     what it says, as a sentence that ``trace`` prints
    known_by  how it is known
    unless    of an assumption: what would make the finding false
    chance    of one that was counted by itself: how often it is so
    """

    name: str
    words: str = ""
    known_by: Known = Known.RESOLVED
    unless: str = ""
    chance: float = 1
