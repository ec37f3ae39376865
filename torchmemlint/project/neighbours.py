"""Which other files say something about those that are checked: their callers, their callees.

``connected`` chooses among the files of a run that are not torch-related themselves; ``surroundings`` looks for files around
those that the user named one by one (an editor, pre-commit, flake8).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from torchmemlint.files.reading import MAX_BYTES, read_beginning
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.discover import python_files_below
from torchmemlint.screen import called_names, imported_names, torch_related

if TYPE_CHECKING:
    from torchmemlint.project.results import Scanned
    from torchmemlint.source.file import SourceFile

    Scan = Callable[[str, SourceFile | None], Scanned]
    """Takes the facts of one file, or of a text that stands in for it. The facts that it gave are kept for its equals."""

MAX_FILES = 300
MAX_BYTES_READ = 2_500_000
MAX_LISTED = 3000
MAX_BYTES_LISTED = 25_000_000
"""Bounds of the search around files named by hand: files that are parsed and their size, files that are opened and their size. About
a second of CPU time; no clock is asked, so that the answer is the same on every machine, and whatever facts a cache has."""
MAX_SECONDS_LISTING = 5.0
"""CPU time for folders with hardly a Python file in them."""

_SAY_LITTLE = frozenset({"forward", "main", "run", "get", "update", "step", "build", "setup", "close", "reset", "load", "save"})
"""Names of functions that too many classes have to look for files by them alone."""


def stem(path: str) -> bytes:
    """What an import calls the module at ``path`` last: the file's name, or the folder's for an ``__init__.py``."""
    folder, _, name = path.rpartition("/")
    return (folder.rpartition("/")[2] if name == "__init__.py" else name.removesuffix(".py")).encode(errors="surrogateescape")


def connected(scanned: Iterable[Scanned]) -> list[str]:
    """Of the files without a word of torch, those that a torch-related file imports, or that import one; through the
    ``__init__.py`` files of packages, which only pass names on. Those of the packages that torch-related files stand in are
    always among them: they say where a package begins."""
    scanned = list(scanned)
    related = [one for one in scanned if one.facts is not None]
    waiting = {one.path: one for one in scanned if one.facts is None and one.failed is None and not one.skipped}
    packages = [waiting.pop(path) for path in _packages(one.path for one in related) if path in waiting]
    related += packages
    chosen = [one.path for one in packages]
    while related and waiting:
        stems = frozenset(stem(one.path) for one in related)
        taken = frozenset[bytes]().union(*(one.imports for one in related))
        found = [one for one in waiting.values() if stem(one.path) in taken or not stems.isdisjoint(one.imports)]
        for one in found:
            del waiting[one.path]
        chosen += [one.path for one in found]
        related = [one for one in found if one.path.endswith("__init__.py")]
    return sorted(chosen)


def _packages(paths: Iterable[str]) -> list[str]:
    """The ``__init__.py`` files, there or not, in the folders of some files and in all above these."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return [f"{folder}/__init__.py" for folder in sorted(folders)]


@dataclass(frozen=True, slots=True)
class _Neighbour:
    """A file around those that were named: what its imports mention, and in a torch-related one, the names that it calls."""

    path: str
    stem: bytes
    imports: frozenset[bytes]
    calls: frozenset[bytes]
    size: int
    related: bool


class Around(NamedTuple):
    """Files with facts around some others; whether the search saw all that it wanted to see, and how many torch-related files around
    it did not read."""

    read: tuple[Scanned, ...]
    complete: bool
    unread: int


def surroundings(scanned: Sequence[Scanned], scan: Scan, texts: Mapping[str, SourceFile] | None = None) -> Around:
    """Files around some others that import them, are imported by them, or call a function of that name.

    What is around is read once in the life of the process: enough for a command, and for flake8, which asks for each file; a
    server calls ``forget``. ``texts`` stand in for files, by path.
    """
    candidates = [one for one in scanned if one.candidate and one.facts is not None]
    tops = _tops(candidates)
    neighbours, complete = _neighbours(tops)
    buffers = {os.path.abspath(path): source for path, source in (texts or {}).items() if source.notebook is None}
    neighbours = _with_buffers(neighbours, tops, buffers)
    named = {os.path.abspath(one.path) for one in scanned}
    taken = frozenset[bytes]().union(*(one.imports for one in candidates))
    stems = frozenset(stem(one.path) for one in candidates)
    wanted = frozenset(name.encode() for one in candidates for name in _function_names(one))
    ranked = []
    for place, one in enumerate(neighbours):
        rank = 0 if one.stem in taken else 1 if stems & one.imports else 2 if wanted & one.calls else None
        if rank is not None and one.path not in named:
            ranked.append((rank, place, one.path))
    absolute = any(os.path.isabs(one.path) for one in scanned)
    around: list[Scanned] = []
    sizes = {one.path: one.size for one in neighbours}
    left = {one.path for one in neighbours if one.related} - named
    remaining = MAX_BYTES_READ
    for path in _with_packages([path for _, _, path in sorted(ranked)[:MAX_FILES]], neighbours, named):
        remaining -= sizes[path]
        if remaining < 0:
            return Around(tuple(around), False, len(left))
        left.discard(path)
        # Named as the files that were given are, so that packages keep their shape.
        name = (path if absolute else os.path.relpath(path)).replace(os.sep, "/")
        found = scan(name, buffers[path]) if path in buffers else _scanned(name, scan)
        if found.facts is not None:
            around.append(found)
    return Around(tuple(around), complete and len(ranked) <= MAX_FILES, len(left))


def _with_packages(paths: Sequence[str], neighbours: Sequence[_Neighbour], named: AbstractSet[str]) -> list[str]:
    """The files, each behind the ``__init__.py`` files of the packages that it and the named ones are in: without these a
    ``torch.py`` inside a package would be taken for torch itself."""
    known = {one.path for one in neighbours if one.path.endswith(f"{os.sep}__init__.py")}
    out: dict[str, None] = {}
    for path in (*sorted(named), *paths):
        packages = []
        folder, below = os.path.dirname(path), path
        while folder != below and (package := os.path.join(folder, "__init__.py")) in known and package not in out:
            packages.append(package)
            folder, below = os.path.dirname(folder), folder
        out.update(dict.fromkeys(reversed(packages)))
        out[path] = None
    return [path for path in out if path not in named]


def forget() -> None:
    """What is around is read again: files have changed."""
    _neighbours.cache_clear()
    _scanned.cache_clear()


def _with_buffers(
    neighbours: tuple[_Neighbour, ...], tops: Iterable[tuple[str, bool]], buffers: Mapping[str, SourceFile]
) -> tuple[_Neighbour, ...]:
    """The same files with what an editor holds of some, saved or not; also of those that were never saved."""
    by_path = {one.path: one for one in neighbours}
    folders = tuple(f"{top.rstrip(os.sep)}{os.sep}" for top, _ in tops)
    for path, source in buffers.items():
        if path in by_path or path.startswith(folders):
            by_path[path] = _neighbour(path, source.code)
    return tuple(by_path.values())


def _neighbour(path: str, data: bytes) -> _Neighbour:
    related = torch_related(data)
    calls = called_names(data) if related else frozenset[bytes]()
    return _Neighbour(path, stem(path.replace(os.sep, "/")), imported_names(data), calls, len(data), related)


def _function_names(one: Scanned) -> Iterator[str]:
    assert one.facts is not None
    for function in one.facts.functions:
        name = function.qualname.rpartition(".")[2]
        if not name.startswith(("__", "<")) and name not in _SAY_LITTLE:
            yield name


@lru_cache(maxsize=MAX_FILES)
def _scanned(path: str, scan: Scan) -> Scanned:
    return scan(path, None)


@lru_cache(maxsize=16)
def _neighbours(tops: tuple[tuple[str, bool], ...]) -> tuple[tuple[_Neighbour, ...], bool]:
    """The Python files of some folders (with what is below them, or without), read as far as the bounds allow."""
    # What is around is looked at, not checked: no configuration decides it, only .gitignore and the usual exclusions.
    configuration = Configuration(CommandLine(isolated=True))
    deadline = time.thread_time() + MAX_SECONDS_LISTING
    found: dict[str, _Neighbour] = {}
    remaining = MAX_BYTES_LISTED
    for top, deep in tops:
        below = (file.path for file in python_files_below(top, configuration)) if deep else _python_files_in(top)
        for path in below:
            if path in found:
                continue
            if len(found) == MAX_LISTED or remaining < 0 or time.thread_time() > deadline:
                return tuple(found.values()), False
            try:
                data = read_beginning(path, MAX_BYTES)
            except OSError:
                continue
            remaining -= len(data)
            found[path] = _neighbour(path, data)
    return tuple(found.values()), True


def _python_files_in(folder: str) -> list[str]:
    try:
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py"))
    except OSError:  # the name of an editor's buffer may stand in no folder yet
        return []


def _tops(candidates: Sequence[Scanned]) -> tuple[tuple[str, bool], ...]:
    """The folders to search: those of the files, then their packages, then their projects; a script that is in neither only
    has the files beside it."""
    folders: dict[str, bool] = {}
    packages: dict[str, bool] = {}
    for one in candidates:
        package, project = project_of(one.path)
        folders[os.path.dirname(os.path.abspath(one.path))] = False
        if os.path.isfile(os.path.join(package, "__init__.py")):
            packages[package] = True
        if project is not None:
            packages[project] = True
    return (*folders.items(), *packages.items())


def is_of_no_project(path: str) -> bool:
    """Whether a file stands in no package, and below no folder of a project."""
    package, project = project_of(path)
    return project is None and not os.path.isfile(os.path.join(package, "__init__.py"))


def project_of(path: str) -> tuple[str, str | None]:
    """The top package of a file (its folder when it is in none), and the nearest folder above with a pyproject.toml or
    ``.git``, None when there is none."""
    package = os.path.dirname(os.path.abspath(path))
    while (parent := os.path.dirname(package)) != package and os.path.isfile(os.path.join(parent, "__init__.py")):
        package = parent
    folder = os.path.dirname(os.path.abspath(path))
    while not any(os.path.exists(os.path.join(folder, mark)) for mark in ("pyproject.toml", ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return package, None
        folder = parent
    return package, folder
