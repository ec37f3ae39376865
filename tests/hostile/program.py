"""Runs the program on a hostile folder, under a limit on CPU time: a slow machine fails no test, a loop without end does.

What waits without working (on a FIFO, a lock) spends no CPU time; a wall-clock limit far above any real run ends that.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import forked

CPU_SECONDS = 20
"""What one run of the program, with the processes that it starts counted each for itself, may spend."""
BLOCKED_SECONDS = 120
"""What waits so long does nothing: no run of these tests works for longer, however loaded the machine is."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: this one's, without settings of torchmemlint."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TORCHMEMLINT", "FORCE_COLOR"))}
    return {**kept, "PYTHONSAFEPATH": "1", **(more or {})}


def run(
    arguments: Sequence[str | bytes], cwd: Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs ``python arguments…`` in ``cwd``. Fails where it loops or is blocked, and where it prints a traceback."""
    done = forked.run(arguments, cwd, stdin=stdin, env=environment(env), cpu_seconds=CPU_SECONDS, timeout=BLOCKED_SECONDS)
    assert done.returncode not in (-signal.SIGXCPU, -signal.SIGKILL), f"more than {CPU_SECONDS} s of CPU time"
    assert b"Traceback" not in done.stdout + done.stderr, done.stderr.decode("utf-8", "replace")
    return done


def lint(
    *arguments: str | bytes, cwd: Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs ``torchmemlint arguments…`` in ``cwd``."""
    return run(["-m", "torchmemlint", *arguments], cwd, stdin, env)
