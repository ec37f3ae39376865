"""Answered answers to questions that can lead back to themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from torchmemlint.index.trail import MISSING, Trail, answered

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")

_BUDGET = 5000


class Memo(Generic[Key, Answer]):
    """``answer(key)`` by a function that may ask for other answers on the way.

    A question that is asked again while it is open, or deeper than ``limit``, is answered by ``unknown``. What was answered
    with the help of such a cut is not remembered, except for the outermost question of the circle: so answers do not depend
    on which question came first. After ``_BUDGET`` steps the rest of an outermost question is cut.
    """

    def __init__(self, trail: Trail, compute: Callable[[Key], Answer], unknown: Answer, limit: int) -> None:
        self._trail = trail
        self._compute = compute
        self._unknown = unknown
        self._limit = limit
        self._known = answered(trail, compute)
        self._open: dict[Key, int] = {}
        self._steps = 0
        self._cut = limit  # depth of the outermost open question that the last answer depends on

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
        trail = self._trail
        outer, trail.page = trail.page, []
        try:
            found = self._compute(key)
        except BaseException:
            self._cut = around
            outer += trail.page
            raise
        finally:
            del self._open[key]
            page, trail.page = trail.page, outer
        if self._cut >= depth:
            self._known.put(key, found, trail.node(page))
            self._cut = around
        else:
            outer += page
            self._cut = min(around, self._cut)
        return found
