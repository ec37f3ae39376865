"""``torchmemlint confirm``: arguments → findings → experiments → a report with an exit status.

0  every settled finding was confirmed, or there was none
1  a finding was refuted, or a fix did not help
2  nothing could be run

With ``--fix``: 0 no fix changed what its function does, 1 one did, 2 none could be run.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence

from torchmemlint.confirm.around import project_of
from torchmemlint.confirm.devices import checked, devices_for
from torchmemlint.confirm.launch import torch_directory
from torchmemlint.confirm.output import render, text_of, write, write_snapshots
from torchmemlint.confirm.plan import Plan, plan, plan_fix
from torchmemlint.confirm.settle import Options, Settled, settle_all
from torchmemlint.confirm.verdict import Answer, Outcome
from torchmemlint.errors import TorchmemlintError, UsageError
from torchmemlint.files.quoting import printable, quoted
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span
from torchmemlint.processes.executors import named, opened
from torchmemlint.processes.progress import Progress
from torchmemlint.rules import rule_of
from torchmemlint.rules.card import About

_AT_LINE = re.compile(r"^(?P<path>.+\.py):(?P<row>\d+)$")


def parser() -> argparse.ArgumentParser:
    """The arguments of ``confirm``."""
    result = argparse.ArgumentParser(
        "torchmemlint confirm",
        description="Prove findings by running the flagged code, with and without the fix, in a sandboxed child process.",
        epilog="Exit status: 0 no finding was refuted, and every fix that was measured helped; 1 a finding was refuted, or a printed fix "
        "did not help; 2 nothing could be run. The sandbox needs Linux; elsewhere, use --no-sandbox on your own code. To measure in your "
        "own program: torchmemlint run --check PATH train.py. "
        "TORCHMEMLINT_EXECUTOR in the environment says where to run: a callable that returns an Executor (MODULE:FACTORY), or "
        "dask:tcp://host:port.",
        allow_abbrev=False,
    )
    result.add_argument(
        "targets", nargs="*", metavar="PATH|FILE:LINE", help="files and folders, or one line (default: the current folder)"
    )
    result.add_argument(
        "--rule", metavar="CODE", help="run experiments for this rule only; for FILE:LINE, even if nothing was found there"
    )
    result.add_argument(
        "--select", action="append", metavar="RULES", help="enable only these rules: codes, prefixes, names or ALL"
    )
    result.add_argument("--device", default="auto", metavar="auto|cpu|cuda|cuda:1|mps", help="where to run (default: auto)")
    result.add_argument("--steps", type=int, default=8, metavar="N", help="steps of a loop, 6 or more (default: 8)")
    result.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="for each experiment (default: 60)")
    result.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="experiments at a time (default: one per GPU; 2 on the CPU)"
    )
    result.add_argument(
        "--output-format", choices=("full", "json", "html"), default="full", help="report on standard output (default: full)"
    )
    result.add_argument("--output-file", metavar="FILE", help="write the report there")
    result.add_argument("--snapshots", metavar="FOLDER", help="on CUDA, write a memory snapshot of what grows there")
    result.add_argument(
        "--fix",
        action="store_true",
        help="run only the fixes, and compare with the original: same, differed or could not be run",
    )
    result.add_argument(
        "--no-sandbox", action="store_true", help="run without a sandbox: only for code that you would run anyway"
    )
    return result


def main(argv: Sequence[str]) -> int:
    """Run the command line and return its exit status."""
    arguments = parser().parse_args(list(argv))
    try:
        if not named():  # else it is needed where the executor runs
            torch_directory()
        if arguments.fix and (arguments.snapshots or arguments.output_format == "html"):
            raise UsageError("--fix cannot be combined with --snapshots or --output-format html")
        return settle_and_report(arguments)
    except TorchmemlintError as error:
        print(f"torchmemlint: error: {printable(str(error))}", file=sys.stderr)
        return 2


def settle_and_report(arguments: argparse.Namespace) -> int:
    """Run the experiments, and report."""
    if arguments.steps < 6:
        raise UsageError("--steps must be at least 6: the first two steps are warm-up")
    if not arguments.timeout > 0:
        raise UsageError("--timeout must be a number of seconds above 0")
    if arguments.jobs < 0:
        raise UsageError("--jobs must be 1 or more")
    findings = find(arguments.targets or ["."], arguments)
    devices = [checked(arguments.device)] if named() else devices_for(arguments.device, arguments.jobs)
    if arguments.snapshots and not (named() or devices[0].startswith("cuda")):
        raise UsageError("--snapshots needs a CUDA device")
    options = Options(
        devices[0], arguments.timeout, arguments.steps, not arguments.no_sandbox, snapshots=bool(arguments.snapshots)
    )
    if arguments.fix:
        findings = [finding for finding in findings if finding.fix is not None and finding.fix.edits]
    make = plan_fix if arguments.fix else plan
    plans = [make(finding, text_of(finding.path), project_of(finding.path)) for finding in findings]
    progress = Progress()
    try:
        with opened() as elsewhere:
            on_start = running_line(progress, sum(plan.job is not None for plan in plans))
            settled = list(settle_all(plans, options, devices, elsewhere[0] if elsewhere else None, on_start))
    finally:
        progress.end()
    if arguments.snapshots:
        settled = write_snapshots(settled, arguments.snapshots)
    write(
        render(settled, "fixes" if arguments.fix and arguments.output_format == "full" else arguments.output_format),
        arguments.output_file,
    )
    return status_of_fixes(settled) if arguments.fix else status(settled)


def running_line(progress: Progress, total: int) -> Callable[[Plan], None]:
    """What says on a terminal which finding's experiment begins; it may be called from any thread."""
    lock, begun = threading.Lock(), itertools.count(1)

    def started(plan: Plan) -> None:
        finding = plan.finding
        with lock:
            progress.say(
                f"running {next(begun)}/{total}: {printable(finding.path)}:{finding.span.start.row} {finding.code}"[:WIDTH]
            )

    return started


WIDTH = 120
"""Of the line that says what runs: a longer one would leave rows behind."""


def status_of_fixes(settled: Sequence[Settled]) -> int:
    """1 where a fix changes a program, 2 where none could be run."""
    answers = {item.verdict.fix.answer if item.verdict.fix else Answer.NOT_RUN for item in settled}
    return 1 if Answer.DIFFERED in answers else 2 if answers == {Answer.NOT_RUN} else 0


def status(settled: Sequence[Settled]) -> int:
    """The exit status of a set of verdicts."""
    contradicted = any(item.verdict.outcome is Outcome.REFUTED or item.verdict.helped is False for item in settled)
    if contradicted:
        return 1
    runnable = [item for item in settled if item.plan.job is not None]
    return 2 if runnable and not any(item.torch for item in runnable) else 0


# --- what to settle


def find(targets: Sequence[str], arguments: argparse.Namespace) -> list[Finding]:
    """The findings of the targets. Raises UsageError for a line without one, unless ``--rule`` says what to try there."""
    from torchmemlint import check_paths

    options: dict[str, object] = {}
    everything = {"notes": True, "min-confidence": "low"}
    if arguments.rule or arguments.select:
        options["select"] = (
            [arguments.rule] if arguments.rule else [word for text in arguments.select for word in text.split(",")]
        )
        options |= {"preview": True, "notes": True}
    found: list[Finding] = []
    whole = [target for target in targets if not (_AT_LINE.match(target) and not os.path.exists(target))]
    if whole:
        found += check_paths(whole, options=options)
    for target in targets:
        match = _AT_LINE.match(target)
        if match is None or target in whole:
            continue
        path, row = match["path"], int(match["row"])
        here = [
            finding
            for finding in check_paths([path], options={**options, **everything})
            if finding.span.start.row <= row <= finding.span.end.row
        ]
        found += here or [_asked_for(path, row, arguments.rule)]
    return [finding for finding in found if rule_of(finding.code).about is not About.RUN]


def _asked_for(path: str, row: int, rule: str | None) -> Finding:
    """A finding that nobody made: the user asks what rule ``rule`` would cost at this row."""
    if rule is None:
        raise UsageError(f"{quoted(path)}:{row}: no finding there; use --rule to try a rule anyway")
    from torchmemlint.project.selection import find_rule

    card = find_rule(rule)
    text = text_of(path)
    try:
        tree = ast.parse(text or "")
    except SyntaxError as error:
        raise UsageError(f"{quoted(path)}: cannot be parsed: {error.msg} on line {error.lineno}") from error
    lines = (text or "").splitlines()
    if not 1 <= row <= len(lines) or not lines[row - 1].strip():
        raise UsageError(f"{quoted(path)}:{row}: there is no code on this line")
    column = len(lines[row - 1]) - len(lines[row - 1].lstrip()) + 1
    span = Span(Position(row, column), Position(row, len(lines[row - 1]) + 1))
    return Finding(card.code, card.name, Severity.NOTE, Confidence.MEDIUM, "", path, span, function=_qualname(tree, row))


def _qualname(tree: ast.AST, row: int) -> str:
    """The names of the definitions around a row, the outermost first, as ``ast.walk`` comes to them."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = (node for node in ast.walk(tree) if isinstance(node, kinds))
    return ".".join(node.name for node in found if node.lineno <= row <= (node.end_lineno or 0))
