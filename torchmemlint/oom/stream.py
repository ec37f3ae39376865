"""Find the out-of-memory messages of a log of any size, in memory that does not grow with it.

The log is read in pieces and searched as bytes for a few words without which no message exists; only where one occurs is
the line decoded and read. Before each message a window of the log stays at hand for the traceback.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from torchmemlint.oom.log_line import LogLine, read_line
from torchmemlint.oom.messages import Begun, Message, find_head, needs_next_line, parse_message
from torchmemlint.oom.wordings import HEADS, WEAK, Family

PIECE = 256 * 1024
"""Bytes read at a time; small enough to stay in a processor's cache while it is searched."""
WINDOW = 256 * 1024
"""Bytes kept before a message: eight interleaved ranks with a traceback of 30 KB each."""
LOOKAHEAD = 16 * 1024
AFTER = 4 * 1024
MAX_LINE = 8 * 1024
"""A longer line is read around its message only."""
EXAMINED = 2048
"""Bytes of a line in which a head is looked for at a time."""
MAX_CONTINUATION = 8
"""Lines joined to one message: a terminal 80 columns wide needs six."""

_GATES: Mapping[bytes, tuple[bytes, ...]] = {
    b"lloc": (
        b"to alloc",
        b"t alloc",
        b"be alloc",
        b"Alloc",
        b"allocati",
        b"alloc failed",
        b"alloc error",
        b"to malloc",
        b"to realloc",
    ),
    b"ut of ": (),
    b"illed": (),
    b"rror": (),
    b"emory": (b"Memory", b"nsufficient", b"enough", b"-of-memory", b"vailable memory", b"emory exhausted", b"emory limit"),
    b"OOM": (),
    b"": (b"137", b"signal", b"SIG", b"-9", b"-7", b"0xC", b"_STATUS_", b"_FAILED", b"xceeds", b"terminated"),
}
"""Each of these is in several words; a piece of the log without one cannot hold the words that contain it. The rarer ones come first.
With a gate come finer ones, looked for where the gate is; what has no gate comes last."""
_TROUBLE = (b"rror", b"ERROR", b"xception", b"raceback", b"crash", b"illed")
"""Words without a gate are looked for in a piece only if it has one of these, or speaks of a size to allocate; in the first piece they are
in any case."""


def _by_gate() -> dict[bytes, dict[bytes, tuple[bytes, ...]]]:
    """gate → finer gate → words; those without one under b"". A word that contains another of the same gates adds nothing."""
    words: dict[bytes, dict[bytes, list[bytes]]] = {gate: {} for gate in _GATES}
    for word in dict.fromkeys(word for head in HEADS for word in head.words):
        gate = next(gate for gate in _GATES if gate in word)
        words[gate].setdefault(next((finer for finer in _GATES[gate] if finer in word), b""), []).append(word)
    return {
        gate: {
            finer: tuple(word for word in group if not any(other in word for other in group if other != word))
            for finer, group in groups.items()
        }
        for gate, groups in words.items()
    }


_WORDS = _by_gate()


class ByteReader(Protocol):
    """What a log is read from: an open binary file or ``sys.stdin.buffer``."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One message as it stands in the log.

    row      1-based line number of its head
    source   the mark of the rank or process that wrote it, "" when the log has none
    before   the log up to the head's line, at most ``WINDOW`` bytes; valid after the scan too, but holding it holds a piece
    lead     what stands before the message in its own line
    after    the log behind that line, at most ``AFTER`` bytes
    """

    row: int
    source: str
    message: Message
    before: memoryview
    after: memoryview
    lead: str = ""


class _Utf16:
    """A UTF-16 log (PowerShell's ``>`` writes one) passed on as UTF-8."""

    def __init__(self, stream: ByteReader, first: bytes, encoding: str) -> None:
        self._stream, self._first = stream, first
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int, /) -> bytes:
        while True:
            raw, self._first = self._first or self._stream.read(size), b""
            text = self._decoder.decode(raw, final=not raw)
            if text or not raw:
                return text.encode("utf-8", "replace")


def scan(stream: ByteReader) -> Iterator[Occurrence]:
    """Every out-of-memory message of ``stream`` in order. Raises only what ``stream.read`` raises."""
    piece = _read_piece(stream)
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if piece.startswith(mark):
            stream = _Utf16(stream, piece[2:], encoding)
            piece = _read_piece(stream)
            break
    data, done = b"", 0  # done: offset in data up to which everything was searched
    rows, counted = 0, 0  # newlines of the whole log before the offset `counted` of data
    while True:
        data = (data + piece) if data else piece
        last = not piece
        limit = len(data) if last else max(done, len(data) - LOOKAHEAD)
        for hit in _hits(data, done, limit, sparing=len(data) > PIECE):
            if hit < done:
                continue
            start = _line_start(data, hit, done)
            found, end, past = _read_message(data, start, hit, done)
            done = max(past, hit + 1)
            if found is None:
                continue
            start, line, message, lead = found
            rows += data.count(b"\n", counted, start)
            counted = start
            view = memoryview(data)
            yield Occurrence(
                rows + 1,
                line.source,
                message,
                view[max(0, start - WINDOW) : start],
                view[end : min(len(data), end + AFTER)],
                lead,
            )
        done = max(done, limit)
        if last:
            return
        drop = max(0, done - WINDOW)
        if drop > counted:
            rows += data.count(b"\n", counted, drop)
            counted = drop
        if drop:
            data = data[drop:]
            done, counted = done - drop, counted - drop
        piece = _read_piece(stream)


def _read_piece(stream: ByteReader) -> bytes:
    """The next ``PIECE`` bytes, less only at the end: a pipe hands out small portions, and each piece costs a copy."""
    parts, size = [], 0
    while size < PIECE:
        part = stream.read(PIECE - size)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _hits(data: bytes, start: int, limit: int, *, sparing: bool) -> list[int]:
    """Offsets in [start, limit) of the words, ascending; ``sparing`` passes over words that are not to be expected there."""
    stop = min(len(data), limit + 32)  # a word may begin before the limit and end behind it
    low, high = max(0, start - 32), min(len(data), stop + 32)
    hits = []
    held = {gate: data.find(gate, low, high) >= 0 for gate in _WORDS if gate}
    held[b""] = (
        not sparing
        or any(held[sign] if sign in held else data.find(sign, low, high) >= 0 for sign in _TROUBLE)
        or (held[b"lloc"] and data.find(b"to allocate", low, high) >= 0)
    )
    for gate, groups in _WORDS.items():
        if not held[gate]:
            continue
        for finer, words in groups.items():
            if finer and data.find(finer, low, high) < 0:
                continue
            for word in words:
                at = data.find(word, start, stop)
                while 0 <= at < limit:
                    hits.append(at)
                    at = data.find(word, at + len(word), stop)
    hits.sort()
    return hits


def _line_start(data: bytes, hit: int, floor: int) -> int:
    low = max(0, hit - MAX_LINE)
    newline = max(data.rfind(b"\n", low, hit), data.rfind(b"\r", low, hit))
    if newline >= 0:
        return newline + 1
    return low if low else max(0, min(floor, hit))


def _read_message(data: bytes, start: int, hit: int, floor: int) -> tuple[tuple[int, LogLine, Message, str] | None, int, int]:
    """The message of the line around ``hit``, or None; the end of that line; and the offset up to which there is no other message.

    With the message come the offset of its line, that line, and what stands before the message there. ``floor`` is the offset up to
    which messages have been read.
    """
    begin = start if hit - start <= EXAMINED // 2 else hit - EXAMINED // 4
    end = data.find(b"\n", hit, hit + MAX_LINE)
    end = min(len(data), hit + MAX_LINE) if end < 0 else end
    raw = data[begin : min(end, begin + EXAMINED)].decode("utf-8", "replace")
    line = read_line(raw)
    begun = find_head(line.text, raw)
    wrapped = _wrapped(data, start, hit, floor, line) if begun is None else None
    if wrapped is not None:
        start, line, begun = wrapped
    if begun is None:
        # Of a longer line, what a head could still begin in is looked at again.
        return None, end, end if end - begin <= EXAMINED else begin + EXAMINED - 512
    if wrapped is None:
        line = read_line(data[begin:end].decode("utf-8", "replace"))
    lead, text = line.text[: begun.column][-EXAMINED:], line.text[begun.column :]
    at = end
    if begun.head.family is Family.BARE:
        # Some programs print each sentence of a message in a line of its own.
        following = data.find(b"\n", at + 1, at + 1 + MAX_LINE)
        more = read_line(data[at + 1 : max(following, at + 1)].decode("utf-8", "replace"))
        whole = find_head(f"{text.rstrip()} {more.text}") if more.text.startswith("Tried to allocate") else None
        if whole is not None:
            begun, text, at = whole, f"{text.rstrip()} {more.text}", following
    family, past = begun.head.family, end
    for _ in range(MAX_CONTINUATION):
        if not needs_next_line(text, family) or at >= len(data):
            break
        following = data.find(b"\n", at + 1, at + 1 + MAX_LINE)
        following = min(len(data), at + 1 + MAX_LINE) if following < 0 else following
        more = read_line(data[at + 1 : following].decode("utf-8", "replace"))
        at = following
        if more.source != line.source:
            continue  # another rank wrote in between
        inner = find_head(more.text[:EXAMINED])
        inner = None if inner is not None and inner.head.family is Family.UNNAMED else inner
        goes_on = inner is not None and inner.head.goes_on and inner.head.family is family
        if not more.text.strip() or (_starts_over(more.text) if inner is None else not goes_on):
            break
        text = f"{text} {more.text}"
        past = at if goes_on else past
    return (start, line, parse_message(text, begun), lead), end, past


_SOURCE_COLUMN = re.compile(r"\s{1,80}[\w./-]{1,80}\.py:\d{1,7}\s{0,80}$")
"""What rich prints at the right of a record's first line."""
MAX_WRAPPED = 400


def _wrapped(data: bytes, start: int, hit: int, floor: int, line: LogLine) -> tuple[int, LogLine, Begun] | None:
    """The message that begins in the line above and is wrapped into ``line``, as rich does; None if there is none.

    With it come the offset of that line, and both lines as one.
    """
    if start < 2 or hit - start < 4 or not data[start : hit - 1].isspace():
        return None  # only the first word of an indented line can go on with a message
    upper = _line_start(data, start - 1, 0)
    if upper < floor or start - upper > MAX_WRAPPED:
        return None
    above = read_line(data[upper : start - 1].decode("utf-8", "replace"))
    kept = _SOURCE_COLUMN.sub("", above.text).rstrip()
    joined = f"{kept} {line.text.strip()}"
    begun = find_head(joined)
    return None if begun is None or begun.column >= len(kept) else (upper, LogLine(above.source, joined), begun)


def _starts_over(text: str) -> bool:
    return text.lstrip().startswith(("Traceback (most", "File ", "During handling", "The above exception"))


def is_strong(family: Family) -> bool:
    """Whether the message itself says that memory ran out; the others only make it likely."""
    return family not in WEAK
