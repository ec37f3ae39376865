"""Processes forked from this one that work beside it.

Linux only, and only while there is one thread: what is forked beside others can wait for ever for what they held.

None outlives the one that forked it, however that ends: each holds the reading end of a pipe of which only that one has the other
end. When it is gone the kernel sends SIGIO, of which a process dies that has not asked for it: nothing here has to look.

A process that works beside its helpers need not be sent what it does itself; but it may die of the work. So the whole is an
``attempt``, made in a process that may die while another waits for it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NoReturn, TypeVar

R = TypeVar("R")

MOST = 1000
"""Pieces of work, at the most: all their numbers must have room in a pipe."""

_DIGITS = 4
"""Bytes of a number in a pipe. Two numbers report what is done: the place of a helper, and the number of the piece."""

_attempting = False
"""In a process that may die, for which another waits."""
_helpers: list[int] = []
"""Processes that this one has forked and not seen end."""
_lifelines: dict[int, int] = {}
"""By process that this one has forked: the end of a pipe that ends it when it is closed."""


def possible() -> bool:
    """Whether processes can be forked here."""
    import threading

    return sys.platform == "linux" and hasattr(os, "memfd_create") and threading.active_count() == 1


def may_die() -> bool:
    """Whether this is the process of an ``attempt``."""
    return _attempting


def attempt(work: Callable[[], R]) -> R | None:
    """What ``work`` gives (never None), done in a process of its own; None when that died or failed, or when there can be none.
    What ``work`` changes in memory is lost."""
    if may_die() or not possible():
        return None
    import pickle

    sys.stdout.flush()
    sys.stderr.flush()
    try:
        result = os.memfd_create("torchmemlint")
    except OSError:
        return None
    with os.fdopen(result, "w+b") as file:
        try:
            child = _fork()
        except OSError:
            return None
        if child == 0:
            _make_attempt(work, file.raw.fileno())
        try:
            status = _ended(child)
        except BaseException:
            _stop([child])
            raise
        if status:
            return None
        file.seek(0)  # the place in it is that of the child, too
        try:
            found: R = pickle.load(file)
        except EOFError:  # it was ended by what it did
            return None
        return found


def _make_attempt(work: Callable[[], object], result: int) -> NoReturn:
    import pickle

    global _attempting
    status = 1
    try:
        _attempting = True
        _helpers.clear()  # they are not ours
        data = pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
        _write(result, data)
        wait()
        status = 0
    except BaseException:  # the caller that waits does the same, and fails in its own name
        pass
    finally:
        os._exit(status)


def together(work: Callable[[int], R], pieces: int, helpers: int) -> Iterator[tuple[int, R]]:
    """``work(number)`` for so many pieces of work, with its number, done in this process and in ``helpers`` beside it. What a
    helper was at when it died is not among them. Raises OSError where there cannot be so many processes."""
    assert pieces <= MOST
    queue, full = os.pipe()
    # An idle process takes the next number from the pipe.
    os.write(full, b"".join(map(_bytes, range(pieces))))
    os.close(full)
    done_out, done_in = os.pipe()
    os.set_blocking(done_out, False)
    results = [os.memfd_create("torchmemlint") for _ in range(helpers)]
    children: list[int] = []
    try:
        for place, result in enumerate(results):
            child = _fork()
            if child == 0:
                os.close(done_out)
                _help(work, queue, place, result, done_in)
            children.append(child)
        _helpers.extend(children)
        os.close(done_in)
        done_in = -1
        readers = [_Reader(result) for result in results]
        while (number := _taken(queue)) is not None:
            yield number, work(number)
            yield from _arrived(done_out, readers)
        os.set_blocking(done_out, True)
        yield from _arrived(done_out, readers)
    except BaseException:
        _stop(children)
        raise
    finally:
        for each in (queue, done_out, done_in, *results):
            if each >= 0:
                os.close(each)


def beside(work: Callable[[], bytes]) -> Callable[[], bytes | None]:
    """Begins ``work`` in a process forked from this one. What is returned waits for it and says what it gave; None where that died,
    or could not be. To be asked once."""
    try:
        result = os.memfd_create("torchmemlint")
    except OSError:
        return lambda: None
    try:
        child = _fork()
    except OSError:
        os.close(result)
        return lambda: None
    if child == 0:
        _give(work, result)
    _helpers.append(child)

    def found() -> bytes | None:
        with os.fdopen(result, "rb") as file:
            _helpers.remove(child)
            status = _ended(child)
            file.seek(0)
            return None if status else file.read()

    return found


def _give(work: Callable[[], bytes], result: int) -> NoReturn:
    status = 1
    try:
        _write(result, work())
        status = 0
    except BaseException:  # the caller gets an empty answer
        pass
    finally:
        os._exit(status)


def wait() -> None:
    """Until all helpers have ended."""
    while _helpers:
        _ended(_helpers.pop())


def _fork() -> int:
    """``os.fork``, of a child that ends with this process. Raises OSError where there can be none."""
    import fcntl

    end, lifeline = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(end)
        os.close(lifeline)
        raise
    if child:
        os.close(end)
        _lifelines[child] = lifeline
        return child
    try:
        for held in (lifeline, *_lifelines.values()):  # as long as a brother held them, they would not be closed
            os.close(held)
        _lifelines.clear()
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGIO])
        fcntl.fcntl(end, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        os.read(end, 1)  # nobody writes: that there is an end means that it was closed before we listened
    except BlockingIOError:
        return 0
    except BaseException:  # it would go on as its parent does, who is at it already
        pass
    os._exit(1)


def _ended(child: int) -> int:
    """How a child ended, when it has."""
    _, status = os.waitpid(child, 0)
    os.close(_lifelines.pop(child))
    return status


def _arrived(done_out: int, readers: Sequence[_Reader]) -> Iterator[tuple[int, R]]:
    """What helpers have done meanwhile, or until they end where ``done_out`` waits for them."""
    import pickle

    while True:
        try:
            done = os.read(done_out, 2 * _DIGITS)
        except BlockingIOError:
            return
        if not done:
            return
        yield _number(done[_DIGITS:]), pickle.load(readers[_number(done[:_DIGITS])])


def _help(work: Callable[[int], object], queue: int, place: int, result: int, done_in: int) -> NoReturn:
    import pickle

    status = 1
    try:
        while (number := _taken(queue)) is not None:
            # Each by itself: what is kept to be sent once would fill the memory with all that was ever sent.
            _write(result, pickle.dumps(work(number), pickle.HIGHEST_PROTOCOL))
            os.write(done_in, _bytes(place) + _bytes(number))
        os.close(done_in)  # now, and not when the memory has been taken apart
        status = 0
    except BaseException:  # what it was at is done again elsewhere, and fails there
        pass
    finally:
        os._exit(status)


def _taken(queue: int) -> int | None:
    data = os.read(queue, _DIGITS)
    return _number(data) if data else None


def _bytes(number: int) -> bytes:
    return number.to_bytes(_DIGITS, "little")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _stop(children: Sequence[int]) -> None:
    for child in children:
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
            _ended(child)
        if child in _helpers:
            _helpers.remove(child)


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


class _Reader:
    """A file for an unpickler, that another process is still writing: read from its start, wherever that one stands."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._at = 0

    def read(self, size: int) -> bytes:
        data = os.pread(self._file, size, self._at)
        self._at += len(data)
        return data

    def readline(self) -> bytes:
        raise NotImplementedError  # no protocol of today reads lines
