"""Which files are checked: paths, exclusions, .gitignore, links and other oddities of file systems."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.discover import Discovery, discover
from torchmemlint.project.gitignore import ignored, parse_ignore_file


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")


def look(*paths: str, **table: object) -> Discovery:
    keyed = {key.replace("_", "-"): value for key, value in table.items()}
    return discover(paths, Configuration(CommandLine(keyed)))


def found(*paths: str, **table: object) -> list[str]:
    result = look(*paths, **table)
    assert result.problems == []
    return [file.path for file in result.files]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python_files_in_order_as_they_were_named(tree: Path) -> None:
    write(tree, "b.py", "a/z.py", "a/b.py", "a.py", "a/stub.pyi", "a/data.txt", "a/deep/er/c.py", "a/n.ipynb")
    assert found(".") == ["a.py", "a/b.py", "a/deep/er/c.py", "a/n.ipynb", "a/z.py", "b.py"]
    assert found("a") == ["a/b.py", "a/deep/er/c.py", "a/n.ipynb", "a/z.py"]
    assert found("./a/", "b.py") == ["a/b.py", "a/deep/er/c.py", "a/n.ipynb", "a/z.py", "b.py"]
    assert found(str(tree / "a" / "deep")) == [f"{tree.as_posix()}/a/deep/er/c.py"]
    os.chdir(tree / "a")
    assert found("..") == ["../a.py", "../a/b.py", "../a/deep/er/c.py", "../a/n.ipynb", "../a/z.py", "../b.py"]


def test_each_file_once(tree: Path) -> None:
    write(tree, "a/b.py")
    (tree / "link.py").symlink_to("a/b.py")
    assert found("a", "a/b.py", "./a/../a/b.py") == ["a/b.py"]
    assert len(found("a", str(tree / "a"))) == 1
    assert found(".") == ["a/b.py"]
    assert found("link.py") == ["link.py"]


def test_the_usual_folders_are_left_out_below_the_given_path_only(tree: Path) -> None:
    write(tree, ".venv/lib/x.py", "build/y.py", "src/__pycache__/z.py", "src/a.py", "site-packages/torchthing/m.py")
    assert found(".") == ["src/a.py"]
    assert found("build") == ["build/y.py"]
    assert found("site-packages/torchthing") == ["site-packages/torchthing/m.py"]
    assert found(".venv/lib", "build/y.py") == [".venv/lib/x.py", "build/y.py"]
    assert found(".", exclude=["src"]) == [".venv/lib/x.py", "build/y.py", "site-packages/torchthing/m.py"]


def test_exclude_globs(tree: Path) -> None:
    write(tree, "a/x_pb2.py", "a/b/c.py", "a/b/d.py", "other/b/c.py", "third/a/b/c.py")
    assert found(".", extend_exclude=["*_pb2.py", "third", "a/b/*.py"]) == ["other/b/c.py"]
    assert found(".", extend_exclude=["a/b"]) == ["a/x_pb2.py", "other/b/c.py", "third/a/b/c.py"]
    assert found(".", extend_exclude=["**/b"]) == ["a/x_pb2.py"]
    assert found("a", extend_exclude=["a/b/c.py"]) == ["a/b/d.py", "a/x_pb2.py"]
    assert found(".", extend_exclude=[str(tree / "a"), "third/"]) == ["other/b/c.py"]


def test_exclude_globs_are_relative_to_their_configuration_file(tree: Path) -> None:
    write(tree, "p/gen/a.py", "gen/b.py", "p/c.py")
    (tree / "p" / "torchmemlint.toml").write_text("extend-exclude = ['./gen/*.py']")
    assert found(".") == ["gen/b.py", "p/c.py"]


def test_files_named_by_hand_are_checked_unless_exclusions_are_forced(tree: Path) -> None:
    write(tree, "build/a.py", "b.py", "gen/c.py", "ignored/d.py")
    (tree / ".git").mkdir()
    (tree / ".gitignore").write_text("ignored/\n")
    named = ["build/a.py", "b.py", "gen/c.py", "ignored/d.py"]
    assert found(*named, extend_exclude=["gen"]) == sorted(named)
    assert found(*named, extend_exclude=["gen"], force_exclude=True) == ["b.py"]
    assert found(*named, extend_exclude=["gen"], force_exclude=True, respect_gitignore=False) == ["b.py", "ignored/d.py"]
    assert found("build", force_exclude=True) == []


def test_a_folder_above_never_excludes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "build" / "venv" / "project"
    write(root, "a.py")
    monkeypatch.chdir(root)
    assert found(".") == found("a.py", force_exclude=True) == ["a.py"]


def test_gitignore_files_below_the_given_path(tree: Path) -> None:
    write(tree, "a.py", "gen/x.py", "keep/gen/y.py", "sub/local.py", "sub/b.py", "sub/deep/local.py", "sub/deep/again.py")
    (tree / ".gitignore").write_text("/gen\n# a comment\n\nlocal.py\n")
    (tree / "sub" / ".gitignore").write_text("!local.py\ndeep/*\n!deep/again.py\n")
    assert found(".") == ["a.py", "keep/gen/y.py", "sub/b.py", "sub/deep/again.py", "sub/local.py"]
    assert "gen/x.py" in found(".", respect_gitignore=False)


def test_gitignore_files_above_hold_below_the_given_path_but_not_for_it(tree: Path) -> None:
    write(tree, "pkg/a.py", "pkg/a_gen.py", "data/b.py", "data/b_gen.py", "data/inner/c.py")
    (tree / ".gitignore").write_text("*_gen.py\ndata/\n")
    assert found("pkg") == ["pkg/a.py", "pkg/a_gen.py"]  # no repository: files above are not ours to read
    (tree / ".git").mkdir()
    assert found("pkg") == ["pkg/a.py"]
    assert found("data/inner") == ["data/inner/c.py"]
    assert found("data") == ["data/b.py", "data/b_gen.py", "data/inner/c.py"]


def test_a_virtual_environment_that_ignores_itself_can_be_checked(tree: Path) -> None:
    (tree / ".git").mkdir()
    write(tree, ".venv/lib/site-packages/pkg/a.py", "b.py")
    (tree / ".venv" / ".gitignore").write_text("*\n")
    assert found(".venv/lib/site-packages/pkg") == [".venv/lib/site-packages/pkg/a.py"]
    assert found(".") == ["b.py"]


PATTERNS = [
    *("*.py", "a", "/a", "a/", "!a", "a/b", "a/*", "a/**", "**/b", "**/b/", "a/**/c", "b/", "*", "!b/", "[ab]", "[!a]*", "?"),
    *("a?", "\\!x", "x ", "x\\ ", "#x", "\\#x", "[z-a]", "[", "!*.py", "/*/b", "a*/", "**", "/**/c", "!/a/b", "[a-c]/b"),
]
NAMES = ["a", "b", "c", "ab", "!x", "x", "x ", "#x", "[", "a.py", "c.py"]


@settings(max_examples=30, deadline=None)
@given(
    top=st.lists(st.sampled_from(PATTERNS), max_size=4),
    nested=st.lists(st.sampled_from(PATTERNS), max_size=3),
)
def test_ignore_rules_agree_with_git(tmp_path_factory: pytest.TempPathFactory, top: list[str], nested: list[str]) -> None:
    root = tmp_path_factory.mktemp("repo")
    if subprocess.run(["git", "init", "-q", str(root)], capture_output=True).returncode != 0:
        pytest.skip("git is not here")
    (root / ".gitignore").write_text("\n".join(top) + "\n")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / ".gitignore").write_text("\n".join(nested) + "\n")
    paths = [*NAMES, *(f"a/{name}" for name in NAMES), *(f"a/b/{name}" for name in NAMES)]
    folders = {"a", "a/b"}
    asked = subprocess.run(
        ["git", "-c", "core.excludesFile=", "check-ignore", "--no-index", "--stdin"],
        cwd=root, input="\n".join(paths), capture_output=True, text=True,
    ).stdout  # fmt: skip
    by_git = {line.strip('"').replace("\\\\", "\\") for line in asked.splitlines()}
    outer, inner = parse_ignore_file("\n".join(top), str(root)), parse_ignore_file("\n".join(nested), str(root / "a"))

    def ours(path: str) -> bool:
        steps = [path[:i] for i, char in enumerate(path) if char == "/"] + [path]
        for step in steps:
            files = [file for file in (outer, inner if step.startswith("a/") else None) if file]
            if ignored(f"{root}/{step}", step in folders or step != path, files):
                return True
        return False

    assert {path for path in paths if ours(path)} == by_git


def test_links_are_not_followed_into_folders_and_loops_end(tree: Path) -> None:
    write(tree, "real/a.py", "outside/b.py")
    (tree / "real" / "loop").symlink_to("..")
    (tree / "real" / "out").symlink_to("../outside")
    (tree / "real" / "self.py").symlink_to("self.py")
    (tree / "real" / "gone.py").symlink_to("nowhere.py")
    (tree / "entry").symlink_to("real")
    assert found("real") == ["real/a.py"]
    assert found("entry") == ["entry/a.py"]


def test_paths_that_cannot_be_checked_are_problems(tree: Path) -> None:
    write(tree, "note.txt", "n.ipynb", "s.pyi", "ok.py")
    (tree / "loop.py").symlink_to("loop.py")
    os.mkfifo(tree / "pipe.py")
    result = look("missing.py", "nowhere", "note.txt", "n.ipynb", "s.pyi", "loop.py", "pipe.py", "ok.py")
    assert [file.path for file in result.files] == ["n.ipynb", "ok.py"]
    assert len(result.problems) == 6
    problems = "\n".join(result.problems)
    assert "missing.py: no such file or directory" in problems
    assert "note.txt: not a Python file or a notebook" in problems
    assert "pipe.py: is a FIFO, not a regular file" in problems
    assert "loop.py: too many levels of symbolic links" in problems


def test_a_pipe_below_a_folder_is_left_out_with_a_note(tree: Path) -> None:
    write(tree, "a.py")
    os.mkfifo(tree / "pipe.py")
    result = look(".")
    assert [file.path for file in result.files] == ["a.py"]
    assert result.notes == ["pipe.py: is a FIFO, not a regular file"]
    assert result.problems == []


def test_a_script_without_a_suffix_is_python_by_its_first_line(tree: Path) -> None:
    (tree / "train").write_text("#!/usr/bin/env python3\n")
    assert found("train") == ["train"]


def test_a_bad_configuration_below_is_one_problem_and_the_rest_is_found(tree: Path) -> None:
    write(tree, "a.py", "bad/b.py", "bad/deep/c.py")
    (tree / "bad" / "pyproject.toml").write_text("[tool.torchmemlint]\nselct = []\n")
    result = look(".", "bad/b.py")
    assert [file.path for file in result.files] == ["a.py"]
    assert len(result.problems) == 1
    assert "did you mean `select`" in result.problems[0]
