"""From the recorded events to the account of a step: the peak, its place, its parts.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torchmemlint.budget.allocator import Allocator, Block, round_size

PARTS = (
    "parameters", "gradients", "optimizer state", "saved activations", "inputs", "buffers", "temporaries", "workspaces", "buckets",
)  # fmt: skip
POINTS = 600
"""As many points has the curve over the step."""


class Storage(Protocol):
    """What is known of one storage."""

    size: int
    born: int
    died: int
    row: int
    path: str
    module: str
    op: str
    phase: str
    kind: str
    on_device: bool


@dataclass(slots=True)
class Account:
    """What a step needs: bytes (``expandable``: what is reserved with ``expandable_segments:True``), where the peak is, what it is made of, and the curve (each point: event, bytes by part)."""

    allocated: int
    reserved: int
    expandable: int = 0
    row: int = 0
    path: str = ""
    module: str = ""
    op: str = ""
    phase: str = ""
    parts: dict[str, int] = field(default_factory=dict)
    modules: list[tuple[str, int]] = field(default_factory=list)
    curve: list[dict[str, int]] = field(default_factory=list)
    events: int = 0


def account(
    blocks: Sequence[Storage], events: Sequence[tuple[int, int]], window: tuple[int, int], backwards: Sequence[int],
) -> Account:  # fmt: skip
    """Replay the tape; ``window`` is the step that is reported, ``backwards`` where its backward passes began."""
    begin, end = window
    allocator, totals = _replayed(Allocator(), blocks, events, window)
    at = begin + totals.index(max(totals)) if totals else begin
    expandable, _ = _replayed(Allocator(expandable=True), blocks, events, window)
    result = Account(allocator.peak_allocated, allocator.peak_reserved, expandable.peak_reserved, events=end - begin)
    if not events:
        return result
    culprit = blocks[events[at][0]] if at < len(events) else blocks[events[-1][0]]
    result.row, result.path, result.module = culprit.row, culprit.path, culprit.module
    result.op, result.phase = culprit.op, culprit.phase
    parts, modules = _at(blocks, at, begin, end, backwards)
    result.parts = {name: parts.get(name, 0) for name in PARTS if parts.get(name)}
    rest = result.allocated - sum(result.parts.values())
    result.parts["rounding"] = max(0, rest)
    result.modules = sorted(modules.items(), key=lambda item: -item[1])[:20]
    result.curve = _curve(blocks, events, begin, end, backwards)
    return result


def _replayed(
    allocator: Allocator, blocks: Sequence[Storage], events: Sequence[tuple[int, int]], window: tuple[int, int]
) -> tuple[Allocator, list[int]]:
    """The allocator after the window, and what was allocated after each of its events."""
    held: dict[int, Block] = {}
    totals: list[int] = []
    for index, (number, sign) in enumerate(events[: window[1]]):
        if index == window[0]:
            allocator.reset()
        block = blocks[number]
        if block.size and block.on_device:
            if sign > 0:
                held[number] = allocator.malloc(block.size)
            elif number in held:
                allocator.free(held.pop(number))
        if index >= window[0]:
            totals.append(allocator.allocated)
    return allocator, totals


def part_of(block: Storage, begin: int, end: int, backwards: Sequence[int]) -> str:
    """The part that a storage counts to. What lives when the next backward begins is a saved activation."""
    if block.kind:
        return block.kind
    if block.phase == "backward":
        return "temporaries"
    if block.born < begin and (block.died < 0 or block.died > end):
        return "inputs"
    start = next((at for at in backwards if at >= block.born), end)
    if block.died < 0 or block.died >= start:
        return "saved activations" if block.born >= begin or block.died > begin else "inputs"
    return "temporaries"


def _at(
    blocks: Sequence[Storage], at: int, begin: int, end: int, backwards: Sequence[int]
) -> tuple[dict[str, int], dict[str, int]]:
    parts: dict[str, int] = {}
    modules: dict[str, int] = {}
    for block in blocks:
        if block.size and block.on_device and block.born <= at and (block.died < 0 or block.died > at):
            size = round_size(block.size)
            part = part_of(block, begin, end, backwards)
            parts[part] = parts.get(part, 0) + size
            if part == "saved activations":
                modules[block.module or "(outside of modules)"] = modules.get(block.module or "(outside of modules)", 0) + size
    return parts, modules


def _curve(
    blocks: Sequence[Storage], events: Sequence[tuple[int, int]], begin: int, end: int, backwards: Sequence[int]
) -> list[dict[str, int]]:
    """The highest moment of each of ``POINTS`` equal stretches, by part."""
    now: dict[str, int] = {}
    of = [part_of(block, begin, end, backwards) for block in blocks]
    stretch = max(1, (end - begin) // POINTS)
    curve: list[dict[str, int]] = []
    best, best_total, total = {}, -1, 0
    for index, (number, sign) in enumerate(events[:end]):
        block = blocks[number]
        if block.size and block.on_device:
            size = round_size(block.size) * sign
            now[of[number]] = now.get(of[number], 0) + size
            total += size
        if index < begin:
            continue
        if total > best_total:
            best, best_total = {"event": index - begin, **now}, total
        if (index - begin) % stretch == stretch - 1 or index == end - 1:
            curve.append(best)
            best, best_total = {}, -1
    return curve
