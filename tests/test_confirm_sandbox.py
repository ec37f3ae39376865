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

from benchmarks.pairs import Pair, settle_pair
from torchmemlint.confirm import channel, html, landlock, report, sandbox
from torchmemlint.confirm.command import status
from torchmemlint.confirm.launch import IMPORT_SECONDS, Ended, launch
from torchmemlint.confirm.plan import Plan
from torchmemlint.confirm.report import figures
from torchmemlint.confirm.results import run_of, snapshot_of
from torchmemlint.confirm.settle import Options, settle
from torchmemlint.confirm.verdict import Doubts, Outcome, Verdict, run_json
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span

HOSTILE = Path(__file__).parent / "confirm_snippets" / "hostile"

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the wall is built of Linux namespaces")


FORKS = sys.platform.startswith("linux")
either_sort = pytest.mark.parametrize("child", ["fresh", "forked"], indirect=True)
"""For what a child inherits, and how it is ended and waited for. What it meets once it is there is built by the same code in both."""


@pytest.fixture(autouse=True)
def child(request: pytest.FixtureRequest, warm_confirm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are copies of one process that has torch, where there is nothing else said."""
    sort = getattr(request, "param", "forked")
    if sort == "fresh":
        monkeypatch.setattr("torchmemlint.confirm.launch._workers", {})
    elif hasattr(request, "param") and not FORKS:
        pytest.skip("only Linux forks them")


def run(name: str, timeout: float = 20, **names: object) -> Ended:
    head = "".join(f"{key} = {value!r}\n" for key, value in names.items())
    return launch({"runner": "snippet", "source": head + (HOSTILE / f"{name}.py").read_text()}, timeout)


def measured(name: str) -> tuple[Verdict, Ended]:
    """A hostile program that is measured, against a twin that does nothing."""
    source = (HOSTILE / f"{name}.py").read_text()
    pair = Pair("TML102", name, "it", {"it.py": source}, {"it.py": "def run(steps): return None"})
    return settle_pair(pair, timeout=20)


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
    @pytest.mark.slow
    @either_sort
    def test_fork_storm_is_bounded_and_swept(self) -> None:
        started = time.monotonic()
        ended = run("fork_storm", 10)
        children = said(ended, "children")
        assert isinstance(children, int)
        assert children <= 50
        assert time.monotonic() - started < 15 + IMPORT_SECONDS  # the sleeping children did not keep it

    @pytest.mark.slow
    @pytest.mark.skipif(
        hasattr(os, "getuid") and os.getuid() != 0, reason="shares its process count with this user's other processes"
    )
    def test_process_limit_binds_for_root_too(self) -> None:
        source = (HOSTILE / "fork_storm.py").read_text().replace("range(50)", "range(200)")
        children = said(launch({"runner": "snippet", "source": source}, 20), "children")
        assert isinstance(children, int)
        assert 0 < children < 64

    @pytest.mark.slow
    def test_giant_allocation_fails_inside(self) -> None:
        ended = run("giant_allocation")
        assert "can't allocate memory" in str(said(ended, "raised"))
        assert ended.ending == ""

    @pytest.mark.slow
    @either_sort
    def test_endless_loop_meets_the_time_limit(self) -> None:
        ended = run("endless_loop", 5)
        assert ended.ending == "time limit"
        assert ended.seconds < 5 + IMPORT_SECONDS

    @pytest.mark.slow
    def test_endless_output_is_cut(self) -> None:
        ended = run("endless_output", 30)
        assert ended.ending == "endless output"
        assert len(ended.output) <= 64 << 10

    @pytest.mark.slow
    def test_files_cannot_be_deleted(self, tmp_path: Path) -> None:
        target = tmp_path / "precious"
        target.write_text("data")
        ended = run("deletes_files", TARGET=str(target))
        assert said(ended, "refused")
        assert target.read_text() == "data"

    @pytest.mark.slow
    def test_the_repository_cannot_be_written(self) -> None:
        target = Path(sandbox.__file__)
        before = target.read_text()
        ended = run("writes_in_the_repo", TARGET=str(target))
        assert said(ended, "refused")
        assert target.read_text() == before

    @pytest.mark.slow
    def test_there_is_no_network(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ended = run("opens_a_socket", PORT=server.getsockname()[1])
        assert said(ended, "refused")
        assert said(ended, "connected") is None

    @pytest.mark.slow
    @either_sort
    def test_it_has_no_secrets_of_the_environment_cannot_signal_its_parent_and_is_the_first_to_go(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first to go where memory runs out: its processes may have 8 GiB each, together that can be more than there is."""
        monkeypatch.setenv("SECRET_TOKEN", "hunter2")
        texts = [(HOSTILE / f"{name}.py").read_text() for name in ("reads_the_environment", "kills_its_parent")]
        score = "emit({'score': open('/proc/self/oom_score_adj').read().strip()})\n"
        ended = launch({"runner": "snippet", "source": f"PARENT = {os.getpid()}\n" + score + "".join(texts)}, 20)
        assert said(ended, "environment")
        assert "hunter2" not in str(ended.records)
        assert {"signalled": os.getpid()} not in ended.records
        assert said(ended, "finished")
        assert said(ended, "score") == "1000"

    @pytest.mark.slow
    @either_sort
    def test_a_segfault_is_reported(self) -> None:
        ended = run("segfaults")
        assert "SIGSEGV" in ended.ending

    @pytest.mark.slow
    @either_sort
    def test_nothing_is_left_running(self) -> None:
        mark = "torchmemlint-left-behind"
        source = (
            f"import ctypes\nctypes.CDLL(None).prctl(15, b'{mark[:15]}')\n"
            + (HOSTILE / "leaves_children_behind.py").read_text()
        )
        assert said(launch({"runner": "snippet", "source": source}, 20), "left")
        assert is_gone(mark[:15])

    @pytest.mark.slow
    def test_the_wall_cannot_be_taken_down_from_inside(self) -> None:
        results = said(run("remounts"), "results")
        assert results == {"remount": -1, "unmount": -1, "setuid": -1, "mknod": -1}

    @pytest.mark.slow
    def test_records_that_are_forged_break_nothing(self) -> None:
        ended = run("forges_records")
        assert said(ended, "finished"), ended
        reported = run_of(ended, "before")
        assert reported is not None
        assert len(reported.live_bytes) <= 1000
        text = f"{ended.sandbox} {reported.errors} {reported.place} {figures(reported)} {json.dumps(run_json(reported))}"
        assert text.isprintable()
        text.encode()
        assert snapshot_of(ended)[0] == b""

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_keys_namespaces_and_rings_are_out_of_reach(self, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("data")
        results = said(run("reaches_out", PARENT=os.getpid(), TARGET=str(tmp_path / "precious"), FORK=True), "results")
        assert isinstance(results, dict)
        for name in ("unshare user", "unshare mount", "clone user", "session keys", "user keys", "io_uring"):
            assert results[name] == "Operation not permitted", name
        assert results["clone3"] == "Function not implemented"
        assert results["signal"] == results["thread"] == "No such process"
        assert results["fork"] == 0

    def test_the_session_keyring_of_the_user_stays_outside(self) -> None:
        """Also where there is no filter: the child's keyring is a new one."""
        script = (
            "import ctypes, os\nfrom torchmemlint.confirm import sandbox\n"
            "libc = ctypes.CDLL(None)\nnumber = sandbox.SYS_KEYCTL[os.uname().machine]\n"
            "mine = libc.syscall(number, 0, -3, 0)\nsandbox.leave_keyrings(libc)\nprint(mine, libc.syscall(number, 0, -3, 0))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        before, after = map(int, done.stdout.split())
        if after < 0:
            pytest.skip("the kernel keeps no keys, or a filter around the tests forbids them")
        assert before != after

    @pytest.mark.parametrize("wall", ["enter", "close_in"])
    def test_each_wall_leaves_the_keyring(self, wall: str, tmp_path: Path) -> None:
        """With no filter, which would hide it."""
        script = (
            "import ctypes, os\nfrom torchmemlint.confirm import sandbox, syscalls\nfrom torchmemlint.confirm.launch import _readable\n"
            "libc = ctypes.CDLL(None)\nnumber = sandbox.SYS_KEYCTL[os.uname().machine]\n"
            "mine = libc.syscall(number, 0, -3, 0)\nsyscalls.restrict = lambda *names, **options: None\n"
            f"sandbox.{wall}(_readable(), {str(tmp_path)!r}, sandbox.Limits(), False)\n"
            "print(mine, libc.syscall(number, 0, -3, 0), flush=True)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(done.stderr.splitlines()[-1])
        before, after = map(int, done.stdout.split())
        if after < 0:
            pytest.skip("the kernel keeps no keys, or a filter around the tests forbids them")
        assert before != after

    @pytest.mark.slow
    def test_the_disk_cannot_be_filled(self) -> None:
        ended = run("fills_the_disk", 30)
        written = said(ended, "written_mib")
        assert isinstance(written, int)
        assert written <= 256
        assert said(ended, "refused") == "OSError"

    @pytest.mark.slow
    @either_sort
    def test_closed_pipes_do_not_keep_it_alive(self) -> None:
        mark = "tml-closed-all"
        ended = run("closes_its_pipes", 20, MARK=mark)
        assert ended.seconds < 20 + IMPORT_SECONDS
        assert is_gone(mark)


def is_gone(process: str) -> bool:
    """Whether no process has this name, when the kernel has had its time."""
    for _ in range(200):
        if process not in names_of_processes():
            return True
        time.sleep(0.05)
    return False


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
        reported = shut_in(readable, [private / name for name in names], tmp_path / "work")
        assert reported == ["namespaces", True, "note", "lib/note", "lib/note", "lib/packages/note",
                        "lib/packages/some/note", "PermissionError"]  # fmt: skip

    @pytest.mark.slow
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
            "import json; print(json.dumps([ended.sandbox, ended.records[-3:]]))\n"
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
        reported = shut_in([package], [package / "__init__.py"], tmp_path / "work")
        assert reported == [sandbox.UNLIMITED, False, ""]


@pytest.fixture
def only_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that forbids namespaces."""
    if not sys.platform.startswith("linux") or not landlock.version():
        pytest.skip("the kernel has no Landlock, or it is disabled")
    monkeypatch.setattr("torchmemlint.confirm.launch.WALLS", (sandbox.LANDLOCK,))


@linux
@pytest.mark.usefixtures("only_landlock")
class TestLandlock:
    @pytest.mark.slow
    def test_the_report_says_so(self) -> None:
        assert run("reads_the_environment").sandbox == "landlock"

    @pytest.mark.slow
    def test_writers_of_cpp_cannot_write_outside(self, tmp_path: Path) -> None:
        target = tmp_path / "precious"
        target.write_text("data" * 64)
        results = said(run("overwrites_from_cpp", TARGET=str(target)), "results")
        assert isinstance(results, dict)
        assert results.pop("inside") == "done"
        assert set(results) == {"jit", "c++", "from_file", "writer"}
        assert "done" not in results.values()
        assert target.read_text() == "data" * 64

    @pytest.mark.slow
    def test_without_it_they_would(self, tmp_path: Path) -> None:
        target = tmp_path / "precious"
        target.write_text("data" * 64)
        source = f"TARGET = {str(target)!r}\n" + (HOSTILE / "overwrites_from_cpp.py").read_text()
        results = said(launch({"runner": "snippet", "source": source}, 20, sandbox=False), "results")
        assert results == {"jit": "done", "c++": "done", "from_file": "done", "writer": "done", "inside": "done"}
        assert target.read_bytes() != b"data" * 64

    @pytest.mark.slow
    def test_files_are_neither_deleted_nor_read(self, tmp_path: Path) -> None:
        target = tmp_path / "precious"
        target.write_text("data")
        assert said(run("deletes_files", TARGET=str(target)), "refused")
        assert target.read_text() == "data"
        for secret in (target, Path(f"/proc/{os.getpid()}/environ")):
            assert "PermissionError" in str(
                said(launch({"runner": "snippet", "source": f"open({str(secret)!r}).read()"}, 20), "raised")
            )

    @pytest.mark.slow
    def test_system_calls_that_reach_out_fail(self, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("data")
        source = (HOSTILE / "reaches_out.py").read_text()
        head = f"PARENT = {os.getpid()}\nTARGET = {str(tmp_path / 'precious')!r}\nFORK = False\n"
        # the audit hook refuses ctypes first; code that avoids it meets the filter
        around = "import sys\nfrom torchmemlint.confirm import sandbox\n"
        ended = launch({"runner": "snippet", "source": around + head + source}, 20)
        assert "ctypes" in str(said(ended, "raised"))
        results = without_the_hook(head + source, tmp_path / "work")
        assert results.pop("clone3") == "Function not implemented"
        assert set(results.values()) == {"Operation not permitted"}
        assert (tmp_path / "precious").read_text() == "data"

    @pytest.mark.slow
    def test_there_is_no_network(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert said(run("opens_a_socket", PORT=server.getsockname()[1]), "refused")

    @pytest.mark.slow
    def test_a_finding_is_settled_all_the_same(self) -> None:
        source = "import torch\ndef run(steps):\n    w = torch.ones(9, requires_grad=True)\n    return [(w * 2).exp() for _ in range(steps)]"
        twin = source.replace("(w * 2).exp()", "(w * 2).exp().detach()")
        verdict, ended = settle_pair(Pair("TML102", "x", "it", {"it.py": source}, {"it.py": twin}), timeout=20)
        assert ended.sandbox == "landlock"
        assert verdict.outcome is Outcome.CONFIRMED


def without_the_hook(source: str, work: Path) -> dict[str, object]:
    """What a snippet emits in a process that Landlock and the filter shut in, with no audit hook."""
    work.mkdir()
    script = (
        "import json, os\nfrom torchmemlint.confirm import sandbox\nfrom torchmemlint.confirm.launch import _readable\n"
        f"sandbox.close_in(_readable(), {str(work)!r}, sandbox.Limits(), False)\n"
        f"exec({source!r}, {{'emit': lambda record: print(json.dumps(record['results']))}})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


class TestNoWall:
    """Where neither can be had, nothing runs unless it is asked for."""

    @pytest.mark.slow
    def test_it_is_refused_and_said(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("torchmemlint.confirm.launch.WALLS", ("nothing",))
        monkeypatch.setattr("torchmemlint.confirm.launch._BOOT", NO_WALL)
        monkeypatch.setattr("torchmemlint.confirm.launch._workers", {})  # whose copies know the walls that there are
        mark = tmp_path / "ran"
        span = Span(Position(1, 1), Position(1, 2))
        finding = Finding("TML102", "a-rule", Severity.WARNING, Confidence.HIGH, "m", "x.py", span)
        plan = Plan(finding, {"runner": "snippet", "source": f"open({str(mark)!r}, 'w')"}, Doubts("on"))
        refused = settle(plan, Options(timeout=20))
        assert "no wall today" in refused.verdict.reason
        assert "--no-sandbox" in refused.verdict.reason
        assert status([refused]) == 2
        assert not mark.exists()
        assert settle(plan, Options(timeout=20, sandbox=False)).sandbox == "none"
        assert mark.exists()


NO_WALL = """
import sys; sys.path.insert(0, {ours!r}); import torchmemlint; del sys.path[0]; sys.path.append({torch!r})
from torchmemlint.confirm import sandbox
def none(*arguments):
    raise OSError("no wall today")
sandbox.WALLS = {{"nothing": none}}
from torchmemlint.confirm.worker.main import main; main({runners!r})
"""


class TestForgery:
    """What the code says in the place of the experiment is known, named, and believed in nothing."""

    @pytest.mark.slow
    @either_sort
    @pytest.mark.parametrize("exits", [True, False])
    def test_what_is_written_to_descriptors(self, exits: bool) -> None:
        ended = run("writes_to_every_descriptor", EXIT=exits)
        assert ended.forged == "something other than the experiment's answers was written"
        assert run_of(ended, "before") is None
        assert bool(ended.ending) == exits

    @pytest.mark.slow
    def test_an_answer_in_the_experiments_place(self) -> None:
        verdict, ended = measured("answers_for_the_experiment")
        assert ended.forged == "the code that ran gave an answer itself"
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert "forged" in verdict.reason

    @pytest.mark.slow
    def test_a_function_of_the_experiment_that_was_replaced(self) -> None:
        verdict, ended = measured("replaces_the_meter")
        assert "replaced torchmemlint.confirm.worker.meter.StorageMeter.live_bytes" in ended.forged
        assert verdict.outcome is Outcome.INCONCLUSIVE

    @pytest.mark.slow
    @either_sort
    def test_bytes_that_the_kernel_never_saw(self) -> None:
        verdict, ended = measured("claims_what_it_never_held")
        assert "bytes are reported as held; the process grew by" in ended.forged
        assert verdict.outcome is Outcome.INCONCLUSIVE

    @pytest.mark.slow
    @either_sort
    def test_an_end_before_the_last_word_is_reported(self) -> None:
        ended = launch({"runner": "snippet", "source": "import os; os._exit(0)"}, 20)
        assert ended.ending == "the code ended its process before the end of the experiment"

    def test_honest_answers_are_believed(self) -> None:
        emitted, key = [], channel.new_key()
        reading, writing = os.pipe()
        emit, _ = channel.sender(writing, key)
        for record in ({"variant": "before"}, {"variant": "after"}, {channel.END: True}):
            emit(record)
            emitted.append(record)
        os.close(writing)
        with open(reading, "rb") as pipe:
            data = pipe.read()
        assert channel.hear(data, key) == channel.Answers(tuple(emitted), "", True)
        lines = data.splitlines(keepends=True)
        for forged in (
            lines[0] + lines[0] + b"".join(lines[1:]),  # said twice
            lines[1] + lines[0] + lines[2],  # another order
            b"".join(lines).replace(b"after", b"inert"),  # other words
            b"".join([*lines, b'{"variant": "before"}\n']),  # more words
        ):
            assert channel.hear(forged, key).forged
        assert channel.hear(data, channel.new_key()).forged
        assert channel.hear(data[:-5], key) == channel.Answers(tuple(emitted[:2]), "", False)  # cut off by a crash


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


@pytest.mark.slow
@linux
def test_the_seat_belt_refuses_the_common_accidents(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("data")
    ended = launch({"runner": "snippet", "source": SEAT_BELT.format(target=str(target))}, 20, sandbox=False)
    assert ended.sandbox == "none"
    assert said(ended, "refused") == ["write", "remove", "socket", "process", "system", "fork", "kill"]
    assert target.read_text() == "data"
