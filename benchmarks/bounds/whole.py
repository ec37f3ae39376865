"""``python -m benchmarks.bounds.whole FOLDER…``: what each file takes in a run over its whole project, of every file of these projects.

One run for each folder, in one process and without a cache; the time of a file is that of reading it and of checking it, to which the
functions of other files belong that are interpreted for it. The time of linking belongs to no file. A record keeps the figures, and a
folder that it has for this state of the code is not run again. The exit status is 1 where a file takes more than ``SECONDS`` for 1,000
lines, or a run more memory than ``MEGABYTES`` and ``TIMES_SIZE`` times the text of all its files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.bounds.__main__ import MEGABYTES, RECORDS, TIMES_SIZE, tree
from benchmarks.bounds.field import SECONDS
from benchmarks.bounds.measure import peak

LINES = 300
"""Files that are shorter take what they import, whatever their length: their seconds count, not those for 1,000 lines."""


def times(folder: Path) -> dict[str, float]:
    """CPU seconds by file of a run over a folder, in this process."""
    from torchmemlint.project.config import CommandLine, Configuration
    from torchmemlint.run import check_paths
    from torchmemlint.running import inspecting, scanning

    spent: dict[str, float] = {}

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(shared: Any, path: str) -> Any:
            before = time.process_time()
            try:
                return work(shared, path)
            finally:
                spent[path] = spent.get(path, 0.0) + time.process_time() - before

        return call

    for module, name in ((scanning, "scan"), (inspecting, "inspect")):
        setattr(module, name, timed(getattr(module, name)))
    check_paths([str(folder)], Configuration(CommandLine({"select": ("ALL",), "preview": True}, isolated=True)), 1)
    return spent


def figures(folder: Path) -> dict[str, Any]:
    """The row of a folder; ``worst`` is by 1,000 lines, ``longest`` by seconds, each with the lines of its file."""
    before = time.process_time()
    spent = times(folder)
    cpu = time.process_time() - before
    sizes = {path: (data.count(b"\n") + 1, len(data)) for path in spent for data in [Path(path).read_bytes()]}
    long = [path for path in spent if sizes[path][0] >= LINES]
    worst = max(long, key=lambda path: spent[path] / sizes[path][0], default="")
    longest = max(spent, key=lambda path: spent[path], default="")
    return {
        "files": len(spent),
        "lines": sum(lines for lines, _ in sizes.values()),
        "bytes": sum(size for _, size in sizes.values()),
        "seconds": round(cpu, 2),
        "megabytes": round(peak(), 1),
        "long": len(long),
        "worst": [round(spent[worst] / sizes[worst][0] * 1000, 2), sizes[worst][0]] if worst else [0, 0],
        "longest": [round(spent[longest], 2), sizes[longest][0]] if longest else [0, 0],
    }


def measured(folder: Path) -> dict[str, Any]:
    """``figures``, from a process of its own."""
    program = f"import json, sys; from pathlib import Path; from {__spec__.name} import figures; print(json.dumps(figures(Path(sys.argv[1]))))"
    command = [sys.executable, "-c", program, str(folder)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(folders: list[Path], record: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of each folder, from the record or measured now."""
    known = {}
    if record.is_file():
        known = {row["folder"]: row for row in map(json.loads, record.read_text().splitlines()) if row["tree"] == tree()}
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("".join(json.dumps(row) + "\n" for row in known.values()))
    for folder in folders:
        if folder.name not in known:
            known[folder.name] = {"folder": folder.name, "tree": tree(), **measured(folder.resolve())}
            with record.open("a") as file:
                file.write(json.dumps(known[folder.name]) + "\n")
        yield folder.name, known[folder.name]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds.whole", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--record", type=Path, default=RECORDS / "whole.jsonl", help="where figures are kept")
    arguments = parser.parse_args()
    found = dict(rows(arguments.folders, arguments.record))
    wrong = 0
    for name, row in found.items():
        if row["worst"][0] > SECONDS or row["megabytes"] > MEGABYTES + TIMES_SIZE * row["bytes"] / 1e6:
            wrong += 1
            print(f"{name}: {row['worst'][0]} s for 1,000 lines, {row['megabytes']} MB")
    total = {key: sum(row[key] for row in found.values()) for key in ("files", "long", "lines", "seconds")}
    print(
        f"{len(found)} folders, {total['files']:,} files, {total['lines']:,} lines, {total['seconds']:.0f} s; {wrong} cost too much"
    )
    worst, longest = (max(found.values(), key=lambda row, key=key: row[key]) for key in ("worst", "longest"))  # type: ignore[misc]
    print(
        f"of {total['long']:,} files of at least {LINES} lines, at most {worst['worst'][0]} s for 1,000 lines ({worst['worst'][1]} lines)"
    )
    print(f"longest: {longest['longest'][0]} s ({longest['longest'][1]} lines)")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
