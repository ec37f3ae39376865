"""``torchmemlint clean``: deletes the cache."""

from __future__ import annotations

import argparse

from torchmemlint.errors import UsageError
from torchmemlint.files.quoting import quoted
from torchmemlint.incremental.cache import clean
from torchmemlint.incremental.location import location_for
from torchmemlint.project.config import CommandLine, Configuration


def run(arguments: argparse.Namespace) -> int:
    place = location_for(arguments.cache_dir, Configuration(CommandLine({}, tuple(arguments.config), arguments.isolated)))
    try:
        found = clean(place)
    except (OSError, ValueError) as error:
        raise UsageError(f"nothing was deleted: {error}") from None
    folder = quoted(place.folder)
    print(f"Deleted {folder}." if found else f"There is no cache in {folder}.")
    return 0
