"""What names say where nothing else does: counted, never sure, and silent where it is known what they stand for."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from gaps import alarms

from benchmarks.field import names
from torchmemlint.findings import Confidence
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.run import check_paths
from torchmemlint.semantics.mode import purpose

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SNIPPET = """\
total_loss = 0
for batch in dataloader:
    loss = criterion(model(batch), labels)
    total_loss += loss
"""


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("model", ("model",)),
        ("self.netG_A", ("net",)),
        ("encoder_2", ("encoder",)),
        ("nets[0]", ("nets",)),
        ("self.model.generate", ("generate",)),
        ("image_encoder", ("image_encoder", "encoder")),
        ("loss_fn", ("loss_fn", "fn")),
        ("m", ("m",)),
        ("Net", ()),
        ("_", ()),
    ],
)
def test_under_what_a_callee_is_counted(text: str, counted: tuple[str, ...]) -> None:
    assert purpose.words_of(text) == counted


def test_every_row_was_counted_often_enough() -> None:
    text = names.TABLE.read_text(encoding="utf-8")
    rows = [row.partition("=") for row in tomllib.loads(text)["words"].split()]
    assert rows == sorted(rows)
    for word, _, counts in rows:
        n, networks, losses = map(int, counts.split("/"))
        assert n >= names.LEAST, word
        assert 0 < networks + losses <= n, word


def test_a_word_that_few_use_has_no_row() -> None:
    often = {"net": Counter(network=9), "loss": Counter(loss=8), "tool": Counter(other=20)}
    counts = {str(each): often | {"rare": Counter(network=1)} for each in range(3)} | {"one": {"alone": Counter(network=50)}}
    assert tomllib.loads(names.table(counts))["words"] == "loss=24/0/24 net=27/27/0"


def test_what_is_known_is_counted_by_its_class(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body = nn.Linear(1, 1)\n    def forward(self, x):\n        return self.body(x)\n"
        "def train(x, y, unknown):\n    net = Net()\n    criterion = nn.MSELoss()\n    return criterion(net(x), unknown(y))\n"
    )
    assert sorted(names.counted(tmp_path)) == [("body", "network"), ("criterion", "loss"), ("net", "network")]


def in_a_file(folder: Path, text: str, *more: str) -> list[str]:
    """The codes of what is printed of a file, given alone or with others."""
    paths = [folder / f"{number}.py" for number in range(1 + len(more))]
    for path, each in zip(paths, (text, *more), strict=True):
        path.write_text(each)
    found = check_paths([str(path) for path in paths], Configuration(CommandLine()), 1).findings
    return [one.code for one in found if one.confidence is not Confidence.LOW]


def test_a_fragment_is_taken_for_code_of_torch(tmp_path: Path) -> None:
    assert in_a_file(tmp_path, SNIPPET) == ["TML101"]
    (found,) = check_paths([str(tmp_path / "0.py")], Configuration(CommandLine()), 1).findings
    assert found.confidence is Confidence.MEDIUM
    assert "`model` and `criterion` are not what their names say" in found.unless
    assert found.fix is None


@pytest.mark.parametrize(
    "text",
    [
        SNIPPET.replace("+= loss", "+= loss.item()"),
        SNIPPET.replace("model", "tokenizer"),
        SNIPPET.replace("criterion", "compute"),
        SNIPPET.replace("dataloader", "layers"),
        "import jax\n" + SNIPPET,
        "import numpy as np\n" + SNIPPET,
        "def model(batch):\n    return len(batch)\n\ndef criterion(n, labels):\n    return n\n\n" + SNIPPET,
        "with torch.no_grad():\n    " + SNIPPET.replace("\n", "\n    ").rstrip() + "\n",
    ],
)
def test_what_only_looks_like_that_is_silent(tmp_path: Path, text: str) -> None:
    assert in_a_file(tmp_path, text) == []


def test_a_file_of_a_project_that_imports_nothing_is_none(tmp_path: Path) -> None:
    assert in_a_file(tmp_path, SNIPPET, "print(1)\n") == []
    (tmp_path / "pyproject.toml").write_text("")
    assert in_a_file(tmp_path, SNIPPET) == []


def test_standard_input_may_be_a_fragment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchmemlint", "check", "-", "--output-format", "concise"]
    done = subprocess.run(command, input=SNIPPET, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, "TML101" in done.stdout) == (1, True)


def test_names_never_make_a_finding_sure() -> None:
    text = (
        "import torch\n\ndef train(model, dataloader, criterion):\n    "
        + SNIPPET.replace("\n", "\n    ")
        + "print(total_loss)\n"
    )
    (found,) = alarms({"train.py": text}, "TML101")
    assert found.confidence is Confidence.MEDIUM
    assert found.probability < purpose.named("model").network
