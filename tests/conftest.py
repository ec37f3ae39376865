"""What tests of several files share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)  # a loaded machine is slow, which is no failure
settings.load_profile("patient")


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a Dask cluster of two worker processes."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as made:
        yield made.scheduler_address
