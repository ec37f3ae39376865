"""``with torchmemlint.watching():`` what grows in the loops inside, for notebooks, servers and tests.

The report is printed on standard error at the end. torch is imported, if the program has not done so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass
class Watch:
    """What was seen; ``growths`` are known at the end of the block: plain data, as in the JSON report."""

    growths: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether something grows that is more than a note."""
        return any(not growth["note"] for growth in self.growths)


@contextmanager
def watching(*, report: bool = True, live: bool = False) -> Iterator[Watch]:
    """Watch the loops of the block. ``report`` False prints nothing; ``live`` prints each finding when it is found.

    Raises ImportError without torch, and RuntimeError inside of another such block.
    """
    from torchmemlint.growth.worker.running import Running

    import_module("torch")
    options = {"format": "full", "live": live, "python": sys.executable, "root": str(Path(__file__).resolve().parents[2])}
    running = Running(options)
    running.begin()
    watch = Watch()
    try:
        yield watch
    except BaseException as error:
        running.ended(error)
        raise
    finally:
        running.ended(None)
        watch.growths = running.growths()
        if report:
            running.report()
