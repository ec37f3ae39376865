"""Arguments → one call → exit status.

    0  nothing to report      1  findings (at least ``--fail-on``), or a file that cannot be parsed
    2  the run itself went wrong: a path, a setting, an option, or torchmemlint

``torchmemlint PATH…`` is ``torchmemlint check PATH…``, for ever: the first argument that is no option is a command only when it
is exactly the name of one (``./rule`` is a path).
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from torchmemlint import __version__
from torchmemlint.commands.arguments import named_like_a_command, refuse_command, refuse_file_names
from torchmemlint.errors import Stopped, TorchmemlintError, UsageError
from torchmemlint.files.streams import Forgiving

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any, NoReturn

COMMANDS = ("check", "clean", "merge", "rule", "trace", "oom", "run", "confirm", "budget", "server", "completion")

VALUED = frozenset(
    (
        *("--select", "--extend-select", "--ignore", "--per-file-ignores", "--exclude", "--extend-exclude"),
        *(
            "--output-format",
            "--output-file",
            "--min-confidence",
            "--sort",
            "--fail-on",
            "--config",
            "--stdin-filename",
            "--fixable",
            "--unfixable",
            "--extend-safe-fixes",
            "--extend-unsafe-fixes",
            "--color",
            "--cache-dir",
        ),
        *("-j", "--jobs", "--shard", "--baseline", "--since", "--confirmed"),
    )
)
"""Options of ``check`` that take a value, which must not be mistaken for a command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status; only ``--help`` and wrong usage raise SystemExit, as argparse does."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        command, rest = split_command(arguments)
        try:
            refuse_file_names(arguments)
            refuse_command(command)
            if note := named_like_a_command(command, rest, VALUED):
                print(f"torchmemlint: note: {note}", file=sys.stderr)
        except UsageError as error:
            print(f"torchmemlint: error: {error}", file=sys.stderr)
            return 2
        if arguments in (["--version"], ["-V"]):
            print(f"torchmemlint {__version__}", flush=True)
            return 0
        return _dispatch(command, rest)
    except KeyboardInterrupt as stopped:
        return _stopped(stopped)
    except BrokenPipeError:
        _close_stdout()
        return 2
    except OSError as error:
        return _failed(error)


def program() -> NoReturn:
    """The program: ``main``, and an end without taking apart what it worked with (as mypy ends): the memory goes back as a
    whole. What must be done at the end of a process is done, and what was printed is out."""
    try:
        _open_streams()
        _stop_by_signals()
        try:
            status = main()
        except SystemExit as end:  # argparse printed help or an error
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        try:
            if not sys.stdout.closed:  # the language server closes its output
                sys.stdout.flush()
        except BrokenPipeError:
            _close_stdout()
            status = 2
        except OSError as error:
            status = _failed(error)
        sys.stderr.flush()
        atexit._run_exitfuncs()
    except KeyboardInterrupt as stopped:
        status = _stopped(stopped)
    os._exit(status)


def _stop_by_signals() -> None:
    """What ends a program by default (a cancelled job of CI, a terminal that closes) ends this one as Ctrl-C does: nothing that it
    was about to write stays half-written."""

    def stop(number: int, _: object) -> NoReturn:
        raise Stopped(number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)


def _stopped(stopped: KeyboardInterrupt) -> int:
    return 128 + (stopped.number if isinstance(stopped, Stopped) else 2)


def _open_streams() -> None:
    """A standard stream that was closed (``>&-``) is there again, so that no file takes its number: nothing can be written to
    standard output, and nobody reads standard error. Nor does an error where there is no space for messages end the run."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    sys.stderr = Forgiving(sys.stderr.buffer, sys.stderr.encoding, "backslashreplace", line_buffering=True)


def _failed(error: OSError) -> int:
    """The exit status where the system refused something, in one line."""
    words = error.strerror or str(error)
    if error.filename is not None:
        words = f"{os.fsdecode(error.filename)}: {words}"
    elif error.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EBADF, errno.EDQUOT):
        _close_stdout()
        words = f"standard output: {words}"
    elif error.errno == errno.ENOENT and not _has_folder():
        words = "the current folder is gone"
    print(f"torchmemlint: error: {words}", file=sys.stderr)
    return 2


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def split_command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command, and the arguments without it."""
    skip = False
    for index, argument in enumerate(arguments):
        if skip:
            skip = False
        elif argument == "--":
            break
        elif argument.startswith("-") and argument != "-":
            skip = argument in VALUED
        elif argument in COMMANDS:
            return argument, [*arguments[:index], *arguments[index + 1 :]]
        else:
            break
    return "check", list(arguments)


def with_optional_values(arguments: Sequence[str]) -> list[str]:
    """Options whose value may be left out take it only after ``=``: ``--add-ignore src`` is about the folder ``src``."""
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    return [f"{word}=" if place < end and word in ("--add-ignore", "--add-noqa") else word for place, word in enumerate(given)]


def _dispatch(command: str, rest: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character must not end the run
            stream.reconfigure(errors="backslashreplace")
    try:
        if command == "rule":
            from torchmemlint.commands import rule

            return rule.run(rule_parser().parse_args(rest))
        if command == "merge":
            from torchmemlint.commands import merge

            return merge.run(merge_parser().parse_args(rest))
        if command == "clean":
            from torchmemlint.commands import clean

            return clean.run(clean_parser().parse_args(rest))
        if command == "trace":
            from torchmemlint.commands import trace

            return trace.run(trace_parser().parse_args(rest))
        if command == "oom":
            from torchmemlint.oom import command as oom

            return oom.main(rest)
        if command == "run":
            from torchmemlint.growth import command as growth

            return growth.main(rest)
        if command == "confirm":
            from torchmemlint.confirm import command as confirm

            return confirm.main(rest)
        if command == "budget":
            from torchmemlint.budget import command as budget

            return budget.main(rest)
        if command == "completion":
            from torchmemlint.commands import completion

            print(completion.script(completion_parser().parse_args(rest).shell, parsers()).rstrip())
            return 0
        if command == "server":
            from torchmemlint.lsp import command as server

            return server.main(rest)
        from torchmemlint.commands import check
        from torchmemlint.commands.arguments import with_paths

        return check.run(check_parser().parse_args(with_optional_values(with_paths(rest, VALUED))))
    except TorchmemlintError as error:
        from torchmemlint.files.quoting import printable

        print(f"torchmemlint: error: {printable(str(error))}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, OSError):
        raise
    except Exception:
        import traceback

        from torchmemlint.files.quoting import printable_lines

        sys.stderr.write(printable_lines(traceback.format_exc()))
        print("torchmemlint: internal error: please report it with the traceback above", file=sys.stderr)
        return 2


def _close_stdout() -> None:
    """The reader of our output has gone (``| head``), or there is no space for it; what Python still holds back must not complain at
    exit."""
    with suppress(OSError):  # a stream of another kind, which a program put there that calls us
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    import argparse

    class Parser(argparse.ArgumentParser):
        def _print_message(self, message: str, file: Any = None) -> None:
            """As argparse does it, but where there is no space for the help that is an error."""
            (file or sys.stderr).write(message)

        def error(self, message: str) -> NoReturn:
            """As argparse does it, with the option that may have been meant."""
            from difflib import get_close_matches

            unknown = message.partition("unrecognized arguments: ")[2].split(" ")[0].partition("=")[0]
            near = get_close_matches(unknown, self._option_string_actions, 1) if unknown.startswith("-") else []
            super().error(f"{message}; did you mean {near[0]}?" if near else message)

    class Formatter(argparse.RawDescriptionHelpFormatter):
        """Breaks lines between words, not inside of ``.torchmemlint-baseline.json``."""

        def _split_lines(self, text: str, width: int) -> list[str]:
            from textwrap import wrap

            return wrap(" ".join(text.split()), width, break_on_hyphens=False)

    parser = Parser(f"torchmemlint {command}", description=description, allow_abbrev=False, formatter_class=Formatter)
    parser.add_argument("-V", "--version", action="version", version=f"torchmemlint {__version__}")
    return parser


HELP = """\
commands:
  torchmemlint rule CODE         explain a rule: what it finds, what it costs, how to fix it
  torchmemlint trace FILE:LINE   show what the analysis knows at a line, and why each rule did or did not report
  torchmemlint confirm [PATH]    run the code of a finding and its fix, and measure what grows (needs torch)
  torchmemlint run SCRIPT        run your own program, and report what grows in it, who keeps it, and where (needs torch)
  torchmemlint budget FILE       estimate what a training step needs on a GPU, without one (experimental, needs torch)
  torchmemlint oom LOG           explain the out-of-memory error in a log
  torchmemlint server            start the language server (needs pygls)
  torchmemlint completion SHELL  print a completion script for bash, zsh, fish or PowerShell
  torchmemlint clean             remove the cache
  torchmemlint merge JSON ...    merge the reports of several --shard runs
  Each has --help. To check a file or folder with the name of a command, write ./rule.

examples:
  torchmemlint                                   check the current folder
  torchmemlint --fix src                         apply safe fixes
  torchmemlint --diff --unsafe-fixes train.py    show all fixes, change nothing
  torchmemlint --select TML2 --statistics src    count the findings of some rules
  torchmemlint --output-file report.sarif src    print findings, and write a report
  torchmemlint --write-baseline                  accept today's findings; report only new ones
  torchmemlint --since origin/main               report only changed lines
  torchmemlint --watch src                       check again at every change
  torchmemlint -- *.py                           treat every word as a path, even --fix.py

exit status:
  0  no findings
  1  findings of at least --fail-on, or a file that cannot be parsed
  2  the run failed: a path, a setting, an option, or an internal error

environment:
  TORCHMEMLINT_OUTPUT_FORMAT  default for --output-format
  TORCHMEMLINT_NO_CACHE       1 disables the cache
  TORCHMEMLINT_CACHE_DIR      default for --cache-dir
  TORCHMEMLINT_CACHE_KEY      secret for a shared cache (default: your own, made once)
  TORCHMEMLINT_EXECUTOR       run the checks elsewhere: MODULE:FACTORY or dask:tcp://host:port
  TORCHMEMLINT_DOCS_URL       base URL of the rule pages, if you publish them; links point there
  NO_COLOR, FORCE_COLOR       disable colors; use colors even in a pipe
  FORCE_HYPERLINK             1: always write hyperlinks; 0: never
"""


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command, in the order of ``COMMANDS``."""
    from torchmemlint.budget import command as budget
    from torchmemlint.confirm import command as confirm
    from torchmemlint.growth import command as growth
    from torchmemlint.lsp import command as server
    from torchmemlint.oom import command as oom

    made = {
        "check": check_parser(),
        "clean": clean_parser(),
        "merge": merge_parser(),
        "rule": rule_parser(),
        "trace": trace_parser(),
        "oom": oom.parser(),
        "run": growth.parser(),
        "confirm": confirm.parser(),
        "budget": budget.parser(),
        "server": server.parser(),
        "completion": completion_parser(),
    }
    return {name: made[name] for name in COMMANDS}


def completion_parser() -> argparse.ArgumentParser:
    from torchmemlint.commands.completion import SHELLS

    parser = _parser("completion", "Print a shell completion script.")
    parser.add_argument("shell", choices=SHELLS, help="the shell to write it for")
    return parser


def check_parser() -> argparse.ArgumentParser:
    """The arguments of ``check``; options that are settings have the setting's key as ``dest``, and None when not given."""

    from torchmemlint.findings import Severity
    from torchmemlint.reporters import FORMATS

    severities = [severity.value for severity in Severity]
    parser = _parser("[check]", "Find mistakes in PyTorch code that waste or leak GPU memory.")
    parser.usage = "torchmemlint [check] [options] [PATH ...]"
    parser.epilog = HELP
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files and folders to check (default: the current folder); - reads standard input, @FILE reads paths from a file, one per line",
    )
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--select",
        action="append",
        metavar="RULES",
        help="enable only these rules: codes, prefixes, names or ALL",
    )
    rules.add_argument("--extend-select", action="append", metavar="RULES", help="enable these rules in addition")
    rules.add_argument("--ignore", action="append", metavar="RULES", help="disable these rules")
    rules.add_argument("--ignore-noqa", action="store_true", help="report findings that comments suppress")
    rules.add_argument("--per-file-ignores", action="append", metavar="GLOB:RULES", help="disable rules in files that match")
    _switch(rules, "preview", "preview rules, whose accuracy is still being measured")
    fixes = parser.add_argument_group("fixes")
    fixes.add_argument("--fix", action="store_true", help="apply safe fixes: those that cannot change a result")
    _switch(fixes, "unsafe-fixes", "fixes that may change a result, such as an added no_grad")
    fixes.add_argument("--diff", action="store_true", help="print what --fix would change as a diff; write nothing")
    fixes.add_argument("--fix-only", action="store_true", help="like --fix, but do not report or fail on remaining findings")
    fixes.add_argument("--show-fixes", action="store_true", help="list the fixes that --fix applied")
    fixes.add_argument("--exit-non-zero-on-fix", action="store_true", help="exit with status 1 if --fix changed a file")
    fixes.add_argument("--fixable", action="append", metavar="RULES", help="fix only findings of these rules")
    fixes.add_argument("--unfixable", action="append", metavar="RULES", help="do not fix findings of these rules")
    fixes.add_argument(
        "--extend-safe-fixes", action="append", metavar="RULES", help="let --fix apply unsafe fixes of these rules, too"
    )
    fixes.add_argument(
        "--extend-unsafe-fixes", action="append", metavar="RULES", help="treat safe fixes of these rules as unsafe"
    )
    files = parser.add_argument_group("files")
    files.add_argument("--exclude", action="append", metavar="GLOBS", help="exclude these instead of the default list")
    files.add_argument("--extend-exclude", action="append", metavar="GLOBS", help="exclude these in addition")
    _switch(files, "force-exclude", "exclusions for files named on the command line")
    _switch(files, "respect-gitignore", "exclusion of files that .gitignore names (on by default)")
    files.add_argument("--stdin-filename", metavar="PATH", help="read standard input and report it under this name")
    output = parser.add_argument_group("output")
    output.add_argument("--output-format", choices=FORMATS, help="default: full, or $TORCHMEMLINT_OUTPUT_FORMAT")
    output.add_argument(
        "--output-file",
        action="append",
        default=[],
        metavar="[FORMAT=]PATH",
        help="write a report to a file as well (may be repeated)",
    )
    _printed(output, "min-confidence", "notes")
    output.add_argument(
        "--sort",
        choices=("path", "cost"),
        default="path",
        help="order of findings: by path (default), or the most costly first",
    )
    output.add_argument(
        "--statistics", action="store_true", help="print the number of findings per rule instead of the findings"
    )
    output.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colored output (default: auto, on a terminal)"
    )
    output.add_argument("--show-files", action="store_true", help="print the files that would be checked")
    output.add_argument("--show-settings", action="store_true", help="print the settings of the first file")
    output.add_argument("-q", "--quiet", action="store_true", help="print findings and errors only")
    output.add_argument("-v", "--verbose", action="store_true", help="also print which files were skipped, and why")
    adopt = parser.add_argument_group("adopting in an existing codebase")
    adopt.add_argument(
        "--baseline",
        metavar="FILE",
        help="do not report the findings in FILE (default: .torchmemlint-baseline.json, if it exists)",
    )
    adopt.add_argument(
        "--no-baseline", dest="baseline", action="store_const", const="", help="report the findings in the baseline, too"
    )
    adopt.add_argument(
        "--write-baseline", action="store_true", help="write the current findings to the baseline, and report nothing"
    )
    adopt.add_argument("--prune-baseline", action="store_true", help="remove entries from the baseline whose finding is gone")
    words = "write `# torchmemlint: ignore[CODE] REASON` for every finding"
    adopt.add_argument(
        "--add-ignore", nargs="?", const="", metavar="REASON", help=f"{words} (give it with =: --add-ignore=REASON)"
    )
    words = "write `# noqa: CODE REASON`, which flake8 reads, too"
    adopt.add_argument("--add-noqa", nargs="?", const="", metavar="REASON", help=words)
    adopt.add_argument("--since", metavar="REV", help="report only findings on lines that changed since a git revision")
    proof = parser.add_argument_group("proof")
    proof.add_argument(
        "--confirmed",
        metavar="FILE",
        help="show measurements from FILE, written by `torchmemlint confirm --output-format json`",
    )
    proof.add_argument("--only-confirmed", action="store_true", help="report only findings that --confirmed has confirmed")
    run = parser.add_argument_group("run")
    run.add_argument("--fail-on", choices=severities, help="lowest severity that makes the exit status 1 (default: warning)")
    run.add_argument("--watch", action="store_true", help="check again whenever a file changes")
    run.add_argument("--exit-zero", action="store_true", help="exit with status 0 even if there are findings")
    run.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE|KEY=VALUE",
        help="a configuration file to use, or one setting as TOML",
    )
    run.add_argument("--isolated", action="store_true", help="ignore configuration files")
    run.add_argument("--no-cache", action="store_true", help="disable the cache")
    run.add_argument(
        "--cache-dir", metavar="FOLDER", help="cache folder (default: in your cache folder, or $TORCHMEMLINT_CACHE_DIR)"
    )
    run.add_argument(
        "-j", "--jobs", type=_jobs, metavar="N", help="number of processes (default: chosen by the amount of work)"
    )
    run.add_argument("--profile", action="store_true", help="print the time per stage and rule (one process, no cache)")
    run.add_argument("--shard", type=_shard, metavar="I/N", help="check part I of N; `torchmemlint merge` combines the reports")
    return parser


def _printed(group: argparse._ActionsContainer, min_confidence: str, notes: str) -> None:
    """The options that say which findings are printed, under these names among the parsed arguments."""
    from torchmemlint.findings import Confidence

    group.add_argument(
        "--min-confidence",
        dest=min_confidence,
        choices=[confidence.value for confidence in Confidence],
        help="print findings of at least this confidence (default: medium)",
    )
    group.add_argument(
        "--notes",
        action="store_true",
        default=None,
        dest=notes,
        help="print notes, too: findings with a small or one-time cost",
    )
    group.add_argument("--no-notes", action="store_false", default=None, dest=notes, help="do not print notes (default)")


def _switch(group: argparse._ArgumentGroup, key: str, words: str) -> None:
    group.add_argument(f"--{key}", action="store_true", default=None, dest=key, help=f"enable {words}")
    group.add_argument(
        f"--no-{key}", action="store_false", default=None, dest=key, help=f"disable {words.split(',')[0].split(' (')[0]}"
    )


def _jobs(text: str) -> int:
    import argparse

    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes")
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    import argparse

    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} must be I/N, with I from 1 to N")
    return int(number), int(count)


def merge_parser() -> argparse.ArgumentParser:
    from torchmemlint.findings import Severity
    from torchmemlint.reporters import FORMATS

    parser = _parser("merge", "Merge the JSON reports of several runs.")
    parser.add_argument("reports", nargs="+", metavar="REPORT.json", help="report written by --output-format json")
    parser.add_argument(
        "-o",
        "--output-file",
        action="append",
        default=[],
        metavar="[FORMAT=]PATH",
        help="write a report to a file (may be repeated)",
    )
    parser.add_argument(
        "--output-format", choices=FORMATS, help="format on standard output (default: full, or nothing with -o)"
    )
    severities = [severity.value for severity in Severity]
    parser.add_argument(
        "--fail-on",
        choices=severities,
        default="warning",
        help="lowest severity that makes the exit status 1 (default: warning)",
    )
    _printed(parser, "min_confidence", "notes")
    parser.add_argument("--exit-zero", action="store_true", help="exit with status 0 even if there are findings")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colored output (default: auto, on a terminal)"
    )
    return parser


def rule_parser() -> argparse.ArgumentParser:
    parser = _parser("rule", "Explain a rule: what it finds, what it costs, how to fix it, when to ignore it.")
    parser.add_argument("rule", nargs="?", metavar="RULE", help="a code or a name")
    parser.add_argument("--all", action="store_true", help="every rule")
    parser.add_argument("--output-format", choices=("text", "markdown", "json"), default="text", help="default: text")
    return parser


def clean_parser() -> argparse.ArgumentParser:
    parser = _parser("clean", "Remove the cache.")
    parser.add_argument(
        "--cache-dir", metavar="FOLDER", help="cache folder (default: in your cache folder, or $TORCHMEMLINT_CACHE_DIR)"
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE|KEY=VALUE",
        help="a configuration file to use, or one setting as TOML",
    )
    parser.add_argument("--isolated", action="store_true", help="ignore configuration files")
    return parser


def trace_parser() -> argparse.ArgumentParser:
    parser = _parser("trace", "Show what the analysis knows at a line, and why each rule did or did not report it.")
    parser.add_argument("place", metavar="FILE:LINE", help="a Python file, and a line in it")
    parser.add_argument(
        "checked",
        nargs="*",
        metavar="PATH",
        help="the paths of the check to explain (default: a check of FILE alone, which may not see all callers)",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE|KEY=VALUE",
        help="a configuration file to use, or one setting as TOML",
    )
    parser.add_argument("--isolated", action="store_true", help="ignore configuration files")
    return parser
