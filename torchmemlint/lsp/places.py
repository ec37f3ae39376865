"""Rows and columns ↔ lines and characters of the protocol, also of what differs between two texts.

Ours are 1-based, columns in code points. The protocol's are 0-based, characters in the units that editor and server agreed on:
UTF-16, unless the editor asks for UTF-8 or UTF-32. Lines end where ours do: at ``\\n``, ``\\r\\n`` and ``\\r``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from torchmemlint.findings import Position, Span
from torchmemlint.source.columns import from_utf16, utf8_column, utf16_column
from torchmemlint.source.lines import Lines

Place = tuple[int, int]
"""Line and character of the protocol."""


@dataclass(frozen=True, slots=True)
class Places:
    """Places in one text; ``encoding`` is ``utf-8``, ``utf-16`` or ``utf-32``. A byte order mark is a character of the first
    line to an editor that keeps it, and none to us."""

    lines: Lines
    encoding: str
    mark: int = 0

    @classmethod
    def of(cls, text: str, encoding: str) -> Places:
        marked = text.startswith("\ufeff")
        return cls(Lines.of(text[1:] if marked else text), encoding, {"utf-8": 3}.get(encoding, 1) if marked else 0)

    def place(self, at: Position) -> Place:
        """The nearest place that exists: a text may have changed since it was checked."""
        row = min(at.row, len(self.lines))
        text = self.lines.row(row)
        column = min(at.column, len(text) + 1)
        if self.encoding == "utf-8":
            column = utf8_column(text, column)
        elif self.encoding == "utf-16":
            column = utf16_column(text, column)
        return row - 1, column - 1 + (self.mark if row == 1 else 0)

    def position(self, place: Place) -> Position:
        """The position of a place; one after the end of its line is that end, as the protocol has it."""
        line, character = place
        row = min(line + 1, len(self.lines))
        text = self.lines.row(row)
        column = max(0, character - (self.mark if row == 1 else 0)) + 1
        if self.encoding == "utf-8":
            column = len(text.encode("utf-8", "surrogatepass")[: column - 1].decode("utf-8", "ignore")) + 1
        elif self.encoding == "utf-16":
            column = from_utf16(text, column)
        return Position(row, min(column, len(text) + 1))

    def span(self, span: Span) -> tuple[Place, Place]:
        return self.place(span.start), self.place(span.end)

    def line_start(self, row: int) -> Place:
        if row > len(self.lines):
            return self.place(Position(len(self.lines), len(self.lines.row(len(self.lines))) + 1))
        return self.place(Position(row, 1))


def edits(before: str, after: str, encoding: str) -> Iterator[tuple[Place, Place, str]]:
    """What to replace in ``before``, whole lines at a time, for it to be ``after``."""
    places = Places.of(before, encoding)
    old, new = places.lines, Lines.of(after.removeprefix("\ufeff"))
    was, is_now = ([lines.row(row) + lines.newline_of(row) for row in range(1, len(lines) + 1)] for lines in (old, new))
    for kind, start, end, new_start, new_end in SequenceMatcher(None, was, is_now, autojunk=False).get_opcodes():
        if kind != "equal":
            yield places.line_start(start + 1), places.line_start(end + 1), "".join(is_now[new_start:new_end])
