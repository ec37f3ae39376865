"""Remembered answers to questions that can lead back to themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")

_BUDGET = 5000


class Memo(Generic[Key, Answer]):
    """``answer(key)`` by a function that may ask for other answers on the way.

    A question that is asked again while it is open, or deeper than ``limit``, is answered by ``unknown``. What was answered
    with the help of such a cut is not remembered, except for the outermost question of the circle: so answers do not depend
    on which question came first. After ``_BUDGET`` steps the rest of an outermost question is cut.
    """

    def __init__(self, compute: Callable[[Key], Answer], unknown: Answer, limit: int) -> None:
        self._compute = compute
        self._unknown = unknown
        self._limit = limit
        self._known: dict[Key, Answer] = {}
        self._open: dict[Key, int] = {}
        self._steps = 0
        self._cut = limit  # depth of the outermost open question that the last answer depends on

    def answer(self, key: Key) -> Answer:
        """The answer to ``key``, worked out once."""
        if key in self._known:
            return self._known[key]
        depth = len(self._open)
        self._steps = self._steps + 1 if depth else 0
        if key in self._open or depth >= self._limit or self._steps > _BUDGET:
            self._cut = min(self._cut, self._open.get(key, 0))
            return self._unknown
        around, self._cut = self._cut, self._limit
        self._open[key] = depth
        try:
            found = self._compute(key)
        except BaseException:
            self._cut = around
            raise
        finally:
            del self._open[key]
        if self._cut >= depth:
            self._known[key] = found
            self._cut = around
        else:
            self._cut = min(around, self._cut)
        return found
