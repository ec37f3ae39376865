"""The field benchmark: each labelled package is linted, the scorer sees every finding, revisions are compared."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.field import __main__ as field
from benchmarks.reliability.__main__ import main as reliability

LEAK = """\
import torch


def train(model: torch.nn.Module, loader, optimizer):
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss
    return total
"""
SCORER = """\
import json, sys
root, flag, path = sys.argv[1:]
assert flag == "--findings"
found = json.load(open(path))
print("family found")
print("A", sorted(finding["code"] for finding in found))
print(json.dumps({"absent": ["gone==2.0"], "extra_in_exhaustive_files": 7}))
"""
# A linter whose findings are its revision's: one row for each number in ROWS.
LINTER = """\
import json, sys
found = [
    {"code": "TML101", "name": "running-total", "message": "kept", "filename": sys.argv[2] + "/a.py", "cell": None,
     "location": {"row": row, "column": 5}, "end_location": {"row": row, "column": 9}}
    for row in ROWS
]
print(json.dumps(found))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Two unpacked packages; labels mention the first one and one that is not here."""
    for name in ("leaky==1.0", "unlabelled==1.0"):
        folder = tmp_path / "packages" / name
        folder.mkdir(parents=True)
        (folder / "a.py").write_text(LEAK, encoding="utf-8")
    labels = [{"package": "leaky==1.0"}, {"package": "gone==2.0"}]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)) + "\n", encoding="utf-8")
    (tmp_path / "score.py").write_text(SCORER, encoding="utf-8")
    return tmp_path / "packages"


@pytest.fixture
def linter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of a stub linter, which the benchmark takes for its own."""
    tree = tmp_path / "repository"
    (tree / "torchmemlint").mkdir(parents=True)
    (tree / "torchmemlint" / "__init__.py").write_text("", encoding="utf-8")
    git(tree, "init", "-q")
    monkeypatch.setattr(field, "ROOT", tree)
    return tree


def git(tree: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *who, *words], cwd=tree, capture_output=True, text=True, check=True).stdout


def commit(tree: Path, linter: str) -> None:
    (tree / "torchmemlint" / "__main__.py").write_text(linter, encoding="utf-8")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "a revision")


def rows(*numbers: int) -> str:
    return LINTER.replace("ROWS", repr(numbers))


def measure(packages: Path, *words: str) -> int:
    return field.main([str(packages), "--field", str(packages.parent), "--record", str(packages / "score.md"), *words])


@pytest.mark.slow
def test_the_record_has_the_score_the_rules_and_the_seconds(packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(packages) == 0
    assert "A ['TML101']" in capsys.readouterr().out  # of the labelled package alone
    record = (packages / "score.md").read_text(encoding="utf-8")
    assert "```\nfamily found\nA ['TML101']\n```" in record
    assert "| TML101 graph-attached-running-total | 1 |" in record
    assert "labelled whole: 7." in record
    assert "were absent: gone==2.0." in record
    seconds = next(line for line in record.splitlines() if line.startswith("| leaky==1.0 |")).split("|")[2]
    assert 0 < float(seconds) < 60
    assert str(packages.parent) not in record


def test_a_revision_is_compared_in_its_own_checkout(packages: Path, linter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(linter, rows(3, 9))
    commit(linter, rows(9, 12))
    assert measure(packages, "--diff", "HEAD~1") == 0
    printed = capsys.readouterr().out.partition("Since ")[2]
    assert printed.splitlines() == [
        git(linter, "rev-parse", "HEAD~1")[:12] + ":",
        "TML101 running-total: 1 added, 1 removed",
        "  - leaky==1.0/a.py:3 kept",
        "  + leaky==1.0/a.py:12 kept",
    ]
    assert len(git(linter, "worktree", "list").splitlines()) == 1


def test_uncommitted_work_is_what_is_measured(packages: Path, linter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(linter, rows(3))
    (linter / "torchmemlint" / "__main__.py").write_text(rows(3).replace("kept", "stored"), encoding="utf-8")
    assert measure(packages, "--diff", "HEAD") == 0
    assert "no finding added or removed" in capsys.readouterr().out  # another message is not another finding
    assert "-dirty)" in (packages / "score.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("linter_text", "words", "said"),
    [
        ("raise SystemExit(3)", (), "leaky==1.0: the linter ended with 3"),
        (rows(3), ("--diff", "nowhere"), "nowhere"),
    ],
)
def test_a_run_that_fails_says_where(
    packages: Path, linter: Path, capsys: pytest.CaptureFixture[str], linter_text: str, words: tuple[str, ...], said: str
) -> None:
    commit(linter, linter_text)
    assert measure(packages, *words) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_failed_run_leaves_the_last_record(packages: Path, linter: Path) -> None:
    (packages / "score.md").write_text("the last one", encoding="utf-8")
    commit(linter, rows(3))
    (packages.parent / "score.py").write_text("raise SystemExit('labels are broken')", encoding="utf-8")
    assert measure(packages) == 2
    assert (packages / "score.md").read_text(encoding="utf-8") == "the last one"


def test_a_folder_without_labelled_packages_is_refused(tmp_path: Path, packages: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert field.main([str(tmp_path / "empty"), "--field", str(tmp_path)]) == 2


def test_two_revisions_over_folders_are_a_table(packages: Path, linter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(linter, rows(3, 9))
    commit(linter, rows(9, 12, 15))
    folders = [str(packages / name) for name in ("leaky==1.0", "unlabelled==1.0")]
    assert reliability(["ecosystem", "HEAD~1..HEAD", *folders, "--times", "2"]) == 1
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert [line.split("|")[1:5] for line in lines[2:5]] == [
        [" leaky==1.0 ", " 3 ", " 2 ", " 1 "],
        [" unlabelled==1.0 ", " 3 ", " 2 ", " 1 "],
        [" all ", " 6 ", " 4 ", " 2 "],
    ]
    assert "### leaky==1.0\n\nTML101 running-total: 2 added, 1 removed\n  - a.py:3 kept\n  + a.py:12 kept\n" in said
    assert reliability(["ecosystem", "HEAD", *folders]) == 0  # the working tree is the commit
    assert capsys.readouterr().out.endswith("no finding added or removed\n")
    assert len(git(linter, "worktree", "list").splitlines()) == 1


def test_a_folder_that_one_revision_cannot_check_is_named(
    packages: Path, linter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(linter, rows(3))
    commit(linter, "import sys\nsys.exit(3 if 'leaky' in sys.argv[2] else print('[]'))")
    folders = [str(packages / name) for name in ("leaky==1.0", "unlabelled==1.0")]
    assert reliability(["ecosystem", "HEAD~1..HEAD", *folders]) == 2
    said = capsys.readouterr().out
    assert "| leaky==1.0 | failed |" in said
    assert "### leaky==1.0\n\nafter: leaky==1.0: the linter ended with 3" in said
    assert "| all | 0 | 0 | 1 |" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere", "."), "nowhere"),
        (("HEAD..nowhere", "."), "nowhere"),
        (("HEAD", "no-such-folder"), "no folder: no-such-folder"),
    ],
)
def test_what_cannot_be_compared_is_reported(
    packages: Path, linter: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    commit(linter, rows(3))
    assert reliability(["ecosystem", *words]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
