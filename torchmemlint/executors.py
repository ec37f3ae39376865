"""``--executor``: where the work is done, as the user names it.

module:factory         any callable that returns a ``concurrent.futures.Executor``
dask:tcp://host:port   a Dask cluster, by the address of its scheduler
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module

from torchmemlint.errors import UsageError
from torchmemlint.pool import usable_cpus

PATIENCE_SECONDS = 10
"""For a scheduler to answer."""


@contextmanager
def opened(spec: str) -> Iterator[tuple[Executor, int]]:
    """The executor, and how many tasks it can do at a time (a guess where it does not say). Raises UsageError."""
    if spec.startswith("dask:"):
        with _dask(spec.removeprefix("dask:")) as found:
            yield found
        return
    with _made(spec) as executor:
        places = getattr(executor, "_max_workers", None)
        yield executor, places if isinstance(places, int) and places > 0 else usable_cpus()


@contextmanager
def _dask(address: str) -> Iterator[tuple[Executor, int]]:
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(f"--executor dask:{address} needs Dask: pip install 'torchmemlint[dask]'") from None
    try:
        client = Client(address, timeout=PATIENCE_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"--executor dask:{address}: no scheduler answers: {error}") from None
    with client:
        # Work that a worker took with it when it died is given to another; several deaths in a row are bad luck, not the file's.
        yield client.get_executor(pure=False, retries=3), sum(client.ncores().values()) or 1


def _made(spec: str) -> Executor:
    module, colon, name = spec.partition(":")
    if not (module and colon and name):
        raise UsageError(f"--executor {spec}: must be module:factory, or dask:tcp://host:port")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        made = getattr(import_module(module), name)()
    except Exception as error:  # the user's own code
        raise UsageError(f"--executor {spec}: {type(error).__name__}: {error}") from None
    if not isinstance(made, Executor):
        raise UsageError(f"--executor {spec}: gives a {type(made).__name__}, which is no concurrent.futures.Executor")
    return made
