"""Every known wording of an out-of-memory message: found once, read in full, and called by its right name."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from torchmemlint.oom import remedies as take
from torchmemlint.oom.advice import remedies_for, sentence_about_empty_cache
from torchmemlint.oom.diagnose import diagnose, driver_request
from torchmemlint.oom.log_line import read_line
from torchmemlint.oom.meanings import Kind
from torchmemlint.oom.messages import find_head, parse_size
from torchmemlint.oom.scene import Activity, Scene
from torchmemlint.oom.sizes import format_size
from torchmemlint.oom.stream import scan
from torchmemlint.oom.wordings import HEADS, Head

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent / "oom_messages"
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def load(name: str) -> list[dict[str, Any]]:
    with (HERE / name).open("rb") as file:
        messages: list[dict[str, Any]] = tomllib.load(file)["message"]
    return messages


KNOWN, FROM_FORMATS, REPORTED = load("known.toml"), load("from_formats.toml"), load("reported.toml")
EVERY = [*KNOWN, *FROM_FORMATS, *REPORTED]
STACK = load("stack.toml")
"""One message of each further wording, with the numbers of what was written before it where the verdict needs them."""


def test_there_are_enough_messages_and_none_twice() -> None:
    assert len(KNOWN) >= 40
    assert len(FROM_FORMATS) == 20
    assert len(REPORTED) >= 30
    names = [message["name"] for message in EVERY]
    assert len(set(names)) == len(names)
    assert {message["kind"] for message in [*EVERY, *STACK]} == {kind.value for kind in Kind}


@pytest.mark.parametrize("entry", [*EVERY, *STACK], ids=lambda entry: entry["name"])
def test_a_message_is_read_in_full(entry: Mapping[str, Any]) -> None:
    occurrences = list(scan(io.BytesIO(str(entry["log"]).encode())))
    assert len(occurrences) == 1
    message = occurrences[0].message
    for figure, size in entry.get("figures", {}).items():
        number, unit = size.split()
        of_others = sum(size for _, size in message.processes)
        assert (of_others if figure == "other_processes" else getattr(message, figure)) == pytest.approx(
            float(number) * UNITS[unit], rel=1e-9, abs=1
        ), figure
    assert diagnose(message).kind.value == entry["kind"]
    assert diagnose(message).survived is entry.get("survived", False)
    if "device" in entry:
        assert message.device == entry["device"]
    assert occurrences[0].source == entry.get("rank", "")


@pytest.mark.parametrize(
    "line",
    [
        '    if "out of memory" in str(e):',
        '        raise RuntimeError("CUDA out of memory")',
        "# CUDA out of memory. means the batch is too large",
        "Tip: lower the batch size when you see CUDA out of memory errors",
        "WARNING: allocated 3.2 GiB of GPU memory, 12 out of 24 layers offloaded",
        "catch torch.cuda.OutOfMemoryError and retry",
        "    except MemoryError:",
        "DataLoader worker (pid 8102) is killed by signal: Terminated.",
        "CUDA error: device-side assert triggered",
        "Invalid buffer size",
        "the oom-killer is disabled",
        "ggml_cuda_host_malloc: failed to allocate 512.00 MiB of pinned memory: out of memory",
        "INFO 08-19 07:51:12 model_runner.py:1028] CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, "
        "consider decreasing `gpu_memory_utilization` or enforcing eager mode.",
        '    logger.warning("OOM caught, skipping batch")',
        '    print(f"out of memory, retrying with {size}")',
        "on_oom: skip",
        "the worker was killed  by its parent",
        '            "OOMKilled": false,',
        "error in train_step: out of memory is not handled",
        "Note: out of memory on the smallest card",
        "    self.handlers[OutOfMemoryError].append(handler)",
        "This may lead to OOM errors. Reduce max_batch_size.",
        "To avoid out of memory errors, 10% of the device is kept free",
        "ERROR: cannot allocate a port for the server",
    ],
)
def test_a_line_that_only_mentions_memory_is_no_message(line: str) -> None:
    assert list(scan(io.BytesIO(line.encode()))) == []


@pytest.mark.parametrize(
    ("number", "unit", "binary", "size"),
    [
        ("512.00", "MiB", False, 536_870_912),
        ("512.00", "MB", False, 512_000_000),
        ("512.00", "MB", True, 536_870_912),
        ("1.5", "GiB", False, 1_610_612_736),
        ("1.5", "GB", False, 1_500_000_000),
        ("0", "bytes", False, 0),
        ("17179869184.00", "GiB", False, 2**64),
    ],
)
def test_binary_and_decimal_units_differ(number: str, unit: str, binary: bool, size: int) -> None:
    assert parse_size(number, unit, labels_are_binary=binary) == size


def test_the_apple_gpu_s_gb_are_gib() -> None:
    # 9.07 "GB" are allowed on a machine with 8 GiB: 1.7 times the recommended two thirds. That is true of GiB only.
    text = (
        b"MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 0 bytes, max allowed: 9.07 GB). "
        b"Tried to allocate 2.00 GB on private pool."
    )
    (found,) = scan(io.BytesIO(text))
    assert found.message.allowed == pytest.approx(8 * 2**30 * 2 / 3 * 1.7, rel=1e-3)


@pytest.mark.parametrize(
    ("requested", "asked"), [(1, 2), (2**20, 2), (2**20 + 1, 20), (10 * 2**20 - 1, 20), (10 * 2**20, 10), (11 * 2**20, 12)]
)
def test_the_driver_is_asked_for_whole_segments(requested: int, asked: int) -> None:
    assert driver_request(requested) == asked * 2**20


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.00 KiB"), (3 * 2**29, "1.50 GiB"), (2**50, "1.00 PiB")]
)
def test_sizes_are_printed_as_pytorch_prints_them(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: entry["name"])
def test_remedies_keep_to_the_order_and_to_the_kind(entry: Mapping[str, object]) -> None:
    (found,) = scan(io.BytesIO(str(entry["log"]).encode()))
    training = Scene(Activity.TRAINING)
    diagnosis = diagnose(found.message, training)
    remedies = remedies_for(found.message, diagnosis, training)
    assert remedies
    order = (
        take.SMALLER_BATCHES,
        take.CHECKPOINTING,
        take.MIXED_PRECISION,
        take.NO_GRAPH_PAST_ITS_STEP,
        take.NO_GRAPH_IN_INFERENCE,
    )
    titles = [remedy.title for remedy in order]  # their code names the device of the message
    live = [remedy.title for remedy in remedies if remedy.title in titles]
    assert live == sorted(live, key=titles.index) or diagnosis.kind is Kind.HOST_MEMORY
    every_word = " ".join(f"{remedy.title} {remedy.why} {remedy.code}" for remedy in remedies)
    assert "empty_cache" not in every_word
    fragmented = diagnosis.kind in (Kind.FRAGMENTATION, Kind.PARTLY_FRAGMENTATION)
    assert ("expandable_segments:True" in every_word) is fragmented
    # A cap is never offered as a cure: the only call of it undoes one.
    assert "set_per_process_memory_fraction(0" not in every_word
    if diagnosis.kind is Kind.GENUINE:
        assert live == titles
        assert "does not help" in sentence_about_empty_cache(found.message, diagnosis)


def test_private_pools_are_part_of_what_is_printed_as_allocated() -> None:
    text = (
        b"CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 20.00 GiB of which 23.06 MiB is free. "
        b"Of the allocated memory 19.00 GiB is allocated by PyTorch, with 9.00 GiB allocated in private pools (e.g., CUDA "
        b"Graphs), and 12.00 MiB is reserved by PyTorch but unallocated."
    )
    (found,) = scan(io.BytesIO(text))
    assert any("10.00 GiB" in sentence and "live" in sentence for sentence in diagnose(found.message).because)


def test_what_the_message_does_not_give_is_not_blamed_on_others() -> None:
    text = (
        b"HIP out of memory. Tried to allocate 76.00 MiB. GPU 1 has a total capacity of 287.98 GiB of which 0 bytes is free. "
        b"Of the allocated memory 200.12 GiB is allocated by PyTorch"
    )
    (found,) = scan(io.BytesIO(text))
    assert diagnose(found.message).kind is Kind.UNCLEAR


def test_a_large_request_on_a_half_full_device_is_not_called_a_full_device() -> None:
    text = (
        b"CUDA out of memory. Tried to allocate 1.71 GiB (GPU 0; 6.00 GiB total capacity; 3.49 GiB already allocated; "
        b"1.04 GiB free; 3.50 GiB reserved in total by PyTorch)"
    )
    (found,) = scan(io.BytesIO(text))
    diagnosis = diagnose(found.message)
    assert diagnosis.kind is Kind.GENUINE
    assert (
        diagnosis.headline
        == "3.49 GiB of live tensors and 1.71 GiB more do not fit into 6.00 GiB together with what else is there."
    )


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.pattern.pattern[:40])
def test_a_wording_has_a_source_and_an_example(head: Head) -> None:
    """Every row is reached: some message of the test data begins with it, found by the row's own words."""
    assert head.source
    lines = [line for entry in [*EVERY, *STACK] for line in str(entry["log"]).splitlines()]
    reached = [line for line in lines if (begun := find_head(read_line(line).text)) is not None and begun.head is head]
    assert reached
    assert all(any(word in line.encode() for word in head.words) for line in reached)
