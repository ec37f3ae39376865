"""What a run is given, with what is known of its files so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torchmemlint.project.neighbours import is_of_no_project

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from torchmemlint.incremental.cache import Cache
    from torchmemlint.incremental.functions import FunctionResults
    from torchmemlint.incremental.previous_run import PreviousRun
    from torchmemlint.processes.progress import Progress
    from torchmemlint.project.discover import Found
    from torchmemlint.project.results import Checked, Scanned
    from torchmemlint.project.settings import Settings
    from torchmemlint.running.profile import Profile
    from torchmemlint.source.file import SourceFile
    from torchmemlint.suppress.baseline import Baseline
    from torchmemlint.suppress.since import Since


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``count`` parts of a run, 1 the first: every part looks at all files, and reports its own."""

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Means:
    """What a run may use, none of which changes what it finds.

    executor  where files are checked, and how many at a time
    profile   takes the time of everything, in one process
    """

    cache: Cache | None = None
    executor: tuple[Executor, int] | None = None
    progress: Progress | None = None
    profile: Profile | None = None

    def stage(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.profile is None else self.profile.clock.stage(name)


@dataclass(slots=True)
class Run:
    """One run over some files, and what is known of them so far.

    texts       stand in for what is on disk
    by_hand     every file was named by hand: it is parsed whatever is in it, and the project around it is looked at
    reported    the files whose findings are reported, None for all: those of a shard, or those named of a folder's
    unread      torch-related files around those that were named by hand that were not read
    memory      results of functions from an earlier check of the only file
    """

    files: Sequence[Found]
    jobs: int | None
    texts: dict[str, SourceFile] = field(default_factory=dict)
    by_hand: bool = False
    comments: bool = True
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    since: Since | None = None
    baseline: bool = True
    scanned: dict[str, Scanned] = field(default_factory=dict)
    checked: dict[str, Checked] = field(default_factory=dict)
    baselines: dict[str, Baseline] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    shard: Shard | None = None
    reported: frozenset[str] | None = None
    means: Means = field(default_factory=Means)
    around: tuple[Scanned, ...] | None = None
    previous: PreviousRun | None = None
    memory: FunctionResults | None = None
    complete: bool = True
    unread: int = 0
    began: int = field(default_factory=time.time_ns)
    settings: dict[str, Settings] = field(init=False)

    def __post_init__(self) -> None:
        self.settings = {file.path: file.settings for file in self.files}
        if self.by_hand and len(self.files) == 1 and is_of_no_project(self.files[0].path):
            self.settings = {path: replace(settings, alone=True) for path, settings in self.settings.items()}

    @property
    def named(self) -> frozenset[str] | None:
        """The files that the user named, where they are answered from a run over their folder."""
        return self.reported if self.shard is None else None
