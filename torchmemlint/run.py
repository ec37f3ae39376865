"""The pipeline on one screen; ``running`` has its steps.

discover → scan (screen, facts) → link → inspect (lower, interpret, rules, suppress) → findings
               ▲                                                                          │
               └────────────────────────── fix: edited texts ◄────────────────────────────┘
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from torchmemlint.errors import UsageError
from torchmemlint.files.quoting import quoted
from torchmemlint.findings import Finding
from torchmemlint.processes.frames import with_frame_chunk
from torchmemlint.project.config import Configuration
from torchmemlint.project.discover import Found, discover
from torchmemlint.project.settings import Settings
from torchmemlint.running import checking, fixing
from torchmemlint.running.fixing import Fixed as Fixed
from torchmemlint.running.inspecting import with_broken
from torchmemlint.running.linking import link
from torchmemlint.running.named_files import from_folder
from torchmemlint.running.reporting import Outcome as Outcome
from torchmemlint.running.reporting import outcome_of, partial_notes
from torchmemlint.running.scanning import scan_files
from torchmemlint.running.state import Means as Means
from torchmemlint.running.state import Run
from torchmemlint.running.state import Shard as Shard
from torchmemlint.source import normal
from torchmemlint.workers import read

if TYPE_CHECKING:
    from threading import Event

    from torchmemlint.incremental.cache import Cache
    from torchmemlint.incremental.functions import FunctionResults
    from torchmemlint.index.project import Project
    from torchmemlint.source.file import SourceFile
    from torchmemlint.suppress.since import Since


def check_paths(
    paths: Sequence[str],
    configuration: Configuration,
    jobs: int | None = None,
    *,
    since: str = "",
    baseline: bool = True,
    shard: Shard | None = None,
    means: Means | None = None,
    comments: bool = True,
) -> Outcome:
    """Checks files and folders; ``jobs`` None lets the size of the work decide.

    ``since`` keeps the findings on rows that changed since a git revision; ``baseline`` False reports those that the baseline
    hides, too; ``comments`` False those that comments suppress. Raises UsageError where git does not know, and BaselineError for a baseline that cannot be read.
    """
    return _check(_over(paths, configuration, jobs, since, baseline, shard, means, comments), configuration)


def fix_paths(
    paths: Sequence[str],
    configuration: Configuration,
    jobs: int | None = None,
    *,
    since: str = "",
    means: Means | None = None,
    comments: bool = True,
    refused: Callable[[str], str] | None = None,
) -> Fixed:
    """Checks files and folders, and fixes in memory what their settings allow; ``refused`` says why a file must stay as it is,
    "" where it need not."""
    return _fix(_over(paths, configuration, jobs, since, means=means, comments=comments), refused, configuration)


def check_text(
    text: str, filename: str, settings: Settings, *, comments: bool = True, means: Means | None = None
) -> list[Finding]:
    """Checks a text as the content of ``filename``, in the project that stands around that name.

    Raises SourceError for text that no Python file can hold; text that cannot be parsed gives TML000. ``comments=False``
    reports what ``# noqa`` and its kin suppress, for callers that apply them.
    """
    return list(_check(_text(text, filename, settings, comments, means or Means())).findings)


def check_source(
    source: SourceFile,
    settings: Settings,
    buffers: Mapping[str, SourceFile] | None = None,
    *,
    comments: bool = True,
    memory: FunctionResults | None = None,
    report_early: Callable[[Outcome], None] | None = None,
    cancel: Event | None = None,
) -> Outcome:
    """As ``check_text``, for a source that is already decoded; ``buffers`` stand in for other files of the project, by path.
    ``memory`` has the results of its functions from one check to the next; ``report_early`` hears what is found before functions are
    run that only depend on what changed. Raises Cancelled once ``cancel`` is set."""
    run = _source(source, settings, buffers, comments)
    if memory is not None:
        run.memory, memory.cancel = memory, cancel
        if report_early is not None:
            memory.report_early = lambda checked: report_early(
                outcome_of(replace(run, checked={checked.path: with_broken(run, checked)}))
            )
    return _check(run)


def fix_source(
    source: SourceFile, settings: Settings, buffers: Mapping[str, SourceFile] | None = None, *, comments: bool = True
) -> Fixed:
    """As ``check_source``, and fixes what the settings allow."""
    return _fix(_source(source, settings, buffers, comments))


class Traced(NamedTuple):
    """The linked project that a file is checked in, the file's name there, and what was not read of it."""

    project: Project
    path: str
    notes: tuple[str, ...]


@with_frame_chunk
def project_around(
    path: str, settings: Settings, configuration: Configuration, given: Sequence[str] = (), cache: Cache | None = None
) -> Traced:
    """What a check of the ``given`` paths reads; without them, what a check of this file alone does: an earlier run over its folder
    where ``cache`` has one that still holds. Raises SourceError if the file itself cannot be parsed, UsageError if the check would
    not read it."""
    from torchmemlint.index.module_facts import module_facts

    module_facts(path, read(path).text)
    run = Run([Found(path, settings)], 1, by_hand=True, means=Means(cache))
    folder = None if given else from_folder(run, configuration)
    given = given or (folder.given if folder is not None else ())
    if given:
        run = replace(_over(given, configuration, None), means=Means(cache))
        same = os.path.abspath(path)
        path = next((name for name in run.settings if os.path.abspath(name) == same), "")
        if not path:
            raise UsageError(f"a check of {', '.join(map(quoted, given))} does not read this file")
    scan_files(run, list(run.settings))
    return Traced(link(run), path, partial_notes(run))


@with_frame_chunk
def _check(run: Run, configuration: Configuration | None = None) -> Outcome:
    folder = from_folder(run, configuration) if configuration is not None else None
    if folder is None:
        checking.check(run)
    return outcome_of(folder or run)


@with_frame_chunk
def _fix(run: Run, refused: Callable[[str], str] | None = None, configuration: Configuration | None = None) -> Fixed:
    folder = from_folder(run, configuration) if configuration is not None else None
    return fixing.fix(folder or run, refused or (lambda path: ""), checked=folder is not None)


def _over(
    paths: Sequence[str],
    configuration: Configuration,
    jobs: int | None,
    since: str = "",
    baseline: bool = True,
    shard: Shard | None = None,
    means: Means | None = None,
    comments: bool = True,
) -> Run:
    means = means or Means()
    with means.stage("find"):
        found = discover(paths, configuration)
    by_hand = not any(os.path.isdir(path) for path in paths)
    return Run(
        found.files,
        1 if means.profile is not None else jobs,
        by_hand=by_hand,
        problems=found.problems,
        notes=found.notes,
        since=_since(since) if since else None,
        baseline=baseline,
        given=tuple(paths),
        shard=shard,
        means=means,
        comments=comments,
    )


def _since(revision: str) -> Since:
    from torchmemlint.suppress.since import Since

    return Since(revision)


def _text(text: str, filename: str, settings: Settings, comments: bool, means: Means) -> Run:
    from torchmemlint.source.file import source_from_text

    path = normal(filename).replace(os.sep, "/")
    source = source_from_text(path, text)
    return Run([Found(path, settings)], 1, {path: source}, by_hand=True, comments=comments, means=means)


def _source(source: SourceFile, settings: Settings, buffers: Mapping[str, SourceFile] | None, comments: bool) -> Run:
    return Run([Found(source.path, settings)], 1, {**(buffers or {}), source.path: source}, by_hand=True, comments=comments)
