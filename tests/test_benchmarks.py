"""The programs in ``benchmarks/`` that say something of the tree, or of the machine that they measure on."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from benchmarks import device
from benchmarks.tree import decisions, structure

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("program", ["benchmarks.speed", "benchmarks.speed.compare", "benchmarks.speed.keystrokes"])
def test_speed_is_not_measured_where_each_run_compiles_the_program(program: str, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("import torch\n", encoding="utf-8")
    given = str(file if program.endswith("keystrokes") else tmp_path)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-m", program, given], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "PYTHONDONTWRITEBYTECODE" in done.stderr


def test_the_figures_of_a_tree_are_counted_by_hand(tmp_path: Path) -> None:
    package = tmp_path / "torchmemlint"
    for folder in ("rules", "semantics", "index", "lower", "confirm"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").write_text('"""Nothing."""\n', encoding="utf-8")
    (package / "rules" / "api.py").write_text(
        "class Flow:\n    def is_own(self) -> bool:\n        return True\n", encoding="utf-8"
    )
    (package / "rules" / "helper.py").write_text(
        "from torchmemlint.rules import assumed\n\n\ndef is_odd(x) -> bool:\n    return Fact('odd', 'it is odd') if x else assumed.MAYBE\n",
        encoding="utf-8",
    )
    (package / "rules" / "one.py").write_text(
        '"""A page."""\nfrom torchmemlint.rules.helper import is_odd\n\nRULE = Rule(\n    code="TML901",\n)\n\n\n'
        "def check(event, flow):\n    if is_odd(event) and flow.is_own():\n        return Severity.NOTE\n    return RecordFlag.EVAL\n",
        encoding="utf-8",
    )
    (package / "semantics" / "a.py").write_text("from torchmemlint.semantics import b\n", encoding="utf-8")
    (package / "semantics" / "b.py").write_text('import re\nWORD = re.compile("a")\n', encoding="utf-8")
    (package / "confirm" / "c.py").write_text("x = 1\n", encoding="utf-8")
    rows = structure(package, {path: ast.parse(path.read_text(encoding="utf-8")) for path in package.rglob("*.py")})
    assert rows["statements of `rules`"] == 3 + 3 + 6
    assert rows["statements of `semantics`"] == 3
    assert rows["statements of the linter proper"] == 15
    assert rows["statements in all"] == 16
    assert rows["longest chain of imports in semantics"] == 2
    assert rows["patterns (`re.compile`) there"] == 1
    assert rows["predicates of rules and semantics"] == 2
    assert decisions(package) == {"TML901": "5 = 2 facts, 1 notes, 1 predicates, 1 flags"}


KEPT = """
import torch
from torch import nn

def train(net: nn.Module, loader, optimizer):
    losses = []
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses
"""


@pytest.mark.slow
def test_what_waits_for_a_gpu_runs_through_on_a_pretended_one(tmp_path: Path) -> None:
    """One command does every step: the evidence of one pair and a claim, a program for confirm, and one for run. All of its processes
    find a GPU, those of confirm behind the sandbox, too."""
    pytest.importorskip("torch")
    import pretend_cuda

    fixtures, output = tmp_path / "fixtures" / "TML106", tmp_path / "records"
    program, kept = ROOT / "fixtures" / "programs" / "line_01.py", tmp_path / "kept.py"
    kept.write_text(KEPT)
    fixtures.mkdir(parents=True)
    for name in ("gradient_in_a_cycle.py", "gradient_in_a_cycle.fixed.py"):
        (fixtures / name).write_bytes((ROOT / "fixtures" / "TML106" / name).read_bytes())
    options = ["--fixtures", str(fixtures.parent), "--output", str(output), "--run", str(program), "--claims", "empty_cache"]
    command = [str(pretend_cuda.machine(tmp_path / "machine")), "-m", "benchmarks.device", str(kept), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = output.glob("*.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["device"]["name"] == "a pretended GPU"
    (evidence,), (confirmed,), (watched,) = record["evidence"], record["confirm"], record["run"]
    assert [pair["verdict"] for pair in evidence["record"]["pairs"]] == ["confirmed"]
    (emptied,) = evidence["record"]["claims"]
    assert emptied["allocated_after"] == emptied["allocated_before"] == 256 << 20
    assert emptied["reserved_before"] - emptied["reserved_after"] == 256 << 20
    (found,) = (each["confirm"] for each in confirmed["findings"] if each["code"] == "TML102")
    assert (found["verdict"], found["device"], found["before"]["mode"]) == ("confirmed", "cuda:0", "whole function, loop 0")
    assert found["before"]["requested_bytes_per_step"] < found["before"]["live_bytes_per_step"]  # an allocator rounds up
    assert watched["report"]


@pytest.mark.slow
def test_a_device_that_is_not_there_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")

    def copied(command: list[str], _: float) -> dict[str, object]:
        done = forked.script(*command[1:], cwd=ROOT)
        return {"status": done.returncode, "output": done.stdout, "errors": done.stderr}

    monkeypatch.setattr(device, "run", copied)
    output = tmp_path / "records"
    for absent in ("meta:x", "cuda:99"):
        assert device.main(["--output", str(output), "--device", absent]) == 2
        out, errors = capsys.readouterr()
        assert (errors.count("\n"), out) == (1, "")
        assert f"nothing can be measured on {absent}" in errors
    assert not output.exists()


def test_what_takes_too_long_is_ended_and_said(tmp_path: Path) -> None:
    row = device.run([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"], 2)
    assert (row["measured"], row["why"], row["output"]) == (False, "not done after 2 s", "begun\n")
    assert device.run(["true"], 0.2) == {"measured": False, "why": "no time was left"}
