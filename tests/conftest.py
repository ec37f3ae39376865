"""What tests of several files share."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)  # a loaded machine is slow, which is no failure
settings.load_profile("patient")


THRESHOLD = gc.get_threshold()


def pytest_runtest_teardown() -> None:
    """A command has garbage collected seldom, since it ends soon. A test that calls one in this process does not leave it so: a whole run
    of the tests held 3 GB."""
    gc.set_threshold(*THRESHOLD)


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
def cluster() -> Iterator[str]:
    """The address of a Dask cluster of two worker processes."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as made:
        yield made.scheduler_address
