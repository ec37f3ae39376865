"""Jupyter notebooks: the code cells as one Python module, from which there is a way back.

The module has the cells in order, each below a mark of ours:

    # torchmemlint: enable, cell 2
    import torch
    pass                    # magic 0          (%matplotlib inline)
    # torchmemlint: enable, cell 4
    if 1: model.fit(loader) # magic 1          (%time model.fit(loader))

- Data flows across cells as it does when they are run from top to bottom.
- What only IPython reads is masked by Python of the same width; a line magic that runs its line (``%time``) keeps it. Masked
  rows are known by their tails, are never edited, and become what they were when the notebook is written.
- Marks show in which cell a row is, also after a fix has added rows. They end a ``disable`` comment of the cell above.
- Left out: cells of another language (``%%bash``), and those that do not parse, which are reported one by one.

Writing back replaces the ``source`` of changed cells in the file's text, row by row in its own style, and nothing else.
"""

from __future__ import annotations

import json
import re
import textwrap
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.findings import Finding, FlowStep, Position, Span
from torchmemlint.source import is_notebook
from torchmemlint.source.lines import Lines
from torchmemlint.source.magics import TAIL, syntax_error, without_escapes

if TYPE_CHECKING:
    from torchmemlint.source.tolerant import Reading

_MARK = "# torchmemlint: enable, cell "

_PYTHON = frozenset({"python", "ipython"})
_RUNS_ITS_CELL = frozenset(
    ("capture", "debug", "ipytest", "memit", "mprun", "prun", "pypy", "python", "python3", "scalene", "time", "timeit", "wandb")
)
"""Cell magics below which Python stands."""


@dataclass(frozen=True)
class Cell:
    """A cell of Python: its number among all cells (1-based), its source, and the same masked; how it is read where it does not
    parse."""

    number: int
    source: str
    code: str
    reading: Reading | None = None


@dataclass(frozen=True)
class Notebook:
    """A notebook's text and the code in it.

    raw         the text of the file, without a byte order mark
    cells       the cells that the module is made of
    broken      (cell, its source, what is wrong there) of the cells of which nothing can be read
    other       why there is no code at all ("its kernel runs julia"), "" when there may be some
    originals   the masked rows as they were, by the number in their tail
    nonce       ends marks and tails, so that no row of the user's looks like one
    """

    raw: str
    cells: tuple[Cell, ...] = ()
    broken: tuple[tuple[int, str, SourceError], ...] = ()
    other: str = ""
    originals: tuple[str, ...] = ()
    nonce: str = ""

    @cached_property
    def code(self) -> str:
        return "".join(f"{_MARK}{cell.number}{self.nonce}\n{cell.code}\n" for cell in self.cells)

    @cached_property
    def reading(self) -> Reading | None:
        """How the module is read where cells of it do not parse; None where all do."""
        if all(cell.reading is None for cell in self.cells):
            return None
        from torchmemlint.source import tolerant

        return tolerant.joined([(f"{_MARK}{cell.number}{self.nonce}\n", cell.code, cell.reading) for cell in self.cells])

    def with_code(self, code: str) -> str:
        """The text of the file when its cells hold what ``code`` says. Raises SourceError where that cannot be."""
        if code == self.code:
            return self.raw
        pieces = []
        done = 0
        for cell, source in zip(self.cells, self._sources(code), strict=True):
            if source != cell.source:
                value = self._values[cell.number]
                pieces += [self.raw[done : value.start], value.holding(self.raw, source, self._ascii)]
                done = value.end
        raw = "".join([*pieces, self.raw[done:]])
        if read_notebook(raw).code != code:  # what is written here is worth a second look
            raise SourceError("the fixed code cannot be put back into the notebook's cells")
        return raw

    def editable(self, lines: Lines, span: Span) -> bool:
        """Whether a span of the module keeps clear of marks and masked rows; ``lines`` are those of the module."""
        first, last = span.start.row, span.end.row
        if span.start == span.end and span.start.column == 1:
            return first > 1  # in front of a row, which stays as it is; above the first mark is no cell
        return not any(self._is_ours(lines.row(row)) for row in range(first, min(last, len(lines)) + 1))

    def rows_of_cells(self, lines: Lines) -> CellRows:
        """Where the cells begin in the module, as it is now."""
        found = []
        waiting = iter(self.cells)
        cell = next(waiting, None)
        for row in range(1, len(lines) + 1):
            if cell is None:
                break
            if lines.row(row) == f"{_MARK}{cell.number}{self.nonce}":
                found.append((row, cell.number))
                cell = next(waiting, None)
        masked = (row for row in range(1, len(lines) + 1) if self.originals and self._tail.match(lines.row(row)))
        return CellRows(tuple(found), frozenset(masked))

    def source_of(self, cell: int) -> str | None:
        """What the user sees in a cell; None where there is no such code cell."""
        value = self._values.get(cell)
        return None if value is None else value.text

    def in_file(self, cell: int, at: Position) -> Position:
        """The position in the file's own text of one in a cell (after a row's end: its end). Raises KeyError or IndexError
        where there is no such cell or row."""
        value = self._values[cell]
        lines = Lines.of(value.text)
        at = Position(at.row, min(at.column, len(lines.row(at.row)) + 1))
        return self._raw_lines.position(value.offset(self.raw, lines.offset(at)))

    def rows_in_file(self, lines: Lines) -> dict[int, int]:
        """The row in the file's own text of each row of the module that stands in a cell; ``lines`` are those of the module."""
        rows = {}
        for first, cell in self.rows_of_cells(lines).begins:
            for row in range(1, len(Lines.of(self._values[cell].text)) + 1):
                rows[first + row] = self.in_file(cell, Position(row, 1)).row
        return rows

    def replaced(self, cell: int, source: str) -> tuple[Span, str]:
        """What stands for a cell's ``source`` in the file, and what has to, for it to be ``source``."""
        value = self._values[cell]
        where = Span(self._raw_lines.position(value.start), self._raw_lines.position(value.end))
        return where, value.holding(self.raw, source, self._ascii)

    @cached_property
    def _raw_lines(self) -> Lines:
        return Lines.of(self.raw)

    @cached_property
    def _values(self) -> dict[int, _Value]:
        return dict(_values(self.raw))

    @cached_property
    def _ascii(self) -> bool:
        """Whether the file was written with every other character escaped."""
        return self.raw.isascii() and re.search(r"\\u(?!00[01])", self.raw) is not None

    @cached_property
    def _tail(self) -> re.Pattern[str]:
        return re.compile(rf".*{TAIL}(\d+){re.escape(self.nonce)}\Z", re.DOTALL)

    def _is_ours(self, row: str) -> bool:
        return self._tail.match(row) is not None or (row.startswith(_MARK) and row.endswith(self.nonce))

    def _sources(self, code: str) -> Iterator[str]:
        """What each cell holds, given the module."""
        lines = Lines.of(code)
        begins = [*(row for row, _ in self.rows_of_cells(lines).begins), len(lines)]
        if len(begins) != len(self.cells) + 1 or begins[0] != 1 or lines.row(len(lines)):
            raise SourceError("the fixed code cannot be put back into the notebook's cells")
        for cell, first, end in zip(self.cells, begins, begins[1:], strict=False):
            code_of_cell = code[lines.starts[first] : lines.starts[end - 1] - 1]
            yield cell.source if code_of_cell == cell.code else self._unmasked(Lines.of(code_of_cell))

    def _unmasked(self, lines: Lines) -> str:
        rows = []
        for row in range(1, len(lines) + 1):
            text = lines.row(row)
            masked = self._tail.match(text)
            rows.append((self.originals[int(masked[1])] if masked else text) + lines.newline_of(row))
        return "".join(rows)


@dataclass(frozen=True, slots=True)
class CellRows:
    """(row of the mark, cell) for each cell of a module, and the rows that are masked."""

    begins: tuple[tuple[int, int], ...]
    masked: frozenset[int] = frozenset()

    def place(self, row: int) -> tuple[int | None, int]:
        """The cell of a row of the module, and the row in it."""
        index = bisect_right(self.begins, row, key=lambda begin: begin[0]) - 1
        if index < 0:
            return None, row
        first, cell = self.begins[index]
        return cell, max(1, row - first)

    def in_cells(self, finding: Finding) -> Finding:
        """A finding in the module as one in a cell. Its steps are left as they are."""
        if finding.cell is not None:
            return finding
        cell, _ = self.place(finding.span.start.row)
        fix = finding.fix
        if fix is not None:
            touched = {row for edit in fix.edits for row in range(edit.span.start.row, edit.span.end.row + 1)}
            if any(self.place(row)[0] != cell for row in touched):
                fix = None  # no format has a fix over several cells; --fix does it all the same
            elif touched & self.masked:
                fix = None  # nor does --fix change a row with a magic
            else:
                fix = replace(fix, edits=tuple(replace(edit, span=self._span(edit.span)) for edit in fix.edits))
        return replace(
            finding,
            cell=cell,
            span=self._span(finding.span),
            noqa_rows=frozenset(self.place(row)[1] for row in finding.noqa_rows if self.place(row)[0] == cell),
            noqa_row=self.place(finding.noqa_row)[1] if finding.noqa_row else 0,
            fix=fix,
        )

    def in_module(self, finding: Finding) -> Finding:
        """A finding in a cell as one in the module; its steps are left as they are. Raises KeyError for a cell that is not in it."""
        first = {cell: row for row, cell in self.begins}[finding.cell or 0]

        def moved(span: Span) -> Span:
            return Span(*(Position(at.row + first, at.column) for at in (span.start, span.end)))

        fix = finding.fix
        return replace(
            finding,
            cell=None,
            span=moved(finding.span),
            noqa_rows=frozenset(row + first for row in finding.noqa_rows),
            noqa_row=finding.noqa_row + first,
            fix=fix and replace(fix, edits=tuple(replace(edit, span=moved(edit.span)) for edit in fix.edits)),
        )

    def step_in_cells(self, step: FlowStep) -> FlowStep:
        """A step in the module as one in a cell."""
        cell, _ = self.place(step.span.start.row)
        return replace(step, cell=cell, span=self._span(step.span))

    def _span(self, span: Span) -> Span:
        start, end = (Position(self.place(at.row)[1], at.column) for at in (span.start, span.end))
        if self.place(span.end.row)[0] != self.place(span.start.row)[0]:
            # Up to the beginning of the next cell's mark: the row after the last of this one.
            end = Position(start.row + span.end.row - span.start.row, span.end.column)
        return Span(start, end)


def in_cells(finding: Finding, rows_of_cells: Callable[[str], CellRows | None]) -> Finding:
    """A finding with every place in a notebook as a place in a cell; ``rows_of_cells`` is None for other files."""
    if (rows := rows_of_cells(finding.path)) is not None:
        finding = rows.in_cells(finding)
    if any(is_notebook(step.path) for step in finding.flow):
        flow = []
        for step in finding.flow:
            rows = rows_of_cells(step.path)
            flow.append(step if rows is None else rows.step_in_cells(step))
        finding = replace(finding, flow=tuple(flow))
    return finding


# --- reading --------------------------------------------------------------------------------------------------------


def read_notebook(raw: str) -> Notebook:
    """The code of a notebook's JSON. Raises SourceError for what is no notebook."""
    try:
        content = json.loads(raw)
    except json.JSONDecodeError as error:
        raise SourceError(f"is not valid JSON: {error.msg}", error.lineno, error.colno) from error
    except RecursionError as error:
        raise SourceError("is not a notebook: its JSON is nested too deeply") from error
    except ValueError as error:  # a number with thousands of digits
        raise SourceError(f"is not valid JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        if isinstance(content, dict) and isinstance(content.get("worksheets"), list):
            return Notebook(
                raw, other="uses the notebook format from before 2015; convert it with `jupyter nbconvert --to notebook`"
            )
        raise SourceError("is not a notebook: its JSON has no list of cells")
    language = _language(content)
    if language not in _PYTHON:
        return Notebook(raw, other=f"its kernel runs {language}")
    sources = [(number, source) for number, cell in enumerate(content["cells"], 1) if (source := _python(cell)) is not None]
    nonce = ""
    while any(f"{mark}{nonce}" in source for _, source in sources for mark in _looks_like_ours(source)):
        nonce += "'"
    return _masked(raw, sources, nonce)


def _looks_like_ours(source: str) -> Iterator[str]:
    """Marks and tails, less a nonce, that stand in the user's own code."""
    return (match[0] for match in re.finditer(rf"{_MARK}\d+|{TAIL}\d+", source))


def _language(content: dict[str, object]) -> str:
    """The language of the notebook's kernel; Python where none is given, as in notebooks that were cleaned."""
    metadata = content.get("metadata")
    for part, key in (("language_info", "name"), ("kernelspec", "language")):
        entry = metadata.get(part) if isinstance(metadata, dict) else None
        if isinstance(entry, dict) and isinstance(name := entry.get(key), str) and name:
            return name.lower()
    return "python"


def _python(cell: object) -> str | None:
    """The source of a cell of Python; None for any other, also those that begin with ``%%bash`` and its like."""
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return None
    metadata = cell.get("metadata")
    editor = metadata.get("vscode") if isinstance(metadata, dict) else None
    if isinstance(editor, dict) and editor.get("languageId", "python") != "python":
        return None
    source = _joined(cell.get("source"))
    if source is None:
        return None
    magic = re.match(r"\s*%%(\w*)", source)
    return None if magic and magic[1] not in _RUNS_ITS_CELL else source


def _joined(source: object) -> str | None:
    if isinstance(source, list) and all(isinstance(part, str) for part in source):
        return "".join(source)
    return source if isinstance(source, str) else None


def _masked(raw: str, sources: Sequence[tuple[int, str]], nonce: str) -> Notebook:
    cells: list[Cell] = []
    broken: list[tuple[int, str, SourceError]] = []
    originals: list[str] = []
    for number, source in sources:
        error = _unreadable(source) or syntax_error(source)
        if error is None:
            cells.append(Cell(number, source, source))
            continue
        before = len(originals)
        code = without_escapes(source, originals, nonce)
        if code != source:
            error = _unreadable(source) or syntax_error(code)
        if error is None:
            cells.append(Cell(number, source, code))
            continue
        # IPython takes the indentation of a cell's first row from all its rows; rare, and such a cell cannot be joined.
        is_indented = syntax_error(textwrap.dedent(source)) is None
        reading = None if is_indented or _unreadable(source) else _read_in_part(code)
        if reading is not None:
            cells.append(Cell(number, source, reading.text, reading))
            continue
        del originals[before:]
        if not is_indented:
            broken.append((number, source, error))
    return Notebook(raw, tuple(cells), tuple(broken), originals=tuple(originals), nonce=nonce)


def _read_in_part(code: str) -> Reading | None:
    from torchmemlint.source import tolerant  # most notebooks need it for no cell

    return tolerant.read(code)


def _unreadable(source: str) -> SourceError | None:
    """What no Python file can hold."""
    for index, char in enumerate(source):
        if char == "\0" or "\ud800" <= char <= "\udfff":
            at = Lines.of(source).position(index)
            return SourceError("contains a null byte" if char == "\0" else "has half a surrogate pair", at.row, at.column)
    return None


# --- the file's own text --------------------------------------------------------------------------------------------

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STRING_OR_BRACKET = re.compile(_STRING.pattern + r"|[\[\]{}]", re.DOTALL)
_SCALAR = re.compile(r"[^\s,\]}]+")
_SPACE_AND_COMMA = re.compile(r"[\s,]*")
_SPELLED_ROW = re.compile(r"(?:[^\\]|\\[^nru]|\\u(?!000[aAdD])....)*(?:\\r\\n|\\n|\\r)|(?:[^\\]|\\.)+\Z", re.DOTALL)
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)


@dataclass(frozen=True)
class _Value:
    """The ``source`` of a cell in the file's text: where it stands, and the string literals in it (quotes included)."""

    start: int
    end: int
    literals: tuple[tuple[int, int], ...]
    texts: tuple[str, ...]
    listed: bool

    @cached_property
    def text(self) -> str:
        return "".join(self.texts)

    def offset(self, raw: str, at: int) -> int:
        """The offset in the file of one in the cell's source."""
        start = self.start
        for index, (literal, text) in enumerate(zip(self.literals, self.texts, strict=True)):
            start = literal[0] + 1
            if at < len(text) or index == len(self.texts) - 1:
                if "\\" not in raw[literal[0] : literal[1]]:
                    return start + at
                for character in _CHARACTER.finditer(raw, start, literal[1] - 1):
                    if at == 0:
                        return character.start()
                    at -= 1
                return literal[1] - 1
            at -= len(text)
        return start

    def holding(self, raw: str, source: str, ascii_only: bool) -> str:
        """This value as it has to be for the cell to hold ``source``: unchanged rows keep their spelling, a list stays one."""
        from difflib import SequenceMatcher  # only a run that fixes pays for it

        old, new = (_rows(Lines.of(text)) for text in (self.text, source))
        spelled = _SPELLED_ROW.findall("".join(raw[start + 1 : end - 1] for start, end in self.literals))
        if len(spelled) != len(old):  # newlines in an uncommon spelling
            old, spelled = [], []
        pieces: list[str] = []
        for kind, first, last, new_first, new_last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            rewritten = (json.dumps(row, ensure_ascii=ascii_only)[1:-1] for row in new[new_first:new_last])
            pieces += spelled[first:last] if kind == "equal" else rewritten
        if not self.listed:
            return f'"{"".join(pieces)}"'
        if not pieces:
            return "[]"
        if not self.literals:
            return f"[{', '.join(json.dumps(row, ensure_ascii=ascii_only) for row in new)}]"
        opening = raw[self.start : self.literals[0][0]]
        if len(self.literals) > 1:
            between = raw[self.literals[0][1] : self.literals[1][0]]
        else:
            between = f",{opening[1:]}" if len(opening) > 1 or '":"' in raw else ", "
        closing = raw[self.literals[-1][1] : self.end]
        return opening + between.join('"' + piece + '"' for piece in pieces) + closing


def _rows(lines: Lines) -> list[str]:
    """The rows with their ends; none for the emptiness after the last newline."""
    rows = [lines.row(row) + lines.newline_of(row) for row in range(1, len(lines) + 1)]
    return rows if rows[-1] else rows[:-1]


def _values(raw: str) -> Iterator[tuple[int, _Value]]:
    """The ``source`` of each code cell, by its number. ``raw`` is known to be a notebook's JSON."""
    cells = dict(_members(raw, _start(raw, 0)))["cells"]
    for number, cell in enumerate(_elements(raw, cells), 1):
        if raw[cell] != "{":
            continue
        members = dict(_members(raw, cell))
        kind, source = members.get("cell_type"), members.get("source")
        if kind is None or source is None or raw[kind] != '"' or raw[kind : _end(raw, kind)] != '"code"':
            continue
        listed = raw[source] == "["
        starts = list(_elements(raw, source)) if listed else [source]
        if any(raw[start] != '"' for start in starts):
            continue
        literals = tuple((start, _end(raw, start)) for start in starts)
        texts = tuple(json.loads(raw[start:end], strict=False) for start, end in literals)
        yield number, _Value(source, _end(raw, source), literals, texts, listed)


def _start(raw: str, at: int) -> int:
    """Where the next value begins, after white space and a comma."""
    space = _SPACE_AND_COMMA.match(raw, at)
    assert space is not None  # it matches nothing, too
    return space.end()


def _end(raw: str, at: int) -> int:
    """Where the value that begins at ``at`` ends."""
    if raw[at] not in '"[{':
        scalar = _SCALAR.match(raw, at)
        assert scalar is not None
        return scalar.end()
    depth = 0
    for word in _STRING_OR_BRACKET.finditer(raw, at):
        first = raw[word.start()]
        depth += (first in "[{") - (first in "]}")
        if depth == 0:
            return word.end()
    raise AssertionError("the JSON was read before, so its brackets are closed")


def _elements(raw: str, at: int) -> Iterator[int]:
    """Where the elements of the array at ``at`` begin."""
    at = _start(raw, at + 1)
    while raw[at] != "]":
        yield at
        at = _start(raw, _end(raw, at))


def _members(raw: str, at: int) -> Iterator[tuple[str, int]]:
    """The keys of the object at ``at``, each with where its value begins; of two equal keys the last counts, as in JSON."""
    at = _start(raw, at + 1)
    while raw[at] != "}":
        end = _end(raw, at)
        value = _start(raw, raw.index(":", end) + 1)
        yield json.loads(raw[at:end], strict=False), value
        at = _start(raw, _end(raw, value))
