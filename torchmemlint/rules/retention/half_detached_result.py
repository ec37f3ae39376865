"""A result is moved or copied before it is stored, but not detached."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Edit, Fix, Safety, Severity, Span
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.retention.claims import claim
from torchmemlint.semantics.events import Store

RULE = Rule(
    code="TML204",
    name="half-detached-result",
    summary="A result is moved or copied before it is stored, but not detached",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    triggers=frozenset({"cpu", "clone", "float", "to", "double", "half", "contiguous"}),
    experiment="growth",
)
EVENT = Store


def check(event: Store, flow: Flow) -> Iterator[Draft]:
    if not event.half_fix or event.constant_key or not flow.own(event.site):
        return
    told = claim(flow, event.graphs, event.mark)
    if told is None:
        return
    end = flow.span(event.site, event.half_base).end
    fix = Fix("Detach before the move", Safety.UNSAFE, (Edit(Span(end, end), ".detach()"),))
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`.{event.half_fix}()` does not detach: `{short(event.place)}` keeps the autograd graph as well",
            severity=told.severity,
            label=f"stored in `{short(event.place)}` with its graph",
            cost=told.cost,
            help=f"detach first: `.detach().{event.half_fix}()`",
            flow=[flow.attached_at(told.gids)],
            fix=fix,
        ),
        told.gids,
        event.site.handler,
    )
