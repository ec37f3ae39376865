"""The price of a mistake: the first row of ``cost.toml`` for what grows, of which the circumstance holds.

A rule says what grows and which circumstances it can know; what they come to is said here, for all rules alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from torchmemlint.findings import Severity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Circumstances = Mapping[str, Callable[[], str]]
"""The name of a circumstance → why it holds, in words; "" where it does not. Asked only where a row needs it."""


class Price(NamedTuple):
    """How grave a finding is, and what it says of its cost."""

    severity: Severity
    cost: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table.

    when     the circumstance that must hold; "" for the last row of a growth, which always matches
    at_most  the iterations that there may be, and must be known; None where their number does not matter
    says     what is added to the cost, or said instead of it (``instead``)
    source   where it is measured, or who says it
    """

    severity: Severity
    when: str
    at_most: int | None
    says: str
    source: str
    instead: bool = False

    def cost(self, cost: str, circumstances: Circumstances, turns: int) -> str | None:
        """What the row makes of a cost; None where it does not match."""
        if self.at_most is not None and not 0 <= turns <= self.at_most:
            return None
        asked = circumstances.get(self.when)
        why = asked() if asked is not None else ""
        if self.when and not why:
            return None
        says = self.says.format(why=why, turns=turns)
        return says if self.instead else cost + says


@cache
def table() -> Mapping[str, tuple[Row, ...]]:
    """What grows → its rows, in order. Raises KeyError for a row without a source, or behind one that always matches."""
    entries = tomllib.loads((Path(__file__).parent / "cost.toml").read_text(encoding="utf-8"))
    found: dict[str, tuple[Row, ...]] = {}
    for entry in entries["row"]:
        for growth in entry["growth"].split():
            when, at_most = entry.get("when", ""), entry.get("at-most")
            instead = entry.get("instead", "")
            says = instead or entry.get("says", entries["says"][when] if when else "")
            row = Row(Severity(entry["severity"]), when, at_most, says, entry["source"], bool(instead))
            above = found.get(growth, ())
            if above and not above[-1].when and above[-1].at_most is None:
                raise KeyError(f"{growth}: a row behind the last one")
            found[growth] = (*above, row)
    return found


def price(growth: str, cost: str, circumstances: Circumstances, turns: int = -1) -> Price:
    """What a mistake costs. ``cost`` says what grows; ``turns`` are the iterations of the loops in which it does, -1 where they are not
    known. Raises KeyError for a growth that the table does not have."""
    for row in table()[growth]:
        said = row.cost(cost, circumstances, turns)
        if said is not None:
            return Price(row.severity, said)
    raise KeyError(f"{growth}: no last row")
