"""The first step: files → their facts, in one process or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torchmemlint.processes.pool import run_all, size_of, usable_cpus
from torchmemlint.project.results import Scanned
from torchmemlint.workers import ScanAll, lost_scan, scan

if TYPE_CHECKING:
    from torchmemlint.running.state import Run

BYTES_TO_SCAN = 4_000_000
BYTES_TO_INSPECT = 600_000
"""Size of the files from which several processes are faster than one, where the user did not say how many: about a second's
work. Each process takes some 0.1 s to start, and 0.1 s more to import the engine."""


def scan_files(run: Run, paths: Sequence[str]) -> None:
    """Brings ``scanned`` up to date for some of the files."""
    shared = ScanAll(run.settings, run.texts, run.by_hand, run.means.cache)
    run.scanned |= zip(paths, scan_all(run, shared, paths), strict=True)


def scan_all(run: Run, shared: ScanAll, paths: Sequence[str], jobs: int | None = None) -> list[Scanned]:
    """Scans files that may be none of the run's own; ``jobs`` None lets their size decide."""
    jobs = jobs or jobs_for(run, paths, BYTES_TO_SCAN)
    with run.means.stage("scan"):
        return run_all(scan, shared, paths, jobs, lost_scan, progress_of(run, "reading", paths))


def jobs_for(run: Run, paths: Sequence[str], pays: int) -> int:
    """How many processes work on some files: several where these have so many bytes, if the user did not say."""
    if run.jobs is not None:
        return run.jobs
    return usable_cpus() if sum(map(size_of, paths)) >= pays else 1


def progress_of(run: Run, words: str, paths: Sequence[str]) -> Callable[[int], None]:
    """Begins a stage on the line of progress, and gives what counts the files that are done."""
    if run.means.progress is None:
        return lambda files: None
    run.means.progress.begin(words, len(paths))
    return run.means.progress.add
