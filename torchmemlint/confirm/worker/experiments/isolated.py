"""The experiment on a finding: the original, then the corrected code, in the way of running the line that shows most."""

from __future__ import annotations

import ast
import base64
import faulthandler
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from torchmemlint.confirm.channel import Emit
from torchmemlint.confirm.worker.experiments.cached import measure_cached
from torchmemlint.confirm.worker.experiments.measure import Attempt, Figures, measure
from torchmemlint.confirm.worker.harness import prepare_torch
from torchmemlint.confirm.worker.meter import end_history, start_history
from torchmemlint.confirm.worker.program import OF_FORWARDS, Site, left_before, locate, over_parameters, way_out
from torchmemlint.confirm.worker.standins import Stage
from torchmemlint.confirm.worker.target import Target, target_of
from torchmemlint.rules.card import Correction

SEARCH_SECONDS = 12.0
"""No further way to run the line is tried after this much CPU time (wall time depends on what else the machine does)."""
OTHER_ANSWERS = 4
"""So many `if` statements below the flagged line are tried with the other answer."""
SNAPSHOT_BYTES = 8 << 20
"""A memory snapshot of more than this, packed, does not go through the pipe."""


def run_isolated(stage: Stage, job: Mapping[str, Any], emit: Emit) -> None:
    """Both variants of one finding: whole function first; where it does not reach the line often enough, the slice;
    outward through the loops."""
    if job.get("timeout"):  # what is stopped says where it is
        faulthandler.dump_traceback_later(max(1.0, float(job["timeout"]) - 2.0))
    prepare_torch(stage, str(job["device"]))
    chosen: Attempt | None = None
    best: Figures | None = None
    target = target_of(job)
    correction = target.flaw.correction
    site = locate(ast.parse(target.source), target.place)
    if site is None:
        emit({"failed": f"line {target.place.row} holds no statement"})
        return
    if correction is Correction.NO_CACHE:
        measure_cached(stage, target, site, emit)
        return
    if row := left_before(site):
        emit({"failed": f"line {row} leaves before the flagged one: it never runs"})
        return
    if correction is Correction.LOAD:
        _of_a_load(stage, target, site, job, emit)
        return
    deadline = time.process_time() + SEARCH_SECONDS
    for attempt in _attempts(len(site.loops), _first_loop(site, correction)):
        if best is not None and time.process_time() > deadline:
            break
        figures = measure(stage, target, None, attempt)
        if best is None or _worth(stage, figures) > _worth(stage, best):
            best, chosen = figures, attempt
        if _grows(figures):
            break
        if figures["left"] and not figures["hits"] and way_out(ast.parse(target.source), figures["left"]):
            best, chosen = figures, attempt
            break  # a slice would run what the program never comes to
        if _complete(stage, figures) and attempt.level + 1 >= len(site.loops):
            break
    assert best is not None
    assert chosen is not None
    if target.claimed and correction in OF_FORWARDS and best["guards"]:
        # its backward runs in a phase that no visible code is known to be in; the linter reports the other one
        other = replace(target, turned=frozenset(best["guards"]))
        figures = measure(stage, other, None, chosen)
        if not figures["backwards"] and figures["seen"] == "tensor" and len(figures["live_bytes"]) > stage.steps:
            target, best = other, figures
    if target.claimed and correction in OF_FORWARDS and best["seen"] == "tensor" and not best["went_back"]:
        best = {**best, "needed_at": _needed_at(stage, target, chosen, best, deadline)}
    emit({"variant": "before", "run": best})
    if job.get("snapshot") and torch.device(target.device).type == "cuda" and _grows(best):
        emit(_snapshot(stage, target, chosen))
    if job.get("fixed_source"):
        fixed = target.fixed(job["fixed_source"], int(job["fixed_row"]))
        emit({"variant": "fixed", "run": measure(stage, fixed, None, chosen)})
    if correction is Correction.OWN_FIX and (job.get("fixed_source") or best["backwards"]):
        return
    # nothing is trained where it ran: the correction is a decorator, or a with-block around all of it
    around = correction in {Correction.NO_GRAD_AROUND, Correction.OWN_FIX} and not best["backwards"]

    def corrected(target: Target) -> Figures:
        if around:
            return measure(stage, replace(target, grad="off"), None, chosen)
        return measure(stage, target, correction, chosen)

    emit({"variant": "after", "run": corrected(target)})
    if best["guesses"]:
        # the same once more, with nothing but data from the callees that nobody can see
        doubtful = replace(target, inert=frozenset(best["guesses"]))
        emit({"variant": "inert before", "run": measure(stage, doubtful, None, chosen)})
        emit({"variant": "inert after", "run": corrected(doubtful)})


def _needed_at(stage: Stage, target: Target, chosen: Attempt, best: Figures, deadline: float) -> list[int]:
    """Rows of the ``if`` statements below the flagged line that an option's default or a guess answered, and where the other answer
    sends a backward through the flagged value."""
    below = [row for row in best["guessed"] if row > target.place.row and row not in target.turned]
    found = []
    for row in below[:OTHER_ANSWERS]:
        if time.process_time() > deadline:
            break
        if measure(stage, replace(target, turned=target.turned | {row}), None, chosen)["went_back"]:
            found.append(row)
    return found


def _of_a_load(stage: Stage, target: Target, site: Site, job: Mapping[str, Any], emit: Emit) -> None:
    """A load, once: no growth is asked about, but what is held when the modules run. The first run shows which parts of the
    file hold weights."""
    best: Figures = {}
    chosen = Attempt("whole function", 0, False)
    sliced = [Attempt("slice", len(site.loops) - 1, True)] if site.loops else []
    for attempt in [chosen, Attempt("whole function", 0, True), *sliced]:
        known = frozenset(stage.dicts)
        best, chosen = measure(stage, target, None, attempt), attempt
        if best["hits"]:
            if frozenset(stage.dicts) != known:
                best = measure(stage, target, None, attempt)
            break
    emit({"variant": "before", "run": best})
    if job.get("fixed_source"):
        fixed = target.fixed(job["fixed_source"], int(job["fixed_row"]))
        emit({"variant": "fixed", "run": measure(stage, fixed, None, chosen)})
    emit({"variant": "after", "run": measure(stage, target, Correction.LOAD, chosen)})


def _first_loop(site: Site, correction: Correction) -> int:
    """The innermost loop of steps: where a correction is about gradients, none over parameters."""
    inner = range(len(site.loops)) if correction is Correction.FREE else ()
    return next((level for level in inner if not over_parameters(site.loops[level])), 0)


def _attempts(loops: int, first: int = 0) -> Iterator[Attempt]:
    levels = range(first, max(1, loops))
    for level in levels:
        yield Attempt("whole function", level, False)
    for level in levels:
        if loops:
            yield Attempt("slice", level, False)
    for level in levels:
        yield Attempt("slice" if loops else "whole function", level, True)


def _grows(figures: Figures) -> bool:
    if figures["seen"] not in {"tensor", "number"}:  # whatever grows, it is not the flagged line's
        return False
    for name in ("live_bytes", "nodes"):
        series = figures[name]
        if len(series) > 4 and series[-1] > series[-2] > series[-3]:
            return True
    return False


def _complete(stage: Stage, figures: Figures) -> bool:
    return len(figures["live_bytes"]) >= stage.steps and figures["seen"] in {"tensor", "number"} and not figures["fallbacks"]


def _worth(stage: Stage, figures: Figures) -> tuple[bool, bool, int, bool]:
    return (
        _grows(figures),
        figures["seen"] in {"tensor", "number"},
        min(len(figures["live_bytes"]), stage.steps),
        not figures["fallbacks"],
    )


def _snapshot(stage: Stage, target: Target, attempt: Attempt) -> Mapping[str, object]:
    """The record of a run of its own, at whose end the allocator reports what it holds and who asked for it."""
    taken: list[bytes] = []
    start_history()
    measure(stage, target, None, attempt, lambda: taken.append(end_history()))
    packed = base64.b64encode(zlib.compress(taken[0])).decode() if taken else ""
    if not packed:
        return {"no_snapshot": "the run with the allocator's history on did not come to its end"}
    return {"snapshot": packed} if len(packed) <= SNAPSHOT_BYTES else {"no_snapshot": f"it would have {len(packed)} bytes"}
