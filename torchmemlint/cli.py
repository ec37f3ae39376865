"""Arguments → one call → exit status.

    0  nothing to report      1  findings (at least ``--fail-on``), or a file that cannot be parsed
    2  the run itself went wrong: a path, a setting, an option, or torchmemlint

``torchmemlint PATH…`` is ``torchmemlint check PATH…``, for ever: the first argument that is no option is a command only when it
is exactly the name of one (``./rule`` is a path).
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from torchmemlint import __version__

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import NoReturn

COMMANDS = ("check", "clean", "merge", "rule", "trace", "oom", "confirm", "budget", "server", "completion")

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
            "--color",
            "--cache-dir",
        ),
        *("-j", "--jobs", "--shard", "--baseline", "--since", "--confirmed"),
    )
)
"""Options of ``check`` that take a value, which must not be mistaken for a command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status; only ``--help`` and wrong usage raise SystemExit, as argparse does."""
    from torchmemlint.commands.arguments import refuse_command, refuse_file_names
    from torchmemlint.errors import UsageError

    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        command, rest = split_command(arguments)
        try:
            refuse_file_names(arguments)
            refuse_command(command)
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
        except SystemExit as end:  # argparse has spoken
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        try:
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
    import signal

    from torchmemlint.errors import Stopped

    def stop(number: int, _: object) -> NoReturn:
        raise Stopped(number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)


def _stopped(stopped: KeyboardInterrupt) -> int:
    from torchmemlint.errors import Stopped

    return 128 + (stopped.number if isinstance(stopped, Stopped) else 2)


def _open_streams() -> None:
    """A standard stream that was closed (``>&-``) is there again, so that no file takes its number: nothing can be written to
    standard output, and nobody reads standard error. Nor does an error where there is no room for messages end the run."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    from torchmemlint.files.streams import Forgiving

    sys.stderr = Forgiving(sys.stderr.buffer, sys.stderr.encoding, "backslashreplace", line_buffering=True)


def _failed(error: OSError) -> int:
    """The exit status where the system refused something, which is told in one line."""
    import errno

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
    from torchmemlint.errors import TorchmemlintError

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
        if command == "confirm":
            from torchmemlint.confirm import command as confirm

            return confirm.main(rest)
        if command == "budget":
            from torchmemlint.budget import command as budget

            return budget.main(rest)
        if command == "completion":
            from torchmemlint.commands import completion

            print(completion.script(completion_parser().parse_args(rest).shell, parsers()), end="")
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
        print("torchmemlint: error: this is a mistake in torchmemlint; please report it with the lines above", file=sys.stderr)
        return 2


def _close_stdout() -> None:
    """Whoever read our output has gone (``| head``), or there is no room for it; what Python still holds back must not complain at
    exit."""
    with suppress(OSError):  # a stream of another kind, which a program put there that calls us
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(f"torchmemlint {command}", description=description, allow_abbrev=False)
    parser.add_argument("-V", "--version", action="version", version=f"torchmemlint {__version__}")
    return parser


HELP = """\
commands:
  torchmemlint rule CODE         explain a rule: what it finds, what that costs, how to repair it
  torchmemlint trace FILE:LINE   show what is believed at a line, and why a rule spoke or was silent
  torchmemlint confirm [PATH]    run a finding and its repair, and measure what grows (needs torch)
  torchmemlint budget FILE       what a training step needs on a GPU, without one (needs torch)
  torchmemlint oom LOG           explain the out-of-memory error in a log
  torchmemlint server            a language server for editors (needs pygls)
  torchmemlint completion SHELL  a completion script for bash, zsh or fish
  torchmemlint clean             remove the cache
  torchmemlint merge JSON ...    make one report of those of several --shard runs
  Each has --help. A file that is called like a command is ./rule.

examples:
  torchmemlint                                   check the current folder
  torchmemlint --fix src                         repair what is safe to repair
  torchmemlint -- *.py                           files that the shell names, whatever they are called
  torchmemlint --diff --unsafe-fixes train.py    show what could be repaired
  torchmemlint --select TML2 --statistics src    count the findings of some rules
  torchmemlint --output-file report.sarif src    report to people, and to a file
  torchmemlint --write-baseline                  from now on report only what is new
  torchmemlint --since origin/main               check what a branch changes
  torchmemlint --watch src                       check again at every change

exit status:
  0  nothing to report     1  findings (at least --fail-on), or a file that cannot be parsed
  2  the run itself went wrong: a path, a setting, an option, or torchmemlint

environment:
  TORCHMEMLINT_OUTPUT_FORMAT  the default of --output-format
  TORCHMEMLINT_NO_CACHE       1: neither read nor write the cache
  TORCHMEMLINT_CACHE_DIR      the default of --cache-dir
  TORCHMEMLINT_EXECUTOR       where to check: MODULE:FACTORY, of an Executor, or dask:tcp://host:port
  TORCHMEMLINT_DOCS_URL       address of the rules' pages, if you publish them: links lead there
  NO_COLOR, FORCE_COLOR       no colours; colours even into a pipe
  FORCE_HYPERLINK             1: hyperlinks even where the terminal is not known; 0: none
"""


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command, in the order of ``COMMANDS``."""
    from torchmemlint.budget import command as budget
    from torchmemlint.confirm import command as confirm
    from torchmemlint.lsp import command as server
    from torchmemlint.oom import command as oom

    made = {
        "check": check_parser(),
        "clean": clean_parser(),
        "merge": merge_parser(),
        "rule": rule_parser(),
        "trace": trace_parser(),
        "oom": oom.parser(),
        "confirm": confirm.parser(),
        "budget": budget.parser(),
        "server": server.parser(),
        "completion": completion_parser(),
    }
    return {name: made[name] for name in COMMANDS}


def completion_parser() -> argparse.ArgumentParser:
    from torchmemlint.commands.completion import SHELLS

    parser = _parser("completion", "Print a script that completes commands, options and rules in a shell.")
    parser.add_argument("shell", choices=SHELLS)
    return parser


def check_parser() -> argparse.ArgumentParser:
    """The arguments of ``check``; options that are settings have the setting's key as ``dest``, and None when not given."""
    import argparse

    from torchmemlint.findings import Severity
    from torchmemlint.reporters import FORMATS

    severities = [severity.value for severity in Severity]
    parser = _parser("[check]", "Find the mistakes in PyTorch code that waste or leak GPU memory.")
    parser.usage = "torchmemlint [check] [options] [PATH ...]"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = HELP
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files and folders (default: the current one); - reads stdin, @FILE has one on each line; behind -- all are paths",
    )
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--select",
        action="append",
        metavar="RULES",
        help="only these: codes, prefixes, names or ALL",
    )
    rules.add_argument("--extend-select", action="append", metavar="RULES", help="these rules too")
    rules.add_argument("--ignore", action="append", metavar="RULES", help="not these rules")
    rules.add_argument("--per-file-ignores", action="append", metavar="GLOB:RULES", help="not these rules in these files")
    _switch(rules, "preview", "rules whose findings are still being proved on real code")
    fixes = parser.add_argument_group("fixes")
    fixes.add_argument("--fix", action="store_true", help="repair what can be repaired without changing a result")
    _switch(fixes, "unsafe-fixes", "repairs that may change a result, too")
    fixes.add_argument("--diff", action="store_true", help="print what --fix would change, and change nothing")
    files = parser.add_argument_group("files")
    files.add_argument("--exclude", action="append", metavar="GLOBS", help="leave these out, instead of the usual ones")
    files.add_argument("--extend-exclude", action="append", metavar="GLOBS", help="leave these out, too")
    _switch(files, "force-exclude", "exclusions hold for files named here too")
    _switch(files, "respect-gitignore", "leave out what .gitignore does (the default)")
    files.add_argument("--stdin-filename", metavar="PATH", help="the name of what comes from standard input")
    output = parser.add_argument_group("output")
    output.add_argument("--output-format", choices=FORMATS, help="default: full, or $TORCHMEMLINT_OUTPUT_FORMAT")
    output.add_argument(
        "--output-file",
        action="append",
        default=[],
        metavar="[FORMAT=]PATH",
        help="write a report there too (as often as wanted); standard output stays as it is",
    )
    _printed(output, "min-confidence", "notes")
    output.add_argument(
        "--sort", choices=("path", "cost"), default="path", help="the order of findings; cost: the costliest first"
    )
    output.add_argument("--statistics", action="store_true", help="the number of findings of each rule instead of the findings")
    output.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    output.add_argument("--show-files", action="store_true", help="print the files that would be checked")
    output.add_argument("--show-settings", action="store_true", help="print the settings of the first file")
    output.add_argument("-q", "--quiet", action="store_true", help="findings and errors only")
    output.add_argument("-v", "--verbose", action="store_true", help="also what was left out, and why")
    adopt = parser.add_argument_group("an old code base")
    adopt.add_argument(
        "--baseline",
        metavar="FILE",
        help="do not report what FILE lists (default: .torchmemlint-baseline.json, if there is one)",
    )
    adopt.add_argument("--no-baseline", dest="baseline", action="store_const", const="", help="report that, too")
    adopt.add_argument(
        "--write-baseline", action="store_true", help="list in the baseline what is found now, and report nothing"
    )
    adopt.add_argument("--prune-baseline", action="store_true", help="take out of the baseline what is no longer found")
    words = "write `# torchmemlint: ignore[CODE] REASON` for every finding"
    adopt.add_argument("--add-ignore", nargs="?", const="", metavar="REASON", help=f"{words} (with =, as --add-ignore=WHY)")
    words = "write `# noqa: CODE REASON`, which flake8 reads, too"
    adopt.add_argument("--add-noqa", nargs="?", const="", metavar="REASON", help=words)
    adopt.add_argument("--since", metavar="REV", help="only findings on lines that changed since a git revision")
    proof = parser.add_argument_group("proof")
    proof.add_argument(
        "--confirmed", metavar="FILE", help="show what `torchmemlint confirm --output-format json` has measured (FILE has it)"
    )
    proof.add_argument("--only-confirmed", action="store_true", help="report, and fail on, what it has confirmed alone")
    run = parser.add_argument_group("run")
    run.add_argument("--fail-on", choices=severities, help="the lightest finding that makes the exit status 1 (warning)")
    run.add_argument("--watch", action="store_true", help="check again whenever a file changes, until Ctrl-C")
    run.add_argument("--exit-zero", action="store_true", help="exit status 0 whatever is found")
    run.add_argument(
        "--config", action="append", default=[], metavar="FILE|KEY=VALUE", help="configuration file, or one setting"
    )
    run.add_argument("--isolated", action="store_true", help="ignore configuration files")
    run.add_argument("--no-cache", action="store_true", help="neither read nor write what earlier runs found")
    run.add_argument("--cache-dir", metavar="FOLDER", help="default: .torchmemlint_cache, or $TORCHMEMLINT_CACHE_DIR")
    run.add_argument("-j", "--jobs", type=_jobs, metavar="N", help="processes (default: as many as pay)")
    run.add_argument("--profile", action="store_true", help="where the time goes, by stage and rule (one process, no cache)")
    run.add_argument(
        "--shard", type=_shard, metavar="I/N", help="check part I of N; `torchmemlint merge` puts reports together"
    )
    return parser


def _printed(group: argparse._ActionsContainer, min_confidence: str, notes: str) -> None:
    """The options that say which findings are printed, under these names among the parsed arguments."""
    from torchmemlint.findings import Confidence

    group.add_argument(
        "--min-confidence",
        dest=min_confidence,
        choices=[confidence.value for confidence in Confidence],
        help="print findings that are at least this sure (medium)",
    )
    group.add_argument(
        "--notes", action="store_true", default=None, dest=notes, help="print notes too: what costs little, or once"
    )
    group.add_argument("--no-notes", action="store_false", default=None, dest=notes, help="print no notes (the default)")


def _switch(group: argparse._ArgumentGroup, key: str, words: str) -> None:
    group.add_argument(f"--{key}", action="store_true", default=None, dest=key, help=words)
    group.add_argument(f"--no-{key}", action="store_false", default=None, dest=key, help="not so")


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

    parser = _parser("merge", "Put the JSON reports of several runs (of shards, of machines) together.")
    parser.add_argument("reports", nargs="+", metavar="REPORT.json", help="what --output-format json wrote")
    parser.add_argument(
        "-o", "--output-file", action="append", default=[], metavar="[FORMAT=]PATH", help="write there (may be given again)"
    )
    parser.add_argument("--output-format", choices=FORMATS, help="on standard output; default: full, or nothing beside -o")
    severities = [severity.value for severity in Severity]
    parser.add_argument("--fail-on", choices=severities, default="warning", help="the lightest finding that makes the status 1")
    _printed(parser, "min_confidence", "notes")
    parser.add_argument("--exit-zero", action="store_true", help="exit status 0 whatever is found")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    return parser


def rule_parser() -> argparse.ArgumentParser:
    parser = _parser("rule", "Explain a rule: what it finds, what that costs, how to repair it, when to ignore it.")
    parser.add_argument("rule", nargs="?", metavar="RULE", help="a code or a name")
    parser.add_argument("--all", action="store_true", help="every rule")
    parser.add_argument("--output-format", choices=("text", "markdown", "json"), default="text")
    return parser


def clean_parser() -> argparse.ArgumentParser:
    parser = _parser("clean", "Delete what earlier runs have cached.")
    parser.add_argument("--cache-dir", metavar="FOLDER", help="default: .torchmemlint_cache, or $TORCHMEMLINT_CACHE_DIR")
    parser.add_argument("--config", action="append", default=[], metavar="FILE|KEY=VALUE")
    parser.add_argument("--isolated", action="store_true", help="ignore configuration files")
    return parser


def trace_parser() -> argparse.ArgumentParser:
    parser = _parser("trace", "Show what the analysis believes at a line, and why a rule spoke or was silent.")
    parser.add_argument("place", metavar="FILE:LINE")
    parser.add_argument("--config", action="append", default=[], metavar="FILE|KEY=VALUE")
    parser.add_argument("--isolated", action="store_true", help="ignore configuration files")
    return parser
