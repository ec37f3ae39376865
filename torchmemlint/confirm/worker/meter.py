"""Counts the bytes of live tensors exactly.

On the CPU a dispatch mode sees every storage that an operator returns and a weak reference shows when it is freed: the
live figure is
exact, the peak leaves out the scratch memory inside a kernel. On CUDA the caching allocator's own counters are read. Never
RSS (freed pages are reused, it does not move) and never the reserved figure (it is the allocator's cache).
"""

from __future__ import annotations

import pickle
import weakref
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Meter(Protocol):
    """Live and peak bytes of tensors on one device; a context manager around everything that is to be counted.

    Whoever measures asks a meter and no device. ``rounds``: the device's allocator gives blocks that are larger than what was asked for,
    and reports both.
    """

    rounds: bool = False

    def __enter__(self) -> Any: ...

    def __exit__(self, *exc: Any) -> Any:
        return None

    def live_bytes(self) -> int:
        """Bytes of tensor storages alive now."""

    def peak_bytes(self) -> int:
        """Highest ``live_bytes`` since the last ``reset_peak``."""

    def reset_peak(self) -> None:
        """Start a new peak from what is alive now."""

    def allocated_bytes(self) -> int:
        """Bytes of all that was ever allocated, freed or not; 0 where the device does not report it."""
        return 0

    def requested_bytes(self) -> int:
        """Live bytes as they were asked for, before blocks are rounded up."""
        return self.live_bytes()

    def fragmented_bytes(self) -> int:
        """Bytes that the allocator holds and no tensor uses."""
        return 0

    def forget(self, tensor: torch.Tensor) -> None:
        """Stop counting a tensor that an experiment says was moved away; a device of its own knows by itself."""
        return None


def _callbacks_fire() -> bool:
    """Whether a weak reference to a storage calls back when the storage is freed (torch 2.2 and later; 2.0 and 2.1 never
    do)."""
    fired: list[object] = []
    tensor = torch.empty(1)
    reference = weakref.ref(tensor.untyped_storage(), fired.append)
    del tensor
    return bool(fired) and reference() is None


class StorageMeter(TorchDispatchMode, Meter):
    """Exact live bytes of every dense storage that an operator returned while the mode was on.

    It cannot see: work done in other threads (dispatch modes are thread-local), sparse and nested tensors, the scratch memory
    of a kernel. Storages on a device other than ``device_type`` are not counted.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device_type = device_type
        self._sizes: dict[int, int] = {}
        self._references: dict[int, Any] = {}
        self._poll = not _callbacks_fire()
        self._live = 0
        self._peak = 0
        self._allocated = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: else torch 2.6 and later import ``torch._dynamo`` (more than a second) to guard a mode that is never
        compiled."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self._see(result)
        elif result is not None:
            for item in tree_iter(result):
                if isinstance(item, torch.Tensor):
                    self._see(item)
        if self._poll:
            self._drop_expired()
        if self._live > self._peak:
            self._peak = self._live
        return result

    def _see(self, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.strided or tensor.device.type != self._device_type:
            return
        try:
            storage = tensor.untyped_storage()
            size = storage.nbytes()
        except (RuntimeError, NotImplementedError):  # nested and other storage-less tensors
            return
        key = int(storage._cdata)
        known = self._sizes.get(key)
        if known is None:
            self._references[key] = self._watch(storage, key)
        if known != size:  # new, or resized in place
            self._live += size - (known or 0)
            self._allocated += max(0, size - (known or 0))
            self._sizes[key] = size

    def _watch(self, storage: Any, key: int) -> Any:
        if self._poll:
            from torch.multiprocessing.reductions import StorageWeakRef

            return StorageWeakRef(storage)
        # addresses are reused, so the entry goes in the very callback that reports the freeing
        return weakref.ref(storage, lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self._live -= self._sizes.pop(key, 0)
        self._references.pop(key, None)

    def _drop_expired(self) -> None:
        for key in [key for key, reference in self._references.items() if reference.expired()]:
            self._forget(key)

    def forget(self, tensor: torch.Tensor) -> None:
        """Stop counting ``tensor``'s storage: it was moved off the device that an experiment pretends."""
        self._forget(int(tensor.untyped_storage()._cdata))

    def live_bytes(self) -> int:
        """Bytes alive now, of the storages seen since the mode was entered."""
        if self._poll:
            self._drop_expired()
        return self._live

    def allocated_bytes(self) -> int:
        """Bytes of all storages that were seen, freed or not."""
        return self._allocated

    def peak_bytes(self) -> int:
        """The highest live figure at the end of any operator since ``reset_peak``."""
        return max(self._peak, self.live_bytes())

    def reset_peak(self) -> None:
        """Start a new peak from what is alive now."""
        self._peak = self.live_bytes()


class AllocatorMeter(Meter):
    """The counters of the CUDA caching allocator (also ROCm): each block is rounded up to 512 bytes."""

    rounds = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = self._requested_start = 0

    def __enter__(self) -> AllocatorMeter:
        torch.cuda.init()  # before it there are no counters to reset
        self._start = torch.cuda.memory_allocated(self._device)
        self._requested_start = self._requested()
        torch.cuda.reset_peak_memory_stats(self._device)
        return self

    def live_bytes(self) -> int:
        """Bytes allocated now, above those that were when the meter was entered."""
        return torch.cuda.memory_allocated(self._device) - self._start

    def peak_bytes(self) -> int:
        """Highest allocated bytes since ``reset_peak``, above those of the entry."""
        return torch.cuda.max_memory_allocated(self._device) - self._start

    def reset_peak(self) -> None:
        """Start a new peak from what is allocated now."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def requested_bytes(self) -> int:
        """Bytes asked for, before rounding, above those of the entry: comparable with the CPU figures."""
        return self._requested() - self._requested_start

    def allocated_bytes(self) -> int:
        """Bytes of all blocks that were ever given out."""
        return int(torch.cuda.memory_stats(self._device).get("allocated_bytes.all.allocated", 0))

    def _requested(self) -> int:
        return int(torch.cuda.memory_stats(self._device).get("requested_bytes.all.current", 0))

    def fragmented_bytes(self) -> int:
        """Bytes that the allocator holds and no tensor uses: counted apart, never part of a claim."""
        return torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)


SNAPSHOT_EVENTS = 20_000
"""Allocations and frees whose history a memory snapshot has; the stacks of some kilobytes each are its size."""


def start_history() -> None:
    """From now on the CUDA allocator keeps the Python stack of each allocation, for a snapshot. Slow: never while figures are
    taken."""
    torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=SNAPSHOT_EVENTS)


def end_history() -> bytes:
    """What PyTorch's memory viewer opens: a pickle of what is allocated now, and of how it came to that."""
    try:
        return pickle.dumps(torch.cuda.memory._snapshot())
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


class MpsMeter(Meter):
    """Apple's allocator reports only what is live now: the peak is the highest figure at a sample."""

    def __init__(self) -> None:
        self._start = self._peak = 0

    def __enter__(self) -> MpsMeter:
        self._start = torch.mps.current_allocated_memory()
        self._peak = 0
        return self

    def live_bytes(self) -> int:
        """Bytes allocated now, above those that were when the meter was entered."""
        live = torch.mps.current_allocated_memory() - self._start
        self._peak = max(self._peak, live)
        return live

    def peak_bytes(self) -> int:
        """Highest sampled figure since ``reset_peak``."""
        self.live_bytes()
        return self._peak

    def reset_peak(self) -> None:
        """Start a new peak from what is allocated now."""
        self._peak = 0
        self.live_bytes()


def meter_for(device: str) -> Meter:
    """The meter of ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``."""
    kind = torch.device(device)
    if kind.type == "cuda":
        return AllocatorMeter(kind)
    return MpsMeter() if kind.type == "mps" else StorageMeter(kind.type)
