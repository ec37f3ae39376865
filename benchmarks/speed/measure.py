"""One program run over one folder: CPU seconds, wall seconds, largest resident size."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """``cpu`` and ``wall`` in seconds, of the process and all its children; ``megabytes`` of the largest of them."""

    cpu: float
    wall: float
    megabytes: int


def cost_of(command: Sequence[str], folder: Path, best_of: int = 1) -> Cost:
    """What a command costs that is run in a folder: the least CPU time of several tries. Its findings and exit status 1 are its
    own affair; raises RuntimeError where it cannot do its work."""
    return min((_once(command, folder) for _ in range(best_of)), key=lambda cost: cost.cpu)


def _once(command: Sequence[str], folder: Path) -> Cost:
    begun = time.monotonic()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        complaint = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}\n{complaint[-2000:]}")
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - begun, used.ru_maxrss // 1024)


PARSE = """
import ast, pathlib, sys, warnings
warnings.simplefilter("ignore")
lines = files = 0
for path in sorted(pathlib.Path(".").rglob("*.py")):
    data = path.read_bytes()
    try:
        ast.parse(data)
    except (SyntaxError, ValueError):
        continue
    files += 1
    lines += data.count(b"\\n")
print(files, lines, file=sys.stderr)
"""
"""The yardstick: ``ast.parse`` of every file, nothing else."""


def size_of(folder: Path) -> tuple[int, int]:
    """Files that parse, and their lines."""
    done = subprocess.run([sys.executable, "-c", PARSE], cwd=folder, capture_output=True, text=True, check=True)
    files, lines = done.stderr.split()
    return int(files), int(lines)
