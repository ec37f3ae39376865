"""A CUDA allocator of this machine's memory: what ``torch.cuda`` says comes from a model of the caching allocator that is fed with the
tensors of the CPU. It shows that the path of a CUDA run holds together where there is no GPU.

The model, as in c10/cuda/CUDACachingAllocator.cpp: a block is a multiple of 512 bytes; blocks up to 1 MiB are cut from segments of 2 MiB,
those up to 10 MiB from segments of 20 MiB, larger ones get a segment of their own, a multiple of 2 MiB. What is freed stays cached, and
merges with its free neighbours; only whole free segments go back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchmemlint.confirm.worker.meter import StorageMeter

BLOCK = 512
MIB = 1 << 20


@dataclass
class Segment:
    """One cudaMalloc: its free and used stretches, as (start, size)."""

    size: int
    small: bool
    free: list[tuple[int, int]] = field(default_factory=list)

    def take(self, size: int) -> int | None:
        """The start of the smallest free stretch that holds the size."""
        fits = [stretch for stretch in self.free if stretch[1] >= size]
        if not fits:
            return None
        start, length = min(fits, key=lambda stretch: stretch[1])
        self.free.remove((start, length))
        if length > size:
            self.free.append((start + size, length - size))
        return start

    def give(self, start: int, size: int) -> None:
        """A stretch is free again, and one with those beside it."""
        for before in [stretch for stretch in self.free if sum(stretch) == start]:
            self.free.remove(before)
            start, size = before[0], before[1] + size
        for after in [stretch for stretch in self.free if stretch[0] == start + size]:
            self.free.remove(after)
            size += after[1]
        self.free.append((start, size))


class CachingAllocator:
    """Blocks, what was asked for, what is reserved, and the peak of the first."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.blocks: dict[int, tuple[Segment, int, int, int]] = {}
        self.peak = 0

    def allocate(self, key: int, asked: int) -> None:
        """A tensor's storage."""
        size = max(BLOCK, -(-asked // BLOCK) * BLOCK)
        small = size <= MIB
        for segment in self.segments:
            start = segment.take(size) if segment.small is small else None
            if start is not None:
                break
        else:
            segment_size = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            segment = Segment(segment_size, small, [(0, segment_size)])
            self.segments.append(segment)
            start = segment.take(size)
        assert start is not None
        self.blocks[key] = (segment, start, size, asked)
        self.peak = max(self.peak, self.allocated())

    def free(self, key: int) -> None:
        """The storage is gone; its block stays cached."""
        segment, start, size, _ = self.blocks.pop(key)
        segment.give(start, size)

    def allocated(self) -> int:
        """Bytes in blocks of tensors."""
        return sum(size for _, _, size, _ in self.blocks.values())

    def requested(self) -> int:
        """Bytes that were asked for."""
        return sum(asked for _, _, _, asked in self.blocks.values())

    def reserved(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def empty_cache(self) -> None:
        """Give whole free segments back."""
        self.segments = [segment for segment in self.segments if segment.free != [(0, segment.size)]]


class Allocator(StorageMeter):
    """Feeds the model with the storages that it sees, and says what was asked of it."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.model = CachingAllocator()
        self.asked: list[str] = []
        self.ready = False

    def _see(self, tensor: torch.Tensor) -> None:
        before = dict(self._sizes)
        super()._see(tensor)
        for key, size in self._sizes.items():
            if before.get(key) != size:
                if key in before:
                    self.model.free(key)
                self.model.allocate(key, size)

    def _forget(self, key: int) -> None:
        super()._forget(key)
        if key in self.model.blocks:
            self.model.free(key)

    def restart_peak(self) -> None:
        """As ``reset_peak_memory_stats``."""
        self.model.peak = self.model.allocated()

    def counters(self, wanted: str, answer: Callable[[], Any]) -> Callable[..., Any]:
        """A function of ``torch.cuda``. Before ``init`` the true ones know of nothing, and resetting a peak fails."""

        def counter(device: object = None) -> Any:
            assert self.ready or not wanted.startswith("reset"), f"{wanted} before torch.cuda.init()"
            assert str(device).startswith("cuda")
            return answer()

        return counter


class Generator(torch.Generator):
    """Of the CPU, whatever is asked for."""

    def __new__(cls, device: object = "cpu") -> Generator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


def pretend() -> Allocator:
    """Let ``torch.cuda`` answer from an allocator of ours, from now on and in this process."""
    allocator = Allocator()
    allocator.__enter__()  # type: ignore[no-untyped-call]

    def init() -> None:
        allocator.ready = True

    def history(enabled: str | None = "all", **options: object) -> None:
        allocator.asked.append(f"history {enabled}")

    cuda: Any = torch.cuda
    cuda.init, cuda.synchronize = init, lambda *device: None
    cuda.set_device = lambda device: allocator.asked.append(f"device {device}")
    cuda.memory_allocated = allocator.counters("memory_allocated", allocator.model.allocated)
    cuda.max_memory_allocated = allocator.counters("max_memory_allocated", lambda: allocator.model.peak)
    cuda.memory_reserved = allocator.counters("memory_reserved", allocator.model.reserved)
    cuda.max_memory_reserved = allocator.counters("max_memory_reserved", allocator.model.reserved)  # it never shrinks by itself
    cuda.reset_peak_memory_stats = allocator.counters("reset_peak_memory_stats", allocator.restart_peak)
    cuda.memory_stats = allocator.counters("memory_stats", lambda: {"requested_bytes.all.current": allocator.model.requested()})
    cuda.empty_cache = allocator.model.empty_cache
    cuda.memory._record_memory_history = history
    cuda.memory._snapshot = lambda: {"segments": [], "device_traces": [[]], "live": allocator.live_bytes()}
    cuda.get_device_name = lambda device=None: "a pretended GPU"

    def default(device: object) -> None:
        allocator.asked.append(f"default device {device}")

    cuda_default: Any = torch
    cuda_default.set_default_device = default
    cuda_default.Generator = Generator
    return allocator
