"""What a message means whose wording alone says what ran out; `diagnose` reads those that have figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from torchmemlint.oom.messages import Message
from torchmemlint.oom.scene import ELEMENT_BYTES, Activity, Scene
from torchmemlint.oom.signs import SKIPS, Outcome, Sign
from torchmemlint.oom.sizes import GIB, MIB, TIB, format_size, percent
from torchmemlint.oom.wordings import Family


class Kind(Enum):
    """What ran out, and why."""

    GENUINE = "genuine"
    FRAGMENTATION = "fragmentation"
    PARTLY_FRAGMENTATION = "partly-fragmentation"
    OWN_RANKS = "own-ranks"
    OTHER_PROCESSES = "other-processes"
    MEMORY_CAP = "memory-cap"
    OVERSIZED_REQUEST = "oversized-request"
    ENGINE_SETTINGS = "engine-settings"
    OUTSIDE_CACHE = "outside-cache"
    ADDRESS_SPACE = "address-space"
    HOST_MEMORY = "host-memory"
    OTHER_PROGRAM = "other-program"
    NOT_MEMORY = "not-memory"
    UNCLEAR = "unclear"


_EXPLAINED_BY_CODE = frozenset(
    {
        Kind.GENUINE,
        Kind.FRAGMENTATION,
        Kind.PARTLY_FRAGMENTATION,
        Kind.OWN_RANKS,
        Kind.HOST_MEMORY,
        Kind.OVERSIZED_REQUEST,
        Kind.OUTSIDE_CACHE,
    }
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``because`` are the sentences, with numbers, that lead to ``kind``; ``headline`` says it in one.

    shared   the program and something else have a part in it, so that needing less helps, too
    doubted  the figures themselves are not believed
    refused  the driver had room and refused all the same, so that needing less may not help
    survived the program went on
    """

    kind: Kind
    headline: str
    because: tuple[str, ...]
    shared: bool = False
    doubted: bool = False
    refused: bool = False
    survived: bool = False

    @property
    def explained_by_code(self) -> bool:
        """Whether a mistake in the program can be the reason; otherwise a finding of the linter explains nothing."""
        return self.shared or self.kind in _EXPLAINED_BY_CODE


def elements(requested: int, scene: Scene) -> str:
    """How many values ``requested`` bytes are: of the type on the failing line, or of float32."""
    width = ELEMENT_BYTES.get(scene.dtype)
    count = requested // (width or 4)
    name = scene.dtype if width else "float32"
    sentence = (
        f"{format_size(requested)} are {count:,} {name} values, a square of {round(count**0.5):,} × {round(count**0.5):,}"
    )
    return sentence if width else f"{sentence}, or twice as many in 16 bits"


def fixed_meaning(message: Message, scene: Scene) -> Diagnosis | None:
    """The meaning of a message whose family alone decides; None for those whose figures must be read."""
    meaning = _BY_FAMILY.get(message.family)
    return meaning(message, scene) if meaning is not None else None


def while_doing(scene: Scene) -> str:
    """ "during training", "while weights were loaded or moved", …; "" when nothing shows it."""
    return {
        Activity.TRAINING: "during training",
        Activity.INFERENCE: "while latents were decoded"
        if scene.stage == "decoder"
        else "during inference, in a program that trains"
        if scene.trains
        else "during inference",
        Activity.LOADING: "while weights were loaded or moved",
        Activity.COMPILATION: "during compilation",
        Activity.SAVING: "while a checkpoint was saved",
        Activity.ENGINE: f"in a serving engine ({scene.engine})" if scene.engine else "in a serving engine",
    }.get(scene.activity, "")


def without_figures(m: Message, scene: Scene) -> Diagnosis:
    """Device memory ran out, and the message does not say how much of it who holds."""
    while_ = while_doing(scene)
    asynchronous = "it is from the backend cudaMallocAsync, whose settings are not those of PyTorch's own allocator"
    return Diagnosis(
        Kind.UNCLEAR,
        f"Device memory ran out{' ' + while_ if while_ else ''}; the message gives no figures.",
        (
            *((f"asked for {format_size(m.requested)}",) if m.requested is not None else ()),
            *((asynchronous,) if m.family is Family.ASYNC else ()),
            *circumstances(scene, device=True),
        ),
    )


def circumstances(scene: Scene, *, device: bool) -> tuple[str, ...]:
    """Sentences about what the lines before the message show: figures that grow, a batch size that was searched for."""
    sentences = []
    if scene.growth is not None and scene.growth.of_host is not device:
        why = (
            "the trainer's copies of the parameters and its optimizer state lie there"
            if Sign.STATE_BUILT in scene.signs
            else "something is kept from step to step"
        )
        sentences.append(f"the log shows `{scene.growth.label}` rise from {scene.growth.first} to {scene.growth.last}: {why}")
    if device and Sign.SEARCHED in scene.signs:
        sentences.append("the batch size comes from a search that goes up to the limit: the run itself has no margin")
    return tuple(sentences)


_CATCHABLE = frozenset(
    {
        Family.PARENTHESES,
        Family.SENTENCES,
        Family.PREEMPTED,
        Family.EXABYTE,
        Family.BARE,
        Family.ASYNC,
        Family.LEGACY,
        Family.UNREPORTED,
        Family.MPS,
        Family.MPS_BUFFER,
        Family.RAW,
        Family.LIBRARY,
        Family.CPU,
        Family.HOST_ARRAY,
        Family.NO_PLAN,
    }
)
"""Messages of an exception that a program can catch."""


def survived(found: Diagnosis, message: Message, scene: Scene) -> Diagnosis:
    """``found``, said to be survived if the message's own line says what is done in place of what failed, or if the lines below show
    that the program went on.

    Where a traceback leads to the message, and other ranks may write on, a line must also say that what failed is skipped. So must it
    where another program wrote the message, or somebody who is not known, beside whose lines others may stand.
    """
    foreign = message.family in (Family.OTHER_PROGRAM, Family.UNNAMED)
    if not (foreign or message.family in _CATCHABLE) or scene.outcome is Outcome.ENDED:
        return found
    said = Sign.SKIPPED in scene.signs or SKIPS.search(message.text) is not None
    if message.family is Family.UNNAMED:
        said = said and scene.outcome is Outcome.WENT_ON
    if not said and (scene.outcome is not Outcome.WENT_ON or ((scene.raised or foreign) and Sign.CAUGHT not in scene.signs)):
        return found
    headline = f"The program survived this, and went on. {found.headline}"
    return replace(found, headline=headline, survived=True)


def _handled(m: Message, scene: Scene) -> Diagnosis:
    if scene.outcome is Outcome.ENDED:
        return Diagnosis(
            Kind.UNCLEAR,
            "Memory ran out; the program tried to go on without what failed, and ended soon after.",
            ("the error that ended it stands below",),
        )
    return Diagnosis(
        Kind.UNCLEAR,
        "The program survived this: memory ran out, and what failed was skipped or done another way.",
        (
            "the line is the program's own, and gives no figures",
            "it costs time or a batch, and a run that goes to the limit may end at the next one",
        ),
        survived=True,
    )


def _host(m: Message, scene: Scene) -> Diagnosis:
    if m.requested is not None and m.requested >= TIB:
        return Diagnosis(
            Kind.OVERSIZED_REQUEST,
            f"One tensor of {format_size(m.requested)} was requested from the host's memory.",
            (elements(m.requested, scene), "look at the shapes: a broadcast, an index that holds garbage, a negative size"),
        )
    asked = f": allocating {format_size(m.requested)} failed" if m.requested is not None else ""
    large = (elements(m.requested, scene),) if m.requested is not None and m.requested >= 16 * GIB else ()
    mappings = (
        ("the same number comes from a limit of mappings or of addresses: `sysctl vm.max_map_count`, `ulimit -v`",)
        if m.requested is None and re.search(r"Errno 12\]|\b12\)|code: 12,|fork", m.text) is not None
        else ()
    )
    limit = (
        "under Windows the limit is RAM and paging file together, of what is promised: free RAM may be left"
        if Sign.WINDOWS in scene.signs
        else "the limit of the container or job counts, not the machine's memory"
    )
    return Diagnosis(
        Kind.HOST_MEMORY,
        f"The memory of the host ran out, not that of a GPU{asked}.",
        (*_shown(scene, Sign.STATE_ON_HOST), *large, *circumstances(scene, device=False), limit, *mappings),
    )


_SHOWN = {
    Sign.LOADER: "the log shows workers of a loader: what fills them is the data set's and the collate function's, times their number and that "
    "of the ranks",
    Sign.STATE_ON_HOST: "the training offloads to the host: master weights, gradients and Adam's state are 16 bytes for each parameter there",
    Sign.LIMITED: "the log shows a limit of the host's memory, of a container or a job",
    Sign.WSL: "under WSL, the same error comes when the virtual machine's own memory is used up, which is half of the machine's by default",
    Sign.TIMED_OUT: "a collective operation timed out before: a size that it should have brought is garbage, so look there first",
}


def _shown(scene: Scene, *signs: Sign) -> tuple[str, ...]:
    """A sentence for each of ``signs`` that the log shows."""
    return tuple(_SHOWN[sign] for sign in signs if sign in scene.signs)


def _fixed(kind: Kind, headline: str, *because: str) -> Callable[[Message, Scene], Diagnosis]:
    """A meaning in which nothing depends on the message."""
    return lambda m, scene: Diagnosis(kind, headline, because)


def _outside(who: str) -> Callable[[Message, Scene], Diagnosis]:
    def meaning(m: Message, scene: Scene) -> Diagnosis:
        size = f" ({format_size(m.requested)})" if m.requested is not None else ""
        room = (
            (f"{format_size(m.free)} were free of {format_size(m.total)}",)
            if m.free is not None and m.total is not None
            else ()
        )
        return Diagnosis(
            Kind.OUTSIDE_CACHE,
            f"{m.writer or who} asked the driver for memory{size}, which failed.",
            (
                *room,
                "this memory does not come from PyTorch's cache, but must fit on the device, too",
                "PyTorch does not return idle cache for it, so a cache that fills the device leaves no room",
            ),
        )

    return meaning


def _nccl(m: Message, scene: Scene) -> Diagnosis:
    if Sign.NCCL_HOST in scene.signs or "CUDA host" in m.text:
        return Diagnosis(
            Kind.HOST_MEMORY,
            "NCCL was refused pinned memory of the host, as its transport through shared memory needs it; it was not the device's.",
            (
                "the message names a call for such memory, or the lines beside it are those of that transport",
                "under WSL and in containers such memory is limited, or cannot be mapped at all",
            ),
        )
    if m.requested is None and Sign.NCCL_CUMEM in scene.signs:
        return Diagnosis(
            Kind.UNCLEAR,
            "NCCL could not get memory as it set up its transport; whether the host's or the device's, the message does not say.",
            (
                "this release takes its buffers on the host through CUDA's virtual memory, which containers, WSL and some boards refuse with "
                "the same words",
                "if the devices have room at that moment, it is that",
            ),
        )
    found = _outside("NCCL (its buffers)")(m, scene)
    early = "at the first collective call the model is seldom to blame: see whether two ranks share the device, and who else is on it"
    return replace(found, because=(*found.because, early))


_OF_HOST = re.compile(
    r"(?i)\b(?:cu|cuda|hip|aclrt)?(?:Mem)?(?:HostAlloc|Malloc_?Host|AllocHost|HostMalloc|HostRegister)\w{0,20}\b|CachingHostAllocator|pin memory failed|Insufficient_Host_Memory"
)
"""Calls for pinned memory of the host."""
_MANY_REASONS = re.compile(r"\b(?:HSA_STATUS_ERROR|UR_RESULT_ERROR|PI_ERROR)_OUT_OF_RESOURCES\b")
_NOTHING_FREE = re.compile(r"Available Free mem ?: ?0 MB|(?i:out of (?:device )?memory)")


def _many_reasons(who: str) -> Diagnosis:
    return Diagnosis(
        Kind.UNCLEAR,
        f"{who} was out of resources, by which it means memory, a queue, a kernel's registers or a device that hangs.",
        ("the driver's own log tells them apart: `dmesg -T | tail`",),
    )


_PIN_CONTEXT = (
    "the error is the same if the context that pinning needs has no room on its device: `nvidia-smi` shows whether one is full"
)


def _full_card(scene: Scene) -> tuple[str, ...]:
    """A sentence about a device that nvidia-smi shows to be full; () where the log shows none."""
    full = scene.evidence.full
    return (
        ()
        if full is None
        else (f"nvidia-smi in the log shows a full device: {format_size(full[0])} of {format_size(full[1])}",)
    )


def _raw(m: Message, scene: Scene) -> Diagnosis:
    if scene.library and not m.writer:
        return _other_program(replace(m, writer=scene.library), scene)
    if Sign.DEVICE_BROKEN in scene.signs:
        return Diagnosis(
            Kind.UNCLEAR,
            "The device cannot be used at all: another error in the log says so, and it is not one of memory.",
            (
                "a driver in a bad state refuses any request, and may call it out of memory",
                "no model or batch is too large for that",
            ),
            refused=True,
        )
    beside = scene.evidence.beside
    if beside is not None:
        return Diagnosis(
            Kind.OTHER_PROCESSES,
            f"The program works on another device, but needs a context on device {beside[0]}, too, on which {format_size(beside[1])} are in use.",
            (
                "nvidia-smi's table in the log shows it there with a bare context, beside its memory on another device",
                "a call without a device, as pinning or a load, goes to the current device, which is 0 until it is set",
            ),
            shared=True,
        )
    if scene.stage == "pinning" or _OF_HOST.search(m.text) is not None:
        return Diagnosis(
            Kind.HOST_MEMORY,
            "Memory of the host could not be pinned (page-locked).",
            (
                "pinned memory is the host's, and cannot be swapped; containers, WSL and `ulimit -l` limit it",
                *(() if m.family is not Family.RAW or _OF_HOST.search(m.text) else (_PIN_CONTEXT,)),
            ),
        )
    if _MANY_REASONS.search(m.text) is not None and _NOTHING_FREE.search(m.text) is None:
        return _many_reasons("The device's runtime")
    if scene.stage == "context":
        return Diagnosis(
            Kind.OTHER_PROCESSES,
            "Not even the first use of the device succeeded: before this program had anything on it, there was no room.",
            (
                "the context of a process takes 0.3 to 0.6 GiB",
                "another process holds the device, or one that crashed still does",
            ),
        )
    if Sign.COLLECTIVE in scene.signs:
        return _nccl(m, scene)
    if _full_card(scene) and not m.writer and scene.activity is not Activity.ENGINE:
        free = sum(used < total / 20 for used, total in scene.evidence.cards)
        return Diagnosis(
            Kind.OTHER_PROCESSES,
            "The driver had no memory left: nvidia-smi in the log shows a full device.",
            (
                *_full_card(scene),
                *((f"{free} of the devices that it shows {'are' if free > 1 else 'is'} free",) if free else ()),
                "what it shows after this program has ended belongs to others; while the program runs, it may be the program's own",
            ),
            shared=True,
        )
    late = "such errors may be reported later than they happen, so the traceback can point elsewhere"
    if m.writer:
        found = _outside(m.writer)(m, scene)
        return replace(found, because=(*found.because, late))
    if "driver error" in m.text and Sign.SEGMENTS_SET in scene.signs:
        return Diagnosis(
            Kind.UNCLEAR,
            "The driver refused a call by which expandable segments map memory; that the device is full, the message does not say.",
            (
                "a device that is full is told by PyTorch itself, with figures",
                "some platforms refuse these calls with room left: boards that share the host's memory (Tegra), WSL, some of AMD's",
            ),
            refused=True,
        )
    return Diagnosis(
        Kind.OUTSIDE_CACHE,
        "The driver refused memory that was asked for outside PyTorch's cache.",
        (
            *_shown(scene, Sign.WSL),
            "it may be memory of the device (a context, a library's workspace, a graph) or pinned memory of the host: the error is the same",
            "PyTorch does not return idle cache for it, so a cache that fills the device leaves no room",
            late,
        ),
    )


def _batch_search(m: Message, scene: Scene) -> Diagnosis:
    hidden = "any error whose text contains the words it looks for counts as out of memory: read the first one in the log"
    if Sign.PROGRESSED in scene.signs:
        return Diagnosis(
            Kind.UNCLEAR,
            "The search for a batch size ended at zero after steps had run: the failure that started it is hidden.",
            (
                "what ran for some time fits, at least at first: an evaluation, a longer batch or something that grows came next",
                "each further try starts with what the failed ones still hold",
                hidden,
            ),
        )
    return Diagnosis(
        Kind.GENUINE,
        "Every batch size down to one failed: what is too large is the model, its optimizer, or what an earlier try still holds.",
        (
            "a smaller batch was tried already, and is no remedy",
            "the search repeats inside the handler's reach: what the failed try has stored outside its function stays",
            hidden,
        ),
    )


_SAYS_WHY = re.compile(r"(?i)oom|out of memory|RAM was full")
_LISTED = re.compile(r"\(2\) ")
"""The second item of a list: a launcher that does not know prints all that may have been."""
_SUPPOSED = re.compile(r"\bPerhaps\b|\bdue to high memory usage\b")


def _killed(m: Message, scene: Scene) -> Diagnosis:
    if scene.stage == "extension":
        return _BY_FAMILY[Family.COMPILER_KILLED](m, scene)
    if _LISTED.search(m.text) is not None:
        return Diagnosis(
            Kind.UNCLEAR,
            "A process ended, and the line lists what may have been the reason: that the host's memory ran out is only one of them.",
            (
                "the list is the launcher's, which does not know",
                "what that process printed last, and the kernel's log, tell more",
            ),
        )
    if _SAYS_WHY.search(m.text) is None:
        if Sign.ENDED_BY_OTHERS in scene.signs:
            return Diagnosis(
                Kind.UNCLEAR,
                "A process was killed, and the log shows that somebody ended the program: a time limit, a probe, a preemption or a signal.",
                ("whether memory ran out, too, only the system's own log says",),
            )
        if scene.earlier and not (Sign.STATE_ON_HOST in scene.signs or circumstances(scene, device=False)):
            return Diagnosis(
                Kind.UNCLEAR,
                "A process was killed after an error had been raised: a launcher ends the others when one has failed.",
                (
                    f"the error above: {scene.earlier}",
                    "a process that the system kills for its memory leaves no error of its own",
                ),
            )
    proof = "the kernel log names the reason: `dmesg -T | grep -i 'killed process'`"
    doubt = "that memory was the reason is likely, not certain: a person, a scheduler or a server's own timeout may send the same signal"
    certain = _SAYS_WHY.search(m.text) is not None and _SUPPOSED.search(m.text) is None
    return Diagnosis(
        Kind.HOST_MEMORY,
        "A process was killed from outside, as the system does when the host's memory runs out.",
        (
            *(() if certain else (doubt,)),
            *_shown(scene, Sign.LIMITED, Sign.LOADER, Sign.STATE_ON_HOST),
            *circumstances(scene, device=False),
            proof,
        ),
    )


def _gone(m: Message, scene: Scene) -> Diagnosis:
    if scene.earlier:
        return Diagnosis(
            Kind.UNCLEAR,
            "A worker process ended: by the error that stands above, or killed by the system as the host's memory ran out.",
            ("such a message comes whatever ended the worker: read the error above first", f"the error above: {scene.earlier}"),
        )
    if re.search(r"process pool|compilation subprocess|lost communication", m.text) is not None:
        return Diagnosis(
            Kind.UNCLEAR,
            "A worker process ended without a word: it crashed, or the system killed it, as it does when the host's memory runs out.",
            ("the kernel log names what the system killed: `dmesg -T | grep -i 'killed process'`",),
        )
    found = _killed(m, scene)
    return replace(
        found,
        headline="A worker process is missing, and no error of its own is in the log: most likely the system killed it, as the host's memory "
        "ran out.",
    )


def _kernel_killed(m: Message, scene: Scene) -> Diagnosis:
    held = (f"the process that it killed held {format_size(m.requested)}",) if m.requested is not None else ()
    return Diagnosis(
        Kind.HOST_MEMORY,
        "The memory of the host ran out, and the system killed a process.",
        (
            *held,
            *_shown(scene, Sign.LOADER),
            *circumstances(scene, device=False),
            "in a container or a job, its limit counts; under WSL, that of the virtual machine",
        ),
    )


def _compiler(m: Message, scene: Scene) -> Diagnosis:
    if "allocation failure" in m.text and Sign.EXTENSION not in scene.signs:
        return Diagnosis(
            Kind.UNCLEAR,
            "The compiler of GPU code could not get memory; it runs on the host, for an extension or for a kernel that is built as it is needed.",
            ("a program that has filled the host, or a limit on its addresses, leaves it none",),
        )
    return Diagnosis(
        Kind.HOST_MEMORY,
        "A compiler was killed while it built an extension: the memory of the host ran out.",
        ("one compiler per core runs by default, and each takes several GiB for templates of CUDA code",),
    )


def _bus_error(m: Message, scene: Scene) -> Diagnosis:
    others = "a file mapped into memory that was truncated, or a fault of the program itself, gives the same signal"
    if Sign.WORKERS not in scene.signs and re.search(r"DataLoader|\bpid|process was signaled", m.text) is None:
        return Diagnosis(
            Kind.UNCLEAR,
            "A bus error: a page of memory that the program had mapped could not be given to it. The log does not show which.",
            (
                "shared memory (/dev/shm) without room is the usual reason where loader workers or ranks pass data through it",
                others,
            ),
        )
    return Diagnosis(
        Kind.HOST_MEMORY,
        "A bus error: most often shared memory (/dev/shm) had no room for a page that was written.",
        ("loader workers and NCCL write there; containers have 64 MB of it by default", others),
    )


_ERRNO = re.compile(r"\((\d{1,3})\)|Errno (\d{1,3})\]")
_ROOM = {"0", "12", "27", "28"}
"""Numbers of errors that a lack of memory or of space gives: none, ENOMEM, EFBIG, ENOSPC."""


def _mapped(meaning: Callable[[Message, Scene], Diagnosis]) -> Callable[[Message, Scene], Diagnosis]:
    """``meaning``, unless the message has the number of an error that has nothing to do with memory."""

    def of(m: Message, scene: Scene) -> Diagnosis:
        found = (
            _ERRNO.search(m.text)
            if re.search(r"</?torch_|unable to mmap|shared memory object|shared memory segment|/dev/shm/nccl", m.text)
            else None
        )
        number = (found[1] or found[2]) if found is not None else ""
        few = m.requested is not None and m.requested < 64 * MIB
        if few and "unable to mmap" in m.text and (number == "12" or "Cannot allocate memory" in m.text):
            return Diagnosis(
                Kind.NOT_MEMORY,
                f"{format_size(m.requested or 0)} could not be mapped, which is no lack of memory: most likely a process has as many mappings as it may.",
                (
                    "each tensor that workers share is a mapping of its own; `sysctl vm.max_map_count` shows the limit, 65,530 by default",
                ),
            )
        if not number or number in _ROOM:
            return meaning(m, scene)
        return Diagnosis(
            Kind.NOT_MEMORY,
            "A file or a piece of shared memory could not be opened or mapped, and the reason that the system gives is not a lack of memory.",
            (f"the message ends with error {number}: a path, a right or a file system that cannot map files",),
        )

    return of


def _unnamed(m: Message, scene: Scene) -> Diagnosis:
    """What is certain of a message whose wording is not known."""
    whose = {"CPU": "of the host", "unknown": ""}.get(m.backend, "of the device")
    while_ = while_doing(scene)
    tag = _TAG.match(m.text)
    written = next((group for group in tag.groups() if group), "") if tag is not None else ""
    speaker = scene.library or (written if written.lower() not in _NO_NAMES else "")
    return Diagnosis(
        Kind.UNCLEAR,
        f"{'Memory ' + whose if whose else 'Memory'} ran out, or could not be had{' ' + while_ if while_ else ''}; the wording is none that this "
        "command knows, so it names no cause.",
        (
            *((f"{speaker} wrote the line",) if speaker else ()),
            *((f"the innermost call was in {scene.package}",) if scene.package else ()),
            *((f"asked for {format_size(m.requested)}",) if m.requested is not None else ()),
            *(() if whose else ("whether it is the device's memory or the host's, the line does not say",)),
            *circumstances(scene, device=m.backend != "CPU"),
        ),
    )


_TAG = re.compile(
    r"\W{0,2}(?:\[([A-Za-z][\w.-]{2,30})\]|([a-z_]\w{2,30})\.[\w.]{0,80}(?:Error|Exception)\b|([A-Za-z_]\w{2,30})::|([a-z][\w.-]{2,30})(?:\(\))?: )"
)
_NO_NAMES = frozenset(
    {"torch", "error", "info", "warning", "fatal", "exception", "runtimeerror", "what", "builtins", "main", "python", "rank"}
)


def _managed(m: Message, scene: Scene) -> Diagnosis:
    return Diagnosis(
        Kind.HOST_MEMORY,
        "bitsandbytes was refused unified memory, which its paged optimizer takes from host and device together.",
        (
            "the device may have room: pages that are not in use lie in the host's memory",
            "under WSL and Windows little of it can be had, so that a paged optimizer fails there first",
        ),
    )


def _library(m: Message, scene: Scene) -> Diagnosis:
    if Sign.ASSERTED in scene.signs:
        return _library_init(m, scene)
    found = _outside("A library (its handle or workspace)")(m, scene)
    doubt = "a kernel that failed before, as by an index beyond its table, seldom shows in the same way: run once with CUDA_LAUNCH_BLOCKING=1"
    return replace(found, because=(*_full_card(scene), *found.because, doubt))


def _library_init(m: Message, scene: Scene) -> Diagnosis:
    if Sign.ASSERTED in scene.signs:
        return Diagnosis(
            Kind.NOT_MEMORY,
            "A kernel failed before, so nothing more runs on the device; that a library could not start comes of it.",
            ("the assertion or the address error in the log is the cause: most often an index or a label out of range",),
        )
    if _full_card(scene):
        return Diagnosis(
            Kind.OUTSIDE_CACHE,
            "A CUDA library could not start, and the device is full: no memory was left for its handle.",
            (*_full_card(scene), "what the library needs does not come from PyTorch's cache, but must fit on the device, too"),
        )
    return Diagnosis(
        Kind.UNCLEAR,
        "A CUDA library could not start, most often because no memory was left for its handle.",
        (
            "an earlier kernel that failed, as by an index or a token beyond its table, and a wrong driver look the same: "
            "run once with CUDA_LAUNCH_BLOCKING=1",
        ),
    )


def _no_plan(m: Message, scene: Scene) -> Diagnosis:
    headline = (
        "cuDNN failed inside, as it also does when no memory is left for its kernels or its workspace."
        if "INTERNAL_ERROR" in m.text
        else "cuDNN found no algorithm that it can run, most often because none has room for its workspace."
    )
    return Diagnosis(
        Kind.UNCLEAR,
        headline,
        (
            "it says the same of a number format or a shape that the GPU does not support, and of mismatched library versions",
            "run the same line with a batch of one: if it works, memory was the reason",
        ),
    )


def _cap(m: Message, scene: Scene) -> Diagnosis:
    return Diagnosis(
        Kind.MEMORY_CAP,
        "PyTorch refused before it asked the driver: the request would exceed per_process_memory_fraction.",
        (
            *((f"asked for {format_size(m.requested)}",) if m.requested is not None else ()),
            "set in PYTORCH_CUDA_ALLOC_CONF with throw_on_cudamalloc_oom, or by set_per_process_memory_fraction",
        ),
    )


def _exabyte(m: Message, scene: Scene) -> Diagnosis:
    out_of_step = (
        "the size was received in a collective operation: ranks that are out of step read one another's data as a length",
    )
    return Diagnosis(
        Kind.OVERSIZED_REQUEST,
        "A size beyond 2^60 bytes was asked for: negative, or the product of garbage.",
        (
            *_shown(scene, Sign.TIMED_OUT),
            *(out_of_step if Sign.COLLECTIVE in scene.signs else ()),
            "sizes read from uninitialised or corrupted tensors, a negative length, an integer overflow in a shape",
        ),
    )


def _metal_buffer(m: Message, scene: Scene) -> Diagnosis:
    size = f"One buffer of {format_size(m.requested)}" if m.requested is not None else "One buffer"
    return Diagnosis(
        Kind.OVERSIZED_REQUEST,
        f"{size} is more than Metal allows in one piece.",
        (elements(m.requested, scene),) if m.requested is not None else ("an operation's arrays may have 4 GiB there",),
    )


def block_limit(m: Message, scene: Scene) -> Diagnosis:
    """One block that is larger than an Intel GPU gives, whatever is free."""
    size = f"One block of {format_size(m.requested)}" if m.requested is not None else "One block"
    return Diagnosis(
        Kind.OVERSIZED_REQUEST,
        f"{size} is more than many Intel GPUs give in one piece, which is 4 GiB; the device has room.",
        (
            *((elements(m.requested, scene),) if m.requested is not None else ()),
            "free memory makes no difference to that limit",
        ),
    )


def _dispatched(m: Message, scene: Scene) -> Diagnosis:
    map_ = "the device map was made from the memory that was free at that moment"
    if "whole model" in m.text:
        return Diagnosis(
            Kind.UNCLEAR,
            "The device map puts all weights on the disk: it found no device, or no room on any and on the host.",
            (map_, "where no device that it knows is there, it may say so of a small model, too"),
        )
    if "disk" in m.text and "CPU" not in m.text:
        return Diagnosis(
            Kind.GENUINE,
            "The weights fit neither on the devices nor into the host's memory: the device map puts a part of them on the disk.",
            (map_, "a checkpoint in 32 bits takes twice what its name says"),
        )
    return Diagnosis(
        Kind.GENUINE,
        "The weights do not fit on the device, quantized as they are: a part would have to stay on the host.",
        (map_,),
    )


def _pool(m: Message, scene: Scene) -> Diagnosis:
    while_ = while_doing(scene)
    size = f" of {format_size(m.requested)}" if m.requested is not None else ""
    return Diagnosis(
        Kind.GENUINE,
        f"The Gaudi's memory is used up: an allocation{size} failed{' ' + while_ if while_ else ''}.",
        ("one process has the whole device there, so what fills it is its own",),
    )


def _kernel(m: Message, scene: Scene) -> Diagnosis:
    if Sign.HANDLED in scene.signs:
        return Diagnosis(
            Kind.NOT_MEMORY,
            "Nothing failed: a candidate that needs more on-chip memory than this GPU has was dropped, and the program goes on.",
            ("autotuning tries many variants of a kernel, and keeps the fastest of those that run",),
        )
    numbers = (
        (f"one block of the kernel needs {m.requested:,} bytes, a multiprocessor has {m.allowed:,}",)
        if m.requested is not None and m.allowed is not None
        else ()
    )
    return Diagnosis(
        Kind.NOT_MEMORY,
        "A kernel needs more of the on-chip memory than this GPU has; device memory has room.",
        (*numbers, "neither smaller batches nor the allocator change that: the kernel's block sizes or stages do"),
    )


SMALLEST_SHARE = 0.1
"""A smaller part of a device is no setting for an engine: its context alone takes a hundredth or two."""


def share_that_fits(free: int, total: int) -> float:
    """The part of a device that is free, to hundredths, rounded down."""
    return int(100 * free / max(total, 1)) / 100


def _engine_share(m: Message, scene: Scene) -> Diagnosis:
    if m.free is None or m.total is None or m.requested is None:
        return Diagnosis(
            Kind.ENGINE_SETTINGS,
            f"{m.writer} found devices with unequal room: something else holds memory on some of them.",
            ("free them, or let the engine use others",),
        )
    held, share = m.total - m.free, share_that_fits(m.free, m.total)
    own = Sign.PARENT_ON_DEVICE in scene.signs
    parent = "the program had used the device itself before it started the engine: its own tensors and cache are the first to suspect"
    return Diagnosis(
        Kind.ENGINE_SETTINGS,
        f"{m.writer} is set to take {format_size(m.requested)} of the device, of which only {format_size(m.free)} are free.",
        (
            f"something else holds {format_size(held)} of {format_size(m.total)} ({percent(held, m.total)}) before the engine starts",
            *((f"with what is free now, a share of {share:.2f} would fit",) if share >= SMALLEST_SHARE else ()),
            *((parent,) if own else ()),
            "an earlier engine that still ends, another process, a desktop, or the memory that an integrated GPU shares with the host",
        ),
        shared=own,
    )


def _engine_length(m: Message, scene: Scene) -> Diagnosis:
    numbers = (
        (f"one sequence needs {format_size(m.requested)} of cache, {format_size(m.allowed)} are left for it",)
        if m.requested is not None and m.allowed is not None
        else ()
    )
    return Diagnosis(
        Kind.ENGINE_SETTINGS,
        "The longest sequence that the engine is to serve does not fit into what its settings leave for the cache of keys and values.",
        (*numbers, "weights and the engine's own buffers are taken off first, the rest of its share is the cache"),
    )


_CHECKED = re.compile(r"requires more (?:system )?memory|memory layout cannot be allocated")
"""What a program says that has only compared its estimate with what it takes for free."""


def is_check(m: Message) -> bool:
    """Whether a program refused by an estimate, before it allocated anything."""
    return m.family is Family.OTHER_PROGRAM and _CHECKED.search(m.text) is not None


_BUFFERS = {
    "weights": "the buffer that was refused is that of weights: context and cache have not been allocated yet",
    "cache": "the buffer that was refused is the cache of keys and values, which the context and the number of requests size",
    "compute": "the buffer that was refused is that for computing, which the batch and the context size",
    "picture": "the buffer that was refused is that of the pictures' encoder: what layers and context leave free must hold it, too",
}
_BLOCKS = "a driver may refuse one large block with room left on the device (Intel GPUs, Vulkan): see what is free beside it"


def _other_program(m: Message, scene: Scene) -> Diagnosis:
    if "CL_OUT_OF_RESOURCES" in m.text:
        return _many_reasons("OpenCL")
    if "signal: killed" in m.text:
        return Diagnosis(
            Kind.OTHER_PROGRAM,
            f"A process of {m.writer} was killed from outside, as the system does when the host's memory runs out.",
            ("what does not go to the devices lies there: layers, cache and buffers", "the message is not PyTorch's"),
        )
    size = f" {format_size(m.requested)}" if m.requested is not None else ""
    buffer = _BUFFERS.get(scene.stage, "") if m.writer == "llama.cpp" else ""
    if is_check(m):
        there = f", of which it sees {format_size(m.free)}" if m.free is not None else ""
        return Diagnosis(
            Kind.OTHER_PROGRAM,
            f"{m.writer} refused before it allocated anything: by its own estimate it needs{size or ' more'}{there or ' than there is'}.",
            (
                "free space on a disk does not count"
                if m.backend == "CPU"
                else "what others hold of the device counts against it",
                "such a check can be wrong on both sides: in a container, a program may count the page cache as used, or the machine's memory "
                "as its own",
                "the message is not PyTorch's",
            ),
        )
    return Diagnosis(
        Kind.OTHER_PROGRAM,
        f"{m.writer.replace('the ', 'The ', 1)} ran out of memory{size and ' asking for' + size}; the message is not PyTorch's.",
        (
            *((buffer,) if buffer else ()),
            *(("no device has that much: the size was computed wrongly",) if (m.requested or 0) >= TIB else ()),
            *((_BLOCKS,) if (m.backend == "XPU" or "ulkan" in m.text) and (m.requested or 4 * GIB) >= GIB else ()),
            "it has an allocator of its own: settings of PyTorch's, and advice about its cache, do not apply to it",
        ),
    )


def strangers(m: Message, scene: Scene) -> tuple[tuple[int, int, str], ...]:
    """What Ray lists beside its own workers that holds an eighth of the node, where the workers hold more: else it is the job's own program."""
    found = tuple(one for one in scene.evidence.listed if not one[2].startswith("ray::"))
    own = sum(size for size, _, _ in scene.evidence.listed) - sum(size for size, _, _ in found)
    return tuple(one for one in found if m.writer == "Ray" and own > one[0] >= (m.total or 0) / 8)


def _host_limit(m: Message, scene: Scene) -> Diagnosis:
    used = (
        (f"{format_size(m.allocated)} of {format_size(m.total)} were in use on the node",)
        if m.allocated is not None and m.total is not None
        else ()
    )
    listed = tuple(
        f"process {pid} ({command.strip()}) holds {format_size(size)}, and is none of Ray's workers"
        for size, pid, command in strangers(m, scene)
    )
    return Diagnosis(
        Kind.HOST_MEMORY,
        f"The host's memory reached the limit that {m.writer or 'the scheduler'} watches, and the process was ended from outside.",
        (
            *used,
            *listed,
            *_shown(scene, Sign.LOADER),
            *circumstances(scene, device=False),
            "the memory of a GPU does not count there, unless it is the host's own, as that of an integrated GPU is",
            "that of loader workers and of all ranks on the node does"
            if scene.trains
            else "that of all its processes does; a program that sizes its caches by the machine's memory does not see the limit",
        ),
    )


_BY_FAMILY: Mapping[Family, Callable[[Message, Scene], Diagnosis]] = {
    Family.ADDRESS_SPACE: _fixed(
        Kind.ADDRESS_SPACE,
        "Addresses ran out, not memory: expandable segments could not reserve their range.",
        "each stream reserves a range larger than the device; a limit on virtual memory or very many streams use them up",
    ),
    Family.EXABYTE: _exabyte,
    Family.HANDLED: _handled,
    Family.PREEMPTED: _cap,
    Family.BARE: without_figures,
    Family.LEGACY: _fixed(
        Kind.UNCLEAR, "Device memory ran out; torch before 1.0 gives no figures.", "run it under a newer torch to read them"
    ),
    Family.UNREPORTED: _fixed(
        Kind.UNCLEAR,
        "Device memory ran out, and the report about it failed too: the driver's NVML does not answer here.",
        "usual on MIG slices, on Jetson and in containers without NVML",
    ),
    Family.ASSERTION: _fixed(
        Kind.UNCLEAR,
        "A check inside PyTorch's caching allocator failed; that memory ran out, the message does not say.",
        "seen where settings do not go together, as expandable_segments with max_split_size_mb, once the device is nearly full",
        "after an earlier error of memory in the same process, it comes of that",
    ),
    Family.MPS_BUFFER: _metal_buffer,
    Family.MPS_COMMAND: _fixed(
        Kind.GENUINE,
        "A command of the Apple GPU ran out of memory, which the GPU shares with the system.",
        "Metal reports it when the command runs, not when memory is allocated, so the traceback may be later than the cause",
    ),
    Family.BLOCK_LIMIT: block_limit,
    Family.DIRECTML: lambda m, scene: Diagnosis(
        Kind.UNCLEAR,
        f"The GPU's video memory had no room for a tensor{' ' + while_doing(scene) if while_doing(scene) else ''}; DirectML does not say "
        "who holds the rest.",
        (f"asked for {format_size(m.requested)}",) if m.requested is not None else (),
    ),
    Family.WORKSPACE: _outside("An operator (its workspace)"),
    Family.POOL: _pool,
    Family.RAW: _raw,
    Family.LIBRARY: _library,
    Family.NCCL: _nccl,
    Family.LIBRARY_INIT: _library_init,
    Family.NO_PLAN: _no_plan,
    Family.KERNEL: _kernel,
    Family.BATCH_SEARCH: _batch_search,
    Family.MANAGED: _managed,
    Family.KERNEL_KILLED: _kernel_killed,
    Family.DISPATCHED: _dispatched,
    Family.ENGINE_WEIGHTS: _fixed(
        Kind.ENGINE_SETTINGS,
        "The weights do not fit on the device: the engine ended before it had any cache.",
        "what the engine's other settings take comes after the weights, and changes nothing here",
    ),
    Family.ENGINE_SHARE: _engine_share,
    Family.ENGINE_CACHE: _fixed(
        Kind.ENGINE_SETTINGS,
        "Weights and the engine's own buffers use up its share of the device: nothing is left for the cache of keys and values.",
        "the share, not the device, is the limit; the weights must leave room in it",
    ),
    Family.ENGINE_SPLIT: _fixed(
        Kind.ENGINE_SETTINGS,
        "Weights and the cache for the longest sequence do not fit into the parts of the devices that the engine may fill.",
        "it tries each device in turn, with room for a pass of the model beside them, so that some of it is left free",
    ),
    Family.ENGINE_LENGTH: _engine_length,
    Family.ENGINE_WARMUP: _fixed(
        Kind.ENGINE_SETTINGS,
        "The engine's warm-up ran the largest batch that its settings allow, and it does not fit.",
        "the cache was given its share before, so the warm-up has only what that leaves",
    ),
    Family.ENGINE_FULL: _fixed(
        Kind.ENGINE_SETTINGS,
        "The engine's cache of keys and values has no room for another batch.",
        "the pool has a fixed size from the start: the device may have room outside it",
    ),
    Family.ENGINE_PROFILE: _fixed(
        Kind.ENGINE_SETTINGS,
        "The engine's measurement was disturbed: while it ran, something else on the device freed memory.",
        "memory did not run out; the engine does not trust its figures",
        "an earlier process that was still ending, or a neighbour on the same device",
    ),
    Family.ENGINE_WAKE: _fixed(
        Kind.ENGINE_SETTINGS,
        "The engine slept, and cannot take its share of the device back: what runs beside it holds too much.",
        "a trainer in the same process keeps weights, optimizer state and its idle cache there while the engine wakes",
    ),
    Family.ENGINE_WAITS: lambda m, scene: Diagnosis(
        Kind.ENGINE_SETTINGS,
        "The engine survived this: its cache of keys and values was full, and requests wait and are computed again.",
        ("no request fails by it, but the work that is repeated costs time",),
        survived=True,
    ),
    Family.ENGINE_SLOTS: _fixed(
        Kind.ENGINE_SETTINGS,
        "The engine has no slot left for another request: a table of a fixed size is full, not the device.",
        "the table is sized for the most requests at a time that its settings allow",
    ),
    Family.ENGINE_COMPONENT: _fixed(
        Kind.ENGINE_SETTINGS,
        "A part of the engine could not be created in the memory that was left to it; the message names the part and what the others took.",
        "each part has a setting of its own, and the cache takes a share of what is free when its turn comes",
    ),
    Family.ENGINE_SWAP: _fixed(
        Kind.HOST_MEMORY,
        "The space that the engine is to set aside on the host for swapping is most of the host's memory.",
        "it is set aside for each GPU of the node",
    ),
    Family.OTHER_PROGRAM: _other_program,
    Family.CPU: _host,
    Family.HOST_ARRAY: _mapped(_host),
    Family.HOST_LIMIT: _host_limit,
    Family.PAGING_FILE: _fixed(
        Kind.HOST_MEMORY,
        "Windows could not promise more memory: RAM and the paging file together are used up.",
        "each process that imports torch with CUDA reserves some GiB for its libraries, and each loader worker is one",
        "Windows counts reserved memory, so Task Manager may show free RAM",
    ),
    Family.OBJECT_STORE: _fixed(
        Kind.HOST_MEMORY,
        "The object store of Ray is full: objects that are still referenced fill its share of the host's memory.",
        "it lies in /dev/shm, 30 % of the host's memory by default",
    ),
    Family.COMPILER_KILLED: _compiler,
    Family.SHARED_MEMORY: _mapped(
        _fixed(
            Kind.HOST_MEMORY,
            "Shared memory (/dev/shm) ran out: loader workers pass their batches through it.",
            "containers have 64 MB of it by default",
        )
    ),
    Family.NCCL_SHARED_MEMORY: _mapped(
        _fixed(
            Kind.HOST_MEMORY,
            "Shared memory (/dev/shm) ran out: NCCL passes data between the ranks of a node through it.",
            "containers have 64 MB of it by default, and killed runs leave their segments behind",
        )
    ),
    Family.BUS_ERROR: _bus_error,
    Family.UNNAMED: _unnamed,
    Family.DESCRIPTORS: _fixed(
        Kind.NOT_MEMORY,
        "The limit of open files is reached, not that of memory: each tensor that a worker shares holds a file descriptor.",
    ),
    Family.LOCKED: _fixed(
        Kind.HOST_MEMORY,
        "A network card could not register memory, most often because the limit of locked memory is reached; memory itself did not run out.",
        "such memory must not be swapped; `ulimit -l` shows the limit, of the daemon that started the job if there is one",
        "if it is unlimited, the driver or the kernel refuses: `dmesg -T | tail`",
    ),
    Family.THREAD_STORAGE: _fixed(
        Kind.NOT_MEMORY,
        "A library could not be loaded: the space that the loader keeps for variables of threads is used up, which is not memory.",
        "the order in which libraries are loaded decides which of them find room",
    ),
    Family.WORKER_KILLED: _killed,
    Family.WORKER_GONE: _gone,
}
