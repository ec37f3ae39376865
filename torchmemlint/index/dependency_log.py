"""The dependency log: what each memoized result was computed from.

A result is computed from *keys*, parts of the facts that change by themselves (``index.keys``), and from other results. Each
memoized result that read more than one of these is a *node* of the dependency graph: a number, with its dependencies, which
are older nodes, but for nodes that depend on each other (``DependencyLog.cycle``). ``incremental.dependency_graph`` reads the log
back, and goes from the keys that an edit changed to the results that may have changed. Nothing is logged unless ``on``.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, Union

Argument = TypeVar("Argument", bound=Hashable)
Result = TypeVar("Result")
Item = TypeVar("Item")

Name = Union[str, tuple[str, str, str]]
"""A text, or a function or class (``FunctionRef``, ``ClassRef``)."""
Key = tuple[int, Name, str]
"""Its kind, and the names that it is about."""
Dependency = Union[int, Key]
"""A node; or a key, or its code."""
Position = tuple[str, int]
"""A segment, and the least number of firewalls in it."""

MISSING: Any = object()

FIREWALL_FIELDS = 4
"""Numbers that describe a firewall."""
IS_KEY = 1 << 63
"""Marks the code of a key: below it, its kind and the numbers of its two names."""
_BITS = 28
_NAME = (1 << _BITS) - 1


def kind_of(code: int) -> int:
    """The kind of key that a code stands for."""
    return code >> 2 * _BITS & 0x7F


_numbers: list[int] = []


def shared_number(number: int) -> int:
    """The number, as one object that all tables share: each of them numbers its results from 0 on."""
    while len(_numbers) <= number:
        _numbers.append(len(_numbers))
    return _numbers[number]


class DependencyLog:
    """The log of one process. ``reads`` takes the dependencies of the result that is being computed.

    ``counts`` and ``dependencies`` hold the nodes since the last ``drain``: for each, the number of its dependencies, and these
    as codes. ``needs`` are the segments of other processes that logged firewalls which this one was given, with how many they have.
    """

    def __init__(self) -> None:
        self.on = False
        self.reads: list[Dependency] = []
        self.next = 0
        self.numbers: dict[Name, int] = {}
        self._names: list[Name] = []
        self._all_names: list[Name] = []
        self._counts = array("I")
        self._dependencies = array("Q")
        self._cycles = array("Q")
        self._firewalls = array("I")
        self._parts = array("I")
        self._drained = 0
        self._drained_by = 0
        self._segment = ""
        self.needs: dict[str, int] = {}

    def start(self, first: int) -> None:
        """Starts to log, with ``first`` as the number of the first node."""
        self.on = True
        self.next = first

    def read(self, kind: int, one: Name, two: str) -> None:
        """Notes that the result that is being computed depends on a key."""
        if self.on:
            self.reads.append((kind, one, two))

    def dependency(self, reads: Iterable[Dependency]) -> int:
        """What stands for a result with these dependencies: a node, or its only dependency."""
        if not self.on:
            return 0
        dependencies = set(reads)
        return self.code(*dependencies) if len(dependencies) == 1 else self._add(dependencies)

    def whole(self, reads: Iterable[Dependency]) -> Dependency:
        """As ``dependency``, but a key in full: its code says nothing in another log."""
        found = self.dependency(reads)
        if found < IS_KEY:
            return found
        if len(self._all_names) != len(self.numbers):
            self._all_names = [*self.numbers]
        first, second = found >> _BITS & _NAME, found & _NAME
        return kind_of(found), self._all_names[first], str(self._all_names[second])

    def node(self, reads: Iterable[Dependency]) -> int:
        """The node of a result with these dependencies."""
        if not self.on:
            return 0
        dependencies = set(reads)
        if len(dependencies) == 1:
            (only,) = dependencies
            if type(only) is int and only < IS_KEY:
                return only
        return self._add(dependencies)

    def _add(self, dependencies: set[Dependency]) -> int:
        self._counts.append(len(dependencies))
        append, numbers = self._dependencies.append, self.numbers
        for each in dependencies:
            if type(each) is int:
                append(each)
            else:  # as ``code`` does, which takes three calls more for each of a million keys
                kind, one, two = each  # type: ignore[misc]
                first, second = numbers.get(one), numbers.get(two)
                if first is None or second is None:
                    first, second = self.number(one), self.number(two)
                append(IS_KEY | kind << 2 * _BITS | first << _BITS | second)
        self.next += 1
        return self.next - 1

    def cycle(self, reads_of: Sequence[Iterable[Dependency]]) -> None:
        """Adds nodes that depend on each other, from ``next`` on, in their order."""
        if self.on and reads_of:
            self._cycles.extend((self.next, self.next + len(reads_of)))
            for reads in reads_of:
                self._add(set(reads))

    @contextmanager
    def untracked(self) -> Iterator[None]:
        """What is read meanwhile is no dependency of the result at hand: that depends on a key of its own instead."""
        around, self.reads = self.reads, []
        try:
            yield
        except BaseException:
            around += self.reads  # that there is no result depends on it
            raise
        finally:
            self.reads = around

    def any(self, items: Callable[[], Iterable[Item]], holds: Callable[[Item], bool]) -> bool:
        """Whether something holds of any item. Where it does, only what was read for the first of them is a dependency, and neither
        the others nor which items there are: so ``holds`` reads, too, that what it is given is an item."""
        around = self.reads
        searched: list[Dependency] = []
        self.reads = searched
        try:
            for item in items():
                self.reads = []
                if holds(item):
                    searched = []
                    return True
                searched += self.reads
                self.reads = []
            return False
        finally:
            self.reads = around + searched + (self.reads if self.reads is not searched else [])

    def number(self, name: Name) -> int:
        """The number of a name in this log."""
        found = self.numbers.get(name)
        if found is None:
            found = self.numbers[name] = shared_number(len(self.numbers))
            self._names.append(name)
        return found

    def code(self, dependency: Dependency) -> int:
        """A dependency as one number."""
        if type(dependency) is int:
            return dependency
        kind, one, two = dependency  # type: ignore[misc]
        return IS_KEY | kind << 2 * _BITS | self.number(one) << _BITS | self.number(two)

    def firewall(self, kind: int, reads: Iterable[Dependency], names: Sequence[str], values: Sequence[str]) -> None:
        """Logs a firewall: a result in the middle whose ``values`` are stored. What uses it depends on keys that change only when
        the values do, and never on what the firewall itself read. ``names`` say what was asked."""
        if self.on:
            self._firewalls.extend((kind, self.node(reads), len(names), len(values)))
            self._parts.extend(map(self.number, names))
            self._parts.extend(map(self.number, values))

    def segment(self) -> str:
        """The name of what this process logs; "" where it logs nothing."""
        if self.on and self._drained_by not in (0, os.getpid()):
            self.on = False  # the process that this one was forked from has logged what it starts from in a segment of its own
        if not self.on:
            return ""
        if not self._segment.startswith(f"{os.getpid():x}-"):
            self._segment = f"{os.getpid():x}-{time.time_ns():x}"
        return self._segment

    def position(self) -> Position | None:
        """Where the firewalls logged so far are found, for those who are given their values; None where they are not logged."""
        if not self.on or self._drained_by not in (0, os.getpid()):
            return None
        return self.segment(), self._drained + len(self._firewalls) // FIREWALL_FIELDS

    def accepts(self, position: Position | None) -> bool:
        """Whether firewalls that another process logged need not be logged here, too."""
        if self.on:
            if position is None:
                return False
            name, firewalls = position
            self.needs[name] = max(firewalls, self.needs.get(name, 0))
        return True

    def drain(self) -> tuple[list[Name], array[int], array[int], array[int], array[int], array[int]]:
        """What was logged since the last time: names, counts, dependencies, the first and last nodes of cycles; firewalls, by four
        numbers each (kind, node, how many names and values); these names and values."""
        self._drained_by = os.getpid()
        self._drained += len(self._firewalls) // FIREWALL_FIELDS
        drained = self._names, self._counts, self._dependencies, self._cycles, self._firewalls, self._parts
        self._names, self._counts, self._dependencies = [], array("I"), array("Q")
        self._cycles, self._firewalls, self._parts = array("Q"), array("I"), array("I")
        return drained


class Memoized(Generic[Argument, Result]):
    """A function of which each result is computed once; whoever asks for a result depends on it."""

    __slots__ = ("_compute", "_known")

    def __init__(self, compute: Callable[[Argument], Result]) -> None:
        self._compute = compute
        self._known: dict[Argument, Result] = {}

    def known(self, argument: Argument) -> Result:
        """The result, ``MISSING`` if it was not computed yet."""
        found: Result = self._known.get(argument, MISSING)
        return found

    def answer(self, argument: Argument) -> Result:
        known = self._known
        if argument not in known:
            known[argument] = self._compute(argument)
        return known[argument]

    def put(self, argument: Argument, result: Result, node: int) -> None:
        """Stores a result, whose dependencies are those of ``node``."""
        self._known[argument] = result


class _Logged(Memoized[Argument, Result]):
    """The same with a dependency log. (The value in the dictionary is an index into ``_results``: half the memory of a pair.)"""

    __slots__ = ("_at", "_log", "_nodes", "_results")

    def __init__(self, log: DependencyLog, compute: Callable[[Argument], Result]) -> None:
        self._log = log
        self._compute = compute
        self._at: dict[Argument, int] = {}
        self._results: list[Result] = []
        self._nodes = array("Q")

    def known(self, argument: Argument) -> Result:
        at = self._at.get(argument)
        if at is None:
            return MISSING  # type: ignore[no-any-return]
        self._log.reads.append(self._nodes[at])
        return self._results[at]

    def answer(self, argument: Argument) -> Result:
        at = self._at.get(argument)
        log = self._log
        if at is not None:
            log.reads.append(self._nodes[at])
            return self._results[at]
        around, log.reads = log.reads, []
        try:
            found = self._compute(argument)
        except BaseException:
            around += log.reads
            log.reads = around
            raise
        reads, log.reads = log.reads, around
        self.put(argument, found, log.dependency(reads))
        return found

    def put(self, argument: Argument, result: Result, node: int) -> None:
        self._at[argument] = shared_number(len(self._results))
        self._results.append(result)
        self._nodes.append(node)
        self._log.reads.append(node)


def memoized(log: DependencyLog, compute: Callable[[Argument], Result]) -> Memoized[Argument, Result]:
    """Memoizes a function, with the dependencies of its results if the log is on (by now)."""
    return _Logged(log, compute) if log.on else Memoized(compute)
