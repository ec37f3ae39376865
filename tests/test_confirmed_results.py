"""``check --confirmed``: what an experiment has measured, beside the findings of now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchmemlint.cli import main
from torchmemlint.confirm.plan import plan
from torchmemlint.confirm.report import as_json
from torchmemlint.confirm.settle import Settled
from torchmemlint.confirm.verdict import Outcome, Run, Verdict

SOURCE = """\
import torch


def train(model: torch.nn.Module, loader, optimizer):
    total = 0
    every = []
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss
        every.append(loss)
    return total, every
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of two findings, and the results of a run that confirmed the first and refuted the second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHMEMLINT_NO_CACHE", "1")
    Path("train.py").write_text(SOURCE)
    from torchmemlint import check_paths

    first, second = check_paths(["train.py"], isolated=True, options={"select": ["TML1"]})
    grew = Run(live_bytes=(0,) * 8, nodes=tuple(range(0, 24, 3)), seen="tensor", device="cpu")
    confirmed = Verdict(Outcome.CONFIRMED, "nodes per step", "", "cpu", grew, Run(live_bytes=(0,) * 8), True)
    refuted = Verdict(Outcome.REFUTED, "", "nothing grows", "cpu", grew, grew)
    settled = [Settled(plan(first, SOURCE), confirmed), Settled(plan(second, SOURCE), refuted)]
    Path("results.json").write_text(as_json(settled))
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["check", "--isolated", "--select", "TML1", *arguments, "train.py"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_frames_show_what_was_measured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = check(capsys, "--confirmed", "results.json")
    assert status == 1
    assert "= measured: confirmed: nodes per step (3 nodes/step, 0 with the fix; cpu)\n" in out
    assert "= measured: refuted: nothing grows\n" in out
    assert "Found 2 warnings" in out


def test_only_what_is_confirmed_fails(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = check(capsys, "--confirmed", "results.json", "--only-confirmed")
    assert status == 1
    assert "Found 1 warning.\n1 more finding is not confirmed by an experiment.\n" in out
    assert "train.py:12:" in out
    assert "train.py:13:" not in out


def test_nothing_confirmed_is_clean(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("results.json").write_text("[]")
    status, out, _ = check(capsys, "--confirmed", "results.json", "--only-confirmed")
    assert status == 0
    assert "2 findings are not confirmed by an experiment." in out


def test_results_hold_while_code_moves_and_end_with_the_statement(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("# a new line\n" + SOURCE)
    assert "measured: confirmed" in check(capsys, "--confirmed", "results.json")[1]
    Path("train.py").write_text(SOURCE.replace("total += loss", "total += 2 * loss"))
    assert "measured: confirmed" not in check(capsys, "--confirmed", "results.json")[1]


@pytest.mark.parametrize("name", ["json", "json-lines", "sarif"])
def test_formats_for_programs_have_the_record(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = check(capsys, "--confirmed", "results.json", "--output-format", name)[1]
    assert out.count('"verdict": "confirmed"') == 1
    assert out.count('"verdict": "refuted"') == 1
    assert '"confirm"' not in check(capsys, "--output-format", name)[1]
    if name == "json":
        rows = json.loads(out)
        assert rows[0]["confirm"] == json.loads(Path("results.json").read_text())[0]["confirm"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("{}", "must be an array"),
        ("[1]", "entry 1 is not a finding"),
        ('[{"filename": "a.py", "code": "TML101", "fingerprint": "0", "confirm": {"verdict": "perhaps"}}]', "entry 1"),
        (b"\xff\xfe\x00", "not valid JSON"),
    ],
)
def test_bad_results_give_one_line(
    content: str | bytes | None, words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path("bad.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    status, out, err = check(capsys, "--confirmed", "bad.json")
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only-confirmed"], "needs --confirmed"),
        (["--confirmed", "results.json", "--only-confirmed", "--fix"], "cannot be combined with --fix"),
        (["--confirmed", "results.json", "--only-confirmed", "--write-baseline"], "cannot be combined with --write-baseline"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = check(capsys, *arguments)
    assert status == 2
    assert words in err
