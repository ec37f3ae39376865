"""Loops that call no module, no backward, no loader: calls of torch's own functions begin their iterations.

``sys.setprofile`` sees these calls.

It is on only until one of the others is called, and while it takes less than its share of the time: loops of microseconds are not watched.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import BuiltinFunctionType, FrameType
from typing import Any

CALL, EVENT = 0.25e-6, 8e-6
"""Seconds that one call of the function takes, and one that is an event: measured with Python 3.11, without the looks."""
SHARE, AT_LEAST = 0.03, 0.1
OFTEN = 1024


class Calls:
    """Calls ``event`` with the frame that calls a function of torch."""

    def __init__(self, event: Callable[[FrameType], None], torch: Any) -> None:
        self._event = event
        spaces = (vars(torch), vars(torch._C._nn))
        self._functions = frozenset(one for space in spaces for one in space.values() if type(one) is BuiltinFunctionType)
        self._tensor = torch.Tensor
        self._count = 0
        self._events = 0
        self._started = time.perf_counter()
        self._thread = threading.get_ident()
        self._function = self._called
        self._over = False

    def start(self) -> None:
        """Watch the calls of this thread, unless it has a profiler, or another thread is asked."""
        if not self._over and sys.getprofile() is None and threading.get_ident() == self._thread and not self._late():
            sys.setprofile(self._function)

    def stop(self) -> None:
        """Never watch them again."""
        self._over = True
        self._pause()

    def _pause(self) -> None:
        if sys.getprofile() is self._function:
            sys.setprofile(None)

    def _late(self) -> bool:
        return EVENT * self._events + CALL * self._count > AT_LEAST + SHARE * (time.perf_counter() - self._started)

    def _called(self, frame: FrameType, kind: str, function: Any) -> None:
        self._count += 1
        if kind == "c_call":
            if type(function) is BuiltinFunctionType and (
                function in self._functions or issubclass(type(function.__self__), self._tensor)
            ):
                self._events += 1
                self._event(frame)
        if not self._count % OFTEN and self._late():
            self._pause()


__all__ = ["Calls"]
