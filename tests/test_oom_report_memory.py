"""The table of memory: real numbers on the CPU, and the CUDA and Apple rows from stand-in modules."""

from __future__ import annotations

import io
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from torchmemlint.oom import report_memory as module
from torchmemlint.oom.report_memory import DeviceMemory, as_table, report_memory


@pytest.mark.slow
def test_the_cpu_row_counts_each_storage_once() -> None:
    torch = pytest.importorskip("torch")
    before = report_memory(io.StringIO())[-1]
    kept = torch.zeros(1 << 22)
    views = [kept[:10], kept.view(-1, 2)]
    after = report_memory(io.StringIO())[-1]
    assert views
    assert before.allocated is not None
    assert after.allocated is not None
    assert after.allocated - before.allocated == 4 << 22
    assert after.device == "cpu"


@pytest.mark.slow
def test_it_is_printed_as_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    rows = report_memory()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(rows) + 1
    assert " ".join(lines[0].split()) == "device allocated reserved peak largest free block fragmentation free total"
    assert len({len(line) for line in lines}) == 1


def cuda_module(**changes: object) -> Any:
    blocks = [
        {"size": 512, "state": "active_allocated"},
        {"size": 1 << 20, "state": "inactive"},
        {"size": 2 << 20, "state": "inactive"},
    ]
    other = [{"size": 1 << 30, "state": "inactive"}]
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 2,
        memory_reserved=lambda number: (20 << 20, 0)[number],
        memory_allocated=lambda number: 8 << 20,
        max_memory_allocated=lambda number: 10 << 20,
        memory_stats=lambda number: {"inactive_split_bytes.all.current": 5 << 20},
        mem_get_info=lambda number: (1 << 30, 2 << 30),
        memory_snapshot=lambda: [{"device": 0, "blocks": blocks}, {"device": 1, "blocks": other}],
    )
    for name, value in changes.items():
        setattr(cuda, name, value)
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=None))


def test_a_cuda_row_and_a_device_that_is_not_used() -> None:
    assert list(module._cuda(cuda_module())) == [
        DeviceMemory("cuda:0", 8 << 20, 20 << 20, 10 << 20, 2 << 20, 0.25, 1 << 30, 2 << 30)
    ]


def test_no_context_is_created_by_asking() -> None:
    assert list(module._cuda(cuda_module(is_initialized=lambda: False, device_count=lambda: pytest.fail("asked")))) == []


def test_the_asynchronous_backend_has_no_blocks() -> None:
    def snapshot() -> object:
        raise RuntimeError("not meaningful")

    (row,) = module._cuda(cuda_module(memory_snapshot=snapshot, memory_stats=lambda number: {}))
    assert (row.largest_free_block, row.fragmentation) == (None, None)


def test_an_apple_row() -> None:
    mps = SimpleNamespace(
        current_allocated_memory=lambda: 1, driver_allocated_memory=lambda: 2, recommended_max_memory=lambda: 3
    )
    torch: Any = SimpleNamespace(backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: True)), mps=mps)
    assert list(module._mps(torch)) == [DeviceMemory("mps", 1, 2, None, None, None, None, 3)]
    assert "-" in as_table(list(module._mps(torch)))


def test_torch_is_imported_by_the_call_only() -> None:
    code = "import sys, torchmemlint.oom.report_memory, torchmemlint.oom.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_is_a_public_name() -> None:
    import torchmemlint

    assert torchmemlint.report_memory is report_memory
