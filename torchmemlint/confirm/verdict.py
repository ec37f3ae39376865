"""What was measured, and what it proves: plain data and one decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

MIN_STEPS = 5
"""Fewer samples than this at the loop head prove nothing."""

FLAT_SHARE = 0.05
"""The fixed twin is flat when it grows by at most this share of what the broken one grows by."""


class Outcome(Enum):
    """What an experiment says about a finding."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Run:
    """One variant's figures, a sample per step at the head of the loop.

    live_bytes         after the cyclic collector ran
    uncollected_bytes  before it ran
    nodes              autograd nodes that hang on the flagged place
    retained_bytes     bytes that those nodes save for a backward
    peak_bytes         highest live figure from step 2 on
    graph_bytes        what one step's graph saves, 0 when no graph was built
    fallbacks          operations that could not be done on stand-ins and were replaced
    seen               what the probe saw: "tensor", "number", "other", "stand-in" or "" (the line never ran)
    place              what holds the value: "real", "stand-in" or "" (not known)
    errors             the first exceptions of the code that ran, as "row: Type: text"
    """

    live_bytes: tuple[int, ...] = ()
    uncollected_bytes: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    retained_bytes: tuple[int, ...] = ()
    peak_bytes: int = 0
    graph_bytes: int = 0
    fallbacks: int = 0
    seen: str = ""
    place: str = ""
    errors: tuple[str, ...] = ()
    device: str = "cpu"
    seconds: float = 0.0
    mode: str = ""

    @property
    def live_bytes_per_step(self) -> int:
        """Bytes by which the live figure grows each step, collector run."""
        return slope(self.live_bytes)

    @property
    def uncollected_per_step(self) -> int:
        """The same without the collector: what a reference cycle keeps until it runs."""
        return slope(self.uncollected_bytes)

    @property
    def nodes_per_step(self) -> int:
        """Autograd nodes by which the flagged place grows each step."""
        return slope(self.nodes)

    @property
    def graphs_per_step(self) -> float:
        """Growth in graphs of one step; 0.0 when no graph was seen."""
        return round(self.live_bytes_per_step / self.graph_bytes, 4) if self.graph_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is proved about one finding, in figures.

    kind     the sort of growth that was measured, "" when none
    reason   for "inconclusive": which name, line or exception; for "refuted": what was seen instead
    helped   whether the repaired twin is flat (None: not known)
    """

    outcome: Outcome
    kind: str = ""
    reason: str = ""
    device: str = ""
    before: Run | None = None
    after: Run | None = None
    helped: bool | None = None
    notes: tuple[str, ...] = field(default=())


def slope(samples: Sequence[int]) -> int:
    """Growth per step, as the middle of the differences from the third sample on (gradients, optimizer state and caches exist by then)."""
    steady = samples[2:] if len(samples) > 3 else samples
    differences = [later - earlier for earlier, later in zip(steady, steady[1:], strict=False)]
    return int(median(differences)) if differences else 0


def inconclusive(reason: str, before: Run | None = None, after: Run | None = None, device: str = "") -> Verdict:
    """An abstention and its reason."""
    return Verdict(Outcome.INCONCLUSIVE, "", reason, device or (before.device if before else ""), before, after)


def decide(code: str, before: Run, after: Run | None) -> Verdict:
    """What the two runs prove.

    A positive verdict needs growth in the broken code that the repaired twin does not have (the control). A negative one needs that the
    value was seen, that no operation was replaced, that nothing grows and that the peak is the twin's.
    """
    if any("backward through the graph a second time" in error for error in before.errors) and code in {"TML104", "TML105"}:
        return Verdict(
            Outcome.CONFIRMED, "crash at the second step", "", before.device, before, after, after is None or not after.errors
        )
    if len(before.live_bytes) < MIN_STEPS:
        return inconclusive(_why_not_run(before), before, after)
    if after is None or len(after.live_bytes) < MIN_STEPS:
        why = _why_not_run(after) if after else "there is no repaired twin to compare with"
        return inconclusive(f"no control: {why}", before, after)
    kind = growth_kind(code, before, after)
    if kind:
        helped = _flat(kind, before, after)
        if not helped:
            return Verdict(
                Outcome.INCONCLUSIVE, kind, "the repaired twin grows as well: the fix does not help, or it is not the cause",
                before.device, before, after, False,
            )  # fmt: skip
        return Verdict(Outcome.CONFIRMED, kind, "", before.device, before, after, True)
    if before.seen == "" or before.seen == "stand-in":
        return inconclusive(
            "the flagged line never ran" if not before.seen else "the flagged value is a stand-in here", before, after
        )
    if before.place == "stand-in":
        return inconclusive("what keeps the value is not in this file", before, after)
    if before.fallbacks or before.errors:
        why = before.errors[0] if before.errors else f"{before.fallbacks} operations had to be replaced"
        return inconclusive(f"nothing grew, but not everything ran: {why}", before, after)
    return Verdict(
        Outcome.REFUTED, "", f"ran {len(before.live_bytes)} steps on a {before.seen}: nothing grows and the peak is that of the repaired code",
        before.device, before, after, None,
    )  # fmt: skip


def growth_kind(code: str, before: Run, after: Run) -> str:
    """The words for what grows (or what is higher at the peak) in ``before`` against ``after``; "" for nothing."""
    grew = before.live_bytes_per_step - after.live_bytes_per_step
    graph = before.graph_bytes
    nodes = before.nodes_per_step - after.nodes_per_step
    if code == "TML402" and after.live_bytes_per_step > 0 and grew > 0:
        return f"{before.live_bytes_per_step / after.live_bytes_per_step:.0f} × storage kept"
    if code == "TML401" and grew > 0:
        return "tensors kept on the device"
    if graph and grew >= 0.9 * graph:
        return "whole graph per step"
    if graph and grew >= 0.1 * graph and before.retained_bytes and slope(before.retained_bytes) > 0:
        return "part of the graph per step"
    if nodes > 0:
        return "nodes per step"
    uncollected = before.uncollected_per_step - after.uncollected_per_step
    if grew > 0:
        return "tensors kept"
    if uncollected > 0:
        return "until the cyclic collector runs"
    threshold = max(1, before.peak_bytes // 20)
    if before.peak_bytes - after.peak_bytes >= threshold:
        return "extra graph at peak" if graph else "higher peak"
    return ""


def _flat(kind: str, before: Run, after: Run) -> bool:
    if "storage" in kind or "peak" in kind:
        return True
    if "nodes" in kind:
        return after.nodes_per_step <= FLAT_SHARE * before.nodes_per_step
    if "collector" in kind:
        return after.uncollected_per_step <= FLAT_SHARE * before.uncollected_per_step
    if "graph" in kind:
        # outputs that the program wants to keep stay in the repaired twin: it is the graph that has to be gone
        return after.nodes_per_step <= FLAT_SHARE * before.nodes_per_step
    return after.live_bytes_per_step <= FLAT_SHARE * before.live_bytes_per_step


def _why_not_run(run: Run) -> str:
    where = f"only {len(run.live_bytes)} of {MIN_STEPS} steps ran"
    return f"{where}: {run.errors[0]}" if run.errors else where


def run_json(run: Run | None) -> dict[str, object] | None:
    """A run as the JSON output has it."""
    if run is None:
        return None
    return {
        "live_bytes_per_step": run.live_bytes_per_step,
        "uncollected_bytes_per_step": run.uncollected_per_step,
        "graphs_per_step": run.graphs_per_step,
        "nodes_per_step": run.nodes_per_step,
        "peak_bytes": run.peak_bytes,
        "graph_bytes": run.graph_bytes,
        "live_bytes": list(run.live_bytes),
        "nodes": list(run.nodes),
        "fallbacks": run.fallbacks,
        "seconds": round(run.seconds, 3),
        "mode": run.mode,
    }


def verdict_json(verdict: Verdict) -> dict[str, object]:
    """A verdict as the ``confirm`` member of a finding."""
    return {
        "verdict": verdict.outcome.value,
        "kind": verdict.kind or None,
        "reason": verdict.reason or None,
        "device": verdict.device or None,
        "helped": verdict.helped,
        "before": run_json(verdict.before),
        "after": run_json(verdict.after),
        "notes": list(verdict.notes),
    }
