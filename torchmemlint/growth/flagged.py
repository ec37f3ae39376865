"""The flagged lines that ``run --check`` looks at, each with a verdict from what the program did there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from torchmemlint.confirm.verdict import UNUSED, Outcome, Run, Verdict, inconclusive
from torchmemlint.findings import Finding
from torchmemlint.reporters import Context
from torchmemlint.reporters.json import findings_in, render
from torchmemlint.rules import rule_of
from torchmemlint.rules.card import About

LEAST_HITS = 4


def written(findings: Sequence[Finding]) -> str:
    """A new file with the findings and the rows to look at, for the program's process, which removes it."""
    some = [finding for finding in findings if finding.cell is None and rule_of(finding.code).about is not About.RUN]
    files: dict[str, list[tuple[int, int]]] = {}
    for number, finding in enumerate(some):
        files.setdefault(os.path.realpath(finding.path), []).append((finding.span.start.row, number))
    with tempfile.NamedTemporaryFile("w", prefix="torchmemlint-", suffix=".json", delete=False, encoding="utf-8") as file:
        json.dump({"files": files, "findings": render(some, Context())}, file)
    return file.name


def verdicts(flagged: Mapping[str, Any], device: str) -> Iterator[tuple[Finding, Verdict]]:
    """The findings, each with the verdict that the looks allow."""
    for number, finding in enumerate(findings_in(flagged["findings"])):
        hits, samples, backwards = (flagged[name].get(str(number)) for name in ("hits", "samples", "backwards"))
        yield finding, judge(finding, hits or 0, samples or (), backwards or 0, device)


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
