"""Sizes of layers that nobody knows: one number for each name, and what the program computes from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from torchmemlint.budget import command
from torchmemlint.budget.worker.outside import COUNT

PROGRAM = """\
import torch
from torch import nn
import data_of_this_company

data = data_of_this_company.load()
features = data.shape[1]
{layers}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net({batch})
    loss = (loss[0] if isinstance(loss, tuple) else loss).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "batch", "weights"),
    [
        ("net = nn.Linear(features, 2 * features).cuda()", (4, COUNT), 2 * COUNT * COUNT),
        ("net = nn.Sequential(nn.Linear(2 * features + 1, 8), nn.Linear(8, features // 4)).cuda()", (4, 2 * COUNT + 1), 8 * 2251),
        ("net = nn.LSTM(features, hidden_size=features // 2).cuda()", (7, 4, COUNT), 4 * 500 * 1500),
        ("net = nn.TransformerEncoderLayer(d_model=2 * features, nhead=features, dim_feedforward=16).cuda()", (3, 2, 2 * COUNT), 16064000),
        ("net = nn.Sequential(nn.Linear(8, features), nn.LayerNorm(features), nn.Dropout(data.dropout)).cuda()", (4, 8), 10 * COUNT),
        ("net = nn.Conv2d(3, features, 1, bias=data.bias).cuda()", (2, 3, 4, 4), 3 * COUNT),
        ("net = nn.Sequential(nn.BatchNorm1d(features - 2000), nn.Linear(features, 2)).cuda()", (4, COUNT), 4 * COUNT),
    ],
)  # fmt: skip
def test_what_is_computed_from_a_size_agrees_with_it(
    layers: str, batch: tuple[int, ...], weights: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(layers=layers, batch=f"torch.randn{batch}.cuda()"))
    assert command.main([str(path), "--output-format", "json"]) == 0
    found: Any = json.loads(capsys.readouterr().out)
    assert found["skipped"] == []
    assert any(words.endswith("(a size of a layer)") for words in found["guessed"])
    assert abs(found["parts"]["parameters"] - 4 * weights) < 0.02 * 4 * weights + 16384


@pytest.mark.usefixtures("warm_budget")
def test_a_total_that_a_loop_adds_to_takes_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each doubling would double the work, and each addition go one call deeper."""
    sums = "total = doubled = features\nfor _ in range(3000):\n    total = total + features\n    doubled = doubled + doubled\n"
    path = tmp_path / "train.py"
    path.write_text(
        PROGRAM.format(layers=f"{sums}net = nn.Linear(total, doubled).cuda()", batch=f"torch.randn(4, {COUNT}).cuda()")
    )
    assert command.main([str(path), "--output-format", "json"]) == 0
    found: Any = json.loads(capsys.readouterr().out)
    assert (found["skipped"], found["parts"]["parameters"]) == ([], pytest.approx(4 * COUNT * COUNT, rel=0.01))
