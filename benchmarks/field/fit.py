"""``python -m benchmarks.field.fit [--check]``: the table of what facts decide, from the findings that were read (``evidence.jsonl``).

Ridge regression of "not false" on the facts of a finding, on the scale of log-odds, with signs fixed by hand: an assumption never
speaks for a finding. An intercept for each rule that was read often enough, one for all others. A reading by two readers is one piece
of evidence: its outcome is the share of them that did not find it false. A fact is unknown where it was made from the sample
(``made.json`` has the days), and three samples are held out for ever.

Most samples are of what is printed *today*, after the causes of what was false in them were mended: such findings are survivors, and have
an intercept of their own more, which the table leaves out. The last samples are of living code, as it was read before any cause was mended.

Writes ``torchmemlint/rules/scorecard.toml``, and ``reliability.json`` for ``docs/accuracy.md``; ``--check`` says whether the table is
what the data give.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.field.evidence import FOLDER, HELD_OUT, RECORD
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.scorecard import (
    EVERY_RULE,
    HIDDEN,
    TABLE,
    by_hand,
    confidence_of,
    probability,
    rows_with,
    table,
)

RELIABILITY = FOLDER / "reliability.json"
LEAST = 10
"""Findings that were read, below which a fact has no row."""
SMALL = 0.3
"""Points below which a fact says nothing."""
SURVIVOR = "survivor"
"""What a finding of a sample is whose causes were mended."""
RIDGE = 1.0
"""The inverse variance of points before any reading: a fact moves the odds by a factor of e, as a rule."""
RIDGE_OF_RULES = 2.0
"""The same of a rule's own intercept: all rules are written with one aim, and ten findings must not hide a rule."""
WINDOW = datetime.timedelta(hours=8)
"""A fact was made from the samples that were recorded within this time after it."""
MADE = json.loads((FOLDER / "made.json").read_text(encoding="utf-8"))
"""When each sample was recorded, and each assumption made, by the history of the repository."""

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Fitted:
    """Points of intercepts and facts, in the order of ``names``, with their standard errors."""

    names: list[str]
    points: np.ndarray
    errors: np.ndarray

    def __getitem__(self, name: str) -> float:
        return float(self.points[self.names.index(name)]) if name in self.names else 0.0


def lines() -> list[Line]:
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]


def outcome(line: Line) -> float:
    """The share of readers who did not find it false."""
    verdicts: list[str] = line["verdicts"]
    return sum(verdict != "false" for verdict in verdicts) / len(verdicts)


def known(line: Line) -> frozenset[str]:
    """The rows of a finding, by the facts that were not made from the sample that it is of."""
    if line.get("fresh"):
        return rows_with(line["evidence"])
    recorded = MADE["samples"][line["sample"].partition("-")[0]]
    return rows_with(fact for fact in line["evidence"] if not was_made(MADE["facts"].get(fact, ""), recorded)) | {SURVIVOR}


def was_made(day: str, recorded: str) -> bool:
    """Whether a fact of that day was made from a sample that was recorded then; "" for a fact that is made of no sample."""
    if not day:
        return False
    since = datetime.datetime.fromisoformat(recorded) - datetime.datetime.fromisoformat(day)
    return datetime.timedelta() <= since <= WINDOW


def columns(rows: Sequence[tuple[str, frozenset[str]]], signs: Mapping[str, int]) -> list[str]:
    """The intercepts and facts that were read often enough."""
    rules = Counter(code for code, _ in rows)
    facts = Counter(fact for _, known in rows for fact in known if fact in signs)
    return [
        "rule",
        SURVIVOR,
        *sorted(code for code, count in rules.items() if count >= LEAST),
        *sorted(fact for fact, count in facts.items() if count >= LEAST),
    ]


def matrix(rows: Sequence[tuple[str, frozenset[str]]], names: Sequence[str]) -> np.ndarray:
    """One row a finding: 1 for the common intercept, that of survivors, its rule and its facts."""
    return np.array([[name == "rule" or name == code or name in known for name in names] for code, known in rows], dtype=float)


def fit(given: np.ndarray, wanted: np.ndarray, names: list[str], signs: Mapping[str, int]) -> Fitted:
    """Newton's method on the penalized likelihood; points of the wrong sign are held at zero."""
    count = len(names)
    penalty = np.array([1e-6 if name in ("rule", SURVIVOR) else RIDGE if name in signs else RIDGE_OF_RULES for name in names])
    points, held = np.zeros(count), np.zeros(count, dtype=bool)
    for _ in range(50):
        chance = 1 / (1 + np.exp(-given @ points))
        gradient = given.T @ (wanted - chance) - penalty * points
        hessian = (given * (chance * (1 - chance))[:, None]).T @ given + np.diag(penalty)
        free = ~held
        step = np.zeros(count)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        points = points + step
        wrong = np.array([signs.get(name, 0) * point < 0 for name, point in zip(names, points, strict=True)])
        points[wrong] = 0
        held = held | wrong
        if np.abs(step).max() < 1e-8 and not wrong.any():
            break
    return Fitted(names, points, np.sqrt(np.diag(np.linalg.inv(hessian))))


def chances(fitted: Fitted, given: np.ndarray) -> np.ndarray:
    out: np.ndarray = 1 / (1 + np.exp(-given @ fitted.points))
    return out


def log_loss(wanted: np.ndarray, chance: np.ndarray) -> float:
    inside = np.clip(chance, 1e-6, 1 - 1e-6)
    return float(-np.mean(wanted * np.log(inside) + (1 - wanted) * np.log(1 - inside)))


def kept_facts(data: Sequence[Line], signs: Mapping[str, int]) -> Fitted:
    """The fit with what says something: facts under ``SMALL``, and facts and rules that are within their own error, go, one at a time,
    the smallest first."""
    rows = [(line["code"], known(line)) for line in data]
    wanted = np.array([outcome(line) for line in data])
    names = columns(rows, signs)
    while True:
        fitted = fit(matrix(rows, names), wanted, names, signs)
        sizes = zip(names, np.abs(fitted.points), fitted.errors, strict=True)
        spoken = [
            (size / (max(SMALL, error) if name in signs else error), name)
            for name, size, error in sizes
            if name not in ("rule", SURVIVOR)
        ]
        if not spoken or min(spoken)[0] >= 1:
            return fitted
        names = [name for name in names if name != min(spoken)[1]]


def without_each_sample(data: Sequence[Line], signs: Mapping[str, int]) -> dict[str, float]:
    """Log-loss of predictions for each sample by the table of the others: a constant, the level that was printed, the rule, rule and
    level, and this table. Means of groups are drawn to the mean of all by two readings' weight."""
    samples = sorted({line["sample"] for line in data})
    by_way: dict[str, list[tuple[float, float]]] = {}
    for sample in samples:
        rest, own = [line for line in data if line["sample"] != sample], [line for line in data if line["sample"] == sample]
        mean = float(np.mean([outcome(line) for line in rest]))
        fitted = kept_facts(rest, signs)
        rows = [(line["code"], known(line)) for line in own]
        table = chances(fitted, matrix(rows, fitted.names))
        for line, chance in zip(own, table, strict=True):
            for way, keys in {
                "a constant": (),
                "level": ("level",),
                "rule": ("code",),
                "rule and level": ("code", "level"),
            }.items():
                same = [outcome(each) for each in rest if all(each[key] == line[key] for key in keys)]
                by_way.setdefault(way, []).append((outcome(line), (sum(same) + 2 * mean) / (len(same) + 2)))
            by_way.setdefault("this table", []).append((outcome(line), float(chance)))
    return {way: log_loss(*map(np.array, zip(*pairs, strict=True))) for way, pairs in by_way.items()}


def signs() -> dict[str, int]:
    """Fact → 1 where it speaks for a finding, -1 where it speaks against one."""
    groups = by_hand()["weighs"]
    return {
        **dict.fromkeys(groups["assumed"] | groups["grave"] | groups["against"] | {HIDDEN}, -1),
        **dict.fromkeys(groups["for"], 1),
    }


def table_text(fitted: Fitted, data: Sequence[Line]) -> str:
    """``scorecard.toml``: intercepts and facts, with what each rests on."""
    rules = Counter(line["code"] for line in data)
    facts = Counter(fact for line in data for fact in known(line))
    out = ["# Points in log-odds, written by `python -m benchmarks.field.fit`; what was read lies in benchmarks/field.", ""]
    for name, point, error in zip(fitted.names, fitted.points, fitted.errors, strict=True):
        if name == SURVIVOR:
            continue
        rule = name == "rule" or name in rules
        count = len(data) if name == "rule" else rules[name] if rule else facts[name]
        out += [
            f"[[{'rule' if rule else 'fact'}]]",
            f"{'rule' if rule else 'fact'} = '{EVERY_RULE if name == 'rule' else name}'",
            f"points = {point:.1f}",
            f"n = {count}",
            f"error = {error:.1f}",
            "source = 'evidence.jsonl'",
            "",
        ]
    return "\n".join(out).rstrip() + "\n"


def by_level(data: Sequence[Line], fitted: Fitted) -> dict[str, list[float]]:
    """Level → findings, the mean that the table expects of such that were printed, and what readers found."""
    rows = [(line["code"], known(line)) for line in data]
    out: dict[str, list[float]] = {}
    for line, (code, _), expected in zip(data, rows, chances(fitted, matrix(rows, fitted.names)), strict=True):
        level = confidence_of(probability(code, map(Fact, line["evidence"]))).value
        count, first, second = out.get(level, [0, 0.0, 0.0])
        out[level] = [count + 1, first + float(expected), second + outcome(line)]
    means = {level: [count, round(one / count, 3), round(two / count, 3)] for level, (count, one, two) in out.items()}
    return {level: means[level] for level in ("high", "medium", "low") if level in means}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; status 1 where the table is not what the data give"
    )
    options = parser.parse_args()
    every = lines()
    data = [line for line in every if line["sample"] not in HELD_OUT]
    held_out = [line for line in every if line["sample"] in HELD_OUT]
    fitted = kept_facts(data, signs())
    text = table_text(fitted, data)
    if options.check:
        sys.exit(f"{TABLE.name} is not what the data give" if TABLE.read_text(encoding="utf-8") != text else 0)
    TABLE.write_text(text, encoding="utf-8")
    table.cache_clear()
    losses = without_each_sample(data, signs())
    reliability = {
        "read": len(data),
        "held out": len(held_out),
        "survivors": round(fitted[SURVIVOR], 2),
        "log-loss": {way: round(loss, 4) for way, loss in losses.items()},
        "fitted": by_level(data, fitted),
        "not fitted": by_level(held_out, fitted),
    }
    RELIABILITY.write_text(json.dumps(reliability, indent=1) + "\n", encoding="utf-8")
    print(text, json.dumps(reliability, indent=1), sep="\n")


if __name__ == "__main__":
    main()
