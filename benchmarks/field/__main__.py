"""``python -m benchmarks.field PACKAGES_DIR --field FIELD_DIR``: lints each labelled package, scores the findings, and
writes the record where ``--record`` says.

PACKAGES_DIR holds one folder for each unpacked package; FIELD_DIR holds ``labels.jsonl`` and ``score.py``, which takes
PACKAGES_DIR and ``--findings FILE`` and prints the table and then, on its last line, the figures as one JSON object.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchmemlint import __version__

ROOT = Path(__file__).resolve().parent.parent.parent


class Failed(Exception):
    """The run has no score to show; says why."""


@dataclass(frozen=True)
class Run:
    """One package, linted. ``cpu`` is in seconds, and counts the processes that the linter started."""

    package: str
    cpu: float
    findings: list[dict[str, Any]]


@dataclass(frozen=True, order=True)
class Place:
    """A finding, for comparing: packages stay as they are, so one that moved is another one, whatever it says."""

    rule: str
    file: str
    row: int
    column: int
    message: str = field(compare=False)


def labelled(packages: Path, labels: Path) -> list[str]:
    """The folders of ``packages`` that labels name."""
    sites = [json.loads(line) for line in (labels / "labels.jsonl").read_text(encoding="utf-8").splitlines() if line]
    # A label names its package, or the repository that its file is from.
    names = {str(label.get("package") or label["repo"]).replace("/", "+") for label in sites}
    if found := sorted(name for name in names if (packages / name).is_dir()):
        return found
    raise Failed(f"{packages}: none of the labelled packages is here")


def lint(package: Path, tree: Path, options: Sequence[str] = ()) -> Run:
    """What the linter of the checkout ``tree`` finds in a package, with its default rules, unless ``options`` say otherwise."""
    command = [sys.executable, "-m", "torchmemlint", "check", str(package)]
    command += ["--isolated", "--exit-zero", "--output-format", "json", "--jobs", "1", *options]
    # One process each: the pool runs them side by side. ``-m`` looks in the current folder first: it is the tree's, too.
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", cwd=tree, env=environment) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"{package.name}: the linter ended with {process.returncode}: {printed[-400:]}")
    findings = json.loads(printed)
    print(f"{package.name}: {len(findings)} findings", file=sys.stderr)
    return Run(package.name, usage.ru_utime + usage.ru_stime, findings)


def lint_all(packages: Path, names: Iterable[str], tree: Path, jobs: int, options: Sequence[str] = ()) -> list[Run]:
    """Each package's run, in the order of ``names``; a score without some of them would be no score."""
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda name: lint(packages / name, tree, options), names))


def output(*command: str) -> str:
    """What a command that must succeed says, run in this repository."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-400:].strip()}")
    return done.stdout.strip()


def score(packages: Path, labels: Path, runs: Iterable[Run]) -> tuple[str, dict[str, Any]]:
    """The scorer's table and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        findings = Path(folder) / "findings.json"
        findings.write_text(json.dumps([finding for run in runs for finding in run.findings]), encoding="utf-8")
        printed = output(sys.executable, str(labels / "score.py"), str(packages), "--findings", str(findings))
    *table, figures = printed.splitlines()
    return "\n".join(table), json.loads(figures)


def places(packages: Path, runs: Iterable[Run]) -> Counter[Place]:
    """The findings, with file names that start at the package."""
    found: Counter[Place] = Counter()
    for finding in (finding for run in runs for finding in run.findings):
        file = Path(finding["filename"]).relative_to(packages).as_posix() + (
            f":cell {finding['cell']}" if finding["cell"] else ""
        )
        rule, at = f"{finding['code']} {finding['name']}", finding["location"]
        found[Place(rule, file, at["row"], at["column"], finding["message"])] += 1
    return found


def difference(base: Counter[Place], now: Counter[Place]) -> str:
    """The findings added and removed, rule by rule; "" when there are none."""
    changes = sorted([(place, "+") for place in (now - base).elements()] + [(place, "-") for place in (base - now).elements()])
    lines = []
    for rule in sorted({place.rule for place, _ in changes}):
        own = [(place, sign) for place, sign in changes if place.rule == rule]
        signs = Counter(sign for _, sign in own)
        lines.append(f"{rule}: {signs['+']} added, {signs['-']} removed")
        lines += [f"  {sign} {place.file}:{place.row} {place.message}" for place, sign in own]
    return "\n".join(lines)


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A revision of this repository in a folder of its own, for as long as the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        output("git", "worktree", "add", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            output("git", "worktree", "remove", "--force", str(tree))


def record(revision: str, runs: list[Run], table: str, figures: dict[str, Any], jobs: int) -> str:
    """The score for reading, without a name of a folder on this machine."""
    rules = Counter(f"{finding['code']} {finding['name']}" for run in runs for finding in run.findings)
    lines = [
        f"# Score on labelled packages, {datetime.date.today()}\n",
        f"torchmemlint {__version__} ({revision}), Python {platform.python_version()}. Written by `python -m benchmarks.field`.",
        f"\n```\n{table}\n```\n",
        f"Findings that no label explains, in the files labelled whole: {figures['extra_in_exhaustive_files']}. "
        f"Labelled packages that were absent: {', '.join(figures['absent']) or 'none'}.",
        "\n| rule | findings |\n|---|---|",
        *(f"| {rule} | {count} |" for rule, count in sorted(rules.items())),
        f"| all | {rules.total()} |",
        f"\nCPU seconds, each package in a process of its own, {jobs} at once:",
        "\n| package | CPU s | findings |\n|---|---|---|",
        *(f"| {run.package} | {run.cpu:.1f} | {len(run.findings)} |" for run in sorted(runs, key=lambda run: -run.cpu)),
        f"| all | {sum(run.cpu for run in runs):.1f} | {rules.total()} |\n",
    ]
    return "\n".join(lines)


def measure(packages: Path, labels: Path, jobs: int, base: str | None, to: Path | None) -> None:
    """Lints, scores, writes the record and prints what the run is for."""
    names = labelled(packages, labels)
    revision = output("git", "describe", "--always", "--dirty")
    base = base and output(
        "git", "rev-parse", "--verify", f"{base}^{{commit}}"
    )  # a name that means nothing is reported at once
    runs = lint_all(packages, names, ROOT, jobs)
    table, figures = score(packages, labels, runs)
    if to:
        to.write_text(record(revision, runs, table, figures, jobs), encoding="utf-8")
    print(table)
    if base:
        with checkout(base) as tree:
            before = lint_all(packages, names, tree, jobs)
        print(f"\nSince {base[:12]}:")
        print(difference(places(packages, before), places(packages, runs)) or "no finding added or removed")


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 with a score, 2 without one."""
    parser = argparse.ArgumentParser(prog="benchmarks.field", description=__doc__)
    parser.add_argument("packages", type=Path, metavar="PACKAGES_DIR")
    parser.add_argument("--field", type=Path, required=True, metavar="FIELD_DIR", help="where labels.jsonl and score.py are")
    parser.add_argument("--jobs", type=int, default=2, help="packages linted side by side (2)")
    parser.add_argument("--diff", metavar="REV", help="also print the findings added and removed since this git revision")
    parser.add_argument("--record", type=Path, help="a file to write: the score, the findings by rule, and the seconds")
    asked = parser.parse_args(argv)
    try:
        measure(asked.packages.resolve(), asked.field.resolve(), asked.jobs, asked.diff, asked.record)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
