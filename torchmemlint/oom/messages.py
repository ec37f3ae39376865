"""What an out-of-memory message says: its family, its device and every size in it, in bytes.

Shapes are taken from the PyTorch sources (c10/cuda/CUDACachingAllocator.cpp, c10/cuda/CUDAMallocAsyncAllocator.cpp,
aten/src/ATen/mps/MPSAllocator.h and .mm, c10/core/impl/alloc_cpu.cpp) and from issue reports of torch 0.3 to 2.13.
A message is recognised by its head; the figures are then picked one by one, so that a message cut off in the middle still
gives what it holds. No pattern repeats a repetition: reading is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

MAX_TEXT = 4096
"""A message is read no further than this many characters past its head; the longest real one has about 700."""


class Family(Enum):
    """Which allocator or library wrote a message, and in which of its wordings."""

    PARENTHESES = "caching allocator, torch 1.0 to 2.0"
    SENTENCES = "caching allocator, torch 2.1 and later"
    PREEMPTED = "caching allocator, rejected before the driver was asked"
    EXABYTE = "caching allocator, size out of range"
    BARE = "caching allocator, without figures"
    ASYNC = "cudaMallocAsync backend"
    ADDRESS_SPACE = "expandable segments, virtual addresses"
    LEGACY = "THC allocator, torch 0.x"
    UNREPORTED = "caching allocator, its own report failed"
    MPS = "MPS allocator"
    MPS_BUFFER = "Metal buffer limit"
    DIRECTML = "DirectML"
    RAW = "driver or runtime, outside the caching allocator"
    LIBRARY = "cuBLAS, cuDNN or another library"
    LIBRARY_INIT = "cuBLAS or cuDNN, not initialised"
    NCCL = "NCCL"
    CPU = "CPU allocator"
    HOST_ARRAY = "NumPy or Python"
    WORKER_KILLED = "process killed by the system"
    SHARED_MEMORY = "shared memory"


@dataclass(frozen=True, slots=True)
class Message:
    """One out-of-memory message; every size is in bytes and absent (None) when the text does not give it.

    backend          CUDA, HIP, XPU, NPU, MLU, MUSA, MPS, DirectML or CPU
    requested        the allocation that failed
    total, free      of the device, as its driver sees them
    allocated        live tensors of this process, as printed (includes ``private_pools`` where those are printed)
    reserved         the whole cache of this process; ``unallocated`` is its idle part
    allowed          the limit set for this process (memory fraction, MPS watermark)
    this_process     all device memory of this process, outside PyTorch too
    processes        (pid, bytes) of each ``Process N has …`` part; in a container the own process can be among them
    text             the message, white space collapsed
    """

    family: Family
    backend: str
    text: str
    device: int | None = None
    requested: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    unallocated: int | None = None
    active: int | None = None
    allowed: int | None = None
    private_pools: int | None = None
    this_process: int | None = None
    other_allocations: int | None = None
    processes: tuple[tuple[int, int], ...] = ()


_BINARY = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SIZE = r"(\d{1,24}(?:\.\d{1,9})?) ?(bytes|[KMGTPE]i?B)"


def parse_size(number: str, unit: str, *, labels_are_binary: bool = False) -> int:
    """Bytes of ``number`` ``unit``: KiB is 1,024 bytes and KB is 1,000.

    ``labels_are_binary`` is for writers that divide by 1,024 and print KB, MB, GB all the same: the MPS allocator up to
    torch 2.9 (``format_size`` in MPSAllocator.h) and the TH allocator of torch 0.x.
    """
    if unit == "bytes":
        return int(float(number))
    base = 1024 if labels_are_binary or "i" in unit else 1000
    scale: int = base ** _BINARY[unit[0]]
    return round(float(number) * scale)


_DEVICE_WORDS = r"(CUDA|HIP|XPU|NPU|MLU|MUSA|SDAA|GCU|HPU|PrivateUse1)"
# Text of an exception stands at the start of what a line says, after "Error: ", or after one of a few known words. Without
# that, `if "CUDA out of memory" in str(e)` and advice in a log would count. A message with its figures needs no such guard.
_LEAD = r"(?:^|Error: |Error\): |exception: |what\(\): +|CUDA error: |driver error: |[-|>:!] )"


@dataclass(frozen=True, slots=True)
class _Head:
    family: Family
    pattern: re.Pattern[str]
    backend: str = "CUDA"


def _head(family: Family, pattern: str, backend: str = "CUDA") -> _Head:
    return _Head(family, re.compile(pattern), backend)


# In order of preference: the first that matches a line names the message.
_HEADS = (
    _head(Family.ADDRESS_SPACE, r"\[ExpandableSegmentVA\]"),
    _head(Family.EXABYTE, rf"{_DEVICE_WORDS} out of memory\. Tried to allocate more than 1EB"),
    _head(Family.PREEMPTED, rf"{_DEVICE_WORDS} out of memory\. Allocation was preemptively rejected"),
    _head(Family.PARENTHESES, rf"{_DEVICE_WORDS} out of (?:the )?memory\. Tried to allocate {_SIZE} \("),
    _head(Family.SENTENCES, rf"{_DEVICE_WORDS} out of (?:the )?memory\. Tried to allocate {_SIZE}"),
    _head(
        Family.ASYNC, r"Allocation on device (?:\d{1,4} )?would exceed allowed memory|OutOfMemoryError: Allocation on device"
    ),
    _head(Family.MPS, r"MPS backend out of memory", "MPS"),
    _head(Family.MPS_BUFFER, rf"Invalid buffer size: {_SIZE}", "MPS"),
    _head(Family.DIRECTML, r"Could not allocate tensor with \d{1,20} bytes\. There is not enough GPU", "DirectML"),
    _head(Family.CPU, r"DefaultCPUAllocator: ", "CPU"),
    _head(Family.CPU, r"posix_memalign\(&?data, ?gAlignment, ?nbytes\) == 0", "CPU"),
    _head(Family.CPU, r"\$ Torch: not enough memory: you tried to allocate", "CPU"),
    _head(Family.LEGACY, r"cuda runtime error \(2\) ?: out of memory|THCudaCheck FAIL file=\S{1,300} line=\d{1,6} error=2"),
    _head(Family.NCCL, r"Failed to CUDA (?:host )?(?:calloc|malloc)|Cuda failure (?:2 )?'out of memory'"),
    _head(Family.LIBRARY, r"\bCU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED\b"),
    _head(Family.LIBRARY_INIT, r"\bCU(?:BLAS|DNN|SOLVER)_STATUS_NOT_INITIALIZED\b"),
    _head(Family.UNREPORTED, r"NVML_SUCCESS == [^\"]{1,120}INTERNAL ASSERT FAILED at \"[^\"]{0,300}CUDACachingAllocator\.cpp"),
    _head(Family.RAW, r"\bUR_RESULT_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY\b|\bUR_RESULT_ERROR_OUT_OF_RESOURCES\b", "XPU"),
    _head(Family.RAW, r"\bHSA_STATUS_ERROR_OUT_OF_RESOURCES\b|HIP error: out of memory", "HIP"),
    _head(Family.RAW, r"\bCUDA_ERROR_OUT_OF_MEMORY\b|CUDA(?: driver)? error: out of memory"),
    _head(Family.BARE, rf"{_LEAD}{_DEVICE_WORDS} out of memory(?:\.|$)"),
    _head(
        Family.HOST_ARRAY,
        rf"Unable to allocate {_SIZE} for an array|^(?:MemoryError|std::bad_alloc)\b|what\(\): +std::bad_alloc",
        "CPU",
    ),
    _head(Family.HOST_ARRAY, r"\[Errno 12\] Cannot allocate memory|unable to mmap \d{1,20} bytes from file", "CPU"),
    _head(Family.SHARED_MEMORY, r"workers are out of shared memory|insufficient shared memory \(shm\)", "CPU"),
    _head(Family.WORKER_KILLED, r"DataLoader worker \(pid(?:\(s\))? [^)]{1,80}\) is killed by signal: Killed", "CPU"),
    _head(Family.WORKER_KILLED, r"Detected \d{1,6} oom[-_]kill event|Out of memory: Kill(?:ed)? process", "CPU"),
    _head(Family.WORKER_KILLED, r"Signal 9 \(SIGKILL\) received by PID", "CPU"),
)

# What must not be mistaken for a message although a head matches: program text that names one.
_PROGRAM_TEXT = re.compile(r"^\s*(?:if|elif|raise|assert|except|return|#|\"|')(?=[\s\"'(#])|\bin str\(|\"out of memory\"")

# Other frameworks ask the same driver, and say what it says.
_NOT_OURS = re.compile(r"\bstream_executor\b|\bxla\b|\bjaxlib\b|\btensorflow\b|\bGPU_\d{1,3}_bfc\b")


def find_head(line: str) -> tuple[Family, str, int] | None:
    """The message that ``line`` (prefix and colours removed) starts: family, backend and column; None when it starts none."""
    for head in _HEADS:
        found = head.pattern.search(line)
        if found is None:
            continue
        if _PROGRAM_TEXT.search(line[: found.end()]) or _NOT_OURS.search(line[: found.end()]):
            return None
        backend = next((group for group in found.groups() if group and group.isalpha() and group.isupper()), head.backend)
        return head.family, backend, found.start()
    return None


_FIELDS_PARENTHESES = {
    "total": rf"{_SIZE} total capacity",
    "allocated": rf"{_SIZE} already allocated",
    "active": rf"{_SIZE} current active",
    "free": rf"{_SIZE} free",
    "allowed": rf"{_SIZE} allowed",
    "reserved": rf"{_SIZE} reserved in total",
    "unallocated": rf"{_SIZE} cached",
}
_FIELDS_SENTENCES = {
    "total": rf"has a total capac(?:ity|ty) of {_SIZE}",
    "free": rf"of which {_SIZE} is free",
    "allowed": rf"{_SIZE} allowed;",
    "this_process": rf"Including non-PyTorch memory, this process has {_SIZE} memory in use",
    "allocated": rf"Of the allocated memory {_SIZE} is allocated by PyTorch",
    "private_pools": rf"with {_SIZE} allocated in private pools",
    "unallocated": rf"and {_SIZE} is reserved by PyTorch but unallocated",
}
_FIELDS_ASYNC = {
    "allocated": rf"Currently allocated ?: {_SIZE}",
    "requested": rf"Requested ?: {_SIZE}",
    "total": rf"Device limit ?: {_SIZE}",
    "free": rf"Free \(according to CUDA\) ?: {_SIZE}",
    "allowed": rf"PyTorch limit \(set by user-supplied memory fraction\) ?: {_SIZE}",
}
_FIELDS_MPS = {
    "allocated": rf"MPS allocated: {_SIZE}",
    "other_allocations": rf"other allocations: {_SIZE}",
    "allowed": rf"max allowed: {_SIZE}",
    "requested": rf"Tried to allocate {_SIZE}",
}
_REQUEST = {
    Family.PARENTHESES: rf"Tried to allocate {_SIZE}",
    Family.SENTENCES: rf"Tried to allocate {_SIZE}",
    Family.PREEMPTED: rf"Requested size: {_SIZE}",
    Family.MPS_BUFFER: rf"Invalid buffer size: {_SIZE}",
    Family.DIRECTML: rf"tensor with {_SIZE}",
    Family.CPU: rf"you tried to allocate {_SIZE}",
    Family.NCCL: rf"Failed to CUDA (?:host )?(?:calloc|malloc) ?[a-zA-Z]{{0,12}} {_SIZE}",
    Family.HOST_ARRAY: rf"(?:Unable to allocate|unable to mmap) {_SIZE}",
    Family.ADDRESS_SPACE: rf"Failed to reserve {_SIZE}",
}


def _compiled(fields: Mapping[str, str]) -> Mapping[str, re.Pattern[str]]:
    return MappingProxyType({name: re.compile(pattern) for name, pattern in fields.items()})


_FIELDS: Mapping[Family, Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        Family.PARENTHESES: _compiled(_FIELDS_PARENTHESES | {"requested": _REQUEST[Family.PARENTHESES]}),
        Family.SENTENCES: _compiled(_FIELDS_SENTENCES | {"requested": _REQUEST[Family.SENTENCES]}),
        Family.ASYNC: _compiled(_FIELDS_ASYNC),
        Family.MPS: _compiled(_FIELDS_MPS),
        **{
            family: _compiled({"requested": pattern})
            for family, pattern in _REQUEST.items()
            if family not in (Family.PARENTHESES, Family.SENTENCES)
        },
    }
)
_PROCESS = re.compile(rf"Process (\d{{1,10}}) has {_SIZE} memory in use")
_DEVICE = re.compile(r"(?:\((?:GPU|NPU|MLU|XPU|MUSA) |\. GPU |\. NPU |Allocation on device )(\d{1,4})\b")


_COMPLETE = MappingProxyType(
    {Family.PARENTHESES: "reserved", Family.SENTENCES: "unallocated", Family.ASYNC: "allowed", Family.MPS: "requested"}
)
_TAILS = re.compile(r" (?:If reserved |Please use |Use PYTORCH_|See documentation|CUDA kernel errors |For debugging consider)")


def needs_next_line(text: str, family: Family) -> bool:
    """Whether the message in ``text`` stops before its last figure, so that the next line of the log may hold the rest."""
    last = _COMPLETE.get(family)
    if last is None or len(text) >= MAX_TEXT:
        return family is Family.PREEMPTED and "Requested size: " not in text and len(text) < MAX_TEXT
    words = " ".join(text.split())
    return _FIELDS[family][last].search(words) is None and not (family is Family.PARENTHESES and ")" in words)


def parse_message(text: str, family: Family, backend: str) -> Message:
    """Read the figures of a message from ``text``, which begins at its head and may run on past its end."""
    words = " ".join(text[:MAX_TEXT].split())
    if family is Family.PARENTHESES:
        words = words[: words.find(")") + 1] or words  # what follows the parenthesis is advice or another line
    binary = family in (Family.MPS, Family.MPS_BUFFER) or (family is Family.CPU and "Buy new RAM" in words)
    sizes: dict[str, int] = {}
    for name, pattern in _FIELDS.get(family, {}).items():
        found = pattern.search(words)
        if found is not None:
            sizes[name] = parse_size(found[1], found[2], labels_are_binary=binary)
    processes = (
        tuple((int(m[1]), parse_size(m[2], m[3])) for m in _PROCESS.finditer(words)) if family is Family.SENTENCES else ()
    )
    device = _DEVICE.search(words[:600])
    allocated, reserved, unallocated = sizes.get("allocated"), sizes.get("reserved"), sizes.get("unallocated")
    if allocated is not None and unallocated is not None and reserved is None:
        reserved = allocated + unallocated
    elif allocated is not None and reserved is not None and unallocated is None:
        unallocated = max(0, reserved - allocated)
    allowed, total = sizes.get("allowed"), sizes.get("total")
    if family is Family.ASYNC and allowed is not None and total is not None and allowed > total:
        allowed = None  # the backend prints the largest 64-bit number when no fraction was set
    return Message(
        family=family,
        backend=backend,
        text=_shown(words),
        device=int(device[1]) if device else None,
        requested=sizes.get("requested"),
        total=total,
        free=sizes.get("free"),
        allocated=allocated,
        reserved=reserved,
        unallocated=unallocated,
        active=sizes.get("active"),
        allowed=allowed,
        private_pools=sizes.get("private_pools"),
        this_process=sizes.get("this_process"),
        other_allocations=sizes.get("other_allocations"),
        processes=processes,
    )


def _shown(words: str) -> str:
    """The message without the advice that PyTorch prints behind it; at most 600 characters."""
    tail = _TAILS.search(words)
    words = words[: tail.start()] if tail else words
    return words if len(words) <= 600 else words[:599] + "…"
