"""``torchmemlint trace``: what is known at a line of the fixtures, and why rules reported or did not."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from torchmemlint import cli
from torchmemlint.project import neighbours
from torchmemlint.rules.scorecard import EVERY_RULE

FIXTURES = Path(__file__).parent.parent / "fixtures"


def traced(capsys: pytest.CaptureFixture[str], path: Path, function: str, words: str, *around: str) -> list[str]:
    """The trace of the first line of a function that has these words in it, stripped line by line; ``around`` is the project."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"def {function}("))
    row = next(i for i in range(start, len(lines)) if words in lines[i]) + 1
    assert cli.main(["trace", f"{path}:{row}", *around]) == 0
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def alone(fixture: str, folder: Path) -> Path:
    """A copy of a fixture with no other around it, which would all be read for its callers."""
    return Path(shutil.copy(FIXTURES / fixture, folder))


@pytest.mark.slow
def test_a_running_total(capsys: pytest.CaptureFixture[str]) -> None:
    out = traced(capsys, FIXTURES / "TML101" / "running_total.py", "train_epoch", "total += loss")
    assert "grad mode here: on" in out
    assert "loss: tensor, belongs to the graph of `criterion` (line 11, back-propagated at line 12)" in out
    assert "adds to `total`, which outlives the loop at line 9" in out
    assert any(line.startswith("TML101 warning: `total` accumulates tensors") for line in out)


@pytest.mark.slow
def test_an_evaluation_with_grad_mode_on(capsys: pytest.CaptureFixture[str]) -> None:
    out = traced(capsys, FIXTURES / "TML201" / "evaluate_function.py", "evaluate", "out = model(x)")
    assert any(line.startswith("model: module") and line.endswith(", in evaluation mode") for line in out)
    assert "`model` runs as a module: it builds a graph" in out
    assert any(
        line.startswith("TML201 error, medium confidence, unless ")
        and "`model(…)` builds an autograd graph after `eval()`" in line
        for line in out
    )
    assert any(line.startswith("called by `run` (") for line in out)


@pytest.mark.parametrize(
    ("file", "function", "words", "reason"),
    [
        ("calls_that_do_not_fit", "too_many", "print(net", "it cannot run: the call of `halve(…)` does not fit its parameters (unfit-call, known by: resolved names)"),
        ("tests_of_constants", "of_a_name", "print(net", "it is never reached: `DEBUG` is always False (by-a-constant, known by: resolved names)"),
        ("names_that_nothing_binds", "by_a_range", "print(net", "written for Python 2, which had `xrange` (old-python, known by: resolved names)"),
    ],
)  # fmt: skip
def test_why_a_place_does_not_run(
    capsys: pytest.CaptureFixture[str], file: str, function: str, words: str, reason: str
) -> None:
    folder = FIXTURES / "TML201" / file
    out = traced(capsys, folder / "train.py", function, words, str(folder))
    assert out[out.index("does not run") + 1] == reason
    assert any(line.startswith("TML201 note") for line in out)


@pytest.mark.parametrize(
    ("file", "function", "words", "reason"),
    [
        ("TML101/running_total.py", "quiet_terms_of_one_loss", "objective +=", "TML101 does not report it: the kept value is back-propagated itself"),
        ("TML201/evaluate_function.py", "quiet_with_block", "hits += (model", "TML201 does not report it: grad mode is off here"),
        ("TML201/evaluate_function.py", "quiet_training_in_eval_mode", "loss = crit", "TML201 does not report it: its graph is back-propagated"),
        ("TML201/evaluate_function.py", "quiet_frozen_model", "hits += (model", "TML201 does not report it: all parameters of the module are"),
    ],
)  # fmt: skip
def test_why_a_rule_is_silent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, file: str, function: str, words: str, reason: str
) -> None:
    out = traced(capsys, alone(file, tmp_path), function, words)
    assert any(line.startswith(reason) for line in out), out
    assert not any(line.startswith("TML") and " does not report it: " not in line for line in out)


def test_what_a_finding_rests_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The facts and their points are those of the table, and their sum is the probability that is printed."""
    out = traced(capsys, alone("TML201/evaluate_function.py", tmp_path), "evaluate", "out = model(x)")
    start = next(i for i, line in enumerate(out) if line.startswith("evidence for TML201 on line "))
    rows = [line for line in out[start + 1 :] if line and not line.startswith(("evidence", "note", "in `"))]
    points = [float(line.split()[0]) for line in rows if line[0] in "+-"]
    assert f"{EVERY_RULE}" in rows[0]
    assert any("returned (assumed): unless a caller outside" in line for line in rows)
    assert out[start].endswith(f": {1 / (1 + math.exp(-sum(points))):.0%} not false")


def test_where_a_graph_is_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = traced(capsys, alone("TML201/evaluate_function.py", tmp_path), "evaluate", "hits += ")
    assert "the graph of `model` (line 12) is cut by `.argmax()`" in out
    assert "none: no rule checks anything here" in out


def test_a_suppressed_finding_is_still_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = (FIXTURES / "TML101" / "running_total.py").read_text(encoding="utf-8")
    file = tmp_path / "train.py"
    file.write_text(text.replace("# expect: TML101", "# noqa: TML101"), encoding="utf-8")
    out = traced(capsys, file, "train_epoch", "total += loss")
    assert any(line.startswith("TML101 is suppressed here by a comment or the configuration: ") for line in out)


def test_a_line_without_a_statement(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("import torch\n\n# nothing\n", encoding="utf-8")
    assert cli.main(["trace", f"{file}:3"]) == 0
    assert "no statement runs on this line: it is empty, or never reached" in capsys.readouterr().out


@pytest.mark.parametrize("phase", ["True", "False"])
def test_each_phase_has_its_section(capsys: pytest.CaptureFixture[str], tmp_path: Path, phase: str) -> None:
    file = tmp_path / "phases.py"
    file.write_text(
        "def epoch(model, loader, criterion, optimizer, train):\n"
        "    kept = []\n"
        "    for x, y in loader:\n"
        "        loss = criterion(model(x), y)\n"
        "        if train:\n"
        "            loss.backward()\n"
        "            optimizer.step()\n"
        "        kept.append(loss)\n",
        encoding="utf-8",
    )
    out = traced(capsys, file, "epoch", "kept.append")
    section = out[out.index(f"assuming `train` is {phase}") :]
    loss = next(line for line in section if line.startswith("loss: "))
    assert ("back-propagated at line 6" in loss) == (phase == "True")


def test_a_notebook_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text("{}")
    assert cli.main(["trace", f"{tmp_path / 'n.ipynb'}:1"]) == 2
    assert "notebooks cannot be traced" in capsys.readouterr().err


def test_a_function_without_a_trigger_is_not_analyzed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def names(self, x):\n        got = self(x)\n        return got.data\n",
        encoding="utf-8",
    )
    assert cli.main(["trace", f"{path}:6"]) == 0
    out = capsys.readouterr().out
    assert "TML201 does not check this function" in out
    assert "another finding" not in out


LIBRARY = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 512), torch.nn.Linear(512, 512))

    def forward(self, x):
        return self.layers(x)


def scores(model, x):
    return model(x)
"""
CALLER = """
from library import Net, scores


def evaluate(loader):
    model = Net()
    model.eval()
    hits = 0
    for x, y in loader:
        hits += (scores(model, x).argmax(1) == y).sum().item()
    return hits
"""
CALLED = "called by `evaluate` (caller.py:10)"


def test_it_reads_what_the_check_reads(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file alone, within the bounds of the search around it; the folder's files where these are given, or an earlier run read them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHMEMLINT_CACHE_DIR", ".cache")
    monkeypatch.delenv("TORCHMEMLINT_NO_CACHE", raising=False)
    monkeypatch.setattr(neighbours, "MAX_FILES", 0)
    Path("library.py").write_text(LIBRARY, encoding="utf-8")
    Path("caller.py").write_text(CALLER, encoding="utf-8")

    def traced_with(*paths: str) -> list[str]:
        neighbours.forget()
        assert cli.main(["trace", "library.py:15", *paths]) == 0
        return [line.strip() for line in capsys.readouterr().out.splitlines()]

    alone = traced_with()
    assert CALLED not in alone
    assert "note: the project around the given files is too large to search completely: some callers are unknown" in alone
    assert CALLED in traced_with(".")
    assert any(line.endswith("/caller.py:10)") for line in traced_with(str(tmp_path)))
    cli.main(["check", "."])
    assert CALLED in traced_with()


def test_the_check_must_read_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "library.py").write_text(LIBRARY, encoding="utf-8")
    assert cli.main(["trace", f"{tmp_path}/library.py:15", f"{tmp_path}/other"]) == 2
    assert "does not read this file" in capsys.readouterr().err


def test_a_line_that_does_not_parse_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import torch\ndef f(:\n    pass\n")
    assert cli.main(["trace", f"{path}:2"]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{path}:2: def f(:"
    assert second == f"{path}:2:7: cannot parse: invalid syntax; lines 2-3 are not checked"
