"""Programs with their data, and such of which something is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torchmemlint.budget import command  # noqa: E402
from torchmemlint.confirm import launch  # noqa: E402
from torchmemlint.confirm.warm import Child  # noqa: E402

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


@pytest.mark.slow
def test_a_file_that_is_missing_is_skipped_with_its_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(WITHOUT_A_FILE)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    assert [words.partition(" ")[0] for words in found["skipped"]] == ["train.py:4:", "train.py:14:"]
    assert found["parts"]["parameters"] == (512 * 512 + 512) * 4


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
COUNTED = """\
import torch
import words_of_this_company
words = words_of_this_company.load()
model = torch.nn.Embedding(len(words), 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.zeros(4, dtype=torch.int64).cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (COMPUTED, "train.py:7: `layers_of_this_company.Front()` is not installed or not here"),
        (COUNTED, "`words_of_this_company.load()` is missing, and a size may rest on it"),
    ],
)
def test_what_rests_on_a_missing_package_is_no_estimate(
    source: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(source)
    assert command.main([str(path)]) == 2
    assert reason in capsys.readouterr().out


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
def test_a_model_of_70_billion_parameters_needs_less_than_2_gb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(SEVENTY_BILLION)
    resident = []
    end = launch._kill

    def noting(child: Child, at_once: bool) -> int:
        resident.append(end(child, at_once))
        return resident[-1]

    monkeypatch.setattr(launch, "_kill", noting)
    assert command.main([str(path), "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    assert found["parts"]["parameters"] > 2 * 68e9
    assert 1e8 < max(resident) < 2e9


OWN_DATA = """\
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Examples(Dataset):
    def __len__(self):
        return len(kept["x"])

    def __getitem__(self, index):
        return kept["x"][index], kept["lengths"][index]

kept = torch.load("kept.pt")
torch._C._cuda_getCurrentRawStream(0)
Path("runs").mkdir(exist_ok=True)
Path("runs/log.txt").write_text("begun")
model = nn.Linear(kept["x"].size(1), 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=kept["rate"])
for x, length in DataLoader(Examples(), batch_size=4):
    assert torch.tensor([length.max(), 7]).tolist() == [3, 7]
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_program_has_its_own_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it loads is what is in the file, small tensors of a batch keep their values, and a log that cannot be written stops nothing."""
    (tmp_path / "train.py").write_text(OWN_DATA, encoding="utf-8")
    torch.save({"x": torch.zeros(8, 64), "lengths": torch.full((8,), 3), "rate": 0.1}, tmp_path / "kept.pt")
    assert command.main([str(tmp_path / "train.py"), "--output-format", "json"]) == 0, capsys.readouterr().out
    report = json.loads(capsys.readouterr().out)
    assert (report["steps"], report["skipped"]) == (2, [])


SKIPPED_MODEL = """\
import torch
from torch import nn

nn.LayerNorm(8).cuda()(torch.zeros(2, 8, device="cuda"))
try:
    raise OSError
except OSError:
    print("nothing was trained")
"""


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["", "model = open('weights')\n"])
def test_a_forward_alone_is_estimated_if_nothing_was_skipped(
    failing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was skipped may be the model."""
    path = tmp_path / "train.py"
    path.write_text(failing + SKIPPED_MODEL, encoding="utf-8")
    assert command.main([str(path), "--output-format", "json"]) == (2 if failing else 0), capsys.readouterr().out
