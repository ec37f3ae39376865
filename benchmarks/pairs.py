"""Experiments on the fixtures: a file with ``def run(steps)`` and its corrected twin ``NAME.fixed.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchmemlint.confirm.launch import Ended, launch, printable
from torchmemlint.confirm.results import run_of
from torchmemlint.confirm.verdict import Verdict, decide, inconclusive

_RUN = re.compile(r"^def run\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two programs that differ by one mistake: file name → source of each, and the module that has ``run``."""

    code: str
    name: str
    module: str
    before: Mapping[str, str]
    after: Mapping[str, str]


def find_pairs(root: Path) -> Iterator[Pair]:
    """Every pair below ``root``/TMLxxx that can be run: single files, and packages (a directory and its twin
    ``NAME.fixed``)."""
    for directory in sorted(root.glob("TML[0-9][0-9][0-9]")):
        for path in sorted(directory.glob("*.py")):
            twin = path.with_name(f"{path.stem}.fixed.py")
            if not path.stem.endswith(".fixed") and twin.exists() and _RUN.search(path.read_text(encoding="utf-8")):
                yield Pair(directory.name, path.stem, path.stem, _one(path, path.name), _one(twin, path.name))
        for package in sorted(item for item in directory.iterdir() if item.is_dir()):
            mains = [path for path in sorted(package.rglob("*.py")) if _is_main(path)]
            if mains:
                module = ".".join(mains[0].relative_to(package).with_suffix("").parts)
                yield Pair(directory.name, package.name, module, _tree(package, False), _tree(package, True))


def _is_main(path: Path) -> bool:
    return not path.stem.endswith(".fixed") and bool(_RUN.search(path.read_text(encoding="utf-8")))


def _one(path: Path, name: str) -> Mapping[str, str]:
    return {name: path.read_text(encoding="utf-8")}


def _tree(package: Path, fixed: bool) -> Mapping[str, str]:
    """The files of a package; with ``fixed`` those that have a twin are taken from it."""
    files = {}
    for path in sorted(package.rglob("*.py")):
        if path.stem.endswith(".fixed"):
            continue
        twin = path.with_name(f"{path.stem}.fixed.py")
        source = twin if fixed and twin.exists() else path
        files[path.relative_to(package).as_posix()] = source.read_text(encoding="utf-8")
    return files


def settle_pair(pair: Pair, device: str = "cpu", timeout: float = 60, sandbox: bool = True) -> tuple[Verdict, Ended]:
    """Run both programs in one child and decide."""
    job = {"runner": "pair", "module": pair.module, "before": pair.before, "after": pair.after}
    ended = launch(job, timeout, sandbox, device)
    if ended.refused or ended.forged:
        return inconclusive(ended.refused or f"forged: {ended.forged}", device=device), ended
    before, after = run_of(ended, "before"), run_of(ended, "after")
    if before is None:
        return inconclusive(
            ended.ending or printable(ended.output[-300:]) or "the child process gave no answer", device=device
        ), ended
    return decide(pair.code, before, after), ended
