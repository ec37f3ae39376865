"""Names of files that look like options, and modules in the current folder: nothing of the checkout is switched on or run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.program import environment, lint, run

MISTAKE = """#!/usr/bin/env python3
import torch


def train(model, loader):
    total = 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        total += loss
    return total
"""
NAMES = (
    "--executor=evil:x.py", "--fix", "--fix.py", "--unsafe-fixes", "--fi", "-j1.py", "-h", "--help", "--version", "-V", "-",
    "--output-file=sarif=x.py", "--config=evil.toml.py", "--cache-dir=x.py", "--write-baseline", "--baseline=x.py",
    "--add-ignore=x.py", "--add-noqa", "--exit-zero", "--isolated", "--select", "--since=HEAD.py", "--watch", "-q.py", "-x y.py",
    "--no-sandbox", "--snapshots=x.py", "--stdin-filename=x.py", "@list.py", "@@list.py", "@", "--ext\x1b[2Jra\nline.py",
    "--\N{LATIN SMALL LETTER E WITH ACUTE}.py",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``ran`` appears when ``evil`` is imported."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nx = None\n")
    (tmp_path / "list.py").write_text("--fix\n--executor=evil:x\nevil.py\n")
    return tmp_path


def untouched(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_called_as_an_option_is(folder: Path, name: str) -> None:
    (folder / name).write_text(MISTAKE)
    before = untouched(folder)
    refused = lint(name, "evil.py", cwd=folder)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr.startswith(b"torchmemlint: error: ")
    assert refused.stderr.count(b"\n") == 1
    assert b"\x1b" not in refused.stderr
    asked = ("--no-cache", "--output-format=concise")
    for words in (("--", name), (f"./{name}",)):
        found = lint(*asked, *words, cwd=folder)
        assert found.returncode == 1, found.stderr
        assert b"TML101" in found.stdout
    assert untouched(folder) == before


@pytest.mark.parametrize("command", ["check", "confirm", "oom", "merge", "trace", "clean", "server", "rule", "completion"])
@pytest.mark.parametrize("name", ["--no-sandbox", "-h", "--cache-dir=x", "-o=json=x.json", "--output-file=x.html", "@list.py"])
def test_of_other_commands(folder: Path, command: str, name: str) -> None:
    (folder / name).write_text("{}")
    before = untouched(folder)
    from torchmemlint.cli import main

    here = os.getcwd()
    os.chdir(folder)
    try:
        assert main([command, name]) == 2
        assert main([command, f"{name}:1"]) == 2  # as FILE:LINE
    finally:
        os.chdir(here)
    assert untouched(folder) == before


@pytest.mark.slow
def test_all_of_a_folder(folder: Path) -> None:
    """``torchmemlint *`` with all of them, and with ``--`` before."""
    for name in NAMES:
        (folder / name).write_text(MISTAKE)
    before = untouched(folder)
    names = sorted(os.listdir(folder))
    assert lint(*names, cwd=folder).returncode == 2
    found = lint("--no-cache", "--output-format=json-lines", "--", *names, cwd=folder)
    assert found.returncode == 1
    assert found.stdout.count(b"TML101") >= len(NAMES)
    assert untouched(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_path_that_is_called_as_the_command_that_runs_code(folder: Path, kind: str) -> None:
    (folder / "train.py").write_text(MISTAKE)
    if kind == "file":
        (folder / "confirm").write_text(MISTAKE)
    else:
        (folder / "confirm").mkdir()
    done = lint("confirm", "train.py", cwd=folder)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"confirm` runs code, but a file or folder here has that name" in done.stderr
    assert lint("--no-cache", "--", "confirm", "train.py", cwd=folder).returncode == 1


@pytest.mark.slow
def test_lines_of_a_list_are_paths(folder: Path) -> None:
    (folder / "train.py").write_text(MISTAKE)
    (folder / "--exit-zero").write_text(MISTAKE)
    (folder / "paths").write_bytes(b"train.py\r\n\n--exit-zero\n@list.py\n")
    (folder / "@list.py").write_text(MISTAKE)
    done = lint("--no-cache", "--output-format=concise", "@./paths", cwd=folder)
    assert done.returncode == 1
    assert [line.split(b":")[0] for line in done.stdout.splitlines()[:3]] == [b"--exit-zero", b"@list.py", b"train.py"]
    (folder / "paths").write_bytes(b"--executor=evil:x\n--fix\n--version\n-h\n--\n-\n")
    done = lint("--no-cache", "@paths", cwd=folder)
    assert done.returncode == 2
    assert b"--executor=evil:x" in done.stderr
    assert not (folder / "ran").exists()
    (folder / "paths").write_bytes(b"a\0b\n")
    assert lint("@paths", cwd=folder).stderr == b"torchmemlint: error: @paths: has null bytes; write one path per line\n"
    assert lint("@gone", cwd=folder).stderr == b"torchmemlint: error: @gone: cannot be read: No such file or directory\n"


@pytest.mark.slow
def test_behind_the_dashes_a_list_is_a_file(folder: Path) -> None:
    (folder / "@list.py").write_text(MISTAKE)
    done = lint("--no-cache", "--output-format=concise", "--", "@list.py", cwd=folder)
    assert (done.returncode, done.stdout.split(b":")[0]) == (1, b"@list.py")


@pytest.mark.parametrize("command", [[], ["confirm"]])
def test_an_executor_is_no_option(folder: Path, command: list[str]) -> None:
    done = lint(*command, "--executor=evil:x", "evil.py", cwd=folder)
    assert done.returncode == 2
    assert b"--executor" in done.stderr
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("key", ["executor", "cache-dir", "output-file", "plugins", "hooks", "command", "confirm"])
def test_no_key_of_a_configuration_names_code_or_a_place_to_write(folder: Path, key: str) -> None:
    (folder / "torchmemlint.toml").write_text(f'{key} = "evil:x"\n')
    done = lint(".", cwd=folder)
    assert done.returncode == 2
    assert b"unknown key" in done.stderr
    assert not (folder / "ran").exists()


def test_the_executor_is_not_looked_for_in_the_current_folder(folder: Path) -> None:
    for start in ({}, {"PYTHONSAFEPATH": ""}):
        done = lint(".", cwd=folder, env={"TORCHMEMLINT_EXECUTOR": "evil:x", **start})
        assert done.returncode == 2
        assert b"No module named 'evil'" in done.stderr
    assert not (folder / "ran").exists()


# --- modules in the current folder ----------------------------------------------------------------------------------

BEFORE_US = ("importlib", "warnings", "contextlib", "collections", "keyword", "operator", "reprlib", "functools", "types", "runpy",
             "pkgutil", "zipimport", "site", "os", "io", "abc", "codecs", "stat", "encodings", "linecache", "traceback")  # fmt: skip
"""What some Python imports itself to find the module of ``-m``."""
OURS = ("libcst", "tomli", "torch", "pygls", "lsprotocol", "distributed", "flake8", "numpy", "yaml")


@pytest.fixture
def shadows(tmp_path: Path) -> Path:
    """A folder with a module of every name that torchmemlint could import."""
    code = f"import os\nopen({str(tmp_path / 'ran')!r}, 'a').write(__name__ + '\\n')\n"
    folder = tmp_path / "shadows"
    folder.mkdir()
    for name in {*sys.stdlib_module_names, *OURS} - {*BEFORE_US}:
        if name in OURS:
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(code)
        else:
            (folder / f"{name}.py").write_text(code)
    for number in range(4):
        (folder / f"train{number}.py").write_text(MISTAKE + "\n" * number)
    return folder


COMMANDS: dict[str, tuple[tuple[str, ...], set[int]]] = {
    "check": (("--no-cache", "train0.py"), {1}),
    "several processes": (("--no-cache", "-j2", "."), {1, 2}),
    "fix": (("--no-cache", "--diff", "--unsafe-fixes", "train1.py"), {1}),
    "report": (("--no-cache", "--output-file=../r.sarif", "--output-file=../r.xml", "train0.py"), {1}),
    "since": (("--since=HEAD", "train0.py"), {2}),
    "trace": (("trace", "train0.py:10"), {0}),
    "oom": (("oom", "train0.py"), {1}),
    "server": (("server",), {0, 2}),
    "completion": (("completion", "bash"), {0}),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_modules_of_the_linted_folder_are_not_imported(shadows: Path, command: str) -> None:
    arguments, expected = COMMANDS[command]
    done = lint(*arguments, cwd=shadows, stdin=b"", env={"PYTHONSAFEPATH": ""})
    assert done.returncode in expected, done.stderr.decode()
    assert not (shadows.parent / "ran").exists(), (shadows.parent / "ran").read_text()


@pytest.mark.slow
def test_confirm_imports_nothing_of_the_linted_folder(shadows: Path) -> None:
    pytest.importorskip("torch")
    arguments = ["-m", "torchmemlint", "confirm", "train0.py:10", "--timeout=300"]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=shadows, capture_output=True, env=environment({"PYTHONSAFEPATH": ""}), timeout=600
    )
    assert b"confirmed" in done.stdout, done.stderr.decode()
    assert not (shadows.parent / "ran").exists(), (shadows.parent / "ran").read_text()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no safe path: see SECURITY.md")
def test_processes_that_are_spawned(shadows: Path) -> None:
    """As on macOS and Windows: the children of ``multiprocessing`` start with ``-c``, which has the current folder first."""
    code = (
        "import sys, threading, time\n"
        "from torchmemlint.processes.pool import run_all\n"
        "if __name__ == '__main__':\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "    print(run_all(max, 'a', ['b', 'c', 'd'], 2, lambda name, why: f'lost {name}: {why}'))\n"
    )
    (shadows.parent / "go.py").write_text(code)
    done = run([str(shadows.parent / "go.py")], shadows, env={"PYTHONSAFEPATH": ""})
    assert done.stdout == b"['b', 'c', 'd']\n", done.stderr.decode()
    assert not (shadows.parent / "ran").exists(), (shadows.parent / "ran").read_text()


def test_torchmemlint_s_own_folder_is_left_in_the_path() -> None:
    """Developers run it from its folder."""
    root = Path(__file__).parent.parent.parent
    done = run(
        ["-S", "-c", "import sys, runpy; sys.argv = ['x', '--version']; sys.path.insert(0, ''); import torchmemlint"], root
    )
    assert done.returncode == 0
    done = run(["-m", "torchmemlint", "--version"], root, env={"PYTHONSAFEPATH": ""})
    assert done.stdout.startswith(b"torchmemlint ")
