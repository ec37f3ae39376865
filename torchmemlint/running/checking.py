"""All three steps: over every file, or over those that an edit may have changed since an earlier run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.processes import forks
from torchmemlint.running.inspecting import check_some
from torchmemlint.running.linking import follows_edits, words_of
from torchmemlint.running.scanning import BYTES_TO_INSPECT, jobs_for, scan_files
from torchmemlint.workers import Checked, Scanned

if TYPE_CHECKING:
    from torchmemlint.incremental.remembered import Repeated
    from torchmemlint.running.state import Run

FEW = 40
"""Files that are checked again in one process, after an edit: more may pay for several."""


def check(run: Run) -> None:
    """Brings ``run.checked`` up to date for all files, by what the cache knows where there is one."""
    if run.means.cache is None or run.by_hand:
        _check_all(run)
    else:
        from torchmemlint.incremental.remembered import Repeated

        repeated = Repeated(run.means.cache, run.files, run.given, run.shard, comments=run.comments)
        if not _is_repeated(run, repeated) and not _check_changed(run, repeated):
            _check_all(run, repeated)


def check_again(run: Run) -> bool:
    """As ``check``, where the cache knows a run over the same paths from which a few steps lead to this one; else nothing is
    done, and the answer is False."""
    from torchmemlint.incremental.remembered import Repeated

    assert run.means.cache is not None
    repeated = Repeated(run.means.cache, run.files, run.given, run.shard, comments=run.comments)
    return _is_repeated(run, repeated) or _check_changed(run, repeated, FEW)


def _is_repeated(run: Run, repeated: Repeated) -> bool:
    """Whether nothing changed since an earlier run, whose result then is this one's."""
    result = repeated.result()
    if result is not None:
        run.scanned, run.checked = result
    return result is not None


@dataclass(frozen=True, slots=True)
class _Done:
    """What checking all files left in a run (see ``Run``), and in its cache."""

    scanned: dict[str, Scanned]
    checked: dict[str, Checked]
    told: frozenset[str] | None
    complete: bool
    trouble: str = ""


def _check_all(run: Run, repeated: Repeated | None = None) -> None:
    """Checks all files; where several processes do, in a process that works beside them while this one waits. If that one
    dies of a file, all is done again from here, where no file is touched by this process."""
    paths = [file.path for file in run.files]
    follows = repeated is not None and follows_edits(run)

    def work() -> _Done:
        scan_files(run, paths)
        words = words_of(run) if follows else str
        check_some(run, paths, scanned=frozenset(paths))
        if repeated is not None:
            links = repeated.links(run.scanned, run.around or (), run.checked)
            texts = {path: one.digest for path, one in run.scanned.items()}
            trails = partial(repeated.trails, run.scanned, run.around or (), run.checked)
            repeated.keep(texts, run.scanned, run.checked, links, trails if follows else "", words)
        return _Done(run.scanned, run.checked, run.told, run.complete)

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
        run.scanned, run.checked, run.told, run.complete = done.scanned, done.checked, done.told, done.complete
        if run.means.cache is not None and done.trouble:
            run.means.cache.trouble = done.trouble


def _check_changed(run: Run, repeated: Repeated, most: int | None = None) -> bool:
    """Whether it was enough to check the files again whose own text, or a text that their findings rest on, changed since
    the run before: for others nothing changed in them. ``most`` of them, where more are not to be checked."""
    before = repeated.before() if run.shard is None and run.means.executor is None else None
    if before is None:
        return False
    scan_files(run, before.changed)
    jobs = run.jobs
    try:
        if not before.same_for_others(run.scanned) and not before.follows(run.scanned):
            return False
        if most is not None and len(before.wanted) > most:
            return False
        run.before = before
        run.jobs = 1 if len(before.wanted) < FEW else jobs
        check_some(run, before.wanted, scanned=before.changed)
    except SourceError:  # a file changed once more
        return False
    finally:
        run.before, run.jobs = None, jobs
    links, again = before.now(run.checked), run.checked
    texts = {path: one.digest for path, one in before.stamps.items()} | {path: s.digest for path, s in run.scanned.items()}
    scanned, checked = before.result()
    run.scanned = scanned | run.scanned
    run.checked = checked | run.checked
    followed = before.followed
    trails = (lambda: followed.now(before.edits, again)) if followed is not None else before.trails
    repeated.keep(texts, run.scanned, run.checked, links, trails, before.words_now)
    return True
