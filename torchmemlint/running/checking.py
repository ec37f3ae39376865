"""All three steps: over every file, or over those that an edit may have changed since an earlier run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.processes import forks
from torchmemlint.project.results import Checked, Scanned
from torchmemlint.running.inspecting import check_some
from torchmemlint.running.linking import logs_dependencies, words_of
from torchmemlint.running.scanning import BYTES_TO_INSPECT, jobs_for, scan_files

if TYPE_CHECKING:
    from torchmemlint.incremental.runs import CachedRun
    from torchmemlint.running.state import Run

FEW = 40
"""Files that are checked again in one process, after an edit: more may pay for several."""


def check(run: Run) -> None:
    """Brings ``run.checked`` up to date for all files, by what the cache knows where there is one."""
    if run.means.cache is None or run.by_hand:
        _check_all(run)
    else:
        from torchmemlint.incremental.runs import CachedRun

        cached = CachedRun(run.means.cache, run.files, run.given, run.shard, comments=run.comments)
        if not _is_unchanged(run, cached) and not _check_changed(run, cached):
            _check_all(run, cached)


def check_again(run: Run) -> bool:
    """As ``check``, where the cache knows a run over the same paths from which a few steps lead to this one; else nothing is
    done, and the answer is False."""
    from torchmemlint.incremental.runs import CachedRun

    assert run.means.cache is not None
    cached = CachedRun(run.means.cache, run.files, run.given, run.shard, comments=run.comments)
    return _is_unchanged(run, cached) or _check_changed(run, cached, FEW)


def _is_unchanged(run: Run, cached: CachedRun) -> bool:
    """Whether nothing changed since an earlier run, whose result then is this one's."""
    result = cached.result()
    if result is not None:
        run.scanned, run.checked = result
    return result is not None


@dataclass(frozen=True, slots=True)
class _Done:
    """What checking all files left in a run (see ``Run``), and in its cache."""

    scanned: dict[str, Scanned]
    checked: dict[str, Checked]
    reported: frozenset[str] | None
    complete: bool
    unread: int
    trouble: str = ""


def _check_all(run: Run, cached: CachedRun | None = None) -> None:
    """Checks all files; where several processes do, in a process that works beside them while this one waits. If that one
    dies of a file, all is done again from here, where no file is touched by this process."""
    paths = [file.path for file in run.files]
    logged = cached is not None and logs_dependencies(run)

    def work() -> _Done:
        scan_files(run, paths)
        words = words_of(run) if logged else str
        check_some(run, paths, scanned=frozenset(paths))
        if cached is not None:
            cached.store_all(run.scanned, run.around or (), run.checked, logged, words)
        return _Done(run.scanned, run.checked, run.reported, run.complete, run.unread)

    def work_apart() -> _Done:
        done = work()
        if run.means.progress is not None:
            run.means.progress.end()
        scanned = {path: Scanned(path, skipped=one.skipped) for path, one in done.scanned.items() if one.skipped}
        trouble = run.means.cache.trouble if run.means.cache is not None else ""
        return replace(done, scanned=scanned, trouble=trouble)

    several = run.means.executor is None and len(paths) > 1 and jobs_for(run, paths, BYTES_TO_INSPECT) > 1
    done = forks.attempt(work_apart) if several else None
    if done is None:
        work()
    else:
        run.scanned, run.checked, run.reported = done.scanned, done.checked, done.reported
        run.complete, run.unread = done.complete, done.unread
        if run.means.cache is not None and done.trouble:
            run.means.cache.trouble = done.trouble


def _check_changed(run: Run, cached: CachedRun, most: int | None = None) -> bool:
    """Whether it was enough to check the files again whose own text, or a text that their findings rest on, changed since
    the run before: for others nothing changed in them. ``most`` of them, where more are not to be checked."""
    if run.shard is not None or run.means.executor is not None:
        return False
    from torchmemlint.incremental.previous_run import PreviousRun

    previous = PreviousRun.of(cached)
    if previous is None:
        return False
    scan_files(run, previous.changed)
    jobs = run.jobs
    try:
        if not previous.interfaces_unchanged(run.scanned) and not previous.propagates(run.scanned):
            return False
        if most is not None and len(previous.stale) > most:
            return False
        run.previous = previous
        run.jobs = 1 if len(previous.stale) < FEW else jobs
        check_some(run, previous.stale, scanned=previous.changed)
    except SourceError:  # a file changed once more
        return False
    finally:
        run.previous, run.jobs = None, jobs
    run.scanned, run.checked = previous.store(run.scanned, run.checked)
    return True
