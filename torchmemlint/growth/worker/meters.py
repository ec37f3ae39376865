"""One number a step: the bytes in use now, read at the head of an iteration.

On CUDA it is the caching allocator's own counter, by the meter that ``confirm`` has. On a CPU with glibc it is ``mallinfo2``: what malloc
has given out, tensors and the C++ objects of autograd alike; Python's small objects come from elsewhere and do not count. Where neither
is to be had (other allocators, other systems), all tensors that Python's collector knows are added up, which is slow: ``scans``.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol


class StepMeter(Protocol):
    """``live`` gives bytes; ``device`` is what they lie on; ``scans``: a reading looks at every object."""

    device: str
    scans: bool

    def live(self) -> int:
        """Bytes in use now."""
        ...


class _Info(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later; ``uordblks`` are bytes in use, ``hblkhd`` those in blocks mapped on their own."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    )


class MallocMeter:
    """glibc's malloc."""

    device = "cpu"
    scans = False

    def __init__(self, function: Any) -> None:
        self._read = function
        self._read.restype = _Info

    def live(self) -> int:
        """Bytes in use now."""
        info = self._read()
        return int(info.uordblks + info.hblkhd)


class ScanMeter:
    """The storages of all tensors that Python's collector knows. What C++ alone holds is not among them."""

    device = "cpu"
    scans = True

    def live(self) -> int:
        """Bytes in use now."""
        from torchmemlint.growth.worker.heap import storage_of, tensors_and_nodes

        return sum(dict(filter(None, map(storage_of, tensors_and_nodes(gc.get_objects())[0]))).values())


class AcceleratorMeter:
    """The bytes of all devices of one kind that the program uses, by ``confirm``'s meters, which are only read here."""

    scans = False

    def __init__(self, kind: str, meters: list[Any]) -> None:
        self.device = kind
        self._meters = meters

    def live(self) -> int:
        """Bytes in use now."""
        return sum(meter.live_bytes() for meter in self._meters)


class Collected:
    """The bytes that Python's collector has freed so far. Added to what is in use, they show a growth of which it frees the parts now and
    then. A reading that takes long (``share`` of the time since the start) is left out."""

    def __init__(self, live: Callable[[], int], share: float) -> None:
        self._live, self._share = live, share
        self._before: int | None = None
        self._then: Callable[[], None] | None = None
        self._started = time.perf_counter()
        self._spent = 0.0
        self.bytes = 0

    def start(self, then: Callable[[], None]) -> None:
        """Watch the collector from now on; ``then`` is called whenever it has run."""
        self._then = then
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Watch it no longer."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: object) -> None:
        begin = time.perf_counter()
        if phase == "start":
            late = self._spent > self._share * (begin - self._started) + 0.05
            self._before = None if late else self._live()
        elif self._before is not None:
            self.bytes += max(0, self._before - self._live())
            self._before = None
        if phase == "stop" and self._then is not None:
            self._then()
        self._spent += time.perf_counter() - begin


def host_meter() -> StepMeter:
    """The cheapest meter of the host that works here."""
    try:
        meter = MallocMeter(ctypes.CDLL(None).mallinfo2)
        before = meter.live()
        block = bytearray(1 << 20)
        if meter.live() - before >= len(block):  # else malloc is another allocator's (jemalloc, tcmalloc)
            return meter
    except (AttributeError, OSError, TypeError):  # another libc, another system
        pass
    return ScanMeter()


def accelerator_meter() -> StepMeter | None:
    """A meter of the accelerator that the program has begun to use, None while it has not."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if torch.cuda.is_initialized() and torch.cuda.is_available():  # the second asks the driver
        from torchmemlint.confirm.worker.meter import AllocatorMeter

        devices = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
        return AcceleratorMeter("cuda", [AllocatorMeter(device) for device in devices])
    mps = getattr(torch.backends, "mps", None)
    if mps is not None and mps.is_available() and torch.mps.current_allocated_memory():
        from torchmemlint.confirm.worker.meter import MpsMeter

        return AcceleratorMeter("mps", [MpsMeter()])
    return None
