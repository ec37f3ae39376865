"""The warm worker: torch is imported once, and nothing else is shared."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torchmemlint.confirm import landlock, launch, sandbox
from torchmemlint.confirm.command import running_line
from torchmemlint.confirm.plan import Plan
from torchmemlint.confirm.settle import Options, settle_all
from torchmemlint.confirm.verdict import Doubts
from torchmemlint.confirm.warm import Worker
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span
from torchmemlint.processes.progress import Progress

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux forks them"),
    pytest.mark.usefixtures("warm_confirm"),  # one worker for all, but where a test makes its own, to count it or to end it
]


def said(source: str, key: str = "said", timeout: float = 20) -> object:
    ended = launch.launch({"runner": "snippet", "source": source}, timeout)
    return next((record[key] for record in ended.records if key in record), ended)


@pytest.fixture
def none_is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other tests."""
    monkeypatch.setattr(launch, "_workers", {})


def warm() -> Worker:
    return launch._workers[launch.EXPERIMENTS]


def worker() -> int:
    return warm()._process.pid


@pytest.mark.slow
@pytest.mark.usefixtures("none_is_warm")
def test_children_are_copies_of_one_process_that_has_torch() -> None:
    before = "import sys; emit({'said': sys.modules['torchmemlint.confirm.worker'].__dict__.setdefault('mark', MARK)})"
    with launch.warmed():
        first = launch.launch({"runner": "snippet", "source": f"MARK = 1\n{before}"}, 20)
        assert warm()._next == 1  # it was asked, and gave the child
        assert {"said": 1} in first.records
        assert said(f"MARK = 2\n{before}") == 2  # nothing is left of what another child changed
        assert warm()._next == 2
    assert launch._workers == {}


@pytest.mark.slow
def test_what_an_optimizer_loads_is_loaded_before_the_first_copy() -> None:
    source = (
        "import sys, torch\nbefore = set(sys.modules)\ntorch.optim.Adam([torch.zeros(1)])\n"
        "emit({'said': sorted(name for name in set(sys.modules) - before if name.startswith('torch'))})"
    )
    assert said(source) == []


@pytest.mark.slow
def test_a_child_has_its_own_place_environment_and_descriptors() -> None:
    source = (
        "import os, tempfile, stat\nkinds = [stat.S_ISSOCK(os.fstat(int(n)).st_mode) for n in os.listdir('/proc/self/fd')"
        " if os.path.exists(f'/proc/self/fd/{n}') or int(n) < 4]\n"
        "open('note', 'w').write('x')\n"
        "emit({'said': [os.environ['HOME'] == os.environ['TMPDIR'] == os.getcwd() == tempfile.gettempdir(), kinds, os.listdir('.')]})"
    )
    for _ in range(2):
        ended = said(source)
        assert isinstance(ended, list), ended
        assert ended[0] is True
        assert not any(ended[1])  # the worker's socket is not among them
        assert ended[2] == ["note"]  # nor is a file of the run before


REACH = """
import os, sys
WORKER, out = {worker}, {{}}
def attempt(name, action):
    try:
        out[name] = str(action())
    except OSError as error:
        out[name] = type(error).__name__
attempt("signal", lambda: os.kill(WORKER, 9))
attempt("group", lambda: os.killpg(WORKER, 9))
attempt("memory", lambda: open(f"/proc/{{WORKER}}/mem", "rb").read(1))
for number in range(64):
    for name, action in (("link", os.readlink), ("open", lambda path: open(path, "r+b", buffering=0))):
        attempt(f"{{name}} of descriptor {{number}}", lambda: action(f"/proc/{{WORKER}}/fd/{{number}}"))
attempt("environment", lambda: open(f"/proc/{{WORKER}}/environ", "rb").read())
attempt("sibling", lambda: os.listdir("{work}"))
emit({{"said": out}})
"""


@pytest.mark.slow
@pytest.mark.parametrize("wall", ["namespaces", "landlock"])
def test_a_child_reaches_neither_the_worker_nor_another_run(wall: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if wall == "landlock" and not landlock.version():
        pytest.skip("the kernel has no Landlock, or it is disabled")
    monkeypatch.setattr("torchmemlint.confirm.launch.WALLS", (getattr(sandbox, wall.upper()),))
    (tmp_path / "note").write_text("another run's")
    said("emit({'said': 1})")
    served = warm()._next
    source = REACH.format(worker=worker(), work=tmp_path)
    ended = launch.launch({"runner": "snippet", "source": source}, 20)
    if ended.refused:
        pytest.skip(ended.refused)
    out = next(record["said"] for record in ended.records if "said" in record)
    assert isinstance(out, dict)
    assert set(out.values()) <= {"PermissionError", "ProcessLookupError", "FileNotFoundError"}, out
    assert said("emit({'said': 1})") == 1
    assert warm()._next == served + 2  # it lives


@pytest.mark.slow
def test_the_time_limit_ends_one_child_alone() -> None:
    ended = launch.launch({"runner": "snippet", "source": "while True: pass"}, 2)
    assert ended.ending == "time limit"
    assert ended.seconds < 2 + launch.IMPORT_SECONDS
    assert said("emit({'said': 1})") == 1
    crashed = launch.launch({"runner": "snippet", "source": "import ctypes; ctypes.string_at(0)"}, 20)
    assert crashed.ending.startswith("killed by signal 11")
    assert not _children_of(worker())


def _children_of(pid: int) -> str:
    for _ in range(100):  # the kernel is still at it
        left = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        if not left:
            return ""
        time.sleep(0.05)
    return left


@pytest.mark.slow
@pytest.mark.usefixtures("none_is_warm")
def test_without_its_worker_a_child_is_a_fresh_process() -> None:
    with launch.warmed():
        assert said("emit({'said': 1})") == 1
        os.kill(worker(), signal.SIGKILL)
        assert said("emit({'said': 2})") == 2


@pytest.mark.slow
def test_only_the_processor_and_a_sandbox_are_served() -> None:
    served = warm()._next
    assert launch.launch({"runner": "snippet", "source": "emit({'said': 1})"}, 20, sandbox=False).sandbox == "none"
    assert warm()._next == served


def test_the_worker_ends_with_its_parent() -> None:
    source = (
        "import os\nfrom torchmemlint.confirm import launch\nwith launch.warmed():\n"
        "    launch.launch({'runner': 'snippet', 'source': ''}, 20)\n"
        "    print(launch._workers[launch.EXPERIMENTS]._process.pid, flush=True)\n    os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    for _ in range(100):
        state = Path(f"/proc/{int(done.stdout)}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the worker lives on")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def made(row: int) -> Plan:
    span = Span(Position(row, 1), Position(row, 2))
    finding = Finding("TML102", "a-rule", Severity.WARNING, Confidence.HIGH, "m", "train.py", span)
    return Plan(finding, {"runner": "snippet", "source": ""}, Doubts())


@pytest.mark.slow
def test_the_line_says_which_finding_runs() -> None:
    terminal = Terminal()
    progress = Progress(terminal)
    plans = [made(3), made(8)]
    done = list(settle_all(plans, Options(), ["cpu"], on_start=running_line(progress, 2)))
    progress.end()
    assert len(done) == 2
    assert "running 1/2: train.py:3 TML102" in terminal.getvalue()
    assert "running 2/2: train.py:8 TML102" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
    quiet = Progress(io.StringIO())
    running_line(quiet, 1)(plans[0])
    assert isinstance(quiet.stream, io.StringIO)
    assert quiet.stream.getvalue() == ""
