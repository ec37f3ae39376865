"""One check of generated files in a process of its own: CPU seconds and the largest resident size, cut off at a limit of CPU time."""

from __future__ import annotations

import inspect
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bounds.shapes import Files


def peak() -> float:
    """The largest resident size of this process, in megabytes; 0 where the system does not say it. What ``wait4`` and ``getrusage``
    report counts what its parent held when it was forked."""
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    except OSError:
        return 0


PROGRAM = f"""
import sys
from torchmemlint.cli import main
{inspect.getsource(peak)}
status = main(sys.argv[1:])
sys.stdout.flush()
print("peak", peak())
sys.exit(status)
"""
"""Prints its peak at the end."""
COMMAND = (
    *(("-P",) if sys.version_info >= (3, 11) else ()),
    "-c",
    PROGRAM,
    "check",
    "--isolated",
    "--exit-zero",
    "--no-cache",
    "-q",
    "-j1",
    "--select",
    "ALL",
    "--preview",
)


@dataclass(frozen=True)
class Cost:
    """``seconds`` of CPU and ``megabytes`` of resident size that a check took; ``done`` False where it was cut off or failed."""

    lines: int
    size: int
    seconds: float
    megabytes: float
    done: bool
    stderr: str = ""


def cost(files: Files, limit: int) -> Cost:
    """Checks the files in a folder of their own, with at most ``limit`` seconds of CPU."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text)
        return cost_of_path(".", folder, sum(text.count("\n") for text in files.values()), sum(map(len, files.values())), limit)


def cost_of_path(path: str, folder: str, lines: int, size: int, limit: int) -> Cost:
    """Checks a path from within a folder, with at most ``limit`` seconds of CPU."""
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, *COMMAND, path],
            cwd=folder,
            stdout=output,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1)),
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        messages = errors.read().decode(errors="replace")
        output.seek(0)
        _, _, own = output.read().decode(errors="replace").rpartition("peak ")
    inherited = usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    done = process.returncode == 0
    return Cost(
        lines=lines,
        size=size,
        seconds=round(usage.ru_utime + usage.ru_stime, 2),
        megabytes=round((done and float(own)) or inherited, 1),
        done=done,
        stderr=messages[-2000:],
    )
