"""Edits of many findings → one new text that still parses."""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torchmemlint.findings import Finding, Fix, Safety
from torchmemlint.fixes.imports import Refused, insertion_row, is_bound
from torchmemlint.source.file import SourceFile

_NEWLINE = re.compile(r"\r\n|\r|\n")
_BLOCK = re.compile(r"with .*:\s*[\r\n]\s+\Z")


@dataclass(frozen=True, slots=True)
class FixResult:
    """What fixing did to one file.

    text        the new text
    applied     findings whose fix is in it, in output order
    rejected    findings whose fix was tried and taken back, because the text would not have parsed or an edit lay outside it
    shifts      for each change the row in which it began, and how many rows it added
    """

    text: str
    applied: tuple[Finding, ...] = ()
    rejected: tuple[Finding, ...] = ()
    shifts: tuple[tuple[int, int], ...] = ()

    def row_of(self, row: int) -> int:
        """Where a row of the old text is in the new one."""
        return row + sum(added for first, added in self.shifts if first <= row)


@dataclass(frozen=True, slots=True)
class _Change:
    """Replace ``text[start:end]``."""

    start: int
    end: int
    content: str

    def touches(self, other: _Change) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True, slots=True)
class _PlacedFix:
    """A finding's fix as offsets into the text."""

    finding: Finding
    fix: Fix
    changes: tuple[_Change, ...]

    @property
    def opens(self) -> bool:
        """Whether a statement is put into a block of its own, which the statements next to it may as well be in."""
        return any(_BLOCK.match(edit.content) for edit in self.fix.edits)

    @property
    def first_row(self) -> int:
        return self.fix.edits[0].span.start.row

    def conflicts(self, other: _PlacedFix) -> bool:
        """Edits that touch, or flagged code that overlaps, or blocks side by side: the second was worked out without knowing of the
        first."""
        one, two = self.finding.span, other.finding.span
        if one.start < two.end and two.start < one.end:
            return True
        if self.opens and other.opens and abs(self.first_row - other.first_row) == 1:
            return True
        return any(mine.touches(theirs) for mine in self.changes for theirs in other.changes)


def apply_fixes(source: SourceFile, findings: Iterable[Finding], *, unsafe: bool = False) -> FixResult:
    """One round: all wanted fixes that keep clear of each other.

    A fix that is neither applied nor rejected had to wait: check the new text again and call again, until nothing is applied.
    ``findings`` are those that are reported, never suppressed ones.
    """
    candidates: list[_PlacedFix] = []
    rejected: list[Finding] = []
    for finding in sorted(findings, key=lambda one: one.sort_key):
        fix = _wanted(finding, unsafe)
        if fix is not None:
            placed = _place(source, finding, fix)
            if placed is None:
                rejected.append(finding)
            else:
                candidates.append(placed)
    while True:
        accepted = _clear_of_each_other(candidates)
        written = _written(source, accepted)
        if written is not None or not accepted:
            break
        # What is broken makes room for what it was in the way of.
        broken = _broken(source, accepted)
        rejected.extend(placed.finding for placed in broken)
        candidates = [placed for placed in candidates if placed not in broken]
    # One decorator may answer several findings of its function: they have the same fix.
    done = {placed.changes for placed in accepted}
    applied = tuple(placed.finding for placed in candidates if placed.changes in done)
    text, shifts = written if written is not None else (source.text, ())
    return FixResult(text, applied, tuple(rejected), shifts)


def _clear_of_each_other(candidates: Iterable[_PlacedFix]) -> list[_PlacedFix]:
    chosen: list[_PlacedFix] = []
    for placed in candidates:
        if not any(placed.conflicts(one) for one in chosen):
            chosen.append(placed)
    return chosen


def _wanted(finding: Finding, unsafe: bool) -> Fix | None:
    fix = finding.fix
    if fix is None or not fix.edits or fix.safety is Safety.NONE or (fix.safety is Safety.UNSAFE and not unsafe):
        return None
    return fix


def _place(source: SourceFile, finding: Finding, fix: Fix) -> _PlacedFix | None:
    """The fix as offsets; None where an edit lies outside the text or in what is not the user's (the masked magic of a
    notebook), runs backwards or meets another of the same fix."""
    changes = []
    for edit in fix.edits:
        try:
            start, end = source.lines.offset(edit.span.start), source.lines.offset(edit.span.end)
        except IndexError:
            return None
        if end < start or not source.editable(edit.span):
            return None
        changes.append(_Change(start, end, _NEWLINE.sub(source.newline, edit.content)))
    ordered = _in_order(changes)
    return _PlacedFix(finding, fix, ordered) if ordered else None


def _in_order(changes: Iterable[_Change]) -> tuple[_Change, ...] | None:
    """Changes by place, those at one place in the order given; None where two overlap."""
    ordered = tuple(sorted(changes, key=lambda change: (change.start, change.end)))
    return None if any(one.end > two.start for one, two in pairwise(ordered)) else ordered


def _broken(source: SourceFile, accepted: Sequence[_PlacedFix]) -> list[_PlacedFix]:
    """The fixes that cannot be written on top of those before them; at least one, where all together cannot."""
    kept: list[_PlacedFix] = []
    broken: list[_PlacedFix] = []
    for placed in accepted:
        if _written(source, [*kept, placed]) is None:
            broken.append(placed)
        else:
            kept.append(placed)
    return broken


def _written(source: SourceFile, accepted: Sequence[_PlacedFix]) -> tuple[str, tuple[tuple[int, int], ...]] | None:
    """The text with these fixes and the imports that they need, and ``FixResult.shifts``; None where it cannot be, does not parse or
    fits in no file of this kind."""
    changes: list[_Change] = []
    needed = {placed.fix.needs_import for placed in accepted} - {None}
    if needed:
        tree = _parsed(source.text)
        if tree is None:
            return None
        for module in sorted(filter(None, needed)):
            places = [edit.span.start for one in accepted if one.fix.needs_import == module for edit in one.fix.edits]
            try:
                unbound = [at for at in places if not is_bound(tree, module, at)]
            except Refused:
                return None
            if unbound:
                changes.append(_import_line(source, module, insertion_row(source.lines, tree, module, min(unbound))))
    ordered = _in_order([*changes, *(change for placed in accepted for change in placed.changes)])
    if ordered is None:
        return None
    pieces = []
    done = 0
    for change in ordered:
        pieces += [source.text[done : change.start], change.content]
        done = change.end
    text = "".join([*pieces, source.text[done:]])
    if _parsed(text) is None or not source.can_hold(text):
        return None
    return text, tuple(_shift(source, change) for change in ordered)


def _shift(source: SourceFile, change: _Change) -> tuple[int, int]:
    """The row in which a change begins, and how many rows it adds."""
    added = len(_NEWLINE.findall(change.content)) - len(_NEWLINE.findall(source.text[change.start : change.end]))
    return bisect_right(source.lines.starts, change.start), added


def _import_line(source: SourceFile, module: str, row: int) -> _Change:
    if row <= len(source.lines):
        offset = source.lines.starts[row - 1]
        return _Change(offset, offset, f"import {module}{source.newline}")
    offset = len(source.text)  # the last row has no newline
    return _Change(offset, offset, f"{source.newline}import {module}")


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape in the user's code is not our news
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
