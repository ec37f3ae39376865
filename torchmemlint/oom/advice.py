"""What to change for each kind of failure, in the order in which it pays to look, given what was running.

For a device that is full of a training's live tensors the order is: no graph where none is needed, no graph kept past its step, a
cheaper number format, smaller batches, recomputation. The first two fix mistakes and cost nothing; the last three trade
something. Inference, engines, loading and compilation have lists of their own: nothing about gradients where none are taken.
``expandable_segments`` is offered for fragmentation alone, and ``empty_cache`` never: before it raises, the
allocator has returned everything that ``empty_cache`` could.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchmemlint.oom.engines import ENGINES, OTHER_PROGRAMS
from torchmemlint.oom.meanings import Diagnosis, Kind
from torchmemlint.oom.messages import Message
from torchmemlint.oom.remedies import (
    CHECK_TOTAL,
    CHECKPOINTING,
    COMPILE_PLAINLY,
    FEWER_COMPILERS,
    FEWER_DESCRIPTORS,
    FEWER_METAL_GRAPHS,
    FEWER_WORKERS,
    FREE_OBJECTS,
    FUSED_ATTENTION,
    HANDLER,
    INFER_LESS,
    LEAVE_ROOM,
    LEAVE_ROOM_FOR_NCCL,
    LIVE_TENSORS,
    LOAD_LAZILY,
    LOAD_ONCE,
    LOAD_ONTO_OWN_DEVICE,
    MIXED_PRECISION,
    MORE_SHARED_MEMORY,
    NO_GRAPH_IN_INFERENCE,
    NO_GRAPH_PAST_ITS_STEP,
    NOTHING_BETWEEN_TRIES,
    OFFLOAD,
    OPTIMIZER_STATE,
    PAGING_FILE,
    PINNED,
    READ_FIGURES,
    RESULTS_TO_HOST,
    SET_DEVICE,
    SHAPES,
    SHARD_WEIGHTS,
    SHOW_ONE_DEVICE,
    SMALLER_BATCHES,
    SMALLER_KERNEL,
    STEADY_SHAPES,
    WEIGHTS_IN_FEWER_BITS,
    Remedy,
)
from torchmemlint.oom.scene import Activity, Scene
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
    "MLU": _Device("mlu", "MLU_VISIBLE_DEVICES", "cnmon", "PYTORCH_MLU_ALLOC_CONF", "torch.mlu.empty_cache()"),
    "MUSA": _Device("musa", "MUSA_VISIBLE_DEVICES", "mthreads-gmi", "PYTORCH_MUSA_ALLOC_CONF", "torch.musa.empty_cache()"),
    "MPS": _Device("mps", "", "", "", "torch.mps.empty_cache()"),
}


def _device(message: Message) -> _Device:
    return _DEVICES.get(message.backend, _DEVICES["CUDA"])


def remedies_for(message: Message, diagnosis: Diagnosis, scene: Scene | None = None) -> tuple[Remedy, ...]:
    """The remedies for a diagnosis of what happened in ``scene``, the first to try first."""
    scene = scene or Scene()
    found = _by_kind(message, diagnosis, scene)
    name = _device(message).name
    return tuple(dict.fromkeys(replace(remedy, code=remedy.code.replace('"cuda"', f'"{name}"')) for remedy in found))


def _by_kind(message: Message, diagnosis: Diagnosis, scene: Scene) -> tuple[Remedy, ...]:
    room = _room(message, scene)
    match diagnosis.kind:
        case Kind.GENUINE:
            return (*_batch_search(message), *room)
        case Kind.FRAGMENTATION:
            return (_expandable(message), STEADY_SHAPES, *room)
        case Kind.PARTLY_FRAGMENTATION:
            return (*room, _expandable(message), STEADY_SHAPES)
        case Kind.OWN_RANKS:
            return (SET_DEVICE, LOAD_ONTO_OWN_DEVICE, SHOW_ONE_DEVICE)
        case Kind.OTHER_PROCESSES:
            return (*_other_processes(message), *(room[:4] if diagnosis.shared else ()))
        case Kind.MEMORY_CAP:
            return (_limit(message), *room)
        case Kind.OVERSIZED_REQUEST:
            return (SHAPES, FUSED_ATTENTION, *((INFER_LESS,) if scene.activity is Activity.INFERENCE else ()))
        case Kind.ENGINE_SETTINGS:
            return _engine(message.writer, _STAGE_OF_FAMILY.get(message.family, scene.stage), message)
        case Kind.OUTSIDE_CACHE:
            return (*_outside(message), *room)
        case Kind.ADDRESS_SPACE:
            return (_ADDRESSES,)
        case Kind.HOST_MEMORY:
            return _host(message, scene)
        case Kind.OTHER_PROGRAM:
            return _other_program(message if message.writer else replace(message, writer=scene.library))
        case Kind.NOT_MEMORY:
            return (SMALLER_KERNEL,) if message.family is Family.KERNEL else (FEWER_DESCRIPTORS, FEWER_WORKERS)
        case Kind.UNCLEAR:
            return (CHECK_TOTAL, SHAPES) if diagnosis.doubted else (READ_FIGURES, *room)


def _room(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    """What makes room on a device, for what was running there."""
    if message.family is Family.BATCH_SEARCH:
        return ()
    if scene.activity is Activity.INFERENCE:
        no_graph = () if scene.no_grad else (NO_GRAPH_IN_INFERENCE,)
        return (*no_graph, INFER_LESS, RESULTS_TO_HOST, WEIGHTS_IN_FEWER_BITS, OFFLOAD, FUSED_ATTENTION)
    if scene.activity is Activity.LOADING or message.family is Family.DISPATCHED:
        return (WEIGHTS_IN_FEWER_BITS, SHARD_WEIGHTS, LOAD_ONCE, OFFLOAD)
    if scene.activity is Activity.ENGINE:
        return _engine(scene.engine, scene.stage, message)
    if scene.activity is Activity.COMPILATION:
        return (COMPILE_PLAINLY, MIXED_PRECISION, SMALLER_BATCHES)
    large = message.total is not None and message.requested is not None and message.requested >= message.total / 4
    state = (OPTIMIZER_STATE,) if scene.stage == "optimizer" else ()
    return (*state, *LIVE_TENSORS, HANDLER, *((SHAPES, FUSED_ATTENTION) if large else ()))


def _batch_search(message: Message) -> tuple[Remedy, ...]:
    if message.family is not Family.BATCH_SEARCH:
        return ()
    return (WEIGHTS_IN_FEWER_BITS, OPTIMIZER_STATE, SHARD_WEIGHTS, OFFLOAD, NOTHING_BETWEEN_TRIES, CHECKPOINTING)


def _expandable(message: Message) -> Remedy:
    variable = _device(message).config or "PYTORCH_ALLOC_CONF"
    if message.family is Family.PARENTHESES and message.backend in ("CUDA", "HIP"):
        return Remedy(
            "Let segments grow, or cut them less",
            "expandable_segments needs torch 2.1 and this message is from an older one: upgrade, or bound the pieces",
            f"export {variable}=max_split_size_mb:128        # torch before 2.1\n"
            f"export {variable}=expandable_segments:True     # torch 2.1 and later, not on Windows",
            Advice.SEGMENTS,
        )
    return Remedy(
        "Let segments grow instead of adding new ones",
        "the idle pieces then join into one range; it must be set before torch is imported, and Windows ignores it"
        + ("; torch 2.10 and later also read it from PYTORCH_ALLOC_CONF" if variable == "PYTORCH_CUDA_ALLOC_CONF" else ""),
        f"export {variable}=expandable_segments:True",
        Advice.SEGMENTS,
    )


def _other_processes(message: Message) -> tuple[Remedy, ...]:
    pids = " ".join(str(pid) for pid, _ in message.processes[:8])
    device = _device(message)
    return (
        Remedy(
            "Find the processes on the device, and end your own",
            "a crashed run, a notebook's kernel or a loader worker keeps its memory until it exits",
            device.tool + (f"; ps -o pid,user,etime,args -p {pids.replace(' ', ',')}" if pids else ""),
        ),
        Remedy(
            "Take a free device",
            "no change in the program frees memory of other processes",
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


def _outside(message: Message) -> tuple[Remedy, ...]:
    if message.family is Family.NCCL:
        return (LEAVE_ROOM_FOR_NCCL,)
    if message.backend == "MPS":
        return (FEWER_METAL_GRAPHS,)
    if message.family is Family.WORKSPACE:
        return ()
    return (LEAVE_ROOM,)


_STAGE_OF_FAMILY = {
    Family.ENGINE_SHARE: "share",
    Family.ENGINE_CACHE: "no cache",
    Family.ENGINE_LENGTH: "length",
    Family.ENGINE_WARMUP: "profile",
    Family.ENGINE_FULL: "full",
    Family.ENGINE_PROFILE: "disturbed",
}
_ORDER = {
    "weights": ("shard", "quant", "offload"),
    "share": ("others", "share down"),
    "no cache": ("share up", "quant", "shard", "length", "cache"),
    "length": ("length", "share up", "cache", "quant", "shard"),
    "graphs": ("share down", "graphs", "seqs"),
    "cache": ("share down", "length", "quant", "shard"),
    "profile": ("seqs", "tokens", "length", "share down"),
    "full": ("seqs", "tokens", "share up", "cache"),
    "disturbed": ("others",),
    "": ("length", "seqs", "tokens", "share down", "graphs", "cache", "shard"),
}
"""Stage of an engine → what to set, in this order. The share goes up where the engine's own part is too small, and down where what
it needs outside of that part is."""
_SETTINGS = {
    "length": ("Serve shorter sequences", "the cache and the warm-up are sized for the longest", "length", "8192"),
    "seqs": ("Serve fewer sequences at a time", "buffers for logits and sampling are sized for all of them", "seqs", "64"),
    "tokens": ("Prefill fewer tokens at a time", "activations of a prefill scale with them", "tokens", "2048"),
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
    "graphs": ("Capture fewer CUDA graphs, or none", "they keep 1 to 3 GiB", "graphs", ""),
    "shard": (
        "Spread the weights over several devices",
        "each then holds its part of the weights and of the cache",
        "shard",
        "2",
    ),
    "offload": ("Keep a part of the weights on the host", "slower, but they fit", "offload", "16"),
    "quant": ("Serve weights in fewer bits", "8 bits halve them, 4 bits quarter them, against bfloat16", "quant", ""),
}


def _engine(name: str, stage: str, message: Message) -> tuple[Remedy, ...]:
    """The engine's settings for ``stage``, by the engine's names for them."""
    engine = ENGINES.get(name)
    remedies: list[Remedy] = []
    for wanted in _ORDER.get(stage, _ORDER[""]):
        if wanted == "others":
            remedies += _other_processes(message)
            continue
        title, why, field, value = _SETTINGS[wanted]
        setting = str(getattr(engine, field)) if engine is not None else ""
        if engine is not None and not setting:
            continue
        joint = "" if not value or " " in setting or "," in setting else " " if setting.startswith("--") else "="
        remedies.append(Remedy(title, why, f"{setting}{joint}{value if joint else ''}"))
    return tuple(remedies)


def _other_program(message: Message) -> tuple[Remedy, ...]:
    setting = OTHER_PROGRAMS.get(message.writer)
    bounded = (
        (Remedy(f"Bound what {message.writer} takes, by its own settings", "its documentation names them", setting[0]),)
        if setting is not None
        else (Remedy(f"Look for the settings of {message.writer}", "it decides by itself how much it allocates"),)
    )
    if message.backend == "CPU":
        return bounded
    return (
        *bounded,
        Remedy(
            "Leave it room on the device",
            "what PyTorch or another process holds there, its idle cache included, is not given back for it",
            f"{_device(message).tool or 'nvidia-smi'}        # who holds what; or a device of its own",
        ),
    )


_LIMITS = {
    "Slurm": "#SBATCH --mem=64G        # or --mem-per-cpu; `seff JOB` shows the peak",
    "Ray": "@ray.remote(memory=16 * 1024**3)        # fewer tasks at a time on the node, or a larger node",
    "the container's host": "resources: {limits: {memory: 64Gi}}        # docker run --memory=64g",
    "the scheduler": "bsub -M 64GB …        # PBS: -l mem=64gb; HTCondor: request_memory = 64GB",
}


def _host(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    match message.family:
        case Family.SHARED_MEMORY | Family.BUS_ERROR:
            return (MORE_SHARED_MEMORY, FEWER_WORKERS)
        case Family.NCCL_SHARED_MEMORY:
            return (
                MORE_SHARED_MEMORY,
                Remedy("Remove segments of killed runs", "they stay until they are deleted", "rm /dev/shm/nccl-*"),
            )
        case Family.PAGING_FILE:
            return (PAGING_FILE, FEWER_WORKERS, LOAD_LAZILY)
        case Family.COMPILER_KILLED:
            return (FEWER_COMPILERS,)
        case Family.OBJECT_STORE:
            return (FREE_OBJECTS,)
        case Family.ENGINE_SWAP:
            return (Remedy("Set aside less", "4 GiB for each GPU are usual", "--swap-space 2"),)
        case Family.RAW:
            return (PINNED, FEWER_WORKERS)
        case Family.HOST_LIMIT | Family.WORKER_KILLED:
            code = _LIMITS.get(message.writer, "")
            more = Remedy(
                "Ask for more memory of the host", "the limit is the job's or the container's, not the machine's", code
            )
            if scene.activity is Activity.LOADING:
                return (LOAD_LAZILY, WEIGHTS_IN_FEWER_BITS, LOAD_ONCE, more)
            return (FEWER_WORKERS, NO_GRAPH_PAST_ITS_STEP, LOAD_LAZILY, more)
    if scene.activity is Activity.LOADING:
        return (LOAD_LAZILY, WEIGHTS_IN_FEWER_BITS, LOAD_ONCE, FEWER_WORKERS)
    if scene.activity is Activity.INFERENCE:
        no_graph = () if scene.no_grad else (NO_GRAPH_IN_INFERENCE,)
        return (*no_graph, NO_GRAPH_PAST_ITS_STEP, INFER_LESS, FEWER_WORKERS, LOAD_LAZILY)
    return (NO_GRAPH_IN_INFERENCE, NO_GRAPH_PAST_ITS_STEP, FEWER_WORKERS, LOAD_LAZILY, SMALLER_BATCHES, CHECKPOINTING)


def sentence_about_empty_cache(message: Message, diagnosis: Diagnosis) -> str:
    """The warning that belongs under every diagnosis of device memory; "" where no cache is involved."""
    kinds = (Kind.GENUINE, Kind.FRAGMENTATION, Kind.PARTLY_FRAGMENTATION, Kind.MEMORY_CAP, Kind.UNCLEAR)
    call = _device(message).emptied
    if diagnosis.kind not in kinds or diagnosis.doubted or not call or message.family is Family.BATCH_SEARCH:
        return ""
    return (
        f"{call} does not help: PyTorch returned every unused segment before it raised, and the call cannot free a tensor that is "
        "still referenced."
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
    if scene.activity is Activity.ENGINE or diagnosis.kind is Kind.OWN_RANKS or diagnosis.doubted:
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
