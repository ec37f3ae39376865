"""``torchmemlint --watch``: check again whenever a file changes.

Polling, as ``stat`` costs a microsecond and needs no package: every 0.3 seconds, or less often where one look takes long, so that
it never takes more than a tenth of a CPU.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Sequence

from torchmemlint.errors import TorchmemlintError
from torchmemlint.files.quoting import printable
from torchmemlint.project import neighbours
from torchmemlint.project.config import Configuration
from torchmemlint.project.discover import discover

SECONDS = 0.3
BUSY = 10
"""A look that takes so many times less than the pause after it is cheap enough."""

Signature = dict[str, tuple[int, int]]


def watch(paths: Sequence[str], configure: Callable[[], Configuration], check: Callable[[], object]) -> int:
    """Checks now and after every change, until it is interrupted (KeyboardInterrupt, exit status 130).

    ``configure`` reads the configuration again; an error in it is printed, and the next change is awaited.
    """
    while True:
        before = _signature(paths, configure)
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[2J\x1b[3J\x1b[H")  # a clear screen: what is on it is what is true now
        neighbours.forget()
        try:
            check()
        except TorchmemlintError as error:
            print(f"torchmemlint: error: {printable(str(error))}", file=sys.stderr)
        gc.collect()  # a run is to end before the collector would pay: what it leaves is in cycles, and would grow with each
        print("Watching for changes; press Ctrl-C to stop.", file=sys.stderr, flush=True)
        while True:
            began = time.monotonic()
            changed = _signature(paths, configure) != before
            if changed:
                break
            time.sleep(max(SECONDS, BUSY * (time.monotonic() - began)))


def _signature(paths: Sequence[str], configure: Callable[[], Configuration]) -> Signature:
    """Time and size of every file that the result depends on, as far as the files themselves go."""
    names = {name for path in paths for name in _beside(path if os.path.isdir(path) else os.path.dirname(path))}
    try:
        found = discover(paths, configure())
    except TorchmemlintError:
        return _stamps(names)
    for file in found.files:
        names |= {file.path, file.settings.source, file.settings.baseline}
    return _stamps(names)


def _beside(folder: str) -> list[str]:
    """Files that may say how this folder's are checked, whether they exist or not."""
    above = [os.path.abspath(folder)]
    while (parent := os.path.dirname(above[-1])) != above[-1]:
        above.append(parent)
    return [os.path.join(one, name) for one in above for name in ("pyproject.toml", "torchmemlint.toml")]


def _stamps(names: set[str]) -> Signature:
    stamps = {}
    for name in names:
        try:
            status = os.stat(name)
        except OSError:
            continue
        stamps[name] = (status.st_mtime_ns, status.st_size)
    return stamps
