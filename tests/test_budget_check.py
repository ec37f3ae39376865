"""``budget --check``: the step on a real device, here one that is pretended."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torchmemlint.budget.report import Result, as_json, text
from torchmemlint.budget.runs import Estimate

TRAIN = """\
import torch
from torch import nn

model = nn.Linear(1024, 1024)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(256, 1024)
for _ in range(5):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

CHILD = """\
import json, sys
import pretend_cuda
allocator = pretend_cuda.pretend()
from torchmemlint.budget.worker.program import run_budget
job = {"path": sys.argv[1], "root": sys.argv[2], "real": True}
run_budget(job, lambda record: print(json.dumps(record)), lambda: None)
"""


def _estimate(allocated: int, reserved: int, reason: str = "") -> Estimate:
    budget = {"allocated": allocated, "reserved": reserved, "parts": {}, "modules": [], "curve": [], "expandable": reserved}
    budget |= {"path": "", "row": 0, "module": "", "op": "aten.mm", "phase": ""}
    return Estimate({} if reason else budget, reason, 2, (), (), (), 0, 1.0, "none")


def test_the_difference_is_printed() -> None:
    result = Result("train.py", _estimate(110 << 20, 120 << 20), check=_estimate(100 << 20, 128 << 20))
    printed = text(result)
    assert "allocated      100 MiB   (the estimate is +10.0 % off)" in printed
    assert "reserved       128 MiB   (the estimate is −6.2 % off)" in printed
    assert json.loads(as_json(result))["check"] == {"allocated_bytes": 100 << 20, "reserved_bytes": 128 << 20, "reason": ""}


def test_a_device_that_fails_is_reported() -> None:
    result = Result("train.py", _estimate(110 << 20, 120 << 20), check=_estimate(0, 0, "out of memory"))
    assert "not checked: out of memory" in text(result)


@pytest.mark.slow
def test_the_second_step_is_measured_by_the_allocator(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(TRAIN))
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parent, check=True,
    )  # fmt: skip
    estimate = json.loads(ended.stdout.splitlines()[-1])["estimate"]
    weights, activation = 1024 * 1024 * 4 + 4096, 256 * 1024 * 4
    assert estimate["steps"] == 2
    # weights, their gradients, the input, and one or two activations
    assert 2 * weights + 2 * activation < estimate["budget"]["allocated"] < 2 * weights + 5 * activation
    assert estimate["budget"]["reserved"] >= estimate["budget"]["allocated"]
