"""What the facts about a candidate decide: the one place where findings get their confidence.

``facts.toml`` says by hand which facts silence a finding; ``scorecard.toml`` has the points of the others, fitted to findings that
were read (``benchmarks/field/fit.py``). This module only adds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torchmemlint.findings import Confidence
from torchmemlint.rules.fact import Fact

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FACTS = Path(__file__).parent / "facts.toml"
TABLE = Path(__file__).parent / "scorecard.toml"
EVERY_RULE = "every rule"
"""The row of the intercept that is common to all rules."""
LEVELS = {Confidence.HIGH: 0.8, Confidence.MEDIUM: 0.5}
"""The probability from which on a finding is of a level: more likely true than not, and four of five. Of 482 findings of living code, read
before anything was mended by them, those from 0.8 on were not false in 85 of 100, the others from 0.5 on in 71, and the 16 below, which are
not printed, in 19."""
HIDDEN = "a hidden assumption"
"""The row of all assumptions that findings are hidden for: of each by itself too few findings were read."""
HIDES = 3
"""How grave assumptions are together for which a finding is hidden."""
DOUBTFUL = 0.5
"""The most that a finding with one of these is believed, whatever else is known: 15 were read, and half of them were false."""


@dataclass(frozen=True, slots=True)
class Row:
    """Points of a fact, or of a rule's intercept, in log-odds.

    n       findings with it that were read
    error   standard error of the points
    source  where they come from
    """

    points: float
    n: int
    error: float
    source: str


@dataclass(frozen=True, slots=True)
class Table:
    """Which facts silence, how grave each assumption is, all that are known, and the rows."""

    silencing: frozenset[str]
    assumed: Mapping[str, int]
    known: frozenset[str]
    rules: Mapping[str, Row]
    rows: Mapping[str, Row]


def by_hand() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """What ``facts.toml`` says: table → key → the facts there."""
    groups = tomllib.loads(FACTS.read_text(encoding="utf-8"))
    return {name: {key: frozenset(text.split()) for key, text in group.items()} for name, group in groups.items()}


def rows_of(entries: Iterable[Mapping[str, Any]], key: str) -> dict[str, Row]:
    """Rows by their name. Raises KeyError for one without points, count, error or source, and for a name that is there twice."""
    found: dict[str, Row] = {}
    for entry in entries:
        if entry[key] in found:
            raise KeyError(f"{entry[key]} has two rows")
        found[entry[key]] = Row(entry["points"], entry["n"], entry["error"], entry["source"])
    return found


@cache
def table() -> Table:
    """Both files. Raises KeyError where one is not as ``rows_of`` wants it."""
    groups, fitted = by_hand(), tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows = rows_of(fitted["fact"], "fact")
    silencing = frozenset().union(*groups["silences"].values())
    weighing = frozenset().union(*groups["weighs"].values())
    gravity = {"assumed": 1, "grave": 2, "hidden": HIDES}
    assumed = {fact: weight for group, weight in gravity.items() for fact in groups["weighs"][group]}
    return Table(silencing, assumed, silencing | weighing, rows_of(fitted["rule"], "rule"), rows)


def silences(fact: Fact) -> bool:
    """Whether there is no finding where this is so. Raises KeyError for a fact that no table knows."""
    if fact.name not in table().known:
        raise KeyError(fact.name)
    return fact.name in table().silencing


def points_of(fact: str) -> float:
    """How much a fact, or another row, moves the log-odds by itself; 0 for one that says nothing."""
    row = table().rows.get(HIDDEN if table().assumed.get(fact, 0) >= HIDES else fact)
    return row.points if row is not None else 0.0


def gravity_of(facts: Iterable[str]) -> int:
    """How grave all that is assumed is together."""
    return sum([table().assumed.get(name, 0) for name in facts])


def rows_with(facts: Iterable[str]) -> frozenset[str]:
    """The rows that may be of facts: their own, and that of all which are hidden together."""
    names = frozenset(facts)
    own = frozenset([name for name in names if table().assumed.get(name, 0) < HIDES])
    return own | {HIDDEN} if gravity_of(names) >= HIDES else own


def intercepts(code: str) -> list[tuple[str, float]]:
    """The points that a rule's findings have whatever is known of them; those of all rules where too few of its own were read."""
    rules = table().rules
    return [(name, rules[name].points) for name in (EVERY_RULE, code) if name in rules]


def probability(code: str, facts: Iterable[Fact]) -> float:
    """The chance that a rule's finding with these facts is not false."""
    facts = frozenset(facts)
    return believed(code, (fact.name for fact in facts)) * math.prod([fact.chance for fact in facts])


def believed(code: str, facts: Iterable[str]) -> float:
    """As ``probability``, of facts by their names, as far as the table says."""
    names = frozenset(facts)
    gravity = gravity_of(names)
    rows = sorted(rows_with(names))
    points = math.fsum([*[points for _, points in intercepts(code)], *[points_of(row) for row in rows]])
    chance = 1 / (1 + math.exp(-points))
    return min(chance, DOUBTFUL) if gravity >= HIDES else chance


def confidence_of(chance: float) -> Confidence:
    """The level of a probability."""
    return next((level for level, least in LEVELS.items() if chance >= least), Confidence.LOW)


def unless_of(facts: Iterable[Fact]) -> str:
    """What would make the finding false: the assumptions that speak most against it, two at most; "" where there is none."""
    against = sorted({fact for fact in facts if fact.unless}, key=lambda one: (points_of(one.name), one.unless))
    return ", or ".join(fact.unless for fact in against[:2])
