"""A CUDA allocator of this machine's memory: what ``torch.cuda`` says comes from a model of the caching allocator that is fed with the
tensors of the CPU. It shows that the path of a CUDA run holds together where there is no GPU. ``machine`` makes an interpreter all of whose processes have
such a GPU.

The model, as in c10/cuda/CUDACachingAllocator.cpp: a block is a multiple of 512 bytes; blocks up to 1 MiB are cut from segments of 2 MiB,
those up to 10 MiB from segments of 20 MiB, larger ones get a segment of their own, a multiple of 2 MiB. What is freed stays cached, and
merges with its free neighbours; only whole free segments go back.
"""

from __future__ import annotations

import shutil
import sys
import venv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

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
        self.peak = self.used = self.wanted = 0

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
        self.used += size
        self.wanted += asked
        self.peak = max(self.peak, self.used)

    def free(self, key: int) -> None:
        """The storage is gone; its block stays cached."""
        segment, start, size, asked = self.blocks.pop(key)
        segment.give(start, size)
        self.used -= size
        self.wanted -= asked

    def allocated(self) -> int:
        """Bytes in blocks of tensors."""
        return self.used

    def requested(self) -> int:
        """Bytes that were asked for."""
        return self.wanted

    def reserved(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def empty_cache(self) -> None:
        """Give whole free segments back."""
        self.segments = [segment for segment in self.segments if segment.free != [(0, segment.size)]]


class Sizes(dict[int, int]):
    """The bytes of storages by their addresses: what is noted here is allocated."""

    def __init__(self, model: CachingAllocator) -> None:
        super().__init__()
        self._model = model

    def __setitem__(self, key: int, size: int) -> None:
        if key in self:
            self._model.free(key)
        super().__setitem__(key, size)
        self._model.allocate(key, size)


class Allocator(StorageMeter):
    """Feeds the model with the storages that it sees, and says what was asked of it."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.model = CachingAllocator()
        self._sizes = Sizes(self.model)
        self.asked: list[str] = []
        self.ready = False

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


class OnHost(TorchFunctionMode):
    """What a function of torch is asked to do on a CUDA device, it does with the memory of this machine."""

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.device:  # which names one, and allocates nothing there
            return func(*args, **(kwargs or {}))
        return func(*map(on_host, args), **{name: on_host(value) for name, value in (kwargs or {}).items()})


def on_host(value: Any) -> Any:
    """The CPU for a CUDA device, as an object or by its name; anything else as it is."""
    if isinstance(value, torch.device | str) and str(value).partition(":")[0] == "cuda":
        return torch.device("cpu")
    return value


def pretend_for_all() -> None:
    """In this process torch finds one GPU, and runs there what is asked for it."""
    pretend()
    OnHost().__enter__()  # type: ignore[no-untyped-call]
    cuda: Any = torch.cuda
    cuda.is_available = cuda.is_initialized = lambda: True
    cuda.device_count, cuda.current_device = lambda: 1, lambda: 0
    cuda.get_device_properties = lambda device=None: SimpleNamespace(total_memory=16 << 30)


START = """
import importlib.abc, importlib.util, sys

class Finder(importlib.abc.MetaPathFinder):
    '''Makes the GPU as soon as torch is loaded.'''

    asked = False

    def find_spec(self, name, path, target=None):
        if name != "torch" or self.asked:
            return None
        self.asked = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asked = False
        if spec is not None:
            load = spec.loader.exec_module

            def loaded(module):
                load(module)
                import pretend_cuda
                pretend_cuda.pretend_for_all()

            spec.loader.exec_module = loaded
        return spec

sys.meta_path.insert(0, Finder())
"""


def machine(folder: Path) -> Path:
    """An interpreter with the packages of this one. Each process that it starts, isolated or not, has a GPU: Python imports the
    ``sitecustomize`` of an environment in all of them."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    places = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "these.pth").write_text("".join(f"import site; site.addsitedir({place!r})\n" for place in places))
    (packages / "sitecustomize.py").write_text(START)
    shutil.copy(__file__, packages)
    return folder / "bin" / "python"
