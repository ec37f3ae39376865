"""Grad modes in which functions start."""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.index.edges import Caller
from torchmemlint.str_enum import StrEnum


class StartMode(StrEnum):
    """A grad mode in which a function starts, by all callers or by one of them."""

    ON = "on"
    OFF = "off"
    MIXED = "mixed"
    """By all callers: on under some, off under others."""
    CHOSEN = "chosen"
    """By one caller: on where a flag asks for it."""
    NO_CALLERS = "no-callers"
    """No visible code calls it, or only what no visible code calls."""
    UNSEEN_BASE = "unseen-base"
    """It overrides a method of a class that is not visible, which may call it in any mode."""
    ESCAPES = "escapes"
    """It is handed on as a value."""
    UNKNOWN = "unknown"
    """What the index says is not trusted: see ``semantics.mode.grad_guards.start_mode``."""


@dataclass(frozen=True, slots=True)
class CallerMode:
    """The grad mode in which a function starts.

    mode   by all callers together
    path   the calls through which grad is on (or the start is unknown), the immediate caller first; empty for "off". Some may
           not be certain (``Caller.certain``), but only where no chain of certain calls leads there
    assumed  True when the path ends at a function that no visible code calls: "on" is an assumption there
    chosen   for "mixed": grad is on only under managers and statements that leave it to a flag (``set_grad_enabled(training)``,
             ``no_grad() if fast else nullcontext()``): who asks for it there wants it
    """

    mode: StartMode
    path: tuple[Caller, ...] = ()
    assumed: bool = False
    chosen: bool = False
