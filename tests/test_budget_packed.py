"""Packed sequences of ``budget``: without lengths they are as large as the padded batch, which is the most that they can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import forked
import pytest

torch = pytest.importorskip("torch")

from torchmemlint.budget import command  # noqa: E402

SCRIPT = """\
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pack_sequence, PackedSequence

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(100, 32), nn.LAYER(32, 64, OPTIONS), nn.Linear(64, 10)

    def forward(self, ids, lengths):
        x = self.embed(ids)
        BODY
        return self.out(x)

model = Encoder().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    lengths = torch.tensor([20, 11, 9, 7, 5, 3])
    model(torch.zeros(SHAPE, dtype=torch.int64).cuda(), lengths).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def _budget(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert command.main([str(path), "--output-format", "json"]) == 0, capsys.readouterr()
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _script(layer: str, options: str, body: str, shape: str) -> str:
    text = SCRIPT
    for word, value in (("LAYER", layer), ("OPTIONS", options), ("BODY", body), ("SHAPE", shape)):
        text = text.replace(word, value)
    return text


FIRST, STEPS = "batch_first=True", "(20, 6)"
PADDED = "x, _ = self.rnn(x)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "options", "body", "shape"),
    [
        ("LSTM", FIRST, "y, _ = self.rnn(pack_padded_sequence(x, lengths, batch_first=True)); x, _ = pad_packed_sequence(y, True)", "(6, 20)"),
        ("GRU", "num_layers=2", "y, h = self.rnn(pack_padded_sequence(x, lengths.tolist())); x = pad_packed_sequence(y)[0]", STEPS),
        ("RNN", "", "p = pack_padded_sequence(x, lengths); y, _ = self.rnn(PackedSequence(p.data.relu(), p.batch_sizes)); x = y.data", STEPS),
        ("LSTM", "", "y, _ = self.rnn(nn.utils.rnn.pack_sequence([x[:, i] for i in range(6)])); x = y.data", STEPS),
        ("LSTM", FIRST, "_, (x, _) = self.rnn(pack_padded_sequence(x, lengths, True, enforce_sorted=False)); x = x[-1]", "(6, 20)"),
    ],
)  # fmt: skip
def test_a_packed_batch_needs_about_what_the_padded_one_does(
    layer: str, options: str, body: str, shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(_script(layer, options, body, shape))
    packed = _budget(path, capsys)
    assert packed["steps"] == 2
    assert any("packed batch was assumed to have no padding" in words for words in packed["assumed"])
    path.write_text(_script(layer, options, PADDED.replace("(x)", "(x.relu())") if "relu" in body else PADDED, shape))
    padded = _budget(path, capsys)
    one, other = (found["allocated_bytes"] - found["parts"]["workspaces"] for found in (packed, padded))
    assert other * 0.8 < one < other * 1.25


REAL = """\
import torch
from torch.nn.utils import rnn
from torch._subclasses.fake_tensor import FakeTensorMode
from torchmemlint.budget.worker import packed
from torchmemlint.budget.worker.tape import Tape

x, layer = torch.randn(5, 3, 4), torch.nn.GRU(4, 6, bidirectional=True)
lengths = torch.tensor([5, 5, 5])

def run():
    whole = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    y, h = layer(whole)
    return (*whole[:2], y.data, h, *rnn.pad_packed_sequence(y, batch_first=True, padding_value=2.0, total_length=7))

before = run()
packed.install(Tape(lambda path: True))
for one, other in zip(before, run(), strict=True):
    assert one.shape == other.shape and torch.allclose(one, other, atol=1e-6), (one, other)
with FakeTensorMode():
    sizes = packed._sizes(Tape(lambda path: True), 3, 7)
    assert [int(size) for size in sizes] == [7, 7, 7]
"""


def test_full_sequences_have_the_values_of_torchs_own_packing(tmp_path: Path) -> None:
    ended = forked.script("-c", REAL, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
