"""The wordings of out-of-memory messages: a row for each, with its source beside the words to search a log for.

A source is a file of the project that writes the message, or a thread that quotes it. To teach the doctor a message, add a row
here; if none of the families fits, a family, and what it means in `meanings`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Family(Enum):
    """Which allocator, library or program wrote a message, and in which of its wordings."""

    PARENTHESES = "caching allocator, torch 1.0 to 2.0"
    SENTENCES = "caching allocator, torch 2.1 and later"
    PREEMPTED = "caching allocator, rejected before the driver was asked"
    EXABYTE = "caching allocator, size out of range"
    BARE = "caching allocator, without figures"
    ASYNC = "cudaMallocAsync backend"
    ADDRESS_SPACE = "expandable segments, virtual addresses"
    LEGACY = "THC allocator, torch 0.x"
    UNREPORTED = "caching allocator, its own report failed"
    ASSERTION = "caching allocator, a check of its own failed"
    WORKSPACE = "workspace of an Ascend operator"
    POOL = "pool of a Gaudi device"
    MPS = "MPS allocator"
    MPS_BUFFER = "Metal buffer limit"
    MPS_COMMAND = "Metal command buffer"
    BLOCK_LIMIT = "largest block of an Intel GPU"
    DIRECTML = "DirectML"
    MANAGED = "unified memory of a paged optimizer"
    RAW = "driver or runtime, outside the caching allocator"
    LIBRARY = "cuBLAS, cuDNN or another library"
    LIBRARY_INIT = "cuBLAS or cuDNN, not initialised"
    NO_PLAN = "cuDNN, no algorithm"
    NCCL = "NCCL"
    KERNEL = "resources of one kernel"
    BATCH_SEARCH = "search for a batch size"
    DISPATCHED = "device map of quantized weights"
    HANDLED = "a program that goes on without what failed"
    ENGINE_SHARE = "serving engine, more than is free"
    ENGINE_CACHE = "serving engine, nothing left for its cache"
    ENGINE_SPLIT = "serving engine, its parts of the devices"
    ENGINE_LENGTH = "serving engine, a sequence larger than its cache"
    ENGINE_WARMUP = "serving engine, its warm-up"
    ENGINE_FULL = "serving engine, its cache is full"
    ENGINE_PROFILE = "serving engine, its measurement was disturbed"
    ENGINE_WAKE = "serving engine, its memory taken back after sleep"
    ENGINE_SWAP = "serving engine, its space on the host"
    ENGINE_WAITS = "serving engine, requests that wait for its cache"
    ENGINE_WEIGHTS = "serving engine, weights that do not fit"
    ENGINE_SLOTS = "serving engine, its slots for requests"
    ENGINE_COMPONENT = "serving engine, a part that could not be created"
    OTHER_PROGRAM = "another program or library"
    CPU = "CPU allocator"
    HOST_ARRAY = "NumPy, Python or another library on the host"
    HOST_LIMIT = "scheduler or monitor of a cluster"
    PAGING_FILE = "Windows, commit limit"
    OBJECT_STORE = "object store of Ray"
    COMPILER_KILLED = "compiler killed by the system"
    WORKER_GONE = "worker process that is missing"
    KERNEL_KILLED = "the system's log of a process that it killed"
    WORKER_KILLED = "process killed by the system"
    SHARED_MEMORY = "shared memory"
    NCCL_SHARED_MEMORY = "shared memory of NCCL"
    BUS_ERROR = "bus error"
    DESCRIPTORS = "open files"
    LOCKED = "locked memory of a network card"
    THREAD_STORAGE = "thread-local storage of a library"
    UNNAMED = "a wording that is not known"


WEAK = frozenset(
    {
        Family.WORKER_KILLED,
        Family.WORKER_GONE,
        Family.LIBRARY_INIT,
        Family.NO_PLAN,
        Family.UNREPORTED,
        Family.ASSERTION,
        Family.BUS_ERROR,
        Family.DESCRIPTORS,
        Family.KERNEL,
        Family.OTHER_PROGRAM,
        Family.HANDLED,
        Family.ENGINE_WAITS,
        Family.UNNAMED,
    }
)
"""Families whose text does not say that memory ran out for PyTorch, but makes it likely or must be told from it."""

SIZE = r"(\d{1,24}(?:\.\d{1,9})?) ?(bytes|[KMGTPE]i?B)"
DEVICE_WORDS = r"(CUDA|HIP|XPU|NPU|MLU|MUSA|MTIA|SDAA|GCU|HPU|PrivateUse1)"
# Text of an exception stands at the start of what a line says, after "Error: ", or after one of a few known words. Without
# that, `if "CUDA out of memory" in str(e)` and advice in a log would count. A message with its figures needs no such guard.
_LEAD = r"(?:^|Error: |Error\): |[Ee]xception: |what\(\): +|CUDA error: |driver error: |graph failed: |[-|>:!] )"


@dataclass(frozen=True, slots=True)
class Head:
    """How a message begins.

    words    strings one of which each such line contains: a log is searched for them before a line is read
    backend  the device's; a group of the pattern that holds one of ``DEVICE_WORDS`` overrides it
    writer   the engine, program or library that wrote the message, "" for PyTorch and the system
    source   where the wording is written or quoted
    texts    ``words`` as text: only a line with one of them is read
    goes_on  whether the line goes on with a message of the same family in the line above, if there is one
    """

    family: Family
    pattern: re.Pattern[str]
    words: tuple[bytes, ...]
    backend: str
    writer: str
    source: str
    goes_on: bool
    texts: tuple[str, ...]


def _head(
    family: Family, pattern: str, words: str, source: str, *, backend: str = "CUDA", writer: str = "", goes_on: bool = False
) -> Head:
    """``words`` are separated by " | "."""
    texts = tuple(words.split(" | "))
    return Head(family, re.compile(pattern), tuple(word.encode() for word in texts), backend, writer, source, goes_on, texts)


_CACHING = "pytorch c10/cuda/CUDACachingAllocator.cpp"
_VLLM_CACHE = "vllm vllm/v1/core/kv_cache_utils.py"

_DEVICE = (
    _head(Family.ADDRESS_SPACE, r"\[ExpandableSegmentVA\]", "ExpandableSegmentVA", _CACHING),
    _head(
        Family.EXABYTE,
        rf"{DEVICE_WORDS} out of memory\. Tried to allocate more than 1EB",
        "out of memory",
        "pytorch c10/cuda/CUDACachingAllocator.cpp; torch_npu NPUCachingAllocator.cpp",
    ),
    _head(Family.PREEMPTED, rf"{DEVICE_WORDS} out of memory\. Allocation was preemptively rejected", "out of memory", _CACHING),
    _head(
        Family.WORKSPACE,
        rf"(NPU) out of memory\. NPUWorkspaceAllocator tried to allocate {SIZE}",
        "out of memory",
        "torch_npu torch_npu/csrc/core/npu/NPUWorkspaceAllocator.cpp",
    ),
    _head(
        Family.PARENTHESES,
        rf"{DEVICE_WORDS} out of (?:the )?memory\. Tried to allocate {SIZE} \(",
        "out of memory | out of the memory",
        "pytorch v2.0 c10/cuda/CUDACachingAllocator.cpp; torch_npu NPUCachingAllocator.cpp",
    ),
    _head(
        Family.SENTENCES,
        rf"{DEVICE_WORDS} out of (?:the )?memory\. Tried to allocate {SIZE}",
        "out of memory | out of the memory",
        "pytorch c10/cuda/CUDACachingAllocator.cpp, c10/xpu/XPUCachingAllocator.cpp",
    ),
    _head(
        Family.ASYNC,
        r"Allocation on device (?:\d{1,4} )?would exceed allowed memory|(?<=OutOfMemoryError: )Allocation on device|(?<=!!! )Allocation on device",
        "Allocation on device",
        "pytorch c10/cuda/CUDAMallocAsyncAllocator.cpp; github.com/kijai/ComfyUI-SUPIR/issues/183",
    ),
    _head(
        Family.MPS, r"MPS backend out of memory", "out of memory", "pytorch aten/src/ATen/mps/MPSAllocator.mm", backend="MPS"
    ),
    _head(
        Family.MPS_BUFFER,
        rf"Invalid buffer size: {SIZE}|"
        r"total bytes of NDArray > 2\*\*32",
        "Invalid buffer size | bytes of NDArray",
        "pytorch aten/src/ATen/mps/MPSAllocator.mm; github.com/pytorch/pytorch/issues/149261",
        backend="MPS",
    ),
    _head(
        Family.BLOCK_LIMIT,
        rf"Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate {SIZE}",
        "can NOT allocate memory block",
        "intel-extension-for-pytorch csrc/gpu/runtime/CachingDeviceAllocator.cpp",
        backend="XPU",
    ),
    _head(
        Family.DIRECTML,
        r"Could not allocate tensor with \d{1,20} bytes\. There is not enough GPU",
        "Could not allocate tensor",
        "github.com/lllyasviel/Fooocus/issues/1139",
        backend="DirectML",
    ),
    _head(
        Family.POOL,
        r"MODULE:PT_DEVMEM Allocation failed for size::(\d{1,20})",
        "PT_DEVMEM Allocation failed",
        "github.com/huggingface/optimum-habana/issues/289",
        backend="HPU",
    ),
    _head(
        Family.LEGACY,
        r"cuda runtime error \(2\) ?: out of memory|THCudaCheck FAIL file=\S{1,300} line=\d{1,6} error=2",
        "out of memory",
        "pytorch v0.4 aten/src/THC/THCGeneral.cpp",
    ),
    _head(
        Family.UNREPORTED,
        r"NVML_SUCCESS == [^\"]{1,120}INTERNAL ASSERT FAILED at \"[^\"]{0,300}CUDACachingAllocator\.cpp",
        "CachingAllocator.cpp",
        _CACHING,
    ),
    _head(
        Family.ASSERTION,
        r"[^\"]{0,160}\bINTERNAL ASSERT FAILED at \"[^\"]{0,300}CachingAllocator\.cpp",
        "CachingAllocator.cpp",
        _CACHING,
    ),
)

_PROGRAMS = (
    _head(
        Family.OTHER_PROGRAM,
        r"\bggml_aligned_malloc: insufficient memory|\bggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate|"
        r"\bunable to allocate CPU\w{0,12} buffer\b|\bfailed to allocate CPU\w{0,12} buffer of size \d{1,20}|"
        r"model requires more system memory(?: \([\d.]{1,9} [KMGT]iB\))? than is available",
        "insufficient memory | failed to allocate | unable to allocate | requires more system memory",
        "llama.cpp ggml/src/ggml.c, ggml-backend.cpp, ggml-alloc.c, src/llama-model.cpp; ollama llm/server.go",
        backend="CPU",
        writer="llama.cpp",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"\bggml_\w{1,60}: (?:error: )?(?:allocating [\d.]{1,12} MiB on device \d{1,3}: cudaMalloc failed|failed to allocate (?!.{0,60}pinned)|can't allocate \d{1,20} Bytes of memory on device|"
        r"error: command buffer \d{1,6} failed|Requested buffer size exceeds|.{0,40}ErrorOutOf(?:Device|Host)Memory|Device memory allocation of size \d{1,20} failed)|\bunable to allocate (?:backend|\w{3,12}\d?) buffer\b|"
        r"\bllama_\w{1,60}: .{0,60}failed to allocate (?:compute (?:pp )?buffers|buffer for kv cache)|"
        r"\bllama runner (?:process )?(?:has )?terminated\W.{0,60}out of memory|\bmemory layout cannot be allocated\b|"
        r"\b(?:ROCm|MUSA) error: out of memory",
        "out of memory | layout cannot be allocated | cudaMalloc failed | failed to allocate | llama runner | error: command buffer | memory allocation of | unable to allocate | an't allocate | buffer size exceeds | ErrorOutOf",
        "llama.cpp ggml/src/ggml-cuda/ggml-cuda.cu, ggml-alloc.c, ggml-sycl.cpp, ggml-vulkan.cpp, vendors/hip.h; github.com/ggml-org/llama.cpp/issues/7366; "
        "github.com/ollama/ollama/issues/14980, /12580",
        writer="llama.cpp",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"CUDA failed with error out of memory",
        "out of memory",
        "github.com/SYSTRAN/faster-whisper/issues/442",
        writer="CTranslate2",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"Failed to allocate memory for requested buffer of size \d{1,20}|CUDA failure 2: out of memory ?;|"
        r"Available memory of \d{1,20} is smaller than requested bytes of \d{1,20}",
        "memory for requested buffer | out of memory | Available memory of",
        "onnxruntime onnxruntime/core/framework/bfc_arena.cc, core/providers/cuda/cuda_call.cc",
        writer="ONNX Runtime",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"\[TRT\] ?\[E\].{0,240}(?:out of memory|OutOfMemory)|"
        r"Requested amount of GPU memory \(\d{1,20} bytes\) could not be allocated",
        "out of memory | OutOfMemory | could not be allocated",
        "github.com/NVIDIA/TensorRT/issues/1917, /3973",
        writer="TensorRT",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"(?:stream_executor|\bbfc_allocator\b|\bxla\b|jaxlib|tensorflow|XlaRuntimeError|RESOURCE_EXHAUSTED|Resource exhausted).{0,200}"
        r"(?:CUDA_ERROR_OUT_OF_MEMORY|HIP_ERROR_OutOfMemory|[Oo]ut of memory|OOM when allocating|[Rr]an out of memory|Attempting to (?:allocate|reserve)|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED)|"
        r"from device: (?:CUDA_ERROR_OUT_OF_MEMORY|HIP_ERROR_OutOfMemory)",
        "OUT_OF_MEMORY | OutOfMemory | ut of memory | OOM when | Attempting to | _ALLOC_FAILED",
        "openxla xla/service/gpu, tsl/framework/bfc_allocator.cc",
        writer="XLA",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"Out of memory error on GPU \d{1,3}\. Cannot allocate",
        "ut of memory",
        "Paddle paddle/fluid/memory/allocation/cuda_allocator.cc",
        writer="PaddlePaddle",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"OutOfMemoryError: Out of memory allocating [\d,]{1,24} bytes|bad_alloc: out_of_memory: (?:CUDA|RMM)|"
        r"\bMemoryError: cuMemAlloc failed: out of memory",
        "ut of memory | bad_alloc",
        "cupy cupy/cuda/memory.pyx; rmm include/rmm/mr/device/cuda_memory_resource.hpp",
        writer="CuPy or RAPIDS",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"StandardGpuResources: alloc fail",
        "alloc fail",
        "faiss faiss/gpu/StandardGpuResources.cpp",
        writer="FAISS",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"\[METAL\] Command buffer execution failed: Insufficient Memory|\[(?:metal::malloc|malloc_or_wait|malloc)\] "
        r"(?:Attempting to allocate|Unable to allocate|Resource limit)",
        "Insufficient Memory | malloc",
        "mlx mlx/backend/metal/allocator.cpp; github.com/ml-explore/mlx/pull/479",
        backend="MPS",
        writer="MLX",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"DriverError\(CUDA_ERROR_OUT_OF_MEMORY",
        "OUT_OF_MEMORY",
        "cudarc src/driver/result.rs",
        writer="a program in Rust",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"llama runner (?:process )?(?:has )?terminated\W.{0,60}signal: killed",
        "llama runner",
        "ollama llm/server.go; github.com/ollama/ollama/pull/11090",
        backend="CPU",
        writer="llama.cpp",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"PxgCudaDeviceMemoryAllocator fail to allocate|PhysX Internal CUDA error.{0,120}out of memory|"
        r"Warp (?:CUDA )?error.{0,120}(?:out of memory|Failed to allocate)|"
        r"\[(?:carb|omni|gpu)\.[\w.-]{1,60}\.plugin\] .{0,40}(?:out of memory|cudaErrorMemoryAllocation)",
        "fail to allocate | out of memory | Failed to allocate | MemoryAllocation",
        "physx source/gpucommon/src/PxgMemoryManager.cpp; warp warp/native/cuda_util.cpp; github.com/isaac-sim/IsaacLab/issues/1849",
        writer="the simulator (PhysX, Warp, Kit)",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"Check failed: .{0,160}\bout of memory",
        "out of memory",
        "tvm src/runtime/cuda/cuda_device_api.cc; dgl src/runtime/cuda/cuda_device_api.cc",
        writer="a library that checks as TVM, DGL and MXNet do",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"\bVK_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY\b|\bErrorOutOf(?:Device|Host)Memory\b|\bvkAllocateMemory failed -[12]\b",
        "VK_ERROR_OUT_OF_ | ErrorOutOf | vkAllocateMemory",
        "vulkan-docs, VkResult; ncnn src/allocator.cpp",
        writer="a program that uses Vulkan",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"Exceeded max size of memory (?:object )?allocation: .{0,8}[Rr]equested \d{1,20} bytes|\bCL_MEM_OBJECT_ALLOCATION_FAILURE\b|"
        r"\bCL_OUT_OF_(?:HOST_MEMORY|RESOURCES)\b",
        "Exceeded max size of memory | CL_MEM_OBJECT | CL_OUT_OF_",
        "openvino src/plugins/intel_gpu/src/runtime/ocl/ocl_engine.cpp; opencl-headers CL/cl.h",
        writer="OpenVINO or another program that uses OpenCL",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"^(?:fatal error: )?runtime: (?:out of memory|cannot allocate memory)",
        "out of memory | annot allocate memory",
        "go src/runtime/malloc.go, mem_linux.go",
        backend="CPU",
        writer="a program in Go",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"Out of Memory: Not enough space to allocate \d{1,16} B \w{2,4} buffer",
        "Out of Memory",
        "tt-metal tt_metal/impl/allocator",
        writer="the runtime of Tenstorrent",
    ),
    _head(
        Family.OTHER_PROGRAM,
        r"java\.lang\.OutOfMemoryError: ",
        "OutOfMemory",
        "openjdk src/hotspot/share/memory",
        backend="CPU",
        writer="Java",
    ),
)

_ENGINES = (
    _head(
        Family.ENGINE_SHARE,
        r"Free memory on device (?:\w{2,5}:\d{1,3} )?\([\d.]{1,9}/[\d.]{1,9} GiB\) on startup is less than desired GPU memory utilization",
        "Free memory on device",
        "vllm vllm/v1/worker/gpu_worker.py; github.com/vllm-project/vllm/issues/20305",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_CACHE,
        r"No available memory for the cache blocks|Cannot auto-fit max_model_len: not enough GPU memory",
        "No available memory for the cache | not enough GPU memory",
        "vllm vllm/worker/worker.py, vllm/v1/core/kv_cache_utils.py",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_LENGTH,
        r"max seq len \(\d{1,12}\) is larger than the maximum number of tokens that can be stored in KV cache|"
        r"To serve at least one request with the models?'s max seq len \(\d{1,12}\)",
        "KV cache",
        "vllm vllm/worker/worker.py; github.com/vllm-project/vllm/issues/2418; "
        f"{_VLLM_CACHE}; github.com/vllm-project/vllm/issues/16118",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_WEIGHTS,
        r"Failed to load model - not enough GPU memory(?!.{0,400}Tried to allocate)",
        "not enough GPU memory",
        "vllm vllm/v1/worker/gpu_model_runner.py",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_SLOTS,
        r"max_num_seqs \(\d{1,9}\) exceeds available Mamba cache blocks",
        "Mamba cache blocks",
        "vllm vllm/config/compilation.py",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_WARMUP,
        r"CUDA out of memory occurred when warming up sampler",
        "out of memory",
        "vllm vllm/v1/worker/gpu_model_runner.py",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_PROFILE,
        r"Error in memory profiling\. Initial free memory",
        "Error in memory profiling",
        "vllm vllm/v1/worker/gpu_worker.py",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_WAKE,
        r"CUDA Error: out of memory at \S{0,300}cumem_allocator",
        "out of memory",
        "vllm csrc/cumem_allocator.cpp; github.com/volcengine/verl/issues/302",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_SWAP,
        r"Too large swap space\.",
        "total CPU memory",
        "vllm vllm/config.py",
        backend="CPU",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_CACHE,
        r"Not enough memory[.;,] .{0,60}mem[-_]fraction[-_]static",
        "Not enough memory",
        "sglang python/sglang/srt/model_executor/model_runner.py; github.com/sgl-project/sglang/issues/4330",
        writer="SGLang",
    ),
    _head(
        Family.ENGINE_FULL,
        r"(?:Prefill|Decode) out of memory\. Try to lower your batch size",
        "out of memory",
        "sglang python/sglang/srt/mem_cache/common.py",
        writer="SGLang",
    ),
    _head(
        Family.ENGINE_SLOTS,
        r"alloc_req_slots runs out of memory",
        "out of memory",
        "sglang python/sglang/srt/mem_cache/common.py; github.com/sgl-project/sglang/issues/10408",
        writer="SGLang",
    ),
    _head(
        Family.ENGINE_SHARE,
        r"The memory capacity is unbalanced\. Some GPUs may be occupied",
        "memory capacity is unbalanced",
        "sglang python/sglang/srt/model_executor/model_runner.py",
        writer="SGLang",
    ),
    _head(
        Family.ENGINE_WARMUP,
        r"Not enough memory to handle (?:\d{1,12} (?:total tokens|prefill tokens)|`max_total_tokens=)",
        "Not enough memory",
        "text-generation-inference server/text_generation_server/models/flash_causal_lm.py, backends/v3/src/lib.rs; "
        "github.com/huggingface/text-generation-inference/issues/755",
        writer="TGI",
    ),
    _head(
        Family.ENGINE_CACHE,
        r"No enough gpu memory for runtime",
        "No enough gpu memory",
        "lmdeploy lmdeploy/pytorch/engine/executor/base.py",
        writer="LMDeploy",
    ),
    _head(
        Family.ENGINE_FULL,
        r"\bcache out of memory, no request can be admitted",
        "out of memory",
        "lmdeploy src/turbomind/engine/engine.cc",
        writer="LMDeploy",
    ),
    _head(
        Family.ENGINE_SPLIT,
        r"Insufficient VRAM (?:in split )?for model and cache|Insufficient space in device allocation",
        "Insufficient VRAM | space in device allocation",
        "exllamav3 exllamav3/model/model_ls.py; exllamav2 exllamav2/model.py",
        writer="ExLlama",
    ),
    _head(
        Family.ENGINE_CACHE,
        r"Impossib(?:le|e) to fit in any sequence in kvCache",
        "in kvCache",
        "TensorRT-LLM tensorrt_llm/_torch/pyexecutor/resource_manager.py",
        writer="TensorRT-LLM",
    ),
    _head(
        Family.ENGINE_COMPONENT,
        r"Executor creation failed due to insufficient GPU memory",
        "insufficient GPU memory",
        "TensorRT-LLM tensorrt_llm/_torch/pyexecutor/py_executor_creator.py; github.com/NVIDIA/TensorRT-LLM/issues/5872",
        writer="TensorRT-LLM",
    ),
    _head(
        Family.ENGINE_WAITS,
        r"is preempted (?:by|in) PreemptionMode\.\w{4,12} mode because there is not enough KV cache space",
        "KV cache memory",
        "vllm vllm/core/scheduler.py",
        writer="vLLM",
    ),
    _head(
        Family.ENGINE_WAITS,
        r"KV cache pool is full\. Retract requests|Decode out of memory happened\. #retracted_reqs",
        "Retract requests | out of memory happened",
        "sglang python/sglang/srt/managers/scheduler.py",
        writer="SGLang",
    ),
)

_HANDLED = (
    _head(
        Family.HANDLED,
        r"\b(?:OOM|(?:[Rr]an )?[Oo]ut of memory|OutOfMemoryError|insufficient GPU memory)\b(?!\. Tried).{0,80}?\b(?:[Ss]kipp?(?:ing|ed)|[Rr]etrying|[Tt]rying again|"
        r"[Dd]iscard(?:ing|ed)|[Ff]alling back|using CPU|huge memory cost)\b|"
        r"\b(?:[Ss]kipp(?:ing|ed)|[Rr]etrying|[Ff]alling back|(?:[Rr]educ|[Hh]alv|[Ll]ower)ing|to recover from)\b.{0,80}?\b(?:OOM|out of memory|OutOfMemoryError)\b",
        "OOM | ut of memory | OutOfMemoryError | nsufficient GPU memory",
        "words of programs: nnUNet nnunetv2/inference/predict_from_raw_data.py, ComfyUI comfy/sd.py, comfy/ldm/modules/attention.py, ultralytics "
        "ultralytics/utils/tal.py, YOLOX yolox/models/yolo_head.py; github.com/facebookresearch/fairseq/issues/869, github.com/OpenNMT/OpenNMT-py/pull/1385",
    ),
)

_RUNTIME = (
    _head(
        Family.NCCL_SHARED_MEMORY,
        r"Error while creating shared memory segment|Error: failed to extend /dev/shm/nccl-|Call to posix_fallocate failed ?: No space",
        "shared memory | /dev/shm | posix_fallocate",
        "nccl src/os/linux.cc (src/misc/shmutils.cc before); github.com/NVIDIA/nccl/issues/290, /525",
        backend="CPU",
        writer="NCCL",
    ),
    _head(
        Family.HOST_ARRAY,
        r"NCCL WARN Failed to malloc \d{1,20} bytes",
        "ailed to malloc",
        "nccl src/include/alloc.h",
        backend="CPU",
        writer="NCCL",
    ),
    _head(
        Family.NCCL,
        r"Failed to CUDA (?:host )?[cm]?alloc|(?:Cuda|HIP) failure:? (?:2 )?'out of memory'",
        "Failed to CUDA | out of memory",
        "nccl src/include/alloc.h, src/include/checks.h",
        writer="NCCL",
    ),
    _head(
        Family.LIBRARY,
        r"\b(?:CU(?:BLAS|DNN|SOLVER|SPARSE)|HIPBLAS|HIPSPARSE)_STATUS_ALLOC_FAILED\b|\bCUFFT_ALLOC_FAILED\b|\brocblas_status_memory_error\b|"
        r"\bCUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED\b|\bCUSPARSE_STATUS_INSUFFICIENT_RESOURCES\b|\bmiopenStatusAllocFailed\b",
        "_ALLOC_FAILED | _ALLOCATION_FAILED | _INSUFFICIENT_RESOURCES | status_memory_error | StatusAllocFailed",
        "pytorch aten/src/ATen/cuda/Exceptions.cpp, aten/src/ATen/cuda/CUDABlas.cpp; cudnn include/cudnn_graph.h; miopen include/miopen/miopen.h",
    ),
    _head(
        Family.LIBRARY_INIT,
        r"\b(?:CU(?:BLAS|DNN|SOLVER)|HIPBLAS)_STATUS_NOT_INITIALIZED\b|CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate",
        "_STATUS_NOT_INITIALIZED | CUSOLVER_STATUS_INTERNAL_ERROR",
        "pytorch aten/src/ATen/cuda/Exceptions.cpp",
    ),
    _head(
        Family.NO_PLAN,
        r"(?:was )?unable to find an engine to execute this computation|Unable to find a valid cuDNN algorithm to run|"
        r"\bcuDNN error: CUDNN_STATUS_INTERNAL_ERROR\b",
        "to find an engine | valid cuDNN algorithm | _STATUS_INTERNAL_ERROR",
        "pytorch aten/src/ATen/native/cudnn/Conv_v8.cpp, Conv_v7.cpp; github.com/pytorch/pytorch/issues/108645, /81620",
    ),
    _head(
        Family.KERNEL,
        r"out of resource: [\w ]{2,40}[,.]? Required: \d{1,12}|out of resource: triton_|No valid triton configs\. OutOf\w{1,30}: out of resource",
        "out of resource",
        "triton python/triton/runtime/errors.py; github.com/sgl-project/sglang/issues/6001",
        writer="Triton",
    ),
    _head(
        Family.KERNEL,
        r"uses too much shared data \(0x[\da-f]{1,12} bytes, 0x[\da-f]{1,12} max\)|\blocal memory \(\d{1,9}\) exceeds limit \(\d{1,9}\)|"
        r"CUDA error: too many resources requested for launch",
        "too much shared data | exceeds limit | too many resources",
        "github.com/ggml-org/llama.cpp/issues/16081, github.com/tinygrad/tinygrad/pull/10267, github.com/pytorch/pytorch/issues/52002",
    ),
    _head(
        Family.RAW,
        r"Triton Error \[(CUDA|HIP|XPU)\]: out of memory",
        "out of memory",
        "triton third_party/nvidia/backend/driver.c",
        writer="Triton",
    ),
    _head(
        Family.MANAGED,
        r"Error out of memory at line \d{1,6} in file \S{0,300}pythonInterface",
        "out of memory",
        "bitsandbytes csrc/pythonInterface.c: only cudaMallocManaged is checked there; github.com/InternLM/xtuner/issues/319",
        writer="bitsandbytes",
    ),
    _head(
        Family.RAW,
        r"Error out of memory at line \d{1,6} in file \S{0,300}(?:bitsandbytes|ops\.cu)",
        "out of memory",
        "bitsandbytes csrc/ops.cuh; github.com/bitsandbytes-foundation/bitsandbytes/issues/464",
        writer="bitsandbytes",
    ),
    _head(
        Family.RAW,
        r"temporary_buffer::allocate: get_temporary_buffer failed|\bcuda (?:execution )?failed with error 2\b|\bCuda error: 2\[|"
        r"\bGPUassert: out of memory|\berror in \w{0,50}(?:[Kk]ernel|_ker|[Cc]uda)\w{0,30}: out of memory",
        "get_temporary_buffer failed | failed with error | Cuda error: 2[ | out of memory",
        "cccl thrust/detail/allocator/temporary_allocator.inl; github.com/traveller59/second.pytorch/issues/347, github.com/junjie18/CMT/issues/15, "
        "github.com/NVlabs/nvdiffrast/issues/182, github.com/lucasjinreal/DCNv2_latest/issues/62",
    ),
    _head(
        Family.RAW,
        r"\[TM\]\[(?:ERROR|FATAL)\].{0,200}out of memory",
        "out of memory",
        "lmdeploy src/turbomind/utils/cuda_utils.h",
        writer="LMDeploy",
    ),
    _head(
        Family.RAW,
        r"\[TensorRT-LLM\]\[ERROR\].{0,240}(?:out of memory|OutOfMemory)",
        "out of memory | OutOfMemory",
        "TensorRT-LLM cpp/tensorrt_llm/runtime/tllmBuffers.h; github.com/triton-inference-server/tensorrtllm_backend/issues/281",
        writer="TensorRT-LLM",
    ),
    _head(
        Family.RAW,
        r"\b(?:UR_RESULT|ZE_RESULT|PI)_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY\b|\b(?:UR_RESULT|PI)_ERROR_OUT_OF_RESOURCES\b|"
        r"\bPI_ERROR_MEM_OBJECT_ALLOCATION_FAILURE\b|Allocation is out of device memory on current platform",
        "OUT_OF_ | OBJECT_ALLOCATION_FAILURE | out of device memory",
        "intel llvm sycl/include/sycl/detail/pi.h, unified-runtime include/ur_api.h; "
        "intel-extension-for-pytorch csrc/gpu/runtime/CachingDeviceAllocator.cpp",
        backend="XPU",
    ),
    _head(
        Family.RAW,
        r"\*ERROR\* Not enough memory for command submission|\bHSA_STATUS_ERROR_OUT_OF_RESOURCES\b|HIP error: out of memory|\bhipErrorOutOfMemory\b",
        "Not enough memory | OUT_OF_ | out of memory | OutOfMemory",
        "ROCR-Runtime inc/hsa.h; hip include/hip/hip_runtime_api.h; linux drivers/gpu/drm/amd/amdgpu/amdgpu_cs.c",
        backend="HIP",
    ),
    _head(
        Family.RAW,
        r"Failed to alloc(?:ate)? DEVICE memory",
        "DEVICE memory",
        "aws-neuron-sdk, Neuron Runtime troubleshooting",
        backend="NEURON",
    ),
    _head(
        Family.RAW,
        r"Malloc pin memory failed, host out of memory|(?:\baclrt\w{1,40}, )?\berror code is 207001\b|Insufficient_Host_Memory\(EL\d{4}\)|\bACL_ERROR_RT_MEMORY_ALLOCATION\b|\baclrtMalloc\w{0,20}\b.{0,60}(?:fail|error)|EL0004.{0,40}Failed to allocate memory|alloc device memory failed",
        "host out of memory | Insufficient_Host_Memory | code is 207001 | RT_MEMORY_ALLOCATION | aclrtMalloc | Failed to allocate memory | alloc device memory failed",
        "torch_npu torch_npu/csrc/core/npu/CachingHostAllocator.cpp, NPUException.cpp, NPUCachingAllocator.cpp; CANN acl/error_codes/rt_error_codes.h",
        backend="NPU",
    ),
    _head(
        Family.RAW,
        r"\bcu(?:da)?(?:Malloc|HostAlloc|Mem(?:Alloc|Create))\w{0,20}\b.{0,120}\b(?:failed|error)\b.{0,24}\bout of memory|"
        r"\bCUresult error: ?2\b|\bNvMapMem\w{0,32}: .{0,24}error 12\b|"
        r"\bCUDA_ERROR_OUT_OF_MEMORY\b|\bcudaErrorMemoryAllocation\b(?!')|"
        r"\bCUDA (?:[Dd]river |[Rr]untime )?[Ee]rror(?: \d| \([^)]{1,300}\))?: out of memory",
        "OUT_OF_MEMORY | MemoryAllocation | out of memory | CUresult error | NvMapMem",
        "pytorch c10/cuda/CUDAException.cpp, c10/cuda/driver_api.h; cuda include/driver_types.h; torch_memory_saver csrc/macro.h; "
        "github.com/0xShug0/audio.cpp/issues/12",
    ),
    _head(
        Family.BATCH_SEARCH,
        r"No executable batch size found, reached zero|Execution did not even succeed with .{1,200} all equal to 1",
        "executable batch size found | did not even succeed",
        "accelerate src/accelerate/utils/memory.py; torch-max-mem src/torch_max_mem/api.py",
    ),
    _head(
        Family.DISPATCHED,
        r"Some modules are dispatched on the CPU or the disk|You are trying to offload the whole model to the disk|"
        r"The current `device_map` had weights offloaded to the disk",
        "modules are dispatched | offload the whole model | weights offloaded",
        "transformers src/transformers/quantizers/quantizer_bnb_4bit.py, modeling_utils.py; accelerate big_modeling.py",
    ),
    _head(
        Family.MPS_COMMAND,
        r"kIOGPUCommandBufferCallbackErrorOutOfMemory",
        "OutOfMemory",
        "github.com/pytorch/pytorch/issues/125954",
        backend="MPS",
    ),
    _head(
        Family.BARE,
        r"Not enough memory, use lower resolution \(max approx\. |Workspace can't be allocated, not? enough memory",
        "ot enough memory | no enough memory",
        "ComfyUI comfy/ldm/modules/attention.py; deepspeed csrc/transformer/inference/includes/inference_context.h",
    ),
    _head(
        Family.BARE,
        rf"{_LEAD}{DEVICE_WORDS} out of memory(?:[.!]|$)",
        "out of memory",
        "pytorch c10/core/Allocator.cpp; programs that pass on the first sentence only",
    ),
)

_HOST = (
    _head(
        Family.HOST_ARRAY,
        r"^LLVM ERROR: out of memory",
        "out of memory",
        "llvm lib/Support/ErrorHandling.cpp",
        backend="CPU",
        writer="LLVM",
    ),
    _head(
        Family.CPU,
        r"DefaultCPUAllocator: |"
        r"posix_memalign\(&?data, ?gAlignment, ?nbytes\) == 0|"
        r"\$ Torch: not enough memory: you tried to allocate",
        "CPUAllocator | you tried to allocate",
        "pytorch c10/core/impl/alloc_cpu.cpp; pytorch v1.0 c10/core/CPUAllocator.cpp; pytorch v0.3 torch/lib/TH/THGeneral.c",
        backend="CPU",
    ),
    _head(
        Family.HOST_LIMIT,
        r"killed due to the node running low on memory|Workers \(tasks / actors\) killed due to memory pressure \(OOM\)|"
        r"RayOutOfMemoryError: More than",
        "running low on memory | due to memory pressure | OutOfMemory",
        "ray src/ray/raylet/node_manager.cc; github.com/ray-project/ray/pull/30312",
        backend="CPU",
        writer="Ray",
    ),
    _head(
        Family.HOST_LIMIT,
        r"Memory on the node \(IP: .{1,600}\) was running was [\d.]{1,9} ?[KMGT]i?B / ",
        "Memory on the node",
        "ray src/ray/raylet/node_manager.cc; github.com/hiyouga/LlamaFactory/issues/9258",
        backend="CPU",
        writer="Ray",
        goes_on=True,
    ),
    _head(
        Family.OBJECT_STORE,
        r"ObjectStoreFullError",
        "ObjectStoreFullError",
        "ray python/ray/exceptions.py",
        backend="CPU",
        writer="Ray",
    ),
    _head(
        Family.HOST_LIMIT,
        r"Detected \d{1,6} oom[-_ ]?kill event|[Ee]xceeded (?:job|step) memory limit\b|\bexceeded (?:virtual )?memory limit\b.{0,80}\bkilled|task \d{1,6}: Out Of Memory|\bState: OUT_OF_MEMORY",
        "oom-kill | oom_kill | oom kill | memory limit | Out Of Memory | OUT_OF_MEMORY",
        "slurm src/interfaces/jobacct_gather.c, src/plugins/task/cgroup, src/slurmd/slurmd/job_mem_limit.c; osc.edu knowledge base, Out-of-Memory",
        backend="CPU",
        writer="Slurm",
    ),
    _head(
        Family.HOST_LIMIT,
        r"\bTERM_MEMLIMIT\b|PBS: job killed: \w{0,12}mem\w{0,12} .{0,40}exceeded limit|"
        r"gone over (?:cgroup )?memory limit of \d|encountered an out-of-memory event|Container killed by YARN for exceeding|"
        r"running beyond .{0,16}memory limits?\b",
        "TERM_MEMLIMIT | job killed | memory limit | out-of-memory event",
        "LSF termination reasons; openpbs src/resmom/linux/mom_mach.c; htcondor src/condor_starter.V6.1/vanilla_proc.cpp; hadoop-yarn",
        backend="CPU",
        writer="the scheduler",
    ),
    _head(
        Family.HOST_LIMIT,
        r"\bOOMKilled\b(?!\W{1,4}false|\}\})|OutOfMemoryError: Container killed due to memory usage|node was low on resource: memory|"
        r"\breplica \S{1,40} \d{1,6} ran out-of-memory and exited",
        "OOMKilled | killed due to memory | resource: memory | ran out-of-memory",
        "kubernetes pkg/kubelet/kuberuntime; Amazon ECS stopped tasks; docker inspect; Google Cloud's AI Platform",
        backend="CPU",
        writer="the container's host",
    ),
    _head(
        Family.HOST_LIMIT,
        r"Your (?:notebook tried to allocate more memory than is available|session crashed after using all available RAM)",
        "tried to allocate more memory | session crashed after using",
        "kaggle.com and colab.research.google.com, notices",
        backend="CPU",
        writer="the notebook's host",
    ),
    _head(
        Family.PAGING_FILE,
        r"\bWinError (?:8|1450|1455)\b|\b(?:os error|code:) <?1455\b|paging file is too small|"
        r"\b(?:0xC0000017|0xC000012D)\b",
        "WinError | error 1455 | <1455> | code: 1455 | paging file | 0xC0000017 | 0xC000012D",
        "github.com/pytorch/pytorch/issues/59904; pytorch aten/src/ATen/MapAllocator.cpp; rust library/std/src/io/error.rs; Windows ntstatus.h",
        backend="CPU",
    ),
    _head(
        Family.COMPILER_KILLED,
        r"fatal error: Killed signal terminated program \w{1,12}|'\w{1,12}' died due to signal 9 \(Kill signal\)|"
        r"\bfatal {1,4}: Memory allocation failure|\bout of memory allocating \d{1,16} bytes after a total of|virtual memory exhausted",
        "Killed signal terminated | due to signal 9 | emory allocation failure | out of memory allocating | memory exhausted",
        "gcc gcc/gcc.cc; nvcc; github.com/Dao-AILab/flash-attention/issues/1549",
        backend="CPU",
    ),
    _head(
        Family.LOCKED,
        r"\bibv_\w{2,24}\b.{0,120}\bfailed\b.{0,80}Cannot allocate memory|Unable to register memory \(type = \d\).{0,80}Cannot allocate memory",
        "annot allocate memory",
        "nccl src/misc/ibvwrap.cc; aws-ofi-nccl src/nccl_ofi_net.c; github.com/NVIDIA/nccl-tests/issues/206",
        backend="CPU",
    ),
    _head(
        Family.THREAD_STORAGE,
        r"cannot allocate memory in static TLS block",
        "static TLS block",
        "glibc elf/dl-reloc.c",
        backend="CPU",
    ),
    _head(
        Family.DESCRIPTORS,
        r"received 0 items of ancdata|shared memory object <.{1,200}Too many open files|Too many open files\. Communication with the workers",
        "items of ancdata | many open files",
        "pytorch torch/utils/data/dataloader.py, aten/src/ATen/MapAllocator.cpp",
        backend="CPU",
    ),
    _head(
        Family.SHARED_MEMORY,
        r"workers are out of shared memory|insufficient shared memory \(shm\)|unable to (?:open|allocate|resize|mmap) shared memory|"
        r"unable to (?:write to|resize) file </?torch_|No space left on device: '/?(?:dev/shm/|torch_|psm_)",
        "shared memory | unable to write to file | unable to resize file | No space left on device",
        "pytorch aten/src/ATen/MapAllocator.cpp, torch/utils/data/_utils/signal_handling.py; github.com/pytorch/pytorch/issues/5040",
        backend="CPU",
    ),
    _head(
        Family.HOST_ARRAY,
        rf"Unable to allocate {SIZE} for an array|^(?:MemoryError|std::bad_alloc)\b|what\(\): +std::bad_alloc|of type std::bad_alloc",
        "Unable to allocate | MemoryError | bad_alloc",
        "numpy numpy/_core/_exceptions.py",
        backend="CPU",
    ),
    _head(
        Family.HOST_ARRAY,
        r"\[Errno 12\] Cannot allocate memory|Cannot allocate memory \((?:os error )?12\)|\bOs \{ code: 12, kind: OutOfMemory\b|unable to mmap \d{1,20} bytes from file|"
        r"memory allocation of \d{1,20} bytes failed|ArrowMemoryError: |Insufficient memory \(Failed to allocate \d{1,20} bytes\)|"
        r"fork: Cannot allocate memory",
        "annot allocate memory | code: 12, kind | unable to mmap | memory allocation of | MemoryError | Insufficient memory",
        "pytorch aten/src/ATen/MapAllocator.cpp; rust library/std/src/alloc.rs; arrow cpp/src/arrow/memory_pool.cc; opencv alloc.cpp",
        backend="CPU",
    ),
    _head(
        Family.WORKER_GONE,
        r"Some background worker is 6 feet under|One or more background workers are no longer alive|"
        r"A worker process managed by the executor was unexpectedly terminated|"
        r"A process in the process pool was terminated abruptly|A child process terminated abruptly, the process pool is not usable|"
        r"A compilation subprocess exited unexpectedly|\brunner lost communication with the server",
        "lost communication | background worker | unexpectedly terminated | terminated abruptly | subprocess exited",
        "nnUNet nnunetv2/preprocessing/preprocessors/default_preprocessor.py; batchgenerators dataloading/multi_threaded_augmenter.py; "
        "joblib externals/loky/process_executor.py; cpython Lib/concurrent/futures/process.py; pytorch torch/_inductor/async_compile.py; GitHub Actions",
        backend="CPU",
    ),
    _head(
        Family.KERNEL_KILLED,
        r"[Oo]ut of memory: Kill(?:ed)? process",
        "ut of memory",
        "linux mm/oom_kill.c",
        backend="CPU",
        writer="the system",
    ),
    _head(
        Family.WORKER_KILLED,
        r"DataLoader worker \(pid(?:\(s\))? [^)]{1,80}\) is killed by signal: Killed|"
        r"RAM was full and the worker was killed by the OS|"
        r"\bpotential root causes\. \(1\) .{0,60}OOM killer|oom-kill:constraint=|killed by the OOM killer|OOM killer due to high memory usage|"
        r"SIGKILL! Perhaps out of memory|Failed with result 'oom-kill'|\bsystemd-oomd\b.{0,80}\b[Kk]illed\b|"
        r"Signal 9 \(SIGKILL\) received by PID|exitcode {1,4}: -9 \(pid|\(exitcode: -9\)|exits with return code = -9\b|<Signals\.SIGKILL: 9>|"
        r"terminated with signal SIGKILL|interrupted by signal 9:? ?SIGKILL|exited on signal 9 \(Killed|KILLED BY SIGNAL: 9\b|"
        r"exited prematurely: signal 9\b|process was signaled to shutdown with signal 9\b|\bNegsignal\.SIGKILL\b|status=9/KILL\b|[Ee]xit(?:ed)? (?:with )?(?:[Ss]tatus )?(?:[Cc]ode|[Ss]tatus)?:? {0,4}137\b|\[code=137\]|"
        r"(?:^|(?<=\])|(?<=\] ))(?:\S{1,200}: line \d{1,7}: +)?(?:\[\d{1,3}\][ +-]{1,4})?(?:zsh: )?\d{0,8} ?(?:[Kk]illed|已杀死|Getötet|Tué)(?: {2,}\S.{0,300})?$|"
        r"\bsrun: error: \S{1,80}: tasks? [\d,-]{1,60}: Killed$",
        "signal: Killed | worker was killed | ut of memory | oom-kill | OOM killer | systemd-oomd | on signal 9 | with signal 9 | BY SIGNAL: 9 | rematurely: signal 9 | Negsignal.SIGKILL | =9/KILL | (SIGKILL) | : -9 (pid | (exitcode: -9 | return code = -9 | Signals.SIGKILL | signal SIGKILL | by signal 9 | ode: 137 | ode 137 | ode:    137 | tatus 137 | tatus: 137 | code=137 | Killed | killed   | 已杀死 | Getötet | Tué",
        "pytorch torch/utils/data/_utils/signal_handling.py; "
        "nnUNet nnunetv2/inference/data_iterators.py; "
        "linux mm/oom_kill.c; systemd src/core/unit.c, src/oom/oomd-util.c; ray src/ray/core_worker; gunicorn gunicorn/arbiter.py; "
        "pytorch torch/distributed/elastic/multiprocessing/errors; deepspeed deepspeed/launcher/launch.py; docker exit status; "
        "open-mpi orterun help texts; mpich hydra; billiard billiard/pool.py; text-generation-inference launcher/src/main.rs; airflow standard_task_runner.py; systemd; "
        "bash sig.c, jobs.c; zsh Src/jobs.c; slurm src/srun/launch.c",
        backend="CPU",
    ),
    _head(
        Family.BUS_ERROR,
        r"^(?:\S{1,200}: line \d{1,7}: +|srun: error: \S{1,80}: tasks? [\d,-]{1,60}: |Fatal Python error: )?\d{0,8} ?Bus error\b|exited on signal 7 \(Bus error|process was signaled to shutdown with signal 7\b|(?:DataLoader worker \(pid[^)]{1,80}\) is killed by )?\bsignal: Bus error|Signal 7 \(SIGBUS\) received by PID|"
        r"exits with return code = -7\b|exitcode {1,4}: -7 \(pid|\(exitcode: -7\)|<Signals\.SIGBUS: 7>",
        "Bus error | with signal 7 | (SIGBUS) | return code = -7 | : -7 (pid | (exitcode: -7 | Signals.SIGBUS",
        "github.com/pytorch/pytorch/issues/5247; github.com/hiyouga/LlamaFactory/issues/2061; "
        "github.com/huggingface/text-generation-inference/issues/446",
        backend="CPU",
    ),
)

_MEMORY = r"(?:(?!shared)[\w-]{1,12} ){0,3}?(?:memory|[Vv]?RAM)\b"
_WHAT = r"(?=.{0,80}?(?:memory|bytes?\b|[KMGT]i?B\b|buffer|tensor|cache|block|workspace|arena|pool|heap|pinned))"
_UNNAMED = (
    _head(
        Family.UNNAMED,
        rf"\b(?:[Oo]ut of|OUT OF|Out Of|[Nn]ot enough|[Ii]nsufficient) {_MEMORY}(?! (?:is|errors|issues?|conditions?|handling)\b)|"
        r"\bOUT OF MEMORY\b|\bOOM\b|\bOut_?[Oo]f_?(?:[A-Z][a-z]{1,8})?Memory(?:Error|Exception)?\b(?=[:)'\"]|\s*$)|"
        r"\b\w{0,40}(?:OUT_OF_(?:[A-Z]{1,8}_)?MEMORY|ALLOC(?:ATION)?_FAILED|MEMORY_ALLOCATION|NO_MEMORY|ENOMEM)\b|"
        rf"\b(?:[Ff]ailed to|[Ff]ailure to|[Uu]nable to|[Cc]annot|[Cc]an't|[Cc]ould not|[Cc]ouldn't) (?:be )?(?:re)?m?alloc\w{{0,6}}\b{_WHAT}|"
        r"\b\w{0,30}[Mm]alloc\w{0,30}(?:\([^)]{0,60}\))?:? (?:call |has |with error |returned )?(?:failed|failure|error)\b|"
        r"\b(?:[Mm]emory|[Bb]uffer|[Tt]ensor|[Bb]lock|[Dd]evice|[Hh]ost|[Hh]eap|[Ww]orkspace) allocation (?:of [\w. ]{1,30} )?fail(?:ed|ure)\b|"
        r"\b[Mm]emory exhausted\b|\bexceeds? (?:the )?available (?:[\w-]{1,12} )?(?:memory|[Vv]?RAM)\b|"
        r"\b(?:does|do|did|will|would)(?: not|n't) fit (?:in|into|on) (?:[\w-]{1,12} ){0,3}?(?:memory|[Vv]?RAM|GPUs?|device)\b|"
        r"\b(?:reached|exceed(?:s|ed)?) (?:the |its )?(?:\w{1,10} )?memory limit\b",
        "ut of memory | OUT OF MEMORY | Out Of Memory | ut of GPU | ut of device | ut of host | ut of system | ut of video | ut of VRAM | ut of RAM | "
        "ot enough | nsufficient | OOM | OutOf | OUT_OF_ | ALLOC_FAILED | ALLOCATION_FAILED | MEMORY_ALLOCATION | NO_MEMORY | ENOMEM | "
        "ailed to alloc | ailed to realloc | ailed to malloc | ailure to alloc | nable to alloc | annot alloc | an't alloc | ould not alloc | ouldn't alloc | "
        "annot be alloc | ould not be alloc | alloc failed | allocation failed | allocation failure | alloc error | llocation of | emory exhausted | available memory | "
        "available GPU | available VRAM | available device | available system | available host | not fit | n't fit | memory limit",
        "general words of failure; what matches here, no row above knows",
        backend="unknown",
    ),
)

HEADS = (*_PROGRAMS, *_ENGINES, *_DEVICE, *_HANDLED, *_RUNTIME, *_HOST, *_UNNAMED)
"""In order of preference: the first whose pattern matches a line names the message."""
