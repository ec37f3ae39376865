"""Several pieces of data as one, each as it is: behind a line of their lengths."""

from __future__ import annotations

from collections.abc import Sequence


def joined(parts: Sequence[bytes]) -> bytes:
    return b"%s\n%s" % (b" ".join(b"%d" % len(part) for part in parts), b"".join(parts))


def split(data: bytes, count: int, at: int = 0) -> tuple[list[bytes], int]:
    """The ``count`` parts that were joined from a place on, and the place behind them. Raises ValueError where they are not there."""
    end = data.index(b"\n", at)
    lengths = [int(part) for part in data[at:end].split()]
    at = end + 1
    if len(lengths) != count or min(lengths) < 0 or at + sum(lengths) > len(data):
        raise ValueError("the data is cut off")
    parts = []
    for length in lengths:
        parts.append(data[at : at + length])
        at += length
    return parts, at
