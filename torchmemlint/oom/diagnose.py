"""From the figures of a message to what ran out, and the numbers that show it.

The order of the questions is fixed; the first that is answered with yes decides. T total, F free, R reserved = A allocated
+ X idle cache, Q request, L limit of this process:

 1. a limit is printed and R + Q reaches 98 % of it         → memory-cap
 2. Q > T                                                    → oversized-request
 3. others hold more than half of T                          → other-processes
 4. F covers what the driver was asked for, and A < T/2 or F > T/20
      R + Q within 0.5 % of a multiple of 5 % of T           → memory-cap (not printed)
      else                                                   → unclear
 5. X ≥ Q and X > R/10                                       → fragmentation
 6. others hold more than a quarter of T                     → other-processes
 7. X > R/4                                                  → partly-fragmentation
 8. F is not given, and R + Q is less than 90 % of T         → unclear
 9. else                                                     → genuine

A cache that is nine tenths full has idle ends between its tensors, as every cache has: a program that got all of them would run out
a step later.

Before it raises, the caching allocator has given every wholly unused segment back to the driver, so X is what lies between
live tensors. Private pools (CUDA graphs) are printed inside A, and X is printed without them
(c10/cuda/CUDACachingAllocator.cpp), so live tensors are A less the pools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from torchmemlint.oom.messages import Family, Message

MIB = 1024**2
GIB = 1024**3
TIB = 1024**4


class Kind(Enum):
    """What ran out, and why."""

    GENUINE = "genuine"
    FRAGMENTATION = "fragmentation"
    PARTLY_FRAGMENTATION = "partly-fragmentation"
    OTHER_PROCESSES = "other-processes"
    MEMORY_CAP = "memory-cap"
    OVERSIZED_REQUEST = "oversized-request"
    OUTSIDE_CACHE = "outside-cache"
    ADDRESS_SPACE = "address-space"
    HOST_MEMORY = "host-memory"
    UNCLEAR = "unclear"


EXPLAINED_BY_CODE = frozenset(
    {Kind.GENUINE, Kind.FRAGMENTATION, Kind.PARTLY_FRAGMENTATION, Kind.HOST_MEMORY, Kind.OVERSIZED_REQUEST, Kind.OUTSIDE_CACHE}
)
"""Kinds for which a mistake in the program can be the reason; for the others a finding of the linter explains nothing."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``because`` are the sentences, with numbers, that lead to ``kind``; ``headline`` says it in one."""

    kind: Kind
    headline: str
    because: tuple[str, ...]


def format_size(size: int) -> str:
    """``size`` bytes with a binary unit and two decimals, as PyTorch prints them: ``512.00 MiB``."""
    for unit, scale in (("EiB", 1024**6), ("PiB", 1024**5), ("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", 1024)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} bytes"


def diagnose(message: Message) -> Diagnosis:
    """What a message says about the cause of the failure. Total: every message gets a kind, if only ``unclear``."""
    named = _BY_FAMILY.get(message.family)
    if named is not None:
        return named(message)
    if message.family is Family.MPS:
        return _mps(message)
    return _device(message)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "?"


def others(message: Message) -> tuple[int, int] | None:
    """Device bytes that are not this process's: (named by pid, held by nobody the message names); None if unknown.

    Without a line for this process, the ``Process N`` entry between R and R + 2 GiB is taken for it: inside a container the
    own pid is not the one that the driver reports. What nobody is named for includes the CUDA context (0.3 to 0.6 GiB), the
    desktop and processes in other containers.
    """
    if message.total is None or message.free is None:
        return None
    own, rest, reserved = message.this_process, list(message.processes), message.reserved
    if own is None and reserved is not None:
        mine = [entry for entry in rest if reserved <= entry[1] <= reserved + 2 * GIB]
        if mine:
            closest = min(mine, key=lambda entry: entry[1])
            rest.remove(closest)
            own = closest[1]
    named = sum(size for _, size in rest)
    held = own if own is not None else reserved
    # Where the message does not say what this process holds, the rest may be its own cache.
    unnamed = max(0, message.total - message.free - named - held) if held is not None else 0
    return named, unnamed


def driver_request(requested: int) -> int:
    """What the caching allocator asks the driver for: 2 MiB, 20 MiB, or the request rounded up to 2 MiB."""
    if requested <= MIB:
        return 2 * MIB
    if requested < 10 * MIB:
        return 20 * MIB
    return -(-requested // (2 * MIB)) * 2 * MIB


def _device(m: Message) -> Diagnosis:
    requested, total, free = m.requested, m.total, m.free
    allocated, idle = m.allocated, m.unallocated
    reserved = m.reserved if m.reserved is not None else allocated
    if requested is None:
        return Diagnosis(Kind.UNCLEAR, "Device memory ran out; the message gives no figures.", ())
    asked = f"asked for {format_size(requested)}"

    if m.allowed is not None and reserved is not None and reserved + requested >= 0.98 * m.allowed:
        part = f", {_percent(m.allowed, total)} of the device" if total else ""
        return Diagnosis(
            Kind.MEMORY_CAP,
            f"A limit set for this process is used up: {format_size(m.allowed)}{part}.",
            (
                f"{format_size(reserved)} held + {format_size(requested)} requested reach the {format_size(m.allowed)} allowed",
                *((f"the device itself still had {format_size(free)} free",) if free else ()),
            ),
        )
    if total is not None and requested > total:
        return Diagnosis(
            Kind.OVERSIZED_REQUEST,
            f"A single allocation of {format_size(requested)} was requested on a device with {format_size(total)}.",
            (_elements(requested), "no setting of the allocator and no smaller model makes room for it: look at the shapes"),
        )
    if total is None or reserved is None or allocated is None:
        known = [asked]
        if total is not None:
            known.append(f"the device has {format_size(total)}")
        if free is not None:
            known.append(f"{format_size(free)} were free")
        return Diagnosis(Kind.UNCLEAR, "The message is cut off before the figures that show the cause.", (", ".join(known),))

    foreign = others(m)
    elsewhere = sum(foreign) if foreign else 0
    if elsewhere > total / 2:
        return _other_processes(m, total, reserved, foreign or (0, 0))
    if free is not None and free >= driver_request(requested) and (allocated < total / 2 or free > total / 20):
        share = 100 * (reserved + requested) / total
        nearest = 5 * round(share / 5)
        if 10 <= nearest <= 95 and abs(share - nearest) <= 0.5:
            return Diagnosis(
                Kind.MEMORY_CAP,
                f"The driver had room; it looks as if something limits this process to {nearest} % of the device.",
                (
                    f"{asked}, {format_size(free)} were free",
                    f"held and requested together are {share:.1f} % of {format_size(total)}: a round share",
                ),
            )
        return Diagnosis(
            Kind.UNCLEAR,
            "The driver reported more free memory than was asked for, and still refused.",
            (
                f"{asked}, {format_size(free)} were free of {format_size(total)}",
                f"this process held {format_size(reserved)}",
                "seen with virtual GPUs, MIG slices, WSL, a limit on pinned memory, and a neighbour that freed in between",
            ),
        )
    if idle is not None and idle >= requested and idle > reserved / 10:
        return Diagnosis(
            Kind.FRAGMENTATION,
            f"The cache holds {format_size(idle)} that no tensor uses, yet no piece of it is {format_size(requested)} long.",
            (
                f"{format_size(allocated)} allocated of {format_size(reserved)} reserved: {_percent(idle, reserved)} idle",
                f"{asked}, less than the idle memory",
            ),
        )
    if elsewhere > total / 4:
        return _other_processes(m, total, reserved, foreign or (0, 0))
    live = allocated - (m.private_pools or 0)
    shares = (
        f"live tensors {format_size(live)} of {format_size(total)} ({_percent(live, total)})",
        *((f"{format_size(m.private_pools)} more in private pools (CUDA graphs)",) if m.private_pools else ()),
        *(() if idle is None else (f"{_percent(allocated, reserved)} of what PyTorch reserved is allocated",)),
        *(
            ()
            if idle is None
            else (
                f"idle in the cache {format_size(idle)}, {'less than' if idle < requested else 'in pieces smaller than'} the "
                f"{format_size(requested)} asked for",
            )
        ),
        *((f"free on the device {format_size(free)}",) if free is not None else ()),
        *((f"held outside this process {format_size(elsewhere)}",) if elsewhere > total / 20 else ()),
    )
    if idle is not None and idle > reserved / 4:
        return Diagnosis(
            Kind.PARTLY_FRAGMENTATION,
            f"Too much is live; in addition, {_percent(idle, reserved)} of the cache is idle between tensors.",
            shares,
        )
    if free is None and reserved + requested < 0.9 * total:
        headline = "According to its own figures, the device had room; the message does not say how much was free."
        return Diagnosis(
            Kind.UNCLEAR, headline, (*shares, "one block may be limited to less than the device has, 4 GiB on some")
        )
    if idle is None and live < 0.8 * total:
        cut_off = "The message is cut off before the figures that show the cause."
        pooled = "The message does not say what the allocator's pool holds idle."
        return Diagnosis(Kind.UNCLEAR, pooled if m.family is Family.ASYNC else cut_off, shares)
    if live >= 0.8 * total:
        headline = f"The device is full of live tensors: {format_size(live)} of {format_size(total)} ({_percent(live, total)})."
    else:
        headline = f"{format_size(live)} of live tensors and {format_size(requested)} more do not fit into {format_size(total)}"
        headline += " together with what else is there." if elsewhere else "."
    return Diagnosis(Kind.GENUINE, headline, shares)


def _other_processes(m: Message, total: int, reserved: int, foreign: tuple[int, int]) -> Diagnosis:
    named, unnamed = foreign
    own = m.this_process if m.this_process is not None else reserved
    pids = [pid for pid, size in m.processes if size != own]
    because = [f"this process holds {format_size(own)} of {format_size(total)} ({_percent(own, total)})"]
    if named:
        because.append(f"{format_size(named)} belong to process {', '.join(str(pid) for pid in pids[:8]) or '?'}")
    if unnamed > total / 20:
        because.append(
            f"{format_size(unnamed)} belong to processes that the message does not name: other containers, the desktop, CUDA contexts"
        )
    return Diagnosis(
        Kind.OTHER_PROCESSES,
        f"Others hold {format_size(named + unnamed)} of this device's {format_size(total)}.",
        tuple(because),
    )


def _elements(requested: int) -> str:
    count = requested // 4
    return f"{format_size(requested)} are {count:,} float32 values, a square of {round(count**0.5):,} × {round(count**0.5):,}"


def _mps(m: Message) -> Diagnosis:
    if m.requested is None or m.allowed is None or m.allocated is None:
        return Diagnosis(Kind.UNCLEAR, "Memory of the Apple GPU ran out; the message is cut off before its figures.", ())
    other = m.other_allocations or 0
    figures = (
        f"PyTorch {format_size(m.allocated)} + other allocations {format_size(other)} + {format_size(m.requested)} requested "
        f"exceed the {format_size(m.allowed)} allowed",
    )
    if m.requested > m.allowed:
        return Diagnosis(
            Kind.OVERSIZED_REQUEST,
            f"One allocation of {format_size(m.requested)} is more than the {format_size(m.allowed)} that the GPU may use.",
            (_elements(m.requested),),
        )
    if other > m.allowed / 2:
        return Diagnosis(
            Kind.OUTSIDE_CACHE,
            f"{format_size(other)} of this process's GPU memory are no tensors: Metal graphs, kernels and their caches.",
            figures,
        )
    return Diagnosis(
        Kind.GENUINE,
        f"The GPU's share is full of PyTorch's own memory: {format_size(m.allocated)} of {format_size(m.allowed)}.",
        figures,
    )


def _host(m: Message) -> Diagnosis:
    if m.requested is not None and m.requested >= TIB:
        return Diagnosis(
            Kind.OVERSIZED_REQUEST,
            f"One tensor of {format_size(m.requested)} was requested from the host's memory.",
            (_elements(m.requested), "look at the shapes: a broadcast, an index that holds garbage, a negative size"),
        )
    asked = f": allocating {format_size(m.requested)} failed" if m.requested is not None else ""
    return Diagnosis(
        Kind.HOST_MEMORY,
        f"The memory of the host ran out, not that of a GPU{asked}.",
        ("the limit of the container or job counts, not the machine's memory",),
    )


def _fixed(kind: Kind, headline: str, *because: str) -> Diagnosis:
    return Diagnosis(kind, headline, because)


def _outside(m: Message, who: str) -> Diagnosis:
    size = f" ({format_size(m.requested)})" if m.requested is not None else ""
    return _fixed(
        Kind.OUTSIDE_CACHE,
        f"{who} asked the driver for memory{size}, which failed.",
        "this memory does not come from PyTorch's cache, but must fit on the device, too",
        "PyTorch does not return idle cache for it, so a cache that fills the device leaves no room",
    )


_BY_FAMILY: Mapping[Family, Callable[[Message], Diagnosis]] = {
    Family.ADDRESS_SPACE: lambda m: _fixed(
        Kind.ADDRESS_SPACE,
        "Addresses ran out, not memory: expandable segments could not reserve their range.",
        "each stream reserves a range larger than the device; a limit on virtual memory or very many streams use them up",
    ),
    Family.EXABYTE: lambda m: _fixed(
        Kind.OVERSIZED_REQUEST,
        "A size beyond 2^60 bytes was asked for: negative, or the product of garbage.",
        "sizes read from uninitialised or corrupted tensors, a negative length, an integer overflow in a shape",
    ),
    Family.PREEMPTED: lambda m: _fixed(
        Kind.MEMORY_CAP,
        "PyTorch refused before it asked the driver: the request would exceed per_process_memory_fraction.",
        *((f"asked for {format_size(m.requested)}",) if m.requested is not None else ()),
        "set in PYTORCH_CUDA_ALLOC_CONF with throw_on_cudamalloc_oom, or by set_per_process_memory_fraction",
    ),
    Family.BARE: lambda m: _fixed(Kind.UNCLEAR, "Device memory ran out; the message gives no figures."),
    Family.LEGACY: lambda m: _fixed(
        Kind.UNCLEAR, "Device memory ran out; torch before 1.0 gives no figures.", "run it under a newer torch to read them"
    ),
    Family.UNREPORTED: lambda m: _fixed(
        Kind.UNCLEAR,
        "Device memory ran out, and the report about it failed too: the driver's NVML does not answer here.",
        "usual on MIG slices, on Jetson and in containers without NVML",
    ),
    Family.MPS_BUFFER: lambda m: _fixed(
        Kind.OVERSIZED_REQUEST,
        f"One buffer of {format_size(m.requested)} is more than Metal allows in one piece."
        if m.requested is not None
        else "One buffer is larger than Metal allows in one piece.",
        *((_elements(m.requested),) if m.requested is not None else ()),
    ),
    Family.DIRECTML: lambda m: _fixed(
        Kind.UNCLEAR,
        "DirectML could not allocate a tensor; it gives no figures about the device.",
        *((f"asked for {format_size(m.requested)}",) if m.requested is not None else ()),
    ),
    Family.RAW: lambda m: _outside(m, "The driver or a library"),
    Family.LIBRARY: lambda m: _outside(m, "A library (its handle or workspace)"),
    Family.NCCL: lambda m: _outside(m, "NCCL (its buffers)"),
    Family.LIBRARY_INIT: lambda m: _fixed(
        Kind.UNCLEAR,
        "A CUDA library could not start, most often because no memory was left for its handle.",
        "a wrong driver or an earlier failed kernel look the same: run once with CUDA_LAUNCH_BLOCKING=1",
    ),
    Family.CPU: _host,
    Family.HOST_ARRAY: _host,
    Family.SHARED_MEMORY: lambda m: _fixed(
        Kind.HOST_MEMORY,
        "Shared memory (/dev/shm) ran out: loader workers pass their batches through it.",
        "containers have 64 MB of it by default",
    ),
    Family.WORKER_KILLED: lambda m: _fixed(
        Kind.HOST_MEMORY,
        "A process was killed from outside, as the system does when the host's memory runs out.",
        "the kernel log names the reason: `dmesg -T | grep -i 'killed process'`",
    ),
}
