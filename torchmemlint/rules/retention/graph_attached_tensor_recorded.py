"""A tensor is passed, with its autograd graph, to a function that keeps it."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.retention.claims import claim
from torchmemlint.semantics.events import Accumulate, Store

RULE = Rule(
    code="TML103",
    name="graph-attached-tensor-recorded",
    summary="A tensor is passed, with its autograd graph, to a function that keeps it",
    severity=Severity.ERROR,
    fix=Safety.NONE,
    triggers=frozenset({"backward", "eval", "manual_backward", "no_grad"}),
    experiment="growth",
)
EVENT = (Accumulate, Store)


def check(event: Accumulate | Store, flow: Flow) -> Iterator[Draft]:
    if flow.own(event.site):
        return
    if isinstance(event, Store) and event.constant_key:
        return
    # Only what this function handed over: graphs that the callee makes by itself are told where the callee is looked at.
    handed = frozenset(g for g in event.graphs if flow.own(flow.record.graphs[g].site))
    told = claim(flow, handed, event.mark)
    if told is None:
        return
    call, callee = flow.own_call(event.site)
    name = callee.qualname
    yield Draft(
        flow.at(
            RULE,
            call,
            f"`{short(name)}` keeps what it is given here, a tensor that is still attached to its autograd graph",
            severity=told.severity,
            label="passed on with its graph",
            cost=told.cost,
            help="pass a detached value: `.detach()` keeps a tensor, `.item()` makes a number (and waits for the device)",
            flow=[flow.attached_at(told.gids), flow.step(event.site, f"kept here, in `{short(event.place)}`")],
        ),
        told.gids,
        event.site.handler,
    )
