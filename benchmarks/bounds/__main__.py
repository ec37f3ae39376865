"""``python -m benchmarks.bounds --seconds N``: looks for programs that cost too much, for N seconds of CPU.

Each shape is checked at growing sizes, then mixtures by chance, a size and a seed at a time, the cheapest first; at last each shape
as heavy as libcst may just read, where most memory is needed. Reported is what takes more than ``SECONDS`` of CPU for a file,
whose time grows faster than n log n, or whose memory is more than ``MEGABYTES`` and ``TIMES_SIZE`` times its text. What was
measured is written line by line to a record, with the state of the code, so a search goes on where it was left; what was
measured in another state is dropped from it. The exit status is 1 where something was found.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from hashlib import blake2b
from pathlib import Path

from benchmarks.bounds.measure import Cost, cost
from benchmarks.bounds.shapes import SHAPES, Files, random_mix
from torchmemlint.lower.limits import MAX_WEIGHT, weight

RECORDS = Path(__file__).with_name("records")
PACKAGE = Path(__file__).parents[2] / "torchmemlint"
BESIDE = frozenset({"budget", "confirm", "lsp", "oom"})
"""Parts of the package that no check runs."""
SIZES = (300, 1200, 5000, 20000)
MIXTURES = 50
"""Mixtures that are tried at each size."""
SECONDS = 10.0
"""Of CPU for a program, of at most 20,000 lines."""
START = 0.5
"""Seconds that every check takes: what is below them twice over shows nothing about growth."""
FASTER = 2.0
"""Times faster than n log n that a time may have grown: neither sizes nor clocks are exact."""
MEGABYTES = 100
TIMES_SIZE = 150

Case = tuple[str, int]
"""Name of a shape, or ``mix-`` and a seed, and a size."""


def cases(names: Sequence[str] = (), sizes: Sequence[int] = ()) -> Iterator[Case]:
    """All cases, or those of some shapes and mixtures, or of some sizes."""
    every = [*SHAPES, *(f"mix-{seed}" for seed in range(MIXTURES))]
    wanted = [name for name in every if not names or name in names]
    for size in sizes or SIZES:
        yield from ((name, size) for name in wanted)
    if not sizes:
        yield from ((name, heaviest(name)) for name in wanted if name in SHAPES)


@cache
def heaviest(name: str) -> int:
    """About the size at which a shape weighs as much as libcst may read at once, and not more."""
    size = SIZES[0]
    for _ in range(6):
        size = max(1, min(SIZES[-1], int(size * 0.995 * MAX_WEIGHT / weight_of(name, size))))
    while weight_of(name, size) > MAX_WEIGHT:
        size = size * 98 // 100
    return size


def weight_of(name: str, size: int) -> int:
    return sum(weight(text) for text in SHAPES[name](size).values())


@cache
def tree() -> str:
    """The state of the code: a digest of the sources and tables that a check may read."""
    digest = blake2b(digest_size=6)
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".toml")):
        inside = path.relative_to(PACKAGE)
        if inside.parts[0] not in BESIDE:
            digest.update(inside.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def program(case: Case) -> Files:
    name, size = case
    return random_mix(int(name.removeprefix("mix-")), size) if name.startswith("mix-") else SHAPES[name](size)


def over_memory(cost: Cost) -> list[str]:
    """The memory that a check took, where it is over the bound: unlike its time, the same on a slow machine."""
    limit = MEGABYTES + TIMES_SIZE * cost.size / 1e6
    return [f"{cost.megabytes} MB, where {limit:.0f} are allowed"] if cost.megabytes > limit else []


def faults(case: Case, known: Mapping[Case, Cost]) -> list[str]:
    """What is wrong with what a case cost; its growth against the next smaller size that was measured."""
    this = known[case]
    found = []
    if not this.done or this.seconds > SECONDS:
        found.append(f"{this.seconds} s of CPU{'' if this.done else ', and not at its end'}")
    found += over_memory(this)
    smaller = [size for name, size in known if name == case[0] and size < case[1]]
    if smaller:
        before = known[case[0], max(smaller)]
        if this.size > before.size and before.seconds > 2 * START:
            growth = (this.seconds - START) / (before.seconds - START)
            allowed = this.size * math.log(this.size) / (before.size * math.log(before.size))
            if growth > FASTER * allowed:
                found.append(f"{growth:.1f} times the time for {this.size / before.size:.1f} times the text")
    return found


def read(record: Path, state: str = "") -> dict[Case, Cost]:
    """What a record has of one state of the code, or of any."""
    rows = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    found = [row for row in rows if row.pop("tree", "") == state or not state]
    return {(row.pop("name"), row.pop("asked")): Cost(**row) for row in found}


def row(case: Case, measured: Cost) -> str:
    return json.dumps({"tree": tree(), "name": case[0], "asked": case[1], **asdict(measured)}) + "\n"


def search(seconds: float, record: Path, wanted: Sequence[Case]) -> dict[Case, list[str]]:
    """Measures the cases that the record lacks, as long as there is CPU time, and returns what is wrong with any of them."""
    known = read(record, tree())
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("".join(row(case, measured) for case, measured in known.items()))
    with record.open("a") as out:
        for case in wanted:
            if case in known:
                continue
            if seconds <= 0:
                break
            known[case] = measured = cost(program(case), int(SECONDS) + 5)
            seconds -= measured.seconds
            out.write(row(case, measured))
            out.flush()
    asked = set(wanted)
    return {case: found for case in known if case in asked and (found := faults(case, known))}


def table(known: Mapping[Case, Cost]) -> str:
    """CPU seconds for 1,000 lines, the start of the program taken off, by shape and size."""
    names = dict.fromkeys(name for name, _ in known)
    lines = [f"{'shape':26}" + "".join(f"{size:>9}" for size in SIZES) + "   largest MB"]
    for name in names:
        costs = [known.get((name, size)) for size in SIZES]
        cells = [f"{max(0.0, one.seconds - START) / one.lines * 1000:9.2f}" if one else " " * 9 for one in costs]
        lines.append(f"{name:26}{''.join(cells)}{max(one.megabytes for one in costs if one):13.0f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600, help="CPU time for the search (default: %(default)s)")
    parser.add_argument("--record", type=Path, default=RECORDS / "search.jsonl", help="where measurements are kept")
    parser.add_argument("--shape", action="append", help="only this shape (can be given several times)")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="no sizes above (default: %(default)s)")
    parser.add_argument("--size", type=int, action="append", choices=SIZES, help="only this size (can be given several times)")
    parser.add_argument("--table", action="store_true", help="only print what the record has")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(read(arguments.record)))
        return 0
    wanted = [case for case in cases(arguments.shape or (), arguments.size or ()) if case[1] <= arguments.largest]
    found = search(arguments.seconds, arguments.record, wanted)
    for (name, size), words in found.items():
        print(f"{name} at {size}: {'; '.join(words)}")
    known = read(arguments.record, tree())
    print(f"{sum(case in known for case in wanted)} of {len(wanted)} cases measured, {len(found)} of them cost too much")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
