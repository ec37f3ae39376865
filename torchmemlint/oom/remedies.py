"""The remedies, each in words with the line to write; `advice` chooses among them."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
SMALLER_STEPS = Remedy(
    "Halve what one step works on: the batch, the length, the resolution",
    "activations scale with the batch, attention with the square of the length, images with their area; where it trains, two halves with "
    "their gradients added give the same step",
    "results = [model(part) for part in inputs.split(8)]",
    Advice.SMALLER_BATCHES,
)
"""This and the next three are for a program of which the log does not show whether it trains or infers."""
SIXTEEN_BITS = Remedy(
    "Compute in bfloat16 or float16",
    "activations take half the bytes; weights do, too, if they are loaded so; on a GPU without bfloat16 use float16",
    'with torch.autocast("cuda", dtype=torch.bfloat16):\n    output = model(batch)',
    Advice.PRECISION,
)
RESULTS_AS_NUMBERS = Remedy(
    "After a step, keep numbers or results on the host, not tensors of the device",
    "what is collected there grows from step to step, with its graph if it has one",
    "history.append(output.detach().cpu())",
    Advice.NO_GRAPH_KEPT,
)
RECOMPUTE_IF_TRAINING = Remedy(
    "If it trains: recompute activations instead of storing them",
    "measured 0.08 of the activations with a checkpoint per layer; it costs about one more forward",
    "from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, use_reentrant=False)",
    Advice.CHECKPOINTING,
)
ONE_PROCESS_PER_DEVICE = Remedy(
    "Run one process for each device",
    "DataParallel keeps the model, the gathered outputs and the gradients of all on the first device, which is full before the others",
    "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])        # torchrun --nproc_per_node 4 train.py",
)
BALANCED_MAP = Remedy(
    "Leave room for activations on the first device",
    'device_map="auto" fills the devices in their order with weights; the inputs, the cache and the last layer\'s output need room there, too',
    'model = AutoModel.from_pretrained(name, device_map="balanced_low_0")    # or max_memory={0: "12GiB", 1: "22GiB"}',
)
ATTENTION_KERNEL = Remedy(
    "Call an attention kernel of the device that never builds the whole matrix",
    "scaled_dot_product_attention falls back to the plain form where the device, the head size, the mask or the number format has no fused kernel",
    "with torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION):    # says why, if it cannot; Ascend: torch_npu.npu_fusion_attention\n"
    "    out = torch.nn.functional.scaled_dot_product_attention(q, k, v)",
    Advice.FUSED_ATTENTION,
)
LESS_ON_OTHER_STREAMS = Remedy(
    "Let less work wait on other streams",
    "a block that was used on a second stream is held back until that stream has passed it, and with it all that were freed later",
    "export TORCH_NCCL_AVOID_RECORD_STREAMS=1        # torch 2.x; else a synchronization every few steps, a newer torch, smaller collectives",
)
RESTART_DRIVER = Remedy(
    "Restart the driver or the machine, and try the smallest tensor",
    "as long as one number cannot be put on the device, nothing in the program matters",
    "python -c 'import torch; print(torch.ones(1, device=\"cuda\"))'    # and the driver's own tool, `dmesg -T | tail`",
)
RESTART_PROCESS = Remedy(
    "Restart the process before anything else is tried in it",
    "after a failed growth of a segment its allocator keeps a hole, and every later allocation may fail in the same assertion; a newer torch "
    "may recover",
)
ENGINE_GIVES_BACK = Remedy(
    "Let the engine of the job hold less while the trainer works",
    "what it keeps when it sleeps must fit beside the trainer; if that grows from step to step, its release has a fault of its own",
    "--gpu-memory-utilization 0.5        # sleep level 2, a newer or older release, or devices of its own for the engine",
)
SHARE_WITH_WORKERS = Remedy(
    "Give each part of the job its share of the device, or one of its own",
    "the parts do not know of each other: each takes what it finds free",
    "ray.remote(num_gpus=1)(Worker)        # a device for each, or smaller settings of both",
)
MORE_ROOM_ON_HOST = Remedy(
    "Close other programs, or let swap or the paging file grow",
    "what is missing is the difference of the two figures",
    "free -h        # Windows: System > Advanced > Performance > Virtual memory; or a smaller or more quantized model",
)
SHORTER_SEQUENCES_ON_HOST = Remedy(
    "Let the longest sequence be shorter",
    "arrays that the engine prepares on the host for it, as masks and tables of positions, grow with it, in each worker; a newer release may "
    "build them otherwise",
    "--max-model-len 32768        # SGLang: --context-length",
)

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
    'out = torch.nn.functional.scaled_dot_product_attention(q, k, v)    # transformers: attn_implementation="sdpa"',
    Advice.FUSED_ATTENTION,
)
LEAVE_ROOM = Remedy(
    "Let the library allocate before the cache has grown",
    "handles and workspaces are created at first use; early in the program there is room",
    "torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)    # before the model is on the device",
)
LEAVE_ROOM_FOR_NCCL = Remedy(
    "Let NCCL allocate before the cache has grown, and let it take less",
    "communicators are created at first use; each channel has buffers on the device",
    "torch.distributed.barrier()        # before the model is on the device\n"
    "export NCCL_BUFFSIZE=1048576 NCCL_MAX_NCHANNELS=8 NCCL_NVLS_ENABLE=0",
)
FEWER_METAL_GRAPHS = Remedy(
    "Keep shapes steady: every new shape adds a compiled graph with its own buffers",
    "Metal keeps them for the life of the process",
    "tokens = pad(tokens, multiple_of=128)        # a few lengths instead of many",
    Advice.STEADY_SHAPES,
)
FEWER_WORKERS = Remedy(
    "Use fewer loader workers, a smaller prefetch, and a dataset with arrays instead of lists of objects",
    "each worker has its own copy of the dataset's objects, and prefetch_factor batches",
    "DataLoader(dataset, num_workers=2, prefetch_factor=2)",
)
ARRAYS_IN_PARTS = Remedy(
    "Read and build arrays in parts, in the smallest type that holds them",
    "an array lies in one piece, and most operations on it make another of its size; float64 is NumPy's default",
    'array = np.load(path, mmap_mode="r")        # or np.memmap; dtype=np.float32',
)
SMALLER_TENSOR = Remedy(
    "Make the tensor smaller, in fewer bytes per value, or in parts",
    "it is as large as the sizes in the call say: 4 bytes for each value in float32, 2 in 16 bits",
    'x = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)    # or rows n // 4 at a time',
)
EARLIER_CELLS = Remedy(
    "Release what earlier cells hold",
    "a notebook keeps every variable, the outputs of its cells, and the frames of the last error",
    "del x        # and %reset -f out; or restart the kernel",
)
LIFT_LOCK_LIMIT = Remedy(
    "Lift the limit of locked memory",
    "it is set for users in /etc/security/limits.conf, and for jobs by the daemon that starts them",
    "ulimit -l unlimited        # docker run --ulimit memlock=-1; Slurm: LimitMEMLOCK=infinity for slurmd",
)
LOAD_FIRST = Remedy(
    "Load the library that the message names first",
    "it then finds the room that the others leave later",
    "export LD_PRELOAD=/path/of/the/message/libgomp.so.1        # or import its package before the others",
)
WHO_KILLED = Remedy(
    "See who ended the process",
    "the kernel's log names each process that it kills for its memory; the scheduler's record names its own reasons",
    "dmesg -T | grep -i 'killed process'        # Slurm: sacct -j JOB --format=State,MaxRSS; Kubernetes: kubectl describe pod",
)
SEE_SHARED_MEMORY = Remedy(
    "See whether shared memory is full while the program runs",
    "if it is, give the container more or use fewer loader workers; if not, the fault is another one",
    "df -h /dev/shm        # docker run --shm-size=8g; faulthandler: python -X faulthandler PROGRAM.py",
)
WHAT_IS_FREE = Remedy(
    "See what is free, on the device and on the host, as the program comes to that line",
    "the message has no figures; these tell whose memory it was and who holds it",
    "nvidia-smi; free -h; df -h /dev/shm; ulimit -a",
)
FREE_ON_HOST = Remedy(
    "See what is free on the host as the program comes to that line",
    "the message does not say how much there was; a limit of the job or container may be lower than the machine's memory",
    "free -h; cat /sys/fs/cgroup/memory.max; ulimit -a",
)
READ_DRIVER_LOG = Remedy(
    "Read the driver's own log",
    "a device that hangs or was reset, a kernel with too many registers and a lack of memory look the same from outside",
    "dmesg -T | tail -n 50",
)
MORE_MAPPINGS = Remedy(
    "Allow more mappings, or share fewer tensors",
    "the limit is the kernel's, for each process; a batch of many small tensors takes many",
    "sysctl -w vm.max_map_count=655300        # or one tensor for a whole batch, fewer workers, a smaller prefetch_factor",
)
OPEN_FILE = Remedy(
    "See why the file could not be opened or mapped",
    "no lack of memory: a file that another process has removed, missing rights, or a file system (a network one, FUSE) that cannot map files",
    'torch.multiprocessing.set_sharing_strategy("file_system")        # for tensors that workers share; else copy the file to a local disk',
)
READ_ERROR_ABOVE = Remedy(
    "Read the first error above the message",
    "the worker that is missing may have ended by it; without an error of its own, it was killed",
    "dmesg -T | grep -i 'killed process'",
)
LOAD_LAZILY = Remedy(
    "Load checkpoints without a second copy in memory",
    "a loaded state dict is a second copy of the weights until it is dropped; each rank, each process and, with some libraries, each NUMA node "
    "has a copy of its own",
    'state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)        # one process per node; ktransformers: without USE_NUMA',
    Advice.LOADING,
)
HANDLER = Remedy(
    "Retry after the except block, not inside it",
    "inside, the exception's traceback still holds every frame's tensors: the retry has less room than the first attempt",
    "failed = False\ntry:\n    step(batch)\nexcept torch.OutOfMemoryError:\n    failed = True\n"
    "if failed:\n    step(half(batch))",
    Advice.HANDLER,
)


OPTIMIZER_STATE = Remedy(
    "Keep less state per parameter",
    "Adam keeps two values for each parameter, from its first step on: with float32 weights and gradients, 16 bytes per parameter",
    "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())    # or Adafactor, LoRA, ZeRO or FSDP over the ranks, or kept on the host",
)
NOTHING_BETWEEN_TRIES = Remedy(
    "Keep nothing between the tries",
    "the model, the optimizer and the loader of a failed try must be built inside the function that is tried, or they stay",
    "@find_executable_batch_size(starting_batch_size=64)\ndef run(batch_size):\n    accelerator.free_memory()\n    model = build()",
    Advice.HANDLER,
)
INFER_LESS = Remedy(
    "Infer on less at a time: a smaller batch, a shorter or cut input, a lower resolution, tiles",
    "activations scale with the batch, attention with the square of the length, images with their area, as do outputs that are resized to "
    "the original picture",
    "results = [model(part) for part in inputs.split(8)]    # diffusers: pipe.vae.enable_tiling()",
    Advice.SHAPES,
)
INFER_LESS_OF_ONE = replace(INFER_LESS, title="Infer on less at a time: a shorter or cut input, a lower resolution, tiles")
"""Where a batch has one sample already."""
RESULTS_TO_HOST = Remedy(
    "Move each result to the host as it comes",
    "results collected on the device fill it, whatever one step needs",
    "outputs.append(model(batch).cpu())",
    Advice.NO_GRAPH_KEPT,
)
WEIGHTS_IN_FEWER_BITS = Remedy(
    "Load the weights in 16 bits, or quantized",
    "a parameter takes 4 bytes in float32, 2 in bfloat16, 1 in int8, about 0.6 in 4 bits; checkpoints are often read as float32",
    "model = AutoModel.from_pretrained(name, dtype=torch.bfloat16)    # or quantization_config=BitsAndBytesConfig(load_in_4bit=True)",
    Advice.PRECISION,
)
SHARD_WEIGHTS = Remedy(
    "Spread the weights over several devices, or over device and host",
    "what does not fit on one device can be split by layers (device_map) or by parameters (FSDP, ZeRO-3)",
    'model = AutoModel.from_pretrained(name, device_map="auto")    # training: fully_shard(layer), or ZeRO stage 3,\n'
    "# with HfDeepSpeedConfig(config) before from_pretrained: a model that is loaded already stays whole on every rank",
)
LOAD_ONCE = Remedy(
    "Never have the weights twice",
    "a checkpoint that is read onto the device is a second copy there, once in each rank; a model built on the meta device takes nothing "
    "until its weights are assigned",
    'state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)\n'
    'with torch.device("meta"):\n    model = Model()\nmodel.load_state_dict(state, assign=True)\nmodel.to(device)',
    Advice.LOADING,
)
OFFLOAD = Remedy(
    "Keep on the host what is not in use",
    "layers are brought to the device one after another: slower, but only one of them is there",
    "pipe.enable_model_cpu_offload()    # diffusers; transformers: device_map with max_memory; training: CPUOffloadPolicy, ZeRO offload",
)
DATA_ON_HOST = Remedy(
    "Keep the data on the host, and move each batch as it is used",
    "a data set that is moved where it is read fills the device before the first step, and grows with the number of files",
    "image = self.images[index].to(device, non_blocking=True)    # in the step; gaussian splatting: --data_device cpu",
    Advice.LOADING,
)
COMPILE_PLAINLY = Remedy(
    "Compile without measuring variants and without CUDA graphs",
    "autotuning runs each variant on copies of the inputs; CUDA graphs keep a pool of their own for every shape that is captured",
    'model = torch.compile(model)                 # instead of mode="max-autotune" or "reduce-overhead"\n'
    "model = torch.compile(model, dynamic=True)   # one graph for many shapes",
)
SET_DEVICE = Remedy(
    "Let each rank choose its device before it touches any",
    "the first call that needs a device creates a context on the current one, which is 0 until it is set",
    'local_rank = int(os.environ["LOCAL_RANK"])\ntorch.cuda.set_device(local_rank)    # before init_process_group, .cuda(), or a load',
)
LOAD_ONTO_OWN_DEVICE = Remedy(
    "Load checkpoints onto the host or onto the rank's own device",
    "a checkpoint saved from device 0 is read back to device 0, by every rank",
    'state = torch.load(path, map_location="cpu", weights_only=True)\nmodel.to(local_rank)    # and .to(local_rank), not .cuda() or "cuda"',
    Advice.LOADING,
)
FEWER_TEST_WORKERS = Remedy(
    "Run fewer test workers on a device",
    "each worker has a context, models and a cache of its own on it until it ends",
    "pytest -n 2        # or -n 0 for the tests that need the device",
)
SHOW_ONE_DEVICE = Remedy(
    "Show each rank or worker one device only",
    "it then cannot take room on another; a server with several workers has a copy of the model in each",
    "CUDA_VISIBLE_DEVICES=$LOCAL_RANK python train.py    # set by the launcher, for each rank",
)
READ_FIGURES = Remedy(
    "Read the figures the message does not give",
    "allocated and reserved memory show whether the device is full or fragmented",
    "import torchmemlint\ntorchmemlint.report_memory()        # just before the failing line",
)
CHECK_TOTAL = Remedy(
    "Compare the total with what the machine has",
    "driver and firmware decide how much of the host's memory an integrated GPU may use; containers and visible-device settings can show "
    "another device than the one you mean",
    "python -c 'import torch; print(torch.cuda.get_device_properties(0))'    # and the driver's own tool; `uname -r`, for a newer kernel",
)
CHECK_DRIVER = Remedy(
    "See what refuses: the driver, a limit, or one of several devices",
    "with room on the device, sizes and batches are not the reason: try the smallest tensor, with one device visible, under another driver",
    "python -c 'import torch; x = torch.ones(1, device=\"cuda\"); print(x)'    # then a larger one; `ulimit -a` shows the limits",
)
SELDOM = Remedy(
    "Change nothing if it is seldom",
    "the program goes on by itself; each time costs the work that is skipped or repeated",
)
LESS_STATE_ON_HOST = Remedy(
    "Keep less on the host: parameters on the devices, state in fewer bits, on NVMe or spread over more ranks",
    "what is offloaded must fit into the host's memory once, together with the buffers for the transfer",
    '"offload_param": {"device": "none"}        # DeepSpeed; or "nvme" with nvme_path, pin_memory: false, LoRA in place of a full tuning',
)
PINNED = Remedy(
    "Pin less, or nothing",
    "each prefetched batch is pinned once more, and so is what is offloaded",
    'DataLoader(dataset, pin_memory=False)        # or a smaller prefetch_factor; DeepSpeed: "pin_memory": false',
)
MORE_SHARED_MEMORY = Remedy(
    "Give the container shared memory",
    "loader workers pass their batches through /dev/shm, NCCL its data",
    "docker run --shm-size=8g …        # Kubernetes: an emptyDir with medium: Memory at /dev/shm",
)
PAGING_FILE = Remedy(
    "Let Windows grow the paging file, and start fewer processes",
    "reserved memory counts although it is never used; a paging file of the RAM's size is enough to promise it",
    "DataLoader(dataset, num_workers=0)        # System > Advanced > Performance > Virtual memory: system managed",
)
FEWER_COMPILERS = Remedy(
    "Run fewer compilers at a time",
    "each takes several GiB for templates of CUDA code",
    "export MAX_JOBS=2        # before the extension is built; NVCC_THREADS=1 where the project reads it; torch.compile: "
    "TORCHINDUCTOR_COMPILE_THREADS=1",
)
MORE_FOR_COMPILER = Remedy(
    "Give the compiler more of the host's memory, or compile elsewhere",
    "it holds the whole program that it makes; on a board the model's weights lie in the same memory",
    "free -h        # swap, fewer programs, a library that was compiled on a larger machine",
)
FEWER_DESCRIPTORS = Remedy(
    "Share tensors by name, or raise the limit",
    "with the default strategy each shared tensor keeps a file open as long as it lives",
    'torch.multiprocessing.set_sharing_strategy("file_system")    # or: ulimit -n 65535',
)
SMALLER_KERNEL = Remedy(
    "Let the kernel use smaller blocks or fewer stages",
    "its tiles lie in on-chip memory, which differs between GPUs: 64 to 228 KiB",
    'triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=2)    # torch.compile: without mode="max-autotune"; or a newer release',
)
FREE_OBJECTS = Remedy(
    "Release references to objects that are no longer read",
    "an object stays while any variable, list or task holds its reference",
    "del refs        # ray.put once instead of in a loop; ray.init(object_store_memory=…) for more room",
)
SHARDED_STATE = Remedy(
    "Save each rank's part, or gather the whole on the host of one rank",
    "a full state dict is an unsharded copy of all parameters, made on the device unless it is told otherwise",
    "torch.distributed.checkpoint.save(sharded_state, checkpoint_id=path)\n"
    "FullStateDictConfig(offload_to_cpu=True, rank0_only=True)    # FSDP; DeepSpeed: stage3_gather_16bit_weights_on_model_save=false",
)
COPIES_ON_HOST = Remedy(
    "Keep averaged and reference copies of the model on the host",
    "an EMA is read at a save or an evaluation only",
    "ema = {name: value.detach().cpu() for name, value in model.state_dict().items()}",
)
MARGIN = Remedy(
    "Take a margin below the batch size that the search found",
    "the search stops at the largest size that passes a few steps; longer samples, validation and the allocator's gaps come later, and what "
    "its failed tries hold stays in the process",
    "batch_size = int(0.8 * found)        # in a new process; more steps per trial in the search",
)
WITHOUT_SEARCH = Remedy(
    "Set a batch size, without the search, to see the first error",
    "the search hides it, and repeats the program with what the failed try still holds",
    "TrainingArguments(auto_find_batch_size=False, per_device_train_batch_size=n)        # resume from the last checkpoint, in a new process",
)
SMALLER_EVALUATION = Remedy(
    "Evaluate in smaller batches, and move results to the host every few steps",
    "an evaluation collects the outputs of all its batches on the device",
    "TrainingArguments(per_device_eval_batch_size=n, eval_accumulation_steps=8)",
)
SEGMENTS_TAKE_EFFECT = Remedy(
    "See that the setting of the allocator takes effect",
    "expandable segments are set already: the variable is read when torch first uses the device, newer releases read PYTORCH_ALLOC_CONF, too, "
    "and not every platform has them",
    'python -c \'import torch; torch.ones(1, device="cuda"); print(torch.cuda.memory._snapshot()["allocator_settings"])\'',
)
NEWER_TORCH = Remedy(
    "Use a newer torch",
    "this release has no setting of its allocator: max_split_size_mb came with 1.10, expandable_segments with 2.1",
    "torch>=2.1        # in the project's requirements",
)
NATIVE_ALLOCATOR = Remedy(
    "Use PyTorch's own allocator, whose messages have figures",
    "the program selected cudaMallocAsync, for which neither max_split_size_mb nor expandable_segments exists",
    "export PYTORCH_CUDA_ALLOC_CONF=backend:native        # ComfyUI: --disable-cuda-malloc",
)
WHO_USES_SHARED_MEMORY = Remedy(
    "See who uses the memory that GPU and host share",
    "programs, page cache and copies on the host count; the driver may also limit how much of it the GPU gets",
    "free -h; top -o %MEM        # ROCm: /sys/class/drm/card*/device/mem_info_gtt_*",
)
NOTHING_TWICE = Remedy(
    "Drop what is no longer needed, instead of moving it to the host",
    "on such a device a model that is offloaded takes the same memory as before",
    "del pipe.text_encoder, pipe.transformer        # before the decoder runs; diffusers: enable_sequential_cpu_offload gains nothing",
)
PRINT_SIZES = Remedy(
    "Print the sizes that reach the failing call",
    "a count, length or index is wrong before it; an extension that was built for another torch, CUDA or number of channels reads garbage",
    "print({name: (t.shape, t.dtype, t.isfinite().all().item()) for name, t in inputs.items()})    # then rebuild the extension",
)
PRINT_RECEIVED = replace(
    PRINT_SIZES,
    why="a length that another rank sent is wrong before it",
    code="print(rank, [tuple(t.shape) for t in received])    # on each rank, before the call",
)
"""The same where the size came in a collective operation."""
SMALLER_BLOCKS = Remedy(
    "Allocate in blocks below 4 GiB, or lift the driver's limit",
    "the limit is one of a single allocation; newer drivers and releases have it relaxed",
    "export UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1        # before the program starts",
)
STAY_SPREAD = Remedy(
    "Leave the model where its device map has put it",
    "`.cuda()` or `.to(device)` behind a device map gathers the whole model on one device again",
    'model = AutoModel.from_pretrained(name, device_map="auto", max_memory={0: "20GiB", "cpu": "60GiB"})    # no .cuda() behind it',
)
UNPAGED_OPTIMIZER = Remedy(
    "Take an optimizer that is not paged",
    "its state then lies on the device alone: 8 bits per value for the 8-bit ones",
    'TrainingArguments(optim="adamw_8bit")        # or adamw_torch, in place of paged_adamw_32bit',
)
MORE_FOR_WSL = Remedy(
    "Give the virtual machine of WSL more memory",
    "it has half of the machine's by default",
    "[wsl2]        # in %UserProfile%\\.wslconfig, then: wsl --shutdown\nmemory=24GB\nswap=32GB",
)
NCCL_WITHOUT_HOST_MEMORY = Remedy(
    "Let NCCL allocate its host buffers another way",
    "the way through CUDA's virtual memory does not work everywhere; a newer NCCL checks that first",
    "export NCCL_CUMEM_HOST_ENABLE=0        # NCCL 2.26.5 or later; as a check: NCCL_SHM_DISABLE=1, or the backend gloo",
)
FIND_THE_PLACE = Remedy(
    "Find the call that fails",
    "errors of the driver come late; in this mode each call waits for its result",
    "CUDA_LAUNCH_BLOCKING=1 python program.py",
)
LESS_PINNED = Remedy(
    "Keep less on the host in pinned memory",
    "offloaded weights and prefetched batches are pinned, which the system limits; the driver's error is the same",
    "DataLoader(dataset, pin_memory=False)        # ComfyUI: --disable-pinned-memory, --disable-async-offload",
)
NOTHING_TO_DO = Remedy(
    "Change nothing",
    "the message is about a candidate that was dropped; without autotuning it is not tried",
    'model = torch.compile(model)        # if the lines disturb: instead of mode="max-autotune"',
)
ALL_DEVICES_VISIBLE = Remedy(
    "See that the launch has as many devices as ranks",
    "in a container with one device, or with CUDA_VISIBLE_DEVICES=0 for all, every rank takes device 0",
    "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES        # docker run --gpus all",
)
TRAINER_MAKES_ROOM = Remedy(
    "Let the trainer make room before the engine wakes",
    "parameters, optimizer state and the idle cache of the trainer are not given back by themselves",
    "actor.fsdp_config.param_offload=True actor.fsdp_config.optimizer_offload=True        # verl; smaller micro batches",
)
FIND_WHAT_GROWS = Remedy(
    "Find what grows on the host",
    "more memory for the job only delays the end",
    "import tracemalloc\ntracemalloc.start()        # compare two snapshots, some hundred steps apart: lists, caches, open files",
)
FEWER_ACTORS = Remedy(
    "Run fewer actors on a node, with smaller buffers, and keep less on the host for them",
    "each actor has its own environments, replay or rollout buffers, and what is offloaded from its GPU",
    "ray.remote(num_cpus=16)(Worker)        # fewer at a time; environments per worker, length of a rollout, offload to the CPU",
)
UNLOAD = Remedy(
    "Release models that are not in use",
    "what is offloaded or cached between runs stays in the host's memory",
    "del model; gc.collect()        # ComfyUI: --cache-ram 20 below the limit, --disable-smart-memory, --cache-none",
)
CHECK_INDICES = Remedy(
    "Check indices and labels against the sizes that they index",
    "tokens beyond the vocabulary, classes beyond the last one, positions beyond the longest",
    "assert int(ids.max()) < embedding.num_embeddings        # on the CPU the error names the place",
)
RELEASE_CHECKPOINT = Remedy(
    "Read the checkpoint onto the host, and drop it once its states are loaded",
    "a checkpoint that is read holds its weights and its optimizer state a second time as long as the dictionary lives; on the device it leaves the "
    "cache in pieces",
    'state = torch.load(path, map_location="cpu", mmap=True)\nmodel.load_state_dict(state["model"])\noptimizer.load_state_dict(state["optimizer"])\ndel state; gc.collect()',
    Advice.LOADING,
)
SETTINGS_OF_CHECKPOINT = Remedy(
    "See which settings the checkpoint brought",
    "the log warns that they are not those that were given: the batch of the interrupted run may be the one that runs now",
    "grep -n batch_size checkpoint-*/trainer_state.json        # correct it there, or use a newer release of the trainer",
)
RELEASE_BEFORE_ENGINE = Remedy(
    "Release what the program itself holds before it starts the engine, or start the engine in a program of its own",
    "a model that was made or trained before stays on the device, and so does the idle cache of the allocator",
    "del model, trainer; gc.collect()        # the cache goes with the process: run the first part in one that ends",
)
FEWER_SERVER_WORKERS = Remedy(
    "Start one worker of the web server",
    "each worker is a process with a copy of the model",
    "gunicorn -w 1 app:app        # uvicorn --workers 1; a larger --timeout, if loading takes long",
)
LESS_ON_HOST = Remedy(
    "Take less of the host's memory: a smaller or more quantized model, a shorter context, one copy",
    "weights that are read, caches and what is kept for a GPU all lie there",
    "free -h        # beside the limit of the container or job; llama.cpp: -c, --cache-ram, --no-mmap",
)
LESS_OF_ENGINE_ON_HOST = Remedy(
    "Let the engine keep less on the host",
    "space for swapping and offloaded weights are set aside for each GPU; for one GPU, Ray and its object store are not needed",
    "--swap-space 1 --cpu-offload-gb 0        # vLLM; without --worker-use-ray",
)
CHECK_ESTIMATE = Remedy(
    "Compare the estimate with what is really there",
    "available memory counts what can be given back, as the page cache; what is free does not",
    "free -h; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.stat        # a newer release may count better; a restart empties the cache",
)
PICTURES_ON_HOST = Remedy(
    "Work on smaller pictures, or keep their encoder on the host",
    "a picture's encoder has a buffer of its own, which grows with the picture; layers and context must leave it room",
    "llama-server --no-mmproj-offload --image-max-tokens 1024        # or fewer layers and a smaller context on that device",
)
RANKS_IN_STEP = Remedy(
    "Look for the rank that left the order of collectives",
    "one that saves, evaluates or ends while the others go on receives what is meant for another call",
    "export TORCH_DISTRIBUTED_DEBUG=DETAIL NCCL_DEBUG=INFO        # calls under `if rank == 0`, batches that differ in number",
)
READ_WORKER_LOG = Remedy(
    "Read what the process itself printed last",
    "an error of its own, or its lack, tells which of the reasons it was",
    "ls -t /tmp/ray/session_latest/logs/worker-*.err | head -3        # Ray; else the rank's own log",
)
OFFLOAD_TAKES_EFFECT = Remedy(
    "See that the offloading takes effect for the part that fails",
    "it was asked for, and this part was put on the device all the same: some are built there first, in 32 bits, or are not covered by the setting",
    "# a newer release of the engine; until then, this part loaded on the host and in 16 bits, before the others",
)
CROP_SAMPLES = Remedy(
    "Shorten or crop the samples: length, resolution, frames",
    "activations scale with them, attention with the square of the length",
    "sample = sample[:, :, :16]        # fewer frames or tokens; then sequence or model parallelism over the devices",
    Advice.SHAPES,
)
COMPILE_ALONE = Remedy(
    "Compile while little else is on the device, or on smaller sizes first",
    "what is tried works on copies of the arguments; afterwards the compiled function needs less",
    "model(small_batch)        # with dynamic=True; then the whole size",
)
SMALLER_TILES = Remedy(
    "Decode in tiles, or in smaller ones",
    "the decoder's activations scale with the area of a picture and, for films, with the number of frames in a tile; the steps before it have passed",
    "pipe.vae.enable_tiling()        # else a smaller tile size, also in time; or save the latents, and decode them with nothing else on the device",
    Advice.SHAPES,
)
CHUNK_QUERIES = Remedy(
    "Split the queries into chunks",
    "this device has no kernel for it that does without the whole score matrix; the rows of one chunk are a part of it",
    "out = torch.cat([F.scaled_dot_product_attention(part, k, v) for part in q.split(1024, dim=-2)], dim=-2)",
    Advice.FUSED_ATTENTION,
)
RUN_EAGERLY = Remedy(
    "Run the function that fails without torch.compile",
    "a compiled function plans its buffers ahead, in pools, with room for sizes that vary; the eager form asks for one at a time",
    "export TORCHDYNAMO_DISABLE=1        # as a check; then @torch.compiler.disable on that function, or dynamic=False",
)
QUANTIZED_CHECKPOINT = Remedy(
    "Serve a checkpoint that is quantized already, or the weights as they are",
    "what is quantized as it is loaded is there in both forms for a while, and may take more than it would unquantized; releases differ in it",
    "# a checkpoint in FP8 or 4 bits; else without --quantization, if the weights fit as they are, or another release of the engine",
)
RESET_METRICS = Remedy(
    "Reset metrics after each evaluation",
    "a metric over all thresholds keeps every prediction until it is reset, from one evaluation to the next",
    "metric.reset()        # after compute(); torchmetrics: thresholds=200 keeps counts in place of predictions",
    Advice.NO_GRAPH_KEPT,
)
WATCH_LOADER = Remedy(
    "Watch the data set alone, without workers",
    "what grows there shows in one process: broken samples that are replaced again and again, pictures of full size, caches",
    "for sample in DataLoader(dataset, num_workers=0): print(psutil.Process().memory_info().rss)",
)
MARGIN_FOR_COLLECTIVES = Remedy(
    "Leave a margin on the device for what is not PyTorch's",
    "the idle cache is not given back for NCCL, whose communicators may be created again in each iteration",
    "torch.cuda.empty_cache()        # before the collective; or the trainer's own setting for such a margin",
)
WITHOUT_SEGMENTS = Remedy(
    "Unset expandable segments",
    "if the device has room, the program then runs; if it has none, the message comes with figures",
    "unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF        # also where a library or the program sets it, in os.environ",
)
END_STRANGERS = Remedy(
    "End what else runs on the node, or take another one",
    "Ray ends the newest task of the job, whoever holds the memory",
    "ps -eo pid,user,rss,args --sort=-rss | head",
)
ONE_SETTING = Remedy(
    "Let segments grow or bound their pieces, not both",
    "max_split_size_mb has no sense beside expandable segments; newer releases warn of it, or have the fault mended",
    "echo $PYTORCH_CUDA_ALLOC_CONF $PYTORCH_ALLOC_CONF        # one of the two out; a newer torch",
)
