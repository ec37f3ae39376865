"""``python -m benchmarks.field.evidence REPOSITORIES WORK``: what the program knows of each finding that was read, as data.

REPOSITORIES holds ``owner+name`` for each repository that a sample names, at the commit of the sample, as the labelled ones are laid
out; WORK keeps what the linter found in each, so that a run that was cut off goes on where it ended. Writes ``evidence.jsonl``: a line
for each finding that was read, with the facts that are known of it today. Those that are no findings any more are counted, not written.
A sample that keeps the facts that were printed when it was read is taken as it was read: nothing was mended by it yet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
READINGS = FOLDER / "readings.jsonl"
REPOSITORIES = FOLDER / "repositories.txt"
RECORD = FOLDER / "evidence.jsonl"
HELD_OUT = ("eleventh", "eighteenth-a", "eighteenth-b", "eighteenth-c", "twentieth-c")
"""Samples that are never fitted, and never read for causes again."""
OPTIONS = ("--isolated", "--exit-zero", "--no-cache", "--jobs", "1", "--min-confidence", "low", "--output-format", "json")

Entry = Mapping[str, Any]


def readings() -> Iterator[dict[str, Any]]:
    """Each finding that was read, with its sample, or the part of it."""
    for line in READINGS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row | {"sample": f"{row['sample']}-{row['part']}"} if row.get("part") else row


def repositories() -> dict[str, dict[str, str]]:
    """Sample → repository → the commit that was read."""
    out: dict[str, dict[str, str]] = {}
    for line in REPOSITORIES.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            sample, repository, commit = line.split()
            out.setdefault(sample, {})[repository] = commit
    return out


def as_read(row: Entry) -> dict[str, Any]:
    """The line of a finding of fresh code, by the facts that were printed with it."""
    return line_of(row) | {"severity": row["severity"], "level": row["confidence"], "evidence": row["evidence"], "fresh": True}


def line_of(row: Entry) -> dict[str, Any]:
    return {key: row.get(key) for key in ("sample", "repo", "commit", "path", "cell", "line", "code", "verdicts", "worth")}


def findings_of(folder: Path, work: Path) -> list[dict[str, Any]] | None:
    """What the linter finds in a repository at any confidence, notes included, remembered in ``work``; None where it failed."""
    kept = work / f"{folder.name}.json"
    if not kept.exists():
        command = [sys.executable, "-m", "torchmemlint", "check", str(folder), *OPTIONS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{folder.name}: the linter ended with {done.returncode}: {done.stderr[-300:].strip()}", file=sys.stderr)
            return None
        found = [
            {key: one[key] for key in ("code", "severity", "confidence", "cell", "location", "evidence")}
            | {"path": Path(one["filename"]).resolve().relative_to(folder.resolve()).as_posix()}
            for one in json.loads(done.stdout)
        ]
        kept.write_text(json.dumps(found), encoding="utf-8")
    remembered: list[dict[str, Any]] = json.loads(kept.read_text(encoding="utf-8"))
    return remembered


def joined(rows: Iterable[Entry], found: Iterable[Entry]) -> Iterator[tuple[Entry, Entry | None]]:
    """Each reading of a repository with the finding that stands where it was read."""
    by_place = {(one["path"], one["cell"], one["location"]["row"], one["code"]): one for one in found}
    for row in rows:
        yield row, by_place.get((row["path"], row.get("cell"), row["line"], row["code"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("repositories", type=Path)
    parser.add_argument("work", type=Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    read = sorted(readings(), key=lambda one: str(one["sample"]))  # as evidence.jsonl is ordered
    by_repository: dict[str, list[dict[str, Any]]] = {}
    for one in read:
        if "evidence" not in one:
            by_repository.setdefault(one["repo"], []).append(one)
    lines, states = [], Counter[str]()
    for repository, rows in sorted(by_repository.items()):
        folder = options.repositories / repository.replace("/", "+")
        found = findings_of(folder, options.work) if folder.is_dir() else None
        if found is None:
            states["without the repository"] += len(rows)
            continue
        for row, finding in joined(rows, found):
            states["still found" if finding else "not found any more"] += 1
            if finding is not None:
                lines.append(
                    line_of(row)
                    | {"severity": finding["severity"], "level": finding["confidence"]}
                    | {"evidence": [one["fact"] for one in finding["evidence"]]}
                )
    lines += [as_read(one) for one in read if "evidence" in one]
    RECORD.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print("\n".join(f"{count} {state}" for state, count in sorted(states.items())))


if __name__ == "__main__":
    main()
