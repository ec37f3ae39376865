"""``python -m benchmarks.bounds.field FOLDER``: what checks of single real files take, of a sample of those that are long.

Each file is checked alone, as an editor or pre-commit does, so the search for its callers is part of it. The same sample is taken
each time. The exit status is 1 where a file takes more than ``SECONDS`` for 1,000 lines, or more memory than generated files may.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from benchmarks.bounds.__main__ import MEGABYTES, START, TIMES_SIZE
from benchmarks.bounds.measure import Cost, cost_of_path

SECONDS = 10.0
"""Of CPU for 1,000 lines."""
LIMIT = 60


def long_files(folder: Path, lines: int) -> list[tuple[Path, int, int]]:
    """The Python files of at least so many lines, with their lines and size."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        data = path.read_bytes()
        if data.count(b"\n") >= lines:
            found.append((path, data.count(b"\n"), len(data)))
    return found


def per_thousand(cost: Cost) -> float:
    """Seconds for 1,000 lines, the start of the program taken off."""
    return max(0.0, cost.seconds - START) / cost.lines * 1000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds.field", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sample", type=int, default=300, help="files that are checked (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=300, help="no shorter files (default: %(default)s)")
    arguments = parser.parse_args()
    files = long_files(arguments.folder.resolve(), arguments.lines)
    chosen = random.Random(1).sample(files, min(arguments.sample, len(files)))
    costs = [(path, cost_of_path(str(path), str(path.parent), lines, size, LIMIT)) for path, lines, size in chosen]
    wrong = 0
    for path, cost in sorted(costs, key=lambda pair: -per_thousand(pair[1])):
        limit = MEGABYTES + TIMES_SIZE * cost.size / 1e6
        bad = not cost.done or per_thousand(cost) > SECONDS or cost.megabytes > limit
        wrong += bad
        if bad:
            print(f"{path}: {cost.seconds} s, {cost.megabytes} MB{'' if cost.done else ', and not at its end'}")
    print(f"{len(costs)} of {len(files)} files of at least {arguments.lines} lines, {wrong} cost too much")
    if costs:
        path, worst = max(costs, key=lambda pair: per_thousand(pair[1]))
        print(f"most time: {per_thousand(worst):.2f} s for 1,000 lines: {path}, {worst.lines} lines, {worst.seconds} s")
        path, worst = max(costs, key=lambda pair: pair[1].megabytes)
        print(f"most memory: {worst.megabytes} MB: {path}, {worst.size / 1e6:.2f} MB")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
