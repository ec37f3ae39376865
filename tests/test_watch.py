"""``--watch``: again at every change, and gone with Ctrl-C."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from torchmemlint import cli

TRAIN = """import torch

def train(model, loader):
    total = 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        total += loss
    return total
"""


class Watched:
    """A running ``torchmemlint --watch``, and what it has printed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "torchmemlint", "--watch", "--output-format=concise", *arguments]
        # A job that a shell runs in the background ignores the signal, and so would the process: it gets its default back.
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler),
        )
        self.rounds: list[str] = [""]
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("Watching for changes"):
                self.rounds.append("")
            else:
                self.rounds[-1] += line

    def round(self, number: int) -> str:
        end = time.monotonic() + 60
        while len(self.rounds) <= number and time.monotonic() < end:
            time.sleep(0.05)
        return self.rounds[number - 1]

    def end(self) -> int:
        """Stops it as Ctrl-C does, and leaves no process behind if that does not work."""
        try:
            self.process.send_signal(signal.SIGINT)
            return self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.mark.slow
def test_again_at_every_change(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TRAIN)
    watched = Watched(tmp_path)
    try:
        assert "a.py:8:9: TML101" in watched.round(1)
        (tmp_path / "a.py").write_text(TRAIN.replace("+= loss", "+= loss.item()"))
        assert watched.round(2) == "All checks passed!\n"
        (tmp_path / "b.py").write_text(TRAIN)
        assert "b.py:8:9: TML101" in watched.round(3)
        (tmp_path / "pyproject.toml").write_text('[tool.torchmemlint]\nignore = ["TML101"]\n')
        assert watched.round(4) == "All checks passed!\n"
        (tmp_path / "pyproject.toml").write_text("[tool.torchmemlint]\nignore = 3\n")
        assert "must be a list" in watched.round(5)
        (tmp_path / "pyproject.toml").unlink()
        assert "b.py:8:9: TML101" in watched.round(6)
        os.remove(tmp_path / "b.py")
        assert watched.round(7) == "All checks passed!\n"
    finally:
        code = watched.end()
    assert code == 130
    assert len(watched.rounds) == 8, "nothing changed, and it was checked all the same"


@pytest.mark.parametrize("option", ["--fix", "--diff", "--write-baseline", "--add-ignore", "--show-files", "-"])
def test_what_is_done_once_is_not_watched(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--watch", option]) == 2
    assert capsys.readouterr().err.startswith("torchmemlint: error: --watch ")
