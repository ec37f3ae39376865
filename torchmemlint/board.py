"""What processes that were forked from one tell each other while they work, so that what all of them need is worked out once.

Nobody waits for anybody: each writes into a file of its own, in memory, and looks into those of the others when it likes. What
one has not told, because it died or is not done, the others work out for themselves. On Linux alone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from zlib import crc32

PIECES = 64
"""Numbers that can be taken."""

_NUMBER = struct.Struct("<I")
_HEAD = struct.Struct("<II")
"""Before each message: its length, and its sum. A message that is still being written is too short, or (where a processor sees
the length before the bytes) has another sum."""


class Board:
    """For so many processes: the one that makes it, and those that are forked from it. Raises OSError where there can be none."""

    def __init__(self, processes: int) -> None:
        self._logs = [os.memfd_create("torchmemlint") for _ in range(processes)]
        self._places = _queue(processes)
        self._pieces = _queue(PIECES)
        self._read = [0] * processes
        self._own = -1
        self._writer = 0

    def take(self) -> int | None:
        """A number below ``PIECES`` that no other process takes; None when there is none left."""
        return _taken(self._pieces) if self._logs else None

    def tell(self, message: bytes) -> None:
        """Writes something for all others."""
        if not self._writer and self._logs:
            place = _taken(self._places)
            self._own, self._writer = -1 if place is None else place, os.getpid()
        if self._logs and self._own >= 0 and self._writer == os.getpid():  # and not one that was forked from the writer
            data = memoryview(_HEAD.pack(len(message), crc32(message)) + message)
            while data:
                data = data[os.write(self._logs[self._own], data) :]

    def heard(self) -> Iterator[bytes]:
        """What others wrote since this was last asked."""
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
                yield message

    def close(self) -> None:
        """From now on nobody tells this process anything."""
        for each in (*self._logs, self._places, self._pieces):
            os.close(each)
        self._logs = []


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
