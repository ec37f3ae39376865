"""What is missing and turns out to be a tensor: its shape shows in its use, as that of a batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from torchmemlint.budget import command  # noqa: E402
from torchmemlint.budget.runs import OF_LAYER  # noqa: E402
from torchmemlint.budget.worker.order import first_layer  # noqa: E402
from torchmemlint.budget.worker.outside import MISSING_BATCHES  # noqa: E402
from torchmemlint.budget.worker.putoff import (  # noqa: E402
    LENGTH,
    before_index,
    can_wait,
)
from torchmemlint.budget.worker.unsized import Maker, Unsized  # noqa: E402
from torchmemlint.budget.worker.wanted import SIDE  # noqa: E402


def batch(*modules: nn.Module) -> Any:
    return Unsized(
        Maker(lambda shape, dtype: torch.zeros(shape, dtype=dtype), modules, lambda words: None, RuntimeError), "data", 6
    )


def test_an_index_is_put_off_and_undone() -> None:
    every = slice(None)
    assert can_wait((every, every, torch.arange(5), every))
    assert not can_wait((every, torch.ones(6, 4, dtype=torch.bool)))
    assert before_index((6, 3, 5, 7), (every, every, torch.arange(5), every), 6) == (6, 3, 5, 7)
    assert before_index((6, 5, 7), (every, 0, every, every), 6) == (6, 1, 5, 7)
    assert before_index((6, 3, 4), (Ellipsis, slice(None, -1)), 6) == (6, 3, 5)
    x = batch()
    F.conv2d(x.transpose(1, 3)[:, :, torch.arange(9), :], torch.zeros(4, 2, 1, 1))
    assert (x.shape[0], x.shape[3]) == (6, 2)
    assert x.dim() == 4


@pytest.mark.parametrize(
    ("row", "shape"),
    [
        (lambda ids: ids[0, :], (6, LENGTH)),  # the last slice is written out: there is no further dimension
        (lambda ids: ids[0, :].long(), (6, LENGTH)),
        (lambda ids: ids.cuda()[-1, :].detach(), (6, LENGTH)),
        (lambda ids: ids[:, 0, :], (6, 1, LENGTH)),
        (lambda ids: ids[0, :, :], (6, 6, LENGTH)),
    ],
)
def test_a_row_of_ids_is_one_of_a_matrix(row: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    embed = nn.Embedding(10, 3)
    ids = batch(nn.Sequential(embed, nn.GRU(3, 3)))
    embed(row(ids))
    assert tuple(ids.shape) == shape


class Mask(nn.Module):
    """A mask of indices, which has a dimension more than they."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4, padding_idx=0)

    def forward(self, x: Any) -> Any:
        mask = (x > 0).unsqueeze(1).repeat(1, x.size(1), 1)
        return self.embed(x), mask


def test_a_mask_does_not_take_the_rank_of_what_it_is_made_of() -> None:
    model = Mask()
    x = batch(model)
    embedded, mask = model(x)
    assert (x.shape, x.dtype) == ((6, LENGTH), torch.int64)
    assert mask.shape == (6, LENGTH, LENGTH)
    assert embedded.shape == (6, LENGTH, 4)


class Network(nn.Module):
    """Its layers are registered in another order than they run in."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList([nn.Conv2d(32, 32, 1)])
        self.dropout = nn.Dropout(0.1)
        self.start = nn.Conv2d(2, 32, 1)
        self.other = nn.Linear(7, 32)

    def prepared(self, values: Any) -> Any:
        return self.start(values)

    def forward(self, x: Any, y: Any) -> Any:
        padded = F.pad(x, (1, 0, 0, 0))
        hidden = self.prepared(self.dropout(padded))
        for layer in self.body:
            hidden = layer(hidden)
        return hidden.mean() + self.other(y).mean()


def test_the_first_layer_is_the_one_that_runs_first() -> None:
    model = Network()
    assert first_layer(model, {"x": ()}, lambda layer, _: isinstance(layer, nn.Conv2d)) == (model.start, ())
    assert first_layer(model, {"y": ()}, lambda layer, _: isinstance(layer, nn.Linear)) == (model.other, ())
    assert first_layer(model, {"hidden": ()}, lambda layer, _: isinstance(layer, nn.Conv2d)) == (model.body[0], ())
    assert first_layer(model, {"z": ()}, lambda layer, _: True) is None


class Turned(nn.Module):
    """Looks at its input before a layer gets it with its dimensions in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(7, 5, 3)

    def embed(self, values: Any) -> Any:
        return self.conv(values.permute(0, 2, 1))

    def forward(self, x: Any) -> Any:
        x = x - x.mean(1, keepdim=True)
        return self.embed(x)


class TurnedByFunction(Turned):
    def embed(self, values: Any) -> Any:
        return self.conv(torch.transpose(values, 1, -1).float())


class TurnedByName(Turned):
    def embed(self, values: Any) -> Any:
        turned = values.transpose(1, 2)
        turned = turned.contiguous()
        return self.conv(turned)


class TurnedTwice(Turned):
    def embed(self, values: Any) -> Any:
        return self.conv(values.transpose(1, 2).swapaxes(1, 2).transpose(1, 2))


class TurnedWithin(Turned):
    """The layer that turns lies in a module of this one."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = Turned()

    def embed(self, values: Any) -> Any:
        return self.tokens(x=values)


@pytest.mark.parametrize("kind", [Turned, TurnedByFunction, TurnedByName, TurnedTwice, TurnedWithin])
def test_a_change_of_layout_before_the_first_layer_is_undone(kind: type[nn.Module]) -> None:
    model = kind()
    x = batch(model)
    model(x)
    assert tuple(x.shape) == (6, LENGTH, 7)


class Steps(Turned):
    """Asks for the rank of its input, and takes it step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(7, 5)

    def forward(self, x: Any) -> Any:
        size, _, steps = x.size()
        return sum(self.cell(x[:, :, step]).sum() for step in range(steps)) / size


class Points(nn.Module):
    """A dimension that is put in by keyword; the rank shows before."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 1)

    def forward(self, x: Any) -> Any:
        count = x.size()[2]
        return self.conv(x.unsqueeze(dim=-1)).squeeze(dim=-1).sum() / count


def test_steps_and_points() -> None:
    for model, shape in ((Steps(), (6, 7, LENGTH)), (Points(), (6, 3, SIDE))):
        x = batch(model)
        model(x)
        assert tuple(x.shape) == shape


class Picture(nn.Module):
    """A spectrogram becomes a picture of one channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3)

    def forward(self, x: Any) -> Any:
        return self.conv((x / x.std()).unsqueeze(1))


def test_a_dimension_that_is_put_in_is_not_in_the_input() -> None:
    model = Picture()
    x = batch(model)
    model(x)
    assert tuple(x.shape) == (6, SIDE, SIDE)


class TurnedByAVariable(Turned):
    def embed(self, values: Any) -> Any:
        order = (0, 2, 1)
        return self.conv(values.permute(*order).permute(0, 2, 1))


def test_an_unknown_order_is_left_out() -> None:
    model = TurnedByAVariable()
    assert first_layer(model, {"x": ()}, lambda layer, _: isinstance(layer, nn.Conv1d)) == (
        model.conv,
        (("permute", (0, 2, 1)),),
    )


class Rows(nn.Module):
    """Goes through the rows of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4, padding_idx=0)

    def forward(self, ids: Any) -> Any:
        return self.embed(torch.stack([row[row != -1] for row in ids]))


def test_rows_of_an_input_are_rows_of_a_tensor() -> None:
    model = Rows()
    ids = batch(model)
    assert [row.shape for row in ids] == [(LENGTH,)] * 6


ITERATOR = """\
import numpy as np
import torch
from torch import nn


class Loader:
    def __init__(self, xs, ys, batch_size):
        self.xs, self.ys, self.batch_size = xs, ys, batch_size

    def __iter__(self):
        for start in range(0, len(self.xs), self.batch_size):
            yield self.xs[start:start + self.batch_size, ...], self.ys[start:start + self.batch_size, ...]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.Tensor(*(8, 1, 1)))
        self.end = nn.Conv2d(8, 1, 1)
        self.start = nn.Conv2d(2, 8, 1)

    def forward(self, x):
        assert x.size(3) > 0
        return self.end(self.start(x) * self.scale)


data = np.load("data/train.npz")
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for x, y in Loader(data["x"], data["y"], 24):
        x, y = torch.Tensor(x).cuda().transpose(1, 3), torch.from_numpy(y).float().cuda().transpose(1, 3)
        optimizer.zero_grad()
        nn.functional.l1_loss(model(x), y[:, 0:1, :, :]).backward()
        optimizer.step()
"""

BAGS = """\
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class Bags(Dataset):
    def __init__(self):
        self.rows = open("labels.csv").readlines()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.load(os.path.join("bags", self.rows[index])), self.rows[index]


def collate(batch):
    return torch.cat([item[0] for item in batch], dim=0), torch.LongTensor([item[1] for item in batch])


bags = Bags()
weights = [1 / len(rows) for rows in []] + [None]
loader = DataLoader(bags, batch_size=1, sampler=WeightedRandomSampler(weights, len(weights)), collate_fn=collate)
score, classify = nn.Linear(64, 1).cuda(), nn.Linear(64, 2).cuda()
optimizer = torch.optim.Adam([*score.parameters(), *classify.parameters()])
for epoch in range(2):
    for rows, label in loader:
        rows, label = rows.cuda(), label.cuda()
        weight = torch.softmax(score(rows), 0)
        best = torch.topk(weight, 8, dim=0)[1]
        loss = nn.functional.cross_entropy(classify(weight.t() @ rows), label) + weight[best].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "shape"),
    [(ITERATOR, "float32[24,"), (BAGS, f"float32[{LENGTH},64]")],
)
def test_what_a_program_reads_by_itself_is_a_batch(
    source: str, shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(source)
    status = command.main([str(path), "--output-format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["steps"]) == (0, 2), found
    assert any(shape in words for words in found["assumed"])
    assert found["guessed"]


LENGTHS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Encoder(nn.Module):
    def __init__(self, words, longest):
        super().__init__()
        self.longest = longest
        self.words, self.places = nn.Embedding(words, 8, padding_idx=0), nn.Embedding(longest, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, ids):
        CHECK
        return self.norm(self.words(ids) + self.places.weight)


words = open("words.txt").readlines()
model = Encoder(len(words) + 1, 50).cuda()
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(open("train.txt").readlines(), batch_size=12)
for ids, lengths in loader:
    out = model(ids.cuda())
    loss = out[ids.cuda() != 0].mean() + torch.Tensor([row.sum() for row in out.detach()]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("check", ["pass", "assert ids.size(1) == self.longest"])
def test_a_length_that_the_program_does_not_take_is_replaced_by_its_own(
    check: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(LENGTHS.replace("CHECK", check))
    status = command.main([str(path), "--output-format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["steps"]) == (0, 2), found
    assert any("int64[12,50]" in words for words in found["assumed"])
    assert any(words.endswith(OF_LAYER) for words in found["guessed"])
    assert command.main([str(path), "--fit", "24GiB"]) == 2
    assert "sizes of layers are guesses" in capsys.readouterr().out


BAR = """\
import torch
from bars_of_this_company import bar
model = torch.nn.Linear(8, 2).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
shown = bar(range(3))
for step in shown:
    optimizer.param_groups[0]["lr"] = 0.1 / (1.0 + step)
    loss = model(torch.zeros(4, 8).cuda()).sum()
    loss.backward()
    optimizer.step()
    shown.set_description(f"{loss.item():.2f}")
"""


@pytest.mark.slow
def test_a_missing_progress_bar_gives_what_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(BAR)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    assert not found["guessed"]


ENTRIES = """\
import torch
with open("words.txt") as file:
    lines = file.readlines()
words = [line.strip() for line in lines]
model = torch.nn.Embedding(len(words), 8).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.zeros(4, dtype=torch.int64).cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_the_number_of_entries_of_something_missing_is_a_guess(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(ENTRIES)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parts"]["parameters"] == MISSING_BATCHES * 8 * 4
    assert f"{MISSING_BATCHES} entries of lines" in found["guessed"]


CHOICES = """\
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--task", choices=["small", "large"])
commands = parser.add_subparsers(dest="mode")
training = commands.add_parser("train")
training.add_argument("--workspace", required=True)
training.add_argument("--width", type=int, default=32)
args = parser.parse_args()
if args.task == "small" and args.mode == "train":
    model = torch.nn.Linear(args.width, 8).cuda()
else:
    raise NotImplementedError
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.zeros(4, args.width).cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_an_option_without_a_default_gets_its_first_choice_where_nothing_else_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(CHOICES)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    assert {"mode = 'train'", "--task = 'small'"} <= set(found["guessed"])
    assert any("--workspace" in words for words in found["assumed"])


COMPUTED = """\
import torch
import layers_of_this_company
front = layers_of_this_company.Front()
model = torch.nn.Linear(8, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(front(torch.zeros(4, 16).cuda()).transpose(0, 1)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_what_a_missing_package_computes_is_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(COMPUTED)
    assert command.main([str(path)]) == 2
    assert "train.py:7: `layers_of_this_company.Front()()" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("model", ["nets:Net", "nets.deep:Net(3)"])
def test_a_model_may_be_a_module_of_the_current_folder(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self, width=3): super().__init__(width, 2)\n"
    if "deep" in model:
        (tmp_path / "nets").mkdir()
        (tmp_path / "nets/deep.py").write_text(text)
    else:
        (tmp_path / "nets.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    status = command.main(["--model", model, "--input", "x:float32[4,3]", "--output-format", "json"])
    answer = json.loads(capsys.readouterr().out)
    assert (status, answer["estimated"], answer["parts"]["parameters"]) == (0, True, 1024)  # two blocks of 512 bytes


SETTINGS = """\
import torch
from torch import nn
import parameters_of_this_company as company
from company_configuration import Tree

given = company.training.HParams(width=48, cudnn_enabled=True, seed=None)
config = Tree({"model": {"hidden": 96}, "lr": 0.1, "sizes": [1, 2]})
torch.backends.cudnn.enabled = given.cudnn_enabled


def make(hidden):
    return nn.Sequential(nn.Linear(given.width, hidden), nn.ReLU(), nn.Linear(hidden, given["width"]))


model = make(**config.model).cuda()
assert [*config] == ["model", "lr", "sizes"] and len(config) == 3 and config["sizes"] == [1, 2] and dict(config.model.items())
optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
for _ in range(2):
    model(torch.zeros(4, given.width).cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_settings_that_go_through_a_missing_package_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(SETTINGS)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["steps"], found["guessed"], found["skipped"]) == (2, [], [])
    assert found["parts"]["parameters"] == 2 * 48 * 96 * 4 + 2 * 512  # blocks of 512 bytes for the biases
