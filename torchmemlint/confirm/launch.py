"""Runs one experiment in a child process behind the sandbox, from its job to its records.

The child gets a new directory that is also its HOME, an environment without anything inherited but the accelerator's own
variables, its job
on standard input, and a time limit; its output is read to the end of a bound. At the limit the whole process group is killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchmemlint.confirm.channel import hear, new_key
from torchmemlint.confirm.warm import Child, Fresh, Worker
from torchmemlint.errors import UsageError

KEPT_OUTPUT_BYTES = 64 << 10
ENDLESS_OUTPUT_BYTES = 16 << 20
"""A child that has written this much is stopped: nobody reads it."""

IMPORT_SECONDS = 60.0
"""What starting Python and importing torch may take on a busy machine; the time limit of an experiment starts after it."""

WALLS = ("namespaces", "landlock")
"""What a child is shut in by: the first of these that the system allows, and if it allows none, it runs nothing."""

SPARE_BYTES = 64 << 20
"""What a process may hold in tensors above the growth that the kernel saw: memory that it had before, for other things."""

stopping = threading.Event()
"""Set to end all children of this process at once."""

PASSED_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL",
)  # fmt: skip

# the child's torchmemlint is the parent's, whatever other one the interpreter would find; torch comes last, so that what
# lies beside it hides nothing
_BOOT = (
    "import sys; sys.path.insert(0, {ours!r}); import torchmemlint; del sys.path[0]; sys.path.append({torch!r}); "
    "from torchmemlint.confirm.worker.main import main; main({runners!r})"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended.

    records   what it reported, in order, as far as it came
    ending    "" when it finished, else why not: "time limit", "killed by signal 11 (SIGSEGV)", "exit status 3", "endless
              output"
    sandbox   "namespaces" or "landlock" (with what it lacks, if anything), "none"; "" when it never got so far
    output    the first bytes that it wrote to its standard output and error
    forged    why its records cannot be believed, "" where they can
    refused   why it ran nothing: no sandbox could be had; "" else
    """

    records: tuple[Mapping[str, object], ...]
    ending: str
    sandbox: str
    output: str
    seconds: float
    forged: str = ""
    refused: str = ""


def torch_directory() -> Path:
    """The directory that torch is installed in, found without importing it; UsageError when there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise UsageError("this command runs code, so it needs PyTorch: pip install torch")
    return Path(spec.origin).parent.parent


def _readable() -> list[str]:
    """Directories that the child must see: the interpreter, its libraries, torch, this package."""
    packages = [path for path in sys.path if path.endswith((".zip", "site-packages", "dist-packages"))]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    package = Path(__file__).resolve().parent.parent
    torch = torch_directory()
    named = [
        sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *packages, str(torch), str(torch / "torch"), *libraries,
    ]  # fmt: skip
    return [str(package), *(path for path in dict.fromkeys(named) if path and os.path.exists(path))]


EXPERIMENTS = "torchmemlint.confirm.worker.experiments"


def launch(
    job: Mapping[str, object],
    timeout: float,
    sandbox: bool = True,
    device: str = "cpu",
    *,
    runners: str = EXPERIMENTS,
    readable: Sequence[str] = (),
) -> Ended:
    """Run ``job`` (JSON-able) in a child and wait for it, ``timeout`` seconds at most. ``runners`` is the module whose
    ``RUNNERS`` has the job's; ``readable`` are directories that it may read beside those that Python needs."""
    boot = _booted(_BOOT, runners)
    work = os.path.realpath(tempfile.mkdtemp(prefix="torchmemlint-"))
    environment = _environment()
    key = new_key()
    payload = {
        **job, "key": key, "work": work, "device": device, "walls": WALLS if sandbox else (),
        "readable": [*_readable(), *readable],
        "limits": {"cpu_seconds": int(timeout) + 20, "address_space_bytes": 8 << 30 if device == "cpu" else 0},
    }  # fmt: skip
    started = time.monotonic()
    try:
        worker = _workers.get(runners) if sandbox and device == "cpu" else None
        child: Child | None = worker.start(work) if worker is not None else None
        if child is None:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", boot],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=work,
                env={**environment, "HOME": work, "TMPDIR": work},
                start_new_session=True,
            )
            child = Fresh(process)
        return _attend(child, json.dumps(payload).encode(), key, timeout, started)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _booted(boot: str, runners: str) -> str:
    ours = str(Path(__file__).resolve().parent.parent.parent)
    return boot.format(ours=ours, torch=str(torch_directory()), runners=runners)


def _environment() -> dict[str, str]:
    """All that a child inherits, but its HOME."""
    return {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ} | {
        "PATH": os.defpath, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "agg", "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip


_workers: dict[str, Worker] = {}
"""By their runners: what forks the children of this process, where that was wanted."""

_BOOT_WARM = (
    "import sys; sys.path.insert(0, {ours!r}); import torchmemlint; del sys.path[0]; sys.path.append({torch!r}); "
    "from torchmemlint.confirm.worker.main import main; from torchmemlint.confirm.worker.warm import serve; "
    "serve({{descriptor}}, {runners!r}, main)"
)


@contextlib.contextmanager
def warmed(runners: str = EXPERIMENTS) -> Iterator[None]:
    """While this is entered, children with these runners that run on the CPU behind a sandbox are forked from one process that has
    torch and them."""
    if runners in _workers or not sys.platform.startswith("linux"):
        yield
        return
    _workers[runners] = Worker(_booted(_BOOT_WARM, runners), _environment())
    try:
        yield
    finally:
        _workers.pop(runners).close()


class _Reader(threading.Thread):
    """Reads a pipe to its end, keeps the beginning, and calls ``full`` when there is no end to it."""

    def __init__(self, pipe: IO[bytes], keep: int, full: threading.Event) -> None:
        super().__init__(daemon=True)
        self._pipe, self._keep, self._full = pipe, keep, full
        self.kept = bytearray()
        self.start()

    def run(self) -> None:
        count = 0
        while chunk := self._pipe.read1(1 << 16):  # type: ignore[attr-defined]
            count += len(chunk)
            if len(self.kept) < self._keep:
                self.kept += chunk[: self._keep - len(self.kept)]
            if count > ENDLESS_OUTPUT_BYTES:
                self._full.set()


def _attend(process: Child, payload: bytes, key: str, timeout: float, started: float) -> Ended:
    endless = threading.Event()
    results = _Reader(process.stdout, ENDLESS_OUTPUT_BYTES, endless)
    output = _Reader(process.stderr, KEPT_OUTPUT_BYTES, endless)
    ending, begun = "", 0.0
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(payload)
            process.stdin.close()
        while results.is_alive() or output.is_alive():
            results.join(0.02)
            if stopping.is_set():
                ending = "stopped"
            elif endless.is_set():
                ending = "endless output"
            elif time.monotonic() - started > IMPORT_SECONDS + timeout or (begun and time.monotonic() - begun > timeout):
                ending = "time limit"
            elif not begun and b'"torch"' in results.kept:
                begun = time.monotonic()
            if ending:
                break
    finally:
        resident = _kill(process, at_once=bool(ending))
    results.join(1)
    output.join(1)
    answers = hear(bytes(results.kept), key)
    status = process.returncode
    if not ending and status:
        ending = _words(status)
    elif not ending and answers.records and not answers.finished:
        ending = "the code ended its process before the end of the experiment"
    how, refused = (
        next((printable(record[name]) for record in answers.records if name in record), "") for name in ("sandbox", "refused")
    )
    text = bytes(output.kept).decode("utf-8", "replace")
    forged = printable(answers.forged) or _impossible(answers.records, resident)
    return Ended(answers.records, ending, how, text, time.monotonic() - started, forged, refused)


def _impossible(records: Sequence[Mapping[str, object]], resident: int) -> str:
    """Whether a child says that it held more than the kernel ever saw in it, ``resident`` bytes (0: not known)."""
    before = next((record["resident"] for record in records if isinstance(record.get("resident"), int)), 0)
    assert isinstance(before, int)
    if not before or not resident:
        return ""
    for record in records:
        run = record.get("run")
        if isinstance(run, dict) and run.get("device") == "cpu":
            series = run.get("live_bytes")
            claimed = [run.get("peak_bytes"), *(series if isinstance(series, list) else ())]
            most = max((item for item in claimed if isinstance(item, int)), default=0)
            if most > max(0, resident - before) + SPARE_BYTES:
                return f"{most} bytes are reported as held; the process grew by {max(0, resident - before)}"
    return ""


def _kill(child: Child, at_once: bool) -> int:
    """End the child with all that it started, and return the most memory that a process of it ever had (0: not known); after its
    pipes closed it has a moment to leave by itself."""
    most = None if at_once else child.reap(2)
    if most is None:
        child.send(signal.SIGTERM)  # behind the sandbox: the outer process kills the inner one, and with it its PID namespace
        most = child.reap(1)
        child.send(_KILL, group=True)
    while most is None:
        child.send(_KILL)
        most = child.reap(1)
    return most


_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no other


def printable(text: object, limit: int = 300) -> str:
    """The output of a child, in one line that a terminal only prints: no escape sequences, no turned direction, no half characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)[: 4 * limit]).split())[:limit]


def _words(status: int) -> str:
    number = -status if status < 0 else status - 128
    if number > 0:
        with contextlib.suppress(ValueError):
            return f"killed by signal {number} ({signal.Signals(number).name})"
    return f"exit status {status}"
