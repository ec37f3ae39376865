"""``python -m torchmemlint`` as a process of its own, without the start of one: a copy of a process that has loaded the program.

A start of Python that loads the program takes 0.7 s of CPU, a copy 0.05 s. A copy has its own arguments, environment, folder, standard
streams and limits, reads and writes as any process, and ends by the program's own end. What it cannot show is the start itself: what
is imported and from where, and what Python reads from its environment. A run that gives variables to Python itself is therefore a
fresh process, and so is every run where processes cannot be forked.

``growth`` is the same for ``torchmemlint run``, whose process becomes that of a program with torch, and ``script`` for a file that imports
torch: the copied process has loaded torch, which takes three seconds, and nothing else that the program would not have loaded: what torch
loads for the first optimizer, three seconds more and as many objects again, where a test says that its programs have one.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Done = subprocess.CompletedProcess
LONGEST = 1 << 20
"""Bytes of an order at most: arguments and environment."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""What another thread holds, a copy waits for without end."""


def run(
    arguments: Sequence[str | bytes],
    cwd: Path,
    *,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cpu_seconds: int = 0,
    timeout: float = 120,
    first: str = "",
) -> Done[bytes]:
    """``python arguments…`` in ``cwd``, where the first argument is ``-m``, ``-c`` or a file. Without ``stdin`` there is nothing to read;
    ``env`` replaces the environment; ``cpu_seconds`` limits the CPU time of each process, 0 does not. A process that is copied has run
    the code ``first`` before it loaded the program, a fresh one does not run it. Raises TimeoutExpired."""
    return _run(arguments, cwd, stdin, env, cpu_seconds, timeout, "", first)


def lint(*arguments: str | bytes, cwd: Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> Done[str]:
    """``torchmemlint arguments…`` in ``cwd``, and what it printed."""
    done = run(["-m", "torchmemlint", *arguments], cwd, stdin=stdin, env=env)
    return Done(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def growth(*arguments: str, cwd: Path, timeout: float = 300) -> Done[str]:
    """``torchmemlint run arguments…`` in ``cwd``, and what it printed."""
    done = _run(["-m", "torchmemlint", "run", *arguments], cwd, None, None, 0, timeout, "torch")
    return Done(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def script(*arguments: str, cwd: Path, timeout: float = 300, optimizer: bool = False) -> Done[str]:
    """``python arguments…`` in ``cwd``, of which the first is a file that imports torch, or ``-c`` before such a text, and what it
    printed. ``optimizer``: it makes one."""
    done = _run(arguments, cwd, None, None, 0, timeout, "optimizer" if optimizer else "torch")
    return Done(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def _run(
    arguments: Sequence[str | bytes],
    cwd: Path,
    stdin: bytes | None,
    env: Mapping[str, str] | None,
    cpu_seconds: int,
    timeout: float,
    loaded: str,
    first: str = "",
) -> Done[bytes]:
    wanted = dict(os.environ if env is None else env)
    words = [os.fsdecode(word) for word in arguments]
    can_be_copied = words[0] in ("-m", "-c") or words[0].endswith(".py")
    if sys.platform != "linux" or not can_be_copied or _of_python(wanted) != _of_python(os.environ):
        return _fresh(words, cwd, stdin, wanted, cpu_seconds, timeout)
    return _parent(loaded, first).run(words, cwd, stdin, wanted, cpu_seconds, timeout)


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """What Python reads when it starts. (Without PYTHONSAFEPATH a copy has the current folder in its path, as ``-m`` does it.)"""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LC_", "LANG")) and (name, value) != ("PYTHONSAFEPATH", "1")
    }


def _limit(cpu_seconds: int) -> None:
    if cpu_seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))


def _fresh(
    words: list[str], cwd: Path, stdin: bytes | None, env: dict[str, str], cpu_seconds: int, timeout: float
) -> Done[bytes]:
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: _limit(cpu_seconds),
    ) as process:
        try:
            out, errors = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return Done(words, process.returncode, out, errors)


class _Parent:
    """The process that is copied, started when it is first needed: it has ``loaded`` torch, or what an optimizer needs, too, or ("") the
    commands, and run the code ``first`` before that. One copy works at a time."""

    def __init__(self, loaded: str, first: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        with theirs:
            text = Path(__file__).read_text(encoding="utf-8")  # as text, its functions are in no file that could be the user's
            command = [sys.executable, "-c", text, str(theirs.fileno()), loaded, first]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **ONE_THREAD} if loaded else None,
            )
        atexit.register(self.close)

    def run(
        self, words: list[str], cwd: Path, stdin: bytes | None, env: dict[str, str], cpu_seconds: int, timeout: float
    ) -> Done[bytes]:
        """See ``run`` of the module."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        ends = [(nothing, -1) if stdin is None else os.pipe(), os.pipe(), os.pipe()]
        theirs, ours = [ends[0][0], ends[1][1], ends[2][1]], [ends[0][1], ends[1][0], ends[2][0]]
        order = {"words": words, "cwd": os.fspath(cwd), "env": env, "cpu_seconds": cpu_seconds}
        with contextlib.ExitStack() as open_ends:
            for one in ours:
                if one >= 0:
                    open_ends.callback(os.close, one)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", theirs))]
            self._control.sendmsg([json.dumps(order).encode()], rights)
            for one in {*theirs, nothing}:
                os.close(one)
            pid = int(self._control.recv(64))
            open_ends.pop_all()
        written: list[bytes] = [b"", b""]
        threads = [threading.Thread(target=_read, args=(ours[1 + index], written, index), daemon=True) for index in (0, 1)]
        if stdin is not None:
            threads.append(threading.Thread(target=_write, args=(ours[0], stdin), daemon=True))
        timer = threading.Timer(timeout, os.kill, (pid, signal.SIGKILL))
        timer.start()
        for thread in threads:
            thread.start()
        status = int(self._control.recv(64))
        timed_out = not timer.is_alive()
        timer.cancel()
        for thread in threads:
            thread.join(timeout)
        if timed_out:
            raise subprocess.TimeoutExpired(words, timeout, *written)
        return Done(words, os.waitstatus_to_exitcode(status), *written)

    def close(self) -> None:
        """End the process."""
        self._control.close()
        self._process.wait()


def _read(descriptor: int, into: list[bytes], index: int) -> None:
    with os.fdopen(descriptor, "rb") as file:
        into[index] = file.read()


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as file:
        file.write(data)


_made: dict[tuple[str, str], _Parent] = {}


def _parent(loaded: str, first: str) -> _Parent:
    if (loaded, first) not in _made:
        _made[loaded, first] = _Parent(loaded, first)
    return _made[loaded, first]


# --- in the process that is copied -----------------------------------------------------------------------------------


def _load() -> None:
    """Imports what the commands import, but torch and the language server's library."""
    import importlib
    import importlib.util
    import pkgutil

    import torchmemlint

    for found in pkgutil.walk_packages(torchmemlint.__path__, "torchmemlint."):
        if not {"worker", "__main__"} & {*found.name.split(".")} and found.name != "torchmemlint.lsp.server":
            importlib.import_module(found.name)
    for name in ("flake8.main.application", "flake8.main.cli", "pyflakes.checker", "pycodestyle", "mccabe"):
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)


def _load_torch(optimizer: bool) -> None:
    """Imports torch, and of the program what ``run`` does before it becomes another."""
    import importlib

    import torch

    importlib.import_module("torchmemlint.growth.command")
    torch.set_num_threads(1)
    if optimizer:
        torch.optim.SGD([torch.zeros(1)], lr=0.1)  # the first one loads torch's compiler


def _become_program(file: str, command: Sequence[str]) -> None:
    """In the place of ``os.execvp``: what the fresh process would do, in this one, which has torch."""
    assert file == command[0] == sys.executable
    assert command[1].endswith(".py"), "options of Python itself need a fresh process"
    sys.argv[:] = command[1:]
    sys.path[0] = os.path.dirname(command[1])
    exec(compile(Path(command[1]).read_text(encoding="utf-8"), command[1], "exec"), {"__name__": "__main__"})


def _serve(control: socket.socket) -> Callable[[], object]:
    """Forks a copy for each order; in a copy, returns what it is to do."""
    while True:
        data, rights, _, _ = control.recvmsg(LONGEST, socket.CMSG_SPACE(3 * array.array("i").itemsize))
        if not data:
            os._exit(0)
        descriptors = array.array("i", b"".join(content for _, _, content in rights))
        pid = os.fork()
        if not pid:
            control.close()
            return _become(json.loads(data), descriptors)
        for one in descriptors:
            os.close(one)
        control.send(str(pid).encode())
        control.send(str(os.waitpid(pid, 0)[1]).encode())


def _become(order: dict[str, object], descriptors: array.array[int]) -> Callable[[], object]:
    import runpy

    for target, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(descriptors[target], target)
        old, mode = getattr(sys, name), "w" if target else "r"  # which knows whether what it was opened for can seek
        new = open(target, mode, 1 if target == 2 else -1, old.encoding, old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.closerange(3, 64)
    words, cwd, env, cpu_seconds = order["words"], order["cwd"], order["env"], order["cpu_seconds"]
    assert isinstance(words, list)
    assert isinstance(cwd, str)
    assert isinstance(env, dict)
    assert isinstance(cpu_seconds, int)
    os.chdir(cwd)
    for name in set(os.environ) - set(env):
        del os.environ[name]
    os.environ.update(env)
    _limit(cpu_seconds)
    if sys.version_info < (3, 11) or not env.get("PYTHONSAFEPATH"):
        sys.path.insert(0, cwd if words[0] == "-m" else "")
    sys.argv[:] = [words[0], *words[2:]]
    if words[0].endswith(".py"):
        return lambda: _become_program(sys.executable, [sys.executable, *words])
    if words[0] == "-m":
        return lambda: runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    return lambda: exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})


def _main() -> None:
    sys.path[:] = [path for path in sys.path if path]
    loaded, first = sys.argv[2:]
    exec(compile(first, "<first>", "exec"), {"__name__": "first"})
    if loaded:
        _load_torch(loaded == "optimizer")
    else:
        _load()
    gc.collect()
    gc.freeze()
    work = _serve(socket.socket(fileno=int(sys.argv[1])))
    if loaded:
        gc.unfreeze()  # the search for what grows is to see all objects, as in a fresh process
        os.execvp = _become_program  # type: ignore[assignment]
    work()


if __name__ == "__main__":
    _main()
