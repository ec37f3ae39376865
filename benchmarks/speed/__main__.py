"""``python -m benchmarks.speed FOLDER…``: where the CPU time of a check goes, one process, nothing cached.

For each folder, in seconds of CPU: *scan* (reading, screening, ``ast`` → facts), *link* (the project), *parse* (libcst and
lowering, of the regions that a run reaches), *run* (the interpretation, callers that a rule asks for included), *rules* (all
the rest: rules, suppression). With ``--repeat`` the smallest of several totals counts, with all its parts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from torchmemlint import rules
from torchmemlint.config import CommandLine, Configuration
from torchmemlint.discover import Found, discover
from torchmemlint.index.project import FunctionRef, Project
from torchmemlint.semantics.events import Record
from torchmemlint.semantics.runs import Runs
from torchmemlint.semantics.world import World
from torchmemlint.settings import Settings
from torchmemlint.workers import InspectAll, ScanAll, inspect, read, scan

STAGES = ("scan", "link", "parse", "run", "rules")


@dataclass(frozen=True)
class Figures:
    """One folder's. Times are in seconds of CPU; ``parsed`` counts the lines of the regions that libcst read, ``megabytes`` is
    the largest resident size of the process."""

    name: str
    files: int
    lines: int
    parsed: int
    runs: int
    scan: float
    link: float
    parse: float
    run: float
    rules: float
    total: float
    megabytes: int
    findings: int


@dataclass
class Clock:
    """CPU time by stage; time inside an inner stage is not the outer one's."""

    spent: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: float = field(default_factory=time.process_time)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._close()
        self._open.append(name)
        try:
            yield
        finally:
            self._close()
            self._open.pop()

    def _close(self) -> None:
        now = time.process_time()
        if self._open:
            self.spent[self._open[-1]] = self.spent.get(self._open[-1], 0.0) + now - self._since
        self._since = now


class TimedWorld(World):
    def __init__(self, project: Project, settings: Settings, clock: Clock) -> None:
        super().__init__(project, settings, lambda path: read(path).text)
        self.clock = clock
        self.parsed = 0
        self._seen: set[tuple[str, str]] = set()

    def lowered(self, path: str, outermost: str):  # type: ignore[no-untyped-def]
        if (path, outermost) in self._seen:
            return super().lowered(path, outermost)
        self._seen.add((path, outermost))
        with self.clock.stage("parse"):
            found = super().lowered(path, outermost)
        self.parsed += found.region.text.count("\n") if found is not None else 0
        return found


class TimedRuns(Runs):
    def __init__(self, world: TimedWorld) -> None:
        super().__init__(world)
        self.clock = world.clock
        self.count = 0

    def _run(self, ref: FunctionRef) -> list[Record]:
        with self.clock.stage("run"):
            found = super()._run(ref)
        self.count += len(found)
        return found


def measure(folder: Path) -> Figures:
    """Checks a folder in this process, with every rule that is on by default."""
    configuration = Configuration(CommandLine(isolated=True))
    clock = Clock()
    with clock.stage("scan"):
        files: Sequence[Found] = discover([str(folder)], configuration).files
        settings = {file.path: file.settings for file in files}
        shared = ScanAll(settings, {})
        scanned = [scan(shared, file.path) for file in files]
    with clock.stage("link"):
        facts = [one.facts for one in scanned if one.facts is not None]
        project = Project.build(facts)
    with clock.stage("rules"):
        work = InspectAll(project, settings, {})
        world = TimedWorld(project, next(iter(settings.values())), clock)
        runs = TimedRuns(world)
        work.engines.update(dict.fromkeys(settings.values(), runs))
        found = sum(len(inspect(work, one.path).findings) for one in scanned if one.candidate)
    return Figures(
        name=folder.name,
        files=len(files),
        lines=sum(one.facts.rows for one in scanned if one.facts is not None),
        parsed=world.parsed,
        runs=runs.count,
        **{stage: round(clock.spent.get(stage, 0.0), 2) for stage in STAGES},
        total=round(sum(clock.spent.values()), 2),
        megabytes=resident(),
        findings=found,
    )


def resident() -> int:
    """The largest resident size so far, in megabytes; 0 where the system does not tell."""
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
        gc.set_threshold(50_000, 50, 50)  # as the command does
        rules.modules()
        print(json.dumps(asdict(measure(options.folders[0]))))
        return 0
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
