"""``torchmemlint clean``: deletes the cache."""

from __future__ import annotations

import argparse

from torchmemlint.errors import UsageError
from torchmemlint.files.quoting import quoted
from torchmemlint.incremental.cache import clean, folder_for
from torchmemlint.project.config import CommandLine, Configuration


def run(arguments: argparse.Namespace) -> int:
    folder = folder_for(arguments.cache_dir, Configuration(CommandLine({}, tuple(arguments.config), arguments.isolated)))
    try:
        found = clean(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"nothing is deleted: {error}") from None
    print(f"Deleted {quoted(folder)}." if found else f"There is no cache in {quoted(folder)}.")
    return 0
