"""What a repository's YAML files say of rates and probabilities, for constructors that check them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from torchmemlint.confirm.around import MAX_SETTINGS, project_of, settings_around
from torchmemlint.confirm.plan import fractions_of, plan
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span

SETTINGS = """
optimizer:
  lr: 1e-3          # as most write it, which YAML calls a text
  momentum: .9
  "decay": 0.01
layers:
- dropout: 0.25
  - p: 5.
epochs: 20
name: v1.0
path: 0.1/0.2
# alpha: 0.5
"""


def test_fractions_of_yaml_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SETTINGS)
    (tmp_path / "b.yml").write_text("lr: 0.5\ngamma: 0.99\n")
    found = fractions_of([str(tmp_path / "a.yaml"), str(tmp_path / "b.yml"), str(tmp_path / "none.yaml")])
    assert found == {"lr": 1e-3, "momentum": 0.9, "decay": 0.01, "dropout": 0.25, "p": 5.0, "gamma": 0.99}


def test_an_experiment_is_told_them_and_what_the_code_says_goes_first(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "base.yaml").write_text("lr: 0.5\np: 0.1\n")
    source = "def run(model, loader, args):\n    kept = []\n    for x in loader:\n        kept.append(model(x))\n"
    file = tmp_path / "train.py"
    file.write_text(f"{source}\n\nparser.add_argument('--lr', default=0.01)\n")
    span = Span(Position(4, 9), Position(4, 30))
    finding = Finding("TML102", "a-rule", Severity.WARNING, Confidence.HIGH, "m", str(file), span, function="run")
    reported = plan(finding, file.read_text(), project_of(str(file)))
    assert reported.job is not None
    assert reported.job["defaults"] == {"lr": 0.01, "p": 0.1}
    alone = plan(finding, file.read_text())
    assert alone.job is not None
    assert alone.job["defaults"] == {"lr": 0.01}


def test_only_so_many_are_read(tmp_path: Path) -> None:
    for number in range(MAX_SETTINGS + 5):
        (tmp_path / f"{number:03}.yaml").write_text("")
    (tmp_path / "train.py").write_text("")
    assert len(settings_around(str(tmp_path / "train.py"))) == MAX_SETTINGS
