"""Baselines: what they hide, and that a new mistake is never among it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from torchmemlint import cli
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.run import check_text
from torchmemlint.suppress.baseline import (
    Baseline,
    Key,
    empty_baseline,
    read_baseline,
    renewed,
    screen,
    write_baseline,
    written,
)

TOTAL = """import torch

def train(model, loader, optimizer):
    total = 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        total += loss
    print(total)
"""
EVALUATE = """

def evaluate(model, loader):
    model.eval()
    outputs = []
    for x in loader:
        outputs.append(model(x))
    return outputs
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(TOTAL)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "b.py").write_text(TOTAL + EVALUATE)
    return tmp_path


def lint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """Exit status, and what was printed: the findings as ``path:row CODE`` and the lines of the summary."""
    capsys.readouterr()
    code = cli.main(["--output-format=concise", "--color=never", *arguments])
    lines = []
    for line in capsys.readouterr().out.splitlines():
        path, _, rest = line.partition(".py:")
        lines.append(f"{path}.py:{rest.split(':')[0]} {rest.split()[1]}" if rest else line)
    return code, lines


def test_written_then_silent(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(capsys)[0] == 1
    assert lint(capsys, "--write-baseline") == (0, [".torchmemlint-baseline.json: 3 findings."])
    assert lint(capsys) == (0, ["All checks passed!", "3 findings are in the baseline."])
    assert "Found 1 error, 2 warnings." in lint(capsys, "--no-baseline")[1]


def test_the_file_is_sorted_one_line_an_entry_without_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline")
    text = (folder / ".torchmemlint-baseline.json").read_text()
    assert text == (
        '{\n  "version": 1,\n  "files": {\n    "a.py": [\n'
        '      {"code": "TML101", "function": "train", "statement": "total += loss", "count": 1}\n    ],\n    "pkg/b.py": [\n'
        '      {"code": "TML201", "function": "evaluate", "statement": "outputs.append(model(x))", "count": 1},\n'
        '      {"code": "TML101", "function": "train", "statement": "total += loss", "count": 1}\n    ]\n  }\n}\n'
    )
    assert json.loads(text)["version"] == 1
    lint(capsys, "--write-baseline")
    assert (folder / ".torchmemlint-baseline.json").read_text() == text


def test_code_that_moves_stays_hidden(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline")
    for path in folder.rglob("*.py"):
        path.write_text("# a line\n" * 10 + path.read_text())
    assert lint(capsys) == (0, ["All checks passed!", "3 findings are in the baseline."])
    (folder / "pkg" / "b.py").write_text("import torch\n" + EVALUATE + TOTAL.replace("import torch\n", "\n\n# moved down\n"))
    assert lint(capsys) == (0, ["All checks passed!", "3 findings are in the baseline."])
    (folder / "pkg" / "b.py").rename(folder / "renamed.py")
    assert lint(capsys) == (0, ["All checks passed!", "3 findings are in the baseline."])


def test_a_new_mistake_is_the_only_thing_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline")
    twice = TOTAL.replace("        total += loss\n", "        total += loss\n        kept.append(loss)\n").replace(
        "    total = 0\n", "    total = 0\n    kept = []\n"
    )
    (folder / "a.py").write_text(twice + EVALUATE)
    code, lines = lint(capsys)
    assert (code, lines[:3]) == (1, ["a.py:11 TML102", "a.py:19 TML201", "Found 1 error, 1 warning."])
    # The same statement once more in the same function is one more.
    (folder / "a.py").write_text(TOTAL.replace("        total += loss\n", "        total += loss\n        total += loss\n"))
    assert lint(capsys)[1][0] == "a.py:10 TML101"
    assert "3 more findings are in the baseline." in lint(capsys)[1]


def test_a_copy_of_a_file_is_new(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline")
    (folder / "copy.py").write_text(TOTAL)
    assert lint(capsys)[1][0] == "copy.py:9 TML101"


def test_fixed_findings_leave_when_the_baseline_is_pruned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline")
    (folder / "a.py").write_text(TOTAL.replace("+= loss", "+= loss.detach()"))
    assert lint(capsys)[1][-1] == "1 finding is in the baseline but no longer found; run `--prune-baseline`."
    assert lint(capsys, "a.py")[1] == ["All checks passed!"], "a run over single files does not know"
    (folder / "new.py").write_text(TOTAL)
    assert lint(capsys, "--prune-baseline") == (0, [".torchmemlint-baseline.json: 2 findings, 3 before."])
    (folder / "a.py").write_text(TOTAL)
    assert [line for line in lint(capsys)[1] if ".py:" in line] == ["a.py:9 TML101", "new.py:9 TML101"]


def test_pruning_keeps_what_was_not_looked_at(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline")
    for path in folder.rglob("*.py"):
        path.write_text("import torch\n")
    assert lint(capsys, "--prune-baseline", "pkg", "--select=TML2")[1] == [".torchmemlint-baseline.json: 2 findings, 3 before."]
    assert lint(capsys, "--prune-baseline", "pkg")[1] == [".torchmemlint-baseline.json: 1 finding, 2 before."]
    (folder / "a.py").unlink()
    assert lint(capsys, "--prune-baseline", "pkg")[1] == [".torchmemlint-baseline.json: 0 findings, 1 before."]


def test_pruning_follows_a_renamed_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline")
    (folder / "a.py").rename(folder / "c.py")
    assert lint(capsys, "--prune-baseline")[1] == [".torchmemlint-baseline.json: 3 findings."]
    assert '"c.py"' in (folder / ".torchmemlint-baseline.json").read_text()


def test_writing_for_a_part_keeps_the_rest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline", "a.py")
    assert lint(capsys, "--write-baseline", "pkg", "--select=TML2")[1] == [".torchmemlint-baseline.json: 2 findings, 1 before."]
    assert lint(capsys)[1][0] == "pkg/b.py:9 TML101"


def test_a_baseline_elsewhere(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text('[tool.torchmemlint]\nbaseline = "ci/known.json"\n')
    (folder / "ci").mkdir()
    assert cli.main(["."]) == 2
    assert "`--write-baseline` writes one" in capsys.readouterr().err
    assert lint(capsys, "--write-baseline")[1] == ["ci/known.json: 3 findings."]
    assert '"../pkg/b.py"' in (folder / "ci" / "known.json").read_text()
    monkeypatch.chdir(folder / "pkg")
    assert lint(capsys)[1] == ["All checks passed!", "2 findings are in the baseline."]
    assert lint(capsys, "--write-baseline", "--baseline=mine.json")[1] == ["mine.json: 2 findings."]
    assert lint(capsys, "--baseline=mine.json", "--isolated")[1] == ["All checks passed!", "2 findings are in the baseline."]
    assert lint(capsys, "--isolated")[0] == 1


def test_what_the_baseline_has_is_not_fixed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline")
    (folder / "a.py").write_text(TOTAL + TOTAL.replace("def train", "def again"))
    assert lint(capsys, "--fix")[0] == 0
    assert (folder / "a.py").read_text().count("loss.detach()") == 1
    assert lint(capsys, "--fix", "--no-baseline")[0] == 1
    assert (folder / "a.py").read_text().count("loss.detach()") == 2


def test_an_editor_s_text_and_the_public_call_obey_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint(capsys, "--write-baseline")
    settings = Configuration(CommandLine()).for_file("a.py")
    assert check_text(TOTAL, "a.py", settings) == []
    assert [one.code for one in check_text(TOTAL + EVALUATE, "a.py", settings)] == ["TML201"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON"),
        ("<<<<<<< ours\n", "a merge conflict?"),
        ("[]", "is not a baseline"),
        ('{"version": 1}', "is not a baseline"),
        ('{"version": 2, "files": {}}', "has version 2"),
        ('{"version": 1, "files": {"a.py": [{}]}}', "an entry is incomplete"),
        ('{"version": 1, "files": {"a.py": {}}}', "an entry is incomplete"),
        (
            '{"version": 1, "files": {"a.py": [{"code": "T", "function": "", "statement": "", "count": 0}]}}',
            "an entry is incomplete",
        ),
        ('{"version": 1, "files": {"a.py": [{"code": 1, "function": "", "statement": ""}]}}', "an entry is incomplete"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_file_that_is_no_baseline(folder: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    (folder / ".torchmemlint-baseline.json").write_text(text)
    assert cli.main(["."]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("torchmemlint: error: ")
    assert words in line


@pytest.mark.parametrize("option", ["--fix", "--diff", "--since=HEAD", "--prune-baseline", "-"])
def test_writing_goes_with_nothing_that_looks_at_less(folder: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert cli.main(["--write-baseline", option]) == 2
    assert not (folder / ".torchmemlint-baseline.json").exists()


def test_nothing_is_written_after_a_problem(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--write-baseline", "a.py", "missing.py"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "torchmemlint: error: missing.py: no such file or directory; no baseline was written"
    assert not (folder / ".torchmemlint-baseline.json").exists()


# --- the plain data -------------------------------------------------------------------------------------------------


def finding(row: int, statement: str = "total += loss", code: str = "TML101") -> Finding:
    span = Span(Position(row, 1), Position(row, 2))
    return Finding(code, "n", Severity.ERROR, Confidence.HIGH, "m", "a.py", span, function="f", statement=statement)


def test_our_own_failure_is_never_in_it(tmp_path: Path) -> None:
    crash = finding(1, "", "TML001")
    made = renewed(empty_baseline(str(tmp_path / "b.json")), {"a.py": [crash]}, {"a.py": {"TML001"}}, add=lambda finding: True)
    assert made.files == {}
    claimed = Baseline(str(tmp_path), {"a.py": {Key("f", "TML001", ""): 1}})
    (tmp_path / "a.py").write_text("")
    assert screen(claimed, {str(tmp_path / "a.py"): [crash]}, {str(tmp_path / "a.py"): {"TML001"}}).hidden == 0


def test_the_first_of_several_alike_are_hidden(tmp_path: Path) -> None:
    name = str(tmp_path / "a.py")
    three = [finding(row) for row in (1, 5, 9)]
    two = renewed(empty_baseline(str(tmp_path / "b.json")), {name: three[:2]}, {name: {"TML101"}}, add=lambda finding: True)
    screened = screen(two, {name: three}, {name: {"TML101"}})
    assert (screened.kept[name], screened.hidden, screened.stale) == ((three[2],), 2, 0)
    assert screen(two, {name: three[:1]}, {name: {"TML101"}}).stale == 1
    assert screen(two, {name: []}, {name: {"TML201"}}).stale == 0, "a rule that was off found nothing because it was off"


def test_any_text_survives_the_file(tmp_path: Path) -> None:
    odd = [finding(1, text) for text in ('s = "\\n\t"', "é 漢 👍", "x = '\udcff'", "", "\u2028")]
    made = renewed(
        empty_baseline(str(tmp_path / "b.json")),
        {str(tmp_path / "a b.py"): odd, str(tmp_path / "é.py"): [replace(odd[0], function="g")]},
        {str(tmp_path / "a b.py"): {"TML101"}, str(tmp_path / "é.py"): {"TML101"}},
        add=lambda finding: True,
    )
    write_baseline(str(tmp_path / "b.json"), made, empty_baseline(str(tmp_path / "b.json")))
    again = read_baseline(str(tmp_path / "b.json"))
    assert again.files == made.files
    assert written(again) == written(made)
