"""Work over many files: in order, in several processes, and whole even where processes die."""

import os
import pickle
import signal
import sys
import threading
import zlib
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from torchmemlint.processes import pool
from torchmemlint.processes.pool import call_received, chunks_by_size, run_all, run_on, shares


def double(shared: int, path: str) -> str:
    return f"{path}{shared}"


def dies_once(marks: str, path: str) -> str:
    """Kills its process at the first file called "killer", the first time."""
    mark = Path(marks) / "died"
    if path == "killer" and not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{path} done"


def always_dies(parent: int, path: str) -> str:
    assert os.getpid() != parent
    if path.startswith("killer"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{path} done"


def lost(path: str, why: str) -> str:
    return f"{path} lost: {why}"


NAMES = [f"f{number}" for number in range(40)]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 5, 100])
def test_results_stand_in_order(jobs: int) -> None:
    assert run_all(double, 7, NAMES, jobs, lost) == [f"{name}7" for name in NAMES]


def test_nothing_is_nothing() -> None:
    assert run_all(double, 7, [], 4, lost) == []


def test_beside_threads_no_process_is_forked() -> None:
    ready = threading.Event()
    thread = threading.Thread(target=ready.wait)
    thread.start()
    try:
        assert run_all(double, 7, NAMES[:6], 2, lost) == [f"{name}7" for name in NAMES[:6]]
    finally:
        ready.set()
        thread.join()


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_a_process_that_dies_loses_nothing(tmp_path: Path) -> None:
    names = [*NAMES[:20], "killer", *NAMES[20:]]
    assert run_all(dies_once, str(tmp_path), names, 3, lost) == [f"{name} done" for name in names]
    assert (tmp_path / "died").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_a_file_that_kills_twice_is_given_up_alone() -> None:
    names = [*NAMES[:20], "killer1", *NAMES[20:], "killer2"]
    found = run_all(always_dies, os.getpid(), names, 3, lost)
    assert found == [
        f"{name} lost: the process that checked it died" if name.startswith("killer") else f"{name} done" for name in names
    ]


def test_no_processes_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no semaphores here")

    monkeypatch.setattr(pool, "_in_pool", refuse)
    assert run_all(double, 7, NAMES, 4, lost) == [f"{name}7" for name in NAMES]


def test_chunks_are_of_like_size_and_start_with_the_largest(tmp_path: Path) -> None:
    sizes = {str(tmp_path / f"{number}.py"): number * 100 for number in range(1, 30)}
    for path, size in sizes.items():
        Path(path).write_bytes(b" " * size)
    chunks = chunks_by_size([*sizes], 8)
    assert sorted(path for chunk in chunks for path in chunk) == sorted(sizes)
    weights = [sum(sizes[path] for path in chunk) for chunk in chunks]
    assert max(weights) < 2 * sum(weights) / 8
    assert chunks[0][0] == str(tmp_path / "29.py")


def test_chunks_of_what_is_not_there() -> None:
    assert sorted(path for chunk in chunks_by_size(NAMES, 4) for path in chunk) == sorted(NAMES)
    assert chunks_by_size([], 4) == []


def test_shares_are_even_and_do_not_depend_on_the_order() -> None:
    weights = [(f"f{number}.py", number * number) for number in range(50)]
    hands = [*shares(weights, 4)]
    assert hands == [*shares(weights[::-1], 4)]
    assert sorted(path for hand in hands for path in hand) == sorted(path for path, _ in weights)
    held = [sum(dict(weights)[path] for path in hand) for hand in hands]
    assert max(held) - min(held) < max(dict(weights).values())
    assert [*shares([("a", 1)], 3)] == [["a"], [], []]


class Careless(Executor):
    """Does every second task, and loses the others as clusters do."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, function, /, *arguments, **keywords):  # type: ignore[no-untyped-def]
        future: Future[object] = Future()
        self.count += 1
        if self.count % 2:
            future.set_exception(RuntimeError("the worker is gone"))
        else:
            future.set_result(function(*arguments, **keywords))
        return future


def test_what_an_executor_loses_is_done_here() -> None:
    executor = Careless()
    assert run_on(executor, 2, double, 7, NAMES, lost) == [f"{name}7" for name in NAMES]
    assert executor.count > 2


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_a_broken_executor_loses_nothing() -> None:
    with ProcessPoolExecutor(2) as executor:
        found = run_on(executor, 2, always_dies, os.getpid(), [*NAMES, "killer"], lost)
    assert found == [*(f"{name} done" for name in NAMES), "killer lost: the process that checked it died"]


def test_work_is_unpacked_once_in_a_process() -> None:
    work = zlib.compress(pickle.dumps((double, 7)))
    assert call_received("one", work, ["a"]) == ["a7"]
    assert call_received("one", b"not looked at", ["b"]) == ["b7"]
    assert call_received("two", zlib.compress(pickle.dumps((double, 8))), ["c"]) == ["c8"]
    assert [*pool._received] == ["two"]
