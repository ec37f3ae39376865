"""Source text: files, rows and columns, comments for torchmemlint."""

import os

NOTEBOOK = ".ipynb"


def is_notebook(path: str) -> bool:
    """Whether a path names a Jupyter notebook."""
    return path.lower().endswith(NOTEBOOK)


def normal(path: str) -> str:
    """A path without detours. Two slashes at its beginning, which POSIX lets a system give a meaning of its own, are one: no
    system of today does, and a folder has one name then."""
    short = os.path.normpath(path)
    return short[1:] if os.sep == "/" and short.startswith("//") else short
