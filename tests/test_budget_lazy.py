"""Lazy modules of ``budget``: once the first batch told their sizes, they need what the same network needs that names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchmemlint.budget import command  # noqa: E402

SCRIPT = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.CONV, nn.NORM, nn.ReLU())
        self.head = nn.HEAD

    def forward(self, x):
        return self.head(self.features(x).flatten(1))

model = MODEL
FIRST
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(8, 3, 16, 16, DEVICE)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LAZY = {"CONV": "LazyConv2d(32, 3)", "NORM": "LazyBatchNorm2d()", "HEAD": "LazyLinear(64)"}
NAMED = {"CONV": "Conv2d(3, 32, 3)", "NORM": "BatchNorm2d(32)", "HEAD": "Linear(6272, 64)"}
WAYS = {
    "a batch before the optimizer": ("Net().cuda()", "model(torch.randn(1, 3, 16, 16).cuda())", "device='cuda'"),
    "the optimizer first": ("Net().cuda()", "", "device='cuda'"),
    "moved by to": ("Net().to(torch.device('cuda'))", "", "device='cuda'"),
    "in half precision": ("Net().half().cuda()", "", "device='cuda', dtype=torch.float16"),
    "made on the device": ("__import__('torch').set_default_device('cuda') or Net()", "", "device='cuda'"),
    "moved to a tensor's device": ("Net().to(torch.zeros(1, device='cuda').device)", "", "device='cuda'"),
}


def _budget(path: Path, words: dict[str, str], way: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    model, first, device = WAYS[way]
    text = SCRIPT
    for word, value in {**words, "MODEL": model, "FIRST": first, "DEVICE": device}.items():
        text = text.replace(word, value)
    path.write_text(text, encoding="utf-8")
    assert command.main([str(path), "--output-format", "json"]) == 0, capsys.readouterr()
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_lazy_modules_need_what_named_sizes_need(tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    lazy, named = (_budget(tmp_path / "train.py", words, way, capsys) for words in (LAZY, NAMED))
    parts = named["parts"]
    assert parts["parameters"] > 400_000 * (1 if way == "in half precision" else 2)
    assert lazy["parts"] == parts
    assert lazy["allocated_bytes"] == named["allocated_bytes"]
