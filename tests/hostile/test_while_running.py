"""A file changes or goes while it is looked at: that is an error of this file alone, and nothing is believed of two texts at once.

The moment is chosen by counting: an audit hook, set before the program starts, hears of each file that Python opens.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hostile.program import lint, run

LEAK = """import torch

def train(model: torch.nn.Module, loader, optimizer, criterion):
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss
    return total
"""
SHIFTED = "# one more row\n" * 5 + LEAK.replace("total", "sum_of_losses").replace("loss = ", "the_loss = ")
OTHER = LEAK.replace("def train", "def fit")

HOOK = """
import os, sys
name, number, content = {name!r}, {number!r}, {content!r}
seen = 0
def hook(event, arguments):
    global seen
    if event == "open" and isinstance(arguments[0], str) and os.path.basename(arguments[0]) == name and seen >= 0:
        seen += 1
        if seen == number:
            seen = -1
            if content is None:
                os.unlink(name)
            else:
                with open(name + ".new", "w") as file:
                    file.write(content)
                os.replace(name + ".new", name)
sys.addaudithook(hook)
sys.argv = ["torchmemlint", *sys.argv[1:]]
from torchmemlint.cli import program
program()
"""


def meddled(*arguments: str, cwd: Path, name: str, number: int, content: str | None) -> subprocess.CompletedProcess[bytes]:
    """Runs the program; just before the file ``name`` is opened for the ``number``-th time, it is written again, or goes."""
    return run(["-c", HOOK.format(name=name, number=number, content=content), *arguments], cwd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "changing.py").write_text(LEAK)
    (tmp_path / "quiet.py").write_text(OTHER)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, SHIFTED], ids=["gone", "another"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("arguments", [("-j1",), ("-j2", "--no-cache")])
def test_a_file_that_changes_while_it_is_checked(
    folder: Path, arguments: tuple[str, ...], number: int, content: str | None
) -> None:
    done = meddled(*arguments, "--output-format", "concise", cwd=folder, name="changing.py", number=number, content=content)
    out = done.stdout.decode()
    assert b"please report" not in done.stdout + done.stderr
    assert "quiet.py:10:9: TML101" in out
    assert done.returncode == 1
    again = lint(*arguments, "--output-format", "concise", cwd=folder)
    fresh = lint(*arguments, "--output-format", "concise", "--no-cache", cwd=folder)
    assert again.stdout == fresh.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("number", "content"), [(2, SHIFTED), (3, SHIFTED), (3, None), (4, SHIFTED)])
@pytest.mark.parametrize("option", ["--fix", "--add-noqa"])
def test_what_is_written_was_made_of_what_was_there(folder: Path, option: str, number: int, content: str | None) -> None:
    done = meddled("--unsafe-fixes", option, cwd=folder, name="changing.py", number=number, content=content)
    assert b"please report" not in done.stdout + done.stderr
    assert [path.name for path in folder.iterdir() if path.suffix != ".py"] == []
    written = (folder / "changing.py").read_text() if (folder / "changing.py").exists() else None
    assert (folder / "quiet.py").read_text() != OTHER
    possible: list[str | None] = [content]
    for before in (LEAK, content or ""):
        (folder / "changing.py").write_text(before)
        (folder / "quiet.py").write_text(OTHER)
        lint("--unsafe-fixes", option, cwd=folder)
        possible.append((folder / "changing.py").read_text())
    assert written in possible


@pytest.mark.slow
@pytest.mark.parametrize(("number", "content"), [(2, None), (2, "{}")])
def test_a_baseline_that_changes_is_not_written_over(folder: Path, number: int, content: str | None) -> None:
    assert lint("--write-baseline", cwd=folder).returncode == 0
    (folder / "changing.py").write_text("import torch\n")
    name = ".torchmemlint-baseline.json"
    done = meddled("--prune-baseline", cwd=folder, name=name, number=number, content=content)
    assert b"please report" not in done.stderr
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert ((folder / name).read_text() if (folder / name).exists() else None) == content


def test_the_current_folder_goes(folder: Path) -> None:
    gone = folder / "gone"
    gone.mkdir()
    code = "import os; os.rmdir('../gone'); from torchmemlint.cli import program; program()"
    done = run(["-c", code], gone)
    assert (done.returncode, done.stderr) == (2, b"torchmemlint: error: the current folder is gone\n")
