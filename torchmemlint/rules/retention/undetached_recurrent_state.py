"""A recurrent state is carried to the next step without being detached."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.semantics.events import Accumulate, Backward

RULE = Rule(
    code="TML104",
    name="undetached-recurrent-state",
    summary="A recurrent state is carried to the next step without being detached",
    severity=Severity.ERROR,
    fix=Safety.NONE,
    triggers=frozenset({"backward", "manual_backward"}),
    experiment="growth",
)
EVENT = Accumulate


def check(event: Accumulate, flow: Flow) -> Iterator[Draft]:
    if not event.through_module or event.loop is None or not flow.own(event.site):
        return
    record = flow.record
    graphs = flow.real(event.graphs)
    if not graphs:
        return
    gids = frozenset(g.gid for g in graphs)
    inside = [
        e
        for e in record.events.values()
        if isinstance(e, Backward) and event.loop in e.site.loops and record.ancestors(e.graphs | e.hints) & gids
    ]
    if not inside:
        return
    retained = all(e.retain for e in inside)
    cost = (
        "the graph of every earlier step stays alive and is walked again: memory and time grow with each step"
        if retained
        else "the second step back-propagates through the first one's freed graph: RuntimeError, or with `retain_graph=True` memory and time that grow with each step"
    )
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` is carried to the next step without being detached",
            label="holds the graph of every step so far",
            cost=cost,
            help=f"detach it between steps: `{short(event.place)} = {short(event.place)}.detach()` (each tensor of a tuple)",
            flow=[flow.attached_at(gids)],
        ),
        gids,
    )
