"""The folder that a stranger may have filled: what is written on behalf of the user must not leave it by a link that lies in it."""

from __future__ import annotations

import os


def repository_root(inside: str = "") -> str:
    """The folder around the current one (or ``inside``) that has ``.git``, else that one: other programs count paths from
    there."""
    here = os.path.abspath(inside or os.getcwd())
    return checkout_of(here) or here


def checkout_of(folder: str) -> str | None:
    """The folder with ``.git`` at or above an absolute one, None where there is none."""
    while not os.path.exists(os.path.join(folder, ".git")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return None
    return folder


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is in a folder as they are written, links aside."""
    path, folder = os.path.abspath(path), os.path.abspath(folder)
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def leads_out(path: str, root: str | None = None) -> bool:
    """Whether a path reads as if it were in the checkout (``root``, by default the repository around the current folder) and,
    links followed, is outside it or in what git keeps there. A path that the user named elsewhere leads where it leads."""
    root = repository_root() if root is None else root
    if not is_inside(path, root):
        return False
    real, top = os.path.realpath(path), os.path.realpath(root)
    return not is_inside(real, top) or ".git" in os.path.relpath(real, top).split(os.sep)


def has_link(path: str, root: str | None = None) -> bool:
    """Whether a path in the checkout is, or goes through, a link that lies in the checkout."""
    root = os.path.abspath(repository_root() if root is None else root)
    if not is_inside(path, root):
        return False
    path = os.path.abspath(path)
    while path != root:
        if os.path.islink(path):
            return True
        path = os.path.dirname(path)
    return False
