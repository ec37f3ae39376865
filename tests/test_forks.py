"""Processes forked from one that works beside them, and may die of it."""

import mmap
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchmemlint.incremental.cache import Cache
from torchmemlint.processes import forks
from torchmemlint.processes.pool import run_all
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.results import Checked, Scanned
from torchmemlint.run import Means, check_paths
from torchmemlint.workers import InspectAll, ScanAll, inspect, scan

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks as Linux does")

NAMES = [f"f{number}" for number in range(200)]
TRAIN = """import torch

def train(model, loader, optimizer, criterion):
    total = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss
    return total
"""


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # those of pytest do not count
    yield
    forks.wait()


def write(root: Path, files: dict[str, str]) -> None:
    root.mkdir()
    for name, text in files.items():
        (root / name).write_text(text)


def lost(path: str, why: str) -> str:
    return f"{path} lost: {why}"


def kill(mark: Path) -> None:
    """Kills this process, the first time."""
    if not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_is_begun_beside_is_there_when_it_is_asked_for() -> None:
    found = [forks.beside(lambda number=number: b"%d %d" % (number, os.getpid())) for number in range(3)]  # type: ignore[misc]
    answers = [(each() or b"").split() for each in found]
    assert [int(number) for number, _ in answers] == [0, 1, 2]
    assert len({os.getpid(), *(int(process) for _, process in answers)}) == 4
    large = b"x" * 3_000_000
    assert forks.beside(lambda: large)() == large


def test_what_died_or_failed_beside_gave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forks.beside(lambda: b"%d" % (1 // 0))() is None
    assert forks.beside(lambda: bytes(os.kill(os.getpid(), signal.SIGKILL) or 0))() is None  # type: ignore[func-returns-value]

    def refuse() -> int:
        raise OSError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    assert forks.beside(lambda: b"")() is None


def test_what_is_begun_beside_and_not_asked_for_is_waited_for(tmp_path: Path) -> None:
    forks.beside(lambda: b"%d" % (tmp_path / "done").write_bytes(b""))
    forks.wait()
    assert (tmp_path / "done").exists()


def test_an_attempt_is_made_elsewhere() -> None:
    changed = []

    def work() -> tuple[int, bool]:
        changed.append(1)
        return os.getpid(), forks.may_die()

    found = forks.attempt(work)
    assert found is not None
    assert found[0] != os.getpid()
    assert found[1]
    assert changed == []
    assert not forks.may_die()


def test_a_large_result_comes_whole() -> None:
    assert forks.attempt(lambda: b"x" * 5_000_000) == b"x" * 5_000_000


def test_an_attempt_that_dies_or_fails_gives_nothing() -> None:
    assert forks.attempt(lambda: os.kill(os.getpid(), signal.SIGKILL)) is None
    assert forks.attempt(lambda: [][1]) is None
    assert forks.attempt(lambda: os._exit(0)) is None
    assert forks.attempt(lambda: lambda: 1) is None  # cannot be sent
    assert forks.attempt(lambda: forks.attempt(lambda: 1) or "none within another") == "none within another"


def test_beside_threads_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert forks.attempt(lambda: 1) is None


@pytest.mark.parametrize("helpers", [1, 3])
def test_every_piece_is_done_once(helpers: int) -> None:
    common = tuple(range(1000))
    found = list(forks.together(lambda number: (number, common, os.getpid()), 300, helpers))
    assert sorted(number for number, _ in found) == list(range(300))
    assert all(number == result[0] and result[1] == common for number, result in found)


def test_helpers_do_a_share() -> None:
    """Each process waits with its piece until the other two have one as well."""
    begun = mmap.mmap(-1, 60)

    def work(number: int) -> int:
        begun[number] = 1
        together = slice(number // 3 * 3, number // 3 * 3 + 3)
        for _ in range(6000):
            if all(begun[together]):
                return os.getpid()
            threading.Event().wait(0.01)
        raise AssertionError("a helper takes no piece")

    found = forks.attempt(lambda: [pid for _, pid in forks.together(work, 60, 2)])
    assert found is not None
    assert sorted(Counter(found).values()) == [20, 20, 20]


def test_what_a_helper_was_at_when_it_died_is_left_out() -> None:
    here = os.getpid()

    def work(number: int) -> int:
        if os.getpid() != here and number == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait(0.005 if os.getpid() != here or number != 0 else 0.3)
        return number

    found = dict(forks.together(work, 20, 1))
    assert found == {number: number for number in range(20) if number != 7 or 7 in found}
    assert len(found) >= 19


def test_no_helper_is_left_when_the_work_stops() -> None:
    here = os.getpid()
    done: list[int] = []

    def work(number: int) -> int:
        if done:
            raise KeyboardInterrupt
        if os.getpid() == here:
            done.append(number)
        threading.Event().wait(0.01)
        return os.getpid()

    seen: set[int] = set()

    def run() -> None:
        for _ in forks.together(work, forks.MOST, 2):
            seen.update(forks._helpers)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(seen) == 2
    assert not forks._helpers
    for each in seen:  # not any child: other tests of this process may have some
        with pytest.raises(ChildProcessError):
            os.waitpid(each, os.WNOHANG)


def test_a_helper_that_dies_loses_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "died"

    def work() -> list[str]:
        here = os.getpid()

        def double(shared: int, path: str) -> str:
            if os.getpid() != here:
                kill(mark)
            threading.Event().wait(0.001)
            return f"{path}{shared}"

        return run_all(double, 7, NAMES, 3, lost)

    assert forks.attempt(work) == [f"{name}7" for name in NAMES]
    assert mark.exists()


@pytest.mark.parametrize("helper", [False, True])
@pytest.mark.parametrize("stage", ["scan", "inspect"])
def test_a_run_in_which_a_process_dies_loses_nothing(
    stage: str, helper: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    write(project, {f"m{number}.py": TRAIN for number in range(12)})
    monkeypatch.chdir(project)
    configuration = Configuration(CommandLine({}, isolated=True))
    alone = check_paths(["."], configuration, 1)
    assert len(alone.findings) == 12
    mark, here = tmp_path / "died", os.getpid()

    def die() -> None:
        if forks.may_die() and (os.getppid() != here) == helper:
            kill(mark)
        threading.Event().wait(0.01)

    def dying_scan(shared: ScanAll, path: str) -> Scanned:
        if stage == "scan":
            die()
        return scan(shared, path)

    def dying_inspect(shared: InspectAll, path: str) -> Checked:
        if stage == "inspect":
            die()
        return inspect(shared, path)

    monkeypatch.setattr("torchmemlint.running.scanning.scan", dying_scan)
    monkeypatch.setattr("torchmemlint.running.inspecting.inspect", dying_inspect)
    assert check_paths(["."], configuration, 2) == alone
    assert mark.exists()


def test_several_processes_fill_a_cache_as_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    write(project, {f"m{number}.py": TRAIN for number in range(12)})
    for path in project.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    monkeypatch.chdir(project)
    configuration = Configuration(CommandLine({}, isolated=True))

    def names(root: Path) -> list[str]:
        found = (path.relative_to(root) for path in root.rglob("*.json"))
        return sorted(str(path) for path in found if "answers" not in path.parts)

    runs = {}
    for jobs in (1, 2):
        cache = Cache.below(str(tmp_path / str(jobs)))
        runs[jobs] = [check_paths(["."], configuration, jobs, means=Means(cache)) for _ in range(2)]
    assert runs[1] == runs[2] == [runs[1][0]] * 2
    assert len(runs[1][0].findings) == 12
    assert names(tmp_path / "1") == names(tmp_path / "2")
    assert any(name.split("/")[1] == "results" for name in names(tmp_path / "2"))


def test_trouble_with_a_cache_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "project", {f"m{number}.py": TRAIN for number in range(4)})
    monkeypatch.chdir(tmp_path / "project")
    cache = Cache.below(str(tmp_path / "cache"))
    Path(cache.folder).mkdir(exist_ok=True)
    (Path(cache.folder) / "facts").write_text("in the way")
    check_paths(["."], Configuration(CommandLine({}, isolated=True)), 2, means=Means(cache))
    assert "nothing is cached" in cache.trouble
