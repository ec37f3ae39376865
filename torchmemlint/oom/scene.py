"""What was running when memory ran out: training, inference, a serving engine, loading of weights, or compilation.

The traceback decides: the innermost frame that one of the rows below knows. A frame inside a serving engine's package
decides first, wherever it stands. Without such a frame, the lines around the message decide, the nearest first. Each row has its source:
the file of the library that has the frame or prints the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from torchmemlint.oom.evidence import NOTHING, Evidence, evidence_of
from torchmemlint.oom.signs import (
    NEAR,
    SKIPS,
    Growth,
    Outcome,
    Sign,
    earlier_error,
    growth_of,
    outcome_of,
    share_of,
    signs_of,
)
from torchmemlint.oom.traceback import Frame, is_library

MAX_LINES_BEFORE, MAX_LINES_AFTER = 120, 40
MAX_LINE = 400


class Activity(Enum):
    """What the program was doing."""

    UNKNOWN = "unknown"
    TRAINING = "training"
    INFERENCE = "inference"
    ENGINE = "serving engine"
    LOADING = "loading or moving weights"
    COMPILATION = "compilation"
    SAVING = "saving a checkpoint"


@dataclass(frozen=True, slots=True)
class Scene:
    """``stage`` is a part of the activity ("backward", "optimizer", "weights", "graphs", …), "" when nothing shows it.

    engine      the name of the serving engine
    library     the library or program, not PyTorch, that the innermost frame or a line next to the message belongs to
    shown_by    the frame or line that the answer comes from, for the report
    no_grad     whether a frame shows that no gradients were taken
    signs       circumstances that the lines around the message show
    growth      a figure about memory that rose in the lines before
    dtype       the element type on the failing line, "" when it names none
    outcome     what the lines below say of the program
    raised      whether a traceback leads to the message
    package     the installed package that the innermost frame belongs to, "" when none does
    earlier     the last line above the message that ends with another exception, "" when there is none
    trains      whether a frame or a line shows a training program, whatever it was doing
    share       the part of the device that an engine was given, None when no line says it
    evidence    figures outside the message
    options     numbers of options that the lines give: ("max_model_len", 8192), the nearest first
    attention   whether the failing call is torch's fused attention
    """

    activity: Activity = Activity.UNKNOWN
    stage: str = ""
    engine: str = ""
    library: str = ""
    shown_by: str = ""
    no_grad: bool = False
    signs: frozenset[Sign] = frozenset()
    growth: Growth | None = None
    dtype: str = ""
    outcome: Outcome = Outcome.UNKNOWN
    raised: bool = False
    package: str = ""
    earlier: str = ""
    trains: bool = False
    share: float | None = None
    evidence: Evidence = NOTHING
    options: tuple[tuple[str, int], ...] = ()
    attention: bool = False


@dataclass(frozen=True, slots=True)
class _Row:
    """A frame's sign: patterns for its path (with ``/``), its function and its line of code; None matches anything."""

    activity: Activity
    stage: str
    path: re.Pattern[str] | None
    function: re.Pattern[str] | None
    code: re.Pattern[str] | None
    source: str

    def matches(self, frame: Frame, path: str) -> bool:
        return (
            (self.path is None or self.path.search(path) is not None)
            and (self.function is None or self.function.search(frame.function) is not None)
            and (self.code is None or self.code.search(frame.code) is not None)
        )


def _row(activity: Activity, stage: str, source: str, *, path: str = "", function: str = "", code: str = "") -> _Row:
    def compiled(pattern: str) -> re.Pattern[str] | None:
        return re.compile(pattern) if pattern else None

    return _Row(activity, stage, compiled(path), compiled(function), compiled(code), source)


_ENGINE_PACKAGES = (
    # What draws, speaks or films has settings of its own, beside those for language.
    ("vLLM-Omni", re.compile(r"(?:^|/)vllm_omni/diffusion/"), "vllm-omni"),
    ("SGLang Diffusion", re.compile(r"(?:^|/)sglang/multimodal_gen/"), "sglang"),
    ("vLLM", re.compile(r"(?:^|/)(?:vllm|vllm_ascend|vllm_omni|aphrodite)/"), "vllm, vllm-ascend, aphrodite-engine"),
    ("SGLang", re.compile(r"(?:^|/)sglang/"), "sglang"),
    ("TGI", re.compile(r"(?:^|/)text_generation_server/"), "text-generation-inference server"),
    ("LMDeploy", re.compile(r"(?:^|/)lmdeploy/"), "lmdeploy"),
    ("TensorRT-LLM", re.compile(r"(?:^|/)tensorrt_llm/"), "TensorRT-LLM"),
    ("ExLlama", re.compile(r"(?:^|/)exllamav[23]/"), "exllamav2, exllamav3"),
    ("DeepSpeed-MII", re.compile(r"(?:^|/)(?:mii|deepspeed/inference/v2)/"), "DeepSpeed-MII"),
)
_LIBRARIES = (
    (
        "llama.cpp",
        re.compile(r"(?:^|/)llama_cpp/|\bggml[-_]|\bllama_model_load|\bllama_context\b|\bload_tensors: "),
        "llama.cpp, llama-cpp-python",
    ),
    ("CTranslate2", re.compile(r"(?:^|/)ctranslate2/"), "CTranslate2"),
    ("ONNX Runtime", re.compile(r"(?:^|/)onnxruntime/|\bonnxruntime::"), "onnxruntime"),
    ("XLA", re.compile(r"(?:^|/)(?:jax|jaxlib|tensorflow|keras)/|\bxla::|stream_executor"), "jax, tensorflow"),
    ("PaddlePaddle", re.compile(r"(?:^|/)paddle/|\bpaddle::"), "Paddle"),
    ("CuPy or RAPIDS", re.compile(r"(?:^|/)(?:cupy|cudf|cuml|rmm)/|\brmm::"), "cupy, rapids"),
    ("TensorRT", re.compile(r"(?:^|/)tensorrt/|\[TRT\]"), "TensorRT"),
    ("Numba", re.compile(r"(?:^|/)numba/|\bnumba\.cuda\b"), "numba"),
    ("MLX", re.compile(r"(?:^|/)mlx(?:_lm)?/|\bmlx::"), "mlx"),
)
"""Libraries with an allocator of their own: a path of a frame, or words of a line next to the message."""
_LIBRARY_LINES = 4
_ENGINE_STAGES = (
    ("wake", re.compile(r"wake_up|cumem|create_and_map"), "vllm device_allocator/cumem.py"),
    ("graphs", re.compile(r"cuda_?graph|capture", re.IGNORECASE), "vllm capture_model; sglang CudaGraphRunner.capture"),
    (
        "weights",
        re.compile(
            r"load_model|load_weights|^weights\.py|get_(?:partial_)?(?:sharded|tensor)|create_(?:shared_)?weight|from_hf|model_loader|process_weights|initialize_model|weight_loader|get_model\b"
        ),
        "vllm model_executor/model_loader; sglang model_loader",
    ),
    (
        "cache",
        re.compile(
            r"kv_cache|CacheEngine|cache_engine|init_memory_pool|allocate_kv|memory_pool|init_cache|create_state_tensors"
        ),
        "vllm initialize_kv_cache, CacheEngine; sglang init_memory_pool; exllamav2 cache.py",
    ),
    (
        "profile",
        re.compile(r"profile_run|determine_(?:available_memory|num_available_blocks)|_dummy_run|_dummy_sampler_run|warm_?up"),
        "vllm determine_available_memory, profile_run; text_generation_server warmup",
    ),
)

_BUFFERS = (
    ("picture", re.compile(r"\bclip_|\bmtmd_|mmproj|vision encoder|(?:processing|encoding) image"), "llama.cpp tools/mtmd"),
    ("cache", re.compile(r"(?i)kv[ _-]?cache"), "llama.cpp src/llama-kv-cache.cpp; ollama"),
    (
        "compute",
        re.compile(r"compute (?:pp )?buffers?|graph_reserve|gallocr|sched_reserve"),
        "llama.cpp src/llama-context.cpp, ggml-alloc.c",
    ),
    ("weights", re.compile(r"load_tensors|error loading model|unable to allocate \w+ buffer"), "llama.cpp src/llama-model.cpp"),
)
"""Buffers of llama.cpp, by the words of the lines next to a message."""
_WHOLE_STAGES = ("wake", "graphs")
_ENGINE_LINES = (
    (
        "",
        re.compile(r"Load weight end|[Ll]oading (?:model weights )?took|Memory pool end"),
        "sglang, vllm: a stage that is over",
    ),
    ("wake", re.compile(r"resume_memory_occupation|\bfunc=resume\b"), "sglang, torch_memory_saver csrc/core.cpp"),
    ("graphs", re.compile(r"Captur(?:e|ing) (?:(?:cuda|CUDA|ACL|HPU) ?)?graph"), "vllm, sglang: progress lines"),
    (
        "component",
        re.compile(r"could not be created: (?!KV cache|Model\b)"),
        "TensorRT-LLM tensorrt_llm/_torch/pyexecutor/py_executor_creator.py",
    ),
    ("cache", re.compile(r"could not be created: KV cache"), "the same"),
    (
        "weights",
        re.compile(
            r"could not be created: Model\b|Loading safetensors checkpoint shards|Starting to load model|Load weight begin|create_(?:shared_)?weight"
        ),
        "vllm, sglang, TensorRT-LLM, lmdeploy: progress lines",
    ),
    ("profile", re.compile(r"Warming up model|[Mm]emory profiling"), "text-generation-inference router/src/main.rs; vllm"),
    (
        "serving",
        re.compile(r"Prefill batch|Decode batch|Avg prompt throughput|\bMethod (?:Prefill|Decode) encountered"),
        "sglang, vllm, text-generation-inference: lines of serving",
    ),
)
_TRAIN, _INFER, _LOAD, _COMPILE = Activity.TRAINING, Activity.INFERENCE, Activity.LOADING, Activity.COMPILATION
_SAVE = Activity.SAVING

_ROWS = (
    _row(Activity.UNKNOWN, "pinning", "functions and calls that pin", path=r"\.py$", function=r"^_?pin_\w*memory\w*$"),
    _row(Activity.UNKNOWN, "pinning", "the call itself", path=r"\.py$", code=r"\.pin_memory\("),
    _row(
        Activity.UNKNOWN,
        "context",
        "torch/cuda/__init__.py, random.py: the first calls that need a device",
        path=r"torch/(?:cuda/(?:__init__|random)|random)\.py",
        function=r"^(?:_lazy_init|_lazy_call|set_device|init|manual_seed(?:_all)?|cb|mem_get_info)$",
    ),
    # Compilation. A compiled function runs through torch/_inductor, too: only what compiles or measures counts.
    _row(
        _COMPILE,
        "inductor",
        "torch/_inductor, torch/_dynamo",
        path=r"torch/_inductor/(?:compile_fx|graph|select_algorithm|scheduler|async_compile|autotune_process|lowering)\.py"
        r"|torch/_dynamo/(?:convert_frame|output_graph|symbolic_convert)\.py",
        function=r"^(?!run$|__call__$|_fn$|wrapper$)",
    ),
    _row(
        _COMPILE,
        "autotune",
        "torch/_inductor/runtime/triton_heuristics.py, triton/runtime/autotuner.py",
        path=r"torch/_inductor/.*(?:triton_heuristics|benchmarking|autotune)|triton/(?:runtime/autotuner|testing)\.py",
        function=r"bench|autotune|precompile|do_bench",
    ),
    _row(_COMPILE, "graphs", "torch/_inductor/cudagraph_trees.py", path=r"torch/_inductor/cudagraph_trees\.py"),
    _row(_COMPILE, "graphs", "torch/cuda/graphs.py", path=r"torch/cuda/graphs\.py"),
    _row(_COMPILE, "extension", "torch/utils/cpp_extension.py", path=r"torch/utils/cpp_extension\.py"),
    # The state that is written to a checkpoint.
    _row(
        _SAVE,
        "",
        "torch/distributed/fsdp/_state_dict_utils.py, torch/distributed/checkpoint, torch/serialization.py, deepspeed, accelerate",
        path=r"torch/distributed/(?:fsdp/_state_dict_utils|checkpoint/)|torch/serialization\.py|deepspeed/|accelerate/|transformers/(?:trainer|modeling_utils)\.py",
        function=r"^_?(?:save|_save\w*|save_\w+|full_pre_state_dict_hook|full_post_state_dict_hook|_full_\w+state_dict_hook|get_state_dict|"
        r"zero3_consolidated\w*|_zero3_consolidated\w*|consolidate\w*|_gather_state_dict|_common_unshard_pre_state_dict_hook)$",
    ),
    _row(
        _SAVE,
        "",
        "the calls themselves",
        code=r"(?<!load_)\bstate_dict\(\)|\bsave_(?:pretrained|model|checkpoint|state)\(|\btorch\.save\(",
    ),
    # Weights.
    _row(
        _LOAD,
        "weights",
        "torch/nn/modules/module.py",
        path=r"torch/nn/modules/module\.py",
        function=r"^(?:_apply|convert|to|to_empty|cuda|half|float|bfloat16|xpu|npu|load|load_state_dict|_load_from_state_dict)$",
    ),
    _row(
        _LOAD,
        "restored",
        "torch/serialization.py: a storage goes back to the device that it was saved from",
        path=r"torch/serialization\.py",
        function=r"^(?:\w*_deserialize|default_restore_location|restore_location)$",
    ),
    _row(_LOAD, "weights", "torch/serialization.py", path=r"torch/serialization\.py|(?:^|/)safetensors/"),
    _row(
        _LOAD,
        "weights",
        "transformers/modeling_utils.py, core_model_loading.py, integrations",
        path=r"transformers/(?:modeling_utils|core_model_loading|integrations/\w+|quantizers/\w+)\.py",
        function=r"from_pretrained|load|convert|quantiz|replace_with|dispatch|set_module|validate_environment",
    ),
    _row(
        _LOAD,
        "weights",
        "accelerate/utils/modeling.py, big_modeling.py",
        path=r"accelerate/(?:utils/modeling|big_modeling|utils/bnb)\.py",
    ),
    _row(
        _LOAD,
        "weights",
        "diffusers/models/modeling_utils.py, pipelines/pipeline_utils.py",
        path=r"diffusers/(?:models/model\w+|pipelines/pipeline_\w*utils|loaders/\w+|configuration_utils)\.py",
        function=r"from_pretrained|from_single_file|load|^to$",
    ),
    _row(
        _LOAD,
        "weights",
        "deepspeed/runtime/zero/partition_parameters.py",
        path=r"deepspeed/runtime/zero/partition_parameters\.py",
        function=r"_partition_param|partition\b|_post_init|_convert_to|_zero_init|wrapper",
    ),
    _row(
        _LOAD,
        "weights",
        "bitsandbytes/nn/modules.py, functional.py",
        path=r"bitsandbytes/(?:nn/modules|functional)\.py",
        function=r"^(?:cuda|to|_quantize|from_prequantized|quantize_\w+)$",
    ),
    _row(
        _LOAD,
        "weights",
        "ComfyUI comfy/model_management.py, model_patcher.py, utils.py; Forge backend/loader.py, utils.py, modules_forge",
        path=r"comfy/(?:model_management|model_patcher|utils)\.py|(?:^|/)(?:backend|modules_forge|ldm_patched/modules)/(?:\w+/)?\w+\.py",
        function=r"^(?:load\w*|model_load|partially_load|patch_\w+|cast_to\w*)$",
    ),
    _row(
        _LOAD,
        "weights",
        "FSDP: torch/distributed/fsdp/_init_utils.py, _flat_param.py; DDP: torch/nn/parallel/distributed.py",
        path=r"torch/distributed/fsdp/(?:_init_utils|_wrap_utils|wrap)\.py",
    ),
    _row(
        _LOAD,
        "weights",
        "torch, transformers: the calls themselves",
        code=r"\b\w*(?:model|net|unet|vae|pipe\w*|encoder|decoder|transformer|llm)\w*\.(?:to|cuda|half)\(|\bfrom_pretrained\(|\bload_state_dict\(|"
        r"\btorch\.load\(|\bload_file\(|\bload_checkpoint\(|\bsafe_open\(",
    ),
    _row(_LOAD, "weights", "mmgp offload.py", path=r"(?:^|/)mmgp/offload\.py", function=r"load"),
    _row(
        _LOAD,
        "weights",
        "names of functions that load weights",
        function=r"^_?(?:fast_)?load_(?:\w*models?|weights|checkpoints?|pipe\w*|pretrained|state)(?:_\w+)?$",
    ),
    _row(
        _LOAD,
        "data",
        "data that is moved where it is read",
        function=r"^(?:__init__|_?load\w*|_?read\w*|setup|prepare\w*)$",
        code=r"\.(?:to|cuda)\(",
    ),
    # Training.
    _row(
        _TRAIN,
        "backward",
        "torch/autograd/__init__.py, graph.py, torch/_tensor.py",
        path=r"torch/(?:autograd/(?:__init__|graph)|_tensor)\.py",
        function=r"^(?:backward|grad|_engine_run_backward)$",
    ),
    _row(
        _TRAIN,
        "optimizer",
        "torch/optim, bitsandbytes/optim, apex/optimizers, deepspeed optimizers",
        path=r"torch/optim/(?!lr_scheduler|swa_utils)|bitsandbytes/optim/|apex/optimizers/|deepspeed/runtime/(?:fp16|bf16_optimizer|zero/stage)"
        r"|torch/amp/grad_scaler|(?:^|/)optimizers?/\w+\.py",
        function=r"step|_init_group|init_state|initialize_optimizer_states|_single_tensor|_multi_tensor|adam|__init__",
    ),
    _row(_TRAIN, "gradients", "torch/nn/utils/clip_grad.py", path=r"torch/nn/utils/clip_grad\.py"),
    _row(_TRAIN, "forward", "torch/utils/checkpoint.py", path=r"torch/utils/checkpoint\.py"),
    _row(
        _TRAIN,
        "replicas",
        "torch/nn/parallel: DataParallel gathers outputs on the first device",
        path=r"torch/nn/parallel/(?:replicate|scatter_gather|comm|parallel_apply|data_parallel)\.py",
    ),
    _row(
        _TRAIN,
        "",
        "transformers/trainer.py, trl/trainer",
        path=r"(?:transformers/(?:\w+_)?trainer|trl/trainer/\w+|unsloth\w*/.*)\.py|<string>",
        function=r"^(?:train|_inner_training_loop|_fast_inner_training_loop|inner_training_loop|training_step|_?unsloth_training_step|compute_loss|"
        r"_compute_loss|_prepare_inputs)$",
    ),
    _row(
        _TRAIN,
        "",
        "lightning trainer loops and strategies",
        path=r"(?:lightning|pytorch_lightning)/",
        function=r"training_step|optimizer_step|_?fit\w*|training_epoch|backward|run_optimization|optimizer_closure",
    ),
    _row(
        _TRAIN,
        "",
        "accelerate, deepspeed, megatron, fairseq, mmengine, ultralytics: the step of a trainer",
        path=r"accelerate/accelerator\.py|deepspeed/runtime/(?:engine|pipe/engine)\.py|megatron/|fairseq/|mmengine/runner|ultralytics/engine/trainer\.py|"
        r"detectron2/engine/|nnunet\w*/.*trainer",
        function=r"backward|^step$|train|run_iter|_do_train|forward_step",
    ),
    _row(
        _TRAIN,
        "scoring",
        "log-probabilities without gradients: slime backends/megatron_utils/actor.py, verl workers/fsdp_workers.py",
        code=r"\.compute_(?:ref_)?log_?probs?\(",
    ),
    _row(
        _TRAIN,
        "",
        "names of functions that train",
        function=r"^(?:_?train\w*|_?fit|\w+_train|do_train|run_training|\w*train(?:ing)?_(?:step|epoch|loop|batch|one_epoch)\w*|inner_training_loop)$",
    ),
    _row(
        _TRAIN,
        "",
        "calls that train",
        code=r"\.backward\(|\b\w*(?:trainer|runner)\w*\.(?:train|fit)\(|\b(?:optimi[sz]er|optim|opt)\w*\.step\(",
    ),
    # Inference.
    _row(
        _INFER,
        "metrics",
        "torchmetrics, torcheval, ignite: what an evaluation collects",
        path=r"(?:^|/)(?:torchmetrics|torcheval/metrics|ignite/metrics)/",
    ),
    _row(
        _INFER,
        "",
        "transformers/generation, pipelines; diffusers pipelines; sentence-transformers; whisper; lm-eval",
        path=r"transformers/(?:generation|pipelines)/|diffusers/pipelines/|sentence_transformers/|(?:^|/)whisper\w*/|lm_eval/|faster_whisper/",
    ),
    _row(
        _INFER,
        "evaluation",
        "transformers/trainer.py, evaluation",
        path=r"transformers/\w*trainer\w*\.py|trl/trainer/",
        function=r"^(?:evaluate|evaluation_loop|prediction_loop|prediction_step|predict|_maybe_log_save_evaluate|_evaluate)$",
    ),
    _row(
        _INFER,
        "evaluation",
        "names of a library's functions that evaluate, as detectron2/evaluation/evaluator.py has them",
        path=r"(?:site|dist)-packages/(?!torch/|triton/|sympy/)",
        function=r"^(?:\w*evaluat(?:e|ion)(?:_\w+)?|inference_on\w*|val(?:idat\w+)?_(?:loop|epoch|step)|test_(?:loop|epoch|step))$",
    ),
    _row(
        _INFER,
        "evaluation",
        "names of a library's files that evaluate, as lightning/pytorch/loops/evaluation_loop.py",
        path=r"(?:site|dist)-packages/.{0,200}\b(?:evaluation_loop|prediction_loop|evaluator|validator|predictor)\.py$",
    ),
    _row(
        _INFER,
        "evaluation",
        "calls that evaluate",
        code=r"\b\w*(?:[Tt]rainer|[Rr]unner)\w*\.(?:test|validate|evaluate|predict)\(",
    ),
    _row(
        _INFER,
        "evaluation",
        "lightning evaluation and prediction loops; ultralytics predictor, validator",
        path=r"(?:lightning|pytorch_lightning)/|ultralytics/engine/(?:predictor|validator)\.py",
        function=r"validation|evaluation|predict|test_step|_run_sanity_check|validate|stream_inference|^test$",
    ),
    _row(
        _INFER,
        "",
        "ComfyUI comfy/samplers.py, sd.py; stable-diffusion-webui modules/processing.py; Forge backend, modules_forge",
        path=r"(?:^|/)comfy/|(?:^|/)stable-diffusion-webui[\w.-]{0,40}/(?:backend|extensions-builtin)/|(?:^|/)(?:modules_forge|ldm_patched)/|(?i:/comfy\w*/(?:execution|nodes)\.py)|(?:^|/)modules/(?:processing|sd_\w+|txt2img|img2img)|gradio/|(?:^|/)invokeai/",
    ),
    _row(
        _INFER,
        "decoder",
        "diffusers/models/autoencoders: a training encodes only",
        path=r"/autoencoder\w*(?:/|\.py)",
        function=r"^\w*decode(?:_tiled)?$",
    ),
    _row(
        _INFER,
        "",
        "names of functions that infer",
        function=r"^(?:_?eval\w*|_?validat\w*|val(?:_\w+|idation\w*)?|test_\w+|predict\w*|_?infer\w*|inference\w*|generate\w*|sample_\w+|embed\w*|encode(?:_\w+)?|decode(?:_\w+)?|"
        r"extract_features?|transcribe|chat|synthesi[sz]e\w*|get_embeddings?)$",
    ),
    _row(
        _INFER,
        "",
        "calls that infer",
        code=r"\binference_state\b|\.generate\(|\.predict\(|\.encode\(|\bpipe(?:line)?\(|\b(?:generate|predict|infer|transcribe|diarize|synthesize)_?\w{0,40}\(",
    ),
)

_SCRIPTS = (
    (Activity.TRAINING, re.compile(r"(?:^|[/_-])(?:\w*train\w*|\w*tun(?:e|ing)\w*|sft|dpo|grpo|main_worker)\.py$")),
    (
        Activity.INFERENCE,
        re.compile(
            r"(?:^|[/_-])(?:\w*infer\w*|transcri\w*|diari[sz]\w*|encode(?!r)\w*|caption\w*|make_\w+|generate\w*|predict\w*|eval\w*|validat\w*|test\w*|demo\w*|sample(?!r)\w*|serve\w*|app|webui|chat\w*)\.py$"
        ),
    ),
)
"""What the name of the user's file says, where no frame says more."""
_GATHERED = re.compile(r"device_map=.{1,200}\.(?:cuda|to)\(")
"""A model that a device map has spread, moved to one device in the same line."""
_ENGINE_STARTS = re.compile(r"\bLLM\(|\bAsyncLLMEngine\b|\bsgl\.Engine\(|\bpipeline\(.{0,80}TurbomindEngineConfig")
"""Calls that start an engine, which measures its largest batch before it serves."""
_FACTORY = re.compile(r"\btorch\.(?:randn?|randint|zeros|ones|empty|full|arange|linspace|eye|tensor)(?:_like)?\(")
"""A call that makes a tensor from nothing but its sizes or values."""
_DECORATED = re.compile(r"torch/(?:utils/_contextlib|autograd/grad_mode)\.py")
_DECORATED_OF_TRAINING = re.compile(r"deepspeed|/fsdp/|torch/optim|accelerate/|bitsandbytes|apex/|megatron|clip_grad|optimizer")
_WITHOUT_GRAPH = re.compile(
    r"\bgot prompt\b|!!! Exception during processing|\bPrompt executed in\b|\[InvokeAI\]|retrying with tiled VAE|"
    r"\bPredicting DataLoader \d"
)
"""Lines of programs that take no gradients at all."""
_LINES = (
    (
        Activity.ENGINE,
        "vLLM",
        re.compile(
            r"\bvllm\b|\bVllm\w*|\bEngineCore\w*|\bWorker_[DPT]P\d|\b(?:NPU)?RayWorkerWrapper\b|\[(?:gpu_)?model_runner\.py:\d|--gpu-memory-utilization"
        ),
        "vllm logs",
    ),
    (
        Activity.ENGINE,
        "SGLang",
        re.compile(r"\bsglang\b|--mem-fraction-static|resume_memory_occupation|^(?!.{0,80}Train).{0,200}\bfunc=resume\b"),
        "sglang logs",
    ),
    (
        Activity.ENGINE,
        "TGI",
        re.compile(r"text_generation_(?:launcher|router|client|server)"),
        "text-generation-inference logs",
    ),
    (Activity.ENGINE, "LMDeploy", re.compile(r"\blmdeploy\b|\[TM\]\["), "lmdeploy logs"),
    (Activity.ENGINE, "TensorRT-LLM", re.compile(r"\[TensorRT-LLM\]"), "TensorRT-LLM logs"),
    (
        Activity.LOADING,
        "",
        re.compile(
            r"Loading (?:a checkpoint \(shards|checkpoint shards|pipeline components|safetensors checkpoint|weights)\b|\bLoading .{1,60} (?:from )?[Cc]heckpoint\b|\btorch\.load\(|^loading \S{1,120}\.weight\b"
        ),
        "progress bars of transformers, diffusers; ktransformers ktransformers/util/utils.py",
    ),
    (
        Activity.SAVING,
        "",
        re.compile(r"\b[Ss]aving (?:the )?(?:model|checkpoint|state)|\bSummoning checkpoint|this state_dict entry"),
        "torch/distributed/fsdp/fully_sharded_data_parallel.py; lines of trainers",
    ),
    (
        Activity.TRAINING,
        "",
        re.compile(
            r"\b[Ee]poch\b|\b(?:train_?)?loss\b ?[=:]|\bgrad_norm\b|\*{5} Running training|\b[Tt]raining (?:with|on|started|for)\b|\b\w{0,40}(?:Train|Policy)\w{0,20}(?:Actor|Worker)\b|\btrain\w*\.py\b(?! FAILED)|"
            r"^\W{0,3}[$%#>] .{0,80}\b(?:train|finetune|sft)\b|\b(?:box|cls)_loss\b"
        ),
        "progress lines of training loops; the launcher's command",
    ),
    (
        Activity.TRAINING,
        "",
        re.compile(r"\bframe #\d{1,3}: .{0,200}(?:[Bb]ackward|torch::autograd::Engine)"),
        "pytorch c10/util/Backtrace.cpp: frames in C++ of an operator's gradient",
    ),
    (
        Activity.COMPILATION,
        "",
        re.compile(r"\bBackendCompilerFailed\b|\bInductorError\b"),
        "torch/_dynamo/exc.py, torch/_inductor/exc.py",
    ),
    (Activity.INFERENCE, "", _WITHOUT_GRAPH, "ComfyUI execution.py, main.py; InvokeAI; lightning callbacks/progress"),
    (
        Activity.INFERENCE,
        "",
        re.compile(
            r"\*{5} Running (?:Evaluation|Prediction)|\bSampling\b.{0,20}\d+%|DDIM Sampler|^>>Performing (?:transcription|alignment|diarization)|\b(?:\w*infer\w*|generate|predict|transcribe|encode|demo|chat)\w*\.py\b"
        ),
        "progress lines of samplers, whisperx whisperx/transcribe.py; the launcher's command",
    ),
)
_DTYPE = re.compile(
    r"\b(?:torch|np)\.(float64|double|float32|float16|half|bfloat16|int64|long|int32|int16|int8|uint8|bool|float8_\w+)\b"
)
ELEMENT_BYTES = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "float32": 4, "int32": 4, "float16": 2, "half": 2, "bfloat16": 2, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


def scene_of(frames: Sequence[Frame], before: bytes, after: bytes, lead: str, writer: str, text: str = "") -> Scene:
    """The scene of a message with ``frames``, between ``before`` and ``after`` of its log, behind ``lead`` in its own line.

    ``writer`` is the engine that wrote the message itself, "" when none did; ``text`` is the message.
    """
    found = _from_frames(frames)
    above, below = _lines(before, after)
    engine = writer or next((name for name, sign, _ in _ENGINE_PACKAGES if sign.search(text)), "")
    if engine in {name for name, _, _ in _ENGINE_PACKAGES}:
        found = replace(found, activity=Activity.ENGINE, engine=engine)
    elif found.activity is Activity.UNKNOWN:
        found = replace(_from_lines([lead, *_of_writer(lead, [*above, *below])]), stage=found.stage)
    if found.activity is Activity.ENGINE and found.stage in ("", "weights") and _trains(frames, ()):
        found = replace(found, stage="beside training")
    if found.activity is Activity.ENGINE and not found.stage:
        found = replace(found, stage=_engine_stage(above if frames else [*below[:NEAR], *above]))
    if found.activity is Activity.INFERENCE and not found.stage and any(map(_evaluates, frames)):
        found = replace(found, stage="evaluation")
    dtype = next((match[1] for frame in reversed(frames) if (match := _DTYPE.search(frame.code))), "")
    # In an interactive session the statement stands above the traceback, not in its frame.
    called = [*(frame.code for frame in frames), next((line for line in above if line.startswith(">>> ")), "")]
    if found.activity is Activity.LOADING and any(map(_GATHERED.search, called)):
        found = replace(found, stage="gathered")
    trains = found.activity is Activity.TRAINING or _trains(frames, above)
    if (
        found.activity is Activity.UNKNOWN
        and not found.stage
        and frames
        and not is_library(frames[-1].path)
        and _FACTORY.search(frames[-1].code)
    ):
        found = replace(found, stage="tensor")
    if writer == "llama.cpp":
        found = replace(found, stage=_buffer([text, *below[:NEAR], *above[:NEAR]]))
    if found.activity is Activity.ENGINE and not found.stage and any(_ENGINE_STARTS.search(frame.code) for frame in frames):
        found = replace(found, stage="profile")
    signs = signs_of([*above, *(frame.path for frame in frames)], below)
    if SKIPS.search(lead) is not None:
        signs |= {Sign.SKIPPED}
    if Sign.EXTENSION in signs and found.activity is Activity.UNKNOWN:
        found = Scene(Activity.COMPILATION, "extension")
    return replace(
        found,
        dtype=dtype,
        signs=signs,
        growth=growth_of(above),
        no_grad=found.no_grad or found.stage == "evaluation" or _no_grad(frames),
        outcome=outcome_of(above, below),
        raised=bool(frames),
        library=_library(frames, f"{lead} {text}", before, after),
        package=_package(frames),
        earlier=earlier_error(above),
        trains=trains,
        share=share_of([*above, text]),
        evidence=evidence_of([*above, *below], lead),
        options=_options([text, *above]),
        attention=any("scaled_dot_product_attention(" in frame.code for frame in frames[-3:]),
    )


_MARK = re.compile(r"^\W{0,2}([A-Za-z_][\w.:]{1,60})(?:[ \[]\w{1,12}=\w{1,12}\]?)? pid=\d")
"""The mark of a worker: its name, and the number of its process."""


def _of_writer(lead: str, lines: Sequence[str]) -> list[str]:
    """``lines`` without those of workers that have another name than the one whose mark ``lead`` begins with."""
    own = _MARK.match(lead)
    if own is None:
        return list(lines)
    return [line for line in lines if (mark := _MARK.match(line)) is None or mark[1] == own[1]]


def _trains(frames: Sequence[Frame], lines: Sequence[str]) -> bool:
    """Whether a frame, the script or one of ``lines`` shows a training program."""
    rows = [row for row in _ROWS if row.activity is Activity.TRAINING]
    for frame in frames:
        path, own = frame.path.replace("\\", "/"), not is_library(frame.path)
        if any((own or row.path is not None) and row.matches(frame, path) for row in rows):
            return True
        if own and _SCRIPTS[0][1].search(path):
            return True
    return any(pattern.search(line) for activity, _, pattern, _ in _LINES if activity is Activity.TRAINING for line in lines)


_OPTION = re.compile(
    r"\b(max[_-]model[_-]len|max[_-]num[_-]seqs|max[_-]num[_-]batched[_-]tokens|context[_-]length|max[_-]running[_-]requests|"
    r"chunked[_-]prefill[_-]size|max[_-](?:total|prefill|batch[_-]prefill|batch[_-]total)[_-]tokens|session[_-]len|max[_-]batch[_-]size|"
    r"max[_-]seq[_-]len|max[_-]num[_-]tokens|tensor[_-]parallel[_-]size|num[_-]shard|tp(?:_size)?|device(?=['\"]?(?: ?[=:] ?| )['\"]?(?:cuda|npu|xpu):))"
    r"['\"]?(?: ?[=:] ?| )(?:Some\(|['\"]?(?:cuda|npu|xpu):)?(\d{1,9})\b"
)
"""The options of `engines` that are numbers, as command lines and configurations name them, and the number of the device."""


def _options(lines: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The options that ``lines`` give, by their names with ``_``; the first line that gives one counts."""
    found: dict[str, int] = {}
    for line in lines:
        for option in _OPTION.finditer(line):
            found.setdefault(option[1].replace("-", "_"), int(option[2]))
    return tuple(found.items())


def _evaluates(frame: Frame) -> bool:
    """Whether a frame is that of a library's evaluation."""
    path = frame.path.replace("\\", "/")
    return any(row.stage == "evaluation" and row.path is not None and row.matches(frame, path) for row in _ROWS)


_PACKAGE = re.compile(r"(?:site|dist)-packages/(\w[\w-]{0,60})")


def _package(frames: Sequence[Frame]) -> str:
    found = _PACKAGE.search(frames[-1].path.replace("\\", "/")) if frames else None
    return "" if found is None else found[1]


def _library(frames: Sequence[Frame], lead: str, before: bytes, after: bytes) -> str:
    """The library, not PyTorch, that was called last: that which the message's own line names, that of the innermost frame, or of the lines
    next to the message."""
    named = next((name for name, sign, _ in _LIBRARIES if sign.search(lead)), "")
    if named:
        return named
    if frames:
        path = frames[-1].path.replace("\\", "/")
        return next((name for name, sign, _ in _LIBRARIES if sign.search(path)), "")
    above = before[-2048:].decode("utf-8", "replace").split("\n")[-_LIBRARY_LINES - 1 :]
    below = after[:2048].decode("utf-8", "replace").split("\n")[: _LIBRARY_LINES + 1]
    return next((name for name, sign, _ in _LIBRARIES if any(sign.search(line) for line in (*above, *below))), "")


def _from_frames(frames: Sequence[Frame]) -> Scene:
    paths = [frame.path.replace("\\", "/") for frame in frames]
    for frame, path in zip(reversed(frames), reversed(paths), strict=True):
        for engine, pattern, _ in _ENGINE_PACKAGES:
            if pattern.search(path):
                return Scene(Activity.ENGINE, _stage_of_engine(frames), engine, shown_by=_shown(frame))
    for number in range(len(frames) - 1, -1, -1):
        frame = frames[number]
        for row in _ROWS:
            if row.path is None and is_library(frame.path):
                continue  # names of functions say something in the user's own code only
            if row.matches(frame, paths[number]):
                return Scene(row.activity, row.stage, shown_by=_shown(frame))
        if _is_no_grad(paths, number):
            return Scene(Activity.INFERENCE, shown_by=_shown(frames[number + 1]))
    for frame, path in zip(reversed(frames), reversed(paths), strict=True):
        for activity, pattern in _SCRIPTS:
            if not is_library(frame.path) and pattern.search(path):
                return Scene(activity, shown_by=_shown(frame))
    return Scene()


_CALLS = re.compile(r"([A-Za-z_]\w{0,80})\(")


def _stage_of_engine(frames: Sequence[Frame]) -> str:
    """What an engine was doing: by any frame where one runs another's functions for its own end, else by the innermost that says it."""
    for name, sign, _ in _ENGINE_STAGES:
        if name in _WHOLE_STAGES and any(_names(sign, frame) for frame in frames):
            return name
    for frame in reversed(frames):
        calls = " ".join(_CALLS.findall(frame.code))  # further in than the frame itself; an argument is none
        called = next((name for name, sign, _ in _ENGINE_STAGES if sign.search(calls)), "")
        stage = called or next((name for name, sign, _ in _ENGINE_STAGES if _names(sign, frame)), "")
        if stage:
            return stage
    return ""


def _names(sign: re.Pattern[str], frame: Frame) -> bool:
    return sign.search(frame.function) is not None or sign.search(frame.path.rpartition("/")[2]) is not None


def _is_no_grad(paths: Sequence[str], number: int) -> bool:
    """Whether frame ``number`` is that of ``@torch.no_grad()`` on a function that is no part of training."""
    if _DECORATED.search(paths[number]) is None or number + 1 >= len(paths):
        return False
    return _DECORATED_OF_TRAINING.search(paths[number + 1]) is None


_WITHOUT_GRADIENTS = re.compile(
    r"transformers/(?:generation|pipelines)/|diffusers/pipelines/|sentence_transformers/|(?:^|/)(?:faster_)?whisper\w*/|lm_eval/|(?:^|/)comfy/|(?i:/comfyui/(?:custom_nodes/|execution\.py|nodes\.py))|(?:^|/)stable-diffusion-webui[\w.-]{0,40}/backend/|(?:^|/)(?:modules_forge|ldm_patched)/|(?:^|/)modules/(?:processing|txt2img|img2img)|(?:^|/)(?:invokeai|mmgp)/"
)


_GRADLESS = re.compile(r"\.generate\(|\bpipe(?:line)?\(")
"""Calls of libraries that take no gradients in them."""


def _no_grad(frames: Sequence[Frame]) -> bool:
    """Whether a frame shows that no gradients were taken: a decorator, or a library that takes none."""
    paths = [frame.path.replace("\\", "/") for frame in frames]
    return any(
        _is_no_grad(paths, number) or _WITHOUT_GRADIENTS.search(paths[number]) or _GRADLESS.search(frames[number].code)
        for number in range(len(paths))
    )


def _shown(frame: Frame) -> str:
    parts = frame.path.replace("\\", "/").split("/")
    return f"{'/'.join(parts[-3:])}:{frame.row} in {frame.function}"


def _lines(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    """The lines above a message and those below it, nearest first."""
    above = before[-64 * 1024 :].decode("utf-8", "replace").split("\n")[-MAX_LINES_BEFORE:]
    below = after.decode("utf-8", "replace").split("\n")[:MAX_LINES_AFTER]
    return [raw[:MAX_LINE] for raw in reversed(above)], [raw[:MAX_LINE] for raw in below]


def _from_lines(lines: Sequence[str]) -> Scene:
    for line in lines:
        for activity, engine, pattern, _ in _LINES:
            if activity is Activity.ENGINE and pattern.search(line):
                return Scene(activity, "", engine, shown_by=line.strip()[:100])
    for line in lines:
        for activity, engine, pattern, _ in _LINES:
            if pattern.search(line):
                return Scene(activity, "", engine, shown_by=line.strip()[:100], no_grad=pattern is _WITHOUT_GRAPH)
    return Scene()


def _buffer(lines: Sequence[str]) -> str:
    """Which buffer of llama.cpp the first of ``lines`` that names one speaks of, "" when none does; a picture's wherever it stands."""
    if any(_BUFFERS[0][1].search(line) for line in lines):
        return "picture"
    return next((stage for line in lines for stage, pattern, _ in _BUFFERS if pattern.search(line)), "")


def _engine_stage(lines: Sequence[str]) -> str:
    """What an engine was doing by the first of ``lines`` that says so, "" when none does."""
    return next((stage for line in lines for stage, pattern, _ in _ENGINE_LINES if pattern.search(line)), "")
