"""An edit that other files can see, propagated to what depends on it, by the dependency log of an earlier run."""

from __future__ import annotations

import zlib
from array import array
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchmemlint.incremental.cache import Cache
from torchmemlint.incremental.changed_keys import Edit as ModuleEdit
from torchmemlint.incremental.changed_keys import empty_module
from torchmemlint.incremental.dependency_graph import DependencyGraph, Segment, after_edits, segments_of
from torchmemlint.incremental.records import BESIDE, OTHER, RELATED, Dependencies, FileDependencies, FileEntry, SegmentRef
from torchmemlint.incremental.runs import dependencies_of
from torchmemlint.index import keys
from torchmemlint.index.dependency_log import IS_KEY, kind_of
from torchmemlint.index.project import Project
from torchmemlint.project.neighbours import connected
from torchmemlint.project.results import Checked, Scanned

_MOST_NODES = 4
"""When there are so many times the nodes of the first run, everything is logged again."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One changed file, or a new one: as the run's own scan gave it, and with its facts where it has any."""

    given: Scanned
    now: Scanned


def kinds_after(
    files: Mapping[str, FileDependencies], earlier: Mapping[str, FileEntry], edits: Mapping[str, Edit], deleted: Collection[str]
) -> dict[str, str]:
    """What each file is now (``FileDependencies.kind``), after ``edits``, and after some were ``deleted``. A file that nobody edited can be beside
    others that it was not beside before, or the other way round; "beside" may then be true of one that cannot be parsed."""
    kinds = {path: one.kind for path, one in files.items() if path not in deleted}
    imports: dict[str, Iterable[str]] = {path: one.imports for path, one in files.items() if path not in deleted}
    for path, edit in edits.items():
        now = dependencies_of(edit.given, edit.given, None, {})
        kinds[path], imports[path] = now.kind, now.imports
    related = {
        path for path, kind in kinds.items() if kind == RELATED or (not kind and path in earlier and earlier[path].shape)
    }
    if not deleted and all(
        path in files
        and imports[path] == files[path].imports
        and (kinds[path] == files[path].kind or (kinds[path] == OTHER and files[path].kind == BESIDE))
        for path in edits
    ):  # nothing changed of what decides this
        return kinds | {path: files[path].kind for path in edits}
    stubs = [
        Scanned(
            path,
            empty_module(path) if path in related else None,
            imports=frozenset(name.encode(errors="surrogateescape") for name in imports[path]),
            skipped="" if kind or path in related else "skipped",
        )
        for path, kind in kinds.items()
    ]
    beside = {*connected(stubs)}
    return {path: kind if kind in ("", RELATED) else BESIDE if path in beside else OTHER for path, kind in kinds.items()}


class Propagation:
    """What the dependency log says after some ``edits`` of modules, of which there were those at ``paths``. ``make`` gives the project of
    the modules as they are now, in which results that may have changed are computed again; its argument is the number of the first
    node of its log. ``kinds`` are those of all files as they are now, in the order of the run. Raises ValueError if the log
    is not enough to say."""

    def __init__(
        self,
        cache: Cache,
        segments: Sequence[SegmentRef],
        files: Mapping[str, FileDependencies],
        kinds: Mapping[str, str],
        paths: Iterable[str],
        edits: Sequence[ModuleEdit],
        make: Callable[[int], Project],
    ) -> None:
        self._cache = cache
        self._segments = segments
        self._files = files
        self._kinds = kinds
        self._graph = graph = DependencyGraph(_read(cache, segments))
        first = len(graph.segments[0].counts) if graph.segments else 0
        if graph.size > _MOST_NODES * first + 100_000:
            raise ValueError("the log is too long")
        self.project = make(graph.size)
        self._invalidated = after_edits(graph, paths, edits, self.project)[1]

    def is_stale(self, path: str, entry: FileEntry) -> bool:
        """Whether some result for a file may have changed, or its dependencies are unknown."""
        one = self._files[path]
        if not entry.findings:
            return False
        if one.segment < 0 or one.entry != entry.findings:
            return True
        return not self._invalidated.here(one.segment).isdisjoint(_codes(one))

    def queries(self, path: str, entry: str, queries: Sequence[tuple[str, str]]) -> tuple[dict[str, int | None], set[str]]:
        """Of the queries of a file, those whose results hold, as ``QueryResults`` wants to know them; and those that may have
        changed. Texts are in neither: their digests are at hand."""
        one = self._files[path]
        codes = _codes(one)
        if one.segment < 0 or one.entry != entry or len(codes) != len(queries):
            return {}, {query for query, _ in queries}
        segment, invalidated = self._graph.segments[one.segment], self._invalidated.here(one.segment)
        pairs = list(zip((query for query, _ in queries), codes, strict=True))
        again = {query for query, code in pairs if code in invalidated}
        hold = {
            query: segment.everywhere(code) if code < IS_KEY else None
            for query, code in pairs
            if query not in again and (code < IS_KEY or kind_of(code) == keys.INSIDE)
        }
        return hold, again

    def dependencies(self, edits: Mapping[str, Edit], checked: Mapping[str, Checked]) -> Dependencies:
        """The dependencies of the run, after files were checked again."""
        names = sorted({one.segment for one in checked.values()} - {""})
        places = {name: len(self._segments) + place for place, name in enumerate(names)}
        segments = [*self._segments, *(self._cache.segment_ref(name, self._graph.size) for name in names)]
        files = [self._of_file(path, edits.get(path), checked.get(path), places) for path in self._kinds]
        return Dependencies(segments, files)

    def _of_file(self, path: str, edit: Edit | None, checked: Checked | None, places: Mapping[str, int]) -> FileDependencies:
        if edit is not None:
            return dependencies_of(edit.given, edit.now, checked, places)
        one = replace(self._files[path], kind=self._kinds[path])
        if checked is None:
            return one
        return replace(dependencies_of(Scanned(path), Scanned(path), checked, places), kind=one.kind, imports=one.imports)


def _read(cache: Cache, segments: Sequence[SegmentRef]) -> list[Segment]:
    def logs() -> Iterator[tuple[str, int, bytes]]:
        for one in segments:
            data = cache.segment(one)
            if data is None:
                raise ValueError("a segment is missing, or has changed")
            yield one.name, one.first, data

    return segments_of(logs())


def _codes(one: FileDependencies) -> array[int]:
    codes = array("Q")
    if one.codes:
        codes.frombytes(zlib.decompress(b64decode(one.codes)))
    return codes
