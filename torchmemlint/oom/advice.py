"""What to change for each kind of failure, in the order in which it pays to look, given what was running.

What makes room is in the table of `room`; here is what depends on the kind of failure, and the settings of engines and other programs.
``expandable_segments`` is offered for fragmentation alone, and ``empty_cache`` only where somebody else than PyTorch's allocator was
refused: before that raises, it has returned everything that ``empty_cache`` could.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchmemlint.oom import remedies as take
from torchmemlint.oom.diagnose import driver_request, elsewhere, holders, in_large_pieces, ranks_on_first, waiting
from torchmemlint.oom.engines import ENGINES, LLAMA_ELSEWHERE, MEDIA_ENGINES, OTHER_PROGRAMS
from torchmemlint.oom.meanings import SMALLEST_SHARE, Diagnosis, Kind, is_check, share_that_fits, strangers
from torchmemlint.oom.messages import Message
from torchmemlint.oom.remedies import Remedy
from torchmemlint.oom.room import FROM_OUTSIDE, Facts, loads, room_on_device, room_on_host
from torchmemlint.oom.scene import Activity, Scene
from torchmemlint.oom.signs import Sign
from torchmemlint.oom.wordings import Family
from torchmemlint.rules.card import Advice


@dataclass(frozen=True, slots=True)
class _Device:
    """How a backend's device is called in torch, and its variables and tools; "" where it has none."""

    name: str
    visible: str
    tool: str
    config: str
    emptied: str


_DEVICES = {
    "CUDA": _Device("cuda", "CUDA_VISIBLE_DEVICES", "nvidia-smi", "PYTORCH_CUDA_ALLOC_CONF", "torch.cuda.empty_cache()"),
    "HIP": _Device("cuda", "HIP_VISIBLE_DEVICES", "rocm-smi --showpids", "PYTORCH_HIP_ALLOC_CONF", "torch.cuda.empty_cache()"),
    "XPU": _Device("xpu", "ZE_AFFINITY_MASK", "xpu-smi ps", "PYTORCH_ALLOC_CONF", "torch.xpu.empty_cache()"),
    "NPU": _Device("npu", "ASCEND_RT_VISIBLE_DEVICES", "npu-smi info", "PYTORCH_NPU_ALLOC_CONF", "torch.npu.empty_cache()"),
    "HPU": _Device("hpu", "HABANA_VISIBLE_MODULES", "hl-smi", "", ""),
    "NEURON": _Device("xla", "NEURON_RT_VISIBLE_CORES", "neuron-top", "", ""),
    "MLU": _Device("mlu", "MLU_VISIBLE_DEVICES", "cnmon", "PYTORCH_MLU_ALLOC_CONF", "torch.mlu.empty_cache()"),
    "MUSA": _Device("musa", "MUSA_VISIBLE_DEVICES", "mthreads-gmi", "PYTORCH_MUSA_ALLOC_CONF", "torch.musa.empty_cache()"),
    "MPS": _Device("mps", "", "memory_pressure", "", "torch.mps.empty_cache()"),
    "device": _Device("cuda", "", "vulkaninfo, or the driver's own tool", "", ""),
    "DirectML": _Device("privateuseone", "", "", "", ""),
}


def _device(message: Message) -> _Device:
    return _DEVICES.get(message.backend, _DEVICES["CUDA"])


def remedies_for(message: Message, diagnosis: Diagnosis, scene: Scene | None = None) -> tuple[Remedy, ...]:
    """The remedies for a diagnosis of what happened in ``scene``, the first to try first."""
    scene = scene or Scene()
    found = _not_in_force(_by_kind(message, diagnosis, scene), scene)
    if not loads(Facts(message, scene)):
        found = tuple(remedy for remedy in found if remedy is not take.FEWER_WORKERS) or found
    if diagnosis.survived:
        found = (take.SELDOM, *found)
    elif Sign.ALLOCATOR_BROKEN in scene.signs:
        found = (*found[:1], take.RESTART_PROCESS, *found[1:])
    device = _device(message)
    words = (('"cuda"', f'"{device.name}"'), ("nvidia-smi", device.tool or "nvidia-smi"))
    return tuple(dict.fromkeys(_with_words(remedy, words) for remedy in found))[:MOST]


def _with_words(remedy: Remedy, words: Sequence[tuple[str, str]]) -> Remedy:
    """``remedy`` with the words of CUDA in its code replaced by those of the message's device."""
    code = remedy.code
    for cuda, own in words:
        code = code.replace(cuda, own)
    return replace(remedy, code=code)


MOST = 7
"""Remedies for one failure: what comes later in a list pays seldom."""


_IN_FORCE: Mapping[Sign, tuple[Remedy, ...]] = {
    Sign.CHECKPOINTED: (take.CHECKPOINTING, take.RECOMPUTE_IF_TRAINING),
    Sign.ONE_SAMPLE: (take.SMALLER_BATCHES,),
    Sign.HALF_SET: (take.MIXED_PRECISION, take.SIXTEEN_BITS),
    Sign.OFFLOAD_SET: (take.OFFLOAD,),
    Sign.QUANTIZED: (take.WEIGHTS_IN_FEWER_BITS,),
    Sign.UNIFIED: (take.OFFLOAD,),
}
"""What a log shows → the remedies that would only say again what is done already, or that gain nothing there."""


def _not_in_force(found: tuple[Remedy, ...], scene: Scene) -> tuple[Remedy, ...]:
    done = {remedy for sign in scene.signs for remedy in _IN_FORCE.get(sign, ())}
    one = Sign.ONE_SAMPLE in scene.signs
    kept = (take.INFER_LESS_OF_ONE if one and remedy == take.INFER_LESS else remedy for remedy in found if remedy not in done)
    return tuple(kept) or found


def _by_kind(message: Message, diagnosis: Diagnosis, scene: Scene) -> tuple[Remedy, ...]:
    room = _room(message, scene)
    match diagnosis.kind:
        case Kind.GENUINE:
            if waiting(message, scene):
                return (take.LESS_ON_OTHER_STREAMS, *room[:3])
            return (*_batch_search(message, scene), *_beside_others(message, room))
        case Kind.FRAGMENTATION:
            # One call on one input has no sizes that vary from step to step.
            steady = (
                () if scene.activity is Activity.INFERENCE and Sign.PROGRESSED not in scene.signs else (take.STEADY_SHAPES,)
            )
            resumed = tuple(remedy for remedy in room if remedy is take.RELEASE_CHECKPOINT)
            if Sign.ROLLOUTS in scene.signs and scene.trains:
                return (*resumed, *steady, take.NO_GRAPH_PAST_ITS_STEP, *_expandable(message, scene), *room[:4])
            return (*resumed, *_expandable(message, scene), *steady, *room[:4], *(() if steady else (take.STEADY_SHAPES,)))
        case Kind.PARTLY_FRAGMENTATION:
            # An engine's shapes are its own, and its list has the allocator's setting.
            engine = scene.activity is Activity.ENGINE
            return room if engine else (*room[:4], *_expandable(message, scene), take.STEADY_SHAPES)
        case Kind.OWN_RANKS:
            if Sign.TEST_WORKERS in scene.signs:
                return (take.FEWER_TEST_WORKERS, take.SHOW_ONE_DEVICE)
            if scene.stage == "restored":
                return (take.LOAD_ONTO_OWN_DEVICE, take.SET_DEVICE, take.SHOW_ONE_DEVICE, *_other_processes(message)[:1])
            beside = holders(message)
            if beside is not None and not beside.ranks and scene.evidence.workers:
                engine = any(_SERVES.search(name) for pid, name in scene.evidence.workers if pid in dict(beside.named))
                kept = tuple(
                    remedy for remedy in room if remedy is not take.NO_GRAPH_PAST_ITS_STEP
                )  # what grows is the other's
                return (take.ENGINE_GIVES_BACK if engine else take.SHARE_WITH_WORKERS, *kept[:3])
            if scene.activity is Activity.LOADING:
                return (take.LOAD_ONTO_OWN_DEVICE, take.SET_DEVICE, take.ALL_DEVICES_VISIBLE, take.SHOW_ONE_DEVICE)
            return (take.SET_DEVICE, take.ALL_DEVICES_VISIBLE, take.LOAD_ONTO_OWN_DEVICE, take.SHOW_ONE_DEVICE)
        case Kind.OTHER_PROCESSES:
            if scene.evidence.beside is not None and message.family is Family.RAW:
                return (take.SET_DEVICE, take.SHOW_ONE_DEVICE, *_other_processes(message)[:1])
            own = (take.SET_DEVICE,) if ranks_on_first(message, scene) else ()
            asked = elsewhere(message, scene)
            if asked is not None:
                find, free = _other_processes(message)
                return (replace(free, code=f"{_device(message).visible}={asked} python …        # it is device 0 there"), find)
            return (*own, *_other_processes(message), *(room[:4] if diagnosis.shared else ()))
        case Kind.MEMORY_CAP:
            return (_limit(message), *room)
        case Kind.OVERSIZED_REQUEST:
            return _oversized(message, scene)
        case Kind.ENGINE_SETTINGS:
            stage = _STAGE_OF_FAMILY.get(message.family, scene.stage)
            if stage == "profile" and "sampler" in message.text:
                stage = "sampler"
            return _engine(message.writer, stage, message, scene)
        case Kind.OUTSIDE_CACHE:
            return _outside(message, scene, room)
        case Kind.ADDRESS_SPACE:
            return (_ADDRESSES,)
        case Kind.HOST_MEMORY:
            return _host(message, scene)
        case Kind.OTHER_PROGRAM:
            return _other_program(message if message.writer else replace(message, writer=scene.library), scene)
        case Kind.NOT_MEMORY:
            if message.family is Family.KERNEL:
                return (take.NOTHING_TO_DO,) if Sign.HANDLED in scene.signs else (take.SMALLER_KERNEL,)
            if message.family is Family.DESCRIPTORS:
                return (take.FEWER_DESCRIPTORS, take.FEWER_WORKERS)
            if message.family is Family.THREAD_STORAGE:
                return (take.LOAD_FIRST,)
            if message.family in (Family.SHARED_MEMORY, Family.NCCL_SHARED_MEMORY, Family.HOST_ARRAY):
                return (take.MORE_MAPPINGS,) if "Cannot allocate memory" in message.text else (take.OPEN_FILE,)
            return (take.FIND_THE_PLACE, take.CHECK_INDICES)
        case Kind.UNCLEAR:
            return _unclear(message, diagnosis, scene, room)


_SERVES = re.compile(r"(?i)vllm|sglang|rollout|generat|infer|engine|serv|sampler")
"""Names of workers that generate, beside one that trains."""


_UNCLEAR: tuple[tuple[Callable[[Message, Diagnosis, Scene], object], tuple[Remedy, ...], int, tuple[Remedy, ...]], ...] = (
    (lambda m, d, s: d.doubted and s.evidence.pool, (take.CHECK_TOTAL,), 0, ()),
    (lambda m, d, s: d.doubted, (take.CHECK_TOTAL, take.SHAPES), 0, ()),
    (lambda m, d, s: d.refused and Sign.DEVICE_BROKEN in s.signs, (take.RESTART_DRIVER, take.FIND_THE_PLACE), 0, ()),
    (lambda m, d, s: d.refused and m.family is Family.RAW, (take.WITHOUT_SEGMENTS, take.WHAT_IS_FREE), 0, ()),
    (
        lambda m, d, s: d.refused and m.total and (m.reserved or m.allocated or 0) > m.total / 4,
        (take.CHECK_DRIVER, take.READ_FIGURES),
        MOST,
        (),
    ),
    (lambda m, d, s: d.refused, (take.CHECK_DRIVER, take.READ_FIGURES), 0, ()),
    (
        lambda m, d, s: m.family is Family.NCCL,
        (take.NCCL_WITHOUT_HOST_MEMORY, take.WHAT_IS_FREE, take.LEAVE_ROOM_FOR_NCCL),
        0,
        (),
    ),
    (
        lambda m, d, s: Sign.UNIFIED in s.signs and m.total is not None,
        (take.WHO_USES_SHARED_MEMORY, take.NOTHING_TWICE),
        MOST,
        (),
    ),
    (lambda m, d, s: m.family is Family.WORKER_KILLED and Sign.ENDED_BY_OTHERS in s.signs, (take.WHO_KILLED,), 0, ()),
    (lambda m, d, s: m.family is Family.WORKER_KILLED and not s.earlier, (take.READ_WORKER_LOG, take.WHO_KILLED), 0, ()),
    (lambda m, d, s: m.family is Family.WORKER_KILLED, (take.READ_ERROR_ABOVE, take.WHO_KILLED), 0, ()),
    (lambda m, d, s: m.family is Family.WORKER_GONE, (take.READ_ERROR_ABOVE, take.WHO_KILLED, take.FEWER_WORKERS), 0, ()),
    (lambda m, d, s: m.family is Family.LIBRARY_INIT, (take.WHAT_IS_FREE, take.CHECK_INDICES), 3, (take.SHARD_WEIGHTS,)),
    (lambda m, d, s: m.family is Family.DIRECTML, (), MOST, ()),
    (lambda m, d, s: m.family is Family.ASSERTION, (take.ONE_SETTING,), 0, ()),
    (lambda m, d, s: m.family is Family.BUS_ERROR, (take.SEE_SHARED_MEMORY,), 0, ()),
    (lambda m, d, s: m.family is Family.COMPILER_KILLED, (take.FREE_ON_HOST, take.FEWER_COMPILERS), 0, ()),
    (lambda m, d, s: m.family is Family.DISPATCHED, (take.WHAT_IS_FREE, take.WEIGHTS_IN_FEWER_BITS), 0, ()),
    (lambda m, d, s: m.family is Family.OTHER_PROGRAM, (take.READ_DRIVER_LOG,), 0, ()),
    # A wording that is not known: without a traceback it may be any program's line.
    (lambda m, d, s: m.family is Family.UNNAMED and m.backend == "CPU", (take.FREE_ON_HOST,), 0, ()),
    (lambda m, d, s: m.family is Family.UNNAMED and s.library, (take.WHAT_IS_FREE,), 0, ()),
    (
        lambda m, d, s: m.family is Family.UNNAMED and m.backend != "unknown" and s.activity is not Activity.UNKNOWN,
        (take.WHAT_IS_FREE, take.READ_FIGURES),
        MOST,
        (),
    ),
    (lambda m, d, s: m.family is Family.UNNAMED and s.raised, (take.WHAT_IS_FREE, take.READ_FIGURES), 0, ()),
    (lambda m, d, s: m.family is Family.UNNAMED, (take.WHAT_IS_FREE,), 0, ()),
    (lambda m, d, s: m.family is Family.RAW, (take.READ_DRIVER_LOG, take.FIND_THE_PLACE), 0, ()),
    (
        lambda m, d, s: m.family is Family.ASYNC and m.total is not None and s.trains,
        (take.STEADY_SHAPES, take.NATIVE_ALLOCATOR),
        MOST,
        (take.READ_FIGURES,),
    ),
    (
        lambda m, d, s: m.family is Family.ASYNC and m.total is None and s.activity is Activity.UNKNOWN,
        (take.NATIVE_ALLOCATOR, take.READ_FIGURES),
        MOST,
        (),
    ),
    (lambda m, d, s: s.activity is Activity.UNKNOWN, (take.READ_FIGURES,), MOST, ()),
    (
        lambda m, d, s: m.family is Family.ASYNC and m.total is None,
        (),
        MOST,
        (take.NATIVE_ALLOCATOR, take.READ_FIGURES),
    ),
    (lambda m, d, s: True, (), MOST, (take.READ_FIGURES,)),
)
"""What tells more where no cause is named, by the first condition that holds: before what makes room, how much of that, and behind it."""


def _unclear(message: Message, diagnosis: Diagnosis, scene: Scene, room: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    if message.family is Family.BATCH_SEARCH:
        return _batch_search(message, scene)
    before, part, behind = next(row[1:] for row in _UNCLEAR if row[0](message, diagnosis, scene))
    return (*before, *room[:part], *behind)


def _oversized(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    if message.family is Family.EXABYTE and Sign.COLLECTIVE in scene.signs:
        return (take.RANKS_IN_STEP, take.PRINT_RECEIVED)
    absurd = message.total is not None and message.requested is not None and message.requested >= 256 * message.total
    if absurd or message.family is Family.EXABYTE:
        return (take.PRINT_SIZES, take.SHAPES)
    if message.family is Family.BLOCK_LIMIT or (message.backend == "XPU" and (message.requested or 0) < (message.total or 0)):
        return (take.SMALLER_BLOCKS, take.SHAPES)
    less = (take.INFER_LESS,) if scene.activity is Activity.INFERENCE else ()
    if scene.attention:
        return (*less, take.CHUNK_QUERIES, take.SHAPES)
    return (take.SHAPES, take.FUSED_ATTENTION, *less)


def _beside_others(message: Message, room: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """``room``, and after its first item the others on the device if what they hold would have been enough."""
    beside = holders(message)
    if beside is None or message.total is None or message.requested is None:
        return room
    held = sum(size for _, size in beside.named)
    if held <= message.total / 20 or held + (message.free or 0) < driver_request(message.requested):
        return room
    return (*room[:1], *_other_processes(message)[:1], *room[1:])


def _room(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    """What makes room on a device, for what was running there."""
    if message.family is Family.BATCH_SEARCH:
        return ()
    if scene.activity is Activity.ENGINE:
        settings = _engine(scene.engine, scene.stage, message, scene)
        joined = _expandable(message, scene) if in_large_pieces(message, scene) else ()
        # Requests of all sizes cut the cache up; before the first one its pieces are the engine's own.
        first = 0 if scene.stage == "serving" else 1
        return (*settings[:first], *joined, *settings[first:])
    return room_on_device(message, scene)


def _batch_search(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    if message.family is not Family.BATCH_SEARCH:
        return ()
    if Sign.PROGRESSED in scene.signs:
        return (take.WITHOUT_SEARCH, take.SMALLER_EVALUATION, take.NOTHING_BETWEEN_TRIES)
    return (
        take.WEIGHTS_IN_FEWER_BITS,
        take.OPTIMIZER_STATE,
        take.SHARD_WEIGHTS,
        take.OFFLOAD,
        take.NOTHING_BETWEEN_TRIES,
        take.CHECKPOINTING,
    )


def _expandable(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    """The setting that lets segments grow; () where the log says that the platform has none."""
    if Sign.SEGMENTS_REFUSED in scene.signs:
        return ()
    return (_segments(message, scene),)


def _segments(message: Message, scene: Scene) -> Remedy:
    if Sign.SEGMENTS_SET in scene.signs:
        return take.SEGMENTS_TAKE_EFFECT
    if message.text.endswith("cached)"):
        return take.NEWER_TORCH  # the wording of torch 1.0 to 1.3
    variable = _device(message).config or "PYTORCH_ALLOC_CONF"
    if message.family is Family.PARENTHESES and message.backend in ("CUDA", "HIP"):
        return Remedy(
            "Let segments grow, or cut them less",
            "expandable_segments needs torch 2.1 and this message is from an older one: upgrade, or bound the pieces",
            f"export {variable}=max_split_size_mb:128        # torch 1.10 to 2.0\n"
            f"export {variable}=expandable_segments:True     # torch 2.1 and later, not on Windows",
            Advice.SEGMENTS,
        )
    return Remedy(
        "Let segments grow instead of adding new ones",
        "the idle pieces then join into one range; it must be set before torch is imported, and Windows ignores it"
        + ("; torch 2.10 and later also read it from PYTORCH_ALLOC_CONF" if variable == "PYTORCH_CUDA_ALLOC_CONF" else "")
        + (
            "; where an engine that sleeps lives in the process, its memory pool does not go with it"
            if Sign.ROLLOUTS in scene.signs
            else ""
        ),
        f"export {variable}=expandable_segments:True",
        Advice.SEGMENTS,
    )


def _other_processes(message: Message) -> tuple[Remedy, ...]:
    pids = " ".join(str(pid) for pid, _ in message.processes[:8])
    device = _device(message)
    return (
        Remedy(
            "Find the processes on the device, and end those that are left over",
            "a crashed run, a notebook's kernel or a loader worker keeps its memory until it exits",
            device.tool + (f"; ps -o pid,user,etime,args -p {pids.replace(' ', ',')}" if pids else ""),
        ),
        Remedy(
            "Take a free device",
            "no change in the program frees memory of other processes; a container should see its own devices only",
            f"{device.visible or 'CUDA_VISIBLE_DEVICES'}=1 python train.py",
        ),
    )


def _limit(message: Message) -> Remedy:
    name = _device(message).name
    return Remedy(
        "Raise or remove the limit",
        "a limit lowers the limit, not the memory that a step needs; look for set_per_process_memory_fraction, for "
        f"per_process_memory_fraction in {_device(message).config or 'PYTORCH_ALLOC_CONF'}, and for a limit of the platform "
        "(MIG, vGPU, a scheduler)",
        f"torch.{name}.set_per_process_memory_fraction(1.0)    # undoes an earlier call",
        Advice.LIMIT,
    )


_ADDRESSES = Remedy(
    "Raise the limit on virtual memory, or disable expandable segments",
    "they reserve addresses for more than the whole device, per stream",
    "ulimit -v unlimited\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
    Advice.SEGMENTS,
)


def _outside(message: Message, scene: Scene, room: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    if message.family is Family.NCCL:
        # Before the first step, what a step needs is not there yet.
        running = room if scene.stage in ("forward", "backward", "optimizer", "gradients") else ()
        trains = scene.activity is Activity.TRAINING and scene.raised and message.requested is not None
        return (
            *((take.MARGIN_FOR_COLLECTIVES,) if trains else ()),
            take.LEAVE_ROOM_FOR_NCCL,
            *_other_processes(message)[:1],
            *running,
        )
    if message.backend == "MPS":
        # Graphs pile up in a program that runs on; one large call takes buffers.
        kept = tuple(
            remedy for remedy in room if remedy not in (take.NO_GRAPH_IN_INFERENCE, take.WEIGHTS_IN_FEWER_BITS, take.OFFLOAD)
        )
        many = Sign.PROGRESSED in scene.signs or scene.activity is not Activity.INFERENCE
        return (take.FEWER_METAL_GRAPHS, *kept) if many else (*kept[:2], take.FEWER_METAL_GRAPHS)
    if message.family is Family.WORKSPACE:
        return room
    if message.family is Family.RAW:
        if Sign.COLLECTIVE in scene.signs:
            return (take.LEAVE_ROOM_FOR_NCCL, *_other_processes(message)[:1], take.SET_DEVICE)
        if scene.activity is Activity.ENGINE:
            return (*room, *_other_processes(message)[:1])
        if scene.stage == "restored":
            return (take.LOAD_ONTO_OWN_DEVICE, *_other_processes(message), *room)
        if Sign.WSL in scene.signs:
            return (take.MORE_FOR_WSL, take.LESS_PINNED, take.FIND_THE_PLACE, *_other_processes(message)[:1], *room)
        pinned = (take.LESS_PINNED,) if Sign.OFFLOADED in scene.signs or not message.writer else ()
        if scene.activity is Activity.LOADING:
            return (*_other_processes(message), *room[:2], *pinned, take.FIND_THE_PLACE)
        return (take.WHAT_IS_FREE, *pinned, *_other_processes(message)[:1], *room[:3], take.FIND_THE_PLACE)
    return (*room[:1], take.LEAVE_ROOM, *_other_processes(message)[:1], *room[1:])


_STAGE_OF_FAMILY = {
    Family.ENGINE_SHARE: "share",
    Family.ENGINE_CACHE: "no cache",
    Family.ENGINE_SPLIT: "split",
    Family.ENGINE_LENGTH: "length",
    Family.ENGINE_WARMUP: "profile",
    Family.ENGINE_FULL: "full",
    Family.ENGINE_PROFILE: "disturbed",
    Family.ENGINE_WAITS: "full",
    Family.ENGINE_SLOTS: "slots",
    Family.ENGINE_WEIGHTS: "weights",
    Family.ENGINE_WAKE: "wake",
}
_ORDER = {
    "weights": ("shard", "quant", "offload"),
    "share": ("others", "share down"),
    "most of a share": ("share down", "others"),
    "beside training": ("share down", "trainer", "quant"),
    "no cache": ("share up", "quant", "shard", "length", "cache"),
    "split": ("length", "cache", "quant", "tokens", "shard"),
    "length": ("length", "share up", "cache", "quant", "shard"),
    "graphs": ("share down", "graphs", "seqs"),
    "cache": ("share down", "length", "quant", "shard"),
    "component": ("tokens", "seqs", "graphs", "share down", "shard"),
    "serving": ("share down", "tokens", "seqs", "length", "cache", "shard"),
    "profile": ("media", "tokens", "seqs", "length", "share down"),
    "sampler": ("seqs", "share down", "length"),
    "slots": ("seqs",),
    "full": ("seqs", "tokens", "share up", "cache"),
    "disturbed": ("others",),
    "wake": ("share down", "trainer"),
    "": ("share down", "seqs", "tokens", "length", "graphs", "cache", "shard"),
}
"""Stage of an engine → what to set, in this order. The share goes up where the engine's own part is too small, and down where what
it needs outside of that part is."""
_SETTINGS = {
    "length": ("Serve shorter sequences", "the cache and the warm-up are sized for the longest", "length", "8192"),
    "seqs": ("Serve fewer sequences at a time", "buffers for logits and sampling are sized for all of them", "seqs", "64"),
    "tokens": ("Prefill fewer tokens at a time", "activations of a prefill scale with them", "tokens", "2048"),
    "media": (
        "Allow fewer or smaller pictures in a prompt",
        "the encoder's part of the warm-up has the most and the largest that a prompt may hold",
        "media",
        "",
    ),
    "share up": (
        "Raise the engine's share of the device",
        "weights come out of it first, the cache gets the rest",
        "share",
        "0.95",
    ),
    "share down": (
        "Lower the engine's share of the device",
        "what it takes outside its cache (graphs, workspaces, images, communication) needs the room that is left",
        "share",
        "0.80",
    ),
    "cache": ("Keep the cache of keys and values in 8 bits", "half the bytes for each token", "cache", ""),
    "graphs": ("Capture fewer CUDA graphs, or none", "each size that is captured keeps memory of its own", "graphs", ""),
    "shard": (
        "Spread the weights over several devices",
        "each then holds its part of the weights and of the cache",
        "shard",
        "2",
    ),
    "offload": ("Keep a part of the weights on the host", "slower, but they fit", "offload", "16"),
    "quant": ("Serve weights in fewer bits", "8 bits halve them, 4 bits quarter them, against bfloat16", "quant", ""),
}


_LENGTHS = (re.compile(r"maximum model length is (\d{1,9})"), re.compile(r"stored in KV cache \((\d{1,9})\)"))
"""Where an engine's own message says which length would fit."""


def _media_engine(name: str, message: Message, scene: Scene) -> tuple[Remedy, ...]:
    """Settings of an engine that makes pictures, films or speech."""
    engine = MEDIA_ENGINES[name]
    asked = Sign.OFFLOAD_SET in scene.signs
    offload = take.OFFLOAD_TAKES_EFFECT if asked else replace(take.OFFLOAD, code=engine.offload)
    layers = Remedy(
        "Bring the layers to the device one after another", "slower, but only one or two of them are there", engine.layers
    )
    shard = Remedy(
        "Spread the work over several devices", "each then has a part of the sequence, or of the weights", engine.shard
    )
    if scene.stage == "weights" or scene.activity is Activity.LOADING:
        return (offload, take.WEIGHTS_IN_FEWER_BITS, layers, shard)
    tenth = message.total is not None and message.requested is not None and message.requested >= message.total / 16
    tiles = Remedy(
        "Decode in tiles", "the decoder's activations scale with the area of a picture and the number of frames", engine.tiles
    )
    shapes = (take.SHAPES, take.FUSED_ATTENTION) if tenth else ()
    return (take.INFER_LESS, *shapes, tiles, offload, layers, shard)


def _share_down(share: float | None) -> str:
    """A share below the one that is in force, or the usual one where that is not known."""
    return "0.80" if share is None or share > 0.85 else f"{max(share - 0.15, SMALLEST_SHARE):.2f}"


MOSTLY = 0.5
"""With so much of a device free, an engine may do with less; else what others hold comes first."""


def _named(setting: str) -> str:
    return setting.removeprefix("--").replace("-", "_")


def _below(setting: str, usual: str, scene: Scene) -> str:
    """A value of ``setting`` below the one that the log shows to be in force; the usual one where it shows none, or a larger one."""
    known = dict(scene.options).get(_named(setting))
    return usual if known is None or known > int(usual) else str(max(1, known // 2))


def _engine(name: str, stage: str, message: Message, scene: Scene) -> tuple[Remedy, ...]:
    """The engine's settings for ``stage``, by the engine's names for them."""
    if name in MEDIA_ENGINES:
        return _media_engine(name, message, scene)
    engine = ENGINES.get(name)
    measured = stage == "share" and message.free is not None and message.total is not None
    fits = share_that_fits(message.free or 0, message.total or 0) if measured else 0.0
    own = Sign.PARENT_ON_DEVICE in scene.signs and stage == "share"
    remedies: list[Remedy] = [take.RELEASE_BEFORE_ENGINE] if own else []
    for wanted in _ORDER["most of a share" if own or fits >= MOSTLY else stage if stage in _ORDER else ""]:
        if wanted == "others":
            remedies += _other_processes(message)
            continue
        if wanted == "trainer":
            remedies.append(take.TRAINER_MAKES_ROOM)
            continue
        title, why, field, value = _SETTINGS[wanted]
        setting = str(getattr(engine, field)) if engine is not None else ""
        if wanted == "quant" and Sign.QUANTIZED in scene.signs:
            remedies[:0] = [take.QUANTIZED_CHECKPOINT] if stage == "weights" and "quantiz" in scene.shown_by else []
            continue
        if (engine is not None and not setting) or (wanted == "media" and Sign.MEDIA not in scene.signs):
            continue
        if wanted == "offload" and Sign.OFFLOAD_SET in scene.signs:
            remedies.append(take.OFFLOAD_TAKES_EFFECT)
            continue
        if wanted == "share down":
            value = _share_down(scene.share)
        if wanted == "share up" and scene.share is not None and scene.share >= float(value):
            continue
        if wanted == "length":
            # what the engine's own message says would fit
            value = next((found[1] for pattern in _LENGTHS if (found := pattern.search(message.text))), "") or _below(
                setting, value, scene
            )
        if wanted in ("seqs", "tokens"):
            value = _below(setting, "16384" if "total" in setting else value, scene)
        if wanted == "shard":
            value = str(2 * max(1, dict(scene.options).get(_named(setting), 1)))
        if wanted == "share down" and measured:
            if fits < SMALLEST_SHARE:
                continue
            value, why = (
                f"{fits:.2f}",
                "it then asks for no more than is free now; what weights and cache need must fit into it",
            )
        joint = "" if not value or " " in setting or "," in setting else " " if setting.startswith("--") else "="
        remedies.append(Remedy(title, why, f"{setting}{joint}{value if joint else ''}"))
    return tuple(remedies)


_BOUNDS = {
    "weights": "-ngl 20 --tensor-split 1,1        # fewer layers on the device, or a smaller quantization",
    "cache": "-c 8192 --cache-type-k q8_0 --cache-type-v q8_0        # then fewer layers on the device, -ngl",
    "compute": "-ub 256 -fa on        # then a smaller context, -c, or fewer layers on the device, -ngl",
}
"""Buffer of llama.cpp that was refused → what sizes it."""


def _other_program(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    setting = OTHER_PROGRAMS.get(message.writer)
    if message.writer == "llama.cpp" and scene.stage in _BOUNDS:
        setting = (f"{_BOUNDS[scene.stage]}\n{LLAMA_ELSEWHERE}", "")
    bounded = (
        (Remedy(f"Bound what {message.writer} takes, by its own settings", "its documentation names them", setting[0]),)
        if setting is not None
        else (Remedy(f"Look for the settings of {message.writer}", "it decides by itself how much it allocates"),)
    )
    if is_check(message):
        # An estimate far above what is seen: one of the two figures may be wrong.
        far_off = message.free is None or message.requested is None or message.requested > 2 * message.free
        doubted = far_off or scene.signs & {Sign.LIMITED, Sign.WORKERS}
        if message.backend != "CPU":
            return (take.CHECK_ESTIMATE, *bounded)
        return (
            (take.CHECK_ESTIMATE, *bounded, take.MORE_ROOM_ON_HOST)
            if doubted
            else (take.MORE_ROOM_ON_HOST, *bounded, take.CHECK_ESTIMATE)
        )
    if message.backend == "CPU":
        return bounded
    block = (take.CHECK_DRIVER,) if message.backend == "XPU" else ()
    picture = (take.PICTURES_ON_HOST,) if scene.stage == "picture" and message.writer == "llama.cpp" else ()
    return (
        *picture,
        *block,
        *bounded,
        Remedy(
            "Leave it room on the device",
            "what PyTorch or another process holds there, its idle cache included, is not given back for it",
            "nvidia-smi        # who holds what; or a device of its own",
        ),
    )


_LIMITS = {
    "Slurm": "#SBATCH --mem=64G        # or --mem-per-cpu; `seff JOB` shows the peak",
    "Ray": "@ray.remote(memory=16 * 1024**3)        # fewer tasks at a time on the node, or a larger node",
    "the container's host": "resources: {limits: {memory: 64Gi}}        # docker run --memory=64g",
    "the scheduler": "bsub -M 64GB …        # PBS: -l mem=64gb; HTCondor: request_memory = 64GB",
}


def _host(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    fixed = _HOST_BY_FAMILY.get(message.family)
    if fixed is not None:
        return fixed
    if scene.stage == "extension":
        return (take.FEWER_COMPILERS,)
    if message.family is Family.RAW:
        state = (take.LESS_STATE_ON_HOST,) if Sign.STATE_ON_HOST in scene.signs else ()
        return (take.PINNED, *state, take.FEWER_WORKERS)
    if message.family is Family.NCCL:
        return (take.NCCL_WITHOUT_HOST_MEMORY, take.MORE_SHARED_MEMORY)
    # Growth comes first, which no limit bears; then the limit that Windows counts by.
    grows = scene.growth is not None and scene.growth.of_host and Sign.STATE_BUILT not in scene.signs
    growth = (take.NO_GRAPH_PAST_ITS_STEP, take.FIND_WHAT_GROWS) if grows else ()
    promised = (take.PAGING_FILE,) if Sign.WINDOWS in scene.signs and scene.stage != "metrics" else ()
    return (*growth, *promised, *_room_on_host(message, scene))


_HOST_BY_FAMILY: Mapping[Family, tuple[Remedy, ...]] = {
    Family.SHARED_MEMORY: (take.MORE_SHARED_MEMORY, take.FEWER_WORKERS),
    Family.BUS_ERROR: (take.MORE_SHARED_MEMORY, take.FEWER_WORKERS),
    Family.NCCL_SHARED_MEMORY: (
        take.MORE_SHARED_MEMORY,
        Remedy("Remove segments of killed runs", "they stay until they are deleted", "rm /dev/shm/nccl-*"),
    ),
    Family.PAGING_FILE: (take.PAGING_FILE, take.FEWER_WORKERS, take.LOAD_LAZILY),
    Family.COMPILER_KILLED: (take.FEWER_COMPILERS,),
    Family.LOCKED: (take.LIFT_LOCK_LIMIT,),
    Family.OBJECT_STORE: (take.FREE_OBJECTS,),
    Family.ENGINE_SWAP: (Remedy("Set aside less", "4 GiB for each GPU are usual", "--swap-space 2"),),
    Family.MANAGED: (take.UNPAGED_OPTIMIZER, take.MORE_FOR_WSL),
}


def _room_on_host(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    """What makes room on the host, for what was running there; a limit that the log shows comes first."""
    if message.writer == "LLVM":
        return (take.MORE_FOR_COMPILER,)
    asked = Remedy(
        "Ask for more memory of the host",
        "the limit is the job's or the container's, not the machine's",
        _LIMITS.get(message.writer, ""),
    )
    limit = take.MORE_FOR_WSL if Sign.WSL in scene.signs else asked
    more, room = (limit,) if message.family in FROM_OUTSIDE else (), room_on_host(message, scene)
    if strangers(message, scene):
        return (take.END_STRANGERS, *more, *room)
    told = scene.signs & {Sign.SERVER_WORKERS, Sign.STATE_BUILT, Sign.STATE_ON_HOST, Sign.LOADER}
    nothing_known = scene.activity is Activity.UNKNOWN and not scene.trains
    shown = message.family is Family.HOST_LIMIT or scene.signs & {Sign.LIMITED, Sign.WSL} or nothing_known
    shown = shown and not told
    return tuple(dict.fromkeys((*more, *room) if shown else (*room, *more)))


_WITHOUT_CACHE = frozenset(
    {
        Family.BATCH_SEARCH,
        Family.UNNAMED,
        Family.WORKER_KILLED,
        Family.WORKER_GONE,
        Family.BUS_ERROR,
        Family.RAW,
        Family.LIBRARY_INIT,
        Family.ASSERTION,
    }
)


def sentence_about_empty_cache(message: Message, diagnosis: Diagnosis) -> str:
    """The warning that belongs under every diagnosis of device memory; "" where no cache is involved."""
    kinds = (Kind.GENUINE, Kind.FRAGMENTATION, Kind.PARTLY_FRAGMENTATION, Kind.MEMORY_CAP, Kind.UNCLEAR)
    call = _device(message).emptied
    if diagnosis.kind not in kinds or diagnosis.doubted or not call or message.family in _WITHOUT_CACHE:
        return ""
    return (
        f"{call} at the failing line does not help: PyTorch returned every unused segment before it raised, and the call cannot free a "
        "tensor that is still referenced."
    )


def codes_of(remedies: Sequence[Remedy]) -> tuple[str, ...]:
    """The rule codes of all remedies, in their order, each once."""
    return tuple(dict.fromkeys(code for remedy in remedies for code in remedy.rules))


def commands_that_tell_more(diagnosis: Diagnosis, scene: Scene, program: str, finding: str) -> tuple[tuple[str, str], ...]:
    """(command, what it tells) for a failure that the program itself can have caused.

    ``program`` is the script that the traceback starts in, ``finding`` the place of the nearest finding as ``FILE:LINE``; "" for none.
    """
    if not diagnosis.explained_by_code and diagnosis.kind not in (Kind.UNCLEAR, Kind.MEMORY_CAP):
        return ()
    if scene.activity in (Activity.ENGINE, Activity.COMPILATION) or diagnosis.kind is Kind.OWN_RANKS or diagnosis.doubted:
        return ()
    told: list[tuple[str, str]] = []
    if finding:
        told.append((f"torchmemlint confirm {shlex.quote(finding)}", "runs the flagged code with and without the fix"))
    script = shlex.quote(program) if program else "PROGRAM.py"
    if scene.activity is not Activity.LOADING:
        told.append((f"torchmemlint run {script}", "runs the program and reports what grows in it"))
    if scene.activity in (Activity.TRAINING, Activity.UNKNOWN) and diagnosis.kind is not Kind.HOST_MEMORY:
        told.append((f"torchmemlint budget {script}", "estimates what one step needs, without a GPU"))
    return tuple(told)
