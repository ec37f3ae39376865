"""``TORCHMEMLINT_EXECUTOR``: where the work is done, as the environment names it.

It names code that is run, so nothing that a linted project can write does: no option, which a file's name could be taken for, no
key of a configuration, and its module is not looked for in the current folder.

module:factory         any callable that returns a ``concurrent.futures.Executor``
dask:tcp://host:port   a Dask cluster, by the address of its scheduler
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module

from torchmemlint.errors import UsageError
from torchmemlint.processes.pool import usable_cpus

VARIABLE = "TORCHMEMLINT_EXECUTOR"
PATIENCE_SECONDS = 10
"""For a scheduler to answer."""


def named() -> str:
    """What the environment names, "" where it names nothing."""
    return os.environ.get(VARIABLE, "")


@contextmanager
def opened() -> Iterator[tuple[Executor, int] | None]:
    """The executor, and how many tasks it can do at a time (a guess where it does not say); None where the environment names
    none. Raises UsageError."""
    spec = named()
    if not spec:
        yield None
        return
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
        raise UsageError(f"${VARIABLE} dask:{address} needs Dask: pip install distributed") from None
    try:
        client = Client(address, timeout=PATIENCE_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"${VARIABLE} dask:{address}: no scheduler answers: {error}") from None
    with client:
        # Work that a worker took with it when it died is given to another; several deaths in a row are bad luck, not the file's.
        yield client.get_executor(pure=False, retries=3), sum(client.ncores().values()) or 1


def _made(spec: str) -> Executor:
    module, colon, name = spec.partition(":")
    if not (module and colon and name):
        raise UsageError(f"${VARIABLE} {spec}: must be module:factory, or dask:tcp://host:port")
    try:
        made = getattr(import_module(module), name)()
    except Exception as error:  # the user's own code
        raise UsageError(f"${VARIABLE} {spec}: {type(error).__name__}: {error}") from None
    if not isinstance(made, Executor):
        raise UsageError(f"${VARIABLE} {spec}: returns a {type(made).__name__}, not a concurrent.futures.Executor")
    return made
