"""``python -m benchmarks.fixes FOLDER…``: what ``--fix --unsafe-fixes`` does to real projects.

Each FOLDER is one project; of a folder that holds projects, name each (``FOLDER/*``). A project is copied, its copy fixed, and
reported is

- how many findings were fixed, by rule, and in how many files; how many findings printed with a fixable rule have no fix;
- what is broken: a changed file that does not compile, that lost a comment, or whose line ends are others;
- whether a second run changes anything.

``--notes`` and ``--min-confidence low`` fix what is not printed by default, too. ``--hunks FILE`` writes each changed place
with its rule and surroundings as a line of JSON, ``--sample N`` shows N of those at random (``--seed``), for reading.

The record (``--record``) has one entry for each project, the version of the linter that made it and the options: a run goes on
where it was broken off, and does again what another version or other options made.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).parent / "fixes.json"
LINE_END = re.compile(rb"\r\n|\r|\n")
LEFT_OUT = (
    ".git",
    "__pycache__",
    "*.pt",
    "*.pth",
    "*.bin",
    "*.npy",
    "*.npz",
    "*.h5",
    "*.png",
    "*.jpg",
    "*.gif",
    "*.mp4",
    "*.wav",
)
SURROUNDINGS = 12
"""Rows above and below a changed place that ``--hunks`` writes."""

Entry = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parsed(arguments)
    options = {"unsafe-fixes": True, "notes": asked.notes, "min-confidence": asked.min_confidence}
    made_by = {"linter": version_of(ROOT / "torchmemlint"), "options": options}
    projects: dict[str, Entry] = {}
    if asked.record.exists():
        former = json.loads(asked.record.read_text(encoding="utf-8"))
        if {name: former[name] for name in made_by} == made_by:
            projects = former["projects"]
    if asked.hunks is not None and not projects:
        asked.hunks.write_text("", encoding="utf-8")
    for folder in asked.folders:
        name = folder.resolve().name
        if name in projects:
            continue
        # A process for each: its memory goes with it.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            entry, hunks = pool.submit(fixed_copy, folder.resolve(), options).result()
        projects[name] = entry
        if asked.hunks is not None:
            with asked.hunks.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps({'project': name, **hunk})}\n" for hunk in hunks)
        write(asked.record, {**made_by, "total": total(projects.values()), "projects": dict(sorted(projects.items()))})
        print(f"{name}: {sum(entry['applied'].values())} fixed, {len(faults(entry))} faults", file=sys.stderr, flush=True)
    summed = total(projects.values())
    print(json.dumps(summed, indent=1))
    for name, entry in sorted(projects.items()):
        print("".join(f"{name}: {fault}\n" for fault in faults(entry)), end="")
    if asked.hunks is not None and asked.sample:
        show(asked.hunks, asked.sample, asked.seed)
    return 1 if summed["broken"] or summed["changed by a second run"] else 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fixes", description="Fixes copies of real projects.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--notes", action="store_true", help="fix notes, too")
    parser.add_argument("--min-confidence", choices=("low", "medium", "high"), default="medium")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--hunks", type=Path, help="write each changed place to this file")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="show N changed places at random")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def fixed_copy(folder: Path, options: Mapping[str, object]) -> tuple[Entry, list[dict[str, Any]]]:
    """One project: what was fixed in a copy of it and what is wrong with that, and the changed places."""
    from torchmemlint.project.config import CommandLine, Configuration
    from torchmemlint.run import fix_paths
    from torchmemlint.source.file import write_source

    warnings.simplefilter("ignore")
    configuration = Configuration(CommandLine(dict(options)))
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, folder.name)
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        os.chdir(copy)
        started = time.process_time()
        done = fix_paths(["."], configuration, 1)
        seconds = time.process_time() - started
        before = {path: Path(path).read_bytes() for path in done.after}
        for path, text in done.after.items():
            write_source(Path(path), done.before[path], text)
        after = {path: Path(path).read_bytes() for path in done.after}
        again = fix_paths(["."], configuration, 1).after if after else {}
        os.chdir(folder.parent)
    broken = [f"{path}: {fault}" for path in sorted(after) for fault in faults_of(before[path], after[path], path)]
    entry: Entry = {
        "applied": dict(sorted(Counter(finding.code for finding in done.applied).items())),
        "files": len(after),
        "left": dict(sorted(Counter(finding.code for finding in done.outcome.findings).items())),
        "broken": broken,
        "changed by a second run": sorted(again),
        "seconds": round(seconds, 1),
    }
    return entry, [hunk for path in sorted(after) for hunk in hunks_of(path, before[path], after[path], done.applied)]


def faults_of(before: bytes, after: bytes, path: str) -> Iterator[str]:
    """What a fix must not have done to a file."""
    if path.endswith(".ipynb"):
        try:
            json.loads(after)
        except ValueError:
            yield "is no notebook any more"
        return
    fault = compiled(after, path)
    if fault and not compiled(before, path):
        yield f"does not compile: {fault}"
    lost = comments(before) - comments(after)
    if lost:
        yield f"lost {sum(lost.values())} comments: {next(iter(lost))}"
    ends = [set(LINE_END.findall(text)) for text in (before, after)]
    if len(ends[0]) == 1 and ends[0] != ends[1]:
        yield "has other line ends"


def compiled(data: bytes, path: str) -> str:
    """Why a file does not compile, "" where it does."""
    try:
        compile(data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return str(error)
    return ""


def comments(data: bytes) -> Counter[str]:
    found: Counter[str] = Counter()
    try:
        for token in tokenize.tokenize(io.BytesIO(data).readline):
            if token.type == tokenize.COMMENT:
                found[token.string.strip()] += 1
    except (tokenize.TokenError, SyntaxError):
        pass
    return found


def hunks_of(path: str, before: bytes, after: bytes, findings: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Each changed place of a file, with the codes of the file's findings that were fixed near it, and what is around it."""
    import difflib

    old, new = (data.decode("utf-8", "replace").splitlines() for data in (before, after))
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(2)
    for group in groups:
        first, last = group[0][1], group[-1][2]
        codes = sorted({f.code for f in findings if f.path == path and is_near(f, first, last, path)})
        rows = [f"  {line}" for line in old[max(0, first - SURROUNDINGS) : first]]
        for kind, start, end, begin, stop in group:
            if kind == "equal":
                rows += [f"  {line}" for line in old[start:end]]
            else:
                rows += [*(f"- {line}" for line in old[start:end]), *(f"+ {line}" for line in new[begin:stop])]
        rows += [f"  {line}" for line in old[last : last + SURROUNDINGS]]
        yield {"path": path, "row": first + 1, "codes": codes, "text": "\n".join(rows)}


def is_near(finding: Any, first: int, last: int, path: str) -> bool:
    """Whether a finding's fix changes something between these rows; of a notebook, whose rows are another text's, all do."""
    rows = [edit.span.start.row for edit in finding.fix.edits]
    return path.endswith(".ipynb") or any(first - 6 <= row <= last + 6 for row in rows)


def show(hunks: Path, number: int, seed: int) -> None:
    found = [json.loads(line) for line in hunks.read_text(encoding="utf-8").splitlines()]
    found.sort(key=lambda hunk: (hunk["project"], hunk["path"], hunk["row"]))
    for index, hunk in enumerate(random.Random(seed).sample(found, min(number, len(found))), 1):
        print(f"\n=== {index}. {hunk['project']}/{hunk['path']}:{hunk['row']} {' '.join(hunk['codes'])}\n{hunk['text']}")


def faults(entry: Entry) -> list[str]:
    return [*entry["broken"], *(f"{path}: changed by a second run" for path in entry["changed by a second run"])]


def total(entries: Any) -> Entry:
    entries = list(entries)
    return {
        "projects": len(entries),
        "applied": sum(sum(entry["applied"].values()) for entry in entries),
        "by rule": dict(sorted(sum((Counter(entry["applied"]) for entry in entries), Counter()).items())),
        "files": sum(entry["files"] for entry in entries),
        "broken": sum(len(entry["broken"]) for entry in entries),
        "changed by a second run": sum(len(entry["changed by a second run"]) for entry in entries),
        "seconds": round(sum(entry["seconds"] for entry in entries), 1),
    }


def write(record: Path, content: Mapping[str, Any]) -> None:
    temporary = record.with_suffix(".tmp")
    temporary.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")
    temporary.replace(record)


def version_of(package: Path) -> str:
    """A digest of the linter's own files: another where any of them changed."""
    digest = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.toml")]):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    raise SystemExit(main())
