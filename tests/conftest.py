"""What tests of several files share."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from torchmemlint.budget.runs import RUNNERS
from torchmemlint.confirm import launch
from torchmemlint.confirm.launch import warmed
from torchmemlint.confirm.warm import START_SECONDS

settings.register_profile("patient", deadline=None)  # a loaded machine is slow, which is no failure
settings.load_profile("patient")

SLOW = b"pytest.mark.slow"
"""Stands in each file that has a slow test."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """``pytest`` alone runs the fast tests, in two processes; with words (``-k``) those that have them, fast and slow, in two as well. Who
    names files, tests or a marker, or asks for those that failed, gets what is asked for, as pytest does it. The two processes come
    here too, with the same command line."""
    option = config.option
    if option.markexpr == "slow" and getattr(option, "numprocesses", 0) and option.dist == "no":
        option.dist = "worksteal"  # a file's slow tests share what they prepare: each process begins with half of the files
    named = config.args_source not in (pytest.Config.ArgsSource.TESTPATHS, pytest.Config.ArgsSource.INVOCATION_DIR)
    if named or option.markexpr or any(getattr(option, name, False) for name in ("lf", "failedfirst", "stepwise")):
        return
    if not option.keyword:
        option.markexpr = "not slow"
    is_one = "PYTEST_XDIST_WORKER" in os.environ
    is_watched = option.usepdb or option.collectonly or option.capture == "no"
    if not is_one and getattr(option, "numprocesses", 0) is None and not is_watched:
        option.numprocesses = 2


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of ``-m slow``, no file without a slow test is loaded: ten thousand tests and their tables, in each process anew."""
    is_file = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if config.option.markexpr == "slow" and is_file and SLOW not in collection_path.read_bytes():
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file about one fixture run in a row, in one process as a rule: they remember what the linter said of it. What
    measures time or memory runs after all others, so that at most one test is at work beside it. Slow tests of files that are about
    ``confirm`` and ``budget`` start warm children; of the others few start one."""
    has_torch = find_spec("torch") is not None  # without it there are no children to warm up
    first: dict[object, int] = {}
    places = []
    for number, item in enumerate(items):
        command = re.match(r"test_(confirm|budget)_", item.path.name)
        if command and has_torch and isinstance(item, pytest.Function) and item.get_closest_marker("slow"):
            item.fixturenames.insert(0, f"warm_{command[1]}")
        case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
        name = getattr(case, "name", None)
        about = item if name is None else (item.path, name)
        places.append((item.get_closest_marker("timed") is not None, first.setdefault(about, number), number))
    items[:] = [items[number] for *_, number in sorted(places)]


THRESHOLD = gc.get_threshold()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    set_apart()


def set_apart() -> None:
    """What is alive now stays: twelve thousand tests, torch, what files of tests keep. No collection looks through it again, here or in a
    process that is forked from this one, which would get a copy of all by looking: half of the time of tests that analyse in this
    process."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A command has garbage collected seldom, since it ends soon. A test that calls one in this process does not leave it so: a whole run
    of the tests held 3 GB."""
    gc.set_threshold(*THRESHOLD)
    if nextitem is not None and nextitem.path != item.path:
        set_apart()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collects garbage while pytest-xdist still waits for its workers, and leaves nothing to collect. Later, pytest collects it again;
    if a worker needs more than five seconds for that, execnet sends it SIGINT, and a test seems to have raised KeyboardInterrupt."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's cache folder, also for programs that tests start: nothing is written into that of who runs them."""
    folder = tmp_path_factory.mktemp("caches", numbered=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture
def nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a text that is checked under a name of its own: the search for its callers would read two seconds of this project."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a Dask cluster of two worker processes."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as made:
        yield made.scheduler_address


@pytest.fixture(scope="session")
def warm_confirm() -> Iterator[None]:
    """The sandboxed children of ``confirm`` are copies of one process that has loaded torch, which takes three seconds of CPU."""
    with warmed():
        yield


@pytest.fixture(scope="session")
def warm_budget() -> Iterator[None]:
    """The same of ``budget``, whose children need five seconds. The first of them does not begin before: its time limit counts."""
    with warmed(RUNNERS):
        if RUNNERS in launch._workers:
            launch._workers[RUNNERS].awaited("ready", 0, START_SECONDS)
        yield
