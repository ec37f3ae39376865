"""``torchmemlint check``: what a run prints and writes, down to its exit status."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from torchmemlint.errors import SourceError, UsageError
from torchmemlint.files.checkout import repository_root
from torchmemlint.files.quoting import printable, printable_lines, quoted
from torchmemlint.findings import INTERNAL_ERROR, UNPARSABLE, Confidence, Finding, Severity
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.project.discover import discover, excluded_by_hand
from torchmemlint.project.settings import Settings
from torchmemlint.reporters import FORMATS, Context, render
from torchmemlint.run import Fixed, Means, Outcome, Shard, check_paths, check_source, fix_paths, fix_source
from torchmemlint.running.fixing import is_fixable
from torchmemlint.workers import cannot_parse, read

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from torchmemlint.commands.confirmed import Measured
    from torchmemlint.incremental.cache import Cache

SETTINGS = ("preview", "unsafe-fixes", "force-exclude", "respect-gitignore", "fail-on", "min-confidence", "notes")
FOR_PEOPLE = ("full", "concise", "grouped")
"""Formats that are followed by a summary."""
WHOLE = ("json", "json-lines", "sarif")
"""Formats that hold notes as well, whatever is printed."""
NAMED_AS_COSTLIEST = 3
"""Findings that the summary names where there are more."""
LISTS = (
    *("select", "extend-select", "ignore", "exclude", "extend-exclude"),
    *("fixable", "unfixable", "extend-safe-fixes", "extend-unsafe-fixes"),
)
"""Options that are settings, by their key."""


def run(arguments: argparse.Namespace) -> int:
    # Nothing large here is in a cycle: facts live until the end, trees and states die by their count. To look for cycles as
    # often as Python does would cost a tenth of the run, and once for each million objects still a fortieth.
    gc.set_threshold(20_000_000, 5, 5)
    # Where glibc is asked for memory, freeing a block as large as this (whose pages nobody has touched) makes it keep what is
    # freed from then on: syntax trees come and go, and a page from the system costs more than what is written to it.
    bytes(10_000_000)
    if arguments.output_file:
        from torchmemlint.commands.output_files import output_files

        if output_files(arguments.output_file) and arguments.diff:
            raise UsageError("--diff cannot be combined with --output-file")
    if arguments.watch:
        return _watch(arguments)
    measured = _measured(arguments)
    configuration = _configuration(arguments)
    paths = _paths(arguments)
    arguments.fix = arguments.fix or arguments.fix_only
    if arguments.show_files or arguments.show_settings:
        return _show(arguments, paths, configuration)
    if arguments.write_baseline or arguments.prune_baseline:
        from torchmemlint.commands import baseline

        return baseline.run(arguments, paths, configuration)
    if arguments.add_ignore is not None or arguments.add_noqa is not None:
        from torchmemlint.commands import comments

        written = comments.write(arguments, paths, configuration)
        report(written.outcome, arguments, sys.stdout, failures=written.failures)
        return 2 if written.failures else status(written.outcome, arguments.exit_zero)
    if "-" in paths:
        if len(paths) > 1:
            raise UsageError("`-` reads standard input, and cannot be combined with other paths")
        return _check_stdin(arguments, configuration, measured)
    if not (arguments.fix or arguments.diff):
        means = _means(arguments, configuration)
        with _executor() as executor, means.stage("rest"):
            outcome = check_paths(
                paths,
                configuration,
                arguments.jobs,
                since=arguments.since or "",
                shard=Shard(*arguments.shard) if arguments.shard else None,
                means=replace(means, executor=executor),
                comments=not arguments.ignore_noqa,
            )
        _end(means, arguments)
        outcome = _proved(outcome, arguments, measured)
        report(outcome, arguments, sys.stdout, measured=measured)
        return status(outcome, arguments.exit_zero)
    if arguments.shard:
        raise UsageError("--shard cannot be combined with --fix or --diff")
    means = _means(arguments, configuration)
    since = arguments.since or ""
    with means.stage("rest"):
        refused = partial(_refused, given=paths) if arguments.fix and not arguments.diff else None
        fixed = fix_paths(
            paths,
            configuration,
            arguments.jobs,
            since=since,
            means=means,
            comments=not arguments.ignore_noqa,
            refused=refused,
        )
    _end(means, arguments)
    if arguments.diff:
        return _print_diff(fixed, arguments)
    unwritten = _write(fixed, paths)
    outcome, applied = fixed.outcome, [finding for finding in fixed.applied if finding.path not in unwritten]
    if unwritten:  # what was found is true of texts that are nowhere
        outcome = check_paths(paths, configuration, arguments.jobs, since=since, comments=not arguments.ignore_noqa)
    failures = [f"{quoted(path)}: {why}" for path, why in sorted({**fixed.refused, **unwritten}.items())]
    outcome = _left(outcome, arguments)
    report(outcome, arguments, sys.stdout, applied=applied, failures=failures, measured=measured)
    return 2 if failures else max(status(outcome, arguments.exit_zero), _changed(fixed, arguments))


def _paths(arguments: argparse.Namespace) -> list[str]:
    """The paths to check: standard input where only its name is given, as ruff does it."""
    if arguments.stdin_filename is None or arguments.paths == ["-"]:
        return arguments.paths or ["."]
    for path in arguments.paths:
        print(f"torchmemlint: warning: {quoted(path)} is ignored: --stdin-filename reads standard input", file=sys.stderr)
    return ["-"]


def _left(outcome: Outcome, arguments: argparse.Namespace) -> Outcome:
    """What is reported after fixing: with ``--fix-only``, only what says that the run itself went wrong."""
    if not arguments.fix_only:
        return outcome
    return replace(outcome, found=tuple(one for one in outcome.found if one.code in (INTERNAL_ERROR, UNPARSABLE)))


def _changed(fixed: Fixed, arguments: argparse.Namespace) -> int:
    """The least exit status of a run that changed these files."""
    return 1 if arguments.exit_non_zero_on_fix and fixed.after else 0


def _measured(arguments: argparse.Namespace) -> Measured | None:
    """The results that ``--confirmed`` names; raises UsageError where they, or what is asked with them, make no sense."""
    if arguments.only_confirmed:
        if not arguments.confirmed:
            raise UsageError("--only-confirmed needs --confirmed FILE, written by `torchmemlint confirm --output-format json`")
        for option in ("fix", "diff", "write_baseline", "prune_baseline", "add_ignore", "add_noqa"):
            if getattr(arguments, option) not in (None, False):
                raise UsageError(f"--only-confirmed cannot be combined with --{option.replace('_', '-')}")
    if not arguments.confirmed:
        return None
    from torchmemlint.commands.confirmed import read_results

    return read_results(arguments.confirmed)


def _configuration(arguments: argparse.Namespace) -> Configuration:
    return Configuration(CommandLine(_table(arguments), tuple(arguments.config), arguments.isolated))


def _watch(arguments: argparse.Namespace) -> int:
    """The same run again and again; nothing that writes is repeated."""
    from torchmemlint.commands.watch import watch

    once = ("fix", "fix_only", "diff", "write_baseline", "prune_baseline", "show_files", "show_settings")
    given = [name for name in once if getattr(arguments, name)]
    given += [name for name in ("add_ignore", "add_noqa") if getattr(arguments, name) is not None]
    if given:
        raise UsageError(f"--watch cannot be combined with --{given[0].replace('_', '-')}")
    if "-" in arguments.paths:
        raise UsageError("--watch needs files; standard input does not change")
    arguments.watch = False
    return watch(arguments.paths or ["."], lambda: _configuration(arguments), lambda: run(arguments))


def _cache(arguments: argparse.Namespace, configuration: Configuration) -> Cache | None:
    if arguments.no_cache:
        return None
    from torchmemlint.incremental.cache import cache_for

    return cache_for(configuration, arguments.cache_dir)


def _proved(outcome: Outcome, arguments: argparse.Namespace, measured: Measured | None) -> Outcome:
    if measured is None or not arguments.only_confirmed:
        return outcome
    from torchmemlint.commands.confirmed import only_confirmed

    return only_confirmed(outcome, measured)


@contextmanager
def _executor() -> Iterator[tuple[Executor, int] | None]:
    if not os.environ.get("TORCHMEMLINT_EXECUTOR"):
        yield None
        return
    from torchmemlint.processes.executors import opened

    with opened() as found:
        yield found


def _means(arguments: argparse.Namespace, configuration: Configuration) -> Means:
    from torchmemlint.processes.progress import Progress

    progress = None if arguments.quiet else Progress()
    if arguments.profile:
        from torchmemlint.running.profile import Profile

        # Cached results take no time, and other processes have their own clocks.
        return Means(None, None, progress, Profile())
    return Means(_cache(arguments, configuration), None, progress)


def _end(means: Means, arguments: argparse.Namespace) -> None:
    """Prints notes about the run itself at its end."""
    if means.progress is not None:
        means.progress.end()
    if means.cache is not None and means.cache.trouble and not arguments.quiet:
        print(f"torchmemlint: warning: {printable(means.cache.trouble)}", file=sys.stderr)
    if means.profile is not None:
        sys.stderr.write(means.profile.table())


def _table(arguments: argparse.Namespace) -> dict[str, object]:
    """The settings that the command line gives, by their key."""
    given = vars(arguments)
    table: dict[str, object] = {
        key: value for key in SETTINGS if (value := given.get(key, given.get(key.replace("-", "_")))) is not None
    }
    for key in LISTS:
        words = given[key.replace("-", "_")]
        if words is not None:
            table[key] = [word.strip() for text in words for word in text.split(",") if word.strip()]
    if arguments.per_file_ignores:
        table["per-file-ignores"] = per_file_ignores(arguments.per_file_ignores)
    if arguments.baseline is not None:
        table["baseline"] = arguments.baseline
    return table


def per_file_ignores(texts: Iterable[str]) -> dict[str, list[str]]:
    """``GLOB:RULE`` pairs separated by commas; a rule alone goes to the glob before it. Raises UsageError."""
    table: dict[str, list[str]] = {}
    for text in texts:
        glob = ""
        for pair in filter(None, (part.strip() for part in text.split(","))):
            before, colon, rule = pair.rpartition(":")
            glob = before.strip() if colon else glob
            if not glob or not rule.strip():
                raise UsageError(f"--per-file-ignores {text}: must be GLOB:RULE pairs, as in 'tests/*:TML2'")
            table.setdefault(glob, []).append(rule.strip())
    return table


# --- standard input -------------------------------------------------------------------------------------------------


def _check_stdin(arguments: argparse.Namespace, configuration: Configuration, measured: Measured | None) -> int:
    from torchmemlint.source.file import decode_source

    data = sys.stdin.buffer.read()
    name = arguments.stdin_filename or "-"
    settings = configuration.for_file(name)
    if arguments.stdin_filename and settings.force_exclude and excluded_by_hand(name, False, settings):
        if arguments.fix:
            sys.stdout.buffer.write(data)
        return 0
    try:
        source = decode_source(name, data)
    except SourceError as error:
        if arguments.fix:
            sys.stdout.buffer.write(data)
        outcome = Outcome(cannot_parse(name, error, settings, "").findings, {name: settings})
        report(outcome, arguments, sys.stderr if arguments.fix else sys.stdout)
        return status(outcome, arguments.exit_zero)
    if not (arguments.fix or arguments.diff):
        outcome = check_source(source, settings, comments=not arguments.ignore_noqa)
        outcome = _proved(outcome, arguments, measured)
        report(outcome, arguments, sys.stdout, text={name: source.file_text(source.text)}.get, measured=measured)
        return status(outcome, arguments.exit_zero)
    fixed = fix_source(source, settings, comments=not arguments.ignore_noqa)
    if arguments.diff:
        return _print_diff(fixed, arguments)
    after = fixed.after.get(name, source.text)
    sys.stdout.flush()
    sys.stdout.buffer.write(source.encode(after))
    sys.stdout.buffer.flush()
    outcome = _left(fixed.outcome, arguments)
    report(outcome, arguments, sys.stderr, text={name: source.file_text(after)}.get, applied=fixed.applied)
    return max(status(outcome, arguments.exit_zero), _changed(fixed, arguments))


# --- fixes ----------------------------------------------------------------------------------------------------------


def _refused(path: str, given: Sequence[str]) -> str:
    """Why a file found below the paths ``given`` must not be written, "" where it may be."""
    from torchmemlint.files.writing import folders_of, refusal

    return refusal(os.path.realpath(path), folders_of(path, given))


def _write(fixed: Fixed, given: Sequence[str]) -> dict[str, str]:
    """Writes the fixed files; what could not be written, and why."""
    from torchmemlint.files.writing import folders_of
    from torchmemlint.source.file import write_source

    failures = {}
    for path, text in fixed.after.items():
        try:
            write_source(Path(path), fixed.before[path], text, folders_of(path, given))
        except SourceError as error:
            failures[path] = str(error)
    return failures


def _print_diff(fixed: Fixed, arguments: argparse.Namespace) -> int:
    from torchmemlint.fixes import unified_diff
    from torchmemlint.reporters.style import painted_diff

    for path, text in fixed.after.items():
        diff = unified_diff(fixed.before[path], text)
        # What is piped on is taken byte for byte; a terminal must not be driven by it.
        if sys.stdout.isatty() or arguments.color == "always":
            diff = printable_lines(diff.replace("\r\n", "\n"))
        sys.stdout.write(painted_diff(diff) if colored(arguments.color, sys.stdout) else diff)
    _complain([*fixed.outcome.problems, *(f"{quoted(path)}: {why}" for path, why in sorted(fixed.refused.items()))])
    if not arguments.quiet:
        words = f"Would fix {counted(fixed.applied)}" if fixed.applied else "No safe fixes"
        unsafe = {path: settings.unsafe_fixes for path, settings in fixed.outcome.settings.items()}
        waiting = [one for one in fixed.outcome.findings if is_fixable(one, True) and not unsafe[one.path]]
        more = f" ({len(waiting)} {'more ' if fixed.applied else ''}with {_switches(waiting)})" if waiting else ""
        print(f"{words}{more}.", file=sys.stderr)
    if fixed.outcome.problems or fixed.outcome.crashes or fixed.refused:
        return 2
    return 1 if fixed.after and not arguments.exit_zero else 0


# --- what is printed ------------------------------------------------------------------------------------------------


def report(
    outcome: Outcome,
    arguments: argparse.Namespace,
    out: TextIO,
    *,
    text: Callable[[str], str | None] | None = None,
    applied: Sequence[Finding] = (),
    failures: Sequence[str] = (),
    measured: Measured | None = None,
) -> None:
    """Findings and their summary to ``out`` and to every ``--output-file``; what is about the run itself to standard error.

    Raises UsageError for a file that cannot be written, when all else is.
    """
    output_format = arguments.output_format or os.environ.get("TORCHMEMLINT_OUTPUT_FORMAT", "full")
    context = Context(
        text or text_on_disk,
        colored(arguments.color, out),
        _docs(),
        repository_root(),
        link=linked(arguments.color, out),
        skipped=outcome.skipped,
        partial=outcome.partial,
    )
    if measured is not None:
        context = replace(context, measured=measured)
    if arguments.statistics:
        from torchmemlint.commands.counts import statistics

        as_json = output_format == "json"
        out.write(statistics(outcome.findings, outcome.settings, as_json, context.color and not as_json))
    else:
        if output_format not in FORMATS:
            raise UsageError(f"$TORCHMEMLINT_OUTPUT_FORMAT is {output_format!r}, but must be one of {', '.join(FORMATS)}")
        out.write(render(output_format, listed(outcome, output_format, arguments.sort), context))
        if output_format in FOR_PEOPLE:
            if arguments.show_fixes:
                from torchmemlint.commands.counts import fixes_by_file

                out.write(fixes_by_file(applied))
            if not arguments.quiet:
                out.write(summary(outcome, len(applied)))
    out.flush()
    _complain([*outcome.problems, *failures])
    if not arguments.quiet:
        for line in outcome.skipped:
            print(f"torchmemlint: note: {printable_lines(line)}", file=sys.stderr)
        if not outcome.settings and not outcome.problems:
            print("torchmemlint: warning: no Python files found in the given paths", file=sys.stderr)
    if arguments.verbose:
        for line in (*outcome.notes, *outcome.crashes):
            print(f"torchmemlint: note: {printable_lines(line)}", file=sys.stderr)
        files = f"{outcome.checked} file{'' if outcome.checked == 1 else 's'}"
        left_out = f", skipped {outcome.left_out}" if outcome.left_out else ""
        print(f"torchmemlint: note: checked {files}{left_out}", file=sys.stderr)
    if not arguments.output_file:
        return
    from torchmemlint.commands.output_files import output_files, write_report

    failed: UsageError | None = None
    for file in output_files(arguments.output_file):
        words = render(file.output_format, listed(outcome, file.output_format, arguments.sort), replace(context, color=False))
        if file.output_format in FOR_PEOPLE:
            words += summary(outcome, len(applied))
        try:
            write_report(file.path, words)
        except UsageError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def listed(outcome: Outcome, output_format: str, order: str = "path") -> Sequence[Finding]:
    """The findings that a format holds, in the order that ``--sort`` asks for."""
    findings = outcome.recorded if output_format in WHOLE else outcome.findings
    return sorted(findings, key=lambda one: one.cost_key) if order == "cost" else findings


def text_on_disk(path: str) -> str | None:
    try:
        source = read(path)
        return source.file_text(source.text)
    except SourceError:
        return None


def _complain(problems: Iterable[str]) -> None:
    for problem in problems:
        print(f"torchmemlint: error: {printable(problem)}", file=sys.stderr)


def counted(findings: Sequence[Finding]) -> str:
    """``2 errors, 1 warning``."""
    counts = Counter(finding.severity for finding in findings)
    parts = [(counts[severity], severity.value) for severity in reversed(Severity) if counts[severity]]
    return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in parts)


def summary(outcome: Outcome, applied: int = 0) -> str:
    """What was found, and what of it ``--fix`` can fix."""
    findings = outcome.findings
    lines = []
    if applied:
        lines.append(f"Fixed {applied} finding{'' if applied == 1 else 's'}.")
    if findings:
        lines.append(f"Found {counted(findings)}.")
        if len(findings) > NAMED_AS_COSTLIEST:
            from torchmemlint.reporters.style import place

            worst = sorted(findings, key=lambda one: one.cost_key)[:NAMED_AS_COSTLIEST]
            lines.append(f"Most costly: {', '.join(f'{place(one)} {one.code}' for one in worst)}.")
    elif not outcome.problems:
        lines.append("All checks passed!")
    lines.extend(_not_reported(outcome))
    lines.extend(not_printed(outcome))
    now = sum(is_fixable(finding, outcome.settings[finding.path].unsafe_fixes) for finding in findings)
    more = [one for one in findings if is_fixable(one, True) and not is_fixable(one, outcome.settings[one.path].unsafe_fixes)]
    if now:
        lines.append(f"[*] {now} fixable with `--fix`{f' ({len(more)} more with {_switches(more)})' if more else ''}.")
    elif more:
        lines.append(f"[*] {len(more)} fixable with {_switches(more, '--fix ')}.")
    return "".join(f"{line}\n" for line in lines)


def _switches(unsafe: Sequence[Finding], fix: str = "") -> str:
    """The option that has unsafe fixes applied, and, where they are of several rules, the one for the rule that has most of them."""
    (code, count), *others = Counter(one.code for one in unsafe).most_common()
    only = f", {count} of them with `{fix}--extend-safe-fixes {code}`" if others else ""
    return f"`{fix}--unsafe-fixes`{only}"


def _not_reported(outcome: Outcome) -> Iterable[str]:
    """What was found, too, and why it is not reported."""
    more = "more " if outcome.findings else ""
    if outcome.baselined:
        yield f"{outcome.baselined} {more}{_findings_are(outcome.baselined)} in the baseline."
    if outcome.stale:
        yield f"{outcome.stale} {_findings_are(outcome.stale)} in the baseline but no longer found; run `--prune-baseline`."
    if outcome.unchanged:
        yield f"{outcome.unchanged} {more}{_findings_are(outcome.unchanged)} on lines that did not change."
    if outcome.unconfirmed:
        yield f"{outcome.unconfirmed} {more}{_findings_are(outcome.unconfirmed)} not confirmed by an experiment."


def not_printed(outcome: Outcome) -> Iterable[str]:
    """How much is left out for its small cost, or for its doubts, and how to see it."""
    recorded = len(outcome.recorded)
    notes, doubtful = recorded - len(outcome.findings), len(outcome.found) - recorded
    parts = []
    if notes:
        parts.append((f"{notes} note{'' if notes == 1 else 's'}", "`--notes`"))
    if doubtful:
        parts.append((f"{doubtful} doubtful finding{'' if doubtful == 1 else 's'}", "`--min-confidence low`"))
    if parts:
        yield f"{' and '.join(words for words, _ in parts)} not shown: {', '.join(option for _, option in parts)}."


def _findings_are(count: int) -> str:
    return "finding is" if count == 1 else "findings are"


def colored(asked: str, out: TextIO) -> bool:
    """Whether to write colours: by ``--color``, else by NO_COLOR, FORCE_COLOR and CLICOLOR_FORCE, else on a terminal."""
    if asked != "auto":
        return asked == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return out.isatty() and os.environ.get("TERM") != "dumb"


LINKING = ("iTerm.app", "WezTerm", "vscode", "Hyper", "ghostty", "Tabby", "rio", "WarpTerminal")
"""Values of TERM_PROGRAM of terminals that show OSC 8 hyperlinks."""


def linked(asked: str, out: TextIO) -> bool:
    """Whether to write hyperlinks: by FORCE_HYPERLINK, else where colours are written to a terminal that is known to take them.

    The terminals are those of https://github.com/Alhadis/OSC8-Adoption. Inside tmux and screen nothing is known of the
    terminal outside.
    """
    if forced := os.environ.get("FORCE_HYPERLINK"):
        return forced != "0"
    term, given = os.environ.get("TERM", ""), os.environ
    if not (out.isatty() and colored(asked, out)) or given.get("CI") or term.startswith(("screen", "tmux")):
        return False
    vte = given.get("VTE_VERSION", "0")
    return (
        given.get("TERM_PROGRAM") in LINKING
        or term in ("xterm-kitty", "alacritty", "foot", "xterm-ghostty")
        or any(given.get(name) for name in ("WT_SESSION", "KONSOLE_VERSION", "DOMTERM", "KITTY_WINDOW_ID"))
        or (vte.isdecimal() and int(vte) >= 5000)
    )


def _docs() -> str | None:
    """Where the rules' pages are published, for hyperlinks and machine formats; pages end in ``.html``."""
    return os.environ.get("TORCHMEMLINT_DOCS_URL", "").rstrip("/") or None


def status(outcome: Outcome, exit_zero: bool) -> int:
    if outcome.problems or any(finding.code == INTERNAL_ERROR for finding in outcome.findings):
        return 2
    failing = any(
        finding.code == UNPARSABLE or finding.severity.weight >= outcome.settings[finding.path].fail_on.weight
        for finding in outcome.findings
    )
    return 1 if failing and not exit_zero else 0


# --- --show-files and --show-settings -------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace, paths: Sequence[str], configuration: Configuration) -> int:
    found = discover(paths, configuration)
    if arguments.show_files:
        for file in found.files:
            print(quoted(file.path))
    elif found.files or not found.problems:
        path, settings = (found.files[0].path, found.files[0].settings) if found.files else ("", configuration.default)
        print(f"# settings of {quoted(path) or 'no file'}, from {quoted(settings.source) or 'the defaults'}")
        for name in Settings.__dataclass_fields__:
            print(f"{name} = {_shown(getattr(settings, name))}")
    _complain(found.problems)
    return 2 if found.problems else 0


def _shown(value: object) -> str:
    return repr(
        value.value if isinstance(value, (Severity, Confidence)) else list(value) if isinstance(value, tuple) else value
    )
