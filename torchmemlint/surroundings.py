"""Which other files say something about those that are checked: who calls their functions, and what their calls reach.

``connected`` chooses among the files of a run that are not torch-related themselves; ``surroundings`` looks for files around
those that the user named one by one (an editor, pre-commit, flake8).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence

from torchmemlint.config import CommandLine, Configuration
from torchmemlint.discover import python_files_below
from torchmemlint.screen import imported_names, mentions, torch_related
from torchmemlint.workers import MAX_BYTES, Scanned

MAX_FILES = 300
MAX_LISTED = 3000
MAX_SECONDS = 1.0
"""Bounds of the search around files named by hand: files that are parsed, files that are opened, time in all."""

_SAY_LITTLE = frozenset({"forward", "main", "run", "get", "update", "step", "build", "setup", "close", "reset", "load", "save"})
"""Names of functions that too many classes have to look for files by them alone."""


def stem(path: str) -> bytes:
    """What an import calls the module at ``path`` last: the file's name, or the folder's for an ``__init__.py``."""
    folder, _, name = path.rpartition("/")
    return (folder.rpartition("/")[2] if name == "__init__.py" else name.removesuffix(".py")).encode()


def connected(scanned: Iterable[Scanned]) -> list[str]:
    """Of the files without a word of torch, those that a torch-related file imports, or that import one; through the
    ``__init__.py`` files of packages, which only pass names on."""
    scanned = list(scanned)
    related = [one for one in scanned if one.facts is not None]
    waiting = {one.path: one for one in scanned if one.facts is None and one.failed is None and not one.skipped}
    chosen: list[str] = []
    while related and waiting:
        stems = frozenset(stem(one.path) for one in related)
        taken = frozenset[bytes]().union(*(one.imports for one in related))
        found = [one for one in waiting.values() if stem(one.path) in taken or not stems.isdisjoint(one.imports)]
        for one in found:
            del waiting[one.path]
        chosen += [one.path for one in found]
        related = [one for one in found if one.path.endswith("__init__.py")]
    return sorted(chosen)


def surroundings(scanned: Sequence[Scanned]) -> tuple[tuple[str, ...], bool]:
    """Files of the project around some others that import them, are imported by them, or name their functions; and whether
    the search saw all that it wanted to see."""
    candidates = [one for one in scanned if one.candidate and one.facts is not None]
    deadline = time.monotonic() + MAX_SECONDS
    named = {os.path.abspath(one.path) for one in scanned}
    absolute = any(os.path.isabs(one.path) for one in scanned)
    taken = frozenset[bytes]().union(*(one.imports for one in candidates))
    stems = frozenset(stem(one.path) for one in candidates)
    wanted = {name for one in candidates if one.facts for name in _function_names(one)}
    calls = mentions(wanted) if wanted else None
    ranked: list[tuple[int, int, str]] = []
    for listed, real in enumerate(_files_around(candidates, named)):
        if listed == MAX_LISTED or time.monotonic() > deadline:
            return _first(ranked, absolute, False)
        rank = _rank(real, taken, stems, calls)
        if rank is not None:
            ranked.append((rank, listed, real))
    return _first(ranked, absolute, len(ranked) <= MAX_FILES)


def _first(ranked: list[tuple[int, int, str]], absolute: bool, complete: bool) -> tuple[tuple[str, ...], bool]:
    paths = [real for _, _, real in sorted(ranked)[:MAX_FILES]]
    # Named as the files that were given are, so that packages keep their shape.
    shown = paths if absolute else [os.path.relpath(path) for path in paths]
    return tuple(sorted(path.replace(os.sep, "/") for path in shown)), complete


def _function_names(one: Scanned) -> Iterator[str]:
    assert one.facts is not None
    for function in one.facts.functions:
        name = function.qualname.rpartition(".")[2]
        if name.isascii() and name.isidentifier() and not name.startswith("__") and name not in _SAY_LITTLE:
            yield name


def _rank(real: str, taken: frozenset[bytes], stems: frozenset[bytes], calls: re.Pattern[bytes] | None) -> int | None:
    """0 for a file that the given ones import, 1 for one that imports them, 2 for one that names a function of theirs."""
    if stem(real) in taken:
        return 0
    try:
        with open(real, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    if len(data) > MAX_BYTES:
        return None
    if any(word in data for word in stems) and not stems.isdisjoint(imported_names(data)):
        return 1
    return 2 if calls is not None and torch_related(data) and calls.search(data) else None


def _files_around(candidates: Sequence[Scanned], named: set[str]) -> Iterator[str]:
    """Absolute paths of the other Python files of the projects that the candidates stand in; each file's own package first."""
    seen = set(named)
    # What is around is looked at, not checked: no configuration decides it, only .gitignore and the usual exclusions.
    configuration = Configuration(CommandLine(isolated=True))
    tops: dict[str, bool] = {}
    for one in candidates:
        package, root = project_of(one.path)
        tops.setdefault(package, True)
        if root is not None:
            tops.setdefault(root, True)
        elif not os.path.isfile(os.path.join(package, "__init__.py")):
            tops[package] = False
    for top, deep in tops.items():
        if deep:
            found: Iterable[str] = (file.path for file in python_files_below(top, configuration))
        else:
            found = sorted(os.path.join(top, name) for name in os.listdir(top) if name.endswith(".py"))
        for path in found:
            if path not in seen:
                seen.add(path)
                yield path


def project_of(path: str) -> tuple[str, str | None]:
    """The top package of a file (its folder when it is in none), and the nearest folder above with a pyproject.toml or
    ``.git``, None when there is none."""
    package = os.path.dirname(os.path.abspath(path))
    while os.path.isfile(os.path.join(os.path.dirname(package), "__init__.py")):
        package = os.path.dirname(package)
    folder = os.path.dirname(os.path.abspath(path))
    while not any(os.path.exists(os.path.join(folder, mark)) for mark in ("pyproject.toml", ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return package, None
        folder = parent
    return package, folder
