"""CUDA's caching allocator, replayed: which blocks and segments a sequence of allocations takes. Standard library only.

Every figure and rule is from ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig.h`` of torch 2.13:
``round_size``, ``get_allocation_size``, ``should_split``, ``get_free_block``, ``try_merge_blocks``. One stream, default options.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

MIN_BLOCK_SIZE = 512
"""kMinBlockSize: all sizes are rounded up to a multiple of it."""
SMALL_SIZE = 1 << 20
"""kSmallSize: the largest allocation of the pool of small blocks."""
SMALL_BUFFER = 2 << 20
"""kSmallBuffer: a segment of small blocks."""
LARGE_BUFFER = 20 << 20
"""kLargeBuffer: a segment for allocations of 1 to 10 MiB."""
MIN_LARGE_ALLOC = 10 << 20
"""kMinLargeAlloc: from here on a segment is made for one allocation."""
ROUND_LARGE = 2 << 20
"""kRoundLarge: such a segment is rounded up to a multiple of it."""


def round_size(size: int) -> int:
    """The size of the block that an allocation asks for."""
    return max(MIN_BLOCK_SIZE, -(-size // MIN_BLOCK_SIZE) * MIN_BLOCK_SIZE)


def segment_size(size: int) -> int:
    """What is asked of the driver for a block of this (rounded) size."""
    if size <= SMALL_SIZE:
        return SMALL_BUFFER
    if size < MIN_LARGE_ALLOC:
        return LARGE_BUFFER
    return -(-size // ROUND_LARGE) * ROUND_LARGE


@dataclass(slots=True, eq=False)
class _Block:
    size: int
    address: int
    small: bool
    free: bool = True
    before: _Block | None = None
    after: _Block | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.size, self.address


class Allocator:
    """The state of the allocator: ``allocated`` and ``reserved`` bytes now, and the highest since ``reset``. No allocation fails."""

    def __init__(self) -> None:
        self._pools: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._next_address = 0
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0

    def reset(self) -> None:
        """Start new peaks from what is there now."""
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def malloc(self, wanted: int) -> _Block:
        """A block for ``wanted`` bytes."""
        size = round_size(wanted)
        small = size <= SMALL_SIZE
        block = self._find(size, small) or self._grow(size, small)
        if self._should_split(block, size):
            rest = _Block(block.size - size, block.address + size, small, True, block, block.after)
            if block.after is not None:
                block.after.before = rest
            block.after, block.size = rest, size
            self._put(rest)
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: _Block) -> None:
        """Give a block back to its pool, one with its free neighbours."""
        block.free = True
        self.allocated -= block.size
        before, after = block.before, block.after
        if before is not None and before.free:
            self._take(before)
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            block = before
        if after is not None and after.free:
            self._take(after)
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
        self._put(block)

    def _find(self, size: int, small: bool) -> _Block | None:
        pool = self._pools[small]
        at = bisect_left(pool, (size, 0))
        if at == len(pool):
            return None
        block = self._blocks[pool[at]]
        self._take(block)
        return block

    def _grow(self, size: int, small: bool) -> _Block:
        new = segment_size(size)
        block = _Block(new, self._next_address, small)
        self._next_address += new + ROUND_LARGE
        self.reserved += new
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _should_split(self, block: _Block, size: int) -> bool:
        remaining = block.size - size
        if block.small:
            return remaining >= MIN_BLOCK_SIZE
        return remaining > SMALL_SIZE

    def _put(self, block: _Block) -> None:
        insort(self._pools[block.small], block.key)
        self._blocks[block.key] = block

    def _take(self, block: _Block) -> None:
        pool = self._pools[block.small]
        del pool[bisect_left(pool, block.key)]
        del self._blocks[block.key]
