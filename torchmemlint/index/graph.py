"""What earlier runs wrote down of how answers were made (``index.trail``), and which of them an edit may have changed.

A *segment* is what one process wrote. Nodes have numbers over all segments: those below ``first`` of a segment are of segments
before it, its own follow. Numbers of names are a segment's own.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchmemlint.index import keys
from torchmemlint.index.facts import CallFact, ModuleFacts
from torchmemlint.index.names import ClassRef
from torchmemlint.index.parts import joined, split
from torchmemlint.index.tables import form_of, last_name
from torchmemlint.index.trail import LEAF, Name, Read, Trail

if TYPE_CHECKING:
    from torchmemlint.index.roots import Roots

_TYPES = ("I", "Q", "Q", "I")


def written(trail: Trail) -> bytes:
    """What a trail holds since the last time, as bytes: the lengths of its parts in a line, and these."""
    names, *arrays = trail.take()
    return joined([json.dumps(names).encode(), *(part.tobytes() for part in arrays)])


@dataclass(slots=True, eq=False)
class Segment:
    """See ``index.trail.Trail``. ``base`` is the number that its own first node has over all segments."""

    first: int
    base: int
    numbers: dict[Name, int] = field(default_factory=dict)
    counts: array[int] = field(default_factory=lambda: array("I"))
    steps: array[int] = field(default_factory=lambda: array("Q"))
    blocks: array[int] = field(default_factory=lambda: array("Q"))
    roots: array[int] = field(default_factory=lambda: array("I"))
    _names: list[Name] = field(default_factory=list)

    def read(self, data: bytes) -> None:
        """Adds what ``written`` gave, once or several times. Raises ValueError."""
        at = 0
        while at < len(data):
            (names, *arrays), at = split(data, 1 + len(_TYPES), at)
            self._names += (name if type(name) is str else tuple(name) for name in json.loads(names))
            for part, more in zip((self.counts, self.steps, self.blocks, self.roots), arrays, strict=True):
                part.frombytes(more)
        self.numbers = {name: number for number, name in enumerate(self._names)}

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

    def all_roots(self) -> Iterator[tuple[int, int, tuple[str, ...], list[str]]]:
        """The roots: kind, node, names and values."""
        roots, names = self.roots, self._names
        at = 0
        while at < len(roots):
            kind, node, asked, said = roots[at : at + 4]
            at += 4
            yield (
                kind,
                node,
                tuple(str(names[number]) for number in roots[at : at + asked]),
                [str(names[number]) for number in roots[at + asked : at + asked + said]],
            )
            at += asked + said


class Graph:
    """All segments of a run."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.size = sum(len(segment.counts) for segment in segments)
        # A root that was worked out again stands in a later segment.
        self.roots: dict[tuple[int, tuple[str, ...]], tuple[int, list[str]]] = {}
        for segment in segments:
            for kind, node, names, values in segment.all_roots():
                self.roots[kind, names] = segment.everywhere(node), values

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


def settled(graph: Graph, changed: set[Read], edits: Sequence[tuple[ModuleFacts, ModuleFacts]], roots: Roots) -> set[Read]:
    """The keys that edits changed, those included that are worked out over all modules: what lies between is compared with what
    it was. ``roots`` are those of the modules as they are now."""
    found = set(changed)
    dirty = graph.affected(found).nodes
    for step in (_bases, _reached, _leaks):
        more = step(graph, dirty, edits, roots) - found
        if more:
            found |= more
            dirty = graph.affected(found).nodes
    return found


Edits = Sequence[tuple[ModuleFacts, ModuleFacts]]


def _bases(graph: Graph, dirty: set[int], edits: Edits, roots: Roots) -> set[Read]:
    """BELOW of what has other classes below it."""
    asked = {names: values for (kind, names), (_, values) in graph.roots.items() if kind == keys.ORDER}
    if not asked:
        return set()
    again = {names for (kind, names), (node, _) in graph.roots.items() if kind == keys.ORDER and node in dirty}
    for before, now in edits:
        again |= {(now.path, klass.qualname) for klass in (*before.classes, *now.classes)}
    found: set[Read] = set()
    for names in sorted(again):
        above = roots.classes_above(ClassRef(names[0], names[1]))
        found |= {(keys.BELOW, *base) for base in {*_pairs(asked.get(names, ()))} ^ {each[:2] for each in above}}
    return found


def _reached(graph: Graph, dirty: set[int], edits: Edits, roots: Roots) -> set[Read]:
    """CALLS of what is reached by other calls."""
    again: set[tuple[int, tuple[str, ...]]] = {
        root for root, (node, _) in graph.roots.items() if node in dirty and root[0] in (keys.SITE, keys.OBJECT)
    }
    anyway: set[tuple[int, tuple[str, ...]]] = set()
    for before, now in edits:
        one, other = _calls(before), _calls(now)
        for name, call in (one - other) + (other - one):
            anyway.add((keys.SITE, (now.path, name, call.callee, *call.keywords)))
            anyway.add((keys.OBJECT, (now.path, name, call.callee)))
    known = graph.roots.get((keys.OBJECTS, ()))
    forms = roots.forms_of_objects() if known is not None else []
    for form in {*forms} ^ {*(known[1] if known is not None else ())}:
        for root in (*roots.sites_of(form), *_of_form(graph, form)):
            anyway.add((keys.OBJECT, root))
    found: set[Read] = set()
    for kind, names in sorted(again | anyway):
        if kind == keys.OBJECT and known is None:
            continue
        _, before_values = graph.roots.get((kind, names), (0, []))
        now_values = roots.reached_again(kind, names)
        one_refs, other_refs = _pairs(before_values[kind == keys.SITE :]), _pairs(now_values[kind == keys.SITE :])
        if (kind, names) in anyway or (kind == keys.SITE and before_values[:1] != now_values[:1]):
            found |= {(keys.CALLS, *ref) for ref in {*one_refs, *other_refs}}
        else:
            found |= {(keys.CALLS, *ref) for ref in {*one_refs} ^ {*other_refs}}
    return found


def _leaks(graph: Graph, dirty: set[int], edits: Edits, roots: Roots) -> set[Read]:
    """LEAK of the functions in which other calls leave grad mode switched."""
    root = graph.roots.get((keys.LEAKS, ()))
    if root is None or root[0] not in dirty:
        return set()
    one, other = _triples(root[1]), _triples(roots.leaks_again())
    return {(keys.LEAK, path, qualname) for path, qualname, _ in one ^ other}


def _calls(module: ModuleFacts) -> Counter[tuple[str, CallFact]]:
    return Counter((facts.qualname, call) for facts in module.functions for call in facts.calls)


def _of_form(graph: Graph, form: str) -> Iterator[tuple[str, ...]]:
    """The calls of objects that were asked for in this form (see ``Tables.forms``)."""
    for kind, names in graph.roots:
        if kind == keys.OBJECT and form == f"{form_of(names[2])}{last_name(names[2])}":
            yield names


def _pairs(values: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(values[::2], values[1::2], strict=True))


def _triples(values: Sequence[str]) -> set[tuple[str, str, str]]:
    return set(zip(values[::3], values[1::3], values[2::3], strict=True))
