"""Findings → edited texts, checked again until nothing changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
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

MAX_FIX_ROUNDS = 10
CHANGED = "changed while it was checked; nothing was written to it"


@dataclass(frozen=True, slots=True)
class Fixed:
    """What fixing does: the changed files as they were (``before``) and their new texts (``after``), the findings that were
    repaired, and what is left to report; what was left as it is though it could be repaired (``refused``), and why. Nothing is
    written."""

    outcome: Outcome
    before: Mapping[str, SourceFile]
    after: Mapping[str, str]
    repaired: tuple[Finding, ...]
    refused: Mapping[str, str]


def fix(run: Run, refused: Callable[[str], str]) -> Fixed:
    """Rounds over all files at once, because a fix in one file can change what is true in another."""
    from torchmemlint.fixes import apply_fixes

    stamps = {file.path: stamp(file.path) for file in run.files}
    left: dict[str, str] = {}
    before: dict[str, SourceFile] = {}
    repaired: list[Finding] = []
    changed = [file.path for file in run.files]
    for _ in range(MAX_FIX_ROUNDS):
        check_some(run, changed)
        changed = []
        for path, found in sorted(reported(run).findings.items()):
            unsafe = run.settings[path].unsafe_fixes
            findings = [finding for finding in found if run.settings[path].prints(finding)]
            if path in left or not any(repairable(finding, unsafe) for finding in findings):
                continue
            source = run.texts.get(path)
            if source is None:
                try:
                    why, source = refused(path), read(path)
                except SourceError as error:
                    left[path] = error.message
                    continue
                if why or stamps[path] != stamp(path):
                    left[path] = why or CHANGED
                    continue
            result = apply_fixes(source, findings, unsafe=unsafe)
            if result.text != source.text:
                before.setdefault(path, source)
                run.texts[path] = replace(source, text=result.text)
                repaired += result.applied
                changed.append(path)
        if not changed:
            break
    else:
        check_some(run, changed)
    # What is left in files that were not changed may have been answered by a change in another.
    check_some(run, [path for path, done in run.checked.items() if before and done.findings and path not in before])
    after = {path: run.texts[path].text for path in before if run.texts[path].text != before[path].text}
    return Fixed(outcome_of(run), {path: before[path] for path in after}, after, tuple(repaired), left)


def stamp(path: str) -> tuple[int, ...]:
    """What is another whenever something was written to a file; () where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def repairable(finding: Finding, unsafe: bool) -> bool:
    """Whether a finding has a fix that may be applied, with or without unsafe ones."""
    return finding.fix is not None and (finding.fix.safety is Safety.SAFE or (unsafe and finding.fix.safety is Safety.UNSAFE))
