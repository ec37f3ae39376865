"""Source that this Python cannot parse, as far as it can be read all the same: for the analysis alone.

Three steps, each only where the one before was not enough:

1. What an older Python read is put in today's words (``remains``).
2. Margins that mix tabs and spaces are read with tab stops of 8, as Python 2 did.
3. The text is split at its functions, classes and statements; those that do not parse are left out, the rest stays. A function is
   left out with its body: half of one is another program. In its place stands a call of ``code_not_read`` with all names that it
   says, so that nothing is concluded from what cannot be seen.

Rows stay what they are; ``Reading.original`` leads from a column to that of the file. Every row is parsed a few times at most: once
for each class or function around it.
"""

from __future__ import annotations

import ast
import keyword
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from torchmemlint.findings import INTERNAL_ERROR, UNUSED_SUPPRESSION, Finding, Position, Severity, Span
from torchmemlint.source.lines import Lines
from torchmemlint.source.newer import is_newer, syntax_message
from torchmemlint.source.remains import COMPOUND, PYTHON_2, Change, changes, is_of_python_3, plain_margins
from torchmemlint.source.tokens import Lexed, Line, lex, margin_of

MOST_LEFT_OUT = 20
"""Places that may be left out; what has more of them is hardly Python."""
DEEPEST = 6
"""Classes and functions in each other that are looked into for the smallest one that cannot be read."""
MOST_NAMES = 200
NOT_READ = "code_not_read"
"""What is called in the place of what is left out."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Rows that were left out (none where the file was read in full), what the parser says, and where."""

    message: str
    row: int
    column: int
    rows: tuple[int, int] | None = None


@dataclass(frozen=True)
class Reading:
    """A text that parses in the place of one that does not.

    text         what is analysed
    given        what stands in the file
    changes      what was changed, in order
    troubles     what could not be read; in a file that an older Python reads in full, what today's says of it
    written_for  the Python that reads the file ("Python 2"), "" where that is not known
    in_cells     it is that of a notebook, whose other cells run all the same
    """

    text: str
    given: str
    changes: tuple[Change, ...]
    troubles: tuple[Trouble, ...]
    written_for: str = ""
    in_cells: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out."""
        return all(trouble.rows is None for trouble in self.troubles)

    @property
    def is_of_older_python(self) -> bool:
        """Whether an older Python reads all of it."""
        return bool(self.written_for) and self.is_whole

    @property
    def runs_nowhere(self) -> bool:
        """Whether no Python reads the file."""
        return not self.in_cells and any(trouble.rows and not is_newer(trouble.message) for trouble in self.troubles)

    @property
    def message(self) -> str:
        """What the report says of it, in one line."""
        first = self.troubles[0]
        if self.is_of_older_python:
            return f"written for {self.written_for}: it is read as such, and its findings are notes ({first.message})"
        stretches: list[tuple[int, int]] = []
        for start, end in sorted(trouble.rows for trouble in self.troubles if trouble.rows is not None):
            if stretches and start <= stretches[-1][1] + 1:
                start, end = stretches.pop()[0], end
            stretches.append((start, end))
        ranges = [f"{start}-{end}" if start < end else str(start) for start, end in stretches]
        if not ranges:
            return first.message
        several = len(ranges) > 1 or "-" in ranges[0]
        return f"{first.message}; {'lines' if several else 'line'} {', '.join(ranges)} {'are' if several else 'is'} not checked"

    def original(self, at: Position) -> Position:
        """The place in the file of one in ``text``."""
        column, shift = at.column - 1, 0
        for start, end, new in self._by_row.get(at.row, ()):
            if column < start + shift:
                break
            if column < start + shift + new:
                return Position(at.row, min(column - shift, end) + 1)
            shift += new - (end - start)
        lines = self._given_lines
        longest = len(lines.row(at.row)) if at.row <= len(lines) else 0
        return Position(at.row, min(column - shift, longest) + 1)

    def span(self, span: Span) -> Span:
        """As ``original``, for both ends."""
        return Span(self.original(span.start), self.original(span.end))

    def relocated(self, finding: Finding) -> Finding:
        """A finding in ``text`` as one of the file: at its place there, and without a fix. What was written for another
        Python, or for none, does not run today, so it costs nobody much."""
        flow = tuple(replace(step, span=self.span(step.span)) if step.path == finding.path else step for step in finding.flow)
        finding = replace(finding, span=self.span(finding.span), flow=flow, fix=None)
        if finding.code in (INTERNAL_ERROR, UNUSED_SUPPRESSION) or not (self.written_for or self.runs_nowhere):
            return finding
        why = f"written for {self.written_for}" if self.written_for else "once the file is valid Python"
        return replace(finding, severity=Severity.NOTE, help=f"{why}: {finding.help}".removesuffix(": "))

    @cached_property
    def _given_lines(self) -> Lines:
        return Lines.of(self.given)

    @cached_property
    def _by_row(self) -> dict[int, list[tuple[int, int, int]]]:
        """By row the changes in it: from which column to which, counted from 0, and how long what is there now is."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for start, end, new, _ in self.changes:
            first, last = self._given_lines.position(start), self._given_lines.position(end)
            if first.row == last.row:
                found.setdefault(first.row, []).append((first.column - 1, last.column - 1, len(new)))
        return found


@lru_cache(maxsize=4)
def read(text: str) -> Reading | None:
    """How a text can be read that does not parse; None for one that does, or of which nothing can be read."""
    error = _error(text)
    lexed = lex(text) if error is not None and error.lineno else None
    if error is None or lexed is None or not lexed.lines:
        return None
    newer = _of_newer_python(text, lexed)
    for changed in _of_older_python(text, lexed, [change for change, _ in newer]):
        code = _applied(text, changed)
        if _error(code) is None:
            first = Trouble(syntax_message(error, text), error.lineno or 1, max(error.offset or 1, 1))
            troubles = tuple(trouble for _, trouble in newer) or (first,)
            return Reading(code, text, tuple(changed), troubles, "" if newer else _written_for(code, changed))
    return _Parts(text, error, newer).reading(lexed)


def readable(text: str) -> str:
    """A text as it is analysed: what can be read of it where it does not parse."""
    reading = read(text)
    return text if reading is None else reading.text


def joined(parts: Iterable[tuple[str, str, Reading | None]]) -> Reading:
    """The reading of a text that is made of others, each below a row of its own: (that row, the text, how it is read)."""
    text = given = ""
    changed: list[Change] = []
    troubles: list[Trouble] = []
    written_for: set[str] = set()
    for mark, code, reading in parts:
        text, given = f"{text}{mark}", f"{given}{mark}"
        if reading is not None:
            changed += [one._replace(start=one.start + len(given), end=one.end + len(given)) for one in reading.changes]
            troubles += reading.troubles
            written_for.add(reading.written_for)
        text, given = f"{text}{code}\n", f"{given}{code if reading is None else reading.given}\n"
    return Reading(text, given, tuple(changed), tuple(troubles), min(written_for - {""}, default=""), in_cells=True)


def _of_older_python(text: str, lexed: Lexed, newer: Sequence[Change]) -> Iterator[Sequence[Change]]:
    words = _together(changes(lexed.lines), newer)
    if newer:
        yield newer
    if len(words) > len(newer):
        yield words
    if margins := plain_margins(text, lexed.lines):
        yield sorted([*words, *(change._replace(of=PYTHON_2) for change in margins)])


def _together(words: Iterable[Change], newer: Iterable[Change]) -> list[Change]:
    """All changes, less those in statements that are left out."""
    spans = [(start, end) for start, end, _, _ in newer]
    return sorted([*newer, *(one for one in words if not any(start <= one.start < end for start, end in spans))])


def _of_newer_python(text: str, lexed: Lexed) -> list[tuple[Change, Trouble]]:
    """Simple statements that are left out alone, for the sake of an f-string of Python 3.12: what they do to graphs is known, and
    to leave out the function for a line that it prints would leave out what works."""
    found: list[tuple[Change, Trouble]] = []
    if sys.version_info >= (3, 12):
        return found
    for line in lexed.lines:
        words = {token.text for token in line.tokens}
        formatted = any(token.kind == "string" and token.text[0] in "fFrR" for token in line.tokens)
        if not formatted or line.is_header or words & {"yield", "await", ";"} or len(found) == MOST_LEFT_OUT:
            continue
        start, end = line.tokens[0].start, line.tokens[-1].end
        error = _error(text[start:end])
        if error is None or not is_newer(message := syntax_message(error, text[start:end])):
            continue
        names, assigned = _names([line], 0)
        does = (
            "print" if line.first == "print" else f"{line.first} {NOT_READ}" if line.first in ("return", "raise") else NOT_READ
        )
        call = f"{does}({', '.join(names)})"
        new = call if does != NOT_READ else " = ".join([*assigned, call])
        at, last = lexed.position(start), lexed.position(end)
        row = min(at.row + (error.lineno or 1) - 1, last.row)
        found.append(
            (Change(start, end, new + lexed.blank(start, end), ""), Trouble(message, row, at.column, (at.row, last.row)))
        )
    return found


def _written_for(code: str, changed: Iterable[Change]) -> str:
    of = min({change.of for change in changed} - {""}, default="")  # "Python 2" before all others
    return "" if of == PYTHON_2 and is_of_python_3(_parse(code)) else of


@dataclass(slots=True)
class _Parts:
    """The parts of one text that parse, and those that are left out."""

    text: str
    error: SyntaxError
    newer: Sequence[tuple[Change, Trouble]]
    changes: list[Change] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    read: int = 0
    lines: Lines = field(init=False)

    def __post_init__(self) -> None:
        self.lines = Lines.of(self.text)

    def reading(self, lexed: Lexed) -> Reading | None:
        self._block(lexed, 0, 0)
        changed = sorted(set(self.changes))
        self.troubles += [trouble for change, trouble in self.newer if change in changed]
        apart = all(one.end <= other.start for one, other in pairwise(changed))
        if not self.read or not 0 < len(self.troubles) <= MOST_LEFT_OUT or not apart:
            return None
        text = _applied(self.text, changed)
        if _error(text) is not None:
            return None
        troubles = tuple(sorted(self.troubles, key=lambda trouble: trouble.row))
        return Reading(text, self.text, tuple(changed), troubles, _written_for(text, changed))

    def _block(self, lexed: Lexed, margin: int, depth: int, split: bool = True) -> None:
        """Reads statements that stand below each other at a margin."""
        done: list[_Statement] = []
        for lines in _statements(lexed.lines):
            if done:
                done[-1].end = lines[0].start
            done.append(_Statement(lines, lines[0].start, lexed.end))
        found: list[_Statement] = []
        for one in done:
            one.error, one.changed = self._tried(one, margin)
            one.inside = self._defined_inside(one) if one.error is not None and split else ()
            heads = one.header.is_header or one.header.first in COMPOUND
            hangs = one.error is not None and not one.inside and not heads and one.lines[-1].margin > margin
            if hangs and found:
                # What hangs here belongs to what stands above, of which only the beginning would be read.
                above = found.pop()
                one = _Statement([*above.lines, *one.lines], above.start, one.end, one.error)
            found.append(one)
        for one in found:
            if one.error is None:
                self._keep(one.changed)
            elif one.inside:
                # A string or bracket that is never closed took definitions for its own: each is read by itself.
                for start, end in pairwise([one.start, *one.inside, one.end]):
                    self._block(lex(self.text, start, end), margin, depth, split=False)
            elif not self._in_part(one, depth):
                self._leave_out(lexed, one, margin)

    def _keep(self, changed: Iterable[Change]) -> None:
        self.changes += changed
        self.read += 1

    def _tried(self, one: _Statement, margin: int) -> tuple[SyntaxError | None, Sequence[Change]]:
        """Why a statement cannot be read, and what has to be changed for it to be read."""
        if one.lines[0].margin != margin:
            return self._numbered(IndentationError("unexpected indentation"), one.start, 1), ()
        return self._readable(one.lines, one.start, one.end)

    def _readable(
        self, lines: Sequence[Line], start: int, end: int, behind: str = ""
    ) -> tuple[SyntaxError | None, Sequence[Change]]:
        """As ``_tried``, for a stretch of the text with something behind it."""
        margins = plain_margins(self.text, lines)
        error = self._refused(start, end, margins, behind)
        if error is None:
            return None, margins
        newer = [change for change, _ in self.newer if start <= change.start < end]
        for words in (newer, _together(changes(lines), newer)):
            changed = sorted([*words, *margins])
            if words and self._refused(start, end, changed, behind) is None:
                return None, changed
        return error, ()

    def _refused(self, start: int, end: int, changed: Iterable[Change], behind: str) -> SyntaxError | None:
        code = _applied(self.text, changed, start, end) + behind
        indented = code[:1] in (" ", "\t")
        error = _error("if 1:\n" + code if indented else code)
        return error and self._numbered(error, start, (error.lineno or 1) - indented)

    def _numbered(self, error: SyntaxError, start: int, row: int) -> SyntaxError:
        above = self.lines.position(start).row - 1
        moved = row - (error.lineno or row) + above
        error.msg = _LINE.sub(lambda line: f"line {max(1, int(line[1]) + moved)}", error.msg)
        error.lineno = min(max(1, row) + above, len(self.lines))
        error.text = self.lines.row(error.lineno)
        return error

    def _defined_inside(self, one: _Statement) -> tuple[int, ...]:
        """Where rows at the margin of a statement define something, though they seem to stand in a string or bracket."""
        known = {line.start for line in one.lines}
        found = []
        decorated = False
        for row in range(self.lines.position(one.start).row + 1, self.lines.position(one.end).row):
            text = self.lines.row(row)
            code = text.lstrip(" \t\f")
            if margin_of(text, 0, len(text) - len(code)) == one.lines[0].margin and code.startswith(_DEFINES):
                at = self.lines.starts[row - 1]
                if at not in known and not decorated:
                    found.append(at)
                decorated = code.startswith("@")
            elif code:
                decorated = False
        return tuple(found)

    def _in_part(self, one: _Statement, depth: int) -> bool:
        """Reads what can be read of a class, of a function but for the functions in it, or below an ``if``."""
        header, behind = one.header, one.lines.index(one.header) + 1
        body = one.lines[behind:]
        if depth == DEEPEST or not body or not header.is_header or body[0].margin <= header.margin:
            return False
        error, changed = self._readable(one.lines[:behind], one.start, header.tokens[-1].end, " pass")
        one_suite = all(line.margin > header.margin for line in body)
        if error is not None or not one_suite:
            return False
        inner = lex(self.text, body[0].start, one.end)
        if header.first not in ("class", "if") and not (header.defined and self._only_functions(inner)):
            return False
        self._keep(changed)
        self._block(inner, body[0].margin, depth + 1)
        return True

    def _only_functions(self, inner: Lexed) -> bool:
        """Whether all that cannot be read in a body are functions in it."""
        bodies = [_Statement(lines, lines[0].start, lines[-1].tokens[-1].end) for lines in _statements(inner.lines)]
        margin = bodies[0].lines[0].margin
        return all(
            one.lines[0].margin == margin and (one.header.first in ("def", "async") or self._tried(one, margin)[0] is None)
            for one in bodies
        )

    def _leave_out(self, lexed: Lexed, one: _Statement, margin: int) -> None:
        """Puts a call with all names that a statement says in its place."""
        assert one.error is not None
        header, defined = one.header, one.header.defined
        colon = next((token.end for token in header.tokens if token.text == ":" and token.depth == 0), 0)
        lines = one.lines[: one.lines.index(header) + 1]
        is_function = defined and header.first != "class" and colon and one.lines[0].margin == margin
        error, changed = self._readable(lines, one.start, colon, " pass") if is_function else (one.error, ())
        names, assigned = _names(one.lines, colon if error is None else 0)
        call = f"{NOT_READ}({', '.join(names)})"
        if error is None:
            attributes = [name for name in assigned if "." in name]
            body = f" {' = '.join([*attributes, call])}; return {NOT_READ}()"
            new = _applied(self.text, [each for each in changed if each.end <= colon], one.start, colon)
            new += body + lexed.blank(colon, one.end)
        else:
            targets = [defined] if defined else assigned
            new = " " * margin + " = ".join([*targets, call]) + lexed.blank(one.start, one.end)
        self.changes.append(Change(one.start, one.end, new, ""))
        rows = self.lines.position(one.start).row, self.lines.position(one.lines[-1].tokens[-1].end).row
        # What the parser says of the whole text is better put, if it means this.
        error = self.error if rows[0] <= (self.error.lineno or 1) <= rows[1] + 1 else one.error
        self.troubles.append(Trouble(syntax_message(error, self.text), error.lineno or 1, max(error.offset or 1, 1), rows))


@dataclass(slots=True)
class _Statement:
    """A statement with what is attached to it; what is wrong with it, or what has to be changed; what seems to be defined in a
    string or bracket of it."""

    lines: Sequence[Line]
    start: int
    end: int
    error: SyntaxError | None = None
    changed: Sequence[Change] = ()
    inside: Sequence[int] = ()

    @property
    def header(self) -> Line:
        """The line behind the decorators."""
        return next((line for line in self.lines if line.first != "@"), self.lines[-1])


_LINE = re.compile(r"\bline (\d+)")
_DEFINES = ("def ", "class ", "async def ", "@")


def _statements(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """The statements of a block, each with what is attached to it: decorators above, blocks and further clauses below."""
    if not lines:
        return
    margin = lines[0].margin
    start = 0
    for at in range(1, len(lines)):
        line, above = lines[at], lines[at - 1]
        hangs = line.margin > margin or line.first in ("elif", "else", "except", "finally")
        if not hangs and not (above.first == "@" and above.margin == line.margin):
            yield lines[start:at]
            start, margin = at, line.margin
    yield lines[start:]


def _names(lines: Sequence[Line], start: int) -> tuple[list[str], list[str]]:
    """The names, dotted, that some lines say behind ``start``, and those of them that they assign or import."""
    names: dict[str, None] = {}
    assigned: dict[str, None] = {}
    for line in lines:
        tokens = [token for token in line.tokens if token.start >= start]
        importing = line.first in ("import", "from")
        at = 0
        while at < len(tokens):
            first = at
            if tokens[at].kind != "name" or keyword.iskeyword(tokens[at].text) or tokens[at].text in ("print", "exec"):
                at += 1
                continue
            name = tokens[at].text
            at += 1
            while at + 1 < len(tokens) and tokens[at].text == "." and tokens[at + 1].kind == "name":
                if keyword.iskeyword(tokens[at + 1].text):
                    break
                name += "." + tokens[at + 1].text
                at += 2
            before = tokens[first - 1].text if first else ""
            if before == "." or not name.isascii():
                continue
            binds = at < len(tokens) and tokens[at].text == "=" and tokens[at].depth == 0
            if not binds:
                names[name] = None
            if binds or before in ("def", "class", "as") or (importing and before in ("import", ",", "(") and "." not in name):
                assigned[name] = None
    return list(names)[:MOST_NAMES], list(assigned)[:MOST_NAMES]


def _applied(text: str, changed: Iterable[Change], start: int = 0, end: int | None = None) -> str:
    """A text, or a stretch of it, after the changes in it."""
    pieces = []
    for first, last, new, _ in changed:
        pieces += [text[start:first], new]
        start = last
    return "".join([*pieces, text[start:end]])


def _parse(code: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def _error(code: str) -> SyntaxError | None:
    """Why a text does not parse; without a row where that is no matter of syntax."""
    try:
        _parse(code)
    except SyntaxError as error:
        return error
    except ValueError as error:
        return SyntaxError(f"cannot be parsed: {error}")
    except (RecursionError, MemoryError):
        return SyntaxError("is nested too deeply to be parsed")
    return None
