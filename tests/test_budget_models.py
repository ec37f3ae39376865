"""The models of a program that cannot be run: how they are made again, and what their forward takes."""

from __future__ import annotations

import functools
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from torchmemlint.budget import command, report, runs  # noqa: E402
from torchmemlint.budget.worker.inputs import BATCH, Search  # noqa: E402
from torchmemlint.budget.worker.models import Hole, Models  # noqa: E402
from torchmemlint.budget.worker.program import _evaluated  # noqa: E402
from torchmemlint.confirm.worker.standins import Stage, StandIn  # noqa: E402


@dataclass
class Config:
    """Settings of a model."""

    width: int = 8
    layers: int = 2
    name: str = "net"


class Part(nn.Module):
    """A layer of its own."""

    def __init__(self, width: int, norm: Any = nn.LayerNorm) -> None:
        super().__init__()
        self.norm = norm(width)


class Net(nn.Module):
    """Takes arguments of every kind."""

    def __init__(self, config: Any, *sizes: int, part: nn.Module | None = None, num_classes: int = 10, **more: Any) -> None:
        super().__init__()
        self.inner = Part(config.width)
        self.part, self.classes, self.more, self.sizes = part, num_classes, more, sizes


class Plain(nn.Module):
    """Its arguments have names only."""

    def __init__(self, in_channels: int, num_classes: int, width: int = 64) -> None:
        super().__init__()


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Models:
    """Sees every module that is made."""
    monkeypatch.setattr(nn.Module, "__init__", nn.Module.__init__)
    found = Models()
    found.install()
    return found


def expression(models: Models, module: nn.Module) -> str:
    return models.expression(models.made[id(module)]).replace(f"{__name__}.", "")


def test_a_model_is_made_again_with_its_arguments(models: Models) -> None:
    part = Part(4, functools.partial(nn.LayerNorm, eps=1e-6))
    net = Net(Config(layers=3), 5, 6, part=part, act=nn.GELU, dtype=torch.float16)
    text = expression(models, net)
    assert text == (
        "Net(Config(layers=3), 5, 6, part=Part(width=4, norm=functools.partial(torch.nn.LayerNorm, eps=1e-06)), "
        "act=torch.nn.GELU, dtype=torch.float16)"
    )
    again = _evaluated(__import__(__name__), text)
    assert (again.sizes, again.inner.norm.weight.shape, again.part.norm.eps) == ((5, 6), (8,), 1e-6)
    assert (
        expression(models, Net(SimpleNamespace(**{"width": 8, "of_" + "nobody": 3}))) == "Net(types.SimpleNamespace(width=8))"
    )
    assert expression(models, nn.Sequential(nn.Linear(2, 3), nn.ReLU())) == (
        "torch.nn.Sequential(torch.nn.Linear(in_features=2, out_features=3), torch.nn.ReLU())"
    )


def test_what_is_unknown_is_left_out_or_guessed(models: Models) -> None:
    unknown: list[Any] = [StandIn(Stage(), name) for name in "abc"]
    assert expression(models, Plain(*unknown)) == "Plain(in_channels=3, num_classes=1000)"
    assert models.guessed == ["in_channels=3", "num_classes=1000"]
    with pytest.raises(Hole):
        models.value(lambda: None, "f", 0)


def test_the_largest_model_comes_first_and_parts_of_it_only_where_they_are_most_of_it(models: Models) -> None:
    small, large = Part(4), Net(Config(width=500))
    found = [made.module for made in models.candidates(lambda path: path == __file__)]
    assert found[:2] == [large, small]
    assert found[2] is large.inner


# -- inputs


class Pictures(nn.Module):
    """Only one size fits its linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.conv = nn.Linear(8 * 16 * 16, 10), nn.Conv2d(1, 8, 3, stride=2, padding=1)

    def forward(self, picture: Any) -> Any:
        return self.head(self.conv(picture).flatten(1))


class Words(nn.Module):
    """Numbers of words, and a mask beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.embed, self.out = nn.Parameter(torch.zeros(1, 48, 6)), nn.Embedding(9, 6), nn.Linear(6, 2)

    def forward(self, sentence: Any, attention_mask: Any) -> Any:
        return self.out((self.embed(sentence) + self.places) * attention_mask.unsqueeze(-1))


class Joints(nn.Module):
    """Examples, frames, points and coordinates."""

    def __init__(self) -> None:
        super().__init__()
        self.max_frames = 27
        self.embed, self.points = nn.Linear(3, 8), nn.Parameter(torch.zeros(17, 8))

    def forward(self, x: Any) -> Any:
        batch, frames, points, width = x.shape
        return self.embed(x.reshape(-1, points, width)).add(self.points).view(batch, frames, points, 8)


class Steps(nn.Module):
    """A noisy picture, the time and a class."""

    def __init__(self) -> None:
        super().__init__()
        self.image_size = 40
        self.conv, self.time, self.label = nn.Conv2d(4, 8, 3, padding=1), nn.Linear(16, 8), nn.Embedding(10, 8)

    def forward(self, x: Any, t: Any, y: Any) -> Any:
        assert x.shape[-1] == self.image_size, "wrong size"
        times = torch.outer(t.float(), torch.arange(16))
        return self.conv(x) + (self.time(times) + self.label(y))[:, :, None, None]


class Turned(nn.Module):
    """Turns its input round before the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.weight = nn.GRU(7, 4, batch_first=True), nn.Parameter(torch.zeros(3, 4, 1))

    def forward(self, x: Any) -> Any:
        return F.conv1d(self.rnn(x.transpose(1, 2))[0].transpose(1, 2), self.weight)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (Pictures, {"picture": (torch.float32, [BATCH, 1, 32, 32])}),
        (Words, {"sentence": (torch.int64, [BATCH, 48]), "attention_mask": (torch.float32, [BATCH, 48])}),
        (Joints, {"x": (torch.float32, [BATCH, 27, 17, 3])}),
        (Steps, {"x": (torch.float32, [BATCH, 4, 40, 40]), "t": (torch.int64, [BATCH]), "y": (torch.int64, [BATCH])}),
        (Turned, {"x": (torch.float32, [BATCH, 7, 128])}),
    ],
)
def test_inputs_are_found_by_trying(kind: type[nn.Module], wanted: dict[str, Any]) -> None:
    search = Search(kind())
    assert search.found(), search.error
    assert {item.name: (item.dtype, item.sizes) for item in search.inputs} == wanted


class NoTensor(nn.Module):
    """Takes an object of the program."""

    def forward(self, batch: Any) -> Any:
        return batch.graph.nodes


def test_a_forward_that_takes_no_tensor_has_no_inputs() -> None:
    search = Search(NoTensor())
    assert not search.found()
    assert "graph" in search.error


# -- the report

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, channels, classes, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))

    def forward(self, pictures):
        return self.body(pictures)
"""
TRAIN = """\
import argparse
import torch
from nets import Net
from pictures_of_this_company import Pictures

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=32)
args = parser.parse_args()
data = Pictures("somewhere")
model = Net(1, data.classes, width=args.width).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(data, batch_size=12):
    torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_program_without_its_data_gets_the_command_for_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nets.py").write_text(NET)
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    assert command.main(["train.py"]) == 2
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("train.py: no estimate: train.py:12: `the data` is missing")
    assert second.startswith("  its model alone can be run: ")
    assert second.endswith("guessed: classes=1000, pictures 224×224")
    words = shlex.split(third)
    assert words == [
        "torchmemlint", "budget", "--root", ".", "--model", "nets:Net(channels=1, classes=1000, width=32)",
        "--input", "pictures:float32[12,1,224,224]",
    ]  # fmt: skip
    assert command.main([*words[2:], "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    assert found["parts"]["inputs"] == 12 * 224 * 224 * 4


@pytest.mark.slow
def test_a_model_without_inputs_is_given_what_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nets.py").write_text(NET)
    given = ["--root", str(tmp_path), "--model", "nets:Net(3, 10)", "--batch", "8", "--output-format", "json"]
    assert command.main(given) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == ["pictures:float32[8,3,224,224]"]


def need(size: int) -> runs.Estimate:
    """A step of so many MiB."""
    parts = {"parameters": 100 << 20, "gradients": 100 << 20, "optimizer state": 200 << 20}
    budget = {"allocated": size << 20, "reserved": size << 20, "parts": parts, "block": 10 << 20}
    return runs.Estimate(budget, "", 2, (), (), (), 4, 0.1, "namespaces")


def test_a_table_has_a_run_for_each_length_and_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def estimate(job: Any, options: object, batch: int) -> runs.Estimate:
        asked.append(([shape for _, _, shape in job["inputs"]], batch))
        return need(1000 * batch)

    monkeypatch.setattr(runs, "estimate", estimate)
    job = {"inputs": [("ids", "int64", [8, 128]), ("x", "float32", [8, 3, 128]), ("t", "int64", [8])]}
    rows = runs.table(job, runs.Options(), [64, 256], [1, 30])
    assert asked[0] == ([[8, 64], [8, 3, 64], [8]], 1)
    assert asked[3] == ([[8, 256], [8, 3, 256], [8]], 30)
    lines = report._table(report.Result("", need(1), limits={"T4": 15 << 30, "80GiB": 80 << 30}, table=rows))
    assert lines[2].split() == ["length", "64,", "batch", "1", "1.19", "GiB", "fits", "in", "T4,", "80GiB"]
    assert lines[3].endswith("fits in 80GiB")


def test_what_is_sharded_is_divided_by_the_ranks() -> None:
    lines = report._shared(report.Result("", need(500), ranks=4))
    assert [line.split()[-2] for line in lines[2:]] == ["350", "275", "230"]  # of ZeRO-3 three blocks are gathered
    assert report._shared(report.Result("", need(500))) == []
