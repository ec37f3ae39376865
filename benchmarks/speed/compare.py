"""``python -m benchmarks.speed.compare FOLDER… --record FILE.json``: what a run costs, and beside what.

For each folder, in processes of their own: ``ast.parse`` of every file; cold in one process without a cache; cold with an
empty cache in as many processes as pay; warm; with one file changed; and, with ``--peer NAME=PROGRAM``, other programs on the
same tree. ``--doubling N`` adds made-up trees of N, 2 N and 4 N lines. ``--page RECORD.json`` writes a record's table and
drawing into ``docs/``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from benchmarks.speed import refuse_without_bytecode
from benchmarks.speed.measure import PARSE, Cost, cost_of, size_of
from benchmarks.speed.page import write_page
from benchmarks.speed.trees import copy_of, file_to_change, synthetic

COMMAND = [sys.executable, "-m", "torchmemlint", "--isolated", "-q"]
KEPT = ("--cache-dir", ".torchmemlint_cache")


@dataclass(frozen=True)
class Row:
    """Costs on one tree, by what was run ("ast.parse", "cold", "two", "cached", "warm", "changed", "edited",
    or a peer's name)."""

    name: str
    files: int
    lines: int
    costs: dict[str, Cost]


def rows(folder: Path, place: Path, peers: dict[str, str], best_of: int) -> Iterator[Row]:
    """Measures on a copy of a folder; the row again after each peer, which may take long."""
    copy = copy_of(folder, place)
    files, lines = size_of(copy)
    costs = {
        "ast.parse": cost_of([sys.executable, "-c", PARSE], copy, 3),
        "cold": cost_of([*COMMAND, "-j", "1", "--no-cache", "."], copy, best_of),
        "two": cost_of([*COMMAND, "-j", "2", "--no-cache", "."], copy, best_of),
        "cached": cost_of([*COMMAND, *KEPT, "."], copy),
        "warm": cost_of([*COMMAND, *KEPT, "."], copy, 3),
    }
    changed = file_to_change(copy)
    changed.write_bytes(b"# changed\n" + changed.read_bytes())
    costs["changed"] = cost_of([*COMMAND, *KEPT, "-j", "1", "."], copy)
    changed.write_bytes(changed.read_bytes() + b"\n\ndef added(model, x):\n    return model(x).sum()\n")
    costs["edited"] = cost_of([*COMMAND, *KEPT, "-j", "1", "."], copy)
    shutil.rmtree(copy / KEPT[1])
    yield Row(folder.name, files, lines, costs)
    for name, program in peers.items():
        costs[name] = cost_of([*shlex.split(program), "."], copy)
        yield Row(folder.name, files, lines, costs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.compare", description="What a run costs, and beside what."
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM", help="another program, run as PROGRAM .")
    parser.add_argument("--peer-folders", default="", metavar="NAMES", help="run peers on these only, by name, with commas")
    parser.add_argument("--doubling", type=int, default=0, metavar="LINES")
    parser.add_argument("--best-of", type=int, default=1, metavar="N")
    parser.add_argument("--record", type=Path, metavar="FILE", help="add to this record")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write this record into docs/")
    options = parser.parse_args(arguments)
    if options.folders or options.doubling:
        refuse_without_bytecode()
    peers = dict(peer.split("=", 1) for peer in options.peer)
    found = json.loads(options.record.read_text()) if options.record and options.record.exists() else {"rows": []}
    found |= {"date": date.today().isoformat(), "python": platform.python_version(), "cpus": os.cpu_count()}
    with tempfile.TemporaryDirectory() as place:
        made = [synthetic(Path(place) / "made", options.doubling * times) for times in (1, 2, 4) if options.doubling]
        for folder in (*options.folders, *made):
            with_peers = not options.peer_folders or folder.name in options.peer_folders.split(",")
            asked = peers if with_peers and folder not in made else {}
            for measured in rows(folder.resolve(), Path(place) / "copy", asked, options.best_of):
                found["rows"] = [one for one in found["rows"] if one["name"] != measured.name] + [asdict(measured)]
                print(json.dumps(asdict(measured)), flush=True)
                if options.record:
                    options.record.parent.mkdir(parents=True, exist_ok=True)
                    options.record.write_text(json.dumps(found, indent=1) + "\n")
    if options.page:
        write_page(json.loads(options.page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
