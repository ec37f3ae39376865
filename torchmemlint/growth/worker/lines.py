"""Which line makes what stays: two iterations are traced, with a question after each line of the user's.

``sys.monitoring`` from Python 3.12 on, under a tool number of its own; ``sys.settrace`` before, unless somebody else traces.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType

from torchmemlint.growth.worker.frames import LineTrace, Place, Tag, is_users_file, place, users

Mark = Callable[[FrameType | None], object]
"""What is compared from line to line; it is given the frame, for marks that look at its local variables."""

CALLERS = 4


@dataclass(slots=True)
class Watched:
    """Something that changes once an iteration, or, if it ``appears``, ids of which there are more. ``found`` are the lines after which it had, each with those that called it, innermost
    first."""

    mark: Mark
    appears: bool = False
    old: object = None
    found: list[tuple[Place, ...]] = field(default_factory=list)


class Tracer:
    """Watches lines from ``start`` to ``stop``."""

    traced_before = False

    def __init__(self, watched: list[Watched]) -> None:
        self._watched = watched
        self._thread = threading.get_ident()
        self._last: dict[int, tuple[Place, ...]] = {}
        self._traced: list[FrameType] = []
        self._tool: int | None = None
        self.running = False
        self.refused = False

    def start(self, frame: FrameType) -> None:
        """Trace from now on, the frames that run already included. ``refused`` says that somebody else traces."""
        for one in self._watched:
            one.old = one.mark(None)
            if one.appears:
                one.old = frozenset().union(*(one.mark(current) for current in users(frame)))  # type: ignore[arg-type]
        self._last[self._thread] = callers(frame)
        self.running = True
        if sys.version_info >= (3, 12):
            self._monitor(frame)
        elif sys.gettrace() is not None:
            self.refused, self.running = True, False
        else:
            for current in users(frame):
                tag = current.f_trace if type(current.f_trace) is Tag else None
                current.f_trace = _Function(self, tag)
                self._traced.append(current)
            start = _Function(self, None)
            threading.settrace(start)
            sys.settrace(start)

    def stop(self, frame: FrameType | None) -> None:
        """Trace no longer; every frame has its tag again. ``frame``: where the program is, if what the last line did counts."""
        if self.running and frame is not None:
            self._changed(frame)
        self.running = False
        if sys.version_info >= (3, 12):
            if self._tool is not None:
                self._end_monitoring()
            return
        _stop_tracing()
        if type(threading.gettrace()) is _Function:
            threading.settrace(None)  # type: ignore[arg-type]
        for current in self._traced:
            if type(current.f_trace) is _Function:
                current.f_trace = current.f_trace.tag
        self._traced.clear()

    def traced(self, frame: FrameType, event: str) -> bool:
        """What ``sys.settrace`` says; whether the frame's lines are wanted, too."""
        if not self.running or not is_users_file(frame.f_code.co_filename):
            return False
        self._event(frame, event == "return")
        return True

    # -- monitoring

    if sys.version_info >= (3, 12):

        def _monitor(self, frame: FrameType) -> None:
            monitoring = sys.monitoring
            self._tool = next((number for number in (4, 3) if monitoring.get_tool(number) is None), None)
            if self._tool is None:
                self.refused, self.running = True, False
                return
            monitoring.use_tool_id(self._tool, "torchmemlint")
            events = monitoring.events
            for event, callback in (
                (events.PY_START, self._started), (events.PY_RESUME, self._started), (events.LINE, self._line),
                (events.PY_RETURN, self._returned), (events.PY_YIELD, self._returned),
            ):  # fmt: skip
                monitoring.register_callback(self._tool, event, callback)
            if Tracer.traced_before:  # functions that were of no interest then start again
                monitoring.restart_events()
            Tracer.traced_before = True
            monitoring.set_events(self._tool, events.PY_START | events.PY_RESUME)
            self._codes: list[CodeType] = []
            for current in users(frame):
                self._local(current.f_code)
            for thread, top in sys._current_frames().items():
                if thread != self._thread:
                    self._last[thread] = callers(top)
                    for current in users(top):
                        self._local(current.f_code)

        def _local(self, code: CodeType) -> None:
            events = sys.monitoring.events
            if code not in self._codes:
                self._codes.append(code)
                assert self._tool is not None
                sys.monitoring.set_local_events(self._tool, code, events.LINE | events.PY_RETURN | events.PY_YIELD)

        def _started(self, code: CodeType, offset: int) -> object:
            if not self.running or not is_users_file(code.co_filename):
                return sys.monitoring.DISABLE
            self._local(code)
            self._event(sys._getframe(1), False)  # what a generator does first, it does in the line where it stopped
            return None

        def _line(self, code: CodeType, line: int) -> object:
            if self.running:
                self._event(sys._getframe(1), False)
            return None

        def _returned(self, code: CodeType, offset: int, value: object) -> object:
            if self.running:
                self._event(sys._getframe(1), True)
            return None

        def _end_monitoring(self) -> None:
            monitoring, tool = sys.monitoring, self._tool
            assert tool is not None
            for code in self._codes:
                monitoring.set_local_events(tool, code, 0)
            monitoring.set_events(tool, 0)
            for event in ("PY_START", "PY_RESUME", "LINE", "PY_RETURN", "PY_YIELD"):
                monitoring.register_callback(tool, getattr(monitoring.events, event), None)
            monitoring.free_tool_id(tool)
            self._codes.clear()
            self._tool = None

    # -- both

    def _event(self, frame: FrameType, returns: bool) -> None:
        try:
            self._changed(frame)
            thread = threading.get_ident()
            self._last[thread] = callers(frame.f_back if returns else frame) or self._last.get(thread, ())
        except Exception:  # a mark that fails changes nothing for the program
            self.running = False

    def _changed(self, frame: FrameType) -> None:
        last = self._last.get(threading.get_ident(), ())
        for one in self._watched:
            new = one.mark(frame)
            if one.appears:
                assert isinstance(new, frozenset)
                assert isinstance(one.old, frozenset)
                if not new <= one.old:
                    one.old |= new
                    self._note(one, last)
            elif new != one.old:
                one.old = new
                self._note(one, last)

    @staticmethod
    def _note(one: Watched, last: tuple[Place, ...]) -> None:
        if last and len(one.found) < 200:
            one.found.append(last)


def callers(frame: FrameType | None) -> tuple[Place, ...]:
    """The user's frames from this one outwards, innermost first."""
    return tuple(place(one) for one, _ in zip(users(frame), range(CALLERS), strict=False))


def _stop_tracing() -> None:
    """In this thread, unless somebody else has taken our place."""
    if type(sys.gettrace()) is _Function:
        sys.settrace(None)


class _Function(LineTrace):
    """The function that ``sys.settrace`` gets, and one for each frame of the user's."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: Tracer, tag: Tag | None) -> None:
        super().__init__(tag)
        self._tracer = tracer

    def __call__(self, frame: FrameType, event: str, argument: object) -> _Function | None:
        if not self._tracer.running:  # a thread that began meanwhile
            _stop_tracing()
        if not self._tracer.traced(frame, event):
            return None
        return _Function(self._tracer, None) if event == "call" else self
