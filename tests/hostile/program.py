"""Runs the program on a hostile folder, under a limit on CPU time: a slow machine fails no test, a loop without end does.

What waits without working (on a FIFO, a lock) spends no CPU time; a wall-clock limit far above any real run ends that.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CPU_SECONDS = 20
"""What one run of the program, with the processes that it starts counted each for itself, may spend."""
BLOCKED_SECONDS = 120
"""What waits so long does nothing: no run of these tests works for longer, however loaded the machine is."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: this one's, without settings of torchmemlint."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TORCHMEMLINT", "FORCE_COLOR"))}
    return {**kept, "PYTHONSAFEPATH": "1", **(more or {})}


def limited() -> None:
    """Called in the child before the program starts."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))


def run(
    arguments: Sequence[str | bytes], cwd: Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs ``python arguments…`` in ``cwd``. Fails where it loops or is blocked, and where it prints a traceback."""
    command = [sys.executable, *arguments]
    given: dict[str, Any] = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    done: subprocess.CompletedProcess[bytes] = subprocess.run(
        command, cwd=cwd, env=environment(env), preexec_fn=limited, capture_output=True, timeout=BLOCKED_SECONDS, **given
    )
    assert done.returncode not in (-signal.SIGXCPU, -signal.SIGKILL), f"more than {CPU_SECONDS} s of CPU time"
    assert b"Traceback" not in done.stdout + done.stderr, done.stderr.decode("utf-8", "replace")
    return done


def lint(
    *arguments: str | bytes, cwd: Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs ``torchmemlint arguments…`` in ``cwd``."""
    return run(["-m", "torchmemlint", *arguments], cwd, stdin, env)
