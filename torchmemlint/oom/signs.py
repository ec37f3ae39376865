"""What the lines around a message say of the circumstances: what was set, what went before, and what grew.

Each sign has the source of its wording beside it. A sign changes the words and the order of the advice, never the figures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from torchmemlint.oom.log_line import read_line

NEAR = 8
"""Lines next to the message in which a sign that belongs to it is looked for."""


class Sign(Enum):
    """A circumstance that the log shows."""

    SEGMENTS_SET = "expandable segments are set"
    UNIFIED = "the device shares the host's memory"
    WINDOWS = "Windows"
    WSL = "WSL"
    SEARCHED = "a search chose the batch size"
    PROGRESSED = "steps had run before"
    HANDLED = "the program goes on without what failed"
    EXTENSION = "an extension is being built"
    NCCL_HOST = "NCCL's transport through the host's memory"
    ASSERTED = "a kernel failed before"
    OFFLOADED = "parts of the model are kept on the host"
    STATE_ON_HOST = "the training keeps optimizer state or parameters on the host"
    TRIALS = "a search runs the program again and again"
    TIMED_OUT = "a collective operation timed out before"
    COLLECTIVE = "a collective operation was called"
    TEST_WORKERS = "several workers run the tests"
    CAUGHT = "a line says that what failed is skipped or done another way"
    SKIPPED = "the message's own line says that what failed is skipped or done another way"
    STATE_BUILT = "a trainer builds its copies of the parameters and its optimizer state"
    ENDED_BY_OTHERS = "a scheduler, a probe or a person ended the program"
    WORKERS = "processes that share memory, or a container, which bounds it"
    NOTEBOOK = "a notebook or an interactive session"
    SEGMENTS_REFUSED = "this platform has no expandable segments"
    CHECKPOINTED = "activations are computed again already"
    ONE_SAMPLE = "a batch has one sample"
    HALF_SET = "the program computes in 16 bits already"
    OFFLOAD_SET = "offloading was asked for"
    RESUMED = "a run that goes on from a checkpoint"
    RESUMED_DIFFERENTLY = "the checkpoint brings other settings than those that were given"
    PARENT_ON_DEVICE = "the program used the device before it started an engine"
    LIMITED = "a limit of the host's memory shows"
    SERVER_WORKERS = "a web server starts several workers"
    LOADER = "workers of a loader"
    RANKS = "a launch with several ranks"
    DEVICE_BROKEN = "the device cannot be used at all"
    ALLOCATOR_BROKEN = "the allocator's own check failed after the message"
    DISPATCHED = "a device map spreads the model"
    SERVES = "a web server or a web page answers requests"
    MEDIA = "an engine reads pictures or films"
    LATE = "many steps had run before"
    QUANTIZED = "the weights are quantized already"
    PIPELINE = "a program for pictures, films or speech moves its parts"
    RETRIED = "a handler of the error tries again"
    READ_TO_DEVICE = "a checkpoint is read onto the device"
    NPU = "an Ascend device"
    ROLLOUTS = "a trainer shares its devices with an engine"
    COMPILED = "the failing line is one that torch.compile has written"
    NCCL_CUMEM = "a release of NCCL that takes host memory through CUDA's virtual memory"


class Outcome(Enum):
    """What the lines below a message say of the program."""

    UNKNOWN = "unknown"
    WENT_ON = "went on"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Growth:
    """A figure that the log prints again and again, and that rose: its name there, and its first and last values as printed."""

    label: str
    first: str
    last: str

    @property
    def of_host(self) -> bool:
        """Whether the figure is about the host's memory."""
        return re.search(r"rss|cpu|ram|host", self.label, re.IGNORECASE) is not None


_SIGNS = (
    (
        Sign.SEGMENTS_SET,
        False,
        r"(?<!try setting )PYTORCH_\w*ALLOC_CONF['\"]?\]? ?[=:] ?['\"]?[\w:,.]*expandable_segments:True",
        "torch, notes on CUDA",
    ),
    (
        Sign.UNIFIED,
        False,
        r"\bgfx(?:90c|1103|115[0-3])\b|\bStrix\b|\bRyzen AI\b|\bGB10\b|\bDGX Spark\b|\bJetson\b|\b(?:Orin|Xavier|Tegra)\b|\bNvMap|\bUMA\b|unified memory|"
        r"\bIntel\(R\) (?:Iris|UHD|Arc\(TM\) Graphics)",
        "names of integrated GPUs: ROCm's gfx targets, NVIDIA's Jetson and GB10, Intel's",
    ),
    (Sign.WINDOWS, False, r"\b[A-Z]:\\|\bOS:\W{0,4} nt\b|\bWinError\b", "paths and kernel names"),
    (Sign.WSL, False, r"(?i:wsl2?\b)|\bDESKTOP-[A-Z0-9]{3,8}\b|microsoft-standard|/mnt/[cd]/", "kernel and host names"),
    (
        Sign.SEARCHED,
        False,
        r"[Bb]atch size finder|[Bb]atch size \d+ (?:succeeded|failed), trying|Finished batch size|AutoBatch",
        "lightning tuner/batch_size_scaling.py; ultralytics utils/autobatch.py",
    ),
    (
        Sign.PROGRESSED,
        False,
        r"'(?:loss|train_loss)': |\b(?:loss|ppl)[=: ]+\d|\*{5} Running (?:Evaluation|training)|\b\d{2,}/\d{3,} \[\d{1,3}:\d\d",
        "progress lines of transformers, tqdm",
    ),
    (Sign.HANDLED, True, r"Ignoring this choice|[Rr]etrying with|[Ff]alling back to", "torch/_inductor/select_algorithm.py"),
    (
        Sign.NCCL_HOST,
        False,
        r"transport/shm\.cc|Cuda Host Alloc|cuMemHost|ncclCudaHostCalloc",
        "nccl src/transport/shm.cc; github.com/pytorch/pytorch/issues/152302",
    ),
    (
        Sign.ASSERTED,
        False,
        r"device-side assert|Assertion `.{1,200}` failed|illegal memory access|misaligned address",
        "pytorch aten/src/ATen/native/cuda/Indexing.cu; cuda error names",
    ),
    (
        Sign.OFFLOADED,
        False,
        r"\b(?:MB|GB|GiB) offloaded\b|lowvram patches|offload\w* (?:[\w ]{1,30} )?(?:to|on) (?:the )?(?:cpu|host)|\[offload\]",
        "ComfyUI comfy/model_patcher.py",
    ),
    (
        Sign.STATE_ON_HOST,
        False,
        r"DeepSpeedCPUAdam|offload_(?:optimizer|param)\b|z[23]_offload|CPUOffloadPolicy|Optimizer Offload|fsdp_offload_params: true|"
        r"\bAdam Optimizer #\d{1,3} is created with \w{1,8} arithmetic",
        "deepspeed deepspeed/ops/adam/cpu_adam.py, csrc/adam/cpu_adam_impl.cpp, runtime/zero/offload_config.py; LlamaFactory examples/deepspeed; accelerate",
    ),
    (
        Sign.TRIALS,
        False,
        r"\bTrial \d{1,6} (?:failed|finished|pruned)|\boptuna/|hyperparameter_search|ray/tune/",
        "optuna optuna/study/_optimize.py, optuna/study/study.py; transformers trainer.py",
    ),
    (
        Sign.TIMED_OUT,
        False,
        r"collective operation timeout|NCCL operations have failed or timed out",
        "pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
    (
        Sign.TEST_WORKERS,
        False,
        r"\[gw\d{1,4}\] (?:linux|darwin|win32) -- Python|\bpytest\b.{0,120} (?:-n|--numprocesses)[ =]?(?:\d|auto|logical)|"
        r"\bcreated: \d{1,4}/\d{1,4} workers",
        "pytest-xdist src/xdist/dsession.py, newhooks.py, remote.py",
    ),
    (Sign.COLLECTIVE, True, r"torch/distributed/distributed_c10d\.py", "torch/distributed/distributed_c10d.py"),
    (
        Sign.CAUGHT,
        True,
        r"\b[Ss]kipp?(?:ing|ed)\b.{0,40}\b(?:batch|sample|step|trial|image|request|item)|recover from OOM|\b[Rr]etry(?:ing)? (?:with(?:out)?|at|in|on|the)\b|"
        r"\b[Ff]alling back\b|\b(?:[Rr]educ|[Hh]alv|[Ll]ower|[Dd]ecreas)(?:ing|ed)\b.{0,20}\b(?:batch|resolution|size)|\bTrial \d{1,6} failed",
        "words of training loops and searches; llama.cpp src/llama-context.cpp",
    ),
    (
        Sign.STATE_BUILT,
        True,
        r"\b(?:Before|After) (?:creating fp(?:16|32) (?:partitions|groups)|initializing optimizer states|Building FP32)|"
        r"DeepSpeedZeRoOffload initialize",
        "deepspeed deepspeed/runtime/zero/stage3.py, stage_1_and_2.py, parameter_offload.py",
    ),
    (
        Sign.ENDED_BY_OTHERS,
        False,
        r"\bDUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)\b|\bTERM_RUNLIMIT\b|[Ww]alltime \d+ exceeded|exceeded .{0,12}walltime|"
        r"^\W{0,2}KeyboardInterrupt\b|got signal: (?:2|15)\b|Received SIGTERM|Shutdown (?:signal|requested)|srun: forcing job termination|[Ll]iveness probe failed|"
        r"\bDeadlineExceeded\b|[Ss]pot .{0,30}(?:interrupt|preempt|reclaim)\w*",
        "slurm src/slurmd; LSF termination reasons; openpbs; pytorch torch/distributed/elastic/multiprocessing/api.py; kubernetes",
    ),
    (
        Sign.WORKERS,
        False,
        r"\bDataLoader worker\b|\bnum_workers\b|torch/utils/data/|multiprocessing/(?:queues|connection|resource_sharer)\.py|\bNCCL (?:INFO|WARN)\b|"
        r"/dev/shm|\bdocker\b|\bkubectl\b|\bcontainer\b|\bpod\b",
        "torch/utils/data; nccl; words of containers",
    ),
    (Sign.NOTEBOOK, True, r"\b(?:Cell|Input) In ?\[\d|<ipython-input-", "IPython"),
    (
        Sign.SEGMENTS_REFUSED,
        False,
        r"expandable_segments (?:is )?not supported|Unrecognized CachingAllocator option: expandable_segments",
        "pytorch c10/cuda/CUDAAllocatorConfig.h, CUDAAllocatorConfig.cpp",
    ),
    (
        Sign.CHECKPOINTED,
        False,
        r"torch/utils/checkpoint\.py|\bgradient_checkpointing\b\W{1,4}[Tt]rue|--gradient_checkpointing\b(?!\W{1,2}[Ff]alse)|"
        r"[Gg]radient checkpointing (?:is )?enabled",
        "torch/utils/checkpoint.py; transformers training_args.py",
    ),
    (
        Sign.ONE_SAMPLE,
        False,
        r"(?<![\w-])(?:-b|--batch(?:-size)?|(?:--)?(?!\w{0,40}(?:eval|val|test)_)\w{0,60}batch_size)(?:['\"]?[=:] ?| )1(?![\d.,]\d|\d)|"
        r"\bbatch size(?: per device)? ?[=:] ?1(?!\d)|\bbatch of (?:1|one)\b(?![.,]\d)|\b[Bb]atch 1/1\b",
        "options and lines of programs",
    ),
    (
        Sign.HALF_SET,
        False,
        r"\b[Uu]sing (?:bfloat16|bf16|float16|fp16)\b|\b(?:bf16|fp16)\W{1,3}True\b|--(?:bf16|fp16)\b(?!\W{1,2}[Ff]alse)|"
        r"\bmixed[_-]precision\W{1,4}(?:bf16|fp16)\b|\bUsing (?:bfloat16|16bit) Automatic Mixed Precision|torch/amp/autocast_mode\.py",
        "transformers, accelerate, lightning, unsloth",
    ),
    (
        Sign.OFFLOAD_SET,
        False,
        r"\b\w{0,24}cpu_offload\w{0,8}\W{1,4}True\b|--[\w-]{0,24}cpu-offload\b(?!\W{1,2}[Ff]alse)",
        "vllm-omni, sglang",
    ),
    (
        Sign.RESUMED,
        False,
        r"\bResum(?:e|ing)\b(?! from sleep).{0,40}\b(?:from|training|checkpoint)\b|resume_from_checkpoint ?= ?(?:True|['\"/.])|--resume\b|=resume\b",
        "lines and options of training programs",
    ),
    (
        Sign.RESUMED_DIFFERENTLY,
        False,
        r"\(from args\) != .{1,80}\(from trainer_state\.json\)",
        "transformers src/transformers/trainer.py, compare_trainer_and_checkpoint_args",
    ),
    (Sign.PARENT_ON_DEVICE, False, r"Reason: CUDA is initialized\b", "vllm vllm/utils, _maybe_force_spawn"),
    (
        Sign.LIMITED,
        False,
        r"\boom[-_ ]kill(?!:constraint=CONSTRAINT_NONE)|\bcgroup\b|\bOOMKilled\b|\bLimits:|\bmemory\.max\b|HostConfig\.Memory|#SBATCH .{0,60}--mem|\bulimit -v\b|\bmem_limit\b|docker run .{0,200}(?:-m|--memory)[ =]",
        "kubectl describe; docker inspect; slurm sbatch; linux cgroups",
    ),
    (
        Sign.SERVER_WORKERS,
        False,
        r"\bBooting worker with pid\b|\bStarted server process \[|Started parent process \[|\bgunicorn\b.{0,120} (?:-w|--workers)[ =]",
        "gunicorn gunicorn/arbiter.py, workers; uvicorn uvicorn/server.py",
    ),
    (
        Sign.RANKS,
        False,
        r"--local[_-]rank[= ][1-9]|\bLOCAL_RANK\b\W{1,3}[1-9]|\bnproc[_-]per[_-]node[= ](?:[2-9]|[1-9]\d|gpu|auto)|\bDDP, (?:[2-9]|\d{2,4}) processes|"
        r"\bworld[_ ]size\W{1,3}(?:[2-9]|\d{2,4})\b|^\W{0,2}\[?[Rr]ank ?[1-9]\d{0,3}\b|torch/multiprocessing/spawn\.py",
        "torch/distributed; timm train.py",
    ),
    (
        Sign.DEVICE_BROKEN,
        False,
        r"\berror=(?:3|4|30|35|38|46|100|101|802|803|804|999) :|\bcuda runtime error \((?:3|4|30|35|38|46|100|101|802|803|804|999)\)|"
        r"\bCUDA (?:driver )?error: (?:unknown error|initialization error|no CUDA-capable device|system not yet initialized)|"
        r"CUDA (?:driver )?initialization(?:: .{0,80}| )(?:error|failed)|Unable to determine the device handle|\bGPU is lost\b|fallen off the bus|"
        r"Failed to initialize NVML|No devices were found|\bNVRM: Xid\b",
        "cuda include/driver_types.h, error numbers; pytorch aten/src/THC/THCGeneral.cpp; nvidia-smi; linux's log",
    ),
    (
        Sign.ALLOCATOR_BROKEN,
        False,
        r"^(?!.{0,400}NVML).{0,400}INTERNAL ASSERT FAILED at .{0,200}CachingAllocator\.cpp",
        "pytorch c10/cuda/CUDACachingAllocator.cpp",
    ),
    (
        Sign.DISPATCHED,
        False,
        r"\{'\w{1,40}\.[\w.]{1,80}': \d,.{0,360}': [1-9]|\bmax_memory\b.{0,60}\b1: ?['\"\d]|device_map ?= ?['\"]balanced",
        "accelerate src/accelerate/utils/modeling.py, infer_auto_device_map",
    ),
    (
        Sign.SERVES,
        False,
        r"\b(?:POST|GET) /\S{0,200} HTTP/|\b(?:uvicorn|gradio|fastapi|flask|gunicorn)\b|Running on (?:local URL|http)|Uvicorn running",
        "uvicorn, flask, gradio",
    ),
    (
        Sign.MEDIA,
        False,
        r"\b[Mm]ulti[-_ ]?[Mm]odal|\blimit[-_]mm[-_]|\bmm_(?:counts|encoder|processor)|/\w{0,20}(?:_vl|vision|visual|vit|clip|siglip)\w{0,20}\.py\b",
        "vllm vllm/multimodal; names of models' files",
    ),
    (
        Sign.LATE,
        False,
        r"^(?!.{0,200}\b100%\|).{0,200}\b[1-9]\d{1,8}/\d{2,9} \[|\b(?:[Ss]tep|[Ii]ter(?:ation)?)\W{1,3}[1-9]\d{2,8}\b",
        "tqdm; lines of training loops",
    ),
    (
        Sign.QUANTIZED,
        False,
        r"(?i)\bload_in_[48]bit\W{1,3}true|bitsandbytes/nn/|\b(?:in|to|with|using|loaded|quantiz\w{1,6}) [48][- ]?bits?\b|\b(?:bnb|awq|gptq|nf4|int4)\b|"
        r"\bquantiz(?:ation|e)['\"]?[=: ]{1,2}['\"]?(?:fp8|bitsandbytes|int8|mxfp\d|nvfp\d|modelopt|compressed)",
        "transformers utils/quantization_config.py; names of formats",
    ),
    (
        Sign.PIPELINE,
        False,
        r"\bdiffusers/|(?i:/comfy\w*/)|\bgot prompt\b|\b(?:modules_forge|ldm_patched|invokeai)\b|stable-diffusion-webui|\b\w*pipe(?:line)?\w*\.(?:to|cuda)\(",
        "diffusers pipelines; ComfyUI, Forge, InvokeAI",
    ),
    (
        Sign.RETRIED,
        False,
        r"During handling of the above exception|\b[Rr]etry(?:ing)?\b|\btry_again\b",
        "cpython traceback.py; words of programs",
    ),
    (
        Sign.LOADER,
        False,
        r"\bDataLoader worker\b|\bnum_workers\b|torch/utils/data/|multiprocessing/(?:queues|connection|resource_sharer)\.py",
        "torch/utils/data",
    ),
    (
        Sign.READ_TO_DEVICE,
        False,
        r"\b(?:[Rr]ead|[Ll]oad)(?:ing|ed)?\b.{1,120}\.(?:pth?|ckpt|bin|safetensors|tar)\b.{0,12} (?:to|onto|on) (?:cuda|gpu|GPU)|\bmap_location ?= ?['\"]cuda",
        "lines and calls of programs",
    ),
    (
        Sign.NPU,
        False,
        r"\bvllm_ascend\b|\btorch_npu\b|\bnpu:\d|\[(?:model_runner|worker)_v1\.py:\d",
        "torch_npu; vllm-ascend vllm_ascend/worker/model_runner_v1.py, worker_v1.py",
    ),
    (
        Sign.ROLLOUTS,
        False,
        r"(?:\b|_)refit\b|\bcolocated?\b|\bRolloutManager\b|\bactor_rollout\w*|\bsleep (?:mode|level)\b",
        "NeMo-RL nemo_rl/algorithms/grpo.py; slime slime/ray/rollout.py; verl verl/workers; vllm docs/features/sleep_mode.md",
    ),
    (
        Sign.COMPILED,
        True,
        r"\btorchinductor_\w{1,60}[/\\]|\bempty_strided_(?:cuda|xpu|cpu)\(",
        "torch/_inductor/runtime/cache_dir_utils.py, codegen/wrapper.py",
    ),
    (
        Sign.NCCL_CUMEM,
        False,
        r"\bNCCL version 2\.2(?:4\.\d|5\.\d|6\.[0-4])\b",
        "nccl release notes of 2.24 and 2.26.5; github.com/NVIDIA/nccl/issues, NCCL_CUMEM_HOST_ENABLE",
    ),
)
SKIPS = re.compile(r"\b(?:[Ss]kipp(?:ing|ed)|[Rr]etrying|[Ff]alling back)\b|The caller indicates that this is not a failure")
"""Words, in the line of a message, of a program that goes on: training loops; tensorflow tsl/framework/bfc_allocator.cc."""
_COMPILED = tuple((sign, near, re.compile(pattern)) for sign, near, pattern, _ in _SIGNS)

_FIGURE = re.compile(
    r"(?P<label>(?:[A-Za-z_]{1,16}[ /]){0,2}[A-Za-z_]{0,12}(?:rss|RSS|mem|memory|Memory|Mem|alloc|allocated|Allocated|reserved|VRAM|vram|peak|cuda|GPU_mem))"
    r"(?::? {1,2}used)?[ :=(]{1,4}(?P<value>\d{1,12}(?:\.\d{1,6})?) ?(?P<unit>[KMGT]i?B?)?\b"
)
_FIGURE_BEFORE = re.compile(
    r"(?P<value>\d{1,6}(?:\.\d{1,6})?) ?(?P<unit>[KMGT]i?B) (?P<label>(?:\w{1,12} ){0,2}memory (?:is )?(?:still )?in use)"
)
"""The same with its name behind it, as vLLM tells what stays when it sleeps (vllm/v1/worker/gpu_worker.py)."""
_SCALE = {"": 1.0, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}
POINTS, FACTOR = 3, 1.5
"""Of a figure that grows, at least so many values are printed, and the last is at least so many times the first."""


_BAR = re.compile(r"\b(\d{1,9})/(\d{1,9}) \[")
_MOVES = re.compile(
    r"\b(?:\w{0,20}loss|ppl)\W{1,4}\d|\bAvg generation throughput: 0*[1-9]|\bAcc@1\W{1,3}\d|\bTrial \d{1,6} (?:finished|failed)|"
    r"\[I \d{4}-.{0,40}Trial \d|\bsrv\b.{0,24}(?:load_model: (?:initializing|loaded)|update_slots:)|\bserver is listening on\b|\bllama runner started\b"
)
_ENDS = re.compile(
    r"Traceback \(most recent call last\)|\b(?:exitcode|exits? with|exited with|terminated with|closing signal|Aborted|core dumped|Killed)\b"
)


def outcome_of(above: Sequence[str], below: Sequence[str]) -> Outcome:
    """Whether the program went on after a message, by the first line ``below`` that tells: progress, or an end.

    ``above`` is nearest first. A progress bar tells only if it moves: one that is left in the middle is drawn once more when the program
    dies.
    """
    stood = {total: int(number) for line in reversed(above) for number, total in _BAR.findall(line)}
    for line in below:
        if _ENDS.search(line):
            return Outcome.ENDED
        moved = False
        for number, total in _BAR.findall(line):
            moved |= int(number) > stood.get(total, int(number))
            stood.setdefault(total, int(number))
        if moved or _MOVES.search(line):
            return Outcome.WENT_ON
    return Outcome.UNKNOWN


_RAISED = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): \S|Exception in background worker")
_CONSEQUENCE = re.compile(
    r"ChildFailed|CalledProcess|ProcessExited|ProcessRaised|WorkerCrashed|BrokenProcessPool|TerminatedWorker|ActorDied|RayActor|RayTask|"
    r"Connection(?:Reset|Refused|Aborted|Error)|BrokenPipe|EOFError|Signal|DataLoader worker|killed|SIGKILL|background workers?\b.{0,20}(?:alive|under)|"
    r"\bWARN(?:ING)?\b"
)
"""Errors that come of it when another process ends, and what is a warning only."""


def earlier_error(above: Sequence[str]) -> str:
    """The nearest line ``above`` a message in which an exception ends that is no consequence of another process's end; "" for none."""
    return next(
        (
            line.strip()[:160]
            for line in above
            if _CONSEQUENCE.search(line) is None and _RAISED.match(read_line(line).text) is not None
        ),
        "",
    )


_BUILDS = re.compile(
    r"\bninja\b|\bnvcc\b|\bcc1plus\b|\bbuild_ext\b|setup\.py (?:install|build|develop|bdist_wheel)|Building wheel for"
)
_BUILT = re.compile(
    r"ninja: no work to do|Loading extension module|Time to load \w{1,40} op|Successfully (?:installed|built)|Finished processing dependencies"
)


def _is_building(above: Sequence[str], below: Sequence[str]) -> bool:
    """Whether an extension is being built: the nearest line that speaks of one does not say that it is there.

    Sources: torch/utils/cpp_extension.py, pip, setuptools, deepspeed op_builder/builder.py.
    """
    last = next((line for line in above if _BUILDS.search(line) is not None or _BUILT.search(line) is not None), "")
    if last:
        return _BUILT.search(last) is None
    return any(_BUILDS.search(line) is not None for line in below)


def signs_of(above: Sequence[str], below: Sequence[str]) -> frozenset[Sign]:
    """The signs in the lines ``above`` and ``below`` a message, each nearest first."""
    near = [*above[:NEAR], *below[:NEAR]]
    everything = [*above, *below]
    building = frozenset({Sign.EXTENSION}) if _is_building(above, below) else frozenset()
    return building | frozenset(
        sign for sign, is_near, pattern in _COMPILED if any(map(pattern.search, near if is_near else everything))
    )


_SHARE = re.compile(
    r"\b(?:gpu[_-]memory[_-]utilization|mem[_-]fraction[_-]static|cache[_-]max[_-]entry[_-]count|cuda[_-]memory[_-]fraction|"
    r"(?:kv_cache_)?free_gpu_mem(?:ory)?_fraction)['\"]?(?: ?[=:] ?| )(?P<share>0?\.\d{1,4}|1\.0{1,3}|1)(?![\d.])"
)
"""An engine's share of the device, as its options and configurations name it (`engines` has their sources)."""


def share_of(lines: Sequence[str]) -> float | None:
    """The share of the device that the nearest of ``lines`` gives an engine; None when none does."""
    return next((float(found["share"]) for line in lines if (found := _SHARE.search(line)) is not None), None)


def growth_of(above: Sequence[str]) -> Growth | None:
    """The figure about memory that rises most in the lines ``above`` a message, nearest first; None when none rises."""
    series: dict[str, list[tuple[float, str]]] = {}
    for line in reversed(above):
        for found in (*_FIGURE.finditer(line[:400]), *_FIGURE_BEFORE.finditer(line[:400])):
            unit = found["unit"] or ""
            value = float(found["value"]) * _SCALE[unit[:1]]
            series.setdefault(" ".join(found["label"].split()), []).append(
                (value, f"{found['value']}{' ' + unit if unit else ''}")
            )
    best: tuple[float, Growth] | None = None
    for label, values in series.items():
        numbers = [value for value, _ in values]
        rises = all(later >= earlier * 0.98 for earlier, later in pairwise(numbers))
        if len(numbers) < POINTS or not rises or numbers[0] <= 0 or numbers[-1] < FACTOR * numbers[0]:
            continue
        factor = numbers[-1] / numbers[0]
        if best is None or factor > best[0]:
            best = factor, Growth(label, values[0][1], values[-1][1])
    return None if best is None else best[1]
