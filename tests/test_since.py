"""``--since``: git is asked which rows changed, and only findings there are reported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from torchmemlint import cli
from torchmemlint.findings import Confidence, Finding, FlowStep, Position, Severity, Span
from torchmemlint.suppress.since import EVERYTHING, Changed, parsed_diff

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

LOOP = """    for x in loader:
        loss = model(x).sum()
        loss.backward()
        total += loss
    return total
"""
OLD = f"import torch\n\ndef old(model, loader):\n    total = 0\n{LOOP}"
NEW = f"\n\ndef new(model, loader):\n    total = 0\n{LOOP}"
GUARDED = """import torch

@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    outputs = []
    for x in loader:
        outputs.append(model(x))
    return outputs
"""


def git(*arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", *who, *arguments], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    (tmp_path / "a.py").write_text(OLD)
    (tmp_path / "b.py").write_text(GUARDED)
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    return tmp_path


@pytest.fixture
def lint(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    def call(*arguments: str) -> tuple[int, list[str]]:
        capsys.readouterr()
        code = cli.main(["--output-format=concise", "--color=never", *arguments])
        printed = capsys.readouterr()
        found = [line for line in printed.out.splitlines() if ": TML" in line]
        return code, [":".join(line.split(":")[:2]) + line.split(":")[3][:7] for line in found] if code < 2 else [printed.err]

    return call


Lint = Callable[..., tuple[int, list[str]]]


@needs_git
def test_only_what_changed_is_reported(repository: Path, lint: Lint, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint() == (1, ["a.py:8 TML101"])
    assert lint("--since", "HEAD") == (0, [])
    cli.main(["--since=HEAD"])
    assert capsys.readouterr().out == "All checks passed!\n1 finding is on lines that did not change.\n"
    (repository / "a.py").write_text(OLD + NEW)
    assert lint("--since=HEAD") == (1, ["a.py:17 TML101"])
    (repository / "a.py").write_text("# one\n# two\n" + OLD)
    assert lint("--since=HEAD") == (0, [])


@needs_git
@pytest.mark.parametrize("how", ["working tree", "staged", "committed", "untracked", "ignored", "intended"])
def test_wherever_the_change_is(repository: Path, lint: Lint, how: str) -> None:
    base = git("rev-parse", "HEAD")
    (repository / "c d é.py").write_text(OLD)
    if how == "ignored":
        (repository / ".gitignore").write_text("c*\n")
    if how in ("staged", "committed"):
        git("add", "-A")
    if how == "committed":
        git("commit", "-q", "-m", "second")
    if how == "intended":
        git("add", "-N", "c d é.py")
    if how == "working tree":
        (repository / "c d é.py").unlink()
        (repository / "a.py").write_text(OLD + NEW)
        assert lint("--since", base) == (1, ["a.py:17 TML101"])
    else:
        assert lint("--since", base, ".", "c d é.py") == (1, ["c d é.py:8 TML101"])


@needs_git
def test_a_renamed_file_is_the_same_file(repository: Path, lint: Lint) -> None:
    git("mv", "a.py", "moved.py")
    assert lint("--since=HEAD") == (0, [])
    (repository / "moved.py").write_text(OLD + NEW)
    assert lint("--since=HEAD") == (1, ["moved.py:17 TML101"])


@needs_git
def test_what_others_did_on_the_branch_does_not_count(repository: Path, lint: Lint) -> None:
    git("checkout", "-q", "-b", "feature")
    (repository / "c.py").write_text(OLD)
    git("add", "-A")
    git("commit", "-q", "-m", "feature")
    git("checkout", "-q", "main")
    (repository / "a.py").write_text("import torch\n")
    git("commit", "-q", "-a", "-m", "main fixes a.py")
    git("checkout", "-q", "feature")
    assert lint("--since=main") == (1, ["c.py:8 TML101"])


@needs_git
def test_a_guard_that_was_taken_out_brings_its_finding(repository: Path, lint: Lint) -> None:
    (repository / "b.py").write_text(GUARDED.replace("@torch.no_grad()\n", ""))
    assert lint("--since=HEAD") == (1, ["b.py:7 TML201"])


@needs_git
def test_from_a_folder_below_and_by_absolute_path(repository: Path, lint: Lint, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "sub").mkdir()
    (repository / "sub" / "c.py").write_text(OLD)
    monkeypatch.chdir(repository / "sub")
    assert lint("--since=HEAD") == (1, ["c.py:8 TML101"])
    assert lint("--since=HEAD", str(repository / "a.py")) == (0, [])


@needs_git
def test_rows_of_a_notebook_are_those_of_its_cells(repository: Path, lint: Lint) -> None:
    def write(*cells: str) -> None:
        content = {
            "cells": [{"cell_type": "code", "metadata": {}, "source": text.splitlines(keepends=True)} for text in cells],
            "metadata": {},
        }
        (repository / "a.ipynb").write_text(json.dumps(content, indent=1))

    old, new = OLD.replace("import torch\n", ""), NEW.strip()
    write("import torch", old)
    git("add", "-A")
    git("commit", "-q", "-m", "a notebook")
    assert lint("--since=HEAD", "a.ipynb") == (0, [])
    write("import torch", "# another cell", old)
    assert lint("--since=HEAD", "a.ipynb") == (0, [])
    write("import torch", old, new)
    code, (found,) = lint("--since=HEAD", "a.ipynb")
    assert (code, found.startswith("a.ipynb:cell 3")) == (1, True)
    write("import torch", old.replace("total += loss", "total += 2 * loss"))
    assert lint("--since=HEAD", "a.ipynb")[0] == 1


@needs_git
def test_fixes_keep_to_what_changed(repository: Path, lint: Lint) -> None:
    (repository / "a.py").write_text(OLD + NEW)
    assert lint("--since=HEAD", "--fix", "--unsafe-fixes")[0] == 0
    before, after = (repository / "a.py").read_text().split("def new")
    assert before == OLD + "\n\n"
    assert "detach()" in after or "item()" in after


@needs_git
def test_a_repository_s_own_configuration_runs_nothing(repository: Path, lint: Lint) -> None:
    for key, value in {
        "core.fsmonitor": "touch ran; false",
        "diff.external": "touch ran",
        "diff.x.textconv": "touch ran",
        "diff.x.command": "touch ran",
        "core.pager": "touch ran",
        "diff.noprefix": "true",
        "diff.mnemonicPrefix": "true",
        "diff.interHunkContext": "50",
        "diff.context": "50",
        "color.ui": "always",
    }.items():
        git("config", key, value)
    (repository / ".gitattributes").write_text("*.py diff=x\n")
    (repository / "a.py").write_text(OLD + NEW)
    assert lint("--since=HEAD") == (1, ["a.py:17 TML101"])
    assert not (repository / "ran").exists()


@needs_git
@pytest.mark.parametrize(
    ("revision", "words"),
    [("nonsense", "no revision `nonsense`"), ("--output=x", "is not a revision"), ("other", "no common")],
)
def test_a_revision_that_cannot_be_compared(repository: Path, lint: Lint, revision: str, words: str) -> None:
    git("checkout", "-q", "--orphan", "other")
    git("commit", "-q", "-m", "unrelated")
    git("checkout", "-q", "main")
    (repository / "a.py").write_text("x = 1\n")  # also where nothing would be reported
    code, (error,) = lint(f"--since={revision}")
    assert code == 2
    assert words in error
    assert error.count("\n") == 1


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lint: Lint) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(OLD)
    code, (error,) = lint("--since=HEAD")
    assert (code, error) == (2, "torchmemlint: error: --since: a.py is not in a git repository\n")


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lint: Lint) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.py").write_text(OLD)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, (error,) = lint("--since=HEAD")
    assert code == 2
    assert "--since needs git" in error


# --- the plain data -------------------------------------------------------------------------------------------------


def test_a_patch_is_read() -> None:
    patch = (
        b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -3,0 +4,2 @@ def f():\n+x\n+++ b/not/a/header\n@@ -9 +11 @@\n-y\n+z\n"
        b"diff --git a/gone.py b/gone.py\n--- a/gone.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n--- a/b\n"
        b"diff --git a/a b.py b/a b.py\n--- a/a b.py\t\n+++ b/a b.py\t\n@@ -5,2 +4,0 @@\n-a\n-b\n\\ No newline at end of file\n"
        b'diff --git "a/q\\"\\303\\251.py" "b/q\\"\\303\\251.py"\n--- /dev/null\n+++ "b/q\\"\\303\\251.py"\n@@ -0,0 +1 @@\n+x\n'
    )
    assert parsed_diff(patch) == {
        "a.py": Changed(frozenset({4, 5, 11})),
        "a b.py": Changed(beside_gaps=frozenset({4, 5})),
        'q"é.py': Changed(frozenset({1})),
    }
    assert parsed_diff(b"") == {}


def finding(row: int, *flow: FlowStep, rows: tuple[int, ...] = ()) -> Finding:
    span = Span(Position(row, 1), Position(row + 1, 2))
    return Finding("TML101", "n", Severity.ERROR, Confidence.HIGH, "m", "a.py", span, flow=flow, noqa_rows=frozenset(rows))


def test_which_findings_a_change_covers() -> None:
    rows, gap = Changed(frozenset({4})), Changed(beside_gaps=frozenset({4}))
    assert rows.covers(finding(3))
    assert not rows.covers(finding(2))
    assert rows.covers(finding(9, FlowStep("a.py", Span(Position(4, 1), Position(4, 9)), "made here")))
    assert not rows.covers(finding(9, FlowStep("b.py", Span(Position(4, 1), Position(4, 9)), "made here")))
    assert not rows.covers(finding(9, rows=(4, 9)))
    assert gap.covers(finding(9, rows=(4, 9)))
    assert EVERYTHING.covers(finding(9))


def test_rows_follow_a_text_that_is_edited() -> None:
    changed = Changed(frozenset({2}), frozenset({4}))
    assert changed.carried("a\nb\nc\nd", "import torch\na\nb\nc\nd") == Changed(frozenset({1, 3}), frozenset({5}))
    assert changed.carried("a\nb\nc\nd", "a\nb\nC\nd") == Changed(frozenset({2, 3}), frozenset({4}))
    assert changed.carried("a", "a") is changed
