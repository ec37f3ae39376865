"""Memoized answers to queries that can lead back to themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from torchmemlint.index.dependency_log import MISSING, DependencyLog, memoized

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")

_BUDGET = 5000


class Memo(Generic[Key, Answer]):
    """``answer(key)`` by a function that may ask for other answers on the way.

    A query that is asked again while it is open, or deeper than ``limit``, is answered by ``unknown``. What was answered
    with the help of such a cut is not cached, except for the outermost query of the circle: so answers do not depend
    on which query came first. After ``_BUDGET`` steps the rest of an outermost query is cut.
    """

    def __init__(self, log: DependencyLog, compute: Callable[[Key], Answer], unknown: Answer, limit: int) -> None:
        self._log = log
        self._compute = compute
        self._unknown = unknown
        self._limit = limit
        self._known = memoized(log, compute)
        self._open: dict[Key, int] = {}
        self._steps = 0
        self._cut = limit  # depth of the outermost open query that the last answer depends on

    def answer(self, key: Key) -> Answer:
        """The answer to ``key``, worked out once."""
        known = self._known.known(key)
        if known is not MISSING:
            return known
        depth = len(self._open)
        self._steps = self._steps + 1 if depth else 0
        if key in self._open or depth >= self._limit or self._steps > _BUDGET:
            self._cut = min(self._cut, self._open.get(key, 0))
            return self._unknown
        around, self._cut = self._cut, self._limit
        self._open[key] = depth
        log = self._log
        outer, log.reads = log.reads, []
        try:
            found = self._compute(key)
        except BaseException:
            self._cut = around
            outer += log.reads
            raise
        finally:
            del self._open[key]
            reads, log.reads = log.reads, outer
        if self._cut >= depth:
            self._known.put(key, found, log.node(reads))
            self._cut = around
        else:
            outer += reads
            self._cut = min(around, self._cut)
        return found
