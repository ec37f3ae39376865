"""Hostile snippets: each must be contained, and reported in words."""

from __future__ import annotations

import datetime
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torchmemlint.confirm import html, report, sandbox
from torchmemlint.confirm.launch import IMPORT_SECONDS, Ended, launch
from torchmemlint.confirm.plan import Plan
from torchmemlint.confirm.report import figures
from torchmemlint.confirm.results import run_of, snapshot_of
from torchmemlint.confirm.settle import Options, settle
from torchmemlint.confirm.verdict import Doubts, run_json
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span

HOSTILE = Path(__file__).parent / "confirm_snippets" / "hostile"

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the wall is built of Linux namespaces")


def run(name: str, timeout: float = 20, **names: object) -> Ended:
    head = "".join(f"{key} = {value!r}\n" for key, value in names.items())
    return launch({"runner": "snippet", "source": head + (HOSTILE / f"{name}.py").read_text()}, timeout)


def said(ended: Ended, key: str) -> object:
    return next((record[key] for record in ended.records if key in record), None)


@pytest.fixture(scope="module")
def walled() -> None:
    """Skip where the kernel or a container forbids namespaces: there the seat belt serves, with tests of its own."""
    ended = launch({"runner": "snippet", "source": ""}, 60)
    if ended.sandbox != "namespaces":
        pytest.skip(ended.sandbox)


@linux
@pytest.mark.usefixtures("walled")
class TestWall:
    def test_fork_storm_is_bounded_and_swept(self) -> None:
        started = time.monotonic()
        ended = run("fork_storm", 10)
        children = said(ended, "children")
        assert isinstance(children, int)
        assert children <= 50
        assert time.monotonic() - started < 15 + IMPORT_SECONDS  # the sleeping children did not keep it

    @pytest.mark.skipif(
        hasattr(os, "getuid") and os.getuid() != 0, reason="shares its process count with this user's other processes"
    )
    def test_process_limit_binds_for_root_too(self) -> None:
        source = (HOSTILE / "fork_storm.py").read_text().replace("range(50)", "range(200)")
        children = said(launch({"runner": "snippet", "source": source}, 20), "children")
        assert isinstance(children, int)
        assert 0 < children < 64

    def test_giant_allocation_fails_inside(self) -> None:
        ended = run("giant_allocation")
        assert "can't allocate memory" in str(said(ended, "raised"))
        assert ended.ending == ""

    def test_endless_loop_meets_the_time_limit(self) -> None:
        ended = run("endless_loop", 5)
        assert ended.ending == "time limit"
        assert ended.seconds < 5 + IMPORT_SECONDS

    def test_endless_output_is_cut(self) -> None:
        ended = run("endless_output", 30)
        assert ended.ending == "endless output"
        assert len(ended.output) <= 64 << 10

    def test_files_cannot_be_deleted(self, tmp_path: Path) -> None:
        target = tmp_path / "precious"
        target.write_text("data")
        ended = run("deletes_files", TARGET=str(target))
        assert said(ended, "refused")
        assert target.read_text() == "data"

    def test_the_repository_cannot_be_written(self) -> None:
        target = Path(sandbox.__file__)
        before = target.read_text()
        ended = run("writes_in_the_repo", TARGET=str(target))
        assert said(ended, "refused")
        assert target.read_text() == before

    def test_there_is_no_network(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ended = run("opens_a_socket", PORT=server.getsockname()[1])
        assert said(ended, "refused")
        assert said(ended, "connected") is None

    def test_secrets_of_the_environment_stay_outside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET_TOKEN", "hunter2")
        ended = run("reads_the_environment")
        assert said(ended, "environment")
        assert "hunter2" not in str(ended.records)

    def test_the_parent_cannot_be_signalled(self) -> None:
        ended = run("kills_its_parent", PARENT=os.getpid())
        assert {"signalled": os.getpid()} not in ended.records
        assert said(ended, "finished")

    def test_a_segfault_is_reported(self) -> None:
        ended = run("segfaults")
        assert "SIGSEGV" in ended.ending

    def test_nothing_is_left_running(self) -> None:
        mark = "torchmemlint-left-behind"
        source = (
            f"import ctypes\nctypes.CDLL(None).prctl(15, b'{mark[:15]}')\n"
            + (HOSTILE / "leaves_children_behind.py").read_text()
        )
        assert said(launch({"runner": "snippet", "source": source}, 20), "left")
        time.sleep(0.3)
        assert mark[:15] not in names_of_processes()

    def test_the_wall_cannot_be_taken_down_from_inside(self) -> None:
        results = said(run("remounts"), "results")
        assert results == {"remount": -1, "unmount": -1, "setuid": -1, "mknod": -1}

    def test_records_that_are_forged_break_nothing(self) -> None:
        source = (HOSTILE / "forges_records.py").read_text()
        ended = launch({"runner": "snippet", "source": source}, 20)
        assert said(ended, "finished"), ended
        run = run_of(ended, "before")
        assert run is not None
        assert len(run.live_bytes) <= 1000
        text = f"{ended.sandbox} {run.errors} {run.place} {figures(run)} {json.dumps(run_json(run))}"
        assert text.isprintable()
        text.encode()
        assert snapshot_of(ended)[0] == b""

    def test_what_is_decided_on_forged_records_can_be_shown(self) -> None:
        """The same through the whole of it, as text, JSON and a page."""
        source = (HOSTILE / "forges_records.py").read_text()
        span = Span(Position(1, 1), Position(1, 2))
        finding = Finding("TML102", "a-rule", Severity.WARNING, Confidence.HIGH, "m", "x.py", span)
        item = settle(Plan(finding, {"runner": "snippet", "source": source}, Doubts("on")), Options(timeout=20))
        when = datetime.datetime.now(datetime.timezone.utc)
        for text in (report.full([item]), report.as_json([item]), html.render([item], lambda path: None, when)):
            assert all(character.isprintable() or character == "\n" for character in text)
            text.encode()

    def test_the_disk_cannot_be_filled(self) -> None:
        ended = run("fills_the_disk", 30)
        written = said(ended, "written_mib")
        assert isinstance(written, int)
        assert written <= 256
        assert said(ended, "refused") == "OSError"

    def test_closed_pipes_do_not_keep_it_alive(self) -> None:
        mark = "tml-closed-all"
        ended = run("closes_its_pipes", 20, MARK=mark)
        assert ended.seconds < 20 + IMPORT_SECONDS
        time.sleep(0.3)
        assert mark not in names_of_processes()

    def test_where_memory_runs_out_it_is_the_first_to_go(self) -> None:
        """Its processes may have 8 GiB each: together that can be more than there is."""
        source = "emit({'score': open('/proc/self/oom_score_adj').read().strip()})"
        assert said(launch({"runner": "snippet", "source": source}, 20), "score") == "1000"


def names_of_processes() -> list[str]:
    names = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            names.append(comm.read_text().strip())
        except OSError:
            continue
    return names


as_root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root has to become a stranger")

WHO = """
import json, os, sys
from torchmemlint.confirm import sandbox
from torchmemlint.confirm.launch import _readable
how = sandbox.enter([*_readable(), *{readable!r}], {work!r}, sandbox.Limits(), False)
def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        return type(error).__name__
print(json.dumps([how, os.getuid() != 0, *map(read, {files!r})]))
"""


def shut_in(readable: list[Path], files: list[Path], work: Path) -> list[object]:
    """How a process of root's was shut in with ``readable``, whether it became somebody else, and what it read."""
    names = {"readable": [str(path) for path in readable], "files": [str(path) for path in files], "work": str(work)}
    work.mkdir()
    done = subprocess.run([sys.executable, "-c", WHO.format(**names)], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert isinstance(result, list)
    return result


@linux
@as_root
@pytest.mark.usefixtures("walled")
class TestPrivateDirectories:
    """Root's own environments are often closed to others; the child is somebody else, so that the process limit binds."""

    def test_a_closed_directory_is_opened_entry_by_entry(self, tmp_path: Path) -> None:
        private = tmp_path / "environment"
        (private / "lib" / "packages" / "some").mkdir(parents=True)
        for name in ("note", "lib/note", "lib/packages/note", "lib/packages/some/note"):
            (private / name).write_text(name)
        (private / "secret").write_text("secret")
        (private / "secret").chmod(0o600)
        (private / "lib64").symlink_to("lib")
        for directory in (tmp_path, private, private / "lib", private / "lib" / "packages"):
            directory.chmod(0o700)
        names = ["note", "lib/note", "lib64/note", "lib/packages/note", "lib64/packages/some/note", "secret"]
        readable = [private / "lib" / "packages" / "some", private]
        told = shut_in(readable, [private / name for name in names], tmp_path / "work")
        assert told == ["namespaces", True, "note", "lib/note", "lib/note", "lib/packages/note",
                        "lib/packages/some/note", "PermissionError"]  # fmt: skip

    def test_the_whole_of_confirm_runs_from_a_closed_environment(self, tmp_path: Path) -> None:
        """An environment in a ``mktemp -d`` directory, as a script makes one: torch is imported, and the limit binds."""
        private = tmp_path / "environment"
        private.mkdir(mode=0o700)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(private)], check=True)
        (private / "lib").chmod(0o755)  # whatever the umask of who runs the tests
        private.chmod(0o700)
        site = next(private.glob("lib/python*/site-packages"))
        (site / "here.pth").write_text("\n".join(path for path in sys.path if path and os.path.isdir(path)))
        source = (HOSTILE / "fork_storm.py").read_text().replace("range(50)", "range(200)")
        script = tmp_path / "storm.py"
        script.write_text(
            "from torchmemlint.confirm.launch import launch\n"
            f"ended = launch({{'runner': 'snippet', 'source': {source!r}}}, 20)\n"
            "import json; print(json.dumps([ended.sandbox, ended.records[-2:]]))\n"
        )
        done = subprocess.run([str(private / "bin" / "python"), str(script)], capture_output=True, text=True, check=True)
        how, records = json.loads(done.stdout)
        assert how == "namespaces"
        children = next(record["children"] for record in records if "children" in record)
        assert 0 < children < 64

    def test_what_stays_closed_is_said(self, tmp_path: Path) -> None:
        package = tmp_path / "package"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "__init__.py").chmod(0o600)
        told = shut_in([package], [package / "__init__.py"], tmp_path / "work")
        assert told == [sandbox.UNLIMITED, False, ""]


SEAT_BELT = """
import os, tempfile
from torchmemlint.confirm import sandbox
work = tempfile.mkdtemp()
sandbox.fasten_seat_belt(work)
refused = []
def attempt(name, action):
    try:
        action()
    except PermissionError:
        refused.append(name)
    except Exception as error:
        refused.append(name + " failed otherwise: " + repr(error))
def write(path):
    with open(path, "w") as file:
        file.write("x")
import socket, subprocess
attempt("write", lambda: write({target!r}))
attempt("remove", lambda: os.remove({target!r}))
attempt("socket", lambda: socket.create_connection(("127.0.0.1", 9)))
attempt("process", lambda: subprocess.run(["true"]))
attempt("system", lambda: os.system("true"))
attempt("fork", lambda: os.fork())
attempt("kill", lambda: os.kill(os.getppid(), 0))
attempt("inside", lambda: write(os.path.join(work, "note")))
emit({{"refused": refused}})
"""


@linux
def test_the_seat_belt_refuses_the_common_accidents(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("data")
    ended = launch({"runner": "snippet", "source": SEAT_BELT.format(target=str(target))}, 20, sandbox=False)
    assert ended.sandbox == "none"
    assert said(ended, "refused") == ["write", "remove", "socket", "process", "system", "fork", "kill"]
    assert target.read_text() == "data"
