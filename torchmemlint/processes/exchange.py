"""Results that processes forked from one process exchange while they work, so that what all of them need is computed once.

Nobody waits: each process writes into a file of its own, in memory, and reads those of the others when it likes. What a process has
not published, because it died or is not done, the others compute themselves. Linux only.
"""

from __future__ import annotations

import marshal
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from zlib import crc32

Item = TypeVar("Item")
Plain = TypeVar("Plain")

PIECES = 64
"""Pieces in which work is shared out: the last of them may be done twice."""

_NUMBER = struct.Struct("<I")
_HEAD = struct.Struct("<II")
"""Before each message: its length, and its sum. A message that is still being written is too short, or (where a processor sees
the length before the bytes) has another sum."""


class Exchange:
    """For so many processes: the one that makes it, and those that are forked from it. Raises OSError where there can be none.

    ``position`` goes with whatever a process publishes; the others take it where they ``accept`` that.
    """

    def __init__(self, processes: int) -> None:
        self.position: Callable[[], Any] = lambda: None
        self.accepts: Callable[[Any], bool] = lambda position: True
        self._logs = [os.memfd_create("torchmemlint") for _ in range(processes)]
        self._places = _queue(processes)
        self._pieces: dict[str, int] = {}
        self._read = [0] * processes
        self._own = -1
        self._writer = 0
        self._inbox: dict[object, Sequence[Any]] = {}

    def begin(self, work: str) -> None:
        """Prepares work to be shared out, before processes are forked."""
        self._pieces[work] = _queue(PIECES)

    def publish(self, of: str | tuple[str, int], value: Any) -> None:
        """Gives all others something that ``marshal`` can write."""
        if not self._writer and self._logs:
            place = _taken(self._places)
            self._own, self._writer = -1 if place is None else place, os.getpid()
        if self._logs and self._own >= 0 and self._writer == os.getpid():  # and not one that was forked from the writer
            message = marshal.dumps((of, self.position(), value))
            data = memoryview(_HEAD.pack(len(message), crc32(message)) + message)
            try:
                while data:
                    data = data[os.write(self._logs[self._own], data) :]
            except OSError:  # there is no room: what is cut off has another sum, and nothing behind it is read
                self._own = -1

    def received(self, of: str | tuple[str, int]) -> Any:
        """What another published, once; None where nobody did so far, or it is not accepted."""
        if of not in self._inbox:
            self._receive()
        position, value = self._inbox.pop(of, (None, None))
        return value if value is not None and self.accepts(position) else None

    def share_out(self, work: str, items: Sequence[Item], do: Callable[[Sequence[Item]], Plain]) -> list[Plain]:
        """What ``do`` gives for the items, some at a time and in their order. All processes that ask give the same items; what
        stands together is done by one."""
        each = len(items) // PIECES + 1
        pieces = [items[first : first + each] for first in range(0, each * PIECES, each)]
        found: dict[int, Plain] = {}
        while self._logs and (number := _taken(self._pieces[work])) is not None:
            found[number] = do(pieces[number])
            self.publish((work, number), found[number])
        for number, piece in enumerate(pieces):
            if number not in found:
                given = self.received((work, number))
                found[number] = do(piece) if given is None else given
        return [found[number] for number in range(PIECES)]

    def close(self) -> None:
        """From now on nothing is exchanged with this process."""
        for each in (*self._logs, self._places, *self._pieces.values()):
            os.close(each)
        self._logs = []

    def _receive(self) -> None:
        """Reads what others wrote since this was last done."""
        for place, log in enumerate(self._logs):
            while place != self._own:
                head = os.pread(log, _HEAD.size, self._read[place])
                if len(head) < _HEAD.size:
                    break
                length, total = _HEAD.unpack(head)
                message = os.pread(log, length, self._read[place] + _HEAD.size)
                if len(message) < length or crc32(message) != total:
                    break
                self._read[place] += _HEAD.size + length
                of, *content = marshal.loads(message)
                self._inbox[of] = content


def _queue(count: int) -> int:
    """The end of a pipe from which each of so many numbers can be read once."""
    end, full = os.pipe()
    os.write(full, b"".join(map(_NUMBER.pack, range(count))))
    os.close(full)
    return end


def _taken(queue: int) -> int | None:
    data = os.read(queue, _NUMBER.size)
    number: int | None = _NUMBER.unpack(data)[0] if data else None
    return number
