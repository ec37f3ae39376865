"""An edit that other files can see, followed to what rests on it: by the trails that an earlier run wrote (``index.trail``)."""

from __future__ import annotations

import zlib
from array import array
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchmemlint.cache import Asked, Cache, Link, Trails
from torchmemlint.index import keys
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.graph import Affected, Graph, Segment, segments_of, settled
from torchmemlint.index.project import Project
from torchmemlint.index.roots import Roots
from torchmemlint.index.said import changed
from torchmemlint.index.trail import LEAF, kind_of
from torchmemlint.surroundings import connected
from torchmemlint.told import BESIDE, RELATED, Written, asked_of
from torchmemlint.workers import Checked, Scanned

_MOST_NODES = 4
"""So many times the nodes of the first run, and all is written down anew."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One changed file: as the run's own scan gave it, and with its facts where it has any; and its facts before, where these
    have another shape now."""

    given: Scanned
    now: Scanned
    before: ModuleFacts | None


def same_modules(files: Mapping[str, Asked], edits: Mapping[str, Edit]) -> bool:
    """Whether the project is made of the modules of which it was: those that are related to torch, and those beside them."""
    kinds = {path: one.kind for path, one in files.items()}
    imports = {path: one.imports for path, one in files.items()}
    for path, edit in edits.items():
        now = asked_of(edit.given, edit.given, None, {})
        if not kinds[path] or not now.kind or (kinds[path] == RELATED) != (now.kind == RELATED):
            return False
        imports[path] = now.imports
    if imports == {path: one.imports for path, one in files.items()}:
        return True
    nothing = {path: ModuleFacts(path, (), (), (), (), 0) for path, kind in kinds.items() if kind == RELATED}
    stubs = [
        Scanned(
            path,
            nothing.get(path),
            imports=frozenset(name.encode(errors="surrogateescape") for name in imports[path]),
            skipped="" if kinds[path] else "skipped",
        )
        for path in files
    ]
    return connected(stubs) == sorted(path for path, kind in kinds.items() if kind == BESIDE)


class Followed:
    """What an earlier run's trails say after some edits. ``make`` gives the project of the modules as they are now, in which the
    answers that may be others are worked out again; it is told the number of its trail's first node. Raises ValueError where
    the trails do not tell."""

    def __init__(
        self,
        cache: Cache,
        trails: Trails,
        files: Mapping[str, Asked],
        edits: Mapping[str, Edit],
        make: Callable[[int], Project],
    ) -> None:
        self._cache = cache
        self._trails = trails
        self._files = files
        self._graph = graph = Graph(_segments(cache, trails))
        first = len(graph.segments[0].counts) if graph.segments else 0
        if graph.size > _MOST_NODES * first + 100_000:
            raise ValueError("there are too many trails")
        self.project = make(graph.size)
        pairs = [(edit.before, edit.now.facts) for edit in edits.values() if edit.before is not None]
        shapes = [(before, now) for before, now in pairs if before is not None and now is not None]
        keys = {key for before, now in shapes for key in changed(before, now)}
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
        return segments, (self._asked_now(path, edits.get(path), checked.get(path), places) for path in self._files)

    def _asked_now(self, path: str, edit: Edit | None, checked: Checked | None, places: Mapping[str, int]) -> Asked:
        one = self._files[path]
        if edit is not None:
            return asked_of(edit.given, edit.now, checked, places)
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
