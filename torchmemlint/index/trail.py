"""Of what an answer was made: what it read of the facts, by *keys* (see ``index.keys``), and the answers that it used.

An answer that is remembered is a *node*: a number, with the keys and the nodes of which it was made, all of them older than
itself, but for nodes that were made together (``Trail.together``). From the keys that an edit changes, whoever has the trail
knows which answers may be others now. Nothing is written down unless ``on``.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, Union

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
Item = TypeVar("Item")

Name = Union[str, tuple[str, str, str]]
"""A text, or a function or class (``FunctionRef``, ``ClassRef``)."""
Read = tuple[int, Name, str]
"""A key: its kind, and the names that it is about."""
Step = Union[int, Read]
"""A node; or a key, or its code."""
Sign = tuple[str, int]
"""A segment, and how many roots it has at the least."""

MISSING: Any = object()

ROOT = 4
"""Numbers of a root."""
LEAF = 1 << 63
"""Marks the code of a key: below it, its kind and the numbers of its two names."""
_BITS = 28


def kind_of(code: int) -> int:
    """The kind of key that a code stands for."""
    return code >> 2 * _BITS & 0x7F


_counted: list[int] = []


def counted(number: int) -> int:
    """The number, as the one object that all tables share: each has as many numbers as answers, from 0 on."""
    while len(_counted) <= number:
        _counted.append(len(_counted))
    return _counted[number]


class Trail:
    """What one process writes down. ``page`` takes the steps of the answer that is being worked out.

    ``counts`` and ``steps`` hold the nodes since the last ``take``: for each, the number of its steps, and these as codes.
    ``rests_on`` are the segments of other processes that have roots which this one was told, and did not write itself, with how
    many they have.
    """

    def __init__(self) -> None:
        self.on = False
        self.page: list[Step] = []
        self.first = 0
        self.next = 0
        self.numbers: dict[Name, int] = {}
        self._names: list[Name] = []
        self._counts = array("I")
        self._steps = array("Q")
        self._blocks = array("Q")
        self._roots = array("I")
        self._parts = array("I")
        self._roots_taken = 0
        self._taken_by = 0
        self._segment = ""
        self.rests_on: dict[str, int] = {}

    def begin(self, first: int) -> None:
        """Starts to write, with ``first`` as the number of the first node."""
        self.on = True
        self.first = self.next = first

    def step(self, page: Iterable[Step]) -> int:
        """What stands for an answer that was made of these steps: a node, or the one of which it was made."""
        if not self.on:
            return 0
        steps = set(page)
        return self.code(*steps) if len(steps) == 1 else self._write(steps)

    def node(self, page: Iterable[Step]) -> int:
        """The node of an answer that was made of these steps."""
        if not self.on:
            return 0
        steps = set(page)
        if len(steps) == 1:
            (only,) = steps
            if type(only) is int and only < LEAF:
                return only
        return self._write(steps)

    def _write(self, steps: set[Step]) -> int:
        self._counts.append(len(steps))
        append, numbers = self._steps.append, self.numbers
        for step in steps:
            if type(step) is int:
                append(step)
            else:  # as ``code`` does, which takes three calls more for each of a million keys
                kind, one, two = step  # type: ignore[misc]
                first, second = numbers.get(one), numbers.get(two)
                if first is None or second is None:
                    first, second = self.number(one), self.number(two)
                append(LEAF | kind << 2 * _BITS | first << _BITS | second)
        self.next += 1
        return self.next - 1

    def together(self, pages: Sequence[Iterable[Step]]) -> None:
        """Nodes that are made of each other, from ``next`` on, in their order."""
        if self.on and pages:
            self._blocks.extend((self.next, self.next + len(pages)))
            for page in pages:
                self._write(set(page))

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is read meanwhile is charged to nobody: whoever uses it notes a key of its own for it."""
        around, self.page = self.page, []
        try:
            yield
        except BaseException:
            around += self.page  # that there is no answer rests on it
            raise
        finally:
            self.page = around

    def any(self, items: Callable[[], Iterable[Item]], holds: Callable[[Item], bool]) -> bool:
        """Whether something holds of any item. Where it does, only what was read to know it of the first is charged, and neither the
        others nor which there are: so ``holds`` reads, too, that what it is given is an item."""
        around = self.page
        searched: list[Step] = []
        self.page = searched
        try:
            for item in items():
                self.page = []
                if holds(item):
                    searched = []
                    return True
                searched += self.page
                self.page = []
            return False
        finally:
            self.page = around + searched + (self.page if self.page is not searched else [])

    def number(self, name: Name) -> int:
        found = self.numbers.get(name)
        if found is None:
            found = self.numbers[name] = counted(len(self.numbers))
            self._names.append(name)
        return found

    def code(self, read: Step) -> int:
        """A step as one number."""
        if type(read) is int:
            return read
        kind, one, two = read  # type: ignore[misc]
        return LEAF | kind << 2 * _BITS | self.number(one) << _BITS | self.number(two)

    def root(self, kind: int, page: Iterable[Step], names: Sequence[str], values: Sequence[str]) -> None:
        """An answer in the middle, from which nothing leads on: what uses it reads keys of its own, which change when its
        ``values`` do. ``names`` tell what was asked."""
        if self.on:
            self._roots.extend((kind, self.node(page), len(names), len(values)))
            self._parts.extend(map(self.number, names))
            self._parts.extend(map(self.number, values))

    def segment(self) -> str:
        """The name of what this process writes; "" where it writes nothing."""
        if self.on and self._taken_by not in (0, os.getpid()):
            self.on = False  # what the process before us wrote of what we go on with is in a segment of its own
        if not self.on:
            return ""
        if not self._segment.startswith(f"{os.getpid():x}-"):
            self._segment = f"{os.getpid():x}-{time.time_ns():x}"
        return self._segment

    def sign(self) -> Sign | None:
        """Where the roots are that were written so far: what goes along when others are told of them. None where they are nowhere."""
        if not self.on or self._taken_by not in (0, os.getpid()):
            return None
        return self.segment(), self._roots_taken + len(self._roots) // ROOT

    def believes(self, sign: Sign | None) -> bool:
        """Whether roots that another process has need not be written here, too."""
        if self.on:
            if sign is None:
                return False
            name, roots = sign
            self.rests_on[name] = max(roots, self.rests_on.get(name, 0))
        return True

    def take(self) -> tuple[list[Name], array[int], array[int], array[int], array[int], array[int]]:
        """What was written since the last time: names, counts, steps, blocks of nodes made together; roots, by four numbers each
        (kind, node, how many names and values); these names and values."""
        self._taken_by = os.getpid()
        self._roots_taken += len(self._roots) // ROOT
        taken = self._names, self._counts, self._steps, self._blocks, self._roots, self._parts
        self._names, self._counts, self._steps = [], array("I"), array("Q")
        self._blocks, self._roots, self._parts = array("Q"), array("I"), array("I")
        return taken


class Answered(Generic[Key, Answer]):
    """Answers by what was asked, each worked out once by ``compute``, and charged to whoever asks."""

    __slots__ = ("_compute", "_known")

    def __init__(self, compute: Callable[[Key], Answer]) -> None:
        self._compute = compute
        self._known: dict[Key, Answer] = {}

    def known(self, key: Key) -> Answer:
        """The answer, ``MISSING`` if it was not worked out yet."""
        found: Answer = self._known.get(key, MISSING)
        return found

    def answer(self, key: Key) -> Answer:
        known = self._known
        if key not in known:
            known[key] = self._compute(key)
        return known[key]

    def put(self, key: Key, answer: Answer, node: int) -> None:
        """Remembers an answer, made of ``node``."""
        self._known[key] = answer


class _Followed(Answered[Key, Answer]):
    """The same where a trail is written. (What is known is a place among the answers: half the memory of a pair.)"""

    __slots__ = ("_answers", "_at", "_nodes", "_trail")

    def __init__(self, trail: Trail, compute: Callable[[Key], Answer]) -> None:
        self._trail = trail
        self._compute = compute
        self._at: dict[Key, int] = {}
        self._answers: list[Answer] = []
        self._nodes = array("Q")

    def known(self, key: Key) -> Answer:
        at = self._at.get(key)
        if at is None:
            return MISSING  # type: ignore[no-any-return]
        self._trail.page.append(self._nodes[at])
        return self._answers[at]

    def answer(self, key: Key) -> Answer:
        at = self._at.get(key)
        trail = self._trail
        if at is not None:
            trail.page.append(self._nodes[at])
            return self._answers[at]
        around, trail.page = trail.page, []
        try:
            found = self._compute(key)
        except BaseException:
            around += trail.page
            trail.page = around
            raise
        page, trail.page = trail.page, around
        self.put(key, found, trail.step(page))
        return found

    def put(self, key: Key, answer: Answer, node: int) -> None:
        self._at[key] = counted(len(self._answers))
        self._answers.append(answer)
        self._nodes.append(node)
        self._trail.page.append(node)


def answered(trail: Trail, compute: Callable[[Key], Answer]) -> Answered[Key, Answer]:
    """What remembers answers, and writes down of what they are made if the trail is on (by now)."""
    return _Followed(trail, compute) if trail.on else Answered(compute)
