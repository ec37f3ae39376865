"""Files and settings that are wrong: one clear line each, the right exit status, and every other file still checked.

The good neighbour of every bad file holds a mistake that is always found (a syntax error), so that "still checked" can be seen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from torchmemlint.cli import main

NEIGHBOUR = "import torch\nneighbour = (\n"


def lint(*arguments: str, cwd: Path, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TORCHMEMLINT", "FORCE_COLOR"))}
    result = forked.lint(*arguments, cwd=cwd, stdin=stdin, env=environment)
    assert "Traceback" not in result.stdout + result.stderr
    return result


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    return tmp_path


def lines_about(done: subprocess.CompletedProcess[str], name: str) -> list[str]:
    """The lines about one file, after seeing that its neighbour was checked."""
    assert "neighbour.py:2:13: TML000" in done.stdout
    return [line for line in (done.stdout + done.stderr).splitlines() if name in line]


CANNOT_PARSE = {
    "syntax error": (b"import torch\ndef f(:\n    pass\n", "2:7: TML000"),
    "undecodable bytes": (b"import torch\nx = '\xff\xfe'\n", "2:6: TML000 not valid utf-8"),
    "null bytes": (b"import torch\nx = 1\0\n", "2:6: TML000 contains a null byte"),
    "unknown encoding": (b"# coding: martian\nimport torch\n", "1:1: TML000 declares an unknown encoding"),
    "1,000 nested parentheses": (b"import torch\nx = " + b"(" * 1000 + b")" * 1000 + b"\n", "TML000"),
    "a sum of 50,000 terms": (b"import torch\nloss = " + b" + ".join([b"x"] * 50_000) + b"\nloss.backward()\n", "TML000"),
    "a chain of 5,000 calls": (b"import torch\nx = y" + b".detach()" * 5_000 + b"\nx.backward()\n", "TML000"),
    "indentation": (b"import torch\nif x:\npass\n", "3:"),
    "no python": (b"import torch, once upon a time\n", "1:"),
}


@pytest.mark.parametrize("case", CANNOT_PARSE)
def test_a_file_that_cannot_be_parsed_is_one_finding(tree: Path, case: str) -> None:
    data, expected = CANNOT_PARSE[case]
    (tree / "bad.py").write_bytes(data)
    done = lint("bad.py", "neighbour.py", "--output-format", "concise", cwd=tree)
    lines = lines_about(done, "bad.py")
    assert done.returncode == 1
    assert len(lines) == 1
    assert lines[0].startswith("bad.py:")
    assert expected in lines[0]
    assert "TML000" in lines[0]


@pytest.mark.parametrize("case", ["syntax error", "undecodable bytes", "null bytes"])
def test_such_a_file_can_be_ignored(tree: Path, case: str) -> None:
    (tree / "bad.py").write_bytes(CANNOT_PARSE[case][0])
    done = lint(".", "--per-file-ignores", "bad.py:TML000", "--output-format", "concise", cwd=tree)
    assert lines_about(done, "bad.py") == []
    assert lint("bad.py", "--ignore", "TML000", cwd=tree).returncode == 0


def test_a_syntax_error_without_torch_is_found_where_the_file_is_named(tree: Path) -> None:
    (tree / "plain.py").write_text("x = (\n")
    assert lint("plain.py", "--output-format", "concise", cwd=tree).stdout.startswith("plain.py:1:5: TML000")
    assert lines_about(lint(".", "--output-format", "concise", cwd=tree), "plain.py") == []


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="nothing newer than this Python is known")
def test_syntax_newer_than_the_running_python_says_which_it_needs(tree: Path) -> None:
    newer, version = {
        (3, 10): ("try:\n    pass\nexcept* OSError:\n    pass\n", "3.11"),
        (3, 11): ("type Loss = float\n", "3.12"),
        (3, 12): ("class Box[T = int]: ...\n", "3.13"),
        (3, 13): ('x = t"{loss}"\n', "3.14"),
    }[sys.version_info[:2]]
    (tree / "newer.py").write_text("import torch\n" + newer)
    done = lint("newer.py", "neighbour.py", "--output-format", "concise", cwd=tree)
    lines = lines_about(done, "newer.py")
    assert (done.returncode, len(lines)) == (1, 1)
    assert f"Python {version}" in lines[0]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf", b"# torch\n", b"\x0c\n", b"import torch"])
def test_files_with_nothing_in_them_are_clean(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty.py").write_bytes(content)
    done = lint("empty.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "All checks passed!\n", "")


def test_a_file_of_5_mb_in_one_line_is_skipped_and_says_so(tree: Path) -> None:
    (tree / "big.py").write_bytes(b"import torch; x = [" + b"1, " * 1_700_000 + b"]\n")
    done = lint(".", "--output-format", "concise", cwd=tree)
    assert lines_about(done, "big.py") == ["torchmemlint: note: big.py: skipped: larger than 1 MB"]
    assert done.returncode == 1
    named = lint("big.py", "-q", cwd=tree)
    assert (named.returncode, named.stderr) == (2, "torchmemlint: error: big.py: not checked: larger than 1 MB\n")


def test_a_line_of_almost_1_mb_is_checked(tree: Path) -> None:
    (tree / "long.py").write_bytes(b"import torch; x = [" + b"1, " * 330_000 + b"\n")
    done = lint(".", "--output-format", "concise", cwd=tree)
    lines = lines_about(done, "long.py")
    assert (done.returncode, len(lines)) == (1, 1)
    assert len(lines[0]) < 200


# --- paths ----------------------------------------------------------------------------------------------------------


def test_a_missing_path(tree: Path) -> None:
    done = lint("missing.py", "neighbour.py", "--output-format", "concise", cwd=tree)
    assert lines_about(done, "missing.py") == ["torchmemlint: error: missing.py: no such file or directory"]
    assert done.returncode == 2
    assert lint("missing.py", "--exit-zero", cwd=tree).returncode == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root can read every file")
def test_an_unreadable_file(tree: Path) -> None:
    (tree / "secret.py").write_text("import torch\n")
    (tree / "secret.py").chmod(0)
    by_hand = lint("secret.py", "neighbour.py", "--output-format", "concise", cwd=tree)
    assert lines_about(by_hand, "secret.py") == ["torchmemlint: error: secret.py: permission denied"]
    assert by_hand.returncode == 2
    walked = lint(".", "--output-format", "concise", cwd=tree)
    assert lines_about(walked, "secret.py") == ["secret.py:1:1: TML000 cannot be read: Permission denied"]
    assert walked.returncode == 1


def test_a_loop_of_links(tree: Path) -> None:
    (tree / "loop.py").symlink_to("loop.py")
    (tree / "inner").mkdir()
    (tree / "inner" / "up").symlink_to("..")
    walked = lint(".", "--output-format", "concise", cwd=tree)
    assert lines_about(walked, "loop.py") == []
    assert walked.stdout.count("neighbour.py") == 1
    by_hand = lint("loop.py", "neighbour.py", "--output-format", "concise", cwd=tree)
    assert len(lines_about(by_hand, "loop.py")) == 1
    assert by_hand.returncode == 2


def test_a_pipe_is_not_opened(tree: Path) -> None:
    os.mkfifo(tree / "pipe.py")
    by_hand = lint("pipe.py", "neighbour.py", "--output-format", "concise", cwd=tree)
    assert lines_about(by_hand, "pipe.py") == ["torchmemlint: error: pipe.py: is a FIFO, not a regular file"]
    assert by_hand.returncode == 2
    assert lint(".", cwd=tree).returncode == 1


def test_a_notebook_that_is_none_gets_one_line(tree: Path) -> None:
    (tree / "n.ipynb").write_text("{}")
    done = lint("n.ipynb", "neighbour.py", "--output-format", "concise", cwd=tree)
    assert lines_about(done, "n.ipynb") == ["n.ipynb:1:1: TML000 not a notebook: its JSON has no list of cells"]
    assert done.returncode == 1


def test_no_python_files(tmp_path: Path) -> None:
    done = lint(".", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == "torchmemlint: warning: no Python files found in the given paths\n"


# --- settings and options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--select", "TML101x"], "did you mean `TML101`?"),
        (["--ignore", "graph-attached-runing-total"], "did you mean `graph-attached-running-total`?"),
        (["--per-file-ignores", "a.py:NOPE"], "unknown rule or prefix `NOPE`"),
        (["--per-file-ignores", "a.py"], "must be GLOB:RULE pairs"),
        (["--config", "missing.toml"], "`missing.toml` does not exist"),
        (["--config", "selct=['ALL']"], "did you mean `select`?"),
        (["--config", "fail-on=error"], "strings need quotes"),
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["--output-format", "xml"], "invalid choice: 'xml'"),
        (["-j", "0"], "is not a number of processes"),
        (["-", "neighbour.py"], "cannot be combined with other paths"),
    ],
)
def test_wrong_usage_is_exit_status_2(tree: Path, arguments: list[str], expected: str) -> None:
    done = lint(*arguments, cwd=tree)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[tool.torchmemlint\n", "not valid TOML"),
        ("]][[ not toml", "not valid TOML"),
        ("[tool.torchmemlint]\nselct = ['TML1']\n", "unknown key `selct`; did you mean `select`?"),
        ("[tool.torchmemlint]\nselect = ['TML101x']\n", "did you mean `TML101`?"),
    ],
)
def test_a_broken_pyproject_is_one_line_and_files_elsewhere_are_checked(tree: Path, text: str, expected: str) -> None:
    (tree / "sub").mkdir()
    (tree / "sub" / "pyproject.toml").write_text(text)
    (tree / "sub" / "a.py").write_text(NEIGHBOUR)
    done = lint(".", "--output-format", "concise", cwd=tree)
    lines = lines_about(done, "sub")
    assert done.returncode == 2
    assert len(lines) == 1
    assert lines[0].startswith("torchmemlint: error: ")
    assert expected in lines[0]
    assert lint(".", "--isolated", cwd=tree).returncode == 1


# --- standard input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"import torch\nx = (\n", b"import torch\nx = '\xff'\n", b"\0", b"# coding: martian\n"])
def test_bad_standard_input_is_a_finding_and_fix_gives_it_back(tmp_path: Path, data: bytes) -> None:
    done = lint("-", "--stdin-filename", "buffer.py", "--output-format", "concise", cwd=tmp_path, stdin=data)
    assert done.returncode == 1
    assert done.stdout.startswith("buffer.py:")
    fixed = subprocess.run(
        [sys.executable, "-m", "torchmemlint", "-", "--fix"], input=data, capture_output=True, cwd=tmp_path, timeout=60
    )
    assert (fixed.returncode, fixed.stdout) == (1, data)
    assert b"TML000" in fixed.stderr


def test_an_error_at_the_end_of_a_line_points_to_no_character(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text("import torch\n\n\ndef f(x):\n\n\ny = torch.ones(1)\n")
    main([str(tmp_path / "a.py"), "--isolated", "--no-cache", "--output-format", "json"])
    lines = (tmp_path / "a.py").read_text().split("\n")
    for finding in json.loads(capsys.readouterr().out):
        end = finding["end_location"]
        assert end["column"] <= len(lines[end["row"] - 1]) + 1
