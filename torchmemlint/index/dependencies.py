"""What earlier runs wrote down of how answers were made (``index.trail``), and which of them an edit may have changed.

A *segment* is what one process wrote. Nodes have numbers over all segments: those below ``first`` of a segment are of segments
before it, its own follow. Numbers of names are a segment's own.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING

from torchmemlint.index import keys
from torchmemlint.index.facts import CallFact, ModuleFacts
from torchmemlint.index.parts import joined, split
from torchmemlint.index.references import ClassRef
from torchmemlint.index.tables import form_of, last_name
from torchmemlint.index.trail import LEAF, ROOT, Name, Read, Trail

if TYPE_CHECKING:
    from torchmemlint.index.roots import Roots

_PARTS = 7
Asked = tuple[int, tuple[str, ...]]
"""A root: its kind and names."""


def written(trail: Trail) -> bytes:
    """What a trail holds since the last time, as bytes: the lengths of its parts in a line, and these."""
    names, *arrays = trail.take()
    texts = (json.dumps(names), json.dumps(trail.rests_on))
    return joined([*(text.encode() for text in texts), *(part.tobytes() for part in arrays)])


@dataclass(slots=True, eq=False)
class Segment:
    """See ``index.trail.Trail``. ``base`` is the number that its own first node has over all segments; ``rests_on`` the other
    segments without which it is nothing, with the roots that they have at the least."""

    first: int
    base: int
    numbers: dict[Name, int] = field(default_factory=dict)
    counts: array[int] = field(default_factory=lambda: array("I"))
    steps: array[int] = field(default_factory=lambda: array("Q"))
    blocks: array[int] = field(default_factory=lambda: array("Q"))
    roots: array[int] = field(default_factory=lambda: array("I"))
    parts: array[int] = field(default_factory=lambda: array("I"))
    rests_on: dict[str, int] = field(default_factory=dict)
    _places: dict[int, list[int]] = field(default_factory=dict)
    _known: dict[int, dict[Asked, int]] = field(default_factory=dict)
    _ends: list[int] = field(default_factory=list)
    _names: list[Name] = field(default_factory=list)

    def read(self, data: bytes) -> None:
        """Adds what ``written`` gave, once or several times. Raises ValueError."""
        at = 0
        while at < len(data):
            (names, rests_on, *arrays), at = split(data, _PARTS, at)
            self.rests_on |= json.loads(rests_on)
            self._names += (name if type(name) is str else tuple(name) for name in json.loads(names))
            for part, more in zip((self.counts, self.steps, self.blocks, self.roots, self.parts), arrays, strict=True):
                part.frombytes(more)
        self.numbers = {name: number for number, name in enumerate(self._names)}
        self._ends = [0, *accumulate(map(add, self.roots[2::ROOT], self.roots[3::ROOT]))]
        if self._ends[-1] != len(self.parts):
            raise ValueError("a root is cut off")

    def everywhere(self, node: int) -> int:
        """The number over all segments of a node, or the code of a key, which is no such number."""
        return node if node < self.first or node >= LEAF else node - self.first + self.base

    def code(self, read: Read) -> int | None:
        """The code of a key here, if it was ever read."""
        kind, one, two = read
        first, second = self.numbers.get(one), self.numbers.get(two)
        return None if first is None or second is None else LEAF | kind << 56 | first << 28 | second

    def affected(self, changed: Iterable[Read], before: Iterable[int]) -> set[int]:
        """The codes of the ``changed`` keys, and the nodes that have them among their steps, or lead to such. ``before`` are
        the nodes of segments before that do."""
        found = {code for read in changed if (code := self.code(read)) is not None}
        found.update(node for node in before if node < self.first)
        steps, counts = self.steps, self.counts
        if not found or found.isdisjoint(steps):
            return found
        node, at = self.first, 0
        ends = dict(zip(self.blocks[::2], self.blocks[1::2], strict=True))
        together: list[tuple[int, int, int]] = []
        until = 0
        for count in counts:
            if node in ends:
                together, until = [], ends[node]
            if not found.isdisjoint(steps[at : at + count]):
                found.add(node)
            elif node < until:
                together.append((node, at, at + count))
            at += count
            node += 1
            if node == until:
                size = -1
                while size != len(found):
                    size = len(found)
                    found.update(one for one, begin, end in together if not found.isdisjoint(steps[begin:end]))
        return found

    def roots_of(self, kinds: Collection[int], steps: Collection[int] | None = None) -> list[int]:
        """The places of the roots of these kinds, of those only that are such ``steps`` if any are given."""
        heads = enumerate(zip(self.roots[::ROOT], self.roots[1::ROOT], strict=True))
        return [place for place, (kind, node) in heads if kind in kinds and (steps is None or node in steps)]

    def with_name(self, kind: int, at: int, numbers: Collection[int]) -> list[int]:
        """The places of the roots of a kind of which the name at a place is among these numbers."""
        heads = enumerate(zip(self.roots[::ROOT], self._ends, strict=False))
        return [place for place, (of, begin) in heads if of == kind and self.parts[begin + at] in numbers]

    def asked(self, place: int) -> Asked:
        """What was asked for the root at a place."""
        kind, _, asked, _ = self.roots[place * ROOT : place * ROOT + ROOT]
        begin = self._ends[place]
        return kind, tuple(str(self._names[number]) for number in self.parts[begin : begin + asked])

    def values(self, place: int) -> list[str]:
        """The values of the root at a place."""
        begin = self._ends[place] + self.roots[place * ROOT + 2]
        return [str(self._names[number]) for number in self.parts[begin : self._ends[place + 1]]]

    def place_of(self, root: Asked) -> int | None:
        """The place of a root here: the last, if it was worked out several times."""
        names = root[1]
        first = self.numbers.get(names[0], -1) if names else -1
        found = self._known.get(first)
        if found is None:
            found = self._known[first] = {self.asked(place): place for place in self._with_first_name().get(first, ())}
        return found.get(root)

    def _with_first_name(self) -> dict[int, list[int]]:
        """The places of roots by the numbers of their first names, -1 where they have none."""
        if not self._places:
            for place, (begin, asked) in enumerate(zip(self._ends, self.roots[2::ROOT], strict=False)):
                self._places.setdefault(self.parts[begin] if asked else -1, []).append(place)
        return self._places


def segments_of(written_down: Iterable[tuple[str, int, bytes]]) -> list[Segment]:
    """The segments of a run, in their order: of each its name, the number of its first node, and what ``written`` gave. Raises
    ValueError where something is missing."""
    found: dict[str, Segment] = {}
    size = 0
    for name, first, data in written_down:
        segment = found[name] = Segment(first, size)
        segment.read(data)
        size += len(segment.counts)
    for segment in found.values():
        for name, roots in segment.rests_on.items():
            if name not in found or len(found[name].roots) < roots * ROOT:
                raise ValueError("a process that told others what it found did not write it down")
    return [*found.values()]


class DependencyGraph:
    """All segments of a run. A root that was worked out again stands in several: what the last of them says, holds."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.size = sum(len(segment.counts) for segment in segments)

    def texts(self) -> Iterator[str]:
        """All texts that keys name."""
        return (name for segment in self.segments for name in segment.numbers if type(name) is str)

    def values(self, root: Asked) -> list[str] | None:
        """The values of a root; None where it was not asked for."""
        found = self._place_of(root)
        return self.segments[found[0]].values(found[1]) if found is not None else None

    def _place_of(self, root: Asked) -> tuple[int, int] | None:
        for number in reversed(range(len(self.segments))):
            place = self.segments[number].place_of(root)
            if place is not None:
                return number, place
        return None

    def dirty(self, kinds: Collection[int], affected: Affected) -> set[Asked]:
        """The roots of these kinds that are affected."""
        found: set[Asked] = set()
        for number, segment in enumerate(self.segments):
            for place in segment.roots_of(kinds, affected.here(number)):
                root = segment.asked(place)
                if self._place_of(root) == (number, place):
                    found.add(root)
        return found

    def roots_of(self, kind: int) -> dict[tuple[str, ...], list[str]]:
        """All roots of a kind: their values by their names."""
        return {
            segment.asked(place)[1]: segment.values(place) for segment in self.segments for place in segment.roots_of((kind,))
        }

    def of_forms(self, forms: Collection[str]) -> Iterator[Asked]:
        """The roots of calls of objects that were asked for in such forms (see ``Tables.forms``)."""
        for segment in self.segments:
            callees = {
                number
                for name, number in segment.numbers.items()
                if type(name) is str and f"{form_of(name)}{last_name(name)}" in forms
            }
            yield from map(segment.asked, segment.with_name(keys.OBJECT, 2, callees) if callees else ())

    def affected(self, changed: Iterable[Read]) -> Affected:
        """What rests on keys."""
        changed = set(changed)
        nodes: set[int] = set()
        found: list[set[int]] = []
        for segment in self.segments:
            found.append(segment.affected(changed, nodes))
            nodes.update(segment.everywhere(step) for step in found[-1] if step < LEAF)
        return Affected(nodes, found)


@dataclass(frozen=True, slots=True)
class Affected:
    """Nodes over all segments; and the steps of each segment as it counts them, those before it included."""

    nodes: set[int]
    _steps: list[set[int]]

    def here(self, segment: int) -> set[int]:
        return self._steps[segment]


def settled(
    graph: DependencyGraph, changed: set[Read], edits: Sequence[tuple[ModuleFacts, ModuleFacts]], roots: Roots
) -> set[Read]:
    """The keys that edits changed, those included that are worked out over all modules: what lies between is compared with what
    it was. ``roots`` are those of the modules as they are now."""
    found = set(changed)
    affected = graph.affected(found)
    for step in (_bases, _reached, _leaks):
        more = step(graph, affected, edits, roots) - found
        if more:
            found |= more
            affected = graph.affected(found)
    return found


Edits = Sequence[tuple[ModuleFacts, ModuleFacts]]


def _bases(graph: DependencyGraph, affected: Affected, edits: Edits, roots: Roots) -> set[Read]:
    """BELOW of what has other classes below it, OVERRIDES of what has other methods in these."""
    if not any(segment.roots_of((keys.ORDER,)) for segment in graph.segments):
        return set()
    again = {names for _, names in graph.dirty((keys.ORDER,), affected)}
    had: dict[ClassRef, set[str]] = {}
    has: dict[ClassRef, set[str]] = {}
    for before, now in edits:
        again |= {(now.path, klass.qualname) for klass in (*before.classes, *now.classes)}
        had |= _methods(before)
        has |= _methods(now)
    edited = {now.path for _, now in edits}
    found: set[Read] = set()
    above = {names: roots.classes_above(ClassRef(names[0], names[1])) for names in sorted(again)}
    for names, bases in above.items():
        before_bases = _pairs(graph.values((keys.ORDER, names)) or ())
        found |= {(keys.BELOW, *base) for base in {*before_bases} ^ {each[:2] for each in bases}}
        klass = ClassRef(names[0], names[1])
        if klass.path not in edited:
            had[klass] = has[klass] = _methods(roots.module(klass.path)).get(klass, set())
        then = {(ClassRef(*base), name) for base in before_bases for name in had.get(klass, ())}
        found |= {(keys.OVERRIDES, *each) for each in then ^ {(base, name) for base in bases for name in has.get(klass, ())}}
    roots.knows_above(partial(_above, graph, above))
    return found


def _above(
    graph: DependencyGraph, again: Mapping[tuple[str, ...], list[ClassRef]]
) -> Iterator[tuple[ClassRef, list[ClassRef]]]:
    """Every class with its bases: as it was, but for those that were worked out ``again``."""
    for names, values in graph.roots_of(keys.ORDER).items():
        if names not in again:
            yield ClassRef(names[0], names[1]), [ClassRef(*pair) for pair in _pairs(values)]
    for names, bases in again.items():
        yield ClassRef(names[0], names[1]), bases


def _methods(module: ModuleFacts) -> dict[ClassRef, set[str]]:
    """The names of the methods of each class, as ``Names.overrides`` sees them."""
    found: dict[ClassRef, set[str]] = {ClassRef(module.path, klass.qualname): set() for klass in module.classes}
    for facts in module.functions:
        around, _, last = facts.qualname.rpartition(".")
        if ClassRef(module.path, around) in found:
            found[ClassRef(module.path, around)].add(last)
    return found


def _reached(graph: DependencyGraph, affected: Affected, edits: Edits, roots: Roots) -> set[Read]:
    """CALLS of what is reached by other calls, PLACES of what is reached by calls that moved in their functions, and PLACED of
    these."""
    again = graph.dirty((keys.SITE, keys.OBJECT), affected)
    anyway: set[Asked] = set()
    found: set[Read] = set()
    for before, now in edits:
        different, moved = _other_calls(before, now)
        found |= {(keys.PLACED, now.path, name) for name, _ in (*different, *moved)}
        anyway |= {root for name, call in different for root in _roots_of(now.path, name, call)}
        for asked in {asked for name, call in moved for asked in _roots_of(now.path, name, call)}:
            found |= {(keys.PLACES, *ref) for ref in _refs(asked[0], graph.values(asked) or ())}
    known = graph.values((keys.OBJECTS, ()))
    forms = roots.forms_of_objects() if known is not None else []
    others = {*forms} ^ {*(known or ())}
    anyway.update((keys.OBJECT, site) for form in others for site in roots.sites_of(form))
    anyway.update(graph.of_forms(others) if others else ())
    for kind, names in sorted(again | anyway):
        if kind == keys.OBJECT and known is None:
            continue
        before_values = graph.values((kind, names)) or []
        now_values = roots.reached_again(kind, names)
        one_refs, other_refs = _refs(kind, before_values), _refs(kind, now_values)
        if (kind, names) in anyway or (kind == keys.SITE and before_values[:1] != now_values[:1]):
            found |= {(keys.CALLS, *ref) for ref in {*one_refs, *other_refs}}
        else:
            found |= {(keys.CALLS, *ref) for ref in {*one_refs} ^ {*other_refs}}
    return found


def _leaks(graph: DependencyGraph, affected: Affected, edits: Edits, roots: Roots) -> set[Read]:
    """LEAK of the functions in which other calls leave grad mode switched, or calls moved among such."""
    one = other = _triples(graph.values((keys.LEAKS, ())) or ())
    if graph.dirty((keys.LEAKS,), affected):
        other = _triples(roots.leaks_again())
    found: set[Read] = {(keys.LEAK, path, qualname) for path, qualname, _ in one ^ other}
    leaking = {(path, qualname) for path, qualname, _ in one | other}
    for before, now in edits if leaking else ():
        names = {name for calls in _other_calls(before, now) for name, _ in calls}
        found |= {(keys.LEAK, now.path, name) for name in names if (now.path, name) in leaking}
    return found


_InFunction = tuple[str, CallFact]
"""A call, and the name of the function in which it stands."""


def _other_calls(before: ModuleFacts, now: ModuleFacts) -> tuple[set[_InFunction], set[_InFunction]]:
    """The calls that are new or gone; and those that have another place among the calls of their function."""
    one, other = _calls(before), _calls(now)
    gone, new = one - other, other - one
    then, since = (Counter(map(_anywhere, calls.elements())) for calls in (gone, new))
    really = (then - since) + (since - then)
    calls = {*gone, *new}
    different = {each for each in calls if _anywhere(each) in really}
    return different, calls - different


def _calls(module: ModuleFacts) -> Counter[_InFunction]:
    return Counter((facts.qualname, call) for facts in module.functions for call in facts.calls)


def _anywhere(each: _InFunction) -> _InFunction:
    return each[0], each[1]._replace(place=0)


def _roots_of(path: str, qualname: str, call: CallFact) -> tuple[Asked, Asked]:
    """The roots that tell what a call means."""
    return (keys.SITE, (path, qualname, call.callee, *call.keywords)), (keys.OBJECT, (path, qualname, call.callee))


def _refs(kind: int, values: Sequence[str]) -> list[tuple[str, str]]:
    """The functions among the values of a root of the kind ``SITE`` or ``OBJECT``."""
    return _pairs(values[kind == keys.SITE :])


def _pairs(values: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(values[::2], values[1::2], strict=True))


def _triples(values: Sequence[str]) -> set[tuple[str, str, str]]:
    return set(zip(values[::3], values[1::3], values[2::3], strict=True))
