"""What the facts about a candidate decide: the one place where findings get their confidence.

The table, ``scorecard.toml``, has a row for each fact. This module only adds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torchmemlint.findings import Confidence
from torchmemlint.rules.fact import Fact

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).parent / "scorecard.toml"
MEDIUM = 2
"""The weight up to which a finding is of medium confidence."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one fact decides.

    silences  no finding, whatever else speaks for one: ``gate`` where that is certain, ``soft`` where it is a judgement
    weight    how much less sure a finding is with it
    """

    silences: str = ""
    weight: int = 0


@cache
def table() -> Mapping[str, Row]:
    """Fact → row. Raises KeyError for a table that names a fact twice."""
    read = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows: dict[str, Row] = {}
    for kind, names in read["silences"].items():
        for name in names.split():
            if name in rows:
                raise KeyError(name)
            rows[name] = Row(silences=kind)
    for weight, names in read["weights"].items():
        for name in names.split():
            if name in rows:
                raise KeyError(name)
            rows[name] = Row(weight=int(weight))
    return rows


def silences(fact: Fact) -> bool:
    """Whether there is no finding where this is so."""
    return bool(table()[fact.name].silences)


def confidence_of(facts: Iterable[Fact]) -> Confidence:
    """How sure a finding is of which these facts are assumed."""
    weight = sum(table()[fact.name].weight for fact in set(facts))
    return Confidence.HIGH if not weight else Confidence.MEDIUM if weight <= MEDIUM else Confidence.LOW


def unless_of(facts: Iterable[Fact]) -> str:
    """What would make the finding false: its weightiest assumptions, two at most; "" where there is none."""
    rows = table()
    heaviest = sorted({fact for fact in facts if rows[fact.name].weight}, key=lambda one: (-rows[one.name].weight, one.words))
    return ", or ".join(fact.words for fact in heaviest[:2])
