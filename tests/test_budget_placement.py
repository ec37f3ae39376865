"""What a program asks for on CUDA counts, whichever way it asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchmemlint.budget import command  # noqa: E402
from torchmemlint.budget.worker.legacy_types import wanted  # noqa: E402

PROGRAM = """\
import torch
from torch import nn

{before}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    {batch}
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ON_DEVICE = 'x = torch.randn(64, 500, device="cuda")'
NET = "net = nn.Linear(500, 500)"


def parts(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    path = tmp_path / "train.py"
    path.write_text(program)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found: Any = json.loads(capsys.readouterr().out)
    assert not found["skipped"]
    return dict(found["parts"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "batch"),
    [
        (f'with torch.device("cuda"):\n    {NET}', ON_DEVICE),
        (f'torch.set_default_device("cuda:0")\n{NET}', "x = torch.randn(64, 500)"),
        (f'{NET}.cuda()\ntorch.set_default_device("cuda")', "x = torch.randn(64, 500)"),
        (f'with torch.device("cuda"):\n    {NET}\ntorch.set_default_device("cuda:0")', "x = torch.randn(64, 500)"),
        (f'torch.set_default_tensor_type("torch.cuda.FloatTensor")\n{NET}', "x = torch.randn(64, 500)"),
        (f"torch.set_default_tensor_type(torch.cuda.FloatTensor)\n{NET}", "x = torch.randn(64, 500)"),
        (f"kind = torch.cuda.FloatTensor\n{NET}.type(kind)", "x = torch.randn(64, 500).type(kind)"),
        (f"{NET}.cuda()", "x = torch.cuda.FloatTensor(64, 500).fill_(0)"),
        (f"{NET}.to(0)", "x = torch.randn(64, 500).to(0, non_blocking=True)"),
        (f'{NET}.to(device="cuda", dtype=torch.float32)', 'x = torch.randn(64, 500).to(device="cuda")'),
        (f"{NET}.to(device=0, dtype=torch.float32)", "x = torch.randn(64, 500, device=0)"),
        (f"{NET}.cuda(0)", "x = torch.randn(64, 500).cuda(device=0)"),
        (f"{NET}.cuda()", 'x = torch.randn(64, 500).type("torch.cuda.FloatTensor")'),
        (f"{NET}.cuda()", "x = torch.randn(64, 500).type(net.weight.type())"),
    ],
)
def test_what_is_asked_for_on_the_device_counts(
    before: str, batch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = parts(PROGRAM.format(before=before, batch=batch), tmp_path, capsys)
    weights = 4 * (500 * 500 + 500)
    assert weights <= found["parameters"] <= weights + 1024
    assert found["saved activations"] >= 4 * 64 * 500


@pytest.mark.usefixtures("warm_budget")
def test_what_stays_on_the_host_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = f'torch.set_default_device("cuda")\n{NET}\nkept = torch.zeros(4000, 4000, device="cpu")\nkept = kept.type(torch.FloatTensor)'
    found = parts(PROGRAM.format(before=before, batch="x = torch.randn(64, 500)"), tmp_path, capsys)
    assert sum(found.values()) - found.get("workspaces", 0) < 8 << 20


@pytest.mark.usefixtures("warm_budget")
def test_a_result_is_written_into_a_tensor_of_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = "ids = torch.arange(0, 64, out=torch.cuda.LongTensor(64)); x = torch.randn(64, 500, device='cuda')[ids]"
    found = parts(PROGRAM.format(before=f"{NET}.cuda()", batch=batch), tmp_path, capsys)
    assert found["parameters"] >= 4 * 500 * 500


def test_names_of_types() -> None:
    assert wanted("torch.cuda.HalfTensor") == (True, torch.float16)
    assert wanted(torch.LongTensor) == (False, torch.int64)
    assert wanted(torch.float32) is None
    assert wanted("torch.cuda.NoTensor") is None


@pytest.mark.usefixtures("warm_budget")
@pytest.mark.parametrize(
    "batch",
    [
        "x = torch.randn(64, 1000, device='cuda').masked_select(torch.rand(64, 1000, device='cuda') > 0.5).view(64, 500)",
        "x = torch.randn(128, 500, device='cuda')[torch.rand(128, device='cuda') > 0.5].reshape(64, 500)",
        "x = torch.randn(128, 500, device='cuda')[torch.rand(128, device='cuda') > 0.5].view((64, 500))",
        "x = torch.randn(64, 500, device='cuda').masked_select(torch.rand(2, 64, 500, device='cuda') > 0.5).view(64, 500)",
    ],
)
def test_a_selection_is_as_long_as_the_program_says(batch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = parts(PROGRAM.format(before=f"{NET}.cuda()", batch=batch), tmp_path, capsys)
    assert found["saved activations"] < 3 * 4 * 64 * 500 + 8192


MASK = 64 << 20
"""Bytes of the mask that the layers below keep beside a step's few kilobytes."""
OF_INPUT = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.host = nn.Linear(500, 500), torch.zeros(4)

    def forward(self, x):
        {mask}
        return self.head(x) + mask.sum()

net = Net(){moved}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "moved", "counted"),
    [
        ("mask = torch.zeros(1 << 24, device=x.device)", ".cuda()", True),
        ("mask = torch.zeros(1 << 24).to(x.device)", ".cuda()", True),
        ("mask = torch.zeros(1 << 24, device=next(self.parameters()).device)", ".cuda()", True),
        ("mask = torch.zeros(1 << 24, device=x.device.type)", ".cuda()", True),
        ("mask = torch.zeros(1 << 24)\n        mask = mask.cuda() if x.is_cuda else mask", ".cuda()", True),
        ('mask = torch.zeros(1 << 24)\n        mask = mask if x.is_cpu else mask.to("cuda")', ".cuda()", True),
        ("mask = torch.zeros(1 << 24).to(x.get_device())", ".cuda()", True),
        ("mask = torch.zeros(1 << 24, device=x.device)", ".to(torch.zeros(1).cuda().device)", True),
        ("mask = nn.Transformer.generate_square_subsequent_mask(1 << 12, device=x.device)", ".cuda()", True),
        ("mask = torch.zeros(1 << 24, device=self.host.device)", ".cuda()", False),
        ("mask = torch.zeros(1 << 24)\n        mask = mask.cuda() if self.host.is_cuda else mask", ".cuda()", False),
    ],
)
def test_what_is_made_where_another_tensor_is_counts_as_it_does(
    mask: str, moved: str, counted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = PROGRAM.format(before=OF_INPUT.format(mask=mask, moved=moved), batch=ON_DEVICE)
    found = parts(program, tmp_path, capsys)
    assert (sum(found.values()) - found.get("workspaces", 0) > MASK) == counted
    assert found["parameters"] > 1_000_000


@pytest.mark.usefixtures("warm_budget")
def test_a_program_without_a_device_is_counted_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = OF_INPUT.format(mask="mask = torch.zeros(1 << 24, device=x.device)", moved="")
    found = parts(PROGRAM.format(before=before, batch="x = torch.randn(64, 500)"), tmp_path, capsys)
    assert sum(found.values()) > MASK
    assert found["parameters"] > 1_000_000
