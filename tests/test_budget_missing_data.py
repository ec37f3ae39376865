"""Batches of data that is missing: their shapes show in their use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from torchmemlint.budget import command  # noqa: E402
from torchmemlint.budget.worker.outside import COUNT  # noqa: E402
from torchmemlint.budget.worker.putoff import LENGTH  # noqa: E402
from torchmemlint.budget.worker.unsized import PARTS, Maker, Unsized  # noqa: E402
from torchmemlint.budget.worker.wanted import SIDE  # noqa: E402


class Unknown(Exception):
    """No shape is known."""


class Shapes:
    """Makes real tensors, and keeps what was said."""

    def __init__(self, *modules: nn.Module) -> None:
        self.notes: list[str] = []
        self.maker = Maker(lambda shape, dtype: torch.zeros(shape, dtype=dtype), modules, self.notes.append, Unknown)

    def batch(self, size: int = 6) -> Any:
        """What a loader gives."""
        return Unsized(self.maker, "data", size)


def test_a_convolution_gives_the_channels_and_a_loss_the_target() -> None:
    shapes = Shapes()
    x, y = shapes.batch()
    out = nn.Conv2d(3, 8, 3, stride=64)(x.to("cpu").float() / 255.0)
    loss = F.cross_entropy(out, y.long())
    assert x.size() == (6, 3, SIDE, SIDE)
    assert (y.dtype, y.shape) == (torch.int64, (6, *out.shape[2:]))
    assert loss.requires_grad
    assert shapes.maker.guessed == [f"data[0] {SIDE}×{SIDE}"]


def test_a_linear_layer_gives_everything() -> None:
    shapes = Shapes()
    batch = shapes.batch()
    out = nn.Linear(5, 2)(batch["x"].view(-1, 5))
    F.mse_loss(out, batch["y"])
    assert batch["x"].shape == (6, 5)
    assert batch["y"].shape == (6, 2)
    assert not shapes.maker.guessed


def test_a_view_that_makes_examples_is_a_guess() -> None:
    shapes = Shapes()
    nn.Conv2d(3, 8, 3)(shapes.batch().view(-1, 3, 32, 32))
    assert "the number of examples, which a view changes," in shapes.maker.guessed[0]


def test_lengths_are_found_beside_positions_and_the_rank_from_the_use() -> None:
    lengths = Shapes().batch()
    mask = torch.arange(9).unsqueeze(0) < torch.unsqueeze(lengths, 1)
    assert (lengths.shape, mask.shape) == ((6,), (6, 9))
    ids = Shapes(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2))).batch()
    assert ids[:, :-1].shape[1] == LENGTH
    assert int(Shapes().batch()) == 1


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        (lambda x: x.transpose(1, 2), (6, LENGTH, 4)),
        (lambda x: x.permute(0, 2, 1), (6, LENGTH, 4)),
        (lambda x: x.squeeze(1), (6, 1, 4, LENGTH)),
        (lambda x: x.unsqueeze(0)[:], (4, LENGTH)),
        (lambda x: 2 * x - 1, (6, 4, LENGTH)),
    ],
)
def test_what_was_put_off_is_undone_for_the_shape(change: Any, shape: tuple[int, ...]) -> None:
    x = Shapes().batch()
    F.conv1d(change(x), torch.zeros(2, 4, 3))
    assert x.shape == shape


def test_indices_are_a_sequence_where_the_model_mixes_positions() -> None:
    single, sequence = nn.Sequential(nn.Embedding(9, 4)), nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4))
    for model, shape in ((single, (6,)), (sequence, (6, LENGTH))):
        ids = Shapes(model).batch()
        F.embedding(ids, torch.zeros(9, 4))
        assert (ids.shape, ids.dtype) == (shape, torch.int64)


def test_the_batch_is_known_before_the_shape_and_the_shape_from_what_runs() -> None:
    shapes = Shapes(nn.LSTM(7, 3, batch_first=True))
    x = shapes.batch()
    assert (len(x), x.size(0), x.shape[0]) == (6, 6, 6)
    assert not shapes.notes
    _, length, width = x.shape
    assert (length, width) == (LENGTH, 7)


def test_without_any_hint_it_stops() -> None:
    with pytest.raises(Unknown, match="the shape of `data` is unknown"):
        Shapes().batch().topk(3)


def test_parts_that_nobody_counts_are_a_guess() -> None:
    shapes = Shapes()
    assert len([part.to("cpu") for part in shapes.batch()]) == PARTS
    assert shapes.maker.guessed == ["the number of parts of data"]


SCRIPT = """\
import argparse, os
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, folder):
        self.files = sorted(os.listdir(folder))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.files[index], 0


class Trainer:
    def __init__(self, args):
        self.loader = DataLoader(Pictures(args.folder), batch_size=args.batch_size)
        self.model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16 * 16, 10)).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x.cuda()), y.cuda())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


parser = argparse.ArgumentParser()
parser.add_argument("--folder", required=True)
parser.add_argument("--batch_size", type=int, default=12)
Trainer(parser.parse_args()).train()
"""


@pytest.mark.usefixtures("warm_budget")
def test_a_data_set_whose_length_fails_has_the_size_of_the_loader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("return len(self.files)", "return len(self.list_of_files)").replace("16 * 16", "112 * 112"))
    assert command.main([str(path), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any(f"float32[12,3,{SIDE},{SIDE}]" in words for words in found["assumed"])


@pytest.mark.slow
def test_a_program_without_its_files_is_reported_with_its_guesses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    assert any("float32[12,3,32,32]" in words for words in found["assumed"])  # 224 did not fit the linear layer
    assert not any("int64" in words for words in found["assumed"])  # the labels are the program's own
    assert any("--folder" in words for words in found["assumed"])
    assert found["skipped"][0].startswith("train.py:9: FileNotFoundError")
    assert found["guessed"]


VOCABULARY = """\
import torch
import vocabulary_of_this_company
words = vocabulary_of_this_company.load()
model = torch.nn.Sequential(torch.nn.Embedding(words.count, 8), torch.nn.Linear(8, len(words))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.zeros(4, dtype=torch.int64).cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_guessed_size_of_a_layer_is_reported_and_no_fit_is_claimed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(VOCABULARY)
    assert command.main([str(path)]) == 0
    printed = capsys.readouterr().out
    assert f"vocabulary_of_this_company.load().count = {COUNT} (a size of a layer)" in printed
    assert f"len(vocabulary_of_this_company.load()) = {COUNT}" in printed
    assert "the figures may be off by any factor" in printed
    assert command.main([str(path), "--fit", "24GiB", "--batch", "4"]) == 2
    assert "whether it fits in 24.00 GiB is not known" in capsys.readouterr().out


PRICED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(640, 512), torch.randn(640, 512))


def evaluate(loader):
    model.eval()
    losses = []
    for x, y in loader:
        losses.append(nn.functional.mse_loss(model(x.cuda()), y.cuda()))
    print(sum(losses).item())


for epoch in range(3):
    total = 0
    for x, y in DataLoader(data, batch_size=64):
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    print(total)
    evaluate(DataLoader(data, batch_size=64))
"""


@pytest.mark.slow
def test_findings_are_priced_at_the_sizes_of_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(PRICED)
    assert command.main([str(path), "--findings", "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    first = found[0]
    assert (first["code"], first["row"]) == ("TML201", 14)
    hidden, output = 64 * 2048 * 4, 64 * 512 * 4
    # each batch keeps its input, the hidden layer, the output and the target, until the losses are read
    assert hidden + 3 * output <= first["bytes_per_batch"] <= 1.2 * (hidden + 3 * output)
    others = [item for item in found[1:] if item["code"] == "TML101"]
    assert others
    assert all(abs(item["peak_bytes"]) < 4096 for item in others)


SEVENTY_BILLION = """\
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, INNER, LAYERS, WORDS = 8192, 28672, 80, 32000


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = nn.Linear(WIDTH, 1024, bias=False), nn.Linear(WIDTH, 1024, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, 128)).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *(Layer() for _ in range(LAYERS)), nn.Linear(WIDTH, WORDS, bias=False))
    ids = torch.randint(0, WORDS, (1, 2048))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for _ in range(2):
    loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the highest resident size of children is in KiB on Linux")
def test_a_model_of_70_billion_parameters_needs_less_than_2_gb(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SEVENTY_BILLION)
    measured = (
        "import resource, sys; from torchmemlint.budget import command; status = command.main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(status)"
    )
    arguments = [
        sys.executable,
        "-c",
        measured,
        str(path),
        "--output-format",
        "json",
        "--output-file",
        str(tmp_path / "out.json"),
    ]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=True)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["steps"] == 2
    assert found["parts"]["parameters"] > 2 * 68e9
    assert int(ended.stdout.splitlines()[-1]) * 1024 < 2e9
