"""``python -m benchmarks.reliability CAMPAIGN``: looks for faults of one kind, and records what it tried.

    fuzz       damaged input; --seeds FOLDER: real files, beside the fixtures
    faults     every call that touches files or processes fails once
    kills      the program is killed at any instant
    server     2,000 edits among 50 notebooks and 10,000 files; messages that are none
    long_life  a simulated day of edits, in the server and under --watch
    ecosystem  python -m benchmarks.reliability ecosystem BASE[..HEAD] [FOLDER…]: what two commits find, and their CPU time
    packages   findings in ten packages, against the record of them

The first three go on where they were left, look first at what failed before, and end after ``--cpu`` seconds, or ``--most`` cases. The exit status is 1
where a failure is open.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from benchmarks.field.__main__ import Failed
from benchmarks.reliability import record as records
from benchmarks.reliability.record import RECORDS, Record

Measure = Callable[[Path, Path], tuple[dict[str, Any], list[str]]]
"""Works in a folder, with another for temporary files; figures, and what is wrong."""


class Campaign(Protocol):
    def cases(self) -> Iterator[str]: ...

    def check(self, case: str) -> list[str]: ...


def campaign(name: str, folder: Path, seeds: Sequence[Path], only: Sequence[str] = ()) -> Campaign:
    if name == "fuzz":
        from benchmarks.reliability.fuzz import CHECKS, Fuzz

        return Fuzz(folder, seeds, only or tuple(CHECKS))
    from benchmarks.reliability.faults import Faults
    from benchmarks.reliability.kills import Kills
    from benchmarks.reliability.project import BESIDE, CACHE, SCENARIOS, Bench

    names = only or [one.name for one in SCENARIOS]
    if name == "faults":
        return Faults(Bench.below(folder), only or [*names, *BESIDE])
    beside = [one for one in BESIDE if one in (only or BESIDE)]
    names = [*names] if only else [*names, CACHE.name]
    return Kills(Bench.below(folder), [one for one in names if one not in BESIDE], beside)


def measures(name: str, part: float) -> dict[str, Measure]:
    """What a campaign measures, or a ``part`` of it (1: all)."""
    if name == "server":
        from benchmarks.reliability import server

        size = server.Size(*(max(1, int(each * part)) for each in (server.EDITS, server.NOTEBOOKS, server.FILES)))
        return {
            "load": partial(server.load, size=size),
            "odd-messages": partial(server.odd_messages, size=int(server.LARGEST * part)),
        }
    from benchmarks.reliability import long_life

    edits = int(long_life.DAY * part)
    return {"server": partial(long_life.in_server, edits=edits), "watch": partial(long_life.under_watch, edits=edits)}


def measure(record: Record, name: str, work: Measure) -> None:
    """Does one measurement and puts it into the record."""
    began = records.cpu()
    with tempfile.TemporaryDirectory() as folder:
        root, temporary = Path(folder).resolve() / "project", Path(folder).resolve() / "temporary"
        root.mkdir()
        temporary.mkdir()
        figures, wrong = work(root, temporary)
    record.figures[name] = figures
    record.cases[name] = record.cases.get(name, 0) + int(figures.get("edits") or figures.get("messages") or 1)
    record.cpu_seconds += records.cpu() - began
    if wrong:
        record.open[name] = sorted(set(wrong))
    elif name in record.open:
        record.fixed[name] = record.open.pop(name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.reliability", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="campaign", required=True)
    for name in ("fuzz", "faults", "kills", "server", "long_life"):
        made = commands.add_parser(name)
        made.add_argument("--record", type=Path, default=RECORDS / f"{name}.json")
        if name in ("fuzz", "faults", "kills"):
            made.add_argument("--cpu", type=float, default=600, help="seconds (default: %(default)s)")
            made.add_argument(
                "--most", type=int, metavar="N", help="cases, the first ones, which are always the same (default: no limit)"
            )
            made.add_argument("--again", action="store_true", help="only what failed before")
            made.add_argument("--only", action="append", default=[], metavar="KIND", help="only cases of this kind")
        else:
            made.add_argument("--part", type=float, default=1, help="of the load (default: all of it)")
        if name == "fuzz":
            made.add_argument("--seeds", type=Path, action="append", default=[], metavar="FOLDER")
    made = commands.add_parser("ecosystem")
    made.add_argument("revisions", metavar="BASE[..HEAD]", help="two revisions, or one, to compare the working tree with")
    made.add_argument("folders", type=Path, nargs="*", metavar="FOLDER", help="(default: the ten packages)")
    made.add_argument("--times", type=int, default=1, help="runs over each folder; the fastest counts (default: %(default)s)")
    made = commands.add_parser("packages")
    made.add_argument("--update", action="store_true", help="write the record")
    made.add_argument("--to", type=Path, metavar="FOLDER", help="unpack them here, and keep them")
    chosen = parser.parse_args(arguments)
    if chosen.campaign == "packages":
        from benchmarks.reliability import packages

        return packages.main(chosen.update, chosen.to)
    if chosen.campaign == "ecosystem":
        from benchmarks.reliability import ecosystem, packages

        with tempfile.TemporaryDirectory() as folder:
            try:
                found = packages.folders_for(chosen.folders, Path(folder))
                report, status = ecosystem.main(chosen.revisions, found, max(1, chosen.times))
            except Failed as failure:
                print(failure, file=sys.stderr)
                return 2
        print(report)
        return status
    record = Record.read(chosen.record, chosen.campaign)
    if chosen.campaign in ("server", "long_life"):
        for name, work in measures(chosen.campaign, chosen.part).items():
            measure(record, name, work)
            record.write(chosen.record)
    else:
        with tempfile.TemporaryDirectory() as folder:
            tried = campaign(chosen.campaign, Path(folder).resolve(), getattr(chosen, "seeds", ()), chosen.only)
            cases = () if chosen.again else islice(tried.cases(), chosen.most)
            records.run(record, cases, tried.check, chosen.cpu, chosen.record)
    print(record.report())
    return 1 if record.open else 0


if __name__ == "__main__":
    sys.exit(main())
