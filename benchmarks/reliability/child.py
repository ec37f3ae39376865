"""The program in a process of its own, forked from this one: what it printed, and how it ended. A crash of the interpreter, or a loop
without end, is a result like any other."""

from __future__ import annotations

import atexit
import io
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torchmemlint.project import neighbours

CPU_SECONDS = 30
WAIT_SECONDS = 300
"""What waits so long, waits for ever, however loaded the machine is."""


@dataclass(frozen=True, slots=True)
class Done:
    """``status`` is negative where a signal ended it; ``left`` are processes that it left behind."""

    status: int
    out: str
    err: str
    left: int = 0

    @property
    def wrong(self) -> list[str]:
        """What no run may do."""
        found = []
        if self.status not in (0, 1, 2):
            found.append(f"ended with {self.status}")
        if "Traceback" in self.err or "internal error" in self.err + self.out or "TML001" in self.out:
            found.append(f"internal error: {' / '.join(self.err.strip().splitlines()[-3:])[-300:]}")
        if self.status == 2 and not self.err.strip():
            found.append("ended with 2 and said nothing")
        if self.left:
            found.append(f"left {self.left} processes")
        return found


def run(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    prepare: Callable[[], None] = lambda: None,
    kill_after: float | None = None,
    stdin: bytes = b"",
) -> Done:
    """Runs ``torchmemlint arguments…`` in a folder. ``prepare`` is called in the child; ``kill_after`` so many seconds it is killed."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        child = os.fork()
        if child == 0:
            _be(arguments, folder, environment, prepare, (given.fileno(), out.fileno(), err.fileno()))
        status = _status(child, kill_after)
        left = _left_behind(child)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    return Done(status, texts[0], texts[1], left)


def _be(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], prepare: Callable[[], None], streams: Sequence[int]
) -> None:
    status = 70
    try:
        from torchmemlint.cli import program

        os.setpgid(0, 0)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        raw = [io.BufferedWriter(io.FileIO(number, "w", closefd=False)) for number in (1, 2)]
        texts = [io.TextIOWrapper(one, "utf-8") for one in raw]  # kept: the program makes others of what is in them
        sys.stdout, sys.stderr = texts
        os.chdir(folder)
        for name in [one for one in os.environ if one.startswith(("TORCHMEMLINT", "XDG_CACHE"))]:
            del os.environ[name]
        os.environ.update(environment)
        sys.argv = ["torchmemlint", *arguments]
        neighbours.forget()
        atexit._clear()  # what this process has to do at its end is not the child's to do
        prepare()
        program()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        with suppress(OSError):
            sys.stderr.flush()
    os._exit(status)


def _status(child: int, kill_after: float | None) -> int:
    began = time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        passed = time.monotonic() - began
        if kill_after is not None and passed >= kill_after:
            os.kill(child, signal.SIGKILL)
            kill_after = None
        if passed > WAIT_SECONDS:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.002 if kill_after is None else min(0.002, max(0.0, kill_after - passed)))


def _left_behind(group: int) -> int:
    """Processes of the group that live on, after a moment in which they may end; then they are killed."""
    for _ in range(500):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return 0
        if not (alive := _alive(group)):
            return 0
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    return alive


def _alive(group: int) -> int:
    """Processes of a group that are no zombies."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, ValueError, IndexError):
            state, _, own = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:3]
            count += int(own) == group and state not in "ZX"
    return count


def silenced(work: Callable[[], object]) -> None:
    """Does something here, so that all that is imported for it is there in every child."""
    before = sys.stdout, sys.stderr, os.getcwd()
    sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    try:
        with suppress(SystemExit):
            work()
    finally:
        sys.stdout, sys.stderr, folder = before
        os.chdir(folder)
