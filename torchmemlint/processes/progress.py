"""How far a run is, on a terminal, once it has taken a second.

Nothing where standard error is no terminal.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

PATIENCE_SECONDS = 1.0
_EVERY_SECONDS = 0.1


@dataclass(slots=True)
class Progress:
    """One line that is written over again and again. ``begin`` names what is done next, to how many files."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    _words: str = ""
    _total: int = 0
    _done: int = 0
    _next: float = field(default_factory=lambda: time.monotonic() + PATIENCE_SECONDS)
    _width: int = 0

    def begin(self, words: str, total: int) -> None:
        self._words, self._total, self._done = words, total, 0

    def add(self, files: int) -> None:
        """So many more files are done."""
        self._done += files
        now = time.monotonic()
        if now < self._next or not self.stream.isatty():
            return
        self._next = now + _EVERY_SECONDS
        self._write(f"{self._words} {self._done}/{self._total} files")

    def say(self, text: str) -> None:
        """What is done now, in one line of its own words."""
        if self.stream.isatty():
            self._write(text)

    def _write(self, text: str) -> None:
        self.stream.write(f"\r{text}{' ' * (self._width - len(text))}")
        self.stream.flush()
        self._width = len(text)

    def end(self) -> None:
        """Takes the line away."""
        if self._width:
            self.stream.write(f"\r{' ' * self._width}\r")
            self.stream.flush()
            self._width = 0
