"""The arguments of ``torchmemlint server``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec

from torchmemlint.errors import UsageError


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "torchmemlint server",
        description="Start a language server, which shows findings, quick fixes and rule pages in an editor. It uses standard input and output.",
        epilog="Needs pygls: pip install 'pygls>=2,<3'. docs/editors.md says how to set up editors.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--stdio", action="store_true", help="use standard input and output (the default, and the only transport)"
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """Serves until the editor ends it. Raises UsageError where pygls is missing."""
    parser().parse_args(arguments)
    if find_spec("pygls") is None:
        raise UsageError("the server needs pygls: pip install 'pygls>=2,<3'")
    from torchmemlint.lsp.server import serve

    return serve()
