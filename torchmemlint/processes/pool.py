"""One function over many files, in this process, in several, or on whatever runs an ``Executor``'s tasks.

Results stand in the order of the files and do not depend on how many processes there were. A process that dies (a parser's
segmentation fault, the kernel's out-of-memory killer) loses nothing: its files are done again, and a file that kills a process
of its own is given to ``lost``.
"""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from torchmemlint.files.digest import digest
from torchmemlint.processes import forks
from torchmemlint.processes.frames import with_frame_chunk

if TYPE_CHECKING:
    from concurrent.futures import Executor, ProcessPoolExecutor
    from multiprocessing.context import BaseContext

    from torchmemlint.processes.exchange import Exchange

S = TypeVar("S")
R = TypeVar("R")
Work = tuple[Callable[[S, str], R], S]

_CHUNKS = 6
"""Chunks for each process: so many that none is left with a long tail alone, so few that sending them costs little."""

_PIECES = 250
"""The same where a process takes the next piece itself: these cost nothing but their sending."""

_work: Work[object, object] | None = None
"""In a worker process: the function and the shared argument of its calls."""
_received: dict[str, Work[object, object]] = {}
"""In a process of a cluster: the same, by the digest of how it came."""


def run_all(
    function: Callable[[S, str], R],
    shared: S,
    paths: Sequence[str],
    jobs: int,
    lost: Callable[[str, str], R],
    progress: Callable[[int], None] = lambda files: None,
    share: Callable[[Exchange], None] | None = None,
) -> list[R]:
    """``function(shared, path)`` for each path, in order, in up to ``jobs`` processes; ``lost(path, why)`` where it kills its
    process. ``progress`` hears whenever some more files are done; ``share`` is given the exchange of processes that share this one's
    memory, before they start."""
    jobs = min(jobs, len(paths))
    if jobs > 1:
        gc.freeze()  # a collection in a forked worker would write to all that is shared, and so copy it
        try:
            if forks.may_die():
                with _exchange(jobs, share):
                    return _together(function, shared, paths, jobs, lost, progress)
            with _children_that_trust_no_folder():
                return _in_pool(function, shared, paths, jobs, lost, progress)
        except (ImportError, NotImplementedError, PermissionError):  # no semaphores or processes here, as in some sandboxes
            pass
        finally:
            gc.unfreeze()
    results = []
    for path in paths:
        results.append(function(shared, path))
        progress(1)
    return results


def run_on(
    executor: Executor,
    workers: int,
    function: Callable[[S, str], R],
    shared: S,
    paths: Sequence[str],
    lost: Callable[[str, str], R],
    progress: Callable[[int], None] = lambda files: None,
) -> list[R]:
    """As ``run_all``, on an executor that has ``workers`` places for tasks. Each task brings all that it needs; what the
    executor fails at is done here."""
    import pickle

    work = zlib.compress(pickle.dumps((function, shared)), 1)
    name = digest(work)
    chunks = chunks_by_size(paths, workers * _CHUNKS)
    results: dict[str, R] = {}
    futures = [executor.submit(call_received, name, work, chunk) for chunk in chunks]
    for chunk, future in zip(chunks, futures, strict=True):
        try:
            results.update(zip(chunk, future.result(), strict=True))  # type: ignore[arg-type]
            progress(len(chunk))
        except Exception:  # an executor may raise what it likes when it loses a worker
            continue
    missing = [path for path in paths if path not in results]
    if missing:
        # Never in this process: what kills a worker there would kill it too.
        results |= zip(
            missing, _in_pool(function, shared, missing, min(usable_cpus(), len(missing)), lost, progress), strict=True
        )
    return [results[path] for path in paths]


@with_frame_chunk
def call_received(name: str, work: bytes, paths: Sequence[str]) -> list[object]:
    """What a task does on a cluster: unpacks the work, once for all its tasks in one process, and does its files."""
    if name not in _received:
        import pickle

        _received.clear()
        _received[name] = pickle.loads(zlib.decompress(work))
    function, shared = _received[name]
    return [function(shared, path) for path in paths]


def chunks_by_size(paths: Sequence[str], count: int) -> list[list[str]]:
    """The files in about ``count`` chunks of like size in bytes, the largest files first."""
    sizes = {path: size_of(path) for path in paths}
    share = sum(sizes.values()) // max(1, count) + 1
    chunks: list[list[str]] = []
    remaining = 0
    for path in sorted(paths, key=lambda path: (-sizes[path], path)):
        if remaining <= 0:
            chunks.append([])
            remaining = share
        chunks[-1].append(path)
        remaining -= sizes[path] + 1
    return chunks


def size_of(path: str) -> int:
    """Bytes of a file on disk; 0 when there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


@contextmanager
def _exchange(jobs: int, share: Callable[[Exchange], None] | None) -> Iterator[None]:
    if share is None:
        yield
        return
    from torchmemlint.processes.exchange import Exchange

    exchange = Exchange(jobs)
    share(exchange)
    try:
        yield
    finally:
        exchange.close()


def _together(
    function: Callable[[S, str], R],
    shared: S,
    paths: Sequence[str],
    jobs: int,
    lost: Callable[[str, str], R],
    progress: Callable[[int], None],
) -> list[R]:
    """As ``_in_pool``, where this process may do files itself."""
    chunks = chunks_by_size(paths, min(jobs * _PIECES, forks.MOST - 1))
    results: dict[str, R] = {}

    def call_each(number: int) -> list[R]:
        return [function(shared, path) for path in chunks[number]]

    for number, found in forks.together(call_each, len(chunks), jobs - 1):
        results.update(zip(chunks[number], found, strict=True))
        progress(len(found))
    missing = [path for path in paths if path not in results]
    if missing:
        results |= zip(missing, _in_pool(function, shared, missing, min(jobs, len(missing)), lost, progress), strict=True)
    return [results[path] for path in paths]


def _in_pool(
    function: Callable[[S, str], R],
    shared: S,
    paths: Sequence[str],
    jobs: int,
    lost: Callable[[str, str], R],
    progress: Callable[[int], None],
) -> list[R]:
    from concurrent.futures.process import BrokenProcessPool

    chunks = chunks_by_size(paths, jobs * _CHUNKS)
    pool_of = _pools(function, shared)
    results: dict[str, R] = {}
    try:
        with _opened(pool_of(jobs)) as pool:
            for chunk, future in [(chunk, pool.submit(_call_each, chunk)) for chunk in chunks]:
                results.update(zip(chunk, future.result(), strict=True))  # type: ignore[arg-type]
                progress(len(chunk))
    except BrokenProcessPool:
        pass
    # A process died, and with it the pool. Each of its chunks in a process of its own; where that dies too, each file.
    left = [chunk for chunk in chunks if chunk[0] not in results]
    for group in (*left, *([path] for chunk in left for path in chunk)):
        if group[0] in results:
            continue
        try:
            with _opened(pool_of(1)) as pool:
                results.update(zip(group, pool.submit(_call_each, group).result(), strict=True))  # type: ignore[arg-type]
        except BrokenProcessPool:
            if len(group) == 1:
                results[group[0]] = lost(group[0], "the process that checked it died")
    return [results[path] for path in paths]


@contextmanager
def _opened(pool: ProcessPoolExecutor) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are killed where this one is interrupted, or one of them has died: else it would wait until they have done all,
    and for ever for one that was being started when the pool broke."""
    from multiprocessing import active_children

    others = active_children()
    with pool:
        try:
            yield pool
        except BaseException:
            for child in active_children():
                if child not in others:
                    child.kill()
            raise


def _pools(function: Callable[[S, str], R], shared: S) -> Callable[[int], ProcessPoolExecutor]:
    """Makes pools whose processes have the function and what is shared.

    Forked workers share the project without copying it; that is only sound while this process has one thread, and macOS and
    Windows cannot. Elsewhere each worker gets the project through a pipe.
    """
    import multiprocessing
    import threading
    from concurrent.futures import ProcessPoolExecutor

    global _work
    if sys.platform == "linux" and threading.active_count() == 1:
        _work = (function, shared)  # type: ignore[assignment]
        forked = multiprocessing.get_context("fork")
        return lambda workers: ProcessPoolExecutor(workers, forked, _end_with_parent)
    context: BaseContext = multiprocessing.get_context("spawn")
    return lambda workers: ProcessPoolExecutor(workers, context, partial(_keep, function, shared, gc.get_threshold()))


@contextmanager
def _children_that_trust_no_folder() -> Iterator[None]:
    """Processes that are not forked start by ``python -c``, which looks for modules in the current folder first: a linted project
    with a ``multiprocessing.py`` would be run. (Python 3.10 knows of no such wish.)"""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _keep(function: Callable[[S, str], object], shared: S, threshold: tuple[int, int, int]) -> None:
    global _work
    _end_with_parent()
    gc.set_threshold(*threshold)
    _work = (function, shared)  # type: ignore[assignment]


def _end_with_parent() -> None:
    """Ends this process of a pool when the one that made it has died: nothing else would end it."""
    import threading
    from multiprocessing import connection, parent_process

    parent = parent_process()
    if parent is None:
        return

    def end() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


@with_frame_chunk
def _call_each(paths: Sequence[str]) -> list[object]:
    assert _work is not None  # set by the initializer, or before the fork
    function, shared = _work
    return [function(shared, path) for path in paths]


def usable_cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shares(weights: Sequence[tuple[str, int]], count: int) -> Iterator[list[str]]:
    """Files dealt to ``count`` hands, the heaviest first, each to the hand that holds least: the same for the same files."""
    hands: list[tuple[int, int, list[str]]] = [(0, place, []) for place in range(count)]
    for path, weight in sorted(weights, key=lambda one: (-one[1], one[0])):
        held, place, hand = min(hands, key=lambda one: one[:2])
        hand.append(path)
        hands[place] = (held + weight, place, hand)
    return (hand for _, _, hand in hands)
