"""A network whose output is only a constant runs with grad mode on in a training step.

## What it does
Reports a network that runs with grad mode on in a function that trains another one, and whose output is used only
detached: a teacher, a target network, a reference policy. The detach shows that the output is meant as a constant; by
then its graph has been built.

Networks with frozen parameters are silent, and outputs that are detached in one term of the loss and trained in, or kept in,
another. So are outputs of which something is computed, attached, that cannot be followed to its end: it may be trained there.

## What it costs
One extra graph at peak, beside the graph that is trained, when the detach comes after the student's forward. Measured
on the CPU with a teacher and a student that are 6-layer encoders: a peak of 68.0 MB against 49.3 MB under `no_grad`,
and 87.0 MB when the detach comes last of all. When the output is detached before the student runs, the peak is that
of `no_grad`, 49.3 MB; what remains is the time of building the graph.

## Example
```python
import torch


def distill(student, teacher, loader, criterion, optimizer):
    for inputs in loader:
        wanted = teacher(inputs)
        loss = criterion(student(inputs), wanted.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

Use instead:

```python
import torch


def distill(student, teacher, loader, criterion, optimizer):
    for inputs in loader:
        with torch.no_grad():
            wanted = teacher(inputs)
        loss = criterion(student(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Fix
Puts `with torch.no_grad():` around the statement, where it stands alone on one row. Unsafe: the network's output may reach
a backward that the analysis cannot see.

## When to ignore
The output is detached right where it is made and the network is small.

## References
- torch.no_grad: https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; figures on CUDA are owed
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.semantics import purpose
from torchmemlint.semantics.events import Backward, Graph, GraphKind, SinkKind
from torchmemlint.semantics.runs import descendants
from torchmemlint.semantics.state import Mode

RULE = Rule(
    code="TML203",
    name="frozen-model-with-grad",
    summary="A network whose output is only a constant runs with grad mode on in a training step",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    triggers=frozenset({"backward", "manual_backward", "detach", "data"}),
    experiment="peak",
)
EVENT = Graph

COST = "one extra graph at peak, next to the graph that is trained"
SHOWN_COST = "one whole graph, built in each such step behind the backward, and thrown away"
CUTS = frozenset({".detach()", ".data", ".detach_()"})


def check(event: Graph, flow: Flow) -> Iterator[Draft]:
    record = flow.record
    if (
        not (
            event.kind is GraphKind.FORWARD
            or (
                event.kind is GraphKind.OPAQUE
                and event.direct
                and purpose.may_be_network(event.what)
                and not flow.is_part(event)
            )
        )
        or event.frozen
        or not flow.own(event.site)
        or flow.toggled(event)
    ):
        return
    if event.training is False and any(
        g.what == event.what and g.gid in record.backwarded and flow.own(g.site) for g in record.graphs.values()
    ):
        return  # the model that is trained here, evaluated on the side: TML201 speaks of it
    if event.gid in record.backwarded or record.flags & {"input-grad", "autograd-grad"}:
        return
    trains = "backward" in record.flags
    if event.mode is not Mode.ON and not (event.mode is Mode.UNKNOWN and trains):
        return
    if not trains or not flow.beside_backward(event):
        return
    fate = flow.runs.fate(record, event.gid, cuts_alone=True)
    if not fate.only_cut or not any(s.how in CUTS for s in fate.cuts):
        return
    if is_kept_in_a_loss(event, flow) or not is_detached_itself(event, flow):
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.what)}(…)` runs with grad mode on, but its output is only used detached, as a constant",
            label="builds an autograd graph that is thrown away",
            cost=SHOWN_COST if is_behind_all_steps(event, flow) else COST,
            help="run it under `with torch.no_grad():`; a detach afterwards comes too late for the peak",
            flow=[flow.step(s.site, "detached here") for s in fate.cuts if s.how in CUTS][:1],
            fix=flow.under_no_grad(event.site, "Switch grad mode off for the statement"),
        ),
        frozenset((event.gid,)),
        event.site.handler,
        event.gid,
    )


def is_kept_in_a_loss(event: Graph, flow: Flow) -> bool:
    """Whether the output also goes attached through a loss that is kept: it is meant to be trained there, whatever becomes of it."""
    record = flow.record
    family = descendants(record, event.gid)
    lost = [g for g in family if "loss" in record.operations.get(g, ())]
    return bool(lost) and any(s.kind is SinkKind.STORED for g in family for s in record.sinks.get(g, ()))


def is_detached_itself(event: Graph, flow: Flow) -> bool:
    """Whether the output, or a part of it, is detached, and not only what another call makes of it: that was not meant as a
    constant by then."""
    record = flow.record
    parts = [g for g in descendants(record, event.gid) if record.graphs[g].site.key == event.site.key]
    return any(s.how in CUTS for g in parts for s in record.sinks.get(g, ()))


def is_behind_all_steps(event: Graph, flow: Flow) -> bool:
    """Whether the network runs below every backward of the function: what was trained has no graph any more by then."""
    rows = [flow.span(e.site).start.row for e in flow.record.events.values() if isinstance(e, Backward) and flow.own(e.site)]
    return bool(rows) and max(rows) < flow.span(event.site).start.row
