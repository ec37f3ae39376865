"""``torchmemlint.report_memory()``: where a running program's memory stands, as one table.

torch is imported inside the call only; linting never gets here.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TextIO

from torchmemlint.oom.sizes import format_size


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of one device in bytes; None where the device's allocator does not say.

    allocated           live tensors (CPU: storages of tensors that Python's collector sees, so a lower bound: what autograd
                        saved is not among them)
    reserved            what the process holds for tensors, idle cache included (CPU: resident memory of the whole process)
    peak                highest ``allocated`` since the start or ``reset_peak_memory_stats`` (CPU: highest resident memory)
    largest_free_block  longest idle piece of the cache: a larger request must go to the driver
    fragmentation       share of ``reserved`` that is idle in segments which also hold live tensors: it can neither serve a
                        larger request nor be given back
    free, total         of the device, as the driver sees it (MPS: total is the recommended maximum)
    """

    device: str
    allocated: int | None
    reserved: int | None
    peak: int | None
    largest_free_block: int | None
    fragmentation: float | None
    free: int | None
    total: int | None


def report_memory(file: TextIO | None = None) -> tuple[DeviceMemory, ...]:
    """Print a table of the memory of every CUDA (or ROCm) device in use, of the Apple GPU and of the host; return its rows.

    ``file`` is standard output by default. Creates no CUDA context: devices are left out until the program has used them.
    Raises ImportError without torch.
    """
    torch = import_module("torch")
    rows = (*_cuda(torch), *_mps(torch), _cpu(torch))
    print(as_table(rows), file=file if file is not None else sys.stdout)
    return rows


def as_table(rows: Sequence[DeviceMemory]) -> str:
    """The rows as aligned text."""
    head = ("device", "allocated", "reserved", "peak", "largest free block", "fragmentation", "free", "total")
    cells = [
        (
            row.device,
            *(_size(size) for size in (row.allocated, row.reserved, row.peak, row.largest_free_block)),
            "-" if row.fragmentation is None else f"{100 * row.fragmentation:.1f} %",
            _size(row.free),
            _size(row.total),
        )
        for row in rows
    ]
    widths = [max(len(row[column]) for row in (head, *cells)) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *cells)
    )


def _size(size: int | None) -> str:
    return "-" if size is None else format_size(size)


def _cuda(torch: ModuleType) -> Iterator[DeviceMemory]:
    cuda = torch.cuda
    if not cuda.is_available() or not cuda.is_initialized():
        return
    name = "hip" if getattr(torch.version, "hip", None) else "cuda"
    for number in range(cuda.device_count()):
        reserved = cuda.memory_reserved(number)
        if not reserved:  # this process has nothing there
            continue
        stats = cuda.memory_stats(number)
        free, total = cuda.mem_get_info(number)
        split = stats.get("inactive_split_bytes.all.current")
        yield DeviceMemory(
            device=f"{name}:{number}",
            allocated=cuda.memory_allocated(number),
            reserved=reserved,
            peak=cuda.max_memory_allocated(number),
            largest_free_block=_largest_idle_block(torch, number),
            fragmentation=None if split is None else split / reserved,
            free=free,
            total=total,
        )


def _largest_idle_block(torch: ModuleType, device: int) -> int | None:
    try:
        segments = torch.cuda.memory_snapshot()
    except RuntimeError:  # the cudaMallocAsync backend keeps no blocks
        return None
    idle = (
        block["size"]
        for segment in segments
        if segment.get("device") == device
        for block in segment["blocks"]
        if block["state"] == "inactive"
    )
    return max(idle, default=0)


def _mps(torch: ModuleType) -> Iterator[DeviceMemory]:
    backend = getattr(torch.backends, "mps", None)
    if backend is None or not backend.is_available():
        return
    mps = torch.mps
    recommended = getattr(mps, "recommended_max_memory", None)  # from torch 2.5
    yield DeviceMemory(
        device="mps",
        allocated=mps.current_allocated_memory(),
        reserved=mps.driver_allocated_memory(),
        peak=None,
        largest_free_block=None,
        fragmentation=None,
        free=None,
        total=recommended() if recommended is not None else None,
    )


def _cpu(torch: ModuleType) -> DeviceMemory:
    resident, peak = _resident()
    free, total = _host()
    return DeviceMemory("cpu", _cpu_storages(torch), resident, peak, None, None, free, total)


def _cpu_storages(torch: ModuleType) -> int:
    storages: dict[int, int] = {}
    for thing in gc.get_objects():
        # type(), not isinstance(): lazy proxies import or compute when asked for their class.
        if not issubclass(type(thing), torch.Tensor):
            continue
        try:
            if thing.device.type == "cpu":
                storage = thing.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
        except (RuntimeError, NotImplementedError, AttributeError):  # sparse, meta and wrapper tensors have no storage
            continue
    storages.pop(0, None)
    return sum(storages.values())


def _resident() -> tuple[int | None, int | None]:
    """(now, peak) resident bytes of this process; None where the system does not say without further packages."""
    now: int | None = None
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        now = int(fields["VmRSS"].split()[0]) * 1024
        return now, int(fields["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        resource = import_module("resource")
    except ImportError:  # Windows
        return now, None
    peak = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return now, peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, the others KiB


def _host() -> tuple[int | None, int | None]:
    """(available, total) bytes of the machine; a container's limit is not looked at."""
    try:
        with open("/proc/meminfo", encoding="ascii", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        return int(fields["MemAvailable"].split()[0]) * 1024, int(fields["MemTotal"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None, None
