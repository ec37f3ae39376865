"""``torchmemlint confirm``: arguments → findings → experiments → a report and an exit status.

0  every settled finding was confirmed, or there was none
1  a finding was refuted, or a fix did not help
2  nothing could be run
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
from collections.abc import Sequence

from torchmemlint.confirm.around import project_of
from torchmemlint.confirm.launch import launch, torch_directory
from torchmemlint.confirm.output import render, text_of, write
from torchmemlint.confirm.plan import plan
from torchmemlint.confirm.settle import Options, Settled, settle_all
from torchmemlint.confirm.verdict import Outcome
from torchmemlint.errors import TorchmemlintError, UsageError
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span

_AT_LINE = re.compile(r"^(?P<path>.+\.py):(?P<row>\d+)$")


def parser() -> argparse.ArgumentParser:
    """The arguments of ``confirm``."""
    result = argparse.ArgumentParser(
        "torchmemlint confirm",
        description="Prove findings by running the flagged code, with and without the fix, in a sandboxed child process.",
        epilog="With --watch: torchmemlint confirm --watch [PATH ...] -- python train.py ARGS (or -- python -m pkg.mod).",
        allow_abbrev=False,
    )
    result.add_argument(
        "targets", nargs="*", metavar="PATH|FILE:LINE", help="files and folders, or one line (default: the current folder)"
    )
    result.add_argument(
        "--rule", metavar="CODE", help="settle findings of this rule only; for FILE:LINE, try it even where nothing was found"
    )
    result.add_argument("--select", action="append", metavar="RULES", help="only these rules: codes, prefixes, names or ALL")
    result.add_argument("--device", default="auto", metavar="auto|cpu|cuda|cuda:1|mps", help="where to run (default: auto)")
    result.add_argument("--steps", type=int, default=8, help="steps of a loop, 6 or more (default: 8)")
    result.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="for each experiment (default: 60)")
    result.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="experiments at a time (default: one per GPU; 2 on the CPU)"
    )
    result.add_argument("--output-format", choices=("full", "json", "html"), default="full")
    result.add_argument("--output-file", metavar="FILE", help="write the report there")
    result.add_argument("--watch", action="store_true", help="run a script of yours and look only at the flagged lines")
    result.add_argument(
        "--no-sandbox", action="store_true", help="run without a sandbox: only for code that you would run anyway"
    )
    return result


def main(argv: Sequence[str]) -> int:
    """Run the command line and return its exit status."""
    own, script = list(argv), []
    if "--" in own:
        at = own.index("--")
        own, script = own[:at], own[at + 1 :]
    arguments = parser().parse_args(own)
    try:
        torch_directory()
        if arguments.watch:
            from torchmemlint.confirm import watch

            findings = find(arguments.targets or ["."], arguments)
            return watch.run(findings, script, arguments.output_format, arguments.output_file)
        if script:
            raise UsageError("`-- COMMAND` goes with --watch")
        return settle_and_report(arguments)
    except TorchmemlintError as error:
        print(f"torchmemlint: error: {error}", file=sys.stderr)
        return 2


def settle_and_report(arguments: argparse.Namespace) -> int:
    """The isolation mode."""
    if arguments.steps < 6:
        raise UsageError("--steps must be at least 6: the first two steps are warm-up")
    if not arguments.timeout > 0:
        raise UsageError("--timeout must be a number of seconds above 0")
    if arguments.jobs < 0:
        raise UsageError("--jobs must be 1 or more")
    findings = find(arguments.targets or ["."], arguments)
    devices = devices_for(arguments.device, arguments.jobs)
    options = Options(devices[0], arguments.timeout, arguments.steps, not arguments.no_sandbox)
    plans = [plan(finding, text_of(finding.path), project_of(finding.path)) for finding in findings]
    settled = list(settle_all(plans, options, devices))
    write(render(settled, arguments.output_format), arguments.output_file)
    return status(settled)


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
    if arguments.rule or arguments.select:
        options["select"] = (
            [arguments.rule] if arguments.rule else [word for text in arguments.select for word in text.split(",")]
        )
        options["preview"] = True
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
            finding for finding in check_paths([path], options=options) if finding.span.start.row <= row <= finding.span.end.row
        ]
        found += here or [_asked_for(path, row, arguments.rule)]
    return [finding for finding in found if not finding.code.startswith("TML0")]


def _asked_for(path: str, row: int, rule: str | None) -> Finding:
    """A finding that nobody made: the user asks what rule ``rule`` would cost at this row."""
    if rule is None:
        raise UsageError(f"{path}:{row}: nothing is found there; name a rule with --rule to try one all the same")
    from torchmemlint.selection import find_rule

    card = find_rule(rule)
    text = text_of(path)
    try:
        tree = ast.parse(text or "")
    except SyntaxError as error:
        raise UsageError(f"{path}: cannot be parsed: {error.msg} in row {error.lineno}") from error
    lines = (text or "").splitlines()
    if not 1 <= row <= len(lines) or not lines[row - 1].strip():
        raise UsageError(f"{path}:{row}: there is no code in this row")
    column = len(lines[row - 1]) - len(lines[row - 1].lstrip()) + 1
    span = Span(Position(row, column), Position(row, len(lines[row - 1]) + 1))
    return Finding(card.code, card.name, Severity.NOTE, Confidence.MEDIUM, "", path, span, function=_qualname(tree, row))


def _qualname(tree: ast.AST, row: int) -> str:
    names: list[str] = []
    node: ast.AST | None = tree
    while node is not None:
        inner = None
        for child in ast.walk(node):
            if child is not node and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if child.lineno <= row <= (child.end_lineno or 0):
                    inner = child
                    break
        if inner is not None:
            names.append(inner.name)
        node = inner
    return ".".join(names)


# --- where to run it


def devices_for(device: str, jobs: int) -> list[str]:
    """A device for each experiment that may run at the same time. Raises UsageError for a device that is not there."""
    kind, _, number = device.partition(":")
    if kind not in {"auto", "cpu", "cuda", "mps"} or (number and not number.isdigit()):
        raise UsageError(f"--device {device}: must be auto, cpu, cuda, cuda:N or mps")
    on_cpu = ["cpu"] * (jobs or min(2, os.cpu_count() or 1))
    if kind == "cpu" or (kind == "auto" and not _may_have_accelerator()):
        return on_cpu
    ended = launch({"runner": "devices"}, 120, device="cuda")
    record = next((record for record in ended.records if "cuda_devices" in record), {})
    count, mps = record.get("cuda_devices", 0), record.get("mps", False)
    assert isinstance(count, int)
    if number:
        if int(number) >= count:
            raise UsageError(f"--device {device}: torch sees {count} CUDA devices")
        return [device]
    if kind in {"auto", "cuda"} and count:
        return [f"cuda:{index}" for index in range(min(count, jobs or count))]
    if kind in {"auto", "mps"} and mps:
        return ["mps"]
    if kind == "auto":
        return on_cpu
    raise UsageError(f"--device {device}: torch sees no such device here")


def _may_have_accelerator() -> bool:
    """A cheap look before a child is started only to count devices."""
    return (
        sys.platform == "darwin"
        or os.name == "nt"
        or any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))
    )
