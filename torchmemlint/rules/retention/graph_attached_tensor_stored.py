"""A tensor is stored step after step with its autograd graph."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.retention.claims import claim
from torchmemlint.semantics.events import Store

RULE = Rule(
    code="TML102",
    name="graph-attached-tensor-stored",
    summary="A tensor is stored step after step with its autograd graph",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    triggers=frozenset({"backward", "eval", "manual_backward", "no_grad"}),
    experiment="growth",
)
EVENT = Store


def check(event: Store, flow: Flow) -> Iterator[Draft]:
    if event.constant_key or not flow.own(event.site):
        return
    told = claim(flow, event.graphs, event.mark)
    if told is None:
        return
    outlives = "the loop" if event.loop is not None else "this call"
    fix = None
    if event.how not in ("extend", "comprehension") and event.value >= 0:
        fix = flow.append_to(event.site, event.value, ".detach()", "Detach the stored tensor", Safety.UNSAFE)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` collects tensors that are still attached to their autograd graph",
            severity=told.severity,
            label=f"stored in `{short(event.place)}`, which outlives {outlives}",
            cost=told.cost,
            help="store a detached value: `.detach()` keeps a tensor, `.item()` makes a number (and waits for the device)",
            flow=[flow.attached_at(told.gids)],
            fix=fix,
        ),
        told.gids,
        event.site.handler,
    )
