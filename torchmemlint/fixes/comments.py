"""Suppression comments for findings that shall stay: ``--add-ignore`` and ``--add-noqa``.

A comment goes to the row that is reported, where one can stand there: not inside a string, and not after a backslash. Else to
another row of the same statement; else, if it is one of ours, on a row of its own above it. What is on the row already stays: a
code joins the list that is there, and other comments keep their place in front, because type checkers want theirs first.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from torchmemlint.findings import INTERNAL_ERROR, UNPARSABLE, UNUSED_SUPPRESSION, Finding
from torchmemlint.source.directives import Directive, Kind, read_directives
from torchmemlint.source.file import SourceFile

_CANNOT = frozenset({UNPARSABLE, INTERNAL_ERROR, UNUSED_SUPPRESSION})
"""Findings about the run are not for comments."""


@dataclass(frozen=True, slots=True)
class Commented:
    """A text with comments for ``done``; for ``left``, no place was found (or they are about the run)."""

    text: str
    done: tuple[Finding, ...]
    left: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where comments may stand: the rows at whose end one can, and for each row the first row of its logical line."""

    open: frozenset[int]
    first: dict[int, int]


def add_comments(
    source: SourceFile, findings: Iterable[Finding], reason: str, rule_names: Collection[str], *, noqa: bool
) -> Commented:
    """Writes ``# torchmemlint: ignore[…] reason`` (or ``# noqa: …``) for findings; ``rule_names`` as in ``read_directives``.

    The program that the text means is compared before and after; where it were another, nothing is written.
    """
    lines = source.lines
    rows = _rows(source.text)
    wanted: dict[tuple[int, bool], list[Finding]] = {}
    left: list[Finding] = []
    for finding in findings:
        place = None
        if finding.code not in _CANNOT:
            # In a notebook, rows count from the cell; the text here is that of all cells.
            place = _place(finding if source.cells is None else source.cells.in_module(finding), rows, noqa)
        if place is None:
            left.append(finding)
        else:
            wanted.setdefault(place, []).append(finding)
    directives = read_directives(source.text, rule_names).found
    texts = [lines.row(row) for row in range(1, len(lines) + 1)]
    above: dict[int, str] = {}
    for (row, alone), here in sorted(wanted.items()):
        codes = sorted({finding.code for finding in here})
        if alone:
            indent = texts[row - 1][: len(texts[row - 1]) - len(texts[row - 1].lstrip())]
            above[row] = f"{indent}{_comment(codes, reason, noqa)}{source.newline}"
        else:
            texts[row - 1] = _with_comment(texts[row - 1], row, codes, reason, noqa, directives)
    pieces = [f"{above.get(row, '')}{text}{lines.newline_of(row)}" for row, text in enumerate(texts, 1)]
    text = "".join(pieces)
    done = tuple(finding for here in wanted.values() for finding in here)
    if not done or not _same_program(source.text, text):
        return Commented(source.text, (), (*left, *done))
    return Commented(text, done, tuple(left))


def _place(finding: Finding, rows: _Rows, noqa: bool) -> tuple[int, bool] | None:
    """The row for a finding's comment, and whether it stands there alone, above the statement."""
    reported = finding.span.start.row
    covered = finding.noqa_rows or {reported}
    first = rows.first.get(reported, reported)
    statement = sorted(row for row in covered if rows.first.get(row) == first)
    for row in (reported, finding.noqa_row, *statement):
        if row in rows.open and row in covered:
            return row, False
    return None if noqa or first not in covered else (first, True)


def _comment(codes: Iterable[str], reason: str, noqa: bool) -> str:
    listed = ", ".join(codes)
    head = f"# noqa: {listed}" if noqa else f"# torchmemlint: ignore[{listed}]"
    return f"{head} {reason}".rstrip()


def _with_comment(text: str, row: int, codes: list[str], reason: str, noqa: bool, directives: Iterable[Directive]) -> str:
    """A row with one more comment, or with more codes in the one that it has."""
    for directive in directives:
        if directive.row == row and directive.kind is Kind.STATEMENT and directive.places and directive.ours is not noqa:
            end = directive.places[-1][1] - 1
            return f"{text[:end]}, {', '.join(codes)}{text[end:]}"
    comment = _comment(codes, reason, noqa)
    return f"{text.rstrip()}  {comment}"


def _rows(text: str) -> _Rows:
    """As far as the text can be tokenized."""
    open_rows: set[int] = set()
    first: dict[int, int] = {}
    begun = 0
    in_string = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
            name = tokenize.tok_name[token.type]
            if name in ("FSTRING_START", "TSTRING_START"):
                in_string += 1
            elif name in ("FSTRING_END", "TSTRING_END"):
                in_string -= 1
            if token.type in (tokenize.NEWLINE, tokenize.NL):
                if not in_string:
                    open_rows.add(token.start[0])
                if token.type == tokenize.NEWLINE:
                    first.update(dict.fromkeys(range(begun, token.end[0] + 1), begun))
                    begun = 0
            elif token.type not in (tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER) and not begun:
                begun = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        pass
    return _Rows(frozenset(open_rows), first)


def _same_program(before: str, after: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
