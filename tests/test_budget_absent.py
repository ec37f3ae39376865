"""Checkpoints, pictures and models that stand in where files are missing."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from torchmemlint.budget import command  # noqa: E402
from torchmemlint.budget.worker.checkpoints import sizes_of  # noqa: E402
from torchmemlint.budget.worker.guarded import parsed  # noqa: E402
from torchmemlint.budget.worker.unsized import Maker, Unsized  # noqa: E402
from torchmemlint.budget.worker.wanted import SIDE  # noqa: E402


def test_a_checkpoint_has_its_published_sizes_or_the_default_of_its_family() -> None:
    assert sizes_of("bert-base-cased", "bert", ["bert"]) == ("bert", {"vocab_size": 28996}, True)
    assert sizes_of("someone/my-roberta-2", "", ["bert", "roberta"]) == ("roberta", {}, False)
    assert sizes_of("someone/my-model", "gpt2", ["bert", "gpt2"]) == ("gpt2", {}, False)
    assert sizes_of("unheard-of", "", ["bert"]) == ("", {}, False)


def test_an_argument_that_became_a_keyword_is_read_as_it_is_called_now() -> None:
    assert ast.unparse(parsed("x = y.cuda(async=True)\n", "old.py")) == "x = y.cuda(non_blocking=True)"
    with pytest.raises(SyntaxError):
        parsed("x = (\n", "broken.py")


def _batch() -> Any:
    notes: list[str] = []
    return Unsized(Maker(lambda shape, dtype: torch.zeros(shape, dtype=dtype), [], notes.append, RuntimeError), "data", 6)


def test_a_batch_that_is_looked_at_before_a_model_runs_is_what_the_model_at_hand_gets() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    images, labels = _batch()
    assert images.size(2) == SIDE
    assert labels.size()[1:] == images.size()[2:]
    assert (labels.shape, labels.dtype) == ((6, SIDE, SIDE), torch.int64)
    assert model(images).shape[1] == 4


ARRAYS = """\
import h5py, random, torch
import numpy as np
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __init__(self):
        file = h5py.File("train.h5", "r")
        self.keys = list(file.keys())
        random.shuffle(self.keys)
        file.close()

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        return torch.Tensor(np.array(h5py.File("train.h5", "r")[self.keys[index]]))


model = nn.DataParallel(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))).cuda()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for batch in DataLoader(Patches(), batch_size=128, shuffle=True):
        noise = torch.FloatTensor(batch.size()).normal_()
        optimizer.zero_grad()
        nn.functional.mse_loss(model((batch + noise).cuda()), noise.cuda()).backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_arrays_of_a_file_that_is_missing_have_the_batch_of_the_loader_and_the_channels_of_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(ARRAYS)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    assert any(f"float32[128,1,{SIDE},{SIDE}]" in words for words in found["assumed"])


ENDLESS = """\
import torch
model = torch.nn.Linear(4, 4)
while True:
    answered = False
    if answered:
        break
"""


@pytest.mark.slow
def test_a_program_that_does_not_come_to_a_step_is_stopped_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(ENDLESS)
    assert command.main([str(path), "--timeout", "15"]) == 2
    assert re.search(r"no estimate: train\.py:[345]: still running at the time limit", capsys.readouterr().out)
