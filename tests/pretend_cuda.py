"""A CUDA allocator of this machine's memory: what ``torch.cuda`` says is read off the tensors of the CPU, rounded up to 512 bytes as
CUDA does. It shows that the path of a CUDA run holds together where there is no GPU; its figures are those of a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchmemlint.confirm.worker.meter import StorageMeter

BLOCK = 512


class Allocator(StorageMeter):
    """Counts as the caching allocator does, and says what was asked of it."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.asked: list[str] = []
        self.ready = False

    def rounded(self) -> int:
        """Live bytes, each block rounded up."""
        return sum(-(-size // BLOCK) * BLOCK for size in self._sizes.values())

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
    cuda.memory_allocated = allocator.counters("memory_allocated", allocator.rounded)
    cuda.max_memory_allocated = allocator.counters("max_memory_allocated", allocator.peak_bytes)
    cuda.memory_reserved = allocator.counters("memory_reserved", lambda: allocator.rounded() + (2 << 20))
    cuda.reset_peak_memory_stats = allocator.counters("reset_peak_memory_stats", allocator.reset_peak)
    cuda.memory_stats = allocator.counters("memory_stats", lambda: {"requested_bytes.all.current": allocator.live_bytes()})
    cuda.memory._record_memory_history = history
    cuda.memory._snapshot = lambda: {"segments": [], "device_traces": [[]], "live": allocator.live_bytes()}
    cuda.get_device_name = lambda device=None: "a pretended GPU"

    def default(device: object) -> None:
        allocator.asked.append(f"default device {device}")

    cuda_default: Any = torch
    cuda_default.set_default_device = default
    cuda_default.Generator = Generator
    return allocator
