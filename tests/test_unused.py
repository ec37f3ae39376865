"""TML002: which suppression comments are unused, and how they are taken out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchmemlint import check_source, cli

pytestmark = pytest.mark.usefixtures("nothing_around")

OPTIONS: dict[str, object] = {"extend-select": ["TML002"]}
BEFORE = """import torch


def train(model, batches, optimizer):
    total = 0
    for inputs in batches:
        loss = model(inputs).sum()
        loss.backward()
        optimizer.step()
"""
AFTER = "\n    return total\n"
USED = BEFORE + "        total += loss{}" + AFTER
UNUSED = BEFORE + "        total += loss.item(){}" + AFTER


def findings(text: str, **options: object) -> list[str]:
    found = check_source(text, "a.py", options=OPTIONS | {key.replace("_", "-"): value for key, value in options.items()})
    return [f"{one.code} {one.message}" if one.code == "TML002" else one.code for one in found]


@pytest.mark.parametrize(
    "comment",
    ["noqa: TML101", "noqa: TML1", "torchmemlint: ignore[TML101] why", "torchmemlint: ignore", "noqa", "torchmemlint: disable"],
)
def test_what_a_finding_needs_is_used(comment: str) -> None:
    assert findings(USED.format("  # " + comment)) == []


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("noqa: TML101", "`TML101` suppresses nothing here"),
        ("noqa: E501, TML101, TML102 why", "`TML101`, `TML102` suppress nothing here"),
        ("noqa: graph-attached-running-total", "`graph-attached-running-total` suppresses nothing here"),
        ("noqa: TML1", "`TML1` suppresses nothing here"),
        ("noqa: TML777", "`TML777` suppresses nothing here: there is no rule `TML777`"),
        ("torchmemlint: ignore[TML101] why", "`TML101` suppresses nothing here"),
        ("torchmemlint: ignore", "this comment suppresses nothing"),
        ("torchmemlint: disable[TML3]", "`TML3` suppresses nothing here"),
        ("torchmemlint: file-ignore[TML301]", "`TML301` suppresses nothing here"),
        ("torchmemlint: ignor[TML301]", "unknown directive `torchmemlint: ignor`; use ignore, file-ignore, disable or enable"),
    ],
)
def test_what_no_finding_needs(comment: str, message: str) -> None:
    assert findings(UNUSED.format("  # " + comment)) == [f"TML002 {message}"]


@pytest.mark.parametrize(
    "comment",
    [
        "noqa",
        "noqa: E501",
        "noqa: T201",
        "noqa: no-such-rule",
        "type: ignore[TML101]",
        "torchmemlint: enable[TML1]",
        "noqa: TML308",  # off by default, and off here
        "noqa: TML002",
        "ruff: noqa: TML101",
    ],
)
def test_what_is_not_ours_to_judge(comment: str) -> None:
    assert findings(UNUSED.format("  # " + comment)) == []


def test_only_rules_that_were_on_are_judged() -> None:
    assert findings(UNUSED.format("  # noqa: TML101"), select=["TML002", "TML3"]) == []
    assert findings(UNUSED.format("  # noqa: TML1"), ignore=["TML102"]) == []
    assert findings(UNUSED.format("  # torchmemlint: ignore"), ignore=["TML102"]) == []
    assert findings(UNUSED.format("  # noqa: TML101"), per_file_ignores={"a.py": ["TML101"]}) == []
    assert findings(UNUSED.format("  # noqa: TML101"), per_file_ignores={"a.py": ["TML002"]}) == []
    assert findings(UNUSED.format("  # noqa: TML308"), extend_select=["TML002", "TML308"]) != []
    assert check_source(UNUSED.format("  # noqa: TML101"), "a.py") == [], "it is off by default"


def test_a_comment_is_hidden_by_its_full_name_only() -> None:
    assert findings("x = 1  # noqa: TML101,TML002\n") == []
    assert findings("x = 1  # torchmemlint: ignore[TML101, unused-suppression]\n") == []
    assert len(findings("x = 1  # torchmemlint: ignore[TML]\n")) == 1
    assert findings("# torchmemlint: file-ignore[TML002]\nx = 1  # noqa: TML101\n") == []


def test_ranges() -> None:
    text = USED.format("").replace("def train", "# torchmemlint: disable[TML1]\ndef train")
    assert findings(text) == []
    assert findings(text.replace("    total = 0", "    # torchmemlint: enable\n    total = 0")) == [
        "TML002 `TML1` suppresses nothing here",
        "TML101",
    ]


def test_files_that_have_nothing_to_do_with_torch(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1  # noqa: TML101\n")
    (tmp_path / "b.py").write_text("import torch\nx = '# noqa: TML101'\n")
    (tmp_path / "c.py").write_text("x = (  # noqa: TML101\n")
    assert cli.main(["-q", "--extend-select=TML002", "--output-format=concise", "."]) == 1


def test_what_is_known_only_in_part_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchmemlint import analysis
    from torchmemlint.analysis import Analysis

    monkeypatch.setattr(analysis, "analyze_module", lambda *_: Analysis(notes=["f: too deep"]))
    assert findings(UNUSED.format("  # noqa: TML101")) == []


FIXES = [
    ("x = 1  # noqa: TML101\n", "x = 1\n"),
    ("x = 1# noqa:TML101", "x = 1"),
    ("x = 1  # noqa: TML101, E501\n", "x = 1  # noqa: E501\n"),
    ("x = 1  # noqa: E501,TML101,W605\n", "x = 1  # noqa: E501,W605\n"),
    ("x = 1  # noqa: E501 TML101 and why\n", "x = 1  # noqa: E501 and why\n"),
    ("x = 1  # noqa: F401TML101\n", "x = 1  # noqa: F401\n"),
    ("x = 1  # noqa: TML101: is logged only\n", "x = 1  # is logged only\n"),
    ("x = 1  # type: ignore  # noqa: TML101\n", "x = 1  # type: ignore\n"),
    ("x = 1  # type: ignore # noqa: TML101 # fmt: skip\n", "x = 1  # type: ignore  # fmt: skip\n"),
    ("x = 1  # torchmemlint: ignore[TML101] is logged  # noqa: E501\n", "x = 1  # noqa: E501\n"),
    ("x = 1  # torchmemlint: ignore[TML101, TML102] why\n", "x = 1\n"),
    ("x = '漢👍'\t# torchmemlint: ignore[TML101]\r\ny = 2\r\n", "x = '漢👍'\r\ny = 2\r\n"),
    ("if x:\n    # torchmemlint: ignore[TML101] why\n    y = 1\n", "if x:\n    y = 1\n"),
    ("if x:\n    # torchmemlint: ignore[TML101] why\n    y = 1\n# torchmemlint: ignore", "if x:\n    y = 1\n"),
    ("# flake8: noqa: TML101\nx = 1\n", "x = 1\n"),
    ("x = f(  # noqa: TML101\n    1,  # noqa: TML102\n)\n", "x = f(\n    1,\n)\n"),
    ("x = 1  # noqa: TML101 # noqa: TML102\n", "x = 1\n"),
]


@pytest.mark.parametrize(("before", "after"), FIXES)
def test_the_fix(tmp_path: Path, before: str, after: str) -> None:
    (tmp_path / "a.py").write_bytes(before.encode())
    assert cli.main(["-q", "--fix", "--extend-select=TML002", "a.py"]) == 0
    assert (tmp_path / "a.py").read_bytes().decode() == after


def test_the_fix_leaves_what_is_used(tmp_path: Path) -> None:
    text = USED.format("  # noqa: TML102, TML101 is logged")
    (tmp_path / "a.py").write_text(text)
    assert cli.main(["-q", "--fix", "--extend-select=TML002", "a.py"]) == 0
    assert (tmp_path / "a.py").read_text() == text.replace("TML102, TML101", "TML101")


def test_the_number_of_processes_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        (tmp_path / f"{number}.py").write_text(f"x = {number}  # noqa: TML101\n")
    shown = []
    for jobs in ("1", "2"):
        cli.main(["--extend-select=TML002", "-j", jobs, "--output-format=concise", os.curdir])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert shown[0].count("TML002") == 3
