"""``python -m benchmarks.field.calibration FINDINGS.json LABELS.jsonl ROOT …``: how many findings of each confidence are true.

Takes triples: the findings of a run with ``--min-confidence low --output-format json``, the labels of the same code, and the folder
that it lies in. A finding is true where it stands on a labelled mistake of its family, false where it stands on a site that is
labelled correct; others are not counted. Writes the record that ``docs/accuracy.md`` is made of.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "calibration.json"
COSTS = Path(__file__).parent / "costs.jsonl"
LEVELS = ("high", "medium", "low")
SEVERITIES = ("error", "warning", "note")
BOUNDS = {"high": 0.95, "medium": 0.85, "low": 0.6}
"""The share of findings of each confidence that are true at least."""
FAMILIES = {
    "A": ("TML101", "TML102", "TML103", "TML104", "TML204"),
    "B": ("TML201", "TML202", "TML203"),
    "C": ("TML301", "TML302", "TML303"),
    "D": ("TML305", "TML306"),
    "E": ("TML303", "TML304"),
    "F": ("TML401", "TML402", "TML403"),
    "G": ("TML105", "TML106", "TML107", "TML108", "TML109", "TML503", "TML506", "TML507"),
}
"""Families of labelled mistakes, and the rules that report them."""
TWINS = {"A": "B", "B": "A", "C": "E", "E": "C"}
"""Families of which one finding answers for the other, where both have a mistake in one function."""

Label = Mapping[str, Any]
Entry = Mapping[str, Any]


@dataclass
class Tally:
    """Labelled sites: true and false findings by (confidence, severity), mistakes by family and by the surest finding on them."""

    true: Counter[tuple[str, str]] = field(default_factory=Counter)
    false: Counter[tuple[str, str]] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    costly: int = 0
    found: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Level ("printed" for what is printed by default and costs something) → family → mistakes that it finds."""
    cost: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(labelled cost, severity that is reported) of mistakes that are found."""


def matches(label: Label, finding: Entry, causes: set[str]) -> bool:
    """Whether a finding stands on a label: in its file and cell, on its rows, by a rule of its family."""
    if label.get("cell") is not None and finding.get("cell") != label["cell"] + 1:
        return False
    first = finding["location"]["row"]
    last = min(finding["end_location"]["row"], first + 8)
    spans = [(label["line"], label["end_line"]), *((row, row) for row in label.get("also") or [])]
    inside = bool(label.get("fn_line")) and label["fn_line"] <= first <= label["fn_end"]
    bug = label["verdict"] == "bug"
    for family in {label["family"], label.get("alt_family") or label["family"]}:
        if finding["code"] in FAMILIES.get(family, ()):
            if any(first <= end and last >= start for start, end in spans) or (family == "B" and bug and inside):
                return True
    twin = TWINS.get(label["family"], "")
    return bug and twin in causes and inside and finding["code"] in FAMILIES[twin]


def tally(into: Tally, findings: Iterable[Entry], labels: Sequence[Label], root: Path, costs: Mapping[str, str]) -> None:
    """Adds one corpus; ``root`` is the folder that it lies in, "/" in the names of repositories written "+"."""
    by_file: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for finding in findings:
        place, _, path = Path(finding["filename"]).resolve().relative_to(root.resolve()).as_posix().partition("/")
        by_file[place, path].append(finding)
    causes: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for label in labels:
        if label["verdict"] == "bug":
            causes[_function(label)].add(label["family"])
    judged: dict[int, tuple[Entry, bool]] = {}
    for label in labels:
        place = str(label.get("package") or label["repo"]).replace("/", "+")
        hits = [one for one in by_file[place, label["path"]] if matches(label, one, causes[_function(label)])]
        if label["verdict"] == "bug":
            cost = costs.get(label["id"], label.get("cost") or ("note" if label.get("tiny") else "warning"))
            into.mistakes[label["family"]] += 1
            into.costly += cost != "note"
            levels = {one["confidence"] for one in hits}
            for at, level in enumerate(LEVELS):
                into.found[level][label["family"]] += bool(levels & {*LEVELS[: at + 1]})
            if any(one["severity"] != "note" and one["confidence"] != "low" for one in hits) and cost != "note":
                into.found["printed"][label["family"]] += 1
            if hits:
                worst = min((one["severity"] for one in hits), key=SEVERITIES.index)
                into.cost[cost, worst] += 1
            judged |= {id(one): (one, True) for one in hits}
        elif label["verdict"] == "ok":
            judged |= {id(one): (one, False) for one in hits if id(one) not in judged}
    for finding, true in judged.values():
        (into.true if true else into.false)[finding["confidence"], finding["severity"]] += 1


def _function(label: Label) -> tuple[Any, ...]:
    return (label.get("package") or label["repo"], label["path"], label.get("cell"), label.get("name"))


def interval(true: int, all_: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share, at 95 %."""
    if not all_:
        return 0.0, 1.0
    share, square = true / all_, z * z / all_
    middle, half = share + square / 2, z * math.sqrt(share * (1 - share) / all_ + square / all_ / 4)
    return (middle - half) / (1 + square), (middle + half) / (1 + square)


def record(sums: Tally) -> dict[str, Any]:
    """The tally as plain data."""
    return {
        "levels": {level: {s: [sums.true[level, s], sums.false[level, s]] for s in SEVERITIES} for level in LEVELS},
        "mistakes": dict(sorted(sums.mistakes.items())),
        "found": {level: dict(sorted(sums.found[level].items())) for level in (*LEVELS, "printed")},
        "costly": sums.costly,
        "cost": {f"{cost} reported as {severity}": count for (cost, severity), count in sorted(sums.cost.items())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("corpora", nargs="+", metavar="FINDINGS LABELS ROOT")
    parser.add_argument("--write", action="store_true", help=f"write {RECORD.name}")
    options = parser.parse_args()
    costs = {row["id"]: row["cost"] for row in map(json.loads, COSTS.read_text(encoding="utf-8").splitlines())}
    sums = Tally()
    words = iter(options.corpora)
    for findings, labels, root in zip(words, words, words, strict=True):
        sites = [json.loads(line) for line in Path(labels).read_text(encoding="utf-8").splitlines() if line]
        tally(sums, json.loads(Path(findings).read_text(encoding="utf-8")), sites, Path(root), costs)
    figures = record(sums)
    text = json.dumps(figures, indent=1) + "\n"
    print(text, end="")
    if options.write:
        RECORD.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
