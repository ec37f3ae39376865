"""Rows and columns of a text.

Rows end where Python's own tokenizer ends them, at ``\\n``, ``\\r\\n`` and a lone ``\\r``, and nowhere else: ``str.splitlines``
also breaks at form feeds and Unicode separators, and would shift every row below one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from torchmemlint.findings import Edit, Position

_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a text. ``starts[i]`` is the offset in code points at which row ``i + 1`` begins.

    A text that ends in a newline has an empty last row, so that "after the last line" is a position too.
    """

    text: str
    starts: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Lines:
        return cls(text, (0, *(newline.end() for newline in _NEWLINE.finditer(text))))

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, row: int) -> str:
        """The text of a 1-based row without its newline. Raises IndexError where there is no such row."""
        if not 1 <= row <= len(self.starts):
            raise IndexError(f"no row {row} in a text of {len(self.starts)} rows")
        start = self.starts[row - 1]
        if row == len(self.starts):
            return self.text[start:]
        end = self.starts[row] - 1
        if self.text[end] == "\n" and end > start and self.text[end - 1] == "\r":
            end -= 1
        return self.text[start:end]

    def newline_of(self, row: int) -> str:
        """The characters that end a row, "" for the last one."""
        if row >= len(self.starts):
            return ""
        return self.text[self.starts[row - 1] + len(self.row(row)) : self.starts[row]]

    def offset(self, at: Position) -> int:
        """The offset of a position. Raises IndexError where the row or column does not exist."""
        length = len(self.row(at.row))
        if not 1 <= at.column <= length + 1:
            raise IndexError(f"no column {at.column} in row {at.row}")
        return self.starts[at.row - 1] + at.column - 1

    def edited(self, edits: Iterable[Edit]) -> str:
        """The text after edits that do not overlap. Raises IndexError where one lies outside."""
        pieces = []
        done = 0
        for edit in sorted(edits, key=lambda one: one.span):
            pieces += [self.text[done : self.offset(edit.span.start)], edit.content]
            done = self.offset(edit.span.end)
        return "".join([*pieces, self.text[done:]])

    def position(self, offset: int) -> Position:
        """The position of an offset between 0 and the length of the text."""
        row = bisect_right(self.starts, offset)
        return Position(row, offset - self.starts[row - 1] + 1)
