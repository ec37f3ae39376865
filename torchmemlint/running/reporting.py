"""Which findings are reported, in which order, at which place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from torchmemlint.errors import TOO_LARGE, SourceError
from torchmemlint.files.quoting import quoted
from torchmemlint.findings import UNPARSABLE, UNUSED_SUPPRESSION
from torchmemlint.source import is_notebook, normal
from torchmemlint.workers import cannot_parse, read

if TYPE_CHECKING:
    from torchmemlint.findings import Finding
    from torchmemlint.project.settings import Settings
    from torchmemlint.running.state import Run
    from torchmemlint.source.notebook import CellRows
    from torchmemlint.suppress.since import Changed, Since


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found, in the order of every output; ``settings`` by path of every file that it looked at.

    problems    make the exit status 2: paths that cannot be checked, bad configuration files
    unread      files that could not be read, and why; reported as TML000 as well
    skipped     files and functions that were left out for what they are; reported to everyone
    checked     how many files were checked; ``left_out``, how many were skipped
    notes       reported under ``-v``; ``crashes``, the tracebacks behind TML001, too
    baselined   how many findings the baseline hides that would be printed; ``stale``, how many of its entries have no finding any more (0 where
                single files were checked: their callers may not be visible)
    unchanged   how many findings are not on rows that changed since the revision asked for
    partial     whether files around those that were named were left out, which a run over their folder looks at
    unconfirmed how many findings no experiment has confirmed, where only those are wanted
    """

    found: tuple[Finding, ...]
    settings: Mapping[str, Settings]
    problems: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    checked: int = 1
    left_out: int = 0
    notes: tuple[str, ...] = ()
    crashes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    baselined: int = 0
    stale: int = 0
    unchanged: int = 0
    unconfirmed: int = 0
    partial: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is printed."""
        return tuple(one for one in self.found if self.settings[one.path].prints(one))

    @property
    def recorded(self) -> tuple[Finding, ...]:
        """All that is sure enough, notes too: what formats for programs hold."""
        return tuple(one for one in self.found if self.settings[one.path].records(one))


@dataclass(frozen=True, slots=True)
class Reported:
    """Findings by path of every file of a run, printed or not, that no baseline hides and that stand on rows that count; how many
    do not."""

    findings: Mapping[str, tuple[Finding, ...]]
    baselined: int
    stale: int
    unchanged: int


def outcome_of(run: Run) -> Outcome:
    left = reported(run)
    found = _placed(run, chain.from_iterable(left.findings.values()))
    checked = [run.checked[path] for path in sorted(run.checked) if run.reported is None or path in run.reported]
    left_out = [one for one in run.scanned.values() if one.skipped and (run.reported is None or one.path in run.reported)]
    unread = {one.path for one in left_out if one.unread and _named_by_hand(run, one.path)}
    skipped = [f"{quoted(one.path)}: {one.skipped}" for one in left_out if one.path not in unread]
    problems = [
        f"{quoted(one.path)}: not checked: {one.skipped.removeprefix('skipped: ')}" for one in left_out if one.path in unread
    ]
    remarks = sorted({note for one in checked for note in one.notes})
    skipped += [note for note in remarks if note.endswith(TOO_LARGE)]
    notes = [*run.notes, *(note for note in remarks if not note.endswith(TOO_LARGE))]
    notes += partial_notes(run)
    return Outcome(
        found=found,
        settings=run.settings if run.named is None else {path: run.settings[path] for path in run.named},
        problems=(*run.problems, *sorted(problems)),
        skipped=tuple(sorted(skipped)),
        checked=len(run.settings if run.reported is None else run.reported) - len(left_out),
        left_out=len(left_out),
        notes=tuple(notes),
        crashes=tuple(crash for one in checked for crash in one.crashes),
        unread=tuple(f"{quoted(one.path)} {one.unread}" for one in checked if one.unread),
        baselined=left.baselined,
        stale=left.stale,
        unchanged=left.unchanged,
        partial=bool(run.unread) or not run.complete,
    )


def partial_notes(run: Run) -> tuple[str, ...]:
    """What the search around files that were named by hand did not read, in words."""
    notes = []
    if not run.complete:
        notes.append("the project around the given files is too large to search completely: some callers are unknown")
    if run.unread:
        files = "1 file" if run.unread == 1 else f"{run.unread} files"
        notes.append(f"partial: {files} around the given ones were not read; a run over their folder reads all")
    return tuple(notes)


def _named_by_hand(run: Run, path: str) -> bool:
    """Whether the user asked for this very file; with ``force-exclude`` the names come from a program, such as pre-commit."""
    named = run.by_hand or run.named is not None or path in {normal(given).replace(os.sep, "/") for given in run.given}
    return named and path in run.settings and not run.settings[path].force_exclude


def reported(run: Run) -> Reported:
    """What the baselines, and rows that did not change, leave of each file's findings."""
    paths = [file.path for file in run.files if run.reported is None or file.path in run.reported]
    found = {path: run.checked[path].findings if path in run.checked else () for path in paths}
    if not run.complete:  # a comment may be there for a caller that is not visible
        found = {path: tuple(one for one in findings if one.code != UNUSED_SUPPRESSION) for path, findings in found.items()}
    found = {path: _with_wanted_fixes(findings, run.settings[path]) for path, findings in found.items()}
    baselined = stale = unchanged = 0
    codes = {path: settings.codes for path, settings in run.settings.items()}
    for name in sorted({settings.baseline for settings in run.settings.values()} - {""}) if run.baseline else ():
        from torchmemlint.suppress.baseline import read_baseline, screen

        if name not in run.baselines:
            run.baselines[name] = read_baseline(name)
        covered = {path: findings for path, findings in found.items() if run.settings[path].baseline == name}
        screened = screen(run.baselines[name], covered, codes)
        found |= screened.kept
        baselined += sum(_printed(run, path, covered[path]) - _printed(run, path, found[path]) for path in covered)
        stale += 0 if run.by_hand or run.reported is not None else screened.stale
    if run.since is not None:
        for path in [*found] or ["."]:
            run.since.ask(path)  # a revision that git does not know must not look clean where nothing was found
        for path, findings in found.items():
            changed = _changed_rows(run, run.since, path) if findings else None
            if changed is not None:
                found[path] = tuple(finding for finding in findings if changed.covers(finding))
                unchanged += _printed(run, path, findings) - _printed(run, path, found[path])
    return Reported(found, baselined, stale, unchanged)


def _with_wanted_fixes(findings: tuple[Finding, ...], settings: Settings) -> tuple[Finding, ...]:
    """Findings with the fixes that the settings want, as safe as they say."""
    return tuple(one if one.fix is None else replace(one, fix=settings.fix_of(one)) for one in findings)


def _printed(run: Run, path: str, findings: Sequence[Finding]) -> int:
    """How many of a file's findings would be printed."""
    return sum(map(run.settings[path].prints, findings))


def _changed_rows(run: Run, since: Since, path: str) -> Changed:
    from torchmemlint.suppress.since import EVERYTHING

    try:
        source = read(path)
        data = source.encode(source.text)
    except SourceError:
        return EVERYTHING  # of a file that cannot be read no row is known
    changed = since.changed(path, data)
    if source.notebook is not None:
        changed = changed.renumbered(source.notebook.rows_in_file(source.lines))
    return changed.carried(source.text, run.texts[path].text) if path in run.texts else changed


def _placed(run: Run, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings in the order of every output. Up to here those of a notebook count the rows of the module that its cells
    make; from here they count those of their cell."""
    rows: dict[str, CellRows | None] = {}
    unread: dict[str, SourceError] = {}

    def cells(path: str) -> CellRows | None:
        if path not in rows:
            try:
                rows[path] = (run.texts.get(path) or read(path)).cells if is_notebook(path) else None
            except SourceError as error:
                rows[path], unread[path] = None, error
        return rows[path]

    found = list(findings)
    if any(is_notebook(path) for one in found for path in (one.path, *(step.path for step in one.flow))):
        from torchmemlint.source.notebook import in_cells

        found = [in_cells(finding, cells) for finding in found]
        # One whose finding says that it cannot be read keeps it. Of one that could be read before, no place is known.
        lost = {path for path in unread if any(one.path == path and one.code != UNPARSABLE for one in found)}
        found = [one for one in found if one.path not in lost]
        for path in sorted(lost):
            run.checked[path] = cannot_parse(path, unread[path], run.settings[path], "")
            found += run.checked[path].findings
    return tuple(sorted(found, key=lambda one: one.sort_key))
