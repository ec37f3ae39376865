"""The figures of one run of the flagged code."""

from __future__ import annotations

import ast
import gc
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import torch

from torchmemlint.confirm.verdict import Located, slope
from torchmemlint.confirm.worker.harness import Harness, Sampled, drive
from torchmemlint.confirm.worker.meter import meter_for
from torchmemlint.confirm.worker.program import Site, locate, modules_of, place_of, sliced, whole
from torchmemlint.confirm.worker.standins import FORWARD_BYTES, Record, Stage
from torchmemlint.confirm.worker.target import Target
from torchmemlint.rules.card import Correction


class Attempt(NamedTuple):
    """A way to run the line: in which program, with which loop sampled (the innermost is 0), past ``if`` statements that lead
    elsewhere or not."""

    mode: str
    level: int
    force: bool


Figures: TypeAlias = Mapping[str, Any]
"""Those of a run, as ``verdict.Run`` names them."""


def measure(
    stage: Stage, target: Target, correction: Correction | None, attempt: Attempt, at_end: Callable[[], None] = lambda: None
) -> Figures:
    """Run the line once, in this way, with its correction or as it is."""
    started = time.monotonic()
    gc.collect()
    torch.manual_seed(0)
    tree = ast.parse(target.source)
    site = locate(tree, target.place)
    assert site is not None
    record = Record(target.inert, modules_of(tree, site.klass))
    stage.begin(record)
    meter = meter_for(target.device)
    make = whole if attempt.mode == "whole function" else sliced
    program = make(tree, site, target.flaw, attempt.level)
    errors: list[Located] = []
    stage.weight()  # of ours, and no part of the program
    with meter:
        record.on_host = meter.forget
        harness = Harness(
            stage,
            meter,
            correction,
            target.flaw.correction,
            force=attempt.force,
            turned=target.turned,
            claimed=target.claimed,
            at_end=at_end,
        )
        meter.reset_peak()
        if program is not None:
            with torch.set_grad_enabled(target.grad != "off"):  # the callers' mode, where it is known to be off
                errors = drive(program, site, harness, target)
        end = harness.sampled or Sampled(
            meter.peak_bytes(), len(harness.errors), len(record.fallbacks), record.backwards, record.graph_forwards
        )
        stage.begin(Record())
    seen = next((kind for kind in ("stand-in", "tensor", "number", "other") if kind in harness.seen), "")
    if harness.own_fix and harness.hits:  # it is about grad mode, not about a value
        seen = "tensor"
    errors = [*harness.errors[: end.errors], *(() if harness.sampled else errors)]
    fallbacks = record.fallbacks[: end.fallbacks]
    kept = place_of(site.statement)
    place = "stand-in" if "stand-in" in harness.places else "real" if harness.places else ""
    if site.function is not None and not site.loops and not site.comprehends and not isinstance(kept, ast.Attribute):
        place = "local"
    if harness.waits:
        place = "context"
    per_step = _per_step(harness.graph_forwards)
    return {
        **harness.samples,
        "fragmented_bytes": harness.fragmented,
        "peak_bytes": end.peak,
        "graph_bytes": _graph_bytes(harness, per_step * FORWARD_BYTES),
        "probe_bytes": harness.probe_bytes,
        "value_bytes": harness.value_bytes,
        "ran": harness.ran,
        "went_back": harness.went_back,
        "turned": sorted(target.turned & harness.guessed.keys()),
        "assumed": sorted(harness.assumed),
        "guards": _guards(tree, record.backward_rows, harness.guessed),
        "fallbacks": len(fallbacks),
        "seen": seen,
        "place": place,
        "errors": [item.packed() for item in dict.fromkeys([*errors, *fallbacks])][:5],
        "device": target.device,
        "seconds": time.monotonic() - started,
        "mode": f"{attempt.mode}, loop {attempt.level}" + (", forced branch" if harness.forced else ""),
        "grad_modes": sorted(harness.grad_modes),
        "decorators": _decorators(record, site),
        "contexts": [item.packed() for item in sorted(harness.contexts)],
        "backward_row": record.backward_row,
        "guess_row": next(
            (row for name, row in record.guess_rows.items() if min(harness.guesses, default="").startswith(name)), 0
        ),
        "guessed": sorted(harness.guessed),
        "attached": harness.attached
        or ((harness.inexact or harness.own_fix) and end.graph_forwards > 0)
        or (harness.own_fix and record.hung),
        "guesses": sorted(harness.guesses),
        "backwards": end.backwards,
        "later_backwards": record.backwards - end.backwards,
        "empty_backwards": record.empty_backwards,
        "swallowed": _swallowed(record, site),
        "escapes": harness.escapes if attempt.mode == "whole function" else None,
        "forced": harness.forced,
        "graphs_built": end.graph_forwards,
        "hung": record.hung,
        "may_retain": record.may_retain,
        "left": harness.left,
        "hits": harness.hits,
        "blocked": [item.packed() for item in harness.blocked.values()][:3],
        "partly_freed": harness.partly,
        "joined_bytes": harness.joins.bytes,
        "left_gradients": harness.left_gradients,
        "raised": harness.checkpoint.raised,
        "ungraphed": harness.checkpoint.ungraphed,
        "hidden_inputs": harness.checkpoint.hidden,
    }


def _graph_bytes(harness: Harness, forwards: int) -> int:
    """What one step's graph saves: that of the flagged value, except where what grows is more, and the step's ``forwards`` make it
    so."""
    probed = harness.probe_bytes
    if not probed:
        return forwards
    grew = slope(harness.samples["live_bytes"])
    return forwards if forwards and grew > 1.5 * probed else probed


def _guards(tree: ast.Module, backwards: Iterable[tuple[int, ...]], guessed: Mapping[int, bool]) -> list[int]:
    """Rows of the ``if`` statements whose guessed answers led to the backward calls (each is identified by the rows of its
    frames); none where some call rests on no guess."""
    sides: dict[int, range] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.lineno in guessed:
            side = node.body if guessed[node.lineno] else node.orelse
            if side:
                sides[node.lineno] = range(side[0].lineno, (side[-1].end_lineno or side[-1].lineno) + 1)
    rows: set[int] = set()
    for frames in backwards:
        behind = {row for row, side in sides.items() if any(frame in side for frame in frames)}
        if not behind:
            return []
        rows |= behind
    return sorted(rows)


def _decorators(record: Record, site: Site) -> list[list[object]]:
    around = {node.name: node for node in site.around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return [
        [next((item.lineno for item in around[function].decorator_list), 0), decorator]
        for function, decorator in record.unknown_decorators
        if function in around
    ]


def _swallowed(record: Record, site: Site) -> list[list[object]]:
    """Callees that are not visible, other than in the flagged statement, that may have run a backward."""
    own = range(site.statement.lineno, (site.statement.end_lineno or site.statement.lineno) + 1)
    return [callee.packed() for callee in record.swallowed if callee.line not in own]


def _per_step(counts: list[int]) -> int:
    differences = [later - earlier for earlier, later in itertools.pairwise(counts)]
    return sorted(differences)[len(differences) // 2] if differences else 0
