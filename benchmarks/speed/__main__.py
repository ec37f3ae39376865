"""``python -m benchmarks.speed FOLDER…``: where the CPU time of a check goes, one process, nothing cached.

For each folder, in seconds of CPU: *scan* (reading, screening, ``ast`` → facts), *link* (the project), *lower* (``ast`` →
IR, of the regions that a run reaches), *run* (the interpretation, callers that a rule asks for included), *libcst* (reading the
regions that findings show), *rules* (all the rest: rules, suppression). With ``--repeat`` the smallest of several totals counts, with all its parts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.speed import refuse_without_bytecode
from torchmemlint import rules
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.run import Means, check_paths
from torchmemlint.running.profile import Profile

STAGES = ("scan", "link", "lower", "run", "libcst", "rules")


@dataclass(frozen=True)
class Figures:
    """One folder's. Times are in seconds of CPU; ``lowered`` counts the lines of the regions that a run reached, ``megabytes`` is
    the largest resident size of the process."""

    name: str
    files: int
    lines: int
    lowered: int
    runs: int
    scan: float
    link: float
    lower: float
    run: float
    libcst: float
    rules: float
    total: float
    megabytes: int
    findings: int


def measure(folder: Path) -> Figures:
    """Checks a folder in this process, with every rule that is on by default."""
    profile = Profile()
    with profile.clock.stage("rest"):
        outcome = check_paths([str(folder)], Configuration(CommandLine(isolated=True)), means=Means(profile=profile))
    spent = dict(profile.clock.spent)
    total = sum(spent.values())
    stages = {stage: spent.pop(stage, 0.0) for stage in STAGES}
    stages["scan"] += spent.pop("find", 0.0)
    stages["rules"] = sum(spent.values())
    return Figures(
        name=folder.name,
        files=len(outcome.settings),
        lines=sum(Path(path).read_bytes().count(b"\n") for path in outcome.settings),
        lowered=profile.lines,
        runs=profile.runs,
        **{stage: round(seconds, 2) for stage, seconds in stages.items()},
        total=round(total, 2),
        megabytes=resident(),
        findings=len(outcome.findings),
    )


def resident() -> int:
    """The largest resident size so far, in megabytes; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size // 1024 if sys.platform != "darwin" else size // 1024**2


def table(rows: Sequence[Figures]) -> str:
    names = [one.name for one in fields(Figures)]
    out = ["| " + " | ".join(names) + " |", "|---" + "|---:" * (len(names) - 1) + "|"]
    for row in rows:
        cells = [
            f"{value:.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
            for value in asdict(row).values()
        ]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description="Where the CPU time of a check goes.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="measure N times, and show the quickest")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        gc.set_threshold(20_000_000, 5, 5)  # as the command does
        rules.modules()
        print(json.dumps(asdict(measure(options.folders[0]))))
        return 0
    refuse_without_bytecode()
    rows = []
    for folder in options.folders:
        # A process for each, so that none finds what another one left in memory.
        command = [sys.executable, "-m", "benchmarks.speed", "--one", os.path.relpath(folder)]
        tries = []
        for _ in range(options.repeat):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr, file=sys.stderr)
                return 1
            tries.append(Figures(**json.loads(done.stdout)))
        rows.append(min(tries, key=lambda one: one.total))
    print(f"CPython {platform.python_version()}, one process, {len(rules.ALL_RULES)} rules known\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
