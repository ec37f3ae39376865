"""Sizes to try where a guessed one did not fit: the program's own, of the line that failed, and those that its error names."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from torchmemlint.budget.worker.unsized import Maker

MOST = 3
"""So many are tried."""
LARGEST = 1 << 16
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_SHAPE = re.compile(r"\[[\d, ]+\]|\(\d+x\d+")
_NUMBER = re.compile(r"(?<![\w.-])\d+(?![\w.])")
_PRODUCT = re.compile(r"\(\d+x(\d+) and (\d+)x\d+\)")


def sizes(error: BaseException, own: Callable[[str], bool], maker: Maker) -> list[int]:
    """Numbers of an assertion that did not hold, or, where a length was guessed, that an error names as the size wanted."""
    if not (maker.pictures or maker.sequences) or not isinstance(error, (RuntimeError, AssertionError, IndexError, ValueError)):
        return []
    found = list(_of_line(error, own))
    if maker.sequences and not isinstance(error, AssertionError):
        found += [int(word) for word in re.findall(r"(?<![\w-])\d+", _SHAPE.sub("", str(error)))]
    guesses = (maker.width, maker.long)
    return list(dict.fromkeys(size for size in found if 1 < size <= LARGEST and size not in guesses))[:MOST]


def counts(error: BaseException, count: int) -> list[int]:
    """Numbers that an error about a tensor puts beside a size that was made up, ``count``: those that multiply a matrix, or all others."""
    if not isinstance(error, (RuntimeError, IndexError, ValueError)):
        return []
    text = str(error)
    products = [(int(one), int(other)) for one, other in _PRODUCT.findall(text)]
    found = [other if one == count else one for one, other in products if count in (one, other)]
    found = found or [int(word) for word in _NUMBER.findall(_SHAPE.sub("", text))]
    if not products and count not in found:
        return []
    return list(dict.fromkeys(size for size in found if 1 < size <= LARGEST and size != count))[:MOST]


def _of_line(error: BaseException, own: Callable[[str], bool]) -> Iterator[int]:
    """The numbers that the program's own innermost line reads."""
    frames = [(frame, row) for frame, row in traceback.walk_tb(error.__traceback__) if own(frame.f_code.co_filename)]
    if not frames or not isinstance(error, AssertionError):
        return
    frame, row = frames[-1]
    for name in _NAME.findall(linecache.getline(frame.f_code.co_filename, row)):
        first, *rest = name.split(".")
        value: Any = frame.f_locals.get(first)
        for part in rest:
            value = vars(value).get(part) if hasattr(value, "__dict__") else None
        if type(value) is int:
            yield value
