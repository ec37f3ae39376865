"""The pipeline on one screen; the only wiring.

discover → scan (screen, facts) → link → inspect (lower, interpret, rules, suppress) → findings
               ▲                                                                          │
               └────────────────────────── fix: edited texts ◄────────────────────────────┘
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from torchmemlint.errors import TOO_LARGE, SourceError
from torchmemlint.files.quoting import quoted
from torchmemlint.findings import Finding, Safety
from torchmemlint.processes import forks
from torchmemlint.processes.frames import with_room
from torchmemlint.processes.pool import run_all, run_on, shares, size_of, usable_cpus
from torchmemlint.project.config import Configuration
from torchmemlint.project.discover import Found, discover
from torchmemlint.project.settings import Settings
from torchmemlint.source import is_notebook, normal
from torchmemlint.workers import (
    Checked,
    InspectAll,
    ScanAll,
    ScanAround,
    Scanned,
    cannot_parse,
    crashed,
    inspect,
    inspect_comments,
    lost_scan,
    read,
    scan,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from torchmemlint.incremental.cache import Cache
    from torchmemlint.incremental.remembered import Before, Repeated
    from torchmemlint.index.facts import ModuleFacts
    from torchmemlint.index.project import Project
    from torchmemlint.processes.progress import Progress
    from torchmemlint.running.profile import Profile
    from torchmemlint.source.file import SourceFile
    from torchmemlint.source.notebook import CellRows
    from torchmemlint.suppress.baseline import Baseline
    from torchmemlint.suppress.since import Changed, Since

MAX_FIX_ROUNDS = 10
CHANGED = "changed while it was checked; nothing was written to it"
FEW = 40
"""Files that are checked again in one process, after an edit: more may pay for several."""

BYTES_TO_SCAN = 4_000_000
BYTES_TO_INSPECT = 600_000
"""Size of the files from which several processes are faster than one, where the user did not say how many: about a second's
work. Each process takes some 0.1 s to start, and 0.1 s more to import the engine."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``count`` parts of a run, 1 the first: every part looks at all files, and tells of its own."""

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found, in the order of every output; ``settings`` by path of every file that it looked at.

    problems    make the exit status 2: paths that cannot be checked, bad configuration files
    skipped     files and functions that were left out for what they are; told to everyone
    notes       told under ``-v``; ``crashes``, the tracebacks behind TML001, too
    baselined   how many findings the baseline hides; ``stale``, how many of its entries have no finding any more (0 where
                single files were checked: their callers may be out of sight)
    unchanged   how many findings are not on rows that changed since the revision asked for
    unconfirmed how many findings no experiment has confirmed, where only those are wanted
    """

    findings: tuple[Finding, ...]
    settings: Mapping[str, Settings]
    problems: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    crashes: tuple[str, ...] = ()
    baselined: int = 0
    stale: int = 0
    unchanged: int = 0
    unconfirmed: int = 0


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


def check_paths(
    paths: Sequence[str],
    configuration: Configuration,
    jobs: int | None = None,
    *,
    since: str = "",
    baseline: bool = True,
    shard: Shard | None = None,
    means: Means | None = None,
) -> Outcome:
    """Checks files and folders; ``jobs`` None lets the size of the work decide.

    ``since`` keeps the findings on rows that changed since a git revision; ``baseline`` False tells those that the baseline
    hides, too. Raises UsageError where git cannot tell, and BaselineError for a baseline that cannot be read.
    """
    return _over(paths, configuration, jobs, since, baseline, shard, means).check()


def fix_paths(
    paths: Sequence[str],
    configuration: Configuration,
    jobs: int | None = None,
    *,
    since: str = "",
    means: Means | None = None,
    refused: Callable[[str], str] | None = None,
) -> Fixed:
    """Checks files and folders, and repairs in memory what their settings allow; ``refused`` says why a file must stay as it is, ""
    where it need not."""
    return _over(paths, configuration, jobs, since, means=means).fix(refused or (lambda path: ""))


def check_text(text: str, filename: str, settings: Settings, *, comments: bool = True) -> list[Finding]:
    """Checks a text as the content of ``filename``, in the project that stands around that name.

    Raises SourceError for text that no Python file can hold; text that cannot be parsed gives TML000. ``comments=False``
    reports what ``# noqa`` and its kin suppress, for callers that apply them.
    """
    return list(_text(text, filename, settings, comments).check().findings)


def check_source(source: SourceFile, settings: Settings, buffers: Mapping[str, SourceFile] | None = None) -> Outcome:
    """As ``check_text``, for a source that is already decoded; ``buffers`` stand in for other files of the project, by path."""
    return _Run([Found(source.path, settings)], 1, {**(buffers or {}), source.path: source}, by_hand=True).check()


def fix_source(source: SourceFile, settings: Settings, buffers: Mapping[str, SourceFile] | None = None) -> Fixed:
    """As ``check_source``, and repairs what the settings allow."""
    return _Run([Found(source.path, settings)], 1, {**(buffers or {}), source.path: source}, by_hand=True).fix()


def project_around(path: str, settings: Settings) -> Project:
    """The linked project that a single file is checked in. Raises SourceError when the file itself cannot be parsed."""
    from torchmemlint.index.module_facts import module_facts

    module_facts(path, read(path).text)
    run = _Run([Found(path, settings)], 1, by_hand=True)
    run.scan([path])
    return run.link()


def _over(
    paths: Sequence[str],
    configuration: Configuration,
    jobs: int | None,
    since: str = "",
    baseline: bool = True,
    shard: Shard | None = None,
    means: Means | None = None,
) -> _Run:
    means = means or Means()
    with means.stage("find"):
        found = discover(paths, configuration)
    by_hand = not any(os.path.isdir(path) for path in paths)
    return _Run(
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
    )


def _since(revision: str) -> Since:
    from torchmemlint.suppress.since import Since

    return Since(revision)


def _text(text: str, filename: str, settings: Settings, comments: bool) -> _Run:
    from torchmemlint.source.file import source_from_text

    path = normal(filename).replace(os.sep, "/")
    return _Run([Found(path, settings)], 1, {path: source_from_text(path, text)}, by_hand=True, comments=comments)


@dataclass(frozen=True, slots=True)
class _Reported:
    """Findings by path of every file of a run, as far as they are to be told, and how many are not."""

    findings: Mapping[str, tuple[Finding, ...]]
    baselined: int
    stale: int
    unchanged: int


@dataclass(frozen=True, slots=True)
class _Checked:
    """What checking all files left in a run (see ``_Run``), and in its cache."""

    scanned: dict[str, Scanned]
    checked: dict[str, Checked]
    told: frozenset[str] | None
    complete: bool
    trouble: str = ""


@dataclass(slots=True)
class _Run:
    """One run over some files, and what is known of them so far.

    texts       stand in for what is on disk
    by_hand     every file was named by hand: it is parsed whatever is in it, and the project around it is looked at
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
    told: frozenset[str] | None = None
    means: Means = field(default_factory=lambda: Means())
    around: tuple[Scanned, ...] | None = None
    before: Before | None = None
    complete: bool = True
    began: int = field(default_factory=time.time_ns)
    settings: dict[str, Settings] = field(init=False)

    def __post_init__(self) -> None:
        self.settings = {file.path: file.settings for file in self.files}

    @with_room
    def check(self) -> Outcome:
        if self.means.cache is None or self.by_hand:
            self._check_all()
        else:
            from torchmemlint.incremental.remembered import Repeated

            repeated = Repeated(self.means.cache, self.files, self.given, self.shard)
            result = repeated.result()
            if result is not None:
                self.scanned, self.checked = result
            elif not self._check_changed(repeated):
                self._check_all(repeated)
        return self._outcome()

    def _check_all(self, repeated: Repeated | None = None) -> None:
        """Checks all files; where several processes do, in a process that works beside them while this one waits. If that one
        dies of a file, all is done again from here, where no file is touched by this process."""
        paths = [file.path for file in self.files]
        follows = repeated is not None and self._follows_edits()

        def check() -> _Checked:
            self.scan(paths)
            words = self._words() if follows else str
            self._check(paths, scanned=frozenset(paths))
            if repeated is not None:
                links = repeated.links(self.scanned, self.around or (), self.checked)
                texts = {path: one.digest for path, one in self.scanned.items()}
                trails = partial(repeated.trails, self.scanned, self.around or (), self.checked)
                repeated.keep(texts, self.scanned, self.checked, links, trails if follows else "", words)
            return _Checked(self.scanned, self.checked, self.told, self.complete)

        def check_apart() -> _Checked:
            done = check()
            if self.means.progress is not None:
                self.means.progress.end()
            scanned = {path: Scanned(path, skipped=one.skipped) for path, one in done.scanned.items() if one.skipped}
            trouble = self.means.cache.trouble if self.means.cache is not None else ""
            return replace(done, scanned=scanned, trouble=trouble)

        several = self.means.executor is None and len(paths) > 1 and self._jobs(paths, BYTES_TO_INSPECT) > 1
        done = forks.attempt(check_apart) if several else None
        if done is None:
            check()
        else:
            self.scanned, self.checked, self.told, self.complete = done.scanned, done.checked, done.told, done.complete
            if self.means.cache is not None and done.trouble:
                self.means.cache.trouble = done.trouble

    def _check_changed(self, repeated: Repeated) -> bool:
        """Whether it was enough to check the files again whose own text, or a text that their findings rest on, changed since
        the run before: for others nothing changed in them."""
        before = repeated.before() if self.shard is None and self.means.executor is None else None
        if before is None:
            return False
        self.scan(before.changed)
        jobs = self.jobs
        try:
            if not before.same_for_others(self.scanned) and not before.follows(self.scanned):
                return False
            self.before = before
            self.jobs = 1 if len(before.wanted) < FEW else jobs
            self._check(before.wanted, scanned=before.changed)
        except SourceError:  # a file changed once more
            return False
        finally:
            self.before, self.jobs = None, jobs
        links, again = before.now(self.checked), self.checked
        texts = {path: one.digest for path, one in before.stamps.items()} | {path: s.digest for path, s in self.scanned.items()}
        scanned, checked = before.result()
        self.scanned = scanned | self.scanned
        self.checked = checked | self.checked
        followed = before.followed
        trails = (lambda: followed.now(before.edits, again)) if followed is not None else before.trails
        repeated.keep(texts, self.scanned, self.checked, links, trails, before.words_now)
        return True

    def _check(self, paths: Sequence[str], scanned: Collection[str] = ()) -> None:
        """Checks some of the files, of which a few may just have been ``scanned``."""
        self.scan([path for path in paths if path not in scanned])
        if self.shard is not None:
            weights = [(path, size_of(path) if self.scanned[path].candidate else 1) for path in paths]
            paths = sorted([*shares(weights, self.shard.count)][self.shard.number - 1])
            self.told = frozenset(paths)
        failed = {path: done for path in paths if (done := self.scanned[path].failed) is not None}
        candidates = [path for path in paths if self.scanned[path].candidate]
        again = frozenset(paths)
        self.checked = {path: done for path, done in self.checked.items() if path not in again} | failed
        if candidates:
            with self.means.stage("rest"):
                inspected = self._inspect(candidates)
            for done in map(self._judged, inspected):
                broken = failed[done.path].findings if done.path in failed else ()  # cells of a notebook
                self.checked[done.path] = replace(done, findings=(*broken, *done.findings))
        quiet = [path for path in paths if "TML002" in self.settings[path].codes and self._only_comments(path)]
        if quiet:
            all_comments = ScanAll(self.settings, self.texts)
            jobs = self._jobs(quiet, BYTES_TO_SCAN)
            self.checked |= zip(
                quiet,
                run_all(inspect_comments, all_comments, quiet, jobs, crashed, self._telling("reading", quiet)),
                strict=True,
            )

    def _judged(self, done: Checked) -> Checked:
        """A failure of ours is none where a file was written to meanwhile: texts and facts then were of two times."""
        if not done.crashes:
            return done
        changed = [
            path for path in (done.path, *sorted(self.settings)) if path not in self.texts and self._changed_meanwhile(path)
        ]
        if not changed:
            return done
        whose = "it" if changed[0] == done.path else f"`{changed[0]}`"
        return cannot_parse(done.path, SourceError(f"was not checked: {whose} changed meanwhile"), self.settings[done.path], "")

    def _changed_meanwhile(self, path: str) -> bool:
        try:
            return os.stat(path).st_ctime_ns >= self.began
        except OSError:
            return True

    def _only_comments(self, path: str) -> bool:
        """Whether a file can be read, and no rule but TML002 can speak in it."""
        scanned = self.scanned[path]
        return not (scanned.candidate or scanned.failed or scanned.skipped)

    def _inspect(self, paths: Sequence[str]) -> list[Checked]:
        with self.means.stage("link"):
            project = self.link()
        if self.means.cache is None or self.texts:
            shared = InspectAll(project, self.settings, self.texts, self.comments)
            return self._run_all(shared, paths)
        from torchmemlint.incremental.remembered import Remembered, Seen

        seen = Seen([*self.scanned.values(), *(self.around or ())], self.before)
        holding = self.before.holding if self.before is not None else None
        remembered = Remembered(self.means.cache, project, seen, self.settings, self.by_hand, holding)
        known = {path: found for path in paths if (found := remembered.checked(path)) is not None}
        new = [path for path in paths if path not in known]
        if new:
            shared = InspectAll(project, self.settings, self.texts, self.comments, remembered.answers, remembered.keep)
            # What was done where our cache is out of reach is kept here.
            known |= {done.path: remembered.keep(done) for done in self._run_all(shared, new)}
        remembered.flush()
        return [known[path] for path in paths]

    def scan(self, paths: Sequence[str], parse_all: bool = False) -> None:
        """Brings ``scanned`` up to date for some of the files."""
        shared = ScanAll(self.settings, self.texts, parse_all or self.by_hand, self.means.cache)
        self.scanned |= zip(paths, self._scan_all(shared, paths), strict=True)

    def link(self) -> Project:
        """The project of all files that matter: those scanned, and those around them that they call or that call them."""
        from torchmemlint.index.project import Project

        if self.before is not None:
            return self.before.project(self.scanned)
        wrappers = sorted({name for settings in self.settings.values() for name in settings.no_grad_wrappers})
        return Project.build(self._every(), wrappers, self.complete, 0 if self._follows_edits() else None)

    def _follows_edits(self) -> bool:
        """Whether a later run can start from this one, so that it is written down of what answers are made."""
        return self.means.cache is not None and not self.by_hand and self.shard is None and self.means.executor is None

    def _words(self) -> Callable[[], bytes | str]:
        """Which modules say a word, for later runs; nothing where no module will be looked at. In a process beside this one,
        which has to link the project, where there are several; else at once, while there is room in memory."""
        from torchmemlint.incremental.told import words

        if not any(one.candidate for one in self.scanned.values()):
            return str
        self._every()
        work = partial(words, [file.path for file in self.files], [*self.scanned.values(), *(self.around or ())])
        if forks.may_die():
            beside = forks.beside(work)
            return lambda: beside() or ""
        found = work()
        return lambda: found

    def _every(self) -> Sequence[ModuleFacts]:
        """The facts of all files that matter."""
        from torchmemlint.index.shared import forget

        missing = [file.path for file in self.files if file.path not in self.scanned]
        if missing:
            self.scan(missing)
        if self.around is None:
            self.around = self._facts_around()
        forget()
        return [one.facts for one in (*self.scanned.values(), *self.around) if one.facts is not None]

    def _facts_around(self) -> tuple[Scanned, ...]:
        """Files with facts that the screen stopped but that stand beside torch-related ones; and of those around files that
        were named by hand."""
        from torchmemlint.project.neighbours import connected, surroundings

        if self.by_hand:
            around, self.complete = surroundings(list(self.scanned.values()), ScanAround(self.means.cache), self.texts)
            return around
        paths = connected(self.scanned.values())
        shared = ScanAll(dict.fromkeys(paths, Settings()), {}, parse_all=True, cache=self.means.cache)
        # This process is large by now: to fork it, and to write to what it then shares, takes longer than to read some files.
        few = forks.may_die() and sum(map(size_of, paths)) < BYTES_TO_SCAN
        beside = self._scan_all(shared, paths, 1 if few else None)
        return tuple(one for one in beside if one.facts is not None)

    def _scan_all(self, shared: ScanAll, paths: Sequence[str], jobs: int | None = None) -> list[Scanned]:
        jobs = jobs or self._jobs(paths, BYTES_TO_SCAN)
        with self.means.stage("scan"):
            return run_all(scan, shared, paths, jobs, lost_scan, self._telling("reading", paths))

    def _telling(self, words: str, paths: Sequence[str]) -> Callable[[int], None]:
        if self.means.progress is None:
            return lambda files: None
        self.means.progress.begin(words, len(paths))
        return self.means.progress.add

    def _run_all(self, shared: InspectAll, paths: Sequence[str]) -> list[Checked]:
        tell = self._telling("checking", paths)
        if self.means.profile is not None:
            shared = replace(shared, watch=self.means.profile)
        if self.means.executor is None:
            return run_all(inspect, shared, paths, self._jobs(paths, BYTES_TO_INSPECT), crashed, tell, shared.project.meet)
        # Wherever it is done, our files and our cache may not be there: the texts go along.
        executor, places = self.means.executor
        answers = shared.answers.without_keeping() if shared.answers is not None else None
        texts = dict(shared.texts)
        for path in shared.project.paths:
            if path not in texts:
                with suppress(SourceError):
                    texts[path] = read(path)
        return run_on(executor, places, inspect, replace(shared, texts=texts, answers=answers, keep=None), paths, crashed, tell)

    def _jobs(self, paths: Sequence[str], pays: int) -> int:
        if self.jobs is not None:
            return self.jobs
        return usable_cpus() if sum(map(size_of, paths)) >= pays else 1

    def _reported(self) -> _Reported:
        """What the baselines, and rows that did not change, leave of each file's findings."""
        found = {file.path: self.checked[file.path].findings if file.path in self.checked else () for file in self.files}
        if not self.complete:  # a comment may be there for a caller that is out of sight
            found = {path: tuple(one for one in findings if one.code != "TML002") for path, findings in found.items()}
        baselined = stale = unchanged = 0
        codes = {path: settings.codes for path, settings in self.settings.items()}
        for name in sorted({settings.baseline for settings in self.settings.values()} - {""}) if self.baseline else ():
            from torchmemlint.suppress.baseline import read_baseline, screen

            if name not in self.baselines:
                self.baselines[name] = read_baseline(name)
            covered = {path: findings for path, findings in found.items() if self.settings[path].baseline == name}
            screened = screen(self.baselines[name], covered, codes)
            found |= screened.kept
            baselined += screened.hidden
            stale += 0 if self.by_hand or self.shard else screened.stale
        if self.since is not None:
            for path in [*found] or ["."]:
                self.since.ask(path)  # a revision that git does not know must not look clean where nothing was found
            for path, findings in found.items():
                changed = self._changed(self.since, path) if findings else None
                if changed is not None:
                    found[path] = tuple(finding for finding in findings if changed.covers(finding))
                    unchanged += len(findings) - len(found[path])
        return _Reported(found, baselined, stale, unchanged)

    def _changed(self, since: Since, path: str) -> Changed:
        from torchmemlint.suppress.since import EVERYTHING

        try:
            source = read(path)
            data = source.encode(source.text)
        except SourceError:
            return EVERYTHING  # of a file that cannot be read no row is known
        changed = since.changed(path, data)
        if source.notebook is not None:
            changed = changed.renumbered(source.notebook.rows_in_file(source.lines))
        return changed.carried(source.text, self.texts[path].text) if path in self.texts else changed

    def _outcome(self) -> Outcome:
        reported = self._reported()
        checked = [self.checked[path] for path in sorted(self.checked)]
        skipped = [
            f"{quoted(one.path)}: {one.skipped}"
            for one in self.scanned.values()
            if one.skipped and (self.told is None or one.path in self.told)
        ]
        said = sorted({note for one in checked for note in one.notes})
        skipped += [note for note in said if note.endswith(TOO_LARGE)]
        notes = [*self.notes, *(note for note in said if not note.endswith(TOO_LARGE))]
        if not self.complete:
            notes.append("the project around the given files is too large to be searched whole: some callers are unknown")
        return Outcome(
            findings=self._placed(chain.from_iterable(reported.findings.values())),
            settings=self.settings,
            problems=tuple(self.problems),
            skipped=tuple(sorted(skipped)),
            notes=tuple(notes),
            crashes=tuple(crash for one in checked for crash in one.crashes),
            baselined=reported.baselined,
            stale=reported.stale,
            unchanged=reported.unchanged,
        )

    def _placed(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Findings in the order of every output. Up to here those of a notebook count the rows of the module that its cells
        make; from here they count those of their cell."""
        rows: dict[str, CellRows | None] = {}

        def cells(path: str) -> CellRows | None:
            if path not in rows:
                try:
                    rows[path] = (self.texts.get(path) or read(path)).cells if is_notebook(path) else None
                except SourceError:  # then its finding says why, and where in the file
                    rows[path] = None
            return rows[path]

        found = list(findings)
        if any(is_notebook(path) for one in found for path in (one.path, *(step.path for step in one.flow))):
            from torchmemlint.source.notebook import in_cells

            found = [in_cells(finding, cells) for finding in found]
        return tuple(sorted(found, key=lambda one: one.sort_key))

    @with_room
    def fix(self, refused: Callable[[str], str] = lambda path: "") -> Fixed:
        """Rounds over all files at once, because a fix in one file can change what is true in another."""
        from torchmemlint.fixes import apply_fixes

        stamps = {file.path: stamp(file.path) for file in self.files}
        left: dict[str, str] = {}
        before: dict[str, SourceFile] = {}
        repaired: list[Finding] = []
        changed = [file.path for file in self.files]
        for _ in range(MAX_FIX_ROUNDS):
            self._check(changed)
            changed = []
            for path, findings in sorted(self._reported().findings.items()):
                unsafe = self.settings[path].unsafe_fixes
                if path in left or not any(repairable(finding, unsafe) for finding in findings):
                    continue
                source = self.texts.get(path)
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
                    self.texts[path] = replace(source, text=result.text)
                    repaired += result.applied
                    changed.append(path)
            if not changed:
                break
        else:
            self._check(changed)
        # What is left in files that were not changed may have been answered by a change in another.
        self._check([path for path, done in self.checked.items() if before and done.findings and path not in before])
        after = {path: self.texts[path].text for path in before if self.texts[path].text != before[path].text}
        return Fixed(self._outcome(), {path: before[path] for path in after}, after, tuple(repaired), left)


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
