"""CUDA's caching allocator, replayed: which blocks of which segments a sequence of allocations takes.

Standard library only.

Standard library only.

Every figure and rule is from ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig.h`` of torch 2.13:
``round_size``, ``get_allocation_size``, ``should_split``, ``get_free_block``, ``try_merge_blocks``; for ``expandable_segments``
``find_expandable_block`` and ``map_block``. One stream.
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
class Block:
    """A stretch of a segment, used or free."""

    size: int
    address: int
    small: bool
    free: bool = True
    before: Block | None = None
    after: Block | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.size, self.address


class Allocator:
    """The state of the allocator: ``allocated`` and ``reserved`` bytes now, and the highest since ``reset``. No allocation fails.
    With ``expandable`` each pool is one segment that grows at its end, as with ``expandable_segments:True``."""

    def __init__(self, expandable: bool = False) -> None:
        self._expandable = expandable
        self._ends: dict[bool, Block | None] = {True: None, False: None}
        self._pools: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._blocks: dict[tuple[int, int], Block] = {}
        self._next_address = 0
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0

    def reset(self) -> None:
        """Start new peaks from what is there now."""
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def malloc(self, wanted: int) -> Block:
        """A block for ``wanted`` bytes."""
        size = round_size(wanted)
        small = size <= SMALL_SIZE
        block = self._find(size, small) or self._grow(size, small)
        if self._should_split(block, size):
            rest = Block(block.size - size, block.address + size, small, True, block, block.after)
            if block.after is not None:
                block.after.before = rest
            if self._ends[small] is block:
                self._ends[small] = rest
            block.after, block.size = rest, size
            self._put(rest)
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: Block) -> None:
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
            self._moved_end(block, before)
            block = before
        if after is not None and after.free:
            self._take(after)
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
            self._moved_end(after, block)
        self._put(block)

    def _moved_end(self, gone: Block, into: Block) -> None:
        if self._ends[gone.small] is gone:
            self._ends[gone.small] = into

    def _find(self, size: int, small: bool) -> Block | None:
        pool = self._pools[small]
        at = bisect_left(pool, (size, 0))
        if at == len(pool):
            return None
        block = self._blocks[pool[at]]
        self._take(block)
        return block

    def _grow(self, size: int, small: bool) -> Block:
        if self._expandable:
            return self._map(size, small)
        new = segment_size(size)
        block = Block(new, self._next_address, small)
        self._next_address += new + ROUND_LARGE
        self.reserved += new
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _map(self, size: int, small: bool) -> Block:
        """Memory at the segment's end, beyond the free block that may be there, in whole pages of the pool's size."""
        end = self._ends[small]
        block = end if end is not None and end.free else None
        missing = size - (block.size if block is not None else 0)
        page = SMALL_BUFFER if small else LARGE_BUFFER
        new = -(-missing // page) * page
        if block is not None:
            self._take(block)
            block.size += new
        else:
            address = end.address + end.size if end is not None else 0
            block = Block(new, address, small, before=end)
            if end is not None:
                end.after = block
            self._ends[small] = block
        self.reserved += new
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _should_split(self, block: Block, size: int) -> bool:
        remaining = block.size - size
        if block.small or self._expandable:
            return remaining >= MIN_BLOCK_SIZE
        return remaining > SMALL_SIZE

    def _put(self, block: Block) -> None:
        insort(self._pools[block.small], block.key)
        self._blocks[block.key] = block

    def _take(self, block: Block) -> None:
        pool = self._pools[block.small]
        del pool[bisect_left(pool, block.key)]
        del self._blocks[block.key]
