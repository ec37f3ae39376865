"""What is known about torch or its neighbours: one table, a TOML file for each library.

``TORCH`` is the table; it is read when it is first asked for.
"""

from __future__ import annotations

from torchmemlint.torch_facts.loader import Renamed, TorchFacts, load
from torchmemlint.torch_facts.words import MODULE_KINDS

__all__ = ["MODULE_KINDS", "TORCH", "Renamed", "TorchFacts", "load"]

TORCH: TorchFacts


def __getattr__(name: str) -> TorchFacts:
    if name == "TORCH":
        return load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
