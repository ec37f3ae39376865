"""Programs that were written for older versions, or that use packages which are not here, run as far as their step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from torchmemlint.budget import command

OLDER = """\
import collections, inspect
import torch
from torch import nn
from torch._six import string_classes

assert collections.Mapping and inspect.getargspec(lambda x: x) and string_classes
model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, verbose=True)
scaler = torch.cuda.amp.GradScaler()
for _ in range(4):
    optimizer.zero_grad()
    with torch.cuda.amp.autocast():
        out = model(torch.zeros(8, 512).cuda())
    correct = out.topk(5, 1)[1].t().eq(torch.zeros(1, 8, dtype=torch.int64).cuda())
    print(correct[:3].view(-1).float().sum(0))
    scaler.scale(out.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
"""
ELSEWHERE = """\
import torch
from torch import nn
from tensorboardX import SummaryWriter
from wrappers_of_this_company import Parallel, amp, Saver
from optimizers_of_this_company import FusedAdam
try:
    import fast_things_of_this_company
except ImportError:
    print("slow")

fast_things_of_this_company.enable()
writer = SummaryWriter("runs")
model = nn.Linear(512, 512).cuda()
optimizer = FusedAdam(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
model = Parallel(model)
saver = Saver(model, optimizer=optimizer)
saver.resume("last.pt")
model.train()
for step in range(3):
    loss = model(torch.zeros(8, 512).cuda()).sum()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    optimizer.zero_grad()
    writer.add_scalar("loss", loss.item(), step)
    saver.save(model.module.state_dict())
"""
WITHOUT_A_FILE = """\
import torch
from torch import nn

with open("names.txt") as file:
    names = [line.strip() for line in file]
    count = len(names)


def load(path):
    with open(path) as file:
        return file.read()


text = load("text.txt")
model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.zeros(8, 512).cuda()).sum().backward()
    optimizer.step()
    print(names[0], text)
"""
PARAMETERS = (512 * 512 + 512) * 4


def parts(folder: Path, source: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The JSON report."""
    path = folder / "train.py"
    path.write_text(source)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    return found


@pytest.mark.slow
def test_what_was_taken_away_is_there_and_a_scaler_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = parts(tmp_path, OLDER, capsys)
    assert not found["skipped"]
    assert found["parts"]["gradients"] == PARAMETERS
    assert found["parts"]["optimizer state"] >= 2 * PARAMETERS


@pytest.mark.slow
def test_what_packages_that_are_missing_are_given_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = parts(tmp_path, ELSEWHERE, capsys)
    assert found["parts"]["parameters"] == PARAMETERS
    assert found["parts"]["optimizer state"] >= 2 * PARAMETERS
    assert "the optimizer FusedAdam" in found["guessed"]
    assert any("`wrappers_of_this_company.Parallel` is not installed" in words for words in found["assumed"])


@pytest.mark.slow
def test_a_file_that_is_missing_is_skipped_with_its_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = parts(tmp_path, WITHOUT_A_FILE, capsys)
    assert [words.partition(" ")[0] for words in found["skipped"]] == ["train.py:4:", "train.py:14:"]
    assert found["parts"]["parameters"] == PARAMETERS
