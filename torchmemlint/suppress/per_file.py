"""``per-file-ignores``: which codes a glob switches off for a path."""

from __future__ import annotations

import os
from functools import lru_cache

from torchmemlint.project.globs import Globs, pieces_of
from torchmemlint.project.settings import Settings


def ignored_prefixes(settings: Settings, path: str) -> tuple[str, ...]:
    """Prefixes of the codes that ``settings`` ignores for a path, absolute or relative to the current folder."""
    if not settings.per_file_ignores:
        return ()
    root = settings.root or os.getcwd()
    below_root = os.path.relpath(os.path.abspath(path), root).replace(os.sep, "/")
    return tuple(prefix for glob, prefixes in settings.per_file_ignores if _matches(glob, below_root) for prefix in prefixes)


def _matches(glob: str, path: str) -> bool:
    """Globs read as in ``exclude``: without a slash they are matched against names, else against the path from the root;
    one that matches a folder covers all below it. ``!`` in front turns the answer round, as ruff has it.
    """
    wanted = not glob.startswith("!")
    glob = glob.removeprefix("!").removeprefix("./").rstrip("/")
    parts = path.split("/")
    if "/" in glob:
        candidates = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    else:
        candidates = parts
    pattern = _compiled(glob.removeprefix("/"))
    return any(pattern.match(candidate) for candidate in candidates) is wanted


@lru_cache(maxsize=256)
def _compiled(glob: str) -> Globs:
    return Globs([pieces_of(glob)])
