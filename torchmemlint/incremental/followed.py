"""An edit that other files can see, followed to what rests on it: by the trails that an earlier run wrote (``index.trail``)."""

from __future__ import annotations

import zlib
from array import array
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchmemlint.incremental.cache import Asked, Cache, Link, Trails
from torchmemlint.incremental.told import BESIDE, OTHER, RELATED, Written, asked_of
from torchmemlint.index import keys
from torchmemlint.index.dependencies import Affected, DependencyGraph, Segment, segments_of, settled
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.files import said_otherwise
from torchmemlint.index.project import Project
from torchmemlint.index.roots import Roots
from torchmemlint.index.said import nothing
from torchmemlint.index.trail import LEAF, kind_of
from torchmemlint.project.neighbours import connected
from torchmemlint.workers import Checked, Scanned

_MOST_NODES = 4
"""So many times the nodes of the first run, and all is written down anew."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One changed file, or a new one: as the run's own scan gave it, and with its facts where it has any."""

    given: Scanned
    now: Scanned


@dataclass(frozen=True, slots=True)
class Change:
    """What a module said, and what it says; ``said.nothing`` where the file was, or is, no module."""

    before: ModuleFacts
    now: ModuleFacts


def kinds_now(
    files: Mapping[str, Asked], links: Mapping[str, Link], edits: Mapping[str, Edit], gone: Collection[str]
) -> dict[str, str]:
    """What each file is now (``Asked.kind``), after ``edits``, and after some are ``gone``. A file that nobody edited can be beside
    others that it was not beside before, or the other way round; "beside" may then be said of one that cannot be parsed."""
    kinds = {path: one.kind for path, one in files.items() if path not in gone}
    imports: dict[str, Iterable[str]] = {path: one.imports for path, one in files.items() if path not in gone}
    for path, edit in edits.items():
        now = asked_of(edit.given, edit.given, None, {})
        kinds[path], imports[path] = now.kind, now.imports
    related = {path for path, kind in kinds.items() if kind == RELATED or (not kind and path in links and links[path].shape)}
    if not gone and all(
        path in files
        and imports[path] == files[path].imports
        and (kinds[path] == files[path].kind or (kinds[path] == OTHER and files[path].kind == BESIDE))
        for path in edits
    ):  # nothing that decides what is beside what
        return kinds | {path: files[path].kind for path in edits}
    stubs = [
        Scanned(
            path,
            nothing(path) if path in related else None,
            imports=frozenset(name.encode(errors="surrogateescape") for name in imports[path]),
            skipped="" if kind or path in related else "skipped",
        )
        for path, kind in kinds.items()
    ]
    beside = {*connected(stubs)}
    return {path: kind if kind in ("", RELATED) else BESIDE if path in beside else OTHER for path, kind in kinds.items()}


class Followed:
    """What an earlier run's trails say after some ``changes`` of modules, of which there are those at ``paths`` before. ``make``
    gives the project of the modules as they are now, in which the answers that may be others are worked out again; it is told
    the number of its trail's first node. ``kinds`` are those of all files as they are now, in the order of the run. Raises ValueError where the trails do
    not tell."""

    def __init__(
        self,
        cache: Cache,
        trails: Trails,
        files: Mapping[str, Asked],
        kinds: Mapping[str, str],
        paths: Iterable[str],
        changes: Sequence[Change],
        make: Callable[[int], Project],
    ) -> None:
        self._cache = cache
        self._trails = trails
        self._files = files
        self._kinds = kinds
        self._graph = graph = DependencyGraph(_segments(cache, trails))
        first = len(graph.segments[0].counts) if graph.segments else 0
        if graph.size > _MOST_NODES * first + 100_000:
            raise ValueError("there are too many trails")
        self.project = make(graph.size)
        shapes = [(change.before, change.now) for change in changes]
        keys = said_otherwise(paths, shapes, self.project.modules, graph.texts())
        self._affected: Affected = graph.affected(settled(graph, keys, shapes, Roots(self.project)) if keys else ())

    def rests_on_them(self, path: str, link: Link) -> bool:
        """Whether some answer for a file may be another now, or it is not known of what its answers were made."""
        one = self._files[path]
        if not link.kept:
            return False
        return one.segment < 0 or one.kept != link.kept or not self._affected.here(one.segment).isdisjoint(_codes(one))

    def still(self, path: str, kept: str, rests_on: Sequence[tuple[str, str]]) -> tuple[dict[str, int | None], set[str]]:
        """Of the questions of a file, those whose answers hold, as ``index.answers.Answers`` wants to know them; and those that
        are to be asked. Texts are in neither: whoever wants them has them."""
        one = self._files[path]
        codes = _codes(one)
        if one.segment < 0 or one.kept != kept or len(codes) != len(rests_on):
            return {}, {question for question, _ in rests_on}
        segment, affected = self._graph.segments[one.segment], self._affected.here(one.segment)
        pairs = list(zip((question for question, _ in rests_on), codes, strict=True))
        again = {question for question, code in pairs if code in affected}
        holding = {
            question: segment.everywhere(code) if code < LEAF else None
            for question, code in pairs
            if question not in again and (code < LEAF or kind_of(code) == keys.INSIDE)
        }
        return holding, again

    def now(self, edits: Mapping[str, Edit], checked: Mapping[str, Checked]) -> Written:
        """The trails, after files were checked again."""
        names = sorted({one.segment for one in checked.values()} - {""})
        places = {name: len(self._trails.segments) + place for place, name in enumerate(names)}
        segments = (*self._trails.segments, *(self._cache.named(name, self._graph.size) for name in names))
        return segments, (self._asked_now(path, edits.get(path), checked.get(path), places) for path in self._kinds)

    def _asked_now(self, path: str, edit: Edit | None, checked: Checked | None, places: Mapping[str, int]) -> Asked:
        if edit is not None:
            return asked_of(edit.given, edit.now, checked, places)
        one = replace(self._files[path], kind=self._kinds[path])
        if checked is None:
            return one
        return replace(asked_of(Scanned(path), Scanned(path), checked, places), kind=one.kind, imports=one.imports)


def _segments(cache: Cache, trails: Trails) -> list[Segment]:
    def written_down() -> Iterator[tuple[str, int, bytes]]:
        for one in trails.segments:
            data = cache.segment(one)
            if data is None:
                raise ValueError("a segment is missing, or not what it was")
            yield one.name, one.first, data

    return segments_of(written_down())


def _codes(one: Asked) -> array[int]:
    codes = array("Q")
    if one.codes:
        codes.frombytes(zlib.decompress(b64decode(one.codes)))
    return codes
