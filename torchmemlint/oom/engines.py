"""The settings of serving engines that decide how much memory they take, with the page of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Engine:
    """What each setting is called on the engine's command line; "" where it has none.

    share    part of the device that weights and cache may take
    length   longest sequence
    seqs     sequences at a time
    tokens   tokens of one prefill
    cache    number format of the cache of keys and values
    graphs   fewer CUDA graphs, or none
    shard    devices that share the weights
    offload  part of the weights on the host
    quant    weights in fewer bits
    media    pictures and films of one prompt
    source   the engine's page or file that lists them
    """

    share: str
    length: str
    seqs: str
    tokens: str
    cache: str
    graphs: str
    shard: str
    offload: str
    quant: str
    source: str
    media: str = ""


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "vLLM": Engine(
            share="--gpu-memory-utilization",
            length="--max-model-len",
            seqs="--max-num-seqs",
            tokens="--max-num-batched-tokens",
            cache="--kv-cache-dtype fp8",
            graphs="--enforce-eager",
            shard="--tensor-parallel-size",
            offload="--cpu-offload-gb",
            quant="--quantization",
            source="docs.vllm.ai/en/latest/configuration/conserving_memory",
            media='--limit-mm-per-prompt \'{"image": 1, "video": 0}\'        # and smaller ones: --mm-processor-kwargs',
        ),
        "SGLang": Engine(
            share="--mem-fraction-static",
            length="--context-length",
            seqs="--max-running-requests",
            tokens="--chunked-prefill-size",
            cache="--kv-cache-dtype fp8_e5m2",
            graphs="--cuda-graph-max-bs, or --disable-cuda-graph",
            shard="--tp",
            offload="--cpu-offload-gb",
            quant="--quantization",
            source="docs.sglang.ai/advanced_features/hyperparameter_tuning, server_arguments",
        ),
        "TGI": Engine(
            share="--cuda-memory-fraction",
            length="--max-total-tokens",
            seqs="--max-batch-total-tokens",
            tokens="--max-batch-prefill-tokens",
            cache="--kv-cache-dtype fp8_e5m2",
            graphs="--cuda-graphs 0",
            shard="--num-shard",
            offload="",
            quant="--quantize",
            source="huggingface.co/docs/text-generation-inference/reference/launcher",
        ),
        "LMDeploy": Engine(
            share="--cache-max-entry-count",
            length="--session-len",
            seqs="--max-batch-size",
            tokens="--max-prefill-token-num",
            cache="--quant-policy 8",
            graphs="--eager-mode",
            shard="--tp",
            offload="",
            quant="--model-format awq",
            source="lmdeploy.readthedocs.io/en/latest/llm/api_server, faq",
        ),
        "TensorRT-LLM": Engine(
            share="--kv_cache_free_gpu_memory_fraction",
            length="--max_seq_len",
            seqs="--max_batch_size",
            tokens="--max_num_tokens",
            cache="kv_cache_config.dtype: fp8",
            graphs="cuda_graph_config.max_batch_size",
            shard="--tp_size",
            offload="",
            quant="a checkpoint in FP8 or INT4",
            source="nvidia.github.io/TensorRT-LLM/reference/memory, commands/trtllm-serve",
        ),
        "ExLlama": Engine(
            share="",
            length="max_seq_len",
            seqs="max_batch_size",
            tokens="chunk_size",
            cache="cache_mode: Q8",
            graphs="",
            shard="gpu_split: [20, 22]",
            offload="",
            quant="a quantization with fewer bits per weight",
            source="tabbyAPI config_sample.yml",
        ),
        "DeepSpeed-MII": Engine(
            share="",
            length="max_length",
            seqs="ragged_batching.max_ragged_sequence_count",
            tokens="ragged_batching.max_ragged_batch_size",
            cache="",
            graphs="",
            shard="tensor_parallel",
            offload="",
            quant="quantization_mode",
            source="deepspeed-mii mii/config.py",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class MediaEngine:
    """What the settings of an engine that makes pictures, films or speech are called; "" where it has none.

    offload  parts of the model that wait on the host
    layers   layers that are brought to the device one after another
    tiles    decoding in tiles
    shard    devices that share the work
    source   the engine's page or file that lists them
    """

    offload: str
    layers: str
    tiles: str
    shard: str
    source: str


MEDIA_ENGINES: Mapping[str, MediaEngine] = MappingProxyType(
    {
        "vLLM-Omni": MediaEngine(
            offload="--enable-cpu-offload",
            layers="--enable-layerwise-offload",
            tiles="--vae-use-tiling --vae-use-slicing",
            shard="--ulysses-degree 2",
            source="docs.vllm.ai/projects/vllm-omni, user_guide/diffusion",
        ),
        "SGLang Diffusion": MediaEngine(
            offload="--dit-cpu-offload --text-encoder-cpu-offload --vae-cpu-offload",
            layers="--dit-layerwise-offload",
            tiles="--vae-tiling",
            shard="--num-gpus 2 --ulysses-degree 2",
            source="docs.sglang.io/diffusion/api/cli",
        ),
    }
)
"""Engines whose lists have no cache of keys and values."""

LLAMA_ELSEWHERE = (
    "OLLAMA_MAX_LOADED_MODELS=1 OLLAMA_NUM_PARALLEL=1        # ollama, beside num_ctx and num_gpu; `ollama stop MODEL`\n"
    "Llama(path, n_ctx=4096, n_batch=256, n_gpu_layers=20)        # llama-cpp-python"
)
"""The same settings where llama.cpp is called by another program."""
OTHER_PROGRAMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "llama.cpp": (
            f"-c 4096 --cache-type-k q8_0 -ngl 20 --tensor-split 1,1        # context, cache, layers on the device\n{LLAMA_ELSEWHERE}",
            "llama.cpp tools/server/README.md; ollama docs/faq.md",
        ),
        "CTranslate2": (
            'WhisperModel(size, compute_type="int8_float16")        # and a smaller batch_size, beam_size or model',
            "opennmt.net/CTranslate2/quantization.html",
        ),
        "ONNX Runtime": (
            'providers=[("CUDAExecutionProvider", {"gpu_mem_limit": 4 * 1024**3, "arena_extend_strategy": "kSameAsRequested"})]',
            "onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html",
        ),
        "XLA": (
            "export XLA_PYTHON_CLIENT_MEM_FRACTION=0.5        # or XLA_PYTHON_CLIENT_PREALLOCATE=false; TensorFlow: set_memory_growth",
            "docs.jax.dev/en/latest/gpu_memory_allocation.html",
        ),
        "TensorRT": (
            "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)        # smaller optimization profiles",
            "docs.nvidia.com/deeplearning/tensorrt, memory",
        ),
        "PaddlePaddle": ("export FLAGS_fraction_of_gpu_memory_to_use=0.5", "paddlepaddle.org.cn, flags of memory management"),
        "CuPy or RAPIDS": (
            "cupy.get_default_memory_pool().set_limit(fraction=0.5)        # RMM: a pool shared with PyTorch",
            "docs.cupy.dev/en/stable/user_guide/memory.html; docs.rapids.ai/api/rmm",
        ),
        "FAISS": (
            "resources.setTempMemory(256 * 1024 * 1024)        # faiss.StandardGpuResources()",
            "faiss wiki, Faiss on the GPU",
        ),
        "MLX": (
            "mlx.core.set_wired_limit(…)        # a smaller or quantized model, a shorter prompt",
            "ml-explore.github.io/mlx",
        ),
        "Java": ("export JAVA_TOOL_OPTIONS=-Xmx8g        # Spark: --driver-memory, --executor-memory", "openjdk java(1)"),
    }
)
"""Program → (the setting that bounds its memory, the page that says so)."""
