"""What a job asks about: the flagged line, in which file, called in which grad mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchmemlint.confirm.worker.program import Flaw, Place
from torchmemlint.rules.card import Correction


@dataclass(frozen=True, slots=True)
class Target:
    """The flagged line, and the grad mode that its function is called in. ``turned`` are rows of ``if`` statements whose guessed
    answer is to be the other one; ``inert`` names callees that are to give plain data."""

    source: str
    place: Place
    flaw: Flaw
    device: str
    grad: str
    module: str
    modules: Mapping[str, str]
    packages: frozenset[str]
    claimed: bool
    inert: frozenset[str] = frozenset()
    turned: frozenset[int] = frozenset()

    def fixed(self, source: str, row: int) -> Target:
        """The target in the file with the finding's own fix, whose flagged statement is in ``row``."""
        longer = source.count("\n") - self.source.count("\n")
        turned = frozenset(item + (longer if item > self.place.row else row - self.place.row) for item in self.turned)
        return replace(self, source=source, place=Place(row, self.place.column), turned=turned)


def target_of(job: Mapping[str, Any]) -> Target:
    """What a job asks about."""
    return Target(
        job["source"], Place(*job["place"]), Flaw(Correction(str(job["correction"])), str(job.get("keyword", ""))), job["device"],
        str(job.get("grad", "on")), str(job.get("module", "confirmed_module")), job.get("modules", {}),
        frozenset(job.get("packages", ())), job.get("claimed") is True,
    )  # fmt: skip
