"""``python -m benchmarks.equality FOLDER…``: on copies of real projects, after each of many random edits, a run that uses earlier
results is compared with a run from nothing. Each edit is looked at by one way in, chosen at random:

    folder   the folder, with the cache
    jobs     the same in two processes
    names    files named one by one, answered from the run over their folder
    server   a file in the language server, which keeps results in memory and is interrupted at random, against one just started
    flake8   the plug-in, with the cache, against the plug-in without
    shards   two shards with the cache, put together by ``merge``
    order    a copy whose files were made in another order, in a process with another hash seed

The record (``--record``) counts the comparisons by project and way, sums the CPU time that they took, and keeps every difference with
the seed that leads to it. A run goes on where the last one ended: projects with the fewest comparisons are next. The exit status is 1
where something differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from benchmarks.equality.edits import edit
from torchmemlint import __version__
from torchmemlint.cli import main
from torchmemlint.errors import Cancelled
from torchmemlint.findings import Finding
from torchmemlint.lsp import buffers
from torchmemlint.project import neighbours

RECORD = Path(__file__).parent / "record.json"
EDITS = 8
"""Edits of one project before the next one has its turn."""
MOST_BYTES = 6_000_000
"""Python of a project: of a larger one, the folders that fit are taken."""
OPTIONS = ("--preview", "--min-confidence", "low", "--output-format", "json")
Differences = list[dict[str, Any]]


def _run(*arguments: str) -> tuple[int, str]:
    neighbours.forget()  # each run stands for a process of its own
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        status = main([*arguments])
    return status, out.getvalue()


def _files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))


def _folder(chance: random.Random, root: Path) -> tuple[object, object]:
    return _run(".", *OPTIONS, "-j", "1"), _run(".", *OPTIONS, "-j", "1", "--no-cache")


def _jobs(chance: random.Random, root: Path) -> tuple[object, object]:
    return _run(".", *OPTIONS, "-j", "2"), _run(".", *OPTIONS, "-j", "1", "--no-cache")


def _names(chance: random.Random, root: Path) -> tuple[object, object]:
    _run(".", *OPTIONS, "-j", "1")
    files = _files(root)
    named = sorted(chance.sample(files, min(3, len(files))))
    whole = json.loads(_run(".", *OPTIONS, "-j", "1", "--no-cache")[1])
    # A file that cannot be parsed is reported when it is named, whatever is in it.
    here = [one for one in json.loads(_run(*named, *OPTIONS)[1]) if one["code"] != "TML000"]
    return here, [one for one in whole if one["filename"] in named and one["code"] != "TML000"]


def _flake8(chance: random.Random, root: Path) -> tuple[object, object]:
    command = [sys.executable, "-m", "flake8", "--isolated", "--select", "TML", "--jobs", "1", "."]
    found = []
    for without in ("", "1"):
        environment = {**os.environ, "TORCHMEMLINT_NO_CACHE": without}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        found.append((done.returncode, done.stdout))
    return found[0], found[1]


def _shards(chance: random.Random, root: Path) -> tuple[object, object]:
    with tempfile.TemporaryDirectory() as folder:
        reports = [f"{folder}/{number}.json" for number in (1, 2)]
        for number, report in enumerate(reports, 1):
            Path(report).write_text(_run(".", *OPTIONS, "--shard", f"{number}/2", "-j", "1")[1], encoding="utf-8")
        merged = _run("merge", *reports, *OPTIONS[1:])
    return json.loads(merged[1]), json.loads(_run(".", *OPTIONS, "-j", "1", "--no-cache")[1])


def _server(chance: random.Random, root: Path) -> tuple[object, object]:
    """Ten keystrokes in one file: what the server shows at the end, and what it would show had it just been started."""
    name = chance.choice(_files(root))
    path = buffers.open_path(str(root / name))
    text = (root / name).read_bytes().decode("utf-8", "replace")
    options = {"preview": True, "min-confidence": "low"}
    for _ in range(10):
        at = chance.randrange(len(text) + 1)
        if chance.randrange(4):
            text = text[:at] + chance.choice(("x", " ", "\n", "1", ".", "()", "\n# c\n")) + text[at:]
        else:
            text = text[:at] + text[at + 1 :]
        cancel = Event()

        def publish(findings: Sequence[Finding], cancel: Event = cancel) -> None:
            if chance.randrange(2):
                cancel.set()

        with contextlib.suppress(Cancelled):
            buffers.check(path, text, {path: text}, options, publish, cancel)
    shown = buffers.check(path, text, {path: text}, options).findings
    neighbours.forget()
    buffers.forget()
    return shown, buffers.check(path, text, {path: text}, options).findings


def _order(chance: random.Random, root: Path) -> tuple[object, object]:
    files = _files(root)
    chance.shuffle(files)
    command = [sys.executable, "-m", "torchmemlint", ".", *OPTIONS, "-j", "1", "--no-cache"]
    environment = {**os.environ, "PYTHONHASHSEED": str(chance.randrange(1, 1 << 32))}
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / root.name
        for name in files:
            (copied / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, copied / name)
        done = subprocess.run(command, cwd=copied, env=environment, capture_output=True, text=True, check=False)
    return (done.returncode, done.stdout), _run(".", *OPTIONS, "-j", "1", "--no-cache")


WAYS: dict[str, Callable[[random.Random, Path], tuple[object, object]]] = {
    "folder": _folder, "jobs": _jobs, "names": _names, "flake8": _flake8, "shards": _shards, "server": _server,
    "order": _order,
}  # fmt: skip
WEIGHTS = {"folder": 4, "jobs": 2, "names": 3, "flake8": 1, "shards": 1, "server": 3, "order": 2}


def _copied(project: Path, to: Path) -> dict[str, bytes]:
    """Copies the Python files of a project, up to a size."""
    remaining = MOST_BYTES
    for path in sorted(project.rglob("*.py")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > remaining:
            continue
        place = to / path.relative_to(project)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        remaining -= path.stat().st_size
    return {name: (to / name).read_bytes() for name in _files(to)}


def _cpu() -> float:
    """CPU seconds of this process and of those that it started and that ended."""
    return sum(os.times()[:4])


def walk(project: Path, seed: int, edits: int, counts: dict[str, int], until: float) -> Differences:
    """Edits a copy of a project at random, and compares after each edit."""
    chance = random.Random(seed)
    found: Differences = []
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        first = _copied(project, root)
        os.environ["TORCHMEMLINT_CACHE_DIR"] = str(Path(folder) / "cache")
        os.chdir(root)
        try:
            done: list[str] = []
            for _ in range(edits if first else 0):
                if _cpu() > until:
                    break
                way = chance.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
                one, other = WAYS[way](chance, root)
                counts[way] = counts.get(way, 0) + 1
                if one != other:
                    found.append({"seed": seed, "way": way, "edits": len(done), "last": done[-3:]})
                for _ in range(chance.choice((1, 1, 1, 2, 4))):
                    done.append(edit(chance, root, first))
        finally:
            os.chdir(before)
            del os.environ["TORCHMEMLINT_CACHE_DIR"]
    return found


def run(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.equality", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="projects")
    parser.add_argument("--seconds", type=float, default=900, help="of CPU time (default: 900)")
    parser.add_argument("--edits", type=int, default=EDITS, help=f"of one project at a time (default: {EDITS})")
    parser.add_argument("--record", type=Path, default=RECORD)
    chosen = parser.parse_args(arguments)
    record: dict[str, Any] = {"version": __version__, "projects": {}}
    if chosen.record.is_file():
        record = json.loads(chosen.record.read_text(encoding="utf-8"))
    projects = record["projects"]
    until = _cpu() + chosen.seconds
    while (began := _cpu()) < until:
        folder = min(chosen.folders, key=lambda one: (sum(projects.get(Path(one).name, {}).get("compared", {}).values()), one))
        entry = projects.setdefault(Path(folder).name, {"rounds": 0, "compared": {}, "differences": []})
        seed = random.Random(f"{Path(folder).name} {entry['rounds']}").randrange(1 << 32)
        entry["rounds"] += 1
        entry["differences"] += walk(Path(folder).resolve(), seed, chosen.edits, entry["compared"], until)
        if not entry["compared"]:
            entry["compared"]["none"] = 1_000_000  # nothing of Python in it
        record["cpu_seconds"] = round(record.get("cpu_seconds", 0) + _cpu() - began, 1)
        chosen.record.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    compared: dict[str, int] = {}
    for entry in projects.values():
        for way, count in entry["compared"].items():
            if way != "none":
                compared[way] = compared.get(way, 0) + count
    differences = sum(len(entry["differences"]) for entry in projects.values())
    spent = f"{record.get('cpu_seconds', 0) / 3600:.2f} CPU hours"
    print(f"{len(projects)} projects, {sum(compared.values())} comparisons {compared}, {spent}, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(run())
