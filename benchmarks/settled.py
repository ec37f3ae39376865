"""``python -m benchmarks.settled FOLDER``: what share of the findings in real code ``confirm`` settles, and why not the rest.

FOLDER holds repositories, one a folder. A fixed choice of them is linted (``--seed``, ``--repositories``), and of what is printed by
default (errors and warnings) at most ``--findings`` a repository are settled, one after the other. Records go to a file of JSON lines,
one for each finding; a run that is stopped goes on where it was. The table at the end counts verdicts by rule, and every reason.

``--fixes`` runs the fixes of these findings instead, each beside the original (``confirm --fix``), and counts by rule how many change nothing,
how many change the program, and how many could not be run.
The repositories are not part of this one; `benchmarks/field/repositories.txt` names them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchmemlint import check_paths
from torchmemlint.confirm.around import project_of
from torchmemlint.confirm.launch import warmed
from torchmemlint.confirm.output import text_of
from torchmemlint.confirm.plan import plan, plan_fix
from torchmemlint.confirm.settle import Options, settle
from torchmemlint.confirm.verdict import Answer, Comparison
from torchmemlint.findings import Finding, Severity
from torchmemlint.rules import rule_of
from torchmemlint.rules.card import About

Row = Mapping[str, object]


def names_of(folder: Path, seed: int, repositories: int) -> list[str]:
    """The choice of the seed."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    return sorted(random.Random(seed).sample(names, min(repositories, len(names))))


def chosen(folder: Path, seed: int, names: Iterable[str], each: int, with_fix: bool) -> Iterator[Finding]:
    """At most ``each`` findings of every repository, picked by the seed; ``with_fix``: of those that have one."""
    for name in names:
        findings = [
            finding
            for finding in check_paths([folder / name], isolated=True)
            if finding.severity is not Severity.NOTE
            and rule_of(finding.code).about is not About.RUN
            and (not with_fix or (finding.fix is not None and finding.fix.edits))
        ]
        yield from sorted(
            random.Random(f"{seed} {name}").sample(findings, min(each, len(findings))),
            key=lambda finding: (finding.path, finding.cell or 0, finding.span.start.row),
        )


def _place(finding: Finding, folder: Path) -> Row:
    path = str(Path(finding.path).relative_to(folder))
    return {"path": path, "row": finding.span.start.row, "cell": finding.cell, "code": finding.code}


def compared(finding: Finding, folder: Path, timeout: float) -> Row:
    """The record of one finding's fix."""
    started = time.monotonic()
    item = settle(plan_fix(finding, text_of(finding.path), project_of(finding.path)), Options(timeout=timeout))
    fix = item.verdict.fix or Comparison(Answer.NOT_RUN, item.verdict.reason)
    assert finding.fix is not None
    return {
        **_place(finding, folder),
        "safety": finding.fix.safety.value,
        "answer": fix.answer.value,
        "why": fix.why,
        "phases": fix.phases,
        "seconds": round(time.monotonic() - started, 2),
    }


def settled(finding: Finding, folder: Path, timeout: float) -> Row:
    """One finding's record."""
    started = time.monotonic()
    item = settle(plan(finding, text_of(finding.path), project_of(finding.path)), Options(timeout=timeout))
    verdict = item.verdict
    return {
        **_place(finding, folder),
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
    text = re.sub(r"`[^`]*`", "`…`", re.sub(r"'[^']*'", "'…'", re.sub(r"\d+", "N", str(reason))))
    return re.sub(r"\s+", " ", re.sub(r"[\w.()\[\]]+ used as", "… used as", text))[:110]


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
    shares = []
    for some in (rows, possible):
        done = sum(row["verdict"] != "inconclusive" for row in some)
        shares.append(f"{done} of {len(some)} ({done / max(1, len(some)):.0%})")
    lines.append(f"\nSettled: {shares[0]}. Of the findings of rules that have an experiment: {shares[1]}.")
    reasons = Counter(_plain(row["reason"]) for row in rows if row["verdict"] == "inconclusive")
    lines += [
        "",
        "| findings | why `confirm` could not decide |",
        "|---|---|",
        *(f"| {count} | {reason} |" for reason, count in reasons.most_common()),
    ]
    seconds = sorted(float(str(row["seconds"])) for row in possible)
    if seconds:
        lines.append(f"\nWall seconds: {seconds[len(seconds) // 2]:.1f} for the median finding, {sum(seconds):.0f} for all.")
    return "\n".join(lines)


def table_of_fixes(rows: Sequence[Row]) -> str:
    """Answers by rule, and why fixes differed or could not be run."""
    by_rule: defaultdict[object, Counter[object]] = defaultdict(Counter)
    for row in rows:
        by_rule[row["code"]][row["answer"]] += 1
        by_rule["all"][row["answer"]] += 1
    lines = ["| rule | fixes | same | differed | could not be run |", "|---|---|---|---|---|"]
    for code, counts in sorted(by_rule.items(), key=lambda item: str(item[0])):
        cells = " | ".join(str(counts[answer.value]) for answer in (Answer.SAME, Answer.DIFFERED, Answer.NOT_RUN))
        lines.append(f"| {code} | {sum(counts.values())} | {cells} |")
    reasons = Counter((str(row["answer"]), _plain(row["why"])) for row in rows if row["answer"] != Answer.SAME.value)
    lines += ["", "| fixes | answer | why |", "|---|---|---|"]
    lines += [f"| {count} | {answer} | {why} |" for (answer, why), count in reasons.most_common()]
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
    parser.add_argument("--names", type=Path, metavar="FILE", help="settle these repositories, one a line, instead of a choice")
    parser.add_argument("--findings", type=int, default=4)
    parser.add_argument("--fixes", action="store_true", help="run the fixes beside the originals")
    parser.add_argument("--timeout", type=float, default=60)
    given = parser.parse_args(None if arguments is None else list(arguments))
    names = given.names.read_text().split() if given.names else names_of(given.folder, given.seed, given.repositories)
    known = {(row["path"], row["cell"], row["row"], row["code"]) for row in _read(given.record)}
    with warmed():
        for finding in chosen(given.folder, given.seed, names, given.findings, given.fixes):
            path = str(Path(finding.path).relative_to(given.folder))
            if (path, finding.cell, finding.span.start.row, finding.code) in known:
                continue
            row = (compared if given.fixes else settled)(finding, given.folder, given.timeout)
            with given.record.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print((table_of_fixes if given.fixes else table)(_read(given.record)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
