"""Whole logs: the right verdict, what was running, and advice for that; and the rules by which a scene is recognized."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from torchmemlint.oom.advice import commands_that_tell_more
from torchmemlint.oom.cases import Case, read_log
from torchmemlint.oom.meanings import Kind
from torchmemlint.oom.report import as_text, in_full
from torchmemlint.oom.scene import Activity, scene_of
from torchmemlint.oom.signs import Outcome, Sign, growth_of, outcome_of
from torchmemlint.oom.traceback import Frame, read_traceback
from torchmemlint.oom.wordings import Family

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOGS = Path(__file__).parent / "oom_logs"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((LOGS / "expected.toml").read_text(encoding="utf-8"))


def test_every_log_has_an_answer() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == set(EXPECTED)
    assert len(EXPECTED) == 376


@pytest.mark.parametrize(("name", "answer"), EXPECTED.items(), ids=EXPECTED)
def test_a_log_is_explained(name: str, answer: Mapping[str, Any]) -> None:
    with (LOGS / f"{name}.log").open("rb") as file:
        log = read_log(name, file)
    cases = in_full(log)
    if answer["kind"] == "none":
        assert log.cases == ()
        return
    assert cases[0].diagnosis.kind.value == answer["kind"]
    if "running" in answer:
        assert cases[0].scene.activity.value == answer["running"]
    text = as_text([log])
    for words in answer.get("says", ()):
        assert words in text
    titles = [remedy.title for case in cases for remedy in case.remedies]
    for title in answer["advises"]:
        assert any(title in one for one in titles), title
    advice = "\n".join(f"{remedy.title}\n{remedy.why}\n{remedy.code}" for case in cases for remedy in case.remedies)
    for words in answer.get("never", ()):
        assert words not in advice


SITE = "/opt/conda/lib/python3.11/site-packages"


def frame(path: str, function: str, code: str = "") -> Frame:
    return Frame(path, 10, function, code)


USER = frame("/home/me/proj/main.py", "<module>", "main()")


@pytest.mark.parametrize(
    ("frames", "activity", "stage"),
    [
        ([USER], Activity.UNKNOWN, ""),
        ([USER, frame(f"{SITE}/torch/autograd/graph.py", "_engine_run_backward")], Activity.TRAINING, "backward"),
        ([USER, frame(f"{SITE}/torch/optim/adamw.py", "_init_group")], Activity.TRAINING, "optimizer"),
        # A decorator of the optimizer's step takes no gradients, and is training all the same.
        (
            [
                USER,
                frame(f"{SITE}/torch/utils/_contextlib.py", "decorate_context"),
                frame(f"{SITE}/bitsandbytes/optim/optimizer.py", "step"),
            ],
            Activity.TRAINING,
            "optimizer",
        ),
        (
            [
                USER,
                frame(f"{SITE}/torch/utils/_contextlib.py", "decorate_context"),
                frame("/home/me/proj/sampler.py", "run"),
            ],
            Activity.INFERENCE,
            "",
        ),
        # What is called inside a training decides: its evaluation infers.
        (
            [USER, frame("/home/me/proj/t.py", "train_epoch"), frame("/home/me/proj/t.py", "evaluate")],
            Activity.INFERENCE,
            "",
        ),
        ([USER, frame(f"{SITE}/torch/nn/modules/module.py", "convert")], Activity.LOADING, "weights"),
        ([USER, frame(f"{SITE}/torch/nn/modules/module.py", "_call_impl")], Activity.UNKNOWN, ""),
        # A compiled function runs through the compiler's package; only what compiles is compilation.
        (
            [USER, frame("/p/t.py", "train_step"), frame(f"{SITE}/torch/_inductor/compile_fx.py", "run")],
            Activity.TRAINING,
            "",
        ),
        ([USER, frame(f"{SITE}/torch/_inductor/compile_fx.py", "compile_fx_inner")], Activity.COMPILATION, "inductor"),
        ([USER, frame(f"{SITE}/vllm/worker/model_runner.py", "profile_run")], Activity.ENGINE, "profile"),
        ([USER, frame(f"{SITE}/vllm/model_executor/model_loader/loader.py", "load_model")], Activity.ENGINE, "weights"),
        (
            [USER, frame(f"{SITE}/torch/distributed/fsdp/_state_dict_utils.py", "_full_pre_state_dict_hook")],
            Activity.SAVING,
            "",
        ),
        ([frame("/p/finetune.py", "<module>", "step(batch)")], Activity.TRAINING, ""),
        # An engine's umbrella function says less than what runs inside it; a capture runs the measurement's functions for its own end.
        (
            [
                frame(f"{SITE}/vllm/engine/llm_engine.py", "_initialize_kv_caches"),
                frame(f"{SITE}/vllm/worker/worker.py", "determine_num_available_blocks"),
            ],
            Activity.ENGINE,
            "profile",
        ),
        (
            [
                frame(f"{SITE}/vllm/v1/worker/gpu_model_runner.py", "capture_model"),
                frame(f"{SITE}/vllm/v1/worker/gpu_model_runner.py", "_dummy_run"),
            ],
            Activity.ENGINE,
            "graphs",
        ),
        ([frame("/p/app.py", "generate_video"), frame("/p/app.py", "load_models")], Activity.LOADING, "weights"),
        ([USER, frame(f"{SITE}/torch/serialization.py", "_cuda_deserialize")], Activity.LOADING, "restored"),
        ([USER, frame("/ui/ComfyUI/comfy/utils.py", "load_torch_file")], Activity.LOADING, "weights"),
        ([frame("/ui/stable-diffusion-webui-forge/backend/nn/flux.py", "apply_rope")], Activity.INFERENCE, ""),
        # An encoder is a part of a model, trained or not; a tensor that is made from its sizes says nothing of what runs.
        ([frame("/home/me/image_encoder.py", "forward", "x = self.attn(x)")], Activity.UNKNOWN, ""),
        ([frame("Cell In[2]", "<module>", "y = torch.randn(n, n, device=device)")], Activity.UNKNOWN, "tensor"),
        (
            [frame("/p/train.py", "training"), frame("/p/cameras.py", "__init__", "self.image = image.to(device)")],
            Activity.LOADING,
            "data",
        ),
    ],
)
def test_the_innermost_frame_that_says_something_decides(frames: list[Frame], activity: Activity, stage: str) -> None:
    scene = scene_of(frames, b"", b"", "", "")
    assert (scene.activity, scene.stage) == (activity, stage)


def test_without_frames_the_nearest_line_decides() -> None:
    before = b"Loading checkpoint shards: 100%\nepoch 3 loss: 0.31\nsaving\n"
    assert scene_of((), before, b"", "", "").activity is Activity.TRAINING
    assert scene_of((), b"\n".join(reversed(before.split(b"\n"))), b"", "", "").activity is Activity.LOADING


def test_frames_in_cpp_of_a_gradient_show_a_training() -> None:
    below = b"frame #5: at::native::slow_conv3d_backward_cuda(at::Tensor const&) + 0x2c9 (0x2af1 in /x/libtorch_cuda.so)\n"
    assert scene_of((), b"", below, "", "").activity is Activity.TRAINING
    assert scene_of((), b"", below.replace(b"backward", b"forward"), "", "").activity is Activity.UNKNOWN


def read(text: str) -> tuple[Case, ...]:
    return read_log("log", io.BytesIO(text.encode())).cases


@pytest.mark.parametrize(
    ("lines", "label"),
    [
        (["rss 1.0 GB", "rss 1.2 GB", "rss 3.0 GB"], "rss"),
        (["max mem: 900", "max mem: 1100", "max mem: 2000"], "max mem"),
        (["rss 1.0 GB", "rss 1.1 GB", "rss 1.2 GB"], None),
        (["rss 1.0 GB", "rss 9.0 GB", "rss 2.0 GB", "rss 4.0 GB"], None),
        (["rss 1.0 GB", "rss 3.0 GB"], None),
        (["step 1", "step 2", "step 9"], None),
    ],
)
def test_growth_is_a_figure_that_rises_and_does_not_fall(lines: list[str], label: str | None) -> None:
    growth = growth_of(list(reversed(lines)))
    assert (growth.label if growth else None) == label


def test_a_traceback_that_has_ended_is_not_the_message_s() -> None:
    text = 'Traceback (most recent call last):\n  File "/p/a.py", line 1, in f\n    g()\nValueError: 3\n\nlater\nCUDA '
    assert read_traceback(text.encode(), "") == ()
    (case,) = read(
        text + "out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4.00 GiB of which 1.00 GiB is free."
    )
    assert case.frames == ()


def test_an_error_report_has_its_traceback_below() -> None:
    text = (
        "Exception Message: DefaultCPUAllocator: not enough memory: you tried to allocate 5242880 bytes.\n## Stack Trace\n\n"
        '  File "F:\\art\\nodes.py", line 284, in decode\n    return vae.decode(x)\n'
    )
    (case,) = read(text)
    assert [one.function for one in case.frames] == ["decode"]
    assert Sign.WINDOWS in case.scene.signs


def test_a_hint_is_printed_in_a_line_beside_a_certain_message() -> None:
    text = "RuntimeError: MPS backend out of memory (MPS allocated: 8.61 GB, other allocations: 0 bytes, max allowed: 9.07 GB). Tried to allocate 512.00 MB on private pool.\nKilled\n"
    log = read_log("log", io.BytesIO(text.encode()))
    assert [case.certain for case in log.cases] == [True, False]
    assert [case.message.backend for case in in_full(log)] == ["MPS"]


def test_the_advice_names_the_backend_s_device() -> None:
    text = (
        "XPU out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 15.11 GiB of which 0.10 GiB is free. "
        "Of the allocated memory 14.50 GiB is allocated by PyTorch, and 0.10 GiB is reserved by PyTorch but unallocated."
    )
    (case,) = read(text)
    code = "\n".join(remedy.code for remedy in case.remedies)
    assert 'torch.autocast("xpu"' in code
    assert '"cuda"' not in code


def test_the_own_process_in_a_container_may_hold_much_beside_its_cache() -> None:
    """Graphs and communicators of an engine are not in the cache; two processes that together exceed the device are one."""
    text = (
        "CUDA out of memory. Tried to allocate 448.00 MiB. GPU 7 has a total capacity of 95.00 GiB of which 300.00 MiB is free. Process 33 "
        "has 94.60 GiB memory in use. Of the allocated memory 91.00 GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch but "
        "unallocated."
    )
    (case,) = read(text)
    assert case.diagnosis.kind.value == "genuine"


FULL = (
    "CUDA out of memory. Tried to allocate 30.00 MiB (GPU 0; 10.92 GiB total capacity; 10.11 GiB already allocated; 15.38 MiB free; 10.32 GiB "
    "reserved in total by PyTorch)"
)
CALL = 'Traceback (most recent call last):\n  File "/p/train.py", line 3, in step\n    loss.backward()\n'


@pytest.mark.parametrize(
    ("text", "survived"),
    [
        (f"WARNING: {FULL}\nskipping this batch\nstep 12 loss: 0.31\n", True),
        (f"caught: {FULL}\nstep 12 loss: 0.31\n", True),
        (f"{CALL}RuntimeError: {FULL}\nOOM, skipping batch\nstep 12 loss: 0.31\n", True),
        # Another rank may write on when this one has died.
        (f"{CALL}RuntimeError: {FULL}\nstep 12 loss: 0.31\n", False),
        (f"WARNING: {FULL}\nskipping this batch\n{CALL}ValueError: 3\nstep 12 loss: 0.31\n", False),
        (f"WARNING: {FULL}\nskipping this batch\n", False),
        # The line itself says it, before or behind the message.
        (f"skipping size 8: {FULL}\n", True),
        (f"{FULL.removesuffix(')')}, skipping (8, 1024)\n", True),
        (f"skipping size 8: {FULL}\n{CALL}ValueError: 3\n", False),
        # A bar that is drawn once more as it stood does not move.
        (
            f" 12%|#   | 12/100 [00:01<00:09, 9.00it/s]\nRuntimeError: {FULL}\n 12%|#   | 12/100 [00:02<00:09, 9.00it/s]\n",
            False,
        ),
        (f" 12%|#   | 12/100 [00:01<00:09, 9.00it/s]\nWARNING: {FULL}\n 13%|#   | 13/100 [00:02<00:09, 9.00it/s]\n", True),
    ],
)
def test_a_message_that_the_program_survived_is_said_to_be_survived(text: str, survived: bool) -> None:
    case = next(case for case in read(text) if case.message.total is not None)
    assert case.diagnosis.survived is survived
    assert (", survived" in as_text([read_log("log", io.BytesIO(text.encode()))])) is survived
    assert any(remedy.title.startswith("Change nothing if it is seldom") for remedy in case.remedies) is survived


def test_what_was_survived_stands_behind_what_was_not() -> None:
    log = read_log("log", io.BytesIO(f"OOM caught, skipping batch\nstep 12 loss: 0.31\n{CALL}RuntimeError: {FULL}\n".encode()))
    assert [case.diagnosis.survived for case in log.cases] == [False, True]
    assert [case.row for case in in_full(log)] == [6]


def test_a_program_that_tried_to_go_on_and_ended_did_not_survive() -> None:
    (case,) = read(f"attempting to recover from OOM in forward/backward pass\n{CALL}ValueError: 3\n")
    assert not case.diagnosis.survived


def test_the_first_line_that_tells_decides_the_outcome() -> None:
    assert outcome_of((), ("", "loss: 1.5", "Aborted")) is Outcome.WENT_ON
    assert outcome_of((), ("exits with return code = 1", "loss: 1.5")) is Outcome.ENDED
    assert outcome_of((), ("nothing",)) is Outcome.UNKNOWN


RAW = "RuntimeError: CUDA error: out of memory"
TORCH = "/x/site-packages/torch"
SHARED = (
    "CUDA out of memory. Tried to allocate 76.00 MiB. GPU 0 has a total capacity of 14.74 GiB of which 52.19 MiB is free. Process 64 has 3.91 "
    "GiB memory in use. Process 60 has 3.58 GiB memory in use. Process 69 has 3.45 GiB memory in use. Process 67 has 3.73 GiB memory in use. Of "
    "the allocated memory 3.55 GiB is allocated by PyTorch, and 58.37 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("frame_line", "kind", "words"),
    [
        (f'  File "{TORCH}/cuda/__init__.py", line 217, in _lazy_init', "other-processes", "first use"),
        (f'  File "{TORCH}/utils/data/_utils/pin_memory.py", line 58, in pin_memory', "host-memory", "pinned"),
        ('  File "/x/site-packages/llama_cpp/llama.py", line 3, in __init__', "other-program", "llama.cpp"),
        (f'  File "{TORCH}/nn/functional.py", line 3, in linear', "outside-cache", "pinned memory of the host"),
    ],
)
def test_a_bare_error_of_the_driver_means_what_its_place_says(frame_line: str, kind: str, words: str) -> None:
    (case,) = read(f"Traceback (most recent call last):\n{frame_line}\n    f()\n{RAW}\n")
    assert case.diagnosis.kind.value == kind
    assert words in " ".join((case.diagnosis.headline, *case.diagnosis.because))


def test_a_library_that_cannot_start_after_an_assertion_did_not_run_out_of_memory() -> None:
    error = "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n"
    (alone,) = read(error)
    (after,) = read(
        "Indexing.cu:1146: indexSelectLargeIndex: block: [72,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n" + error
    )
    assert (alone.diagnosis.kind.value, after.diagnosis.kind.value) == ("unclear", "not-memory")
    full = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n"
    kinds = [read(text)[0].diagnosis.kind.value for text in (full, f"CUDA error: device-side assert triggered\n{full}")]
    assert kinds == ["outside-cache", "not-memory"]


@pytest.mark.parametrize(
    ("text", "kind", "titles"),
    [
        (
            "transport/nvls.cc:100 -> 1\nnode: NCCL WARN Cuda failure 2 'out of memory'",
            "outside-cache",
            ["Let NCCL allocate before"],
        ),
        ("loss: 1.0\nRuntimeError: No executable batch size found, reached zero.", "unclear", ["Set a batch size"]),
        ("WSL2\nKilled", "host-memory", ["Give the virtual machine of WSL"]),
        ("Using DeepSpeedCPUAdam\nexits with return code = -9", "host-memory", ["Keep less on the host"]),
        (f"[W] Trial 3 failed\n{CALL}RuntimeError: {FULL}", "genuine", ["Keep nothing between the tries"]),
        ("got prompt\nTriton Error [CUDA]: out of memory", "outside-cache", ["Infer on less"]),
        (
            f'Traceback (most recent call last):\n  File "{TORCH}/distributed/distributed_c10d.py", line 9, in barrier\n    work = pg.barrier()\n{RAW}',
            "outside-cache",
            ["Let NCCL allocate before"],
        ),
        (
            "Watchdog caught collective operation timeout\nCUDA out of memory. Tried to allocate more than 1EB memory.",
            "oversized-request",
            ["Print the sizes"],
        ),
        (f"[gw2] linux -- Python 3.12.9 python\n{SHARED}", "own-ranks", ["Run fewer test workers"]),
        (SHARED, "other-processes", ["Find the processes"]),
        (
            "Predicting DataLoader 0:   0%| | 0/1 [00:00<?, ?it/s]| WARNING: ran out of memory, skipping batch",
            "unclear",
            ["Infer on less"],
        ),
        (f"resume_memory_occupation kv_cache\n{RAW}", "outside-cache", ["Let the trainer make room"]),
    ],
)
def test_the_lines_around_a_message_change_the_advice(text: str, kind: str, titles: list[str]) -> None:
    (case,) = read(text)
    assert case.diagnosis.kind.value == kind
    for title in titles:
        assert any(remedy.title.startswith(title) for remedy in case.remedies)


def test_the_commands_that_tell_more_name_the_program_and_the_finding() -> None:
    full = "Of the allocated memory 22.90 GiB is allocated by PyTorch, and 0.10 GiB is reserved by PyTorch but unallocated."
    text = (
        'Traceback (most recent call last):\n  File "my train.py", line 3, in <module>\n    loss.backward()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 0.20 GiB "
        f"is free. {full}\n"
    )
    (case,) = read(text)
    assert case.program == "my train.py"
    commands = dict(commands_that_tell_more(case.diagnosis, case.scene, case.program, "my train.py:3"))
    assert list(commands) == [
        "torchmemlint confirm 'my train.py:3'",
        "torchmemlint run 'my train.py'",
        "torchmemlint budget 'my train.py'",
    ]
    (engine,) = read("ValueError: No available memory for the cache blocks.")
    assert commands_that_tell_more(engine.diagnosis, engine.scene, engine.program, "") == ()


def test_a_message_with_a_line_for_each_sentence_is_read_in_full() -> None:
    (case,) = read(
        "torch.OutOfMemoryError: HIP out of memory. \nTried to allocate 26.00 MiB. GPU 0 has a total capacity of 15.92 GiB of which 13.60 GiB "
        "is free. \nOf the allocated memory 1.72 GiB is allocated by PyTorch, and 28.98 MiB is reserved by PyTorch but unallocated.\n"
    )
    assert (case.message.device, case.message.requested) == (0, 26 * 2**20)
    assert case.message.unallocated is not None


BUFFER = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 46817.25 MiB on device 1: cudaMalloc failed: out of memory\n"
AGAIN = "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
READY = "srv    load_model: initializing, n_slots = 1\n"


@pytest.mark.parametrize(
    ("below", "survived"), [(AGAIN + READY, True), (READY, False), (AGAIN, False), (AGAIN + "Aborted\n", False)]
)
def test_another_program_survives_only_if_it_says_so_and_goes_on(below: str, survived: bool) -> None:
    (case,) = read(BUFFER + below)
    assert (case.diagnosis.kind.value, case.diagnosis.survived) == ("other-program", survived)


def test_a_worker_that_is_missing_may_have_ended_by_an_error() -> None:
    gone = "RuntimeError: One or more background workers are no longer alive. Exiting.\n"
    (killed,) = read(gone)
    (raised,) = read(f"KeyError: 'image'\n{gone}")
    assert (killed.diagnosis.kind.value, raised.diagnosis.kind.value) == ("host-memory", "unclear")
    assert raised.remedies[0].title.startswith("Read the first error")


def test_the_second_line_of_ray_s_message_is_a_message_only_by_itself() -> None:
    first = "Task was killed due to the node running low on memory.\n"
    second = "Memory on the node (IP: 10.0.0.7, ID: fc2b) where the task (task ID: c8) was running was 59.40GB / 62.50GB (0.95), which exceeds\n"
    assert [(case.row, case.times) for case in read(first + second)] == [(1, 1)]
    assert [case.row for case in read(f"\n{second}")] == [2]
    for text in (first + second, second):
        (case,) = read(text)
        assert case.message.allocated == round(59.4 * 2**30)


def test_state_that_a_trainer_builds_on_the_host_is_no_leak() -> None:
    lines = "".join(
        f"{when} fp32 partitions\nCPU Virtual Memory:  used = {used} GB, percent = 8%\n"
        for when, used in (("Before creating", 28.7), ("Before creating", 61.0), ("After creating", 138.6))
    )
    (case,) = read(f"{lines}exits with return code = -9\n")
    assert "copies of the parameters" in " ".join(case.diagnosis.because)
    assert [remedy.title[:17] for remedy in case.remedies] == ["Keep less on the ", "Load checkpoints ", "Ask for more memo"]


def test_a_traceback_below_the_message_needs_no_heading_and_may_be_upside_down() -> None:
    frames = '  File "/p/net.py", line 9, in attend\n    q @ k\n  File "/p/net.py", line 4, in forward\n    x = attend(q, k)\n'
    (case,) = read(f"{FULL}\n\n{frames}")
    assert [one.function for one in case.frames] == ["forward", "attend"]


def test_a_cell_of_a_newer_notebook_is_a_frame() -> None:
    text = "OutOfMemoryError      Traceback (most recent call last)\nCell In[12], line 3\n      1 n = 28000\n----> 3 y = torch.zeros(n, n)\n"
    (frame,) = read_traceback(text.encode(), "")
    assert (frame.path, frame.row, frame.code) == ("Cell In[12]", 3, "y = torch.zeros(n, n)")
    (case,) = read(f"{text}\n{RAW}\n")
    assert not any("batch" in remedy.title for remedy in case.remedies if remedy.title.startswith("Halve"))


def test_an_array_of_numpy_has_no_gradients() -> None:
    (case,) = read("MemoryError: Unable to allocate 54.6 GiB for an array with shape (171204, 171310) and data type uint16\n")
    assert case.remedies[0].title.startswith("Look at the shapes")
    assert not any("gradients" in remedy.title for remedy in case.remedies)


def test_a_frame_of_an_older_notebook_has_its_row_at_the_arrow() -> None:
    text = (
        "OutOfMemoryError                          Traceback (most recent call last)\n<ipython-input-7-3d62c575> in <cell line: 1>()\n"
        "----> 1 trainer.train()\n\n13 frames\n[/usr/local/lib/python3.10/dist-packages/accelerate/utils/operations.py](https://localhost:8080/#) "
        "in _convert_to_fp32(tensor)\n    780 \n--> 781         return tensor.float()\n\n"
    )
    first, last = read_traceback(text.encode(), "")
    assert (first.path, first.row, first.code) == ("<ipython-input-7-3d62c575>", 1, "trainer.train()")
    assert (last.row, last.function, last.code) == (781, "_convert_to_fp32", "return tensor.float()")


def test_a_share_too_small_for_an_engine_is_not_proposed() -> None:
    text = "ValueError: Free memory on device ({}/79.32 GiB) on startup is less than desired GPU memory utilization (0.6, 47.59 GiB)."
    shares = [
        [r.code for r in read(text.format(free))[0].remedies if r.title.startswith("Lower")] for free in ("0.52", "31.00")
    ]
    assert shares == [[], ["--gpu-memory-utilization 0.39"]]


def test_a_worker_that_trains_is_known_by_its_mark() -> None:
    (case,) = read(f"(RayTrainWorker pid=3) {FULL}")
    assert case.scene.activity is Activity.TRAINING


def test_a_message_that_a_logger_has_wrapped_is_joined() -> None:
    text = (
        "INFO     ready                                    server.py:12\nERROR    2025-02-11 server ERROR: CUDA            batch_handler.py:574\n"
        "         out of memory. Tried to allocate 4.12 GiB. GPU 0\n         has a total capacity of 44.42 GiB of which 0.80\n         GiB is free.\n"
    )
    (case,) = read(text)
    assert (case.row, case.message.device, case.message.requested) == (2, 0, 4423816315)
    assert case.message.free is not None
    (apart,) = read("ERROR CUDA            batch_handler.py:574\nout of memory. Tried to allocate 4.12 GiB")
    assert (apart.row, apart.message.family, apart.diagnosis.kind) == (2, Family.UNNAMED, Kind.UNCLEAR)


def test_what_stands_before_a_message_in_its_line_says_what_was_running() -> None:
    (case,) = read(
        "UserWarning: Failed to clone(). This may mean that this state_dict entry is invalid. Error: CUDA out of memory. Tried to allocate "
        "502.00 MiB (GPU 1; 39.59 GiB total capacity; 35.54 GiB already allocated; 276.19 MiB free; 37.22 GiB reserved in total by PyTorch)"
    )
    assert case.scene.activity is Activity.SAVING


def test_a_boxed_frame_may_have_a_drive() -> None:
    box = "╭── Traceback (most recent call last) ──╮\n│ C:\\proj\\train.py:41 in fit │\n│ ❱ 41 │ loss = model(x) │\n"
    (only,) = read_traceback(box.encode(), "")
    assert (only.path, only.row) == ("C:\\proj\\train.py", 41)


KILLED = "torch.distributed.elastic.multiprocessing.api: failed (exitcode: -9) local_rank: 1 (pid: 517) of binary: python\n"


@pytest.mark.parametrize(
    ("above", "kind"),
    [
        ("", "host-memory"),
        ("[rank0]: ValueError: labels and logits differ\n", "unclear"),
        ("slurmstepd: error: *** JOB 77 ON n4 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n", "unclear"),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15\n", "unclear"),
        # What a launcher says of the others is a consequence; state on the host tells more than an error.
        ("Sending process 518 closing signal SIGTERM\n", "host-memory"),
        ("2026-01-02 03:04:05 - WARNING - apex is not used: ImportError: no module\n", "host-memory"),
        ("subprocess.CalledProcessError: Command '['python', 't.py']' died\n", "host-memory"),
        ("Before initializing optimizer states\nDeepSpeedCPUAdam\nValueError: 3\n", "host-memory"),
    ],
)
def test_a_process_that_was_killed_is_no_proof_of_a_full_host(above: str, kind: str) -> None:
    (case,) = in_full(read_log("log", io.BytesIO((above + KILLED).encode())))
    assert case.diagnosis.kind.value == kind


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("Bus error (core dumped)\n", "unclear"),
        ("RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error.\n", "host-memory"),
        ("n1:9:9 [0] NCCL INFO Channel 00/02 : 0 1\nBus error (core dumped)\n", "host-memory"),
        ("ptxas fatal   : Memory allocation failure\n", "unclear"),
        ("ninja: no work to do.\nLoading extension module cpu_adam...\nptxas fatal   : Memory allocation failure\n", "unclear"),
        ("[3/9] /usr/local/cuda/bin/nvcc -c flash.cu\nptxas fatal   : Memory allocation failure\n", "host-memory"),
    ],
)
def test_a_cause_needs_a_circumstance_that_shows_it(log: str, kind: str) -> None:
    (case,) = read(log)
    assert case.diagnosis.kind.value == kind


RENDER = "renderer: failed to allocate 512 MiB for the frame buffer on GPU 0\n"


def test_a_wording_that_is_not_known_says_what_is_certain() -> None:
    call = f'Traceback (most recent call last):\n  File "/p/infer.py", line 3, in predict\n    mesh(x)\n  File "{SITE}/meshlib/core.py", line 9, in mesh\n'
    (case,) = read(f"{call}meshlib.errors.MeshError: failed to allocate 512 MiB for the frame buffer on GPU 0\n")
    assert (case.diagnosis.kind, case.certain, case.message.requested) == (Kind.UNCLEAR, False, 512 * 2**20)
    assert "of the device" in case.diagnosis.headline
    assert "during inference" in case.diagnosis.headline
    assert any("meshlib" in sentence for sentence in case.diagnosis.because)
    (host,) = read("ERROR indexer: insufficient host memory for the index\n")
    assert "of the host" in host.diagnosis.headline
    assert not any("GPU" in remedy.title or "nvidia-smi" in remedy.code for remedy in host.remedies)
    (nobody,) = read("Error: ran out of memory\n")
    assert any("does not say" in sentence for sentence in nobody.diagnosis.because)


def test_general_words_beside_a_known_message_repeat_it() -> None:
    assert [case.message.family for case in read(f"RuntimeError: {FULL}\n{RENDER}")] == [Family.PARENTHESES]
    assert [case.message.family for case in read(f"{RENDER}{BUFFER}")] == [Family.OTHER_PROGRAM]
    # They say more than a process that was killed.
    assert in_full(read_log("log", io.BytesIO(f"{RENDER}Killed\n".encode())))[0].message.family is Family.UNNAMED
    assert read(f"{RENDER.strip()}, falling back to the host\nstep 3 loss: 0.2\n")[0].diagnosis.survived


def test_advice_for_training_needs_a_training() -> None:
    (unknown,) = read(f"RuntimeError: {FULL}\n")
    text = " ".join(f"{remedy.title} {remedy.code}" for remedy in unknown.remedies)
    assert "accumulate" not in text
    assert "backward()" not in text
    (training,) = read(f"Epoch 3: loss=0.2\nRuntimeError: {FULL}\n")
    assert any("accumulate" in remedy.title for remedy in training.remedies)


STEP = 'Traceback (most recent call last):\n  File "/p/train.py", line 3, in training_step\n    out = net(x)\n'
SMALLER, MEDIA = "Halve the batch", f"{SITE}/vllm_omni/diffusion/worker.py"


def titles(text: str) -> list[str]:
    (case,) = in_full(read_log("log", io.BytesIO(text.encode())))
    return [remedy.title for remedy in case.remedies]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("python train.py -b 1 -e 10", SMALLER),
        ("batch_size=1", SMALLER),
        ("'per_device_train_batch_size': 1,", SMALLER),
        ("  Instantaneous batch size per device = 1", SMALLER),
        ("TrainingArguments(gradient_checkpointing=True)", "Recompute"),
        ("Using bfloat16 Automatic Mixed Precision (AMP)", "Run the forward in bfloat16"),
        ("accelerate launch --mixed_precision bf16 train.py", "Run the forward in bfloat16"),
    ],
)
def test_what_is_in_force_is_not_advised(line: str, title: str) -> None:
    full = f"{STEP}RuntimeError: {FULL}\n"
    assert any(one.startswith(title) for one in titles(full))
    assert not any(one.startswith(title) for one in titles(f"{line}\n{full}"))


@pytest.mark.parametrize(
    "line",
    [
        "batch_size=16",
        "train_batch_size: 128",
        "per_device_eval_batch_size=1",
        "gradient_checkpointing=False",
        "--bf16 False",
    ],
)
def test_what_is_not_in_force_is_advised(line: str) -> None:
    assert titles(f"{line}\n{STEP}RuntimeError: {FULL}\n") == titles(f"{STEP}RuntimeError: {FULL}\n")


@pytest.mark.parametrize(
    ("line", "value"), [("", "0.80"), ("gpu_memory_utilization=0.9, seed=0", "0.80"), ("--gpu-memory-utilization 0.7", "0.55")]
)
def test_the_share_of_an_engine_goes_below_the_one_in_force(line: str, value: str) -> None:
    call = f'Traceback (most recent call last):\n  File "{SITE}/vllm/model_executor/layer.py", line 3, in forward\n    f()\n'
    (case,) = read(f"{line}\n{call}RuntimeError: {FULL}\n")
    assert next(one.code for one in case.remedies if one.title.startswith("Lower")) == f"--gpu-memory-utilization {value}"


def test_an_engine_for_pictures_has_no_cache_of_keys_and_values() -> None:
    call = f'Traceback (most recent call last):\n  File "{MEDIA}", line 3, in load_model\n    f()\nRuntimeError: {FULL}\n'
    advice = " ".join(f"{one.title} {one.code}" for one in read(call)[0].remedies)
    assert "--enable-cpu-offload" in advice
    assert "kv-cache" not in advice
    assert titles(f"Omni(enable_cpu_offload=True)\n{call}")[0].startswith("See that the offloading takes effect")


def test_an_argument_is_no_call_that_shows_a_stage() -> None:
    frames = [frame(f"{SITE}/sglang/srt/tp_worker.py", "forward_batch", "out, can_run_cuda_graph = self.runner.forward(")]
    assert scene_of(frames, b"", b"", "", "").stage == ""
    assert scene_of(frames, b"Capturing cuda graph\nPrefill batch, #new-seq: 1\n", b"", "", "").stage == "serving"


def test_a_list_of_reasons_is_none_of_them() -> None:
    text = "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop"
    (case,) = read(f"{text} --force is called.\n")
    assert (case.diagnosis.kind, case.message.text[:9]) == (Kind.UNCLEAR, "potential")
    (alone,) = read("The process is killed by SIGKILL by OOM killer due to high memory usage.\n")
    assert alone.diagnosis.kind is Kind.HOST_MEMORY


def test_a_limit_that_shows_comes_first_and_loaders_are_for_programs_that_load() -> None:
    assert not any("loader" in one or "graph" in one for one in titles("Killed\n"))
    assert titles("cat /sys/fs/cgroup/memory.max\n8589934592\nKilled\n")[0].startswith("Ask for more memory")
    assert titles("Epoch 3: loss=0.2\nKilled\n")[0].startswith("Use fewer loader workers")
    assert titles(
        "[7] [INFO] Booting worker with pid: 9\n[7] [ERROR] Worker (pid:9) was sent SIGKILL! Perhaps out of memory?\n"
    )[0].startswith("Start one worker")


def test_a_template_is_no_answer() -> None:
    assert read("$ docker inspect web --format '{{.State.OOMKilled}}'\nfalse\n") == ()


def test_a_check_is_named_as_one() -> None:
    (case,) = read('error="model requires more system memory (17.9 GiB) than is available (3.6 GiB)"\n')
    assert "before it allocated" in case.diagnosis.headline
    assert case.message.free == round(3.6 * 2**30)
    assert case.remedies[0].title.startswith("Compare the estimate")


def test_what_a_client_repeats_is_no_second_case() -> None:
    whole = (
        "CUDA out of memory. Tried to allocate 362.00 MiB. GPU 0 has a total capacity of 79.11 GiB of which 214.56 MiB is free. Process 9 has "
        "78.89 GiB memory in use. Of the allocated memory 75.92 GiB is allocated by PyTorch, and 1.31 GiB is reserved by PyTorch but unallocated."
    )
    assert [case.row for case in read(f"RuntimeError: {whole}\nclient: Server error: {whole[:150]}\n")] == [1]
    assert len(read(f"RuntimeError: {whole}\nclient: Server error: {whole[:150].replace('362', '364')}\n")) == 2
    again = "ggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 49091444736\n"
    assert [case.row for case in read(f"{BUFFER}{again}")] == [1]


def test_what_nobody_is_named_for_is_told_with_its_doubt() -> None:
    (case,) = read(FULL.replace("10.11", "9.11").replace("10.32", "9.32"))
    assert any("or this one beside its cache" in sentence for sentence in case.diagnosis.because)


def test_a_process_with_next_to_nothing_is_not_told_to_need_less() -> None:
    (case,) = read(f"{STEP}RuntimeError: {FULL.replace('10.11', '0.05').replace('10.32', '0.09')}\n")
    assert (case.diagnosis.kind, len(case.remedies)) == (Kind.OTHER_PROCESSES, 2)


def first(text: str) -> Case:
    return in_full(read_log("log", io.BytesIO(text.encode())))[0]


TABLE = (
    "|    0   {other}   C   python   10921MiB |\n|    0   31   C   python   577MiB |\n|    5   31   C   python   6743MiB |\n"
)
PINS = f'Traceback (most recent call last):\n  File "{TORCH}/utils/data/_utils/pin_memory.py", line 58, in pin_memory\n    f()\n{RAW}\n'
INIT = "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n"


@pytest.mark.parametrize(
    ("text", "kind", "title"),
    [
        # A bare context beside memory on another device: the program was to run there only.
        (PINS + TABLE.format(other=11), "other-processes", "Let each rank choose its device"),
        (PINS + TABLE.replace("577", "6577").format(other=11), "host-memory", "Pin less"),
        (PINS, "host-memory", "Pin less"),
        # A full card is evidence; an empty one is none, for the program has ended by then.
        (f"{INIT}24130 MiB, 24564 MiB\n", "outside-cache", "Halve what one step"),
        (f"{INIT}|   130MiB / 24564MiB |\n", "unclear", "See what is free"),
        (INIT, "unclear", "See what is free"),
        (
            f"{RAW}\n| N/A 54C P0 |  15514MiB / 16130MiB |\n| N/A 38C P0 |  0MiB / 16130MiB |\n",
            "other-processes",
            "Find the processes",
        ),
        # One number that cannot be put on the device: it is the driver.
        (f"{RAW}\nTHCudaCheck FAIL file=a.cpp line=51 error=30 : unknown error\n", "unclear", "Restart the driver"),
        (f"{RAW}\nCUDA error: no CUDA-capable device is detected\n", "unclear", "Restart the driver"),
    ],
)
def test_figures_outside_the_message_decide(text: str, kind: str, title: str) -> None:
    case = first(text)
    assert case.diagnosis.kind.value == kind
    assert case.remedies[0].title.startswith(title)


IDLE = (
    "RuntimeError: CUDA out of memory. Tried to allocate 720.00 MiB (GPU 7; 39.59 GiB total capacity; 21.87 GiB already allocated; 301.19 MiB "
    "free; 36.44 GiB reserved in total by PyTorch)\n"
)


@pytest.mark.parametrize(
    ("summary", "kind"),
    [
        ("", "fragmentation"),
        ("| Allocated memory      |   22395 MB |\n| Active memory         |   36208 MB |\n", "genuine"),
        ("| Allocated memory      |   21.9 GiB |\n", "fragmentation"),
        ("| Allocated memory      |   22395 MiB |\n| Active memory         |   22400 MiB |\n", "fragmentation"),
    ],
)
def test_what_waits_for_a_stream_is_no_fragment(summary: str, kind: str) -> None:
    case = first(IDLE + summary)
    assert case.diagnosis.kind.value == kind
    assert case.remedies[0].title.startswith("Let less work wait") is (kind == "genuine")


NEIGHBOUR = (
    "(Policy[rank=9] pid=80) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.11 GiB. GPU 1 has a total capacity of 79.11 GiB of "
    "which 5.62 GiB is free. Process 77 has 24.88 GiB memory in use. Including non-PyTorch memory, this process has 48.60 GiB memory in use. Of "
    "the allocated memory 44.03 GiB is allocated by PyTorch, and 2.10 GiB is reserved by PyTorch but unallocated.\n"
)


@pytest.mark.parametrize(
    ("above", "kind", "title"),
    [
        ("", "other-processes", "Find the processes"),
        ("(Generator pid=77) asleep\n", "own-ranks", "Let the engine of the job hold less"),
        ("(Critic pid=77) asleep\n", "own-ranks", "Give each part of the job"),
        ("(Policy[rank=9] pid=80) step 3\n", "other-processes", "Find the processes"),
    ],
)
def test_a_worker_of_the_same_job_is_no_stranger(above: str, kind: str, title: str) -> None:
    case = first(above + NEIGHBOUR)
    assert case.diagnosis.kind.value == kind
    assert case.remedies[0].title.startswith(title)


def test_the_lines_of_another_worker_do_not_say_what_was_running() -> None:
    lines = "(Generator pid=77) INFO vllm: sleep\n"
    assert first(lines + NEIGHBOUR).scene.activity is Activity.UNKNOWN
    assert first(lines + NEIGHBOUR.replace("Policy[rank=9]", "Generator")).scene.activity is Activity.ENGINE


RESTORED = f'Traceback (most recent call last):\n  File "{TORCH}/serialization.py", line 136, in _cuda_deserialize\n    f()\n'
ALONE = FULL.replace("10.11", "0.60").replace("10.32", "0.63")


def test_ranks_that_restore_to_one_device_are_no_strangers() -> None:
    assert first(f"{RESTORED}RuntimeError: {ALONE}\n").diagnosis.kind is Kind.OTHER_PROCESSES
    case = first(f"python -u train.py --local_rank=7\n{RESTORED}RuntimeError: {ALONE}\n")
    assert case.diagnosis.kind is Kind.OWN_RANKS
    assert case.remedies[0].title.startswith("Load checkpoints onto the host")
    # Without such a call it is only possible: the device's choice comes first, and the processes after it.
    doubted = first(f"torchrun --nproc_per_node 8 train.py\n{STEP}RuntimeError: {ALONE}\n")
    assert doubted.diagnosis.kind is Kind.OTHER_PROCESSES
    assert [one.title[:14] for one in doubted.remedies[:2]] == ["Let each rank ", "Find the proce"]


@pytest.mark.parametrize(
    ("line", "stage", "code"),
    [
        ("llama_model_load: error loading model: unable to allocate CUDA1 buffer\n", "weights", "-ngl"),
        ("llama_init_from_model: failed to allocate buffer for kv cache\n", "cache", "--cache-type-k"),
        ("graph_reserve: failed to allocate compute buffers\n", "compute", "-ub"),
        ("warmup: failed to reserve compute buffers for the vision encoder\n", "picture", "--no-mmproj-offload"),
    ],
)
def test_the_buffer_that_was_refused_decides_the_settings(line: str, stage: str, code: str) -> None:
    case = read(BUFFER + line)[0]
    assert case.scene.stage == stage
    assert code in case.remedies[0].code


def test_another_program_s_device_is_named_as_its_line_names_it() -> None:
    lines = {
        "XPU": "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 20341735424 Bytes of memory on device 0\n",
        "device": "ggml_vulkan: Device memory allocation of size 1048576 failed.\n",
        "CUDA": BUFFER,
    }
    assert {backend: read(line)[0].message.backend for backend, line in lines.items()} == {name: name for name in lines}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("", "--max-num-seqs 64"),
        ("max_num_seqs=256,", "--max-num-seqs 64"),
        ("--max-num-seqs 32", "--max-num-seqs 16"),
    ],
)
def test_a_setting_is_proposed_below_the_value_in_force(line: str, code: str) -> None:
    call = f'Traceback (most recent call last):\n  File "{SITE}/vllm/model_executor/layer.py", line 3, in forward\n    f()\n'
    assert any(one.code == code for one in first(f"{line}\n{call}RuntimeError: {FULL}\n").remedies)


def test_an_engine_that_a_trainer_calls_is_beside_a_training() -> None:
    call = (
        f'Traceback (most recent call last):\n  File "{SITE}/transformers/trainer.py", line 3, in training_step\n    f()\n'
        f'  File "{SITE}/vllm/model_executor/models/qwen2.py", line 3, in load_weights\n    f()\n'
    )
    assert [one.title[:21] for one in first(f"{call}RuntimeError: {FULL}\n").remedies[:2]] == [
        "Lower the engine's sh",
        "Let the trainer make ",
    ]


@pytest.mark.parametrize(
    ("frames", "title"),
    [
        ('  File "/p/infer.py", line 3, in predict\n    y = net(x)\n', "Infer on less"),
        ('  File "/p/infer.py", line 3, in predict\n    y = pipe(x)\n', "Infer on less"),
        (
            f'  File "{SITE}/detectron2/evaluation/evaluator.py", line 3, in inference_on_dataset\n    y = net(x)\n',
            "Evaluate in smaller",
        ),
        ('  File "/p/train_net.py", line 3, in main\n    r = Trainer.test(cfg, net)\n', "Evaluate in smaller"),
    ],
)
def test_gradients_are_not_named_first_where_nothing_shows_them(frames: str, title: str) -> None:
    call = f"Traceback (most recent call last):\n{frames}RuntimeError: {FULL}\n"
    assert first(call).remedies[0].title.startswith(title)
    late = first(f" 40%|####  | 40/100 [00:09<00:09, 9.00it/s]\n{call}").remedies[0].title
    assert late.startswith("Disable gradients") is ("net(x)" in frames and "predict" in frames)


def test_an_engine_on_the_host_gets_an_engine_s_list() -> None:
    call = f'Traceback (most recent call last):\n  File "{SITE}/vllm/attention/mask.py", line 3, in make\n    f()\n'
    error = "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes.\n"
    large, small = (first(call + error.format(size)) for size in (2**37, 2**27))
    assert large.remedies[0].title.startswith("Let the longest sequence be shorter")
    assert small.remedies[0].title.startswith("Let the engine keep less")
    assert not any("gradients" in one.title for one in (*large.remedies, *small.remedies))


def test_an_assertion_of_the_allocator_behind_the_message_is_told() -> None:
    broken = 'RuntimeError: !handles_.at(i) INTERNAL ASSERT FAILED at "c10/cuda/CUDACachingAllocator.cpp":487\n'
    assert [one.title[:19] for one in first(f"{FULL}\n{broken}").remedies[1:2]] == ["Restart the process"]
    nvml = broken.replace("!handles_.at(i)", "NVML_SUCCESS == r")
    assert not any("Restart" in one.title for one in first(f"{FULL}\n{nvml}").remedies)


def test_a_check_that_misses_little_is_believed() -> None:
    (case,) = read("Error: model requires more system memory (5.5 GiB) than is available (5.0 GiB)\n")
    assert case.remedies[0].title.startswith("Close other programs")


def test_loader_workers_and_nvidia_s_tool_are_for_those_who_have_them() -> None:
    assert not any(
        "loader" in one
        for one in titles("OSError: The paging file is too small for this operation to complete. (os error 1455)\n")
    )
    (case,) = read("HIP error: out of memory\n")
    assert "rocm-smi" in case.remedies[0].code
    assert "nvidia-smi" not in case.remedies[0].code


def test_pictures_are_limited_where_an_engine_measures_with_them() -> None:
    frames = '  File "{0}/vllm/v1/worker/gpu_model_runner.py", line 3, in profile_run\n    f()\n  File "{0}/vllm/model_executor/models/{1}.py", line 3, in forward\n'
    for model, title in (("qwen2_5_vl", "Allow fewer or smaller pictures"), ("qwen2", "Prefill fewer tokens")):
        call = f"Traceback (most recent call last):\n{frames.format(SITE, model)}RuntimeError: {FULL}\n"
        assert first(call).remedies[0].title.startswith(title)


def test_a_model_that_gathers_on_one_device_gets_a_process_for_each() -> None:
    call = f'Traceback (most recent call last):\n  File "{TORCH}/nn/parallel/scatter_gather.py", line 3, in gather\n    f()\n'
    assert first(f"{call}RuntimeError: {FULL}\n").remedies[0].title == "Run one process for each device"


NODE = (
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
    "Memory on the node (IP: 10.0.0.1, ID: 0c) where the task (task ID: 16, name=main, pid=12, memory used=1.00GB) was running was "
    "95.50GB / 100.00GB (0.955), which exceeds the memory usage threshold of 0.95.\nPID\tMEM(GB)\tCOMMAND\n"
)
LARGE = "CUDA out of memory. Tried to allocate 7.52 GiB. GPU 0 has a total capacity of 31.35 GiB of which 4.90 GiB is free. "
LARGE += "Of the allocated memory 25.02 GiB is allocated by PyTorch, and 0.60 GiB is reserved by PyTorch but unallocated."
LISTED = "7\t30.00\tpython features.py\n"
BY_KERNEL = "Out of memory: Killed process 48213 (python) total-vm:96214528kB, anon-rss:31877912kB, file-rss:68124kB"
HELPER = 'Traceback (most recent call last):\n  File "/tmp/{}/pq/c.py", line 8, in call\n    x = make((9,))\ntorch.OutOfMemoryError: '


@pytest.mark.parametrize(
    ("shown", "hidden", "title"),
    [
        # A program on the node that is none of Ray's workers, unless it is the job itself, beside which its workers are small.
        (NODE + LISTED + "8\t40.00\tray::Worker\n", NODE + LISTED + "8\t4.00\tray::Worker\n", "End what else runs"),
        ("ranks x num_workers=32\n" + BY_KERNEL, BY_KERNEL, "Use fewer loader workers"),
        (HELPER.format("torchinductor_me") + LARGE, HELPER.format("mine") + LARGE, "Run the function that fails without"),
        ('"device": "cuda:3"\n' + SHARED, '"device": "cuda:0"\n' + SHARED, "Take a free device"),
        (
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nRuntimeError: CUDA driver error: out of memory",
            "RuntimeError: CUDA driver error: out of memory",
            "Unset expandable segments",
        ),
        (
            "NCCL version 2.26.2\nncclUnhandledCudaError\nLast error:\nCuda failure 2 'out of memory'",
            "NCCL version 2.26.5\nncclUnhandledCudaError\nLast error:\nCuda failure 2 'out of memory'",
            "Let NCCL allocate its host buffers",
        ),
        (
            "amdgpu: 98304M of VRAM memory ready\n" + LARGE.replace("CUDA", "HIP"),
            "amdgpu: 32768M of VRAM memory ready\n" + LARGE.replace("CUDA", "HIP"),
            "Compare the total",
        ),
    ],
)
def test_a_remedy_comes_first_only_where_its_sign_is_in_the_log(shown: str, hidden: str, title: str) -> None:
    (with_sign,), (without,) = read(shown), read(hidden)
    assert with_sign.remedies[0].title.startswith(title)
    assert not without.remedies[0].title.startswith(title)


def test_one_packed_sample_is_not_halved() -> None:
    text = "train: micro batch of {} packed\nepoch 1 loss: 0.31\n" + LARGE
    one, two = (" ".join(remedy.title for case in read(text.format(n)) for remedy in case.remedies) for n in (1, 2))
    assert "Halve the batch" not in one
    assert "Halve the batch" in two


def test_an_engine_on_another_device_is_headed_so() -> None:
    error = "ValueError: No available memory for the cache blocks."
    assert [case.message.backend for case in read("INFO [model_runner_v1.py:26] Starting to load\n" + error)] == ["NPU"]
    assert [case.message.backend for case in read("INFO [gpu_model_runner.py:26] Starting to load\n" + error)] == ["CUDA"]
