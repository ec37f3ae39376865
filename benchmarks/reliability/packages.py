"""Findings in ten packages of the package index, against a record: a change of findings in real code is seen before it is merged.

``packages.txt`` names the packages by version and hash, as pip reads it. Nothing of them is installed or run; of the findings, the
record keeps the places and codes. What an interpreter cannot parse depends on its version, and is not compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.field.__main__ import ROOT, Failed, Run, lint_all
from benchmarks.reliability.record import RECORDS

PACKAGES = Path(__file__).with_name("packages.txt")
RECORD = RECORDS / "packages.json"
OPTIONS = ("--preview", "--min-confidence", "low")
WAIT_SECONDS = 90
"""For pip, which may hang where there is no network."""

Known = dict[str, list[str]]
"""The findings of each package, one line each."""


def named(requirements: Path) -> list[str]:
    """The packages of a list, as NAME==VERSION."""
    lines = requirements.read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def fetch(requirements: Path, to: Path) -> tuple[list[Path], list[str]]:
    """Unpacks the packages below ``to`` that are not there yet; their folders, and which of them cannot be had."""
    wanted = [name for name in named(requirements) if not (to / name).is_dir()]
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder)
        if wanted and not _download(requirements, wheels):
            # One that is gone does not take the others with it.
            lines = requirements.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(line for line in lines if line.split()[:1] and line.split()[0] in wanted):
                one = wheels / f"{number}.txt"
                one.write_text(line + "\n", encoding="utf-8")
                if not _download(one, wheels) and not number:
                    break  # nor is the first: there is no index
        for wheel in wheels.glob("*.whl"):
            target = to / "==".join(wheel.name.split("-")[:2])
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target, [one for one in archive.namelist() if one.endswith((".py", ".ipynb"))])
    names = named(requirements)
    return [to / name for name in names if (to / name).is_dir()], [name for name in names if not (to / name).is_dir()]


def _download(requirements: Path, to: Path) -> bool:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--ignore-requires-python", "--require-hashes", "--retries", "1", "--timeout", "15"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(to), "--requirement", str(requirements)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=WAIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def lines_of(folder: Path, run: Run) -> list[str]:
    return sorted(_line(folder, finding) for finding in run.findings if finding["code"] != "TML000")


def _line(folder: Path, finding: dict[str, Any]) -> str:
    file = Path(finding["filename"]).relative_to(folder).as_posix() + (f" cell {finding['cell']}" if finding["cell"] else "")
    at = finding["location"]
    return f"{file}:{at['row']}:{at['column']} {finding['code']} {finding['severity']} {finding['confidence']}"


def compare(known: Known, now: Known, cpu: dict[str, float]) -> tuple[str, bool]:
    """A table and the lines that differ; whether any does."""
    rows = ["| package | findings | added | removed | CPU s |", "|---|---:|---:|---:|---:|"]
    differences = []
    for name, lines in now.items():
        was, has = Counter(known.get(name, [])), Counter(lines)
        added, removed = sorted((has - was).elements()), sorted((was - has).elements())
        rows.append(f"| {name} | {len(lines)} | {len(added)} | {len(removed)} | {cpu[name]:.1f} |")
        if added or removed:
            differences += [name, *(f"  + {line}" for line in added), *(f"  - {line}" for line in removed)]
    return "\n".join([*rows, "", *(differences or ["no finding added or removed"])]), bool(differences)


def main(update: bool, to: Path | None, requirements: Path = PACKAGES, record: Path = RECORD, jobs: int = 2) -> int:
    """1 where findings differ from the record, 2 where a record cannot be written."""
    with tempfile.TemporaryDirectory() as temporary:
        place = (to or Path(temporary)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        folders, missing = fetch(requirements, place)
        for name in missing:
            print(f"{name}: skipped: cannot be downloaded")
        runs = lint_all(place, [folder.name for folder in folders], ROOT, jobs, OPTIONS)
        now = {run.package: lines_of(folder, run) for folder, run in zip(folders, runs, strict=True)}
    known: Known = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    differences, differs = compare(known, now, {run.package: run.cpu for run in runs})
    print(differences)
    if update:
        if missing:
            print("the record was not written: packages are missing", file=sys.stderr)
            return 2
        record.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        return 0
    if differs:
        print("\nIf this is meant: python -m benchmarks.reliability packages --update", file=sys.stderr)
    return int(differs)


def folders_for(packages: Sequence[Path], temporary: Path) -> list[Path]:
    """The folders to compare two commits over: those given, or the ten packages. Raises Failed where there are none."""
    if packages:
        return list(packages)
    found, missing = fetch(PACKAGES, temporary)
    if not found:
        raise Failed("no package can be downloaded: name folders")
    for name in missing:
        print(f"{name}: skipped: cannot be downloaded", file=sys.stderr)
    return found
