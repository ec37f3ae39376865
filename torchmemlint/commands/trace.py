"""``torchmemlint trace FILE:LINE``: what the analysis knows at a line."""

from __future__ import annotations

import argparse
import os

from torchmemlint.errors import SourceError, UsageError
from torchmemlint.files.quoting import printable, quoted
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.source import is_notebook, normal


def run(arguments: argparse.Namespace) -> int:
    path, colon, line = arguments.place.rpartition(":")
    if not colon or not line.isdecimal() or int(line) < 1:
        raise UsageError(f"`{quoted(arguments.place)}` is not FILE:LINE, as in `torchmemlint trace train.py:42`")
    if not os.path.isfile(path):
        raise UsageError(f"{quoted(path)}: no such file")
    if is_notebook(path):
        raise UsageError(f"{quoted(path)}: notebooks cannot be traced; convert it with `jupyter nbconvert --to script`")
    from torchmemlint.commands.trace_report import trace
    from torchmemlint.incremental.cache import cache_for
    from torchmemlint.run import project_around

    configuration = Configuration(CommandLine(config=tuple(arguments.config), isolated=arguments.isolated))
    settings = configuration.for_file(path)
    path = normal(path).replace(os.sep, "/")
    try:
        around = project_around(path, settings, configuration, arguments.checked, cache_for(configuration))
        shown = trace(around.project, around.path, int(line), settings).rstrip("\n")
    except SourceError as error:
        raise UsageError(f"{quoted(path)}:{error.row}:{error.column}: cannot parse: {error}") from None
    shown = "\n".join([shown, *(f"note: {note}" for note in around.notes)])
    print("\n".join(map(printable, shown.split("\n"))))
    return 0
