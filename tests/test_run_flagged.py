"""``run --check`` on runnable programs of different styles; the verdicts that are expected stand on the flagged lines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forked
import pytest

pytest.importorskip("torch")

from torchmemlint.cli import main
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span
from torchmemlint.growth import command
from torchmemlint.growth.flagged import written

SCRIPTS = Path(__file__).parent / "confirm_snippets" / "flagged"
MARK = re.compile(r"# flagged: (TML\d{3}) (confirmed|refuted|inconclusive) ?(.*)$")
STARTER = Path(command.__file__).parent / "worker" / "start.py"

PROGRAMS = {
    "plain_loop": (["plain_loop.py"], ["plain_loop.py"]),
    "trainer_class": (["trainer_class.py"], ["trainer_class.py", "--width", "24", "--epochs", "3"]),
    "amp_and_gan": (["amp_and_gan.py"], ["amp_and_gan.py"]),
    "recurrent": (["recurrent.py"], ["recurrent.py"]),
    "hooks_of_a_framework": (["hooks_of_a_framework.py"], ["hooks_of_a_framework.py"]),
    "kept_exceptions": (["kept_exceptions.py"], ["kept_exceptions.py"]),
    "several_files": (["several_files/meters.py", "several_files/__main__.py"], ["-m", "several_files"]),
}


def findings_of(file: str) -> tuple[list[Finding], list[tuple[str, str]]]:
    """A finding for each marked line, and what its verdict must be."""
    findings, expected = [], []
    for row, line in enumerate((SCRIPTS / file).read_text().splitlines(), 1):
        mark = MARK.search(line)
        if mark:
            span = Span(Position(row, 1), Position(row, len(line)))
            path = str(SCRIPTS / file)
            findings.append(Finding(mark[1], "a-rule", Severity.WARNING, Confidence.HIGH, "a message", path, span))
            expected.append((mark[2], mark[3]))
    return findings, expected


def looked_at(findings: Sequence[Finding], program: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """The records of a program's run, as ``run --check`` makes them of these findings."""
    report = folder / "report.json"
    options = {
        "format": "json", "file": str(report), "flagged": written(findings), "python": sys.executable, "root": command.ROOT,
    }  # fmt: skip
    done = forked.script(str(STARTER), json.dumps(options), *program, cwd=SCRIPTS, optimizer=True)
    assert done.returncode == 0, done.stderr
    assert not Path(str(options["flagged"])).exists()
    rows: list[dict[str, Any]] = json.loads(report.read_text())
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_verdict_of_a_program_is_right(name: str, tmp_path: Path) -> None:
    files, program = PROGRAMS[name]
    flagged = [findings_of(file) for file in files]
    assert all(expected for _, expected in flagged)
    findings = [finding for some, _ in flagged for finding in some]
    found = {(Path(row["filename"]), row["location"]["row"]): row["confirm"] for row in looked_at(findings, program, tmp_path)}
    for finding, (want, word) in zip(findings, [one for _, expected in flagged for one in expected], strict=True):
        verdict = found[Path(finding.path), finding.span.start.row]
        assert verdict["verdict"] == want, (name, finding.path, finding.span.start.row, verdict)
        assert word in (verdict["kind"] or "") or verdict["kind"] == "grows at run time"


SUMMED = """\
import torch
from torch import nn


def evaluate(model: nn.Module, batches):
    model.eval()
    total = 0.0
    for batch in batches:
        total += model(batch).mean()
    return total


evaluate(nn.Linear(16, 4), torch.randn(6, 8, 16))
raise ValueError("mine")
"""


def test_flagged_lines_are_measured_and_the_traceback_is_the_programs(tmp_path: Path) -> None:
    """Also in a run too short for a look at the heap."""
    (tmp_path / "train.py").write_text(SUMMED, encoding="utf-8")
    done = forked.growth("--check", "train.py", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "line 14, in <module>\n    raise ValueError" in done.stderr
    assert "growth" not in done.stderr.partition("ValueError: mine")[0]
    assert "\ntrain.py:9: TML201 confirmed: a graph at each call, that no backward uses (" in done.stderr


def test_what_cannot_be_checked_is_no_program_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--check", str(tmp_path / "missing"), "train.py"]) == 2
    assert "no such file or directory" in capsys.readouterr().err
