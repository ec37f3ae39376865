"""Whether a series of measurements grows: by the lowest figures of three stretches, which no peak, cache or collection hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WARM_UP = 3
LEAST_POINTS = 6
LEAST_RATE = 200
"""Bytes an iteration: less is the interpreter's own."""

Point = tuple[int, int]
"""An iteration, and the bytes at its head."""


@dataclass(frozen=True, slots=True)
class Trend:
    """``rate`` in bytes an iteration; ``period``: about how many iterations lie between two rises."""

    rate: float
    period: int


def trend(points: Sequence[Point]) -> Trend | None:
    """The growth of a series, None if it does not grow. The first iterations warm up."""
    steady = [point for point in points if point[0] > WARM_UP]
    if len(steady) < LEAST_POINTS:
        return None
    third = len(steady) // 3
    parts = (steady[-3 * third : -2 * third], steady[-2 * third : -third], steady[-third:])
    lows = [min(part, key=lambda point: point[1]) for part in parts]
    span = parts[2][0][0] - parts[0][0][0]
    rise = lows[2][1] - lows[0][1]
    if span <= 0 or rise < LEAST_RATE * span:
        return None
    if min(lows[1][1] - lows[0][1], lows[2][1] - lows[1][1]) < rise / 5:
        return None
    return Trend(rise / span, _period(steady))


def _period(points: Sequence[Point]) -> int:
    """Iterations per rise of what never falls again."""
    floor: list[int] = []
    low = points[-1][1]
    for _, size in reversed(points):
        low = min(low, size)
        floor.append(low)
    floor.reverse()
    rises = sum(later - earlier > LEAST_RATE for earlier, later in pairwise(floor))
    return max(1, round((points[-1][0] - points[0][0]) / max(1, rises)))


def rate_between(points: Sequence[Point]) -> float | None:
    """Bytes an iteration between the lowest figures of the two halves of a series, None for fewer than four points."""
    if len(points) < 4:
        return None
    half = len(points) // 2
    first, second = min(points[:half], key=lambda point: point[1]), min(points[half:], key=lambda point: point[1])
    return (second[1] - first[1]) / max(1, points[half][0] - points[0][0])
