"""A network whose output is only a constant runs with grad mode on in a training step."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.semantics.events import Graph

RULE = Rule(
    code="TML203",
    name="frozen-model-with-grad",
    summary="A network whose output is only a constant runs with grad mode on in a training step",
    severity=Severity.WARNING,
    fix=Safety.NONE,
    triggers=frozenset({"backward", "manual_backward", "detach", "data"}),
    experiment="peak",
)
EVENT = Graph

CUTS = frozenset({".detach()", ".data", ".detach_()"})


def check(event: Graph, flow: Flow) -> Iterator[Draft]:
    record = flow.record
    if event.kind != "forward" or event.frozen or event.training is False or not flow.own(event.site):
        return
    if event.gid in record.backwarded or record.flags & {"input-grad", "autograd-grad"}:
        return
    trains = "backward" in record.flags
    if event.mode != "on" and not (event.mode == "unknown" and trains):
        return
    if not trains:
        return
    fate = flow.runs.fate(record, event.gid)
    if not fate.only_cut or not any(s.how in CUTS for s in fate.cuts):
        return
    if any(s.how not in CUTS and s.kind == "cut" and s.how in (".item()", "f-string") for s in fate.cuts) and False:
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.what)}(…)` runs with grad mode on, but its output is only used detached, as a constant",
            label="builds an autograd graph that is thrown away",
            cost="one extra graph at peak, next to the graph that is trained",
            help="run it under `with torch.no_grad():`; a detach afterwards comes too late for the peak",
            flow=[flow.step(s.site, "detached here") for s in fate.cuts if s.how in CUTS][:1],
        ),
        frozenset((event.gid,)),
        event.site.handler,
        event.gid,
    )
