"""The state of a run: its loops, whether one grows, the looks at it.

``Session.event`` is called at the head of each outermost call of a module, and nothing that goes wrong in it reaches the program: the
session switches itself off, and says so in the report.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from _thread import get_ident
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType

from torchmemlint.growth.worker.fills import line_that_fills
from torchmemlint.growth.worker.frames import Marks, Place, Tag, forget_locals, is_users_file, name_of, place, users
from torchmemlint.growth.worker.keeper import Keeper
from torchmemlint.growth.worker.lines import Tracer, Watched
from torchmemlint.growth.worker.look import Look
from torchmemlint.growth.worker.meters import Collected, StepMeter, accelerator_meter, host_meter
from torchmemlint.growth.worker.series import LEAST_POINTS, WARM_UP, Point, Trend, rate_between, trend

FIRST_TRY = WARM_UP + LEAST_POINTS
LONGEST_WINDOW = 400
SHARE, AT_LEAST, FOR_FIRST = 0.05, 1.0, 2.0
"""Looks may take a second of CPU time, and this share of the run's; ``FOR_FIRST`` seconds until a loop has had its first, so that the
loop which makes the data leaves some for the one that trains."""
METER_SHARE, CLOCKED = 0.005, 8
DENSE = 128
"""So many iterations are sampled one by one; later, one in so many that the samples of a run grow with its logarithm."""
TRIES = 8
"""A series is looked at again when it is longer by this part of it."""
MOST_RENEWED = 3
ASK_AGAIN = 1.25
"""Whether a found holder still grows is asked again after this factor of iterations, then again."""


@dataclass(slots=True)
class Found:
    """A holder that grew: where, and what was seen of it later. ``began``: the iteration at which the run of the loop began that it was asked
    in; ``renewed``: how often that was another run, with nothing left of the one before; ``sure``: it grew on in one run."""

    keeper: Keeper
    lines: list[tuple[Place, ...]]
    rate: float
    first: int
    last_asked: int
    length: int | None = None
    grew: bool = True
    asked: int = 0
    began: int = 0
    renewed: int = 0
    sure: bool = False
    no_line: str = ""


@dataclass(slots=True)
class Loop:
    """One loop of the program; ``count`` are its iterations over all runs of it, ``points`` the bytes at their heads; ``between``: the next
    look is to fit between two runs of the collector; ``thread``: where it is looked at."""

    code: CodeType
    line: int
    count: int = 0
    points: list[Point] = field(default_factory=list)
    tag: Tag | None = None
    began: int = 0
    try_at: int = FIRST_TRY
    factor: float = 1.5
    skip_until: int = 0
    sample_at: int = 0
    found: list[Found] = field(default_factory=list)
    trend: Trend | None = None
    unexplained: float = 0.0
    ask_at: int = 0
    last_rate: float = 0.0
    looked: int = 0
    between: bool = False
    thread: int = 0

    def place(self) -> Place:
        """Where the loop is."""
        return Place(self.code.co_filename, self.line, name_of(self.code))


class Session:
    """One run."""

    def __init__(self, live: Callable[[Loop, Found], None] | None = None, steps: int | None = None) -> None:
        self.loops: dict[tuple[int, int], Loop] = {}
        self.marks = Marks()
        self.meter: StepMeter = host_meter()
        self.collected = Collected(lambda: self.meter.live(), METER_SHARE)
        self.steps = steps
        self.calls = 0
        self.off = ""
        self.spent = 0.0
        self.metered = 0.0
        self._starts = {get_ident(): time.thread_time()}
        """The CPU time of each thread when its first event came: such a clock counts one thread alone."""
        self.pid = os.getpid()
        self._live = live
        self._free = [True]  # empty while an event goes on; a lock takes longer than all else of most events
        self._look: tuple[tuple[int, int], Look, int, int, int] | None = None
        self._trace: tuple[tuple[int, int], Tracer, list[tuple[Keeper, Watched]], int] | None = None
        self._forget = False
        self._freed = self._freed_before = 0
        self._stride = 1
        self._choose_at = 64
        self.create_graph: Counter[Place] = Counter()
        self.stop_program: Callable[[], None] | None = None

    # -- each call

    def event(self, frame: FrameType) -> None:
        """An outermost call of a module begins, from this frame."""
        free = self._free
        if self.off or not free:
            return
        try:
            free.pop()
        except IndexError:  # another thread was faster
            return
        try:
            self._event(frame)
        except Exception:  # never the program's affair
            self.off = traceback.format_exc()
            self.collected.stop()
            self._cancel()
        finally:
            free[:] = (True,)

    def _since(self) -> float:
        """The CPU time of this thread since its first event."""
        now = time.thread_time()
        return now - self._starts.setdefault(get_ident(), now)

    def creates_graph(self, line: Place) -> None:
        """A backward with ``create_graph=True`` begins at this line."""
        self.create_graph[line] += 1

    def begin_anew(self, frame: FrameType) -> None:
        """Forget all loops so far."""
        with self._alone():
            self._cancel()
            self.loops.clear()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No thread is in an event. It is not waited for ever: Ctrl-C may have come before an event could say that it had ended."""
        for _ in range(2000):
            with suppress(IndexError):
                self._free.pop()
                break
            time.sleep(0.001)
        try:
            yield
        finally:
            self._free[:] = (True,)

    def _event(self, frame: FrameType) -> None:
        if self._forget and self._trace is None:
            forget_locals(frame)
            self._forget = False
        self.calls += 1
        iteration = self.marks.iteration(frame)
        if iteration is None:
            if self._trace is not None and has_left(self.loops[self._trace[0]], frame):
                self._end_tracing(self.loops[self._trace[0]], frame)
            return
        loop_frame, tag, start, line = iteration
        key = (id(loop_frame.f_code), start)
        loop = self.loops.get(key)
        if loop is None:
            loop = self.loops[key] = Loop(loop_frame.f_code, line)
        loop.count += 1
        if tag is not loop.tag and self._trace is None:
            loop.tag, loop.began, loop.try_at = tag, loop.count - 1, max(FIRST_TRY, min(loop.try_at, 4096))
        if self._look is not None:
            self._looking(key, loop, frame, loop_frame)
        elif self._trace is not None:
            self._tracing(key, loop, frame)
        if self._look is not None or self._trace is not None:
            pass
        elif loop.count >= loop.sample_at:
            self._sample(key, loop, frame)
        if self.steps is not None and loop.count >= self.steps and self.stop_program is not None:
            self.stop_program()

    def _cancel(self) -> None:
        if self._look is not None:
            self._look[1].cancel()
        if self._trace is not None:
            self._trace[1].stop(None)
        self._look = self._trace = None

    # -- samples

    def _sample(self, key: tuple[int, int], loop: Loop, frame: FrameType) -> None:
        if self.meter.device == "cpu" and self.calls >= self._choose_at:
            self._choose_meter()
        if self.meter.scans and loop.count & 3:
            return
        clocked = len(loop.points) % CLOCKED == 0  # to ask the time takes as long as to ask the meter
        begin = time.thread_time() if clocked else 0.0
        loop.points.append((loop.count, self.meter.live() + self.collected.bytes))
        self._freed, self._freed_before = self.collected.bytes - self._freed_before, self.collected.bytes
        if clocked:
            self.metered += CLOCKED * (time.thread_time() - begin)
            if self.metered > METER_SHARE * (since := self._since()) + 0.05:
                self._stride = min(64, self._stride * 2)
                self.metered = METER_SHARE * since
        if not loop.between:
            loop.sample_at = loop.count + max(self._stride, (loop.count - loop.points[0][0]) // DENSE)
        if loop.found and loop.count >= loop.ask_at:
            self._ask(loop, frame)
        if loop.count >= loop.skip_until and (loop.count - loop.began >= loop.try_at or loop.skip_until):
            self._maybe_look(loop, key, frame)

    def _choose_meter(self) -> None:
        self._choose_at = self.calls + 64
        chosen = accelerator_meter()
        if chosen is not None:
            self.meter = chosen
            for loop in self.loops.values():
                loop.points.clear()

    def _maybe_look(self, loop: Loop, key: tuple[int, int], frame: FrameType) -> None:
        if loop.between and loop.trend is not None and self._freed < loop.trend.rate:
            return  # the collector ran in the last look: this one begins when it has just run
        inside = loop.count - loop.began
        mine = [point for point in loop.points if point[0] > loop.began]
        found = trend([(at - loop.began, size) for at, size in mine]) or (
            trend(loop.points) if loop.began and len(loop.points) >= 2 * LEAST_POINTS else None
        )
        if loop.skip_until:
            loop.skip_until = loop.count + (loop.count - loop.points[0][0]) // TRIES
        if found is None:
            loop.try_at = inside + 1 + inside // TRIES
            return
        if self._explained(loop) > 0.7 * found.rate:  # by what an earlier look found
            loop.last_rate = found.rate
            loop.try_at = 2 * inside
            return
        least = AT_LEAST if loop.looked and not loop.between else FOR_FIRST  # one that the collector has spoiled is none
        if self.spent > least + SHARE * self._since():
            loop.try_at = inside + 1 + inside // TRIES
            return
        loop.trend, loop.thread = found, get_ident()
        begin = time.thread_time()
        window, hold = max(4, min(LONGEST_WINDOW, 4 * found.period)), max(2, min(LONGEST_WINDOW // 4, found.period + 1))
        if loop.between:
            window, hold = 2, 1
        loop.looked, self._freed_before = loop.count, self.collected.bytes
        look, first = Look(loop.count), loop.count + 1
        if loop.between:
            first = loop.count
            look.opens(first)
        self._look = (key, look, first, first + window, first + window + hold)
        self.spent += time.thread_time() - begin

    @staticmethod
    def _explained(loop: Loop) -> float:
        return sum(one.keeper.size.with_overhead / one.keeper.iterations for one in loop.found if one.grew)

    # -- looks

    def _looking(self, key: tuple[int, int], loop: Loop, frame: FrameType, loop_frame: FrameType) -> None:
        assert self._look is not None
        wanted, look, first, middle, end = self._look
        if key != wanted:
            if has_left(self.loops[wanted], frame):  # the loop ended first
                self._cancel()
            return
        begin = time.thread_time()
        if loop.count >= first and look.first is None:
            look.opens(loop.count)
        elif loop.count >= middle and look.second is None:
            look.middle(loop.count)
        elif loop.count >= end and look.second is not None:
            self._look = None
            look.ends(loop.count)
            enabled = gc.isenabled()
            gc.disable()
            try:
                keepers = look.finish(frame, loop_frame, loop.trend.rate if loop.trend else 0.0)
            finally:
                if enabled:
                    gc.enable()
            self._forget = True
            freed = self.collected.bytes - self._freed_before
            loop.between = not keepers and loop.trend is not None and freed > loop.trend.rate
            self._begin_tracing(key, loop, frame, keepers)
        self.spent += time.thread_time() - begin

    def _begin_tracing(self, key: tuple[int, int], loop: Loop, frame: FrameType, keepers: list[Keeper]) -> None:
        known = {one.keeper.key for one in loop.found}
        fresh = [keeper for keeper in keepers if keeper.key not in known]
        if not fresh:
            self._after(loop, grown=False)
            return
        pairs = [(keeper, Watched(keeper.mark or _nothing, keeper.appears)) for keeper in fresh]
        watched = [one for keeper, one in pairs if keeper.mark is not None and not keeper.lines]
        tracer = Tracer(watched)
        period = loop.trend.period if loop.trend else 1
        self._trace = (key, tracer, pairs, loop.count + max(2, min(40, 2 * period)))
        if watched:
            tracer.start(frame)
        else:
            self._end_tracing(loop, frame)

    def _tracing(self, key: tuple[int, int], loop: Loop, frame: FrameType) -> None:
        assert self._trace is not None
        wanted, _, _, end = self._trace
        if key == wanted and loop.count >= end:
            self._end_tracing(loop, frame)
        elif key != wanted and has_left(self.loops[wanted], frame):
            self._end_tracing(self.loops[wanted], frame)

    def _end_tracing(self, loop: Loop, frame: FrameType | None) -> None:
        assert self._trace is not None
        _, tracer, pairs, _ = self._trace
        self._trace = None
        if frame is not None:
            tracer.stop(frame)
        self._forget = True
        rate = loop.trend.rate if loop.trend else 0.0
        for keeper, watched in pairs:
            lines = [tuple(Place(*one) for one in (line,)) for line in keeper.lines] or watched.found
            if keeper.mark is not None and not keeper.lines and not lines and not tracer.refused and keeper.kind != "cycle":
                continue  # it does not change in an iteration: survivors of something that is bounded
            if keeper.elsewhere is not None:
                lines = lines_elsewhere(keeper.elsewhere, keeper.holder, lines)
            one = Found(keeper, lines, rate, loop.count, loop.count, grew=True)
            if keeper.elsewhere is not None:
                one.no_line = "another thread puts it there"
                if sys.version_info < (3, 12):  # `sys.settrace` is for this thread and new ones
                    one.no_line += ", whose lines can be traced from Python 3.12 on"
            if tracer.refused:
                one.no_line = "another tool traces"
            one.length = keeper.length(frame) if keeper.length is not None else None
            one.began = loop.began
            loop.found.append(one)
            if self._live is not None:
                self._live(loop, one)
        self._after(loop, grown=True)

    def _after(self, loop: Loop, grown: bool) -> None:
        """A look is over: what was measured in it does not count, and the next one comes later."""
        loop.points.clear()
        inside = loop.count - loop.began
        loop.ask_at = loop.count + int(inside * (ASK_AGAIN - 1)) + 1
        loop.try_at = max(inside + FIRST_TRY, 2 * inside)
        loop.skip_until = loop.count + FIRST_TRY

    # -- asked again

    def _ask(self, loop: Loop, frame: FrameType | None) -> None:
        begin = time.thread_time()
        renewed = [self._ask_one(one, loop, frame) for one in loop.found]
        self._forget = self._forget or frame is not None
        loop.ask_at = loop.count + LEAST_POINTS if any(renewed) else int(loop.count * ASK_AGAIN) + 1
        rate = rate_between(loop.points)
        if rate is not None:
            loop.last_rate = rate
        self.spent += time.thread_time() - begin

    @staticmethod
    def _ask_one(one: Found, loop: Loop, frame: FrameType | None) -> bool:
        """Whether a holder grew on; True if that can only be said later in this run of the loop: it began anew, and what it had kept may have
        gone with the run before."""
        keeper = one.keeper
        one.asked += 1
        kept = one.renewed > 0 or not keeper.alive or any(reference() is not None for reference in keeper.alive)
        length = keeper.length(frame) if keeper.length is not None and frame is not None else None
        comparable = length is not None and one.length is not None
        if one.began != loop.began and (not kept or one.renewed):
            one.began, one.length, one.last_asked = loop.began, length, loop.count
            one.renewed += 1
            one.grew = one.grew and one.sure
            return comparable and one.renewed <= MOST_RENEWED
        if length is not None and one.length is not None:
            steps = loop.count - one.last_asked
            if steps >= 4:
                one.grew = kept and length > one.length
                one.length, one.last_asked = length, loop.count
        elif frame is not None:
            one.grew, one.last_asked = kept and (one.sure or not one.renewed), loop.count
        one.sure = one.sure or (one.grew and one.began == loop.began)
        return False

    # -- the end

    def finish(self) -> None:
        """The program is over: what was going on ends."""
        self.collected.stop()
        with self._alone():
            if self._trace is not None:
                self._trace[1].stop(None)
                self._end_tracing(self.loops[self._trace[0]], sys._getframe())
            self._cancel()


def has_left(loop: Loop, frame: FrameType) -> bool:
    """Whether the stack of the thread in which a loop is looked at goes through its function no more. Another thread's says nothing of it."""
    if get_ident() != loop.thread:
        return False
    current: FrameType | None = frame
    while current is not None:
        if current.f_code is loop.code:
            return False
        current = current.f_back
    return True


def _nothing(frame: FrameType | None) -> object:
    return None


def lines_elsewhere(code: CodeType, name: str, lines: list[tuple[Place, ...]]) -> list[tuple[Place, ...]]:
    """The lines of another thread, whose function holds the variable: this thread may have seen the change first."""
    theirs = [line for line in lines if any((one.path, one.function) == (code.co_filename, name_of(code)) for one in line)]
    if theirs:
        return theirs
    line = line_that_fills(code, name)
    return [(line,)] if line is not None else []


def callers_of(frame: FrameType) -> list[Place]:
    """The user's frames of a stack, innermost first."""
    return [place(one) for one in users(frame)][:4]


__all__ = ["Found", "Loop", "Session", "is_users_file"]
