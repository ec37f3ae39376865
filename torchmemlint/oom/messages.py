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
from types import MappingProxyType

from torchmemlint.oom.wordings import DEVICE_WORDS, HEADS, SIZE, Family, Head

MAX_TEXT = 4096
"""A message is read no further than this many characters past its head; the longest real one has about 2,000."""


@dataclass(frozen=True, slots=True)
class Message:
    """One out-of-memory message; every size is in bytes and absent (None) when the text does not give it.

    backend          CUDA, HIP, XPU, NPU, HPU, MLU, MUSA, MPS, DirectML or CPU; "device" or "unknown" where the wording is not known
    writer           the engine, program or library that wrote the message, "" for PyTorch and the system
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
    writer: str = ""


_BINARY = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def parse_size(number: str, unit: str, *, labels_are_binary: bool = False) -> int:
    """Bytes of ``number`` ``unit``: KiB is 1,024 bytes and KB is 1,000; no unit means bytes.

    ``labels_are_binary`` is for writers that divide by 1,024 and print KB, MB, GB all the same: the MPS allocator up to
    torch 2.9 (``format_size`` in MPSAllocator.h) and the TH allocator of torch 0.x.
    """
    if unit == "kB":
        return 1024 * int(number)  # the kernel's
    if unit in ("bytes", ""):
        return int(float(number))
    base = 1024 if labels_are_binary or "i" in unit else 1000
    scale: int = base ** _BINARY[unit[0]]
    return round(float(number) * scale)


# What must not be mistaken for a message although a head matches: program text that names one.
_PROGRAM_TEXT = re.compile(
    r"^\s*(?:if|elif|raise|assert|except|return|#(?!#\[)|\"|')(?=[\s\"'(#])|\bin str\(|\"out of memory\"|"
    r"\b(?:print|warn|log\w*\.\w{1,20})\(f?[\"']"
)

# Other frameworks ask the same driver, and say what it says.
_NOT_OURS = re.compile(r"\bstream_executor\b|\bxla\b|\bjaxlib\b|\btensorflow\b|\bGPU_\d{1,3}_bfc\b")


@dataclass(frozen=True, slots=True)
class Begun:
    """A message that a line begins: its head, its device's backend, and the column where it begins."""

    head: Head
    backend: str
    column: int


_BACKEND = re.compile(DEVICE_WORDS)
_SUPPOSED = re.compile(
    r"(?i)\b(?:if|whether|in case|may|might|would|should|avoid\w*|prevent\w*|possibl[ey]|potential\w*|likely|handl\w+|catch\w*|caught|consider|"
    r"tips?|hint|note|faq|unless|risk|until|because|when you)\b|\bggml_\w*host_malloc\b"
)
"""What stands before words of failure that tell of none: a condition, advice, or memory that the program can do without."""
_OWN_WORDS = re.compile(r"(?:[Ff]ail|[Cc]annot|[Cc]an't|[Cc]ould|[Uu]nable|\w*[Mm]alloc|[A-Za-z]+ allocation)|\w*_")
"""Words of failure that say themselves that something failed; the others need a word for an error in their line."""
_FAILURE = re.compile(
    r"(?:[Ee]rror|ERROR|[Ee]xception)\b|\b(?:FATAL|[Ff]atal|FAILED|[Ff]ail(?:ed|ure|s)|[Aa]bort\w{0,4}|terminat\w{2,4}|panicked|[Cc]rash\w{0,3}|CRITICAL|[EF]\d{4})\b"
)


_NAMES = re.compile(r"\W{0,2}(?:[\w./:+-]{1,60}[:\]] ?){0,3}")
"""What may stand before words that begin a line's sentence: the names of who writes."""


def _tells_of_failure(line: str, found: re.Match[str], raw: str) -> bool:
    """Whether a line with general words of failure reports one: a log mentions memory in advice, options and plans, too."""
    lead = line[: found.start()]
    if _SUPPOSED.search(line[: found.end()]) is not None:
        return False
    return (
        _NAMES.fullmatch(lead) is not None or _OWN_WORDS.match(found[0]) is not None or _FAILURE.search(raw or line) is not None
    )


_PLACES = (
    ("CUDA", re.compile(r"(?i)\b(?:cuda\w*|nvidia\w*|cu(?:blas|dnn)\w*|cuMem\w*)")),
    ("HIP", re.compile(r"(?i)\b(?:hip(?!po)\w*|rocm\w*|hsa_\w*|amdgpu)")),
    ("XPU", re.compile(r"(?i)(?:\b|_)(?:xpu|sycl|level[_ ]zero|UR_RESULT)")),
    ("NPU", re.compile(r"(?i)\b(?:npu\w*|acl(?:rt|nn)?\w*|ascend\w*|hccl\w*|cann)\b")),
    ("HPU", re.compile(r"(?i)\b(?:hpu\w*|habana\w*|gaudi\w*|synapse\w*)")),
    ("MPS", re.compile(r"\b(?:MPS\w*|Metal\w*|MTL\w*)|ggml_metal")),
    ("device", re.compile(r"(?i)(?:\b|_)(?:vulkan|vk_error|tpu\b|hbm\b|opencl|cl_out_of|cl_mem)")),
)
_ON_DEVICE = re.compile(r"(?i)\b(?:gpus?|v?ram on|vram|device|video memory|hbm|accelerator)\b")
_ON_HOST = re.compile(
    r"(?i)\b(?:host|cpu|system memory|ram|pinned|page-?locked|\w*malloc_?host\w*|\w*host_?(?:m?alloc|register)\w*|std::bad_alloc|ENOMEM|mmap|fork|heap)\b"
)


def _place(words: str) -> str:
    """Whose memory a message of unknown wording names: a backend's device, "device", the host ("CPU"), or "unknown"."""
    if _ON_HOST.search(words) is not None:
        return "unknown" if _ON_DEVICE.search(words) is not None else "CPU"
    named = next((backend for backend, sign in _PLACES if sign.search(words)), "")
    return named or ("device" if _ON_DEVICE.search(words) is not None else "unknown")


def find_head(line: str, raw: str = "") -> Begun | None:
    """The message that ``line`` (prefix and colours removed) begins; None when it begins none. ``raw`` is the line with its prefix."""
    for head in HEADS:
        if not any(word in line for word in head.texts):
            continue
        found = head.pattern.search(line)
        if found is None:
            continue
        if _PROGRAM_TEXT.search(line[: found.end()]):
            return None
        if head.family is Family.UNNAMED:
            # The whole line is the message: what stands before such words says whose they are.
            return Begun(head, _place(line), 0) if _tells_of_failure(line, found, raw) else None
        if head.family is not Family.OTHER_PROGRAM and _NOT_OURS.search(line[: found.end()]):
            return None
        backend = next((group for group in found.groups() if group and _BACKEND.fullmatch(group)), head.backend)
        if head.family is Family.OTHER_PROGRAM and backend == "CUDA":
            backend = next((place for place, sign in _PLACES if sign.search(line)), backend)
        return Begun(head, backend, found.start())
    return None


_FIELDS_PARENTHESES = {
    "total": rf"{SIZE} total capacity",
    "allocated": rf"{SIZE} already allocated",
    "active": rf"{SIZE} current active",
    "free": rf"{SIZE} free",
    "allowed": rf"{SIZE} allowed",
    "reserved": rf"{SIZE} reserved in total",
    "unallocated": rf"{SIZE} cached",
}
_FIELDS_SENTENCES = {
    "total": rf"has a total capac(?:ity|ty) of {SIZE}",
    "free": rf"of which {SIZE} is free",
    "allowed": rf"{SIZE} allowed;",
    "this_process": rf"Including non-PyTorch memory, this process has {SIZE} memory in use",
    "allocated": rf"Of the allocated memory {SIZE} is allocated by PyTorch",
    "private_pools": rf"with {SIZE} allocated in private pools",
    "unallocated": rf"and {SIZE} is reserved by PyTorch but unallocated",
}
_FIELDS_ASYNC = {
    "allocated": rf"Currently allocated ?: {SIZE}",
    "requested": rf"Requested ?: {SIZE}",
    "total": rf"Device limit ?: {SIZE}",
    "free": rf"Free \(according to CUDA\) ?: {SIZE}",
    "allowed": rf"PyTorch limit \(set by user-supplied memory fraction\) ?: {SIZE}",
}
_FIELDS_WORKSPACE = {
    "requested": rf"tried to allocate {SIZE}",
    "total": rf"{SIZE} total capacity",
    "free": rf"{SIZE} free",
}
_FIELDS_ENGINE_SHARE = {
    "free": r"\((\d{1,9}(?:\.\d{1,9})?)/[\d.]{1,9} (GiB)\)",  # the unit stands behind the second number
    "total": rf"/{SIZE}\) on startup",
    "requested": rf"utilization \([\d.]{{1,9}}, {SIZE}\)",
}
_FIELDS_ENGINE_LENGTH = {
    "requested": rf"\({SIZE} KV cache is needed",
    "allowed": rf"available KV cache memory \({SIZE}\)",
}
_FIELDS_HOST_LIMIT = {
    "allocated": rf"was running was {SIZE} /",
    "total": rf"was running was [\d.]{{1,9}} ?[KMGT]i?B / {SIZE}",
}
_FIELDS_OTHER_PROGRAM = {
    "free": rf"than is available \({SIZE}\)",
}
_FIELDS_KERNEL = {
    "requested": r"(?:Required: |local memory \()(\d{1,12})()",
    "allowed": r"(?:Hardware limit: ?|exceeds limit \()(\d{1,12})()",
}
_FIELDS_MPS = {
    "allocated": rf"MPS allocated: {SIZE}",
    "other_allocations": rf"other allocations: {SIZE}",
    "allowed": rf"max allowed: {SIZE}",
    "requested": rf"Tried to allocate {SIZE}",
}
_REQUEST = {
    Family.PARENTHESES: rf"Tried to allocate {SIZE}",
    Family.SENTENCES: rf"Tried to allocate {SIZE}",
    Family.PREEMPTED: rf"Requested size: {SIZE}",
    Family.MPS_BUFFER: rf"Invalid buffer size: {SIZE}",
    Family.DIRECTML: rf"tensor with {SIZE}",
    Family.CPU: rf"you tried to allocate {SIZE}",
    Family.NCCL: rf"Failed to CUDA (?:host )?[cm]?alloc ?[a-zA-Z]{{0,12}} {SIZE}",
    Family.HOST_ARRAY: rf"(?:Unable to allocate|unable to mmap) {SIZE}",
    Family.ADDRESS_SPACE: rf"Failed to reserve {SIZE}",
    Family.POOL: r"for size::(\d{1,20})()",
    Family.BLOCK_LIMIT: rf"Tried to allocate {SIZE}",
    Family.RAW: r"Requested size was (\d{1,20}) (bytes)",
    Family.OTHER_PROGRAM: r"(?:allocating|can't allocate|allocation of size|trying to allocate|attempted to allocate|requested buffer of size|requested bytes of|buffer of size|Requested size was|allocation: [Rr]equested|"
    r"amount of GPU memory \(|requires more system memory \() ?(\d{1,24}(?:\.\d{1,9})?) ?((?:bytes\b|[KMGTPE]i?B\b)?)",
    Family.KERNEL_KILLED: r"anon-rss:(\d{1,15})(kB)",
    Family.BARE: r"Need: (\d{1,6}\.\d)(GB) free",
    Family.UNNAMED: rf"(?:alloc|request|reserv|need|requir|size)\D{{0,40}}?{SIZE}\b",
}


def _compiled(fields: Mapping[str, str]) -> Mapping[str, re.Pattern[str]]:
    return MappingProxyType({name: re.compile(pattern) for name, pattern in fields.items()})


_FIELDS: Mapping[Family, Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        Family.PARENTHESES: _compiled(_FIELDS_PARENTHESES | {"requested": _REQUEST[Family.PARENTHESES]}),
        Family.SENTENCES: _compiled(_FIELDS_SENTENCES | {"requested": _REQUEST[Family.SENTENCES]}),
        Family.ASYNC: _compiled(_FIELDS_ASYNC),
        Family.MPS: _compiled(_FIELDS_MPS),
        Family.WORKSPACE: _compiled(_FIELDS_WORKSPACE),
        Family.ENGINE_SHARE: _compiled(_FIELDS_ENGINE_SHARE),
        Family.ENGINE_LENGTH: _compiled(_FIELDS_ENGINE_LENGTH),
        Family.HOST_LIMIT: _compiled(_FIELDS_HOST_LIMIT),
        Family.KERNEL: _compiled(_FIELDS_KERNEL),
        **{
            family: _compiled({"requested": pattern})
            for family, pattern in _REQUEST.items()
            if family not in (Family.PARENTHESES, Family.SENTENCES)
        },
        Family.OTHER_PROGRAM: _compiled(_FIELDS_OTHER_PROGRAM | {"requested": _REQUEST[Family.OTHER_PROGRAM]}),
    }
)
_PROCESS = re.compile(rf"Process (\d{{1,10}}) has {SIZE} memory in use")
_DEVICE = re.compile(r"(?:\((?:GPU|NPU|MLU|XPU|MUSA) |\. GPU |\. NPU |Allocation on device )(\d{1,4})\b")


_COMPLETE = MappingProxyType(
    {Family.PARENTHESES: "reserved", Family.SENTENCES: "unallocated", Family.ASYNC: "allowed", Family.MPS: "requested"}
)
_TAILS = re.compile(r" (?:If reserved |Please use |Use PYTORCH_|See documentation|CUDA kernel errors |For debugging consider)")


def needs_next_line(text: str, family: Family) -> bool:
    """Whether the message in ``text`` stops before its last figure, so that the next line of the log may hold the rest."""
    last = _COMPLETE.get(family)
    if len(text) >= MAX_TEXT or (family is Family.ASYNC and "would exceed" not in text):
        return False
    if last is None:
        begun = {Family.PREEMPTED: "preemptively rejected", Family.HOST_LIMIT: "running low on memory"}.get(family)
        return begun is not None and begun in text and not any(field.search(text) for field in _FIELDS[family].values())
    words = " ".join(text.split())
    return _FIELDS[family][last].search(words) is None and not (family is Family.PARENTHESES and ")" in words)


def parse_message(text: str, begun: Begun) -> Message:
    """Read the figures of a message from ``text``, which begins at its head and may run on past its end."""
    family = begun.head.family
    words = " ".join(text[:MAX_TEXT].split())
    if family is Family.PARENTHESES:
        words = words[: words.find(")") + 1] or words  # what follows the parenthesis is advice or another line
    # Ray divides by 1,024 three times, and prints GB (ray src/ray/raylet/node_manager.cc).
    binary = family in (Family.MPS, Family.MPS_BUFFER, Family.HOST_LIMIT) or (family is Family.CPU and "Buy new RAM" in words)
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
    if allowed is not None and total is not None and allowed >= 0.995 * total:
        allowed = (
            None  # the whole device is no limit; cudaMallocAsync prints the largest 64-bit number when no fraction was set
        )
    return Message(
        family=family,
        backend=begun.backend,
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
        writer=begun.head.writer,
    )


def _shown(words: str) -> str:
    """The message without the advice that PyTorch prints behind it; at most 600 characters."""
    tail = _TAILS.search(words)
    words = words[: tail.start()] if tail else words
    return words if len(words) <= 600 else words[:599] + "…"
