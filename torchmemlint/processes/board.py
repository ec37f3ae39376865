"""What processes that were forked from one tell each other while they work, so that what all of them need is worked out once.

Nobody waits for anybody: each writes into a file of its own, in memory, and looks into those of the others when it likes. What
one has not told, because it died or is not done, the others work out for themselves. On Linux alone.
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


class Board:
    """For so many processes: the one that makes it, and those that are forked from it. Raises OSError where there can be none.

    With all that one tells goes what it says by ``sign``; others hear it where they ``believe`` that.
    """

    def __init__(self, processes: int) -> None:
        self.sign: Callable[[], Any] = lambda: None
        self.believes: Callable[[Any], bool] = lambda sign: True
        self._logs = [os.memfd_create("torchmemlint") for _ in range(processes)]
        self._places = _queue(processes)
        self._pieces: dict[str, int] = {}
        self._read = [0] * processes
        self._own = -1
        self._writer = 0
        self._heard: dict[object, Sequence[Any]] = {}

    def begin(self, work: str) -> None:
        """Gets ready for something to be shared out, before processes are forked."""
        self._pieces[work] = _queue(PIECES)

    def tell(self, of: str | tuple[str, int], value: Any) -> None:
        """Tells all others something that ``marshal`` can write."""
        if not self._writer and self._logs:
            place = _taken(self._places)
            self._own, self._writer = -1 if place is None else place, os.getpid()
        if self._logs and self._own >= 0 and self._writer == os.getpid():  # and not one that was forked from the writer
            message = marshal.dumps((of, self.sign(), value))
            data = memoryview(_HEAD.pack(len(message), crc32(message)) + message)
            try:
                while data:
                    data = data[os.write(self._logs[self._own], data) :]
            except OSError:  # there is no room: what is cut off has another sum, and nothing behind it is read
                self._own = -1

    def told(self, of: str | tuple[str, int]) -> Any:
        """What another told, once; None where nobody did so far, or is not believed."""
        if of not in self._heard:
            self._listen()
        sign, value = self._heard.pop(of, (None, None))
        return value if value is not None and self.believes(sign) else None

    def share_out(self, work: str, items: Sequence[Item], do: Callable[[Sequence[Item]], Plain]) -> list[Plain]:
        """What ``do`` gives for the items, some at a time and in their order. All processes that ask give the same items; what
        stands together is done by one."""
        each = len(items) // PIECES + 1
        pieces = [items[first : first + each] for first in range(0, each * PIECES, each)]
        found: dict[int, Plain] = {}
        while self._logs and (number := _taken(self._pieces[work])) is not None:
            found[number] = do(pieces[number])
            self.tell((work, number), found[number])
        for number, piece in enumerate(pieces):
            if number not in found:
                told = self.told((work, number))
                found[number] = do(piece) if told is None else told
        return [found[number] for number in range(PIECES)]

    def close(self) -> None:
        """From now on nobody tells this process anything."""
        for each in (*self._logs, self._places, *self._pieces.values()):
            os.close(each)
        self._logs = []

    def _listen(self) -> None:
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
                of, *told = marshal.loads(message)
                self._heard[of] = told


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
