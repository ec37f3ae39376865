"""Watch mode: the user's own script runs, with its real models and data, and each finding gets a verdict from what was seen.

No sandbox: it is a command that the user would run anyway. The script's standard streams and exit status are its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from torchmemlint.confirm.output import render, write
from torchmemlint.confirm.plan import Plan
from torchmemlint.confirm.settle import Settled
from torchmemlint.confirm.verdict import UNUSED, Doubts, Outcome, Run, Verdict, inconclusive
from torchmemlint.errors import Stopped, UsageError
from torchmemlint.findings import Finding
from torchmemlint.rules import rule_of
from torchmemlint.rules.card import About

PYTHON = re.compile(r"^(python|pypy)[\d.]*(\.exe)?$")
_WITH_VALUE = frozenset({"-X", "-W"})
LEAST_HITS = 4


@dataclass(frozen=True, slots=True)
class Command:
    """A command line taken apart: the interpreter with its options, and the script (or ``-m module``) with its arguments."""

    python: tuple[str, ...]
    program: tuple[str, ...]


def take_apart(command: Sequence[str]) -> Command:
    """``python -u train.py --epochs 1`` in its two parts. Raises UsageError for what is not a Python program."""
    if not command:
        raise UsageError("--watch needs a command: torchmemlint confirm --watch -- python train.py")
    if not PYTHON.match(os.path.basename(command[0])):
        raise UsageError(f"--watch runs Python programs (`python SCRIPT …` or `python -m MODULE …`), not {command[0]!r}")
    index = 1
    while index < len(command) and command[index].startswith("-") and command[index] != "-m":
        if command[index] in {"-c", "-"}:
            raise UsageError("--watch needs a script or a module: text given with -c has no file that was checked")
        index += 2 if command[index] in _WITH_VALUE else 1
    program = command[index:]
    if not program or (program[0] == "-m" and len(program) < 2):
        raise UsageError("--watch needs a script or a module: torchmemlint confirm --watch -- python train.py")
    return Command(tuple(command[:index]), tuple(program))


def run(findings: Sequence[Finding], command: Sequence[str], output_format: str, output_file: str | None) -> int:
    """Run the command with the findings' statements watched, and report. The script's own failure gives its own exit status."""
    parts = take_apart(command)
    watched = [finding for finding in findings if finding.cell is None]
    if not watched:
        print("torchmemlint: nothing to watch: no findings in the checked files", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="torchmemlint-") as folder:
        report = os.path.join(folder, "seen.json")
        specification = os.path.join(folder, "watch.json")
        Path(specification).write_text(json.dumps(_specification(watched, report)), encoding="utf-8")
        runner = str(Path(__file__).parent / "worker" / "watching.py")
        status = _run([*parts.python, runner, specification, *parts.program])
        try:
            seen = json.loads(Path(report).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            print("torchmemlint: the script ended before anything could be measured", file=sys.stderr)
            return status or 2
    settled = [_settled(number, finding, seen) for number, finding in enumerate(watched)]
    write(render(settled, output_format), output_file)
    spent, seconds = float(seen["spent"]), float(seen["seconds"])
    print(f"torchmemlint: watched for {seconds:.1f} s, {spent:.2f} s of it for measuring", file=sys.stderr)
    if status:
        print(f"torchmemlint: the script ended with exit status {status}", file=sys.stderr)
        return status
    return 1 if any(item.verdict.outcome is Outcome.REFUTED for item in settled) else 0


def _specification(findings: Sequence[Finding], report: str) -> Mapping[str, object]:
    files: dict[str, list[tuple[int, int]]] = {}
    for number, finding in enumerate(findings):
        files.setdefault(os.path.realpath(finding.path), []).append((finding.span.start.row, number))
    return {"files": files, "report": report, "root": str(Path(__file__).resolve().parent.parent.parent)}


def _run(command: Sequence[str]) -> int:
    process = subprocess.Popen(list(command))
    while True:
        try:
            status = process.wait()
            break
        except KeyboardInterrupt as stopped:  # the script has it too, and writes its report
            if isinstance(stopped, Stopped):  # this came to us alone
                process.send_signal(stopped.number)
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                status = process.wait(30)
                break
            process.kill()
    return 128 - status if status < 0 else status


def _settled(number: int, finding: Finding, seen: Mapping[str, object]) -> Settled:
    hits, samples, backwards = seen["hits"], seen["samples"], seen["backwards"]
    assert isinstance(hits, dict)
    assert isinstance(samples, dict)
    assert isinstance(backwards, dict)
    key = str(number)
    verdict = judge(finding, int(hits.get(key, 0)), samples.get(key, []), int(backwards.get(key, 0)), str(seen["device"]))
    return Settled(
        Plan(finding, None, Doubts()), verdict, "none (your own script)", str(seen["torch"]), float(str(seen["seconds"]))
    )


def judge(finding: Finding, hits: int, samples: Sequence[Mapping[str, object]], backwards: int, device: str) -> Verdict:
    """The verdict on one finding from the looks at its statement."""
    about = rule_of(finding.code).about
    if about is About.ALLOCATOR and device == "cpu":
        return inconclusive("cuda only: the rule is about the CUDA allocator", device=device)
    if hits == 0:
        return inconclusive("the line was not reached", device=device)
    if len(samples) < LEAST_HITS:
        return inconclusive(f"the line ran {hits} times, {LEAST_HITS} are needed", device=device)
    first = [sample for sample in samples if _number(sample, "hit") <= 8]
    nodes = tuple(_number(sample, "nodes") for sample in samples)
    held = tuple(_number(sample, "retained_bytes") + _number(sample, "tensor_bytes") for sample in samples)
    one_graph = min((_number(sample, "retained_bytes") for sample in first if _number(sample, "retained_bytes")), default=0)
    attached = [bool(sample["attached"]) for sample in samples]
    run = Run(
        live_bytes=held,
        nodes=nodes,
        retained_bytes=tuple(_number(sample, "retained_bytes") for sample in samples),
        graph_bytes=one_graph,
        peak_bytes=max(held),
        seen="tensor" if any(_number(sample, "tensors") for sample in samples) else "number",
        place="real",
        attached=any(attached),
        device=device,
        mode=f"watched, {hits} hits",
    )
    node_growth, held_growth = _growth(first, "nodes"), _growth(first, "retained_bytes")
    kept_growth = _growth(first, "tensor_bytes")
    if about is About.NEEDLESS_GRAPH:
        return _judge_forward(run, backwards, all(attached))
    if about is About.RESULTS_KEPT and kept_growth > 0:
        return Verdict(Outcome.CONFIRMED, "tensors kept", "", device, run, None)
    # a backward frees what a graph saves: then a few scalars of the nodes above it are all that still grows
    freed = _growth(first, "freed_slots") >= 0.5 * _growth(first, "slots") > 0
    if held_growth > 0 and node_growth > 0 and not freed:
        kind = "whole graph per step" if one_graph and held_growth >= 0.9 * one_graph else "part of the graph per step"
        return Verdict(Outcome.CONFIRMED, kind, "", device, run, None)
    if node_growth > 0:
        # what is left of a freed graph is no measure of graphs
        return Verdict(Outcome.CONFIRMED, "nodes per step", "", device, replace(run, graph_bytes=0), None)
    if any(attached):
        return inconclusive("the value has a graph, but nothing grew while it was watched", run, device=device)
    return Verdict(
        Outcome.REFUTED, "", f"looked {len(samples)} times: no value that the line keeps has a graph", device, run, None
    )


def _judge_forward(run: Run, backwards: int, attached: bool) -> Verdict:
    if backwards:
        return Verdict(Outcome.REFUTED, "", "a backward runs through this forward: its graph is used", run.device, run, None)
    if attached and run.graph_bytes:
        return Verdict(Outcome.CONFIRMED, UNUSED, "", run.device, run, None)
    if run.attached:
        return inconclusive("some calls build a graph and some do not", run)
    if run.seen != "tensor":
        return inconclusive("the line's result is not a tensor; it is unknown whether the forward built a graph", run)
    return Verdict(
        Outcome.REFUTED, "", "the forward builds no graph: grad mode is off or nothing requires grad", run.device, run, None
    )


def _growth(samples: Sequence[Mapping[str, object]], name: str) -> float:
    """The middle growth from one of the first hits to the next: what an epoch's reset does not hide."""
    values = [_number(sample, name) for sample in samples]
    differences = [later - earlier for earlier, later in pairwise(values)]
    return median(differences) if differences else 0.0


def _number(sample: Mapping[str, object], name: str) -> int:
    value = sample.get(name)
    return value if isinstance(value, int) else 0
