"""A running total keeps the autograd graph of every step it adds."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Fix, Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.retention.claims import claim
from torchmemlint.semantics.events import Accumulate

RULE = Rule(
    code="TML101",
    name="graph-attached-running-total",
    summary="A running total keeps the autograd graph of every step it adds",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    triggers=frozenset({"backward", "eval", "manual_backward", "no_grad"}),
    experiment="growth",
)
EVENT = Accumulate


def check(event: Accumulate, flow: Flow) -> Iterator[Draft]:
    if event.through_module or not flow.own(event.site):
        return
    told = claim(flow, event.graphs, event.mark)
    if told is None:
        return
    outlives = "the loop" if event.loop is not None else "this call"
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` adds up tensors that are still attached to their autograd graph",
            severity=told.severity,
            label=f"added to `{short(event.place)}`, which outlives {outlives}",
            cost=told.cost,
            help="add a detached value: `.detach()` keeps a tensor, `.item()` makes a number (and waits for the device)",
            flow=[flow.attached_at(told.gids)],
            fix=detach(event, flow),
        ),
        told.gids,
        event.site.handler,
    )


def detach(event: Accumulate, flow: Flow) -> Fix | None:
    """``.detach()`` on the added term: safe where the term is a tensor for sure and the total is only looked at afterwards."""
    if event.term < 0:
        return None
    seen = {s.kind for s in flow.record.sinks.get(event.mark, ())}
    local = event.key[0] == 0
    safe = local and event.sure_tensor and seen <= {"cut", "shown", "dropped", "stored"}
    return flow.append_to(event.site, event.term, ".detach()", "Detach the added tensor", Safety.SAFE if safe else Safety.UNSAFE)
