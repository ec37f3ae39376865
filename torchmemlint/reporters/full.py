"""For people: each finding with its code, where the value came from, the cost, the help and what a fix would change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from torchmemlint.files.quoting import printable
from torchmemlint.findings import Edit, Finding, Fix, Position, Safety, Span
from torchmemlint.reporters import Context, Measurement
from torchmemlint.reporters.style import SEVERITY_STYLE, Style, expanded, file_address, link, paint, place, width, wrapped
from torchmemlint.source.lines import Lines

MAX_LABEL_ROWS = 4
"""A label over more rows than this shows its first three and its last."""
MAX_DIFF_ROWS = 8
MAX_WORDS = 100
"""Columns of a cost, a help or a note; what is longer is wrapped between words."""
MAX_COLUMNS = 160
"""Code points of a source row that are shown at most; a longer one is cut around what is marked."""

_FIX_TAG = {Safety.SAFE: "safe fix: --fix", Safety.UNSAFE: "unsafe fix: --fix --unsafe-fixes"}


def render(findings: Sequence[Finding], context: Context) -> str:
    blocks = (
        _Block(
            finding,
            context.lines(finding.path, finding.cell),
            context.color,
            context.measured(finding),
            context.url(finding.code) if context.link else None,
            file_address(finding.path) if context.link else None,
        ).rows()
        for finding in findings
    )
    return "\n".join("".join(f"{row}\n" for row in rows) for rows in blocks)


@dataclass(frozen=True, slots=True)
class _Label:
    """Marks under a stretch of code, with words behind the last of them."""

    span: Span
    text: str
    primary: bool

    @property
    def last_row(self) -> int:
        end = self.span.end
        return end.row - 1 if end.column == 1 and end.row > self.span.start.row else end.row

    def shown_rows(self) -> list[int]:
        rows = list(range(self.span.start.row, self.last_row + 1))
        return rows if len(rows) <= MAX_LABEL_ROWS else [*rows[: MAX_LABEL_ROWS - 1], rows[-1]]


@dataclass(frozen=True, slots=True)
class _Block:
    """The rows of one finding's report; ``page`` and ``file`` are where the code and the place lead, if anywhere."""

    finding: Finding
    lines: Lines | None
    color: bool
    measured: Measurement | None = None
    page: str | None = None
    file: str | None = None

    def rows(self) -> list[str]:
        finding = self.finding
        style = SEVERITY_STYLE[finding.severity]
        labels, notes = self._labels_and_notes()
        code_rows = _rows_around(labels, self.lines) if self.lines is not None else []
        gutter = len(str(max(code_rows, default=1)))
        head = paint(f"{finding.severity.value}[{link(finding.code, self.page)}]", style, self.color)
        out = [
            f"{head}: {paint(printable(finding.message), Style.BOLD, self.color)}",
            f"{' ' * gutter}{self._frame('-->')} {link(place(finding), self.file)}",
        ]
        if self.lines is not None and code_rows:
            out.append(f"{' ' * gutter} {self._frame('|')}")
            out.extend(self._code(self.lines, code_rows, labels, gutter))
            out.append(f"{' ' * gutter} {self._frame('|')}")
        measured = printable(self.measured.words) if self.measured is not None else ""
        sure = printable(finding.sureness)
        words = (
            ("cost", printable(finding.cost)),
            ("measured", measured),
            ("confidence", sure),
            ("help", self._help()),
            ("known", self._proof()),
        )
        notes = [*notes, *((word, text) for word, text in words if text)]
        for word, text in notes:
            first, *more = wrapped(text, MAX_WORDS - gutter - len(word) - 5)
            out.append(f"{' ' * gutter} {self._frame('=')} {paint(word, Style.BOLD, self.color)}: {first}")
            out.extend(f"{' ' * (gutter + len(word) + 5)}{row}" for row in more)
        if self.lines is not None and finding.fix is not None and finding.fix.safety is not Safety.NONE:
            out.extend(self._diff(self.lines, finding.fix, gutter))
        return out

    def _frame(self, text: str) -> str:
        return paint(text, Style.FRAME, self.color)

    def _labels_and_notes(self) -> tuple[list[_Label], list[tuple[str, str]]]:
        """The flagged code and the first step in the same file as labels; the other steps in words."""
        finding = self.finding
        labels = [_Label(finding.span, finding.label, True)] if self._has(finding.span) else []
        notes = []
        for step in finding.flow:
            here = (step.path, step.cell) == (finding.path, finding.cell)
            fits = len(labels) == 1 and here and step.span != finding.span and self._has(step.span)
            if fits:
                labels.append(_Label(step.span, step.message, False))
            else:
                notes.append(("note", f"{place(step)}: {printable(step.message)}"))
        return labels, notes

    def _has(self, span: Span) -> bool:
        if self.lines is None:
            return False
        try:
            return self.lines.offset(span.start) <= self.lines.offset(span.end)
        except IndexError:  # the file has changed since
            return False

    def _help(self) -> str:
        fix = self.finding.fix
        words = printable(self.finding.help or (fix.message if fix else ""))
        return f"{words} [{_FIX_TAG[fix.safety]}]" if fix is not None and fix.safety in _FIX_TAG else words

    def _proof(self) -> str:
        """What is known of a fix, that it changes no result."""
        fix = self.finding.fix
        proof = fix.proof if fix is not None else ()
        return printable("; ".join(f"{fact} ({known_by})" for fact, known_by in proof))

    def _code(self, lines: Lines, rows: Sequence[int], labels: Sequence[_Label], gutter: int) -> Iterable[str]:
        before = rows[0] - 1
        for row in rows:
            if row > before + 1:
                yield self._frame("...")
            before = row
            here = [label for label in labels if row in label.shown_rows()]
            text = lines.row(row)
            window = _window(text, min((_marked(label, row, text)[0] for label in here), default=0))
            yield f"{self._frame(f'{row:>{gutter}} |')} {window.shown}".rstrip()
            for label in sorted(here, key=lambda one: not one.primary):
                yield f"{' ' * gutter} {self._frame('|')} {self._marks(label, row, text, window)}".rstrip()

    def _marks(self, label: _Label, row: int, text: str, window: _Window) -> str:
        start, end = (window.column(offset) for offset in _marked(label, row, text))
        marks = ("^" if label.primary else "-") * max(end - start, 1)
        words = f" {printable(label.text)}" if label.text and row == label.shown_rows()[-1] else ""
        style = SEVERITY_STYLE[self.finding.severity] if label.primary else Style.FRAME
        return " " * start + paint(marks + words, style, self.color)

    def _diff(self, lines: Lines, fix: Fix, gutter: int) -> Iterable[str]:
        changed = _changed_rows(lines, fix.edits)
        if not changed:
            return
        yield f"{' ' * gutter} {self._frame('|')}"
        shown = changed if len(changed) <= MAX_DIFF_ROWS else changed[: MAX_DIFF_ROWS - 1]
        for sign, row, text in shown:
            style = Style.ADDED if sign == "+" else Style.REMOVED
            code = paint(f"{sign} {_window(text, 0).shown}".rstrip(), style, self.color)
            yield f"{self._frame(f'{row:>{gutter}}')} {code}"
        if len(shown) < len(changed):
            yield f"{' ' * gutter} {self._frame('|')} … and {len(changed) - len(shown)} more lines"


def _rows_around(labels: Sequence[_Label], lines: Lines) -> list[int]:
    """Marked rows, a neighbour on each side that is not blank, and single rows between them."""
    marked = {row for label in labels for row in label.shown_rows()}
    inside = {row for label in labels for row in range(label.span.start.row, label.last_row + 1)}
    rows = set(marked)
    for row in sorted(marked):
        for neighbour in (row - 1, row + 1):
            if 1 <= neighbour <= len(lines) and neighbour not in inside and lines.row(neighbour).strip():
                rows.add(neighbour)
    for row in sorted(rows):
        if row + 2 in rows:
            rows.add(row + 1)
    return sorted(rows)


def _marked(label: _Label, row: int, text: str) -> tuple[int, int]:
    """Offsets in a row that a label marks; on rows that it runs over, from the first character that is no space."""
    span = label.span
    start = span.start.column - 1 if row == span.start.row else len(text) - len(text.lstrip())
    end = span.end.column - 1 if row == span.end.row else len(text.rstrip())
    return start, max(start, end)


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a source row that is shown, from offset ``start`` up to ``end``."""

    text: str
    start: int
    end: int

    @property
    def shown(self) -> str:
        lead = "…" if self.start else ""
        tail = "…" if self.end < len(self.text) else ""
        return f"{lead}{expanded(self.text[self.start : self.end], len(lead))}{tail}"

    def column(self, offset: int) -> int:
        """The display column at which an offset of the row is shown."""
        lead = 1 if self.start else 0
        return lead + width(expanded(self.text[self.start : max(self.start, min(offset, self.end))], lead))


def _window(text: str, marked: int) -> _Window:
    if len(text) <= MAX_COLUMNS:
        return _Window(text, 0, len(text))
    start = 0 if marked < MAX_COLUMNS // 2 else marked - MAX_COLUMNS // 4
    return _Window(text, start, min(len(text), start + MAX_COLUMNS))


def _changed_rows(lines: Lines, edits: Sequence[Edit]) -> list[tuple[str, int, str]]:
    """(sign, row, text) of the rows that a fix takes out and puts in; nothing where an edit lies outside the text."""
    groups: list[list[Edit]] = []
    for edit in sorted(edits, key=lambda one: one.span):
        if groups and edit.span.start.row <= groups[-1][-1].span.end.row + 1:
            groups[-1].append(edit)
        else:
            groups.append([edit])
    changed: list[tuple[str, int, str]] = []
    shift = 0
    try:
        for group in groups:
            first, last = group[0].span.start.row, max(edit.span.end.row for edit in group)
            old = [lines.row(row) for row in range(first, last + 1)]
            new = _edited(lines, group, first, last)
            same = _alike(old, new)
            tail = _alike(old[same:][::-1], new[same:][::-1])
            changed += [("-", first + same + i, text) for i, text in enumerate(old[same : len(old) - tail])]
            changed += [("+", first + shift + same + i, text) for i, text in enumerate(new[same : len(new) - tail])]
            shift += len(new) - len(old)
    except IndexError:
        return []
    return changed


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """How many rows at the start of both are the same."""
    return sum(1 for _ in takewhile(lambda rows: rows[0] == rows[1], zip(old, new, strict=False)))


def _edited(lines: Lines, edits: Sequence[Edit], first: int, last: int) -> list[str]:
    done = lines.starts[first - 1]
    pieces = []
    for edit in edits:
        pieces += [lines.text[done : lines.offset(edit.span.start)], edit.content]
        done = lines.offset(edit.span.end)
    pieces.append(lines.text[done : lines.offset(Position(last, len(lines.row(last)) + 1))])
    new = Lines.of("".join(pieces))
    return [new.row(row) for row in range(1, len(new) + 1)]
