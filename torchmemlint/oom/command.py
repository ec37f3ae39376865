"""``torchmemlint oom LOG…``: what ran out of memory, why, where to change the program.

Exit status: 0 a message was found and diagnosed, 1 no log holds one, 2 a log could not be read or the call was wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchmemlint.errors import TorchmemlintError
from torchmemlint.files.quoting import printable, quoted
from torchmemlint.files.reading import open_given, reason
from torchmemlint.oom.cases import Log, files_to_check, findings_for, read_log, with_findings, with_sources
from torchmemlint.oom.report import as_json, as_markdown, as_text

_FORMATS: dict[str, Callable[[Sequence[Log]], str]] = {"text": as_text, "json": as_json, "markdown": as_markdown}


@dataclass(frozen=True, slots=True)
class _Arguments:
    logs: tuple[str, ...]
    src: str | None
    output_format: str


def parser() -> argparse.ArgumentParser:
    """The arguments of ``oom``."""
    made = argparse.ArgumentParser(
        prog="torchmemlint oom",
        description="Explain the out-of-memory errors in a log: what ran out, the numbers that show it, and what to change.",
        epilog="Exit status: 0 diagnosed, 1 no out-of-memory error found, 2 error.",
        allow_abbrev=False,
    )
    made.add_argument("logs", nargs="+", metavar="LOG", help="a log file, or - for standard input")
    made.add_argument(
        "--src",
        metavar="FOLDER",
        help="folder with the program's source: match tracebacks with its files, and check all of them "
        "(default: the current folder, where only the files in the traceback are checked)",
    )
    made.add_argument("--output-format", choices=tuple(_FORMATS), default="text", help="default: text")
    return made


def _parse(argv: Sequence[str] | None) -> _Arguments:
    known = parser().parse_args(argv)
    return _Arguments(tuple(known.logs), known.src, known.output_format)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. argparse ends the process with status 2 for a wrong call."""
    arguments = _parse(argv)
    root = Path(arguments.src if arguments.src is not None else ".")
    if not root.is_dir():
        return _fail(f"--src: {arguments.src} is not a folder")
    logs: list[Log] = []
    status = 0
    for name in arguments.logs:
        try:
            if name == "-":
                logs.append(read_log("<stdin>", sys.stdin.buffer))
            else:
                with open_given(name) as file:
                    logs.append(read_log(name, file))
        except OSError as error:
            status = _fail(f"{quoted(name) or repr(name)}: {reason(error)}")
    logs = [with_sources(log, root) for log in logs]
    paths = files_to_check(logs)
    if paths:
        try:
            findings = findings_for([str(root)] if arguments.src is not None else paths)
            logs = [with_findings(log, findings) for log in logs]
        except TorchmemlintError as error:
            status = _fail(f"the program's files could not be checked: {error}")
    if logs:
        sys.stdout.write(_FORMATS[arguments.output_format](logs))
    return status or (0 if any(log.cases for log in logs) else 1)


def _fail(message: str) -> int:
    print(f"torchmemlint: error: {printable(message)}", file=sys.stderr)
    return 2
