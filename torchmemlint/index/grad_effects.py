"""What a context manager, decorator or statement does to grad mode."""

from __future__ import annotations

from typing import NamedTuple

from torchmemlint.str_enum import StrEnum


class Becomes(StrEnum):
    """What grad mode becomes."""

    ON = "on"
    OFF = "off"
    MIXED = "mixed"
    """Either, not known which."""
    START = "start"
    """Back to the mode in which the function began."""
    TESTED = "tested"
    """On exactly when a test holds of a parameter."""


class GradEffect(NamedTuple):
    """``test`` is the test for ``TESTED``, see ``index.conditions``; else it is empty."""

    becomes: Becomes
    test: str = ""


ON, OFF = GradEffect(Becomes.ON), GradEffect(Becomes.OFF)
MIXED, START = GradEffect(Becomes.MIXED), GradEffect(Becomes.START)
_NEGATED = {ON: OFF, OFF: ON}


def on_if(test: str) -> GradEffect:
    return GradEffect(Becomes.TESTED, test)


def negated(effect: GradEffect) -> GradEffect:
    """The effect of switching grad on where another one switches it off."""
    if effect.becomes is Becomes.TESTED:
        return on_if(effect.test.removeprefix("not ") if effect.test.startswith("not ") else f"not {effect.test}")
    return _NEGATED.get(effect, MIXED)
