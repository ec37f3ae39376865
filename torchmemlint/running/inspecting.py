"""The third step: files of a linked project → their findings, in one process or several, or elsewhere."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmemlint.errors import CannotReadError, SourceError
from torchmemlint.findings import UNUSED_SUPPRESSION
from torchmemlint.processes.pool import run_all, run_on, shares, size_of
from torchmemlint.project.results import Checked
from torchmemlint.running.linking import link
from torchmemlint.running.scanning import BYTES_TO_INSPECT, BYTES_TO_SCAN, jobs_for, progress_of, scan_files
from torchmemlint.workers import InspectAll, ScanAll, cannot_parse, crashed, inspect, inspect_comments, read

if TYPE_CHECKING:
    from torchmemlint.running.state import Run


def check_some(run: Run, paths: Sequence[str], scanned: Collection[str] = ()) -> None:
    """Checks some of the files, of which a few may just have been ``scanned``."""
    scan_files(run, [path for path in paths if path not in scanned])
    if run.shard is not None:
        weights = [(path, size_of(path) if run.scanned[path].candidate else 1) for path in paths]
        paths = sorted([*shares(weights, run.shard.count)][run.shard.number - 1])
        run.reported = frozenset(paths)
    failed = {path: done for path in paths if (done := run.scanned[path].failed) is not None}
    candidates = [path for path in paths if run.scanned[path].candidate]
    again = frozenset(paths)
    run.checked = {path: done for path, done in run.checked.items() if path not in again} | failed
    if candidates:
        with run.means.stage("rest"):
            inspected = _inspect(run, candidates)
        for done in (_judged(run, one) for one in inspected):
            run.checked[done.path] = with_broken(run, done)
    quiet = [path for path in paths if UNUSED_SUPPRESSION in run.settings[path].codes and _only_comments(run, path)]
    if quiet:
        all_comments = ScanAll(run.settings, run.texts)
        jobs = jobs_for(run, quiet, BYTES_TO_SCAN)
        run.checked |= zip(
            quiet,
            run_all(inspect_comments, all_comments, quiet, jobs, crashed, progress_of(run, "reading", quiet)),
            strict=True,
        )


def with_broken(run: Run, done: Checked) -> Checked:
    """What was found in a file, with what is reported of the cells of a notebook that do not parse."""
    broken = run.scanned[done.path].failed
    return done if broken is None else replace(done, findings=(*broken.findings, *done.findings))


def _judged(run: Run, done: Checked) -> Checked:
    """A failure of ours is none where a file was written to meanwhile: texts and facts then were of two times."""
    if not done.crashes:
        return done
    changed = [path for path in (done.path, *sorted(run.settings)) if path not in run.texts and _changed_meanwhile(run, path)]
    if not changed:
        return done
    whose = "it" if changed[0] == done.path else f"`{changed[0]}`"
    return cannot_parse(done.path, CannotReadError(f"was not checked: {whose} changed meanwhile"), run.settings[done.path], "")


def _changed_meanwhile(run: Run, path: str) -> bool:
    try:
        return os.stat(path).st_ctime_ns >= run.began
    except OSError:
        return True


def _only_comments(run: Run, path: str) -> bool:
    """Whether a file can be read, and no rule but TML002 can report in it."""
    scanned = run.scanned[path]
    return not (scanned.candidate or scanned.failed or scanned.skipped)


def _inspect(run: Run, paths: Sequence[str]) -> list[Checked]:
    with run.means.stage("link"):
        project = link(run)
    if run.means.cache is None or run.texts:
        shared = InspectAll(project, run.settings, run.texts, run.comments, memory=run.memory)
        return _run_all(run, shared, paths)
    from torchmemlint.incremental.findings import FindingsStore

    scanned = [*run.scanned.values(), *(run.around or ())]
    cache, by_hand, comments = run.means.cache, run.by_hand, run.comments
    stored = FindingsStore(cache, project, scanned, run.settings, run.previous, by_hand=by_hand, comments=comments)
    known = {path: found for path in paths if (found := stored.valid(path)) is not None}
    new = [path for path in paths if path not in known]
    if new:
        shared = InspectAll(project, run.settings, run.texts, run.comments, stored.results, stored.store)
        # What was done where our cache is out of reach is stored here.
        known |= {done.path: stored.store(done) for done in _run_all(run, shared, new)}
    stored.flush()
    return [known[path] for path in paths]


def _run_all(run: Run, shared: InspectAll, paths: Sequence[str]) -> list[Checked]:
    progress = progress_of(run, "checking", paths)
    if run.means.profile is not None:
        shared = replace(shared, watch=run.means.profile)
    if run.means.executor is None:
        return run_all(
            inspect, shared, paths, jobs_for(run, paths, BYTES_TO_INSPECT), crashed, progress, shared.project.share_through
        )
    # Wherever it is done, our files and our cache may not be there: the texts go along.
    executor, places = run.means.executor
    results = shared.results.without_storing() if shared.results is not None else None
    texts = dict(shared.texts)
    for path in shared.project.paths:
        if path not in texts:
            with suppress(SourceError):
                texts[path] = read(path)
    return run_on(
        executor, places, inspect, replace(shared, texts=texts, results=results, store=None), paths, crashed, progress
    )
