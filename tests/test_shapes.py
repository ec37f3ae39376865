"""One mistake is reported in every shape in which code comes: a function, a method, a script, a cell, through a helper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchmemlint import cli

SCRIPT = """
import numpy as np
import torch
from torch import nn


def make_batch(count):
    rows = []
    for number in range(count):
        row = np.zeros(8)
        row[number % 8] = 1
        rows.append(row)
    return rows


net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
criterion = nn.MSELoss().to("cpu")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
inputs = torch.FloatTensor(make_batch(32))
for step in range(100):
    loss = criterion(net(inputs), torch.zeros(32, 1))
    optimizer.zero_grad()
    BACKWARD
    if step % 2 == 0:
        optimizer.step()
        AFTER
"""
FUNCTION = """
import torch


def train(net, loader, criterion, optimizer):
    for step, (x, y) in enumerate(loader):
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        BACKWARD
        if step % 2 == 0:
            optimizer.step()
            AFTER
    return loss
"""
METHOD = """
import torch


class Trainer:
    def __init__(self, net, criterion, optimizer):
        self.net, self.criterion, self.optimizer = net, criterion, optimizer

    def train(self, loader):
        for step, batch in enumerate(loader):
            loss = self.losses(batch)[0]
            self.optimizer.zero_grad()
            BACKWARD
            if step % 2 == 0:
                self.optimizer.step()
                AFTER

    def losses(self, batch):
        x, y = batch
        return self.criterion(self.net(x), y), y
"""
ENVIRONMENT = """
import gymnasium
import torch
import tyro
from torch import nn


def main(net: nn.Module, optimizer: torch.optim.Optimizer):
    args = tyro.cli(dict)
    env = gymnasium.make(args.name)
    seen, _ = env.reset()
    for count in range(args.total):
        seen, reward, *_ = env.step(net(torch.Tensor(seen)).argmax().item())
        if count > args.start:
            loss = nn.functional.mse_loss(net(torch.Tensor(seen)), torch.tensor(reward))
            optimizer.zero_grad()
            BACKWARD
            optimizer.step()
            AFTER
"""


def reported(path: Path, code: str, capsys: pytest.CaptureFixture[str]) -> int:
    cli.main(["check", str(path), "--isolated", "--exit-zero", "--no-cache", "--select", code, "--output-format", "json"])
    return len([finding for finding in json.loads(capsys.readouterr().out) if finding["code"] == code])


@pytest.mark.parametrize("cell", [False, True])
@pytest.mark.parametrize("text", [SCRIPT, FUNCTION, METHOD, ENVIRONMENT], ids=["script", "function", "method", "environment"])
def test_reported_in_every_shape(text: str, cell: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = text.replace("BACKWARD", "loss.backward(retain_graph=True)").replace("AFTER", "torch.cuda.empty_cache()")
    plain = text.replace("BACKWARD", "loss.backward()").replace("AFTER", "pass")
    for source, count in ((kept, 1), (plain, 0)):
        if cell:
            path = tmp_path / "a.ipynb"
            cells: list[dict[str, object]] = [
                {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}
            ]
            path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        else:
            path = tmp_path / "a.py"
            path.write_text(source)
        assert [reported(path, code, capsys) for code in ("TML105", "TML301")] == [count, count]
