"""The words of Python source that need not parse, as logical lines with their margins.

Python's own tokenizer gives up at the first thing that it does not know; this one goes on. It is asked only about text that Python's
parser refused, and reads it once from its beginning to its end.
"""

from __future__ import annotations

import keyword
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchmemlint.findings import Position
from torchmemlint.source.lines import Lines

TAB = 8
"""Columns between tab stops, as Python 2 counts them."""
NEWLINE = re.compile(r"\r\n|\r|\n")

_TOKEN = re.compile(
    r"""(?P<newline>\r\n|\r|\n)
    |   (?P<space>[ \t\f]+|\\(?:\r\n|\r|\n))
    |   (?P<comment>\#[^\r\n]*)
    |   (?P<triple>(?:[bBfFtT][rR]?|[rR][bBfFtT]?|[uU][rR]?)?(?:'''|\"\"\"))
    |   (?P<string>(?:[bBfFtT][rR]?|[rR][bBfFtT]?|[uU][rR]?)?(?:'(?:[^'\\\r\n]|\\(?:\r\n|.|\n|\r))*'?|"(?:[^"\\\r\n]|\\(?:\r\n|.|\n|\r))*"?))
    |   (?P<name>[^\W\d]\w*)
    |   (?P<number>(?:0[xXoObB][\da-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)[lLjJ]?)
    |   (?P<op><>|\*\*=?|//=?|>>=?|<<=?|->|:=|[-+*/%@&|^=<>!]=|.)
    """,
    re.VERBOSE,
)
_CLOSING = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in ("'''", '"""')}
_ONLY_AT_THE_BEGINNING = frozenset(
    [
        "assert",
        "break",
        "class",
        "continue",
        "def",
        "del",
        "elif",
        "except",
        "finally",
        "global",
        "import",
        "pass",
        "raise",
        "return",
        "try",
        "while",
        "with",
    ]
)
"""Words that begin a statement and stand nowhere else at the beginning of a row: a bracket that is open above them was never closed."""


class Token(NamedTuple):
    """A word or sign; ``kind`` is "name", "number", "string" or "op"."""

    kind: str
    start: int
    end: int
    text: str
    depth: int
    """Brackets that are open around it; both of a pair stand outside."""


@dataclass(slots=True)
class Line:
    """A logical line: ``start`` is where its first row begins, ``margin`` the column of its first word."""

    start: int
    margin: int
    tokens: list[Token] = field(default_factory=list)

    @property
    def first(self) -> str:
        return self.tokens[0].text

    @property
    def defined(self) -> str:
        """The name of the function or class that the line defines."""
        words = [token.text for token in self.tokens[:3]]
        words = words[words[:2] == ["async", "def"] :]
        named = len(words) > 1 and words[0] in ("def", "class") and words[1].isidentifier() and not keyword.iskeyword(words[1])
        return words[1] if named else ""

    @property
    def is_header(self) -> bool:
        """Whether a block of rows may follow."""
        return self.tokens[-1].text == ":" and self.tokens[-1].depth == 0


@dataclass(frozen=True, slots=True)
class Lexed:
    """The logical lines of a stretch of text, and where its comments stand."""

    text: str
    start: int
    end: int
    lines: Sequence[Line]
    comments: Sequence[tuple[int, int]]

    def position(self, offset: int) -> Position:
        """The row and column of an offset."""
        return Lines.of(self.text).position(offset)

    def blank(self, start: int, end: int) -> str:
        """A part of the text with nothing left but comments and the ends of rows."""
        out = []
        at = bisect_left(self.comments, (start, start))
        for newline in [*NEWLINE.finditer(self.text, start, end), None]:
            stop = end if newline is None else newline.start()
            while at < len(self.comments) and self.comments[at][0] < stop:
                out.append("  " + self.text[slice(*self.comments[at])])
                at += 1
            # A lone "\r" before the "\n" of an empty row would be one end of a row with it.
            out.append("" if newline is None else newline[0] if newline[0] != "\r" else "\n")
        return "".join(out)


def margin_of(text: str, start: int, end: int) -> int:
    """The column that a margin reaches."""
    column = 0
    for char in text[start:end]:
        column = 0 if char == "\f" else (column // TAB + 1) * TAB if char == "\t" else column + 1
    return column


def lex(text: str, start: int = 0, end: int | None = None) -> Lexed:
    """The logical lines of a text, or of the part of it from one beginning of a row to another."""
    end = len(text) if end is None else end
    lines: list[Line] = []
    comments: list[tuple[int, int]] = []
    never_closed: set[str] = set()
    depth, row, at = 0, start, start
    begins, fresh = True, True  # a logical line begins; so does a row
    while at < end:
        match = _TOKEN.match(text, at, end)
        assert match is not None  # its last alternative takes any character
        kind, word, first = match.lastgroup or "op", match[0], at
        at = match.end()
        if kind == "newline":
            row, fresh, begins = at, True, depth == 0
            continue
        if kind == "space":
            continue
        if kind == "comment":
            comments.append((first, at))
            continue
        if kind == "triple":
            at, kind = _end_of_string(text, at, end, word[-3:], never_closed), "string"
        if fresh and depth and word in _ONLY_AT_THE_BEGINNING:
            depth, begins = 0, True
        if begins:
            lines.append(Line(row, margin_of(text, row, first)))
        begins = fresh = False
        if kind == "op" and word in ")]}":
            depth = max(0, depth - 1)
        lines[-1].tokens.append(Token(kind, first, at, text[first:at], depth))
        if kind == "op" and word in "([{":
            depth += 1
    return Lexed(text, start, end, lines, comments)


def _end_of_string(text: str, at: int, end: int, quote: str, never_closed: set[str]) -> int:
    """Where a string of several rows ends; one that is never closed, with its row."""
    if quote not in never_closed:
        for found in _CLOSING[quote].finditer(text, at, end):
            if found[0] == quote:
                return found.end()
        never_closed.add(quote)
    newline = NEWLINE.search(text, at, end)
    return end if newline is None else newline.start()
