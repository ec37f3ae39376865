"""Whole runs in the cache: the result of an earlier run over the same paths, used again as it is or updated (``previous_run``)."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence

from torchmemlint.errors import SourceError
from torchmemlint.files.plain import to_json
from torchmemlint.incremental.cache import Cache, key_of, stamp
from torchmemlint.incremental.records import (
    BESIDE,
    OTHER,
    RELATED,
    Dependencies,
    FileDependencies,
    FileEntry,
    Manifest,
    RunResult,
    Stamp,
)
from torchmemlint.project.discover import Found
from torchmemlint.project.results import Checked, Scanned
from torchmemlint.project.settings import Settings
from torchmemlint.source import is_notebook
from torchmemlint.workers import read_bytes

Outcome = tuple[dict[str, Scanned], dict[str, Checked]]
"""What a run says of those of its files of which there is something to say."""


class CachedRun:
    """A run over some files, and what the cache holds of an earlier one over the same paths. ``part`` of its result is reported,
    all by default; ``comments`` False, what they suppress, too."""

    def __init__(
        self, cache: Cache, files: Sequence[Found], given: Sequence[str], part: object = None, *, comments: bool = True
    ) -> None:
        self.cache = cache
        self.comments = comments
        self.settings = {file.path: file.settings for file in files}
        self._given = tuple(given) if part is None else None
        self._paths = [file.path for file in files]
        each = {file.settings: to_json(file.settings.of_analysis()) for file in files}
        settings = sorted(set(each.values()))
        number = {text: place for place, text in enumerate(settings)}
        self.key = key_of(
            os.getcwd(), tuple(given), part, settings, len(number) > 1 and [number[each[f.settings]] for f in files], comments
        )
        self.earlier: RunResult | None = None
        self.stamps: dict[str, Stamp] = {}
        self._digest = ""

    def result(self) -> Outcome | None:
        """The result of the earlier run, if nothing changed."""
        self.earlier, self._digest = self.cache.value("results", self.key, RunResult) or (None, "")
        files = dict(self.earlier.files) if self.earlier is not None else {}
        self.stamps = _stamps(self._paths, files)
        if self.earlier is None or [*files] != self._paths:
            return None
        same = all(path in self.stamps and self.stamps[path].digest == one.digest for path, one in files.items())
        return outcome(self.earlier) if same else None

    def manifest(self) -> Manifest | None:
        """The manifest of the earlier run, after ``result`` gave none; None where that is unknown, or a file cannot be read."""
        if self.earlier is None or any(path not in self.stamps for path in self._paths):
            return None
        found = self.cache.value("manifests", self.key, Manifest)
        if found is None or found[0].result != self._digest or len(found[0].files) != len(self.earlier.files):
            return None
        return found[0]

    def store(
        self,
        contents: Mapping[str, str],
        scanned: Mapping[str, Scanned],
        checked: Mapping[str, Checked],
        entries: Mapping[str, FileEntry],
        dependencies: Callable[[], Dependencies] | str = "",
        words: Callable[[], bytes | str] = str,
    ) -> None:
        """Stores this run, if another run would come to the same. ``contents`` are the digests of what it read; ``dependencies``
        and ``words`` give what is to be stored, or the digest of what is stored already."""
        if any(one.crashes or one.unread for one in checked.values()):
            return
        now = _stamps(self._paths, self.stamps)
        if any(path not in self.stamps or path not in now or contents.get(path) != now[path].digest for path in self._paths):
            return  # a file that cannot be read, or could not, or that changed meanwhile
        result = RunResult(
            files=tuple((path, self.stamps[path]) for path in self._paths),
            findings=tuple((path, one.findings) for path, one in checked.items() if one.findings),
            notes=tuple((path, one.notes) for path, one in checked.items() if one.notes),
            skipped=tuple((path, one.skipped) for path, one in scanned.items() if one.skipped),
        )
        stored = self.cache.store_value("results", self.key, result)
        if not isinstance(dependencies, str):
            dependencies = self.cache.store_dependencies(self.key, dependencies())
        index = words()
        index = index if isinstance(index, str) else self.cache.write("words", self.key, index)
        files = tuple(entries[path] for path in self._paths)
        self.cache.store_value("manifests", self.key, Manifest(stored, dependencies, index, files))
        if self._given is not None:
            self.cache.store_folder(self._given)

    def store_all(
        self,
        scanned: Mapping[str, Scanned],
        around: Iterable[Scanned],
        checked: Mapping[str, Checked],
        logged: bool,
        words: Callable[[], bytes | str],
    ) -> None:
        """Stores a run that scanned all of its files; ``around`` are those of which it took facts beyond that. ``logged`` says
        whether their dependencies are in the log."""
        numbers = {path: number for number, path in enumerate(self._paths)}
        beside = {one.path: one for one in around}

        def entry(path: str, one: Scanned) -> FileEntry:
            fuller = beside.get(path, one)
            return FileEntry(interface_of(fuller, one), fuller.shape, *findings_and_reads(checked.get(path), numbers))

        def dependencies() -> Dependencies:
            names = sorted({one.segment for one in checked.values()} - {""})
            places = {name: place for place, name in enumerate(names)}
            files = (dependencies_of(scanned[p], beside.get(p, scanned[p]), checked.get(p), places) for p in self._paths)
            return Dependencies([self.cache.segment_ref(name, 0) for name in names], files)

        entries = {path: entry(path, one) for path, one in scanned.items()}
        contents = {path: one.digest for path, one in scanned.items()}
        self.store(contents, scanned, checked, entries, dependencies if logged else "", words)


class FindingsKeys:
    """The keys under which the findings of files are stored."""

    def __init__(self, settings: Mapping[str, Settings], by_hand: bool, comments: bool = True) -> None:
        self._settings = settings
        self._by_hand = by_hand
        self._comments = comments
        self.wrappers = sorted({name for each in settings.values() for name in each.no_grad_wrappers})

    def of(self, path: str) -> str:
        # A file that is checked alone sees another project than in a run over its folder: the two do not displace each other.
        return key_of(path, os.getcwd(), self._settings[path].of_analysis(), self.wrappers, self._by_hand, self._comments)


def word_index(paths: Sequence[str], scanned: Iterable[Scanned]) -> bytes:
    """The word index of a run over files at ``paths``."""
    from torchmemlint.incremental.word_index import serialized

    modules = {one.path: one for one in scanned if one.facts is not None}
    shapes = {path: modules[path].shape if path in modules else "" for path in paths}
    return serialized(shapes, (one.facts for one in modules.values() if one.facts is not None))


def interface_of(scanned: Scanned, given: Scanned) -> str:
    """Digest of all that others can see of a file; "" where that is unknown. ``given`` is what the run's own scan gave,
    ``scanned`` may have facts beyond that."""
    if scanned.failed is not None or scanned.skipped or is_notebook(scanned.path):
        return ""
    imports = sorted(name.decode(errors="replace") for name in given.imports)
    return key_of(given.facts is None, scanned.shape, imports)


def kind_of(given: Scanned, fuller: Scanned) -> str:
    """``FileDependencies.kind`` of a file."""
    if given.failed is not None or given.skipped:
        return ""
    return RELATED if given.facts is not None else BESIDE if fuller.facts is not None else OTHER


def dependencies_of(given: Scanned, fuller: Scanned, checked: Checked | None, segments: Mapping[str, int]) -> FileDependencies:
    """What a file depends on. ``given`` is what the run's own scan gave, ``fuller`` may have facts beyond that; ``segments`` are
    the places of the segments."""
    logged = checked is not None and checked.dependencies and checked.segment in segments
    return FileDependencies(
        segments[checked.segment] if checked is not None and logged else -1,
        b64encode(checked.dependencies).decode() if checked is not None and logged else "",
        checked.entry if checked is not None else "",
        kind_of(given, fuller),
        tuple(sorted(name.decode(errors="surrogateescape") for name in given.imports)),
    )


def findings_and_reads(
    checked: Checked | None, numbers: Mapping[str, int]
) -> tuple[str, tuple[tuple[int, tuple[str, ...]], ...]]:
    """``FileEntry.findings`` and ``FileEntry.reads`` of a file."""
    if checked is None:
        return "", ()
    found: dict[int, list[str]] = {}
    for path, function in checked.reads:
        if path in numbers:
            found.setdefault(numbers[path], []).append(function)
    return checked.entry, tuple((number, tuple(names)) for number, names in sorted(found.items()))


def outcome(run: RunResult) -> Outcome:
    scanned = {path: Scanned(path, skipped=why) for path, why in run.skipped}
    findings, notes = dict(run.findings), dict(run.notes)
    paths = sorted({*findings, *notes})
    return scanned, {path: Checked(path, findings.get(path, ()), notes.get(path, ())) for path in paths}


def _stamps(paths: Sequence[str], earlier: Mapping[str, Stamp]) -> dict[str, Stamp]:
    found = {}
    for path in paths:
        try:
            now = stamp(path, read_bytes, earlier.get(path))
        except SourceError:
            continue
        if now is not None:
            found[path] = now
    return found
