"""Why code does not run, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.str_enum import StrEnum


class Why(StrEnum):
    """What keeps code from running."""

    UNUSED_FILE = "unused-file"
    """Nothing imports or runs its file."""
    UNUSED_FUNCTION = "unused-function"
    """A program is visible that does not use the function."""
    TEST = "test"
    """Only tests run it."""
    UNUSED_CLASS = "unused-class"
    """A program is visible that makes no object of its class."""
    UNREACHED = "unreached"
    """Nothing calls the function, or only functions that nothing calls, where a program runs others of its file."""
    LEFT_OVER = "left-over"
    """Nothing calls the function, though other files use its file."""
    CONSTANT = "constant"
    """It stands under a test that nothing in the project makes true."""
    CALL = "call"
    """A call that does not fit the signature of its function raises before it."""
    NAME = "name"
    """A name that nothing binds is read before it."""
    ATTRIBUTE = "attribute"
    """An attribute that nothing defines is read before it."""
    IMPORT = "import"
    """Something is imported that is not there."""
    OLD_PYTHON = "old-python"
    """It needs Python 2."""
    OLD_TORCH = "old-torch"
    """It needs a torch before 1.0."""


class KnownBy(StrEnum):
    """How sure that is."""

    RESOLVED = "resolved names"
    """Every name that it rests on is resolved."""
    ALL_CALLERS = "all callers"
    """Every call of the function is visible, and every file that may import its own."""
    NAME = "a user's name"
    """How a folder, file or function is called."""


@dataclass(frozen=True, slots=True)
class Reason:
    """``words`` say it behind a semicolon: "nothing in the project calls this function"."""

    why: Why
    known_by: KnownBy
    words: str
