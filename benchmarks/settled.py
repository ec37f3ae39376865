"""``python -m benchmarks.settled FOLDER``: what share of the findings in real code ``confirm`` settles, and why not the rest.

FOLDER holds repositories, one a folder. A fixed choice of them is linted (``--seed``, ``--repositories``), and of what is printed by
default (errors and warnings) at most ``--findings`` a repository are settled, one after the other. Records go to a file of JSON lines,
one for each finding; a run that is stopped goes on where it was. The table at the end counts verdicts by rule, and every reason.
The repositories are not part of this one; `benchmarks/field/repositories.md` names them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torchmemlint import check_paths
from torchmemlint.confirm.around import project_of
from torchmemlint.confirm.output import text_of
from torchmemlint.confirm.plan import plan
from torchmemlint.confirm.settle import Options, settle
from torchmemlint.findings import Finding, Severity
from torchmemlint.rules import rule_of
from torchmemlint.rules.card import About

Row = Mapping[str, object]


def chosen(folder: Path, seed: int, repositories: int, each: int) -> list[Finding]:
    """At most ``each`` findings of every repository of the choice, picked by the seed."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    dice = random.Random(seed)
    found: list[Finding] = []
    for name in sorted(dice.sample(names, min(repositories, len(names)))):
        findings = [
            finding
            for finding in check_paths([folder / name], isolated=True)
            if finding.severity is not Severity.NOTE and rule_of(finding.code).about is not About.RUN
        ]
        found += sorted(
            random.Random(f"{seed} {name}").sample(findings, min(each, len(findings))),
            key=lambda finding: (finding.path, finding.span.start.row),
        )
    return found


def settled(finding: Finding, folder: Path, timeout: float) -> Row:
    """One finding's record."""
    started = time.monotonic()
    item = settle(plan(finding, text_of(finding.path), project_of(finding.path)), Options(timeout=timeout))
    verdict = item.verdict
    return {
        "path": str(Path(finding.path).relative_to(folder)),
        "row": finding.span.start.row,
        "code": finding.code,
        "severity": finding.severity.value,
        "experiment": item.plan.job is not None,
        "verdict": verdict.outcome.value,
        "kind": verdict.kind,
        "reason": verdict.reason,
        "helped": verdict.helped,
        "notes": list(verdict.notes),
        "child_seconds": round(item.seconds, 2),
        "seconds": round(time.monotonic() - started, 2),
    }


def _plain(reason: object) -> str:
    """A reason without the names, rows and numbers of one program."""
    return re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "`…`", re.sub(r"\d+", "N", str(reason))))[:110]


def table(rows: Sequence[Row]) -> str:
    """Verdicts by rule, and the reasons of what is not settled, most frequent first."""
    by_rule: defaultdict[object, Counter[object]] = defaultdict(Counter)
    for row in rows:
        by_rule[row["code"]][row["verdict"]] += 1
    lines = ["| rule | findings | confirmed | refuted | inconclusive |", "|---|---|---|---|---|"]
    for code, counts in sorted(by_rule.items(), key=lambda item: str(item[0])):
        lines.append(
            f"| {code} | {sum(counts.values())} | {counts['confirmed']} | {counts['refuted']} | {counts['inconclusive']} |"
        )
    possible = [row for row in rows if row["experiment"]]
    for words, some in (("all", rows), ("with an experiment", possible)):
        done = sum(row["verdict"] != "inconclusive" for row in some)
        lines.append(f"\n{words}: {done} of {len(some)} settled ({done / max(1, len(some)):.0%})")
    reasons = Counter(_plain(row["reason"]) for row in rows if row["verdict"] == "inconclusive")
    lines += [
        "",
        "| findings | why not |",
        "|---|---|",
        *(f"| {count} | {reason} |" for reason, count in reasons.most_common()),
    ]
    seconds = sorted(float(str(row["seconds"])) for row in possible)
    if seconds:
        lines.append(f"\nseconds a finding: median {seconds[len(seconds) // 2]:.1f}, all {sum(seconds):.0f}")
    return "\n".join(lines)


def _read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main(arguments: Iterable[str] | None = None) -> int:
    """Settle what the record lacks, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.settled", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--record", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--repositories", type=int, default=25)
    parser.add_argument("--findings", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=60)
    given = parser.parse_args(None if arguments is None else list(arguments))
    known = {(row["path"], row["row"], row["code"]) for row in _read(given.record)}
    for finding in chosen(given.folder, given.seed, given.repositories, given.findings):
        key = (str(Path(finding.path).relative_to(given.folder)), finding.span.start.row, finding.code)
        if key in known:
            continue
        with given.record.open("a") as file:
            file.write(json.dumps(settled(finding, given.folder, given.timeout)) + "\n")
    print(table(_read(given.record)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
