"""The project around a file: callers of the flagged function, modules that it imports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from torchmemlint.errors import SourceError
from torchmemlint.source import is_notebook

if TYPE_CHECKING:
    from torchmemlint.index.project import Project
    from torchmemlint.source.notebook import CellRows

MAX_FILES = 1500
MAX_SETTINGS = 60
_SKIPPED = frozenset({"node_modules", "__pycache__", "build", "dist", "venv", ".venv", "site-packages"})


def project_of(path: str) -> Project | None:
    """The project of all modules in the file's outermost package (or, outside a package, in its folder); None for an
    unreadable file."""
    return _project(_top(path), path if is_notebook(path) else "")


@lru_cache(maxsize=64)
def cells_of(path: str) -> CellRows | None:
    """Where the cells of a notebook begin in the module that they make; None where it cannot be read."""
    from torchmemlint.source.file import read_source

    try:
        return read_source(Path(path), path).cells
    except (SourceError, OSError):
        return None


def _top(path: str) -> str:
    folder = os.path.dirname(path) or "."
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, below = os.path.dirname(folder) or ".", folder
        if folder in (".", below):
            break
    return folder


def files_around(path: str) -> Iterator[str]:
    """The files of the outermost folder that holds the file and, like every folder between, Python files of its own: wider than
    the project where a package lacks an ``__init__.py``."""
    yield from islice(_files(_widest(path)), MAX_FILES)


def settings_around(path: str) -> tuple[str, ...]:
    """The YAML files of the same folder: of no more than there are in a repository that configures its own experiments."""
    return _settings(_widest(path))


@lru_cache(maxsize=8)
def _settings(top: str) -> tuple[str, ...]:
    return tuple(islice(_files(top, (".yaml", ".yml")), MAX_SETTINGS))


def _widest(path: str) -> str:
    top = _top(path)
    while True:
        above = os.path.dirname(os.path.abspath(top))
        if above == os.path.abspath(top) or not any(name.endswith(".py") for name in os.listdir(above)):
            return top
        top = above


def _files(top: str, endings: str | tuple[str, ...] = ".py") -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.normpath(os.path.join(folder, name)).replace(os.sep, "/")


@lru_cache(maxsize=8)
def _project(top: str, notebook: str) -> Project:
    from torchmemlint.index.module_facts import module_facts
    from torchmemlint.index.project import Project
    from torchmemlint.source.file import read_source
    from torchmemlint.source.tolerant import readable

    facts = []
    for path in [*([notebook] if notebook else []), *_files(top)]:
        try:
            facts.append(module_facts(path, readable(read_source(Path(path), path).text)))
        except (SourceError, OSError, RecursionError):
            continue
        if len(facts) >= MAX_FILES:
            break
    return Project.build(facts)
