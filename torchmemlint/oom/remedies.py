"""What to change for each kind of failure, in the order in which it pays to look.

For a device that is full of live tensors the order is: no graph where none is needed, no graph kept past its step, a cheaper
number format, smaller batches, recomputation. The first two fix mistakes and cost nothing; the last three trade
something. ``expandable_segments`` is offered for fragmentation alone, and ``empty_cache`` never: before it raises, the
allocator has returned everything that ``empty_cache`` could.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchmemlint.oom.diagnose import Diagnosis, Kind
from torchmemlint.oom.messages import Family, Message
from torchmemlint.rules import ALL_RULES
from torchmemlint.rules.card import Advice


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing to do: ``code`` is the line to write; rules whose cards give the same ``advice`` find places to do it."""

    title: str
    why: str
    code: str = ""
    advice: Advice | None = None

    @property
    def rules(self) -> tuple[str, ...]:
        """The codes of those rules."""
        return tuple(rule.code for rule in ALL_RULES if self.advice in rule.advice)


NO_GRAPH_IN_INFERENCE = Remedy(
    "Disable gradients wherever the model only predicts: evaluation, validation, sampling, teachers",
    "otherwise every forward keeps its activations, and a stored result keeps them permanently",
    "with torch.no_grad():\n    output = model(batch)",
    Advice.NO_GRAPH,
)
NO_GRAPH_PAST_ITS_STEP = Remedy(
    "After a step, keep numbers, not tensors with a graph",
    "a loss or output that was never back-propagated keeps its whole graph; after backward(), graph nodes in host memory",
    "total += loss.item()            # a number\nhistory.append(loss.detach())   # a tensor without its graph",
    Advice.NO_GRAPH_KEPT,
)
MIXED_PRECISION = Remedy(
    "Run the forward in bfloat16 or float16",
    "activations shrink, weights and optimizer state do not: measured 0.61 to 0.71 of the bytes on real models, but more than "
    "before if the weights are larger; on a GPU without bfloat16 use float16 and torch.amp.GradScaler",
    'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = criterion(model(inputs), targets)',
    Advice.PRECISION,
)
SMALLER_BATCHES = Remedy(
    "Halve the batch and accumulate gradients over two parts, with a backward for each",
    "activations scale with the batch; summing the losses before one backward would keep all graphs at once",
    "loss = criterion(model(part), target) / parts\nloss.backward()                 # every part\n"
    "if last_part:\n    optimizer.step()\n    optimizer.zero_grad()",
    Advice.SMALLER_BATCHES,
)
CHECKPOINTING = Remedy(
    "Recompute activations instead of storing them",
    "measured 0.08 of the activations with a checkpoint per layer, 0.28 with four segments, 0.51 with two, 1.00 with one; "
    "it costs about one more forward",
    "from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, use_reentrant=False)",
    Advice.CHECKPOINTING,
)
LIVE_TENSORS = (NO_GRAPH_IN_INFERENCE, NO_GRAPH_PAST_ITS_STEP, MIXED_PRECISION, SMALLER_BATCHES, CHECKPOINTING)

STEADY_SHAPES = Remedy(
    "Keep shapes steady: pad or bucket lengths, drop the last short batch, run the largest batch first",
    "every new size cuts the cache into new pieces; growing a tensor with torch.cat does so at each step",
    "DataLoader(dataset, batch_size=n, drop_last=True)   # and pad_sequence / pad_to_multiple_of",
    Advice.STEADY_SHAPES,
)
SHAPES = Remedy(
    "Look at the shapes on the failing line",
    "usual: a full attention matrix, a broadcast of (n, 1) with (1, n), one-hot over a vocabulary, an image that was "
    "not resized, two dimensions swapped",
    "print([tuple(t.shape) for t in (a, b)])    # just before it",
    Advice.SHAPES,
)
FUSED_ATTENTION = Remedy(
    "Never build the attention matrix",
    "it grows with the square of the length: 2,048 tokens took 202 MB by hand and 7.4 MB fused (measured on the CPU)",
    "out = torch.nn.functional.scaled_dot_product_attention(q, k, v)",
    Advice.FUSED_ATTENTION,
)
LEAVE_ROOM = Remedy(
    "Let the library allocate before the cache has grown",
    "handles, workspaces and communicators are created at first use; early in the program there is room",
    "torch.distributed.barrier()        # or one small matmul / convolution, before the model is on the device",
)
FEWER_WORKERS = Remedy(
    "Use fewer loader workers, a smaller prefetch, and a dataset with arrays instead of lists of objects",
    "each worker has its own copy of the dataset's objects, and prefetch_factor batches",
    "DataLoader(dataset, num_workers=2, prefetch_factor=2)",
)
LOAD_LAZILY = Remedy(
    "Load checkpoints without a second copy in memory",
    "a loaded state dict is a second copy of the weights until it is dropped",
    'state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)',
    Advice.LOADING,
)
HANDLER = Remedy(
    "Retry after the except block, not inside it",
    "inside, the exception's traceback still holds every frame's tensors: the retry has less room than the first attempt",
    "failed = False\ntry:\n    step(batch)\nexcept torch.OutOfMemoryError:\n    failed = True\n"
    "if failed:\n    step(half(batch))",
    Advice.HANDLER,
)

_CONFIG = {"HIP": "PYTORCH_HIP_ALLOC_CONF", "NPU": "PYTORCH_NPU_ALLOC_CONF"}
EMPTY_CACHE_NOTE = (
    "torch.cuda.empty_cache() does not help: PyTorch returned every unused segment before it raised, and the call cannot free a "
    "tensor that is still referenced."
)


def _expandable(message: Message) -> Remedy:
    variable = _CONFIG.get(message.backend, "PYTORCH_CUDA_ALLOC_CONF")
    if message.family is Family.PARENTHESES:
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
    tool = "rocm-smi --showpids" if message.backend == "HIP" else "npu-smi info" if message.backend == "NPU" else "nvidia-smi"
    return (
        Remedy(
            "Find the processes on the device, and end your own",
            "a crashed run, a notebook's kernel or a loader worker keeps its memory until it exits",
            f"{tool}" + (f"; ps -o pid,user,etime,args -p {pids.replace(' ', ',')}" if pids else ""),
        ),
        Remedy(
            "Take a free device",
            "no change in the program frees memory of other processes",
            "CUDA_VISIBLE_DEVICES=1 python train.py",
        ),
    )


def _cap(message: Message) -> tuple[Remedy, ...]:
    return (
        Remedy(
            "Raise or remove the limit",
            "a limit lowers the limit, not the memory that a step needs; look for set_per_process_memory_fraction, for "
            "per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF, and for a limit of the platform (MIG, vGPU, a scheduler)",
            "torch.cuda.set_per_process_memory_fraction(1.0)    # undoes an earlier call",
            Advice.LIMIT,
        ),
        *LIVE_TENSORS,
    )


def remedies_for(message: Message, diagnosis: Diagnosis) -> tuple[Remedy, ...]:
    """The remedies for a diagnosis, the first to try first."""
    match diagnosis.kind:
        case Kind.GENUINE:
            return (*LIVE_TENSORS, HANDLER)
        case Kind.FRAGMENTATION:
            return (_expandable(message), STEADY_SHAPES, *LIVE_TENSORS)
        case Kind.PARTLY_FRAGMENTATION:
            return (*LIVE_TENSORS, _expandable(message), STEADY_SHAPES)
        case Kind.OTHER_PROCESSES:
            return _other_processes(message)
        case Kind.MEMORY_CAP:
            return _cap(message)
        case Kind.OVERSIZED_REQUEST:
            return (SHAPES, FUSED_ATTENTION)
        case Kind.OUTSIDE_CACHE:
            return (LEAVE_ROOM, *LIVE_TENSORS)
        case Kind.ADDRESS_SPACE:
            return (
                Remedy(
                    "Raise the limit on virtual memory, or disable expandable segments",
                    "they reserve addresses for more than the whole device, per stream",
                    "ulimit -v unlimited\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
                    Advice.SEGMENTS,
                ),
            )
        case Kind.HOST_MEMORY:
            return _host(message)
        case Kind.UNCLEAR:
            return (
                Remedy(
                    "Read the figures the message does not give",
                    "allocated and reserved memory show whether the device is full or fragmented",
                    "import torchmemlint\ntorchmemlint.report_memory()        # just before the failing line",
                ),
                *LIVE_TENSORS,
            )


def _host(message: Message) -> tuple[Remedy, ...]:
    if message.family is Family.SHARED_MEMORY:
        return (
            Remedy(
                "Give the container shared memory",
                "loader workers pass their batches through /dev/shm",
                "docker run --shm-size=8g …        # Kubernetes: an emptyDir with medium: Memory at /dev/shm",
            ),
            FEWER_WORKERS,
        )
    return (
        NO_GRAPH_IN_INFERENCE,
        NO_GRAPH_PAST_ITS_STEP,
        FEWER_WORKERS,
        LOAD_LAZILY,
        SMALLER_BATCHES,
        CHECKPOINTING,
    )


def sentence_about_empty_cache(diagnosis: Diagnosis) -> str:
    """The warning that belongs under every diagnosis of device memory; "" where no cache is involved."""
    device = (Kind.GENUINE, Kind.FRAGMENTATION, Kind.PARTLY_FRAGMENTATION, Kind.MEMORY_CAP, Kind.UNCLEAR)
    return EMPTY_CACHE_NOTE if diagnosis.kind in device else ""


def codes_of(remedies: Sequence[Remedy]) -> tuple[str, ...]:
    """The rule codes of all remedies, in their order, each once."""
    return tuple(dict.fromkeys(code for remedy in remedies for code in remedy.rules))
