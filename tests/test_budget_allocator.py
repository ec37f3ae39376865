"""The allocator of ``budget``: rounding, segments, splitting, merging; sizes as they are written."""

from __future__ import annotations

import pytest

from torchmemlint.budget.allocator import Allocator, round_size, segment_size
from torchmemlint.budget.sizes import bytes_of, input_of
from torchmemlint.errors import UsageError

MIB = 1 << 20


def test_sizes_of_blocks_and_segments() -> None:
    assert [round_size(size) for size in (1, 512, 513)] == [512, 512, 1024]
    assert [segment_size(size) for size in (512, 2 * MIB, 11 * MIB)] == [2 * MIB, 20 * MIB, 12 * MIB]


def test_small_blocks_share_a_segment_and_merge() -> None:
    allocator = Allocator()
    blocks = [allocator.malloc(1000) for _ in range(4)]
    assert (allocator.allocated, allocator.reserved) == (4 * 1024, 2 * MIB)
    for block in blocks:
        allocator.free(block)
    allocator.malloc(MIB)
    assert (allocator.allocated, allocator.reserved) == (MIB, 2 * MIB)


def test_a_rest_of_a_large_block_that_is_not_split_counts_as_allocated() -> None:
    allocator = Allocator()
    allocator.free(allocator.malloc(12 * MIB))
    allocator.malloc(11 * MIB + MIB // 2)
    assert (allocator.allocated, allocator.reserved) == (12 * MIB, 12 * MIB)


def test_written_sizes() -> None:
    assert bytes_of("24GiB") == 24 << 30
    assert input_of("ids:int64[8,256]") == ("ids", "int64", [8, 256])
    with pytest.raises(UsageError):
        bytes_of("much")
    with pytest.raises(UsageError):
        input_of("ids:text[8]")


def test_expandable_segments_grow_at_their_end_and_are_split_everywhere() -> None:
    allocator = Allocator(expandable=True)
    first, second = allocator.malloc(12 * MIB), allocator.malloc(7 * MIB)
    assert allocator.reserved == 20 * MIB
    third = allocator.malloc(30 * MIB)  # a page of 20 MiB has 1 MiB left; 29 MiB more are two pages
    assert allocator.reserved == 60 * MIB
    allocator.free(first)
    allocator.malloc(11 * MIB + MIB // 2)
    assert allocator.allocated == 11 * MIB + MIB // 2 + 37 * MIB  # split to the byte, where a segment of its own would not be
    allocator.free(second)
    allocator.free(third)
    allocator.malloc(48 * MIB)
    assert allocator.reserved == 60 * MIB
