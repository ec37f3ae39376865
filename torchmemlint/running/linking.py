"""The second step: facts → the project, of the files of a run with those around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from torchmemlint.processes import forks
from torchmemlint.processes.pool import size_of
from torchmemlint.project.results import Scanned
from torchmemlint.project.settings import Settings
from torchmemlint.running.scanning import BYTES_TO_SCAN, scan_all, scan_files
from torchmemlint.workers import ScanAll, ScanAround

if TYPE_CHECKING:
    from torchmemlint.index.facts import ModuleFacts
    from torchmemlint.index.project import Project
    from torchmemlint.running.state import Run


def link(run: Run) -> Project:
    """The project of all files that matter: those scanned, and those around them that they call or that call them."""
    from torchmemlint.index.project import Project

    if run.previous is not None:
        return run.previous.project(run.scanned)
    wrappers = sorted({name for settings in run.settings.values() for name in settings.no_grad_wrappers})
    if run.memory is not None:
        return run.memory.projects.project(_every(run), wrappers, run.complete)
    return Project.build(_every(run), wrappers, run.complete, 0 if logs_dependencies(run) else None)


def logs_dependencies(run: Run) -> bool:
    """Whether a later run can start from this one: then what its results depend on is logged."""
    return run.means.cache is not None and not run.by_hand and run.shard is None and run.means.executor is None


def words_of(run: Run) -> Callable[[], bytes | str]:
    """The word index, for later runs; nothing where no module will be looked at. In a process beside this one,
    which has to link the project, where there are several; else at once, while there is room in memory."""
    from torchmemlint.incremental.runs import word_index

    if not any(one.candidate for one in run.scanned.values()):
        return str
    _every(run)
    work = partial(word_index, [file.path for file in run.files], [*run.scanned.values(), *(run.around or ())])
    if forks.may_die():
        beside = forks.beside(work)
        return lambda: beside() or ""
    found = work()
    return lambda: found


def _every(run: Run) -> Sequence[ModuleFacts]:
    """The facts of all files that matter."""
    from torchmemlint.index.shared import forget

    missing = [file.path for file in run.files if file.path not in run.scanned]
    if missing:
        scan_files(run, missing)
    if run.around is None:
        run.around = _facts_around(run)
    forget()
    return [one.facts for one in (*run.scanned.values(), *run.around) if one.facts is not None]


def _facts_around(run: Run) -> tuple[Scanned, ...]:
    """Files with facts that the screen stopped but that stand beside torch-related ones; and of those around files that
    were named by hand."""
    from torchmemlint.project.neighbours import connected, surroundings

    if run.by_hand:
        around = surroundings(list(run.scanned.values()), ScanAround(run.means.cache), run.texts)
        run.complete, run.unread = around.complete, around.unread
        return around.read
    paths = connected(run.scanned.values())
    shared = ScanAll(dict.fromkeys(paths, Settings()), {}, parse_all=True, cache=run.means.cache)
    # This process is large by now: to fork it, and to write to what it then shares, takes longer than to read some files.
    few = forks.may_die() and sum(map(size_of, paths)) < BYTES_TO_SCAN
    beside = scan_all(run, shared, paths, 1 if few else None)
    return tuple(one for one in beside if one.facts is not None)
