"""``torchmemlint run``: arguments → the user's program, with the measuring in it."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from torchmemlint.errors import UsageError

FORMATS = ("full", "json", "sarif", "github")
PYTHON = re.compile(r"^(python|pypy)[\d.]*(\.exe)?$")
ROOT = str(Path(__file__).resolve().parent.parent.parent)


def parser() -> argparse.ArgumentParser:
    """The arguments of ``run``."""
    result = argparse.ArgumentParser(
        "torchmemlint run",
        usage="torchmemlint run [options] [python] SCRIPT [ARGS ...]\n       torchmemlint run [options] [python] -m MODULE [ARGS ...]",
        description="Run your own program unchanged, and report what grows in it from step to step, who keeps it, and at which line.",
        epilog="The exit status is the program's own. With --fail-on-growth it is 1 where it was 0 and something grows; 2: the command line "
        "is wrong. The report is printed on standard error at the end, also after Ctrl-C or an exception.",
        allow_abbrev=False,
    )
    result.add_argument("--output-format", choices=FORMATS, default="full", help="format of the report (default: full)")
    result.add_argument("--output-file", metavar="FILE", help="write the report there, not to standard error")
    result.add_argument("--steps", type=int, metavar="N", help="end the program after N iterations of a loop")
    result.add_argument("--live", action="store_true", help="also print each finding when it is found")
    result.add_argument("--fail-on-growth", action="store_true", help="exit with status 1 if something grows")
    result.add_argument(
        "--check", action="append", metavar="PATH", help="check these files first, and measure at each flagged line, too"
    )
    result.add_argument("-m", dest="module", metavar="MODULE", help="run a module, as `python -m` does")
    result.add_argument("program", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the program and its arguments")
    return result


def main(argv: Sequence[str]) -> int:
    """Become the program. Raises UsageError for a command line without one."""
    own, program = split(argv)
    arguments = parser().parse_args(own)
    if arguments.steps is not None and arguments.steps < 1:
        raise UsageError("--steps must be 1 or more")
    python, program = _taken_apart(program)
    if not program or program == ["-m"]:
        raise UsageError("run needs a program: torchmemlint run train.py")
    if program[0].startswith("-") and program[0] != "-m":
        raise UsageError(f"{program[0]!r} is not a program: torchmemlint run [options] train.py")
    options = {
        "format": arguments.output_format,
        "file": os.path.abspath(arguments.output_file) if arguments.output_file else None,
        "steps": arguments.steps,
        "live": arguments.live,
        "fail": arguments.fail_on_growth,
        "python": sys.executable,
        "root": ROOT,
        "folder": os.getcwd(),
    }
    if arguments.check:
        from torchmemlint import check_paths
        from torchmemlint.growth.flagged import written

        options["flagged"] = written(check_paths(arguments.check))
    starter = str(Path(__file__).parent / "worker" / "start.py")
    command = [*python, starter, json.dumps(options), *program]
    sys.stdout.flush()
    if os.name == "posix":
        os.execvp(command[0], command)
    return subprocess.call(command)


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of ``run``, and the program with its arguments."""
    valued = {"--output-format", "--output-file", "--steps", "--check"}
    given = list(argv)
    index = 0
    while index < len(given):
        word = given[index]
        if word == "--":
            return given[:index], given[index + 1 :]
        if word == "-m" or not word.startswith("-"):
            return given[:index], given[index:]
        index += 2 if word in valued else 1
    return given, []


def _taken_apart(program: list[str]) -> tuple[list[str], list[str]]:
    """The interpreter with its options, and the program: ``python -u train.py`` names another than ours."""
    if (
        not program
        or not PYTHON.match(os.path.basename(program[0]))
        or (os.path.exists(program[0]) and program[0].endswith(".py"))
    ):
        return [sys.executable, *_own_flags()], program
    index = 1
    while index < len(program) and program[index].startswith("-") and program[index] != "-m":
        if program[index] in {"-c", "-"}:
            raise UsageError("run needs a script or a module: text given with -c is in no file")
        index += 2 if program[index] in ("-X", "-W") else 1
    return program[:index], program[index:]


def _own_flags() -> list[str]:
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]
