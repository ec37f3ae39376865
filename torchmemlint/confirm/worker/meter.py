"""Counts the bytes of live tensors exactly, and the nodes and bytes that an autograd graph holds.

On the CPU a dispatch mode sees every storage that an operator returns and a weak reference shows when it is freed: the
live figure is
exact, the peak leaves out the scratch memory inside a kernel. On CUDA the caching allocator's own counters are read. Never
RSS (freed pages are reused, it does not move) and never the reserved figure (it is the allocator's cache).
"""

from __future__ import annotations

import gc
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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

    def __exit__(self, *exc: Any) -> Any: ...

    def live_bytes(self) -> int:
        """Bytes of tensor storages alive now."""
        ...

    def peak_bytes(self) -> int:
        """Highest ``live_bytes`` since the last ``reset_peak``."""
        ...

    def reset_peak(self) -> None:
        """Start a new peak from what is alive now."""
        ...

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

    def __exit__(self, *exc: object) -> None:
        return None

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

    def __exit__(self, *exc: object) -> None:
        return None

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


@dataclass(frozen=True, slots=True)
class GraphNodes:
    """What is attached to a value: autograd nodes, bytes of saved tensors (leaves excluded), saved slots and how many a
    backward freed."""

    nodes: int = 0
    retained_bytes: int = 0
    slots: int = 0
    freed_slots: int = 0
    tensors: int = 0
    truncated: bool = False


def tensors_in(value: object, limit: int = 20_000) -> Iterator[torch.Tensor]:
    """Every tensor that ``value`` holds: itself, elements of containers, attributes of plain objects, and the locals of the frames
    that an exception's traceback keeps; each object once.

    Modules and optimizers are not entered: their parameters are alive anyway. Nor are frames that are still running: what they
    hold, no exception keeps.
    """
    seen: set[int] = set()
    stack: list[object] = [value]
    while stack and len(seen) < limit:
        item = stack.pop()
        if item is None or isinstance(item, (str, bytes, int, float, type)) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)) or type(item).__name__ == "deque":
            stack.extend(item)  # type: ignore[arg-type]
        elif isinstance(item, (torch.nn.Module, torch.optim.Optimizer)):
            continue
        else:
            if isinstance(item, BaseException):
                stack.extend((item.__cause__, item.__context__))
                stack.extend(_left_frames(item.__traceback__))
            try:
                attributes = object.__getattribute__(item, "__dict__")
            except AttributeError:
                continue
            if type(attributes) is dict and not callable(item):
                stack.extend(attributes.values())


def _left_frames(traceback: types.TracebackType | None) -> Iterator[dict[str, Any]]:
    """The locals of each frame of a traceback that has ended."""
    running: set[types.FrameType] = set()
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        running.add(frame)
        frame = frame.f_back
    while traceback is not None:
        if traceback.tb_frame not in running:
            yield dict(traceback.tb_frame.f_locals)
        traceback = traceback.tb_next


def _saved_names(kind: type, memory: dict[type, tuple[str, ...]]) -> tuple[str, ...]:
    names = memory.get(kind)
    if names is None:
        names = tuple(name for name in dir(kind) if name.startswith("_saved_"))
        memory[kind] = names
    return names


def walk(value: object, limit: int = 200_000, owned: Iterable[int] = ()) -> GraphNodes:
    """Follow ``grad_fn`` from every tensor in ``value``.

    A slot that raises has been freed by a backward. Bytes count each storage once and leave out leaves (parameters and
    inputs that
    require grad) and the storages ``owned``, which modules keep anyway; inputs without grad that a loader owns too are counted, so the
    figure is an upper bound.
    """
    roots = []
    count = 0
    for tensor in tensors_in(value):
        count += 1
        if tensor.grad_fn is not None:
            roots.append(tensor.grad_fn)
    # the nodes stay referenced during the walk: Python's wrappers are created again at each access and ids would repeat
    seen: dict[object, None] = {}
    stack: list[Any] = roots
    storages: dict[int, int] = {}
    leaves: set[int] = set(owned)
    names: dict[type, tuple[str, ...]] = {}
    slots = freed = 0
    while stack and len(seen) < limit:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        if type(node).__name__ == "AccumulateGrad":
            leaves.add(node.variable.untyped_storage()._cdata)
            continue
        for saved in _saved_values(node, _saved_names(type(node), names)):
            slots += 1
            if saved is None:
                freed += 1
                continue
            try:
                storage = saved.untyped_storage()
                storages[storage._cdata] = storage.nbytes()
            except (RuntimeError, NotImplementedError):
                continue
        stack.extend(parent for parent, _ in node.next_functions if parent is not None)
    held = sum(size for key, size in storages.items() if key not in leaves)
    interior = sum(type(node).__name__ != "AccumulateGrad" for node in seen)
    return GraphNodes(interior, held, slots, freed, count, bool(stack))


def _saved_values(node: Any, names: Iterable[str]) -> Iterator[torch.Tensor | None]:
    """The tensors in a node's saved slots; None for a slot that was freed."""
    for name in names:
        try:
            saved = getattr(node, name)
        except RuntimeError:  # "... after they have already been freed"
            yield None
            continue
        except AttributeError:
            continue
        if isinstance(saved, torch.Tensor):
            yield saved
        elif isinstance(saved, (tuple, list)):
            yield from (item for item in saved if isinstance(item, torch.Tensor))
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        try:
            yield from (item for item in node.saved_tensors if isinstance(item, torch.Tensor))
        except RuntimeError:
            yield None
        yield from (item for item in vars(node).values() if isinstance(item, torch.Tensor))


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the memory: live bytes before and after the cyclic collector ran."""

    live_bytes: int
    collected_bytes: int


def sample(live: Callable[[], int]) -> Sample:
    """Look before and after ``gc.collect()``: the difference is what waits for the cyclic collector."""
    before = live()
    gc.collect()
    return Sample(before, live())
