"""The parent's side of the warm worker: a process with torch in it, which forks one child for each experiment.

It is an economy and nothing else: where it cannot be had (another system than Linux, a GPU, no sandbox), or fails, each experiment
gets a fresh process, as it does alone. What a child is shut in by, what it is sent and what is believed of it is the same.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Protocol

START_SECONDS = 60.0
ANSWER_SECONDS = 10.0


class Child(Protocol):
    """A child that an experiment runs in."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    returncode: int | None

    def reap(self, seconds: float) -> int | None:
        """Wait so long for its end: the most memory that it had, as the kernel says (0: not known); None while it runs on."""

    def send(self, number: int, group: bool = False) -> None:
        """Send it a signal, or to all of its process group; nothing where it has ended."""


class Fresh:
    """A process of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._process = process
        self.returncode: int | None = None

    def reap(self, seconds: float) -> int | None:
        """See ``Child``."""
        if not hasattr(os, "wait4"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.returncode = self._process.wait(seconds)
                return 0
            return None
        until = time.monotonic() + seconds
        while True:
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                self.returncode = self._process.returncode = os.waitstatus_to_exitcode(status)
                return usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss << 10
            if time.monotonic() > until:
                return None
            time.sleep(0.005)

    def send(self, number: int, group: bool = False) -> None:
        """See ``Child``."""
        if not hasattr(os, "wait4"):
            self._process.kill()
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.killpg if group else os.kill)(self._process.pid, number)


class Forked:
    """A copy of the warm worker."""

    def __init__(self, worker: Worker, number: int, pipes: Sequence[int]) -> None:
        self._worker, self._number = worker, number
        self.stdin: IO[bytes] = os.fdopen(pipes[0], "wb")
        self.stdout: IO[bytes] = os.fdopen(pipes[1], "rb")
        self.stderr: IO[bytes] = os.fdopen(pipes[2], "rb")
        self.returncode: int | None = None

    def reap(self, seconds: float) -> int | None:
        """See ``Child``."""
        ended = self._worker.awaited("ended", self._number, seconds)
        if ended is None:
            return None
        status, resident = ended.get("status"), ended.get("resident")
        self.returncode = status if isinstance(status, int) else -signal.SIGKILL
        return resident if isinstance(resident, int) else 0

    def send(self, number: int, group: bool = False) -> None:
        """See ``Child``: the worker, which has not reaped it, knows that the process is still this one."""
        self._worker.order({"end": self._number, "signal": number, "group": group})


class Worker:
    """The warm process. ``start`` may be called from any thread."""

    def __init__(self, boot: str, environment: Mapping[str, str]) -> None:
        self._place = os.path.realpath(tempfile.mkdtemp(prefix="torchmemlint-"))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", boot.format(descriptor=theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._place,
                env={**environment, "HOME": self._place, "TMPDIR": self._place}, start_new_session=True, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        self._said: dict[tuple[str, int], Mapping[str, object]] = {}
        self._changed = threading.Condition()
        self._gone = False
        self._next = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                data = self._control.recv(4096)
            except OSError:
                data = b""
            with self._changed:
                if not data:
                    self._gone = True
                    self._changed.notify_all()
                    return
                answer = json.loads(data)
                word = next(iter(answer))
                self._said[word, 0 if word == "ready" else int(answer[word])] = answer
                self._changed.notify_all()

    def awaited(self, word: str, number: int, seconds: float) -> Mapping[str, object] | None:
        """What the worker says of a child within so many seconds; of a worker that is gone, that its children are."""
        with self._changed:
            self._changed.wait_for(lambda: (word, number) in self._said or self._gone, seconds)
            if self._gone and (word, number) not in self._said:
                return {"status": -signal.SIGKILL, "failed": "the worker ended"}
            return self._said.get((word, number))

    def order(self, order: Mapping[str, object], descriptors: Sequence[int] = ()) -> bool:
        """Send an order; False where nobody hears it."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            self._control.sendmsg([json.dumps(order).encode()], rights)
        except OSError:
            return False
        return True

    def start(self, work: str) -> Forked | None:
        """A child that reads its job from its standard input, in the directory ``work``; None where there can be none."""
        ready = self.awaited("ready", 0, START_SECONDS)
        if ready is None or "failed" in ready:
            return None
        with self._changed:
            self._next += 1
            number = self._next
        pipes = [os.pipe() for _ in range(3)]
        theirs, ours = [pipes[0][0], pipes[1][1], pipes[2][1]], [pipes[0][1], pipes[1][0], pipes[2][0]]
        sent = self.order({"start": number, "work": work}, theirs)
        for descriptor in theirs:
            os.close(descriptor)
        answer = self.awaited("started", number, ANSWER_SECONDS) if sent else None
        if answer is None or "failed" in answer:
            for descriptor in ours:
                os.close(descriptor)
            return None
        return Forked(self, number, ours)

    def close(self) -> None:
        """End the worker, and with it whatever it forked."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._place, ignore_errors=True)
