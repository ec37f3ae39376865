"""The dependency graph: from what earlier runs logged (``index.dependency_log``) to what an edit invalidates.

A *segment* is the log of one process. Nodes have numbers over all segments: those below ``first`` of a segment are of segments
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

from torchmemlint.incremental.changed_keys import Edit, changed_keys
from torchmemlint.incremental.firewalls import Firewalls
from torchmemlint.incremental.parts import joined, split
from torchmemlint.index import keys
from torchmemlint.index.dependency_log import FIREWALL_FIELDS, IS_KEY, DependencyLog, Key, Name
from torchmemlint.index.facts import CallFact, ModuleFacts
from torchmemlint.index.references import ClassRef
from torchmemlint.index.tables import form_of, last_name

if TYPE_CHECKING:
    from torchmemlint.index.project import Project

_PARTS = 7
FirewallId = tuple[int, tuple[str, ...]]
"""A firewall: its kind and names."""


def serialized(log: DependencyLog) -> bytes:
    """What was logged since the last time, as bytes: the lengths of its parts in a line, and these."""
    names, *arrays = log.drain()
    texts = (json.dumps(names), json.dumps(log.needs))
    return joined([*(text.encode() for text in texts), *(part.tobytes() for part in arrays)])


@dataclass(slots=True, eq=False)
class Segment:
    """See ``DependencyLog``. ``base`` is the number that its own first node has over all segments; ``needs`` the other segments
    without which it cannot be used, with the least number of firewalls in each."""

    first: int
    base: int
    numbers: dict[Name, int] = field(default_factory=dict)
    counts: array[int] = field(default_factory=lambda: array("I"))
    dependencies: array[int] = field(default_factory=lambda: array("Q"))
    cycles: array[int] = field(default_factory=lambda: array("Q"))
    firewalls: array[int] = field(default_factory=lambda: array("I"))
    parts: array[int] = field(default_factory=lambda: array("I"))
    needs: dict[str, int] = field(default_factory=dict)
    _places: dict[int, list[int]] = field(default_factory=dict)
    _known: dict[int, dict[FirewallId, int]] = field(default_factory=dict)
    _ends: list[int] = field(default_factory=list)
    _names: list[Name] = field(default_factory=list)

    def read(self, data: bytes) -> None:
        """Adds what ``serialized`` gave, once or several times. Raises ValueError."""
        at = 0
        while at < len(data):
            (names, needs, *arrays), at = split(data, _PARTS, at)
            self.needs |= json.loads(needs)
            self._names += (name if type(name) is str else tuple(name) for name in json.loads(names))
            for part, more in zip(
                (self.counts, self.dependencies, self.cycles, self.firewalls, self.parts), arrays, strict=True
            ):
                part.frombytes(more)
        self.numbers = {name: number for number, name in enumerate(self._names)}
        self._ends = [0, *accumulate(map(add, self.firewalls[2::FIREWALL_FIELDS], self.firewalls[3::FIREWALL_FIELDS]))]
        if self._ends[-1] != len(self.parts):
            raise ValueError("a firewall is cut off")

    def everywhere(self, node: int) -> int:
        """The number over all segments of a node, or the code of a key, which is no such number."""
        return node if node < self.first or node >= IS_KEY else node - self.first + self.base

    def code(self, read: Key) -> int | None:
        """The code of a key here, if anything read it."""
        kind, one, two = read
        first, second = self.numbers.get(one), self.numbers.get(two)
        return None if first is None or second is None else IS_KEY | kind << 56 | first << 28 | second

    def invalidated(self, changed: Iterable[Key], before: Iterable[int]) -> set[int]:
        """The codes of the ``changed`` keys, and the nodes that depend on them, directly or not. ``before`` are such nodes of earlier
        segments."""
        found = {code for read in changed if (code := self.code(read)) is not None}
        found.update(node for node in before if node < self.first)
        dependencies, counts = self.dependencies, self.counts
        if not found or found.isdisjoint(dependencies):
            return found
        node, at = self.first, 0
        ends = dict(zip(self.cycles[::2], self.cycles[1::2], strict=True))
        together: list[tuple[int, int, int]] = []
        until = 0
        for count in counts:
            if node in ends:
                together, until = [], ends[node]
            if not found.isdisjoint(dependencies[at : at + count]):
                found.add(node)
            elif node < until:
                together.append((node, at, at + count))
            at += count
            node += 1
            if node == until:
                size = -1
                while size != len(found):
                    size = len(found)
                    found.update(one for one, begin, end in together if not found.isdisjoint(dependencies[begin:end]))
        return found

    def firewalls_of(self, kinds: Collection[int], dependencies: Collection[int] | None = None) -> list[int]:
        """The places of the firewalls of these kinds; only those among the ``dependencies``, if any are given."""
        heads = enumerate(zip(self.firewalls[::FIREWALL_FIELDS], self.firewalls[1::FIREWALL_FIELDS], strict=True))
        return [place for place, (kind, node) in heads if kind in kinds and (dependencies is None or node in dependencies)]

    def with_name(self, kind: int, at: int, numbers: Collection[int]) -> list[int]:
        """The places of the firewalls of a kind of which the name at a place is among these numbers."""
        heads = enumerate(zip(self.firewalls[::FIREWALL_FIELDS], self._ends, strict=False))
        return [place for place, (of, begin) in heads if of == kind and self.parts[begin + at] in numbers]

    def id_at(self, place: int) -> FirewallId:
        """The firewall at a place."""
        kind, _, asked, _ = self.firewalls[place * FIREWALL_FIELDS : place * FIREWALL_FIELDS + FIREWALL_FIELDS]
        begin = self._ends[place]
        return kind, tuple(str(self._names[number]) for number in self.parts[begin : begin + asked])

    def values(self, place: int) -> list[str]:
        """The values of the firewall at a place."""
        begin = self._ends[place] + self.firewalls[place * FIREWALL_FIELDS + 2]
        return [str(self._names[number]) for number in self.parts[begin : self._ends[place + 1]]]

    def place_of(self, firewall: FirewallId) -> int | None:
        """The place of a firewall here: the last, if it was computed several times."""
        names = firewall[1]
        first = self.numbers.get(names[0], -1) if names else -1
        found = self._known.get(first)
        if found is None:
            found = self._known[first] = {self.id_at(place): place for place in self._with_first_name().get(first, ())}
        return found.get(firewall)

    def _with_first_name(self) -> dict[int, list[int]]:
        """The places of firewalls by the numbers of their first names, -1 where they have none."""
        if not self._places:
            for place, (begin, asked) in enumerate(zip(self._ends, self.firewalls[2::FIREWALL_FIELDS], strict=False)):
                self._places.setdefault(self.parts[begin] if asked else -1, []).append(place)
        return self._places


def segments_of(logs: Iterable[tuple[str, int, bytes]]) -> list[Segment]:
    """The segments of a run, in their order: of each its name, the number of its first node, and what ``serialized`` gave. Raises
    ValueError where something is missing."""
    found: dict[str, Segment] = {}
    size = 0
    for name, first, data in logs:
        segment = found[name] = Segment(first, size)
        segment.read(data)
        size += len(segment.counts)
    for segment in found.values():
        for name, least in segment.needs.items():
            if name not in found or len(found[name].firewalls) < least * FIREWALL_FIELDS:
                raise ValueError("a process that gave its results to others did not log them")
    return [*found.values()]


class DependencyGraph:
    """All segments of a run. A firewall that was computed again is in several of them: the last one counts."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.size = sum(len(segment.counts) for segment in segments)

    def texts(self) -> Iterator[str]:
        """All texts that keys name."""
        return (name for segment in self.segments for name in segment.numbers if type(name) is str)

    def values(self, firewall: FirewallId) -> list[str] | None:
        """The values of a firewall; None where it was not asked for."""
        found = self._place_of(firewall)
        return self.segments[found[0]].values(found[1]) if found is not None else None

    def _place_of(self, firewall: FirewallId) -> tuple[int, int] | None:
        for number in reversed(range(len(self.segments))):
            place = self.segments[number].place_of(firewall)
            if place is not None:
                return number, place
        return None

    def dirty(self, kinds: Collection[int], invalidated: Invalidated) -> set[FirewallId]:
        """The firewalls of these kinds that may have changed."""
        found: set[FirewallId] = set()
        for number, segment in enumerate(self.segments):
            for place in segment.firewalls_of(kinds, invalidated.here(number)):
                firewall = segment.id_at(place)
                if self._place_of(firewall) == (number, place):
                    found.add(firewall)
        return found

    def firewalls_of(self, kind: int) -> dict[tuple[str, ...], list[str]]:
        """All firewalls of a kind: their values by their names."""
        return {
            segment.id_at(place)[1]: segment.values(place)
            for segment in self.segments
            for place in segment.firewalls_of((kind,))
        }

    def of_forms(self, forms: Collection[str]) -> Iterator[FirewallId]:
        """The firewalls of calls of objects that were asked for in such forms (see ``Tables.forms``)."""
        for segment in self.segments:
            callees = {
                number
                for name, number in segment.numbers.items()
                if type(name) is str and f"{form_of(name)}{last_name(name)}" in forms
            }
            yield from map(segment.id_at, segment.with_name(keys.OBJECT, 2, callees) if callees else ())

    def invalidated(self, changed: Iterable[Key]) -> Invalidated:
        """What depends on keys, directly or not."""
        changed = set(changed)
        nodes: set[int] = set()
        found: list[set[int]] = []
        for segment in self.segments:
            found.append(segment.invalidated(changed, nodes))
            nodes.update(segment.everywhere(step) for step in found[-1] if step < IS_KEY)
        return Invalidated(nodes, found)


@dataclass(frozen=True, slots=True)
class Invalidated:
    """Nodes over all segments; and the codes of those and of changed keys as each segment counts them."""

    nodes: set[int]
    _steps: list[set[int]]

    def here(self, segment: int) -> set[int]:
        return self._steps[segment]


def after_edits(
    graph: DependencyGraph, paths: Iterable[str], edits: Sequence[Edit], project: Project
) -> tuple[set[Key], Invalidated]:
    """The keys that edits changed, with those that are computed over all modules (early cut-off: a firewall that may have changed is
    computed again, and nothing above it is invalidated unless its values differ), and what depends on them. The modules were those at
    ``paths``, and are those of the ``project`` now. Raises ValueError where anything may have changed."""
    found = changed_keys(paths, edits, project.modules, graph.texts())
    invalidated = graph.invalidated(found)
    if all(kind == keys.MODULE for kind, _, _ in found):  # nothing but rows
        return found, invalidated
    firewalls = Firewalls(project)
    for step in (_bases, _reached, _leaks):
        more = step(graph, invalidated, edits, firewalls) - found
        if more:
            found |= more
            invalidated = graph.invalidated(found)
    return found, invalidated


def _bases(graph: DependencyGraph, invalidated: Invalidated, edits: Sequence[Edit], firewalls: Firewalls) -> set[Key]:
    """BELOW of what has other classes below it, OVERRIDES of what has other methods in these."""
    if not any(segment.firewalls_of((keys.ORDER,)) for segment in graph.segments):
        return set()
    again = {names for _, names in graph.dirty((keys.ORDER,), invalidated)}
    had: dict[ClassRef, set[str]] = {}
    has: dict[ClassRef, set[str]] = {}
    for before, now in edits:
        again |= {(now.path, klass.qualname) for klass in (*before.classes, *now.classes)}
        had |= _methods(before)
        has |= _methods(now)
    edited = {now.path for _, now in edits}
    found: set[Key] = set()
    above = {names: firewalls.classes_above(ClassRef(names[0], names[1])) for names in sorted(again)}
    for names, bases in above.items():
        before_bases = _pairs(graph.values((keys.ORDER, names)) or ())
        found |= {(keys.BELOW, *base) for base in {*before_bases} ^ {each[:2] for each in bases}}
        klass = ClassRef(names[0], names[1])
        if klass.path not in edited:
            had[klass] = has[klass] = _methods(firewalls.module(klass.path)).get(klass, set())
        then = {(ClassRef(*base), name) for base in before_bases for name in had.get(klass, ())}
        found |= {(keys.OVERRIDES, *each) for each in then ^ {(base, name) for base in bases for name in has.get(klass, ())}}
    firewalls.knows_above(partial(_above, graph, above))
    return found


def _above(
    graph: DependencyGraph, again: Mapping[tuple[str, ...], list[ClassRef]]
) -> Iterator[tuple[ClassRef, list[ClassRef]]]:
    """Every class with its bases: as stored, but for those that were computed ``again``."""
    for names, values in graph.firewalls_of(keys.ORDER).items():
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


def _reached(graph: DependencyGraph, invalidated: Invalidated, edits: Sequence[Edit], firewalls: Firewalls) -> set[Key]:
    """CALLS of what is reached by other calls, PLACES of what is reached by calls that moved in their functions, and PLACED of
    these."""
    again = graph.dirty((keys.SITE, keys.OBJECT), invalidated)
    anyway: set[FirewallId] = set()
    found: set[Key] = set()
    for before, now in edits:
        different, moved = _other_calls(before, now)
        found |= {(keys.PLACED, now.path, name) for name, _ in (*different, *moved)}
        anyway |= {each for name, call in different for each in _firewalls_of(now.path, name, call)}
        for each in {each for name, call in moved for each in _firewalls_of(now.path, name, call)}:
            found |= {(keys.PLACES, *ref) for ref in _refs(each[0], graph.values(each) or ())}
    known = graph.values((keys.OBJECTS, ()))
    forms = firewalls.forms_of_objects() if known is not None else []
    others = {*forms} ^ {*(known or ())}
    anyway.update((keys.OBJECT, site) for form in others for site in firewalls.sites_of(form))
    anyway.update(graph.of_forms(others) if others else ())
    for kind, names in sorted(again | anyway):
        if kind == keys.OBJECT and known is None:
            continue
        before_values = graph.values((kind, names)) or []
        now_values = firewalls.reached_now(kind, names)
        one_refs, other_refs = _refs(kind, before_values), _refs(kind, now_values)
        if (kind, names) in anyway or (kind == keys.SITE and before_values[:1] != now_values[:1]):
            found |= {(keys.CALLS, *ref) for ref in {*one_refs, *other_refs}}
        else:
            found |= {(keys.CALLS, *ref) for ref in {*one_refs} ^ {*other_refs}}
    return found


def _leaks(graph: DependencyGraph, invalidated: Invalidated, edits: Sequence[Edit], firewalls: Firewalls) -> set[Key]:
    """LEAK of the functions in which other calls leave grad mode switched, or calls moved among such."""
    one = other = _triples(graph.values((keys.LEAKS, ())) or ())
    if graph.dirty((keys.LEAKS,), invalidated):
        other = _triples(firewalls.leaks_again())
    found: set[Key] = {(keys.LEAK, path, qualname) for path, qualname, _ in one ^ other}
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


def _firewalls_of(path: str, qualname: str, call: CallFact) -> tuple[FirewallId, FirewallId]:
    """The firewalls that determine what a call means."""
    return (keys.SITE, (path, qualname, call.callee, *call.keywords)), (keys.OBJECT, (path, qualname, call.callee))


def _refs(kind: int, values: Sequence[str]) -> list[tuple[str, str]]:
    """The functions among the values of a firewall of the kind ``SITE`` or ``OBJECT``."""
    return _pairs(values[kind == keys.SITE :])


def _pairs(values: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(values[::2], values[1::2], strict=True))


def _triples(values: Sequence[str]) -> set[tuple[str, str, str]]:
    return set(zip(values[::3], values[1::3], values[2::3], strict=True))
