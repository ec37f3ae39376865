"""Starts one experiment in a fresh process, behind the sandbox, and brings its records home.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchmemlint.errors import UsageError

KEPT_OUTPUT_BYTES = 64 << 10
ENDLESS_OUTPUT_BYTES = 16 << 20
"""A child that has written this much is stopped: nobody reads it."""

IMPORT_SECONDS = 60.0
"""What starting Python and importing torch may take on a busy machine; the time limit of an experiment starts after it."""

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
    sandbox   "namespaces" (with what it lacks, if anything), "audit hook", "none"; "" when it never got so far
    output    the first bytes that it wrote to its standard output and error
    """

    records: tuple[Mapping[str, object], ...]
    ending: str
    sandbox: str
    output: str
    seconds: float


def torch_directory() -> Path:
    """The directory that torch is installed in, found without importing it; UsageError when there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise UsageError("confirm runs the code, so it needs PyTorch: pip install 'torchmemlint[confirm]'")
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
    ours = str(Path(__file__).resolve().parent.parent.parent)
    boot = _BOOT.format(ours=ours, torch=str(torch_directory()), runners=runners)
    work = os.path.realpath(tempfile.mkdtemp(prefix="torchmemlint-"))
    environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    environment |= {
        "HOME": work, "TMPDIR": work, "PATH": os.defpath, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "agg", "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    payload = {
        **job, "work": work, "device": device, "sandbox": sandbox, "readable": [*_readable(), *readable],
        "limits": {"cpu_seconds": int(timeout) + 20, "address_space_bytes": 8 << 30 if device == "cpu" else 0},
    }  # fmt: skip
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", boot],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=work,
            env=environment,
            start_new_session=True,
        )
        return _attend(process, json.dumps(payload).encode(), timeout, started)
    finally:
        shutil.rmtree(work, ignore_errors=True)


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


def _attend(process: subprocess.Popen[bytes], payload: bytes, timeout: float, started: float) -> Ended:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
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
        _kill(process, at_once=bool(ending))
    results.join(1)
    output.join(1)
    status = process.returncode
    if not ending and status:
        ending = _words(status)
    records = _records(bytes(results.kept))
    how = next((printable(record["sandbox"]) for record in records if "sandbox" in record), "")
    text = bytes(output.kept).decode("utf-8", "replace")
    return Ended(tuple(records), ending, how, text, time.monotonic() - started)


def _kill(process: subprocess.Popen[bytes], at_once: bool) -> None:
    """End the child with all that it started; after its pipes closed it has a moment to leave by itself."""
    if not at_once:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
            return
    process.terminate()  # behind the sandbox: the outer process kills the inner one, and with it its PID namespace
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def printable(text: object, limit: int = 300) -> str:
    """What a child said, in one line that a terminal only prints: no escape sequences, no turned direction, no half characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)[: 4 * limit]).split())[:limit]


def _words(status: int) -> str:
    number = -status if status < 0 else status - 128
    if number > 0:
        with contextlib.suppress(ValueError):
            return f"killed by signal {number} ({signal.Signals(number).name})"
    return f"exit status {status}"


def _records(data: bytes) -> list[Mapping[str, object]]:
    records: list[Mapping[str, object]] = []
    for line in data.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # cut off by a crash, or written by the code that ran
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
