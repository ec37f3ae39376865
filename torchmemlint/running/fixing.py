"""Findings → edited texts, checked again until nothing changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.findings import Finding, Safety
from torchmemlint.running.inspecting import check_some
from torchmemlint.running.reporting import Outcome, outcome_of, reported
from torchmemlint.workers import read

if TYPE_CHECKING:
    from torchmemlint.running.state import Run
    from torchmemlint.source.file import SourceFile

MAX_FIX_ROUNDS = 60
"""Rounds after which what is left is left. A round fixes all that keeps clear of each other, so few programs need more than four;
one finding that stands for all calls of a function needs one for each of these."""
CHANGED = "changed while it was checked; nothing was written to it"


@dataclass(frozen=True, slots=True)
class Fixed:
    """What fixing does: the changed files as they were (``before``) and their new texts (``after``), the findings that were
    fixed, and what is left to report; what was left as it is though it could be fixed (``refused``), and why. Nothing is
    written."""

    outcome: Outcome
    before: Mapping[str, SourceFile]
    after: Mapping[str, str]
    applied: tuple[Finding, ...]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did to one file: its text before, what was fixed, and where the flagged rows are now."""

    before: SourceFile
    applied: tuple[Finding, ...]
    rows: tuple[int, ...]


def fix(run: Run, refused: Callable[[str], str], *, checked: bool = False) -> Fixed:
    """Rounds over all files at once, because a fix in one file can change what is true in another, until nothing is left to do.
    A run that is ``checked`` needs none where nothing can be fixed."""
    if checked and not any(_to_fix(run, set())):
        return Fixed(outcome_of(run), {}, {}, (), {})
    stamps = {file.path: stamp(file.path) for file in run.files}
    left: dict[str, str] = {}
    before: dict[str, SourceFile] = {}
    applied: dict[str, list[Finding]] = {}
    useless: set[tuple[str, str, str, str]] = set()
    everything = [file.path for file in run.files]
    check_some(run, everything)
    pending = False  # something was changed since some file was looked at
    for _ in range(MAX_FIX_ROUNDS):
        rounds: dict[str, Round] = {}
        for path, findings in _to_fix(run, useless):
            source = _source(run, path, stamps, left, refused) if path not in left else None
            done = _fix_once(run, path, source, findings) if source is not None else None
            if done is not None:
                before.setdefault(path, done.before)
                rounds[path] = done
        if not rounds and not pending:
            break
        # What is left in the other files may have been answered by a change in one, or come of it.
        looked_at = [*rounds] or everything
        check_some(run, looked_at)
        undone = _undo(run, rounds, useless)
        pending = len(undone or looked_at) < len(everything)
        for path, done in rounds.items():
            applied.setdefault(path, []).extend(() if path in undone else done.applied)
        check_some(run, undone)
    else:
        check_some(run, everything)
    after = {path: run.texts[path].text for path in before if run.texts[path].text != before[path].text}
    fixed = tuple(finding for path in after for finding in applied[path])
    return Fixed(outcome_of(run), {path: before[path] for path in after}, after, fixed, left)


def _to_fix(run: Run, useless: set[tuple[str, str, str, str]]) -> Iterator[tuple[str, list[Finding]]]:
    """Files with the findings that are printed and whose fix may help."""
    for path, found in sorted(reported(run).findings.items()):
        unsafe = run.settings[path].unsafe_fixes
        printed = [finding for finding in found if run.settings[path].prints(finding) and _key(finding) not in useless]
        if any(is_fixable(finding, unsafe) for finding in printed):
            yield path, printed


def _source(
    run: Run, path: str, stamps: Mapping[str, tuple[int, ...]], left: dict[str, str], refused: Callable[[str], str]
) -> SourceFile | None:
    """A file's text as it is by now; None where it must stay as it is, which ``left`` then says."""
    source = run.texts.get(path)
    if source is not None:
        return source
    try:
        why, source = refused(path), read(path)
    except SourceError as error:
        left[path] = error.message
        return None
    if why or stamps[path] != stamp(path):
        left[path] = why or CHANGED
        return None
    return source


def _fix_once(run: Run, path: str, source: SourceFile, findings: list[Finding]) -> Round | None:
    """One round in one file; None where nothing was changed."""
    from torchmemlint.fixes import apply_fixes

    result = apply_fixes(source, findings, unsafe=run.settings[path].unsafe_fixes)
    if result.text == source.text:
        return None
    run.texts[path] = replace(source, text=result.text)
    return Round(source, result.applied, tuple(result.row_of(finding.span.start.row) for finding in result.applied))


def _undo(run: Run, rounds: Mapping[str, Round], useless: set[tuple[str, str, str, str]]) -> list[str]:
    """Takes back the rounds in which some finding is still there after its fix, which is not tried again."""
    undone = []
    now = reported(run).findings
    for path, done in rounds.items():
        there = {(finding.code, finding.span.start.row) for finding in now.get(path, ())}
        kept = [f for f, row in zip(done.applied, done.rows, strict=True) if (f.code, row) in there and not _is_removed(f)]
        if kept:
            useless |= {_key(finding) for finding in kept}
            run.texts[path] = done.before
            undone.append(path)
    return undone


def _is_removed(finding: Finding) -> bool:
    """Whether the fix takes the flagged code away: what is in its row afterwards is something else."""
    edits = finding.fix.edits if finding.fix is not None else ()
    return any(edit.span.start <= finding.span.start and finding.span.end <= edit.span.end for edit in edits)


def _key(finding: Finding) -> tuple[str, str, str, str]:
    """What a finding is known by, wherever in its file it stands."""
    return finding.path, finding.code, finding.function, finding.statement


def stamp(path: str) -> tuple[int, ...]:
    """What is another whenever something was written to a file; () where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_fixable(finding: Finding, unsafe: bool) -> bool:
    """Whether a finding has a fix that may be applied, with or without unsafe ones."""
    return finding.fix is not None and (finding.fix.safety is Safety.SAFE or (unsafe and finding.fix.safety is Safety.UNSAFE))
