"""However a run is ended, and wherever there is no room: no process, no temporary file, nothing half-written, one line at most."""

from __future__ import annotations

import functools
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from hostile.program import environment, lint, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

LEAK = """import torch

def train{0}(model: torch.nn.Module, loader, optimizer, criterion):
    total = 0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        total += loss
    return total
"""
MARK = "TEST_OF_STOPPING"
SOON = 60
"""Seconds; to be gone takes milliseconds, on a machine that has time for us."""


def laid_out(folder: Path) -> Path:
    folder.mkdir()
    for number in range(16):
        (folder / f"m{number}.py").write_text("".join(LEAK.replace("{0}", f"_{number}_{each}") for each in range(6)))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return laid_out(tmp_path / "project")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What is printed about such a folder, of which nothing was kept."""
    folder = laid_out(tmp_path_factory.mktemp("whole") / "project")
    return lint("-j2", "--output-format", "concise", "--no-cache", cwd=folder).stdout


def marked(mark: str) -> list[str]:
    """Processes that work, with this mark in their environment."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment and state not in "ZX":
            found.append(pid)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "processes"),
    [
        (signal.SIGKILL, 3),
        (signal.SIGKILL, 2),
        (signal.SIGTERM, 3),
        (signal.SIGINT, 3),
        (signal.SIGHUP, 3),
        (signal.SIGTERM, 1),
    ],
)
def test_who_is_stopped_leaves_nothing(folder: Path, whole: bytes, number: signal.Signals, processes: int) -> None:
    """At the moment when so many processes are at work."""
    mark = uuid.uuid4().hex
    arguments = ["--fix", "--unsafe-fixes"] if processes == 1 else []
    command = [sys.executable, "-m", "torchmemlint", "-j2", *arguments, "--output-file", "../report.json"]
    (folder / "torchmemlint.toml").write_text("cache-in-project = true\n")
    before = {path: path.read_text() for path in folder.glob("*.py")}
    # A parent that was started in the background may ignore the signal, and who is started inherits that.
    before_exec = None if number is signal.SIGKILL else functools.partial(signal.signal, number, signal.SIG_DFL)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment({MARK: mark}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=before_exec,
    )
    ends = time.monotonic() + SOON
    while process.poll() is None and time.monotonic() < ends:
        if len(marked(mark)) >= processes and (processes > 1 or (folder / ".torchmemlint_cache").exists()):
            break
    process.send_signal(number)
    errors = process.communicate(timeout=SOON)[1]
    assert process.returncode == (-number if number is signal.SIGKILL else 128 + number)
    assert errors == b""
    while marked(mark) and time.monotonic() < ends + SOON:
        time.sleep(0.01)
    assert marked(mark) == []
    assert list(folder.parent.glob(".torchmemlint-*")) == list(folder.glob(".torchmemlint-*")) == []
    assert not (folder.parent / "report.json").exists()
    assert {path: path.read_text() for path in folder.glob("*.py")} == before
    assert lint("-j2", "--output-format", "concise", cwd=folder).stdout == whole


def test_processes_of_a_pool_end_with_who_made_it(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    (tmp_path / "slow.py").write_text(
        "import time\nfrom torchmemlint.processes.pool import run_all\n"
        "def wait(shared, path):\n    time.sleep(1000)\n"
        "if __name__ == '__main__':\n    run_all(wait, None, ['a', 'b', 'c'], 2, wait)\n"
    )
    process = subprocess.Popen([sys.executable, "slow.py"], cwd=tmp_path, env=environment({MARK: mark, "PYTHONSAFEPATH": ""}))
    ends = time.monotonic() + SOON
    while len(marked(mark)) < 3 and time.monotonic() < ends:
        time.sleep(0.01)
    assert len(marked(mark)) == 3
    time.sleep(1)  # the processes are there; now they begin to wait
    process.kill()
    process.wait()
    while marked(mark) and time.monotonic() < ends + SOON:
        time.sleep(0.01)
    assert marked(mark) == []


def experiments(folder: Path) -> list[str]:
    """Children of ``confirm``, which inherit no environment, by what they were started for."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if b"confirm.worker.main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                if str(folder) in Path(f"/proc/{pid}/environ").read_text(errors="replace"):
                    found.append(pid)
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", [(), ("--no-sandbox",)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_experiments_end_with_who_runs_them(tmp_path: Path, number: signal.Signals, sandbox: tuple[str, ...]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "work").mkdir()
    slow = LEAK.replace("{0}", "").replace("        loss =", "        time.sleep(1000)\n        loss =")
    (tmp_path / "slow.py").write_text(f"import time\n{slow}")
    command = [sys.executable, "-m", "torchmemlint", "confirm", "--device", "cpu", *sandbox, "slow.py"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment({"TMPDIR": str(tmp_path / "work")}), stdout=subprocess.DEVNULL
    )
    ends = time.monotonic() + SOON
    while not experiments(tmp_path) and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.05)
    assert experiments(tmp_path) != []
    time.sleep(1)
    process.send_signal(number)
    assert process.wait(timeout=SOON) == (-number if number is signal.SIGKILL else 128 + number)
    while experiments(tmp_path) and time.monotonic() < ends + SOON:
        time.sleep(0.05)
    assert experiments(tmp_path) == []
    assert number is signal.SIGKILL or list((tmp_path / "work").iterdir()) == []


CLIENT = """
import json, os, subprocess, sys, time
server = subprocess.Popen([sys.executable, "-m", "torchmemlint", "server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
held = subprocess.Popen(["sleep", "100"], pass_fds=[server.stdin.fileno()], env={"PATH": os.environ["PATH"]})
params = {"processId": os.getpid(), "rootUri": None, "capabilities": {}}
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
server.stdin.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
server.stdin.flush()
server.stdout.readline()
print(server.pid, held.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("who", ["client", "server"])
def test_the_server_ends_with_its_client_and_on_request(tmp_path: Path, who: str) -> None:
    """Also where another process holds the pipe open, so that its input does not end."""
    pytest.importorskip("pygls")
    mark = uuid.uuid4().hex
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT], cwd=tmp_path, env=environment({MARK: mark}), stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    server, held = map(int, client.stdout.readline().split())
    try:
        if who == "client":
            client.kill()
            client.wait()
        else:
            os.kill(server, signal.SIGTERM)
        ends = time.monotonic() + SOON
        while str(server) in marked(mark) and time.monotonic() < ends:
            time.sleep(0.05)
        assert str(server) not in marked(mark)
    finally:
        os.kill(held, signal.SIGKILL)
        client.kill()
        client.wait()


# --- no room --------------------------------------------------------------------------------------------------------


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """``$T`` in the command is the program."""
    started = f"{sys.executable} -m torchmemlint"
    return subprocess.run(
        ["bash", "-c", command.replace("$T", started)], cwd=cwd, env=environment(), capture_output=True, timeout=120
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "status", "line"),
    [
        ("$T m1.py >/dev/full", 2, b"torchmemlint: error: standard output: No space left on device\n"),
        ("$T --version >/dev/full", 2, b"torchmemlint: error: standard output: No space left on device\n"),
        ("$T m1.py >&-", 2, b"torchmemlint: error: standard output: Bad file descriptor\n"),
        ("$T rule --all >&-", 2, b"torchmemlint: error: standard output: Bad file descriptor\n"),
        ("$T m1.py 2>&- >/dev/null", 1, b""),
        ("$T m1.py missing.py 2>/dev/full >/dev/null", 2, b""),
        ("$T - <&-", 0, b""),
        ("set -o pipefail; $T rule --all | head -n 1 >/dev/null", 2, b""),
        ("$T m1.py -q --output-file json=/dev/full >/dev/null", 2, b"--output-file /dev/full: cannot be written: No space left on device\n"),
    ],
)  # fmt: skip
def test_a_stream_that_takes_nothing(folder: Path, command: str, status: int, line: bytes) -> None:
    done = shell(command, folder)
    assert done.returncode == status
    assert done.stderr.endswith(line)
    assert done.stderr.count(b"\n") == bool(line)


@pytest.mark.slow
def test_a_full_disk(folder: Path) -> None:
    """Files cannot grow beyond some bytes: neither the cache, nor reports, nor what is fixed, nor what processes share."""
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300, {resource.RLIM_INFINITY}))\n"
        "import sys; sys.argv[0] = 'torchmemlint'\nfrom torchmemlint.cli import program; program()"
    )
    for number in range(6, 16):
        (folder / f"m{number}.py").unlink()
    whole = lint("--no-cache", "--output-format", "concise", cwd=folder)
    done = run(["-c", code, "-j2", "--output-format", "concise"], folder)
    assert done.stdout == whole.stdout
    assert done.returncode == 1
    assert done.stderr.count(b"nothing is cached: File too large\n") == done.stderr.count(b"\n") == 1
    before = {path: path.read_text() for path in folder.glob("*.py")}
    done = run(["-c", code, "--no-cache", "--fix", "--unsafe-fixes", "m1.py", "m2.py"], folder)
    assert done.stderr == b"".join(b"torchmemlint: error: m%d.py: cannot be written: File too large\n" % one for one in (1, 2))
    assert (done.returncode, b"Fixed" in done.stdout) == (2, False)
    for option, written in (("--write-baseline", ".torchmemlint-baseline.json"), ("--output-file=o.json", "o.json")):
        done = run(["-c", code, "--no-cache", "-q", option, "m1.py"], folder)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert not (folder / written).exists()
    assert {path: path.read_text() for path in folder.glob("*.py")} == before
    assert list(folder.glob(".torchmemlint-*")) == []
