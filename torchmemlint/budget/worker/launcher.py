"""What a launcher tells the processes that it starts: one process on one device.

(torchrun: docs.pytorch.org/docs/stable/elastic/run.html, "Environment variables".) A program that looks whether it was launched
sees that it was not; one that takes it for granted gets an answer.
"""

from __future__ import annotations

import os
from typing import Any

from torchmemlint.budget.worker.patch import put

VARIABLES = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500", "CUDA_VISIBLE_DEVICES": "0",
}  # fmt: skip


def install() -> None:
    """``os.environ["RANK"]`` has a value; ``"RANK" in os.environ`` and ``os.environ.get("RANK")`` say that there is none."""
    kind: Any = type(os.environ)
    find = kind.__getitem__

    def item(self: Any, key: str) -> Any:
        try:
            return find(self, key)
        except KeyError:
            if key not in VARIABLES:
                raise
            return VARIABLES[key]

    def contains(self: Any, key: object) -> bool:
        try:
            find(self, key)
        except KeyError:
            return False
        return True

    put(kind, "__getitem__", item)
    put(kind, "__contains__", contains)
    put(kind, "get", lambda self, key, default=None: find(self, key) if key in self else default)
