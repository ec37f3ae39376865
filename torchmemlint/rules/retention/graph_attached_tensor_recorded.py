"""A tensor is passed, with its autograd graph, to a function that keeps it.

## What it does
Reports a call that passes a tensor with its autograd graph to a function or method of the project that keeps it:
`meter.update(loss)`, a helper that appends to a history. The finding is at the call, and names the place that keeps the
value.

It does not report:

- functions that convert the value to a number or detach it;
- functions outside the project, unless the setting `recorders` names them: `recorders = ["ourlib.History.append"]`.

## What it costs
The same as for TML101: the graph's nodes if a backward goes through the step's graph (warning), else the whole graph of
every step (error). An `AverageMeter` whose `update` adds its argument costs as much as `total += loss`. Measured for a
6-layer encoder: 231 kB of host memory per training step, 19.0 MB per evaluation step with grad mode on.

## Example
```python
import torch


class AverageMeter:
    def __init__(self):
        self.sum = 0.0
        self.count = 0

    def update(self, value):
        self.sum += value
        self.count += 1


def train(model, loader, criterion, optimizer):
    losses = AverageMeter()
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.update(loss)
    print(losses.sum / losses.count)
```

Use instead:

```python
import torch


class AverageMeter:
    def __init__(self):
        self.sum = 0.0
        self.count = 0

    def update(self, value):
        self.sum += value
        self.count += 1


def train(model, loader, criterion, optimizer):
    losses = AverageMeter()
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.update(loss.detach())
    print(losses.sum / losses.count)
```

## Fix
None: either the call or the function can detach the value. In the function, it helps every caller. At the call, the
function remains usable for values that are back-propagated.

## When to ignore
The recorded value is back-propagated later, by code that the analysis cannot see.

## References
- PyTorch FAQ, "Don't accumulate history across your training loop":
  https://docs.pytorch.org/docs/stable/notes/faq.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.assumed import EMPTIED_ELSEWHERE
from torchmemlint.rules.card import About, Advice, Correction, Shown
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.retention.claims import claim, doubts_of, price_of
from torchmemlint.semantics.interpret import RECORDED
from torchmemlint.semantics.state import Accumulate, Site, Store
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML103",
    name="graph-attached-tensor-recorded",
    summary="A tensor is passed, with its autograd graph, to a function that keeps it",
    severity=Severity.ERROR,
    typical=Severity.WARNING,
    about=About.GRAPH_KEPT,
    fix=Safety.NONE,
    triggers=TORCH.words["back-propagates"] | TORCH.words["evaluation-words"],
    of_results=True,
    yields_to=frozenset({"TML201", "TML202", "TML203"}),
    correction=Correction.DETACH,
    shown=frozenset({Shown.NO_BACKWARD}),
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)

EVENT = (Accumulate, Store)


def check(event: Accumulate | Store, flow: Flow) -> Iterator[Draft | Fact]:
    outside = isinstance(event, Store) and event.how == RECORDED
    if flow.own(event.site) and not outside:
        return
    if isinstance(event, Store) and (event.constant_key or flow.record.is_let_go(event)):
        return
    if isinstance(event, Store) and event.holder < 0:
        return  # into a tensor of the callee's own
    if event.holder_frame >= 0 and not flow.own(Site(event.holder_frame, -1)):
        return  # the callee's own local: gone, or passed on, when it returns
    call, name = event.site, event.place
    if not flow.own(event.site):
        call, callee = flow.own_call(event.site)
        name = callee.qualname
    # Only what this function passed: graphs that the callee makes by itself are reported where the callee is looked at.
    handed = event.graphs.difference(graph.gid for graph in flow.made_inside(call))
    claimed = claim(flow, handed, event.mark, event.holder_frame < 0, event.loop)
    if isinstance(claimed, Fact):
        yield claimed
        return
    kept = [] if call == event.site else [flow.step(event.site, f"kept here, in `{short(event.place)}`")]
    priced = price_of(claimed, event, flow)
    yield Draft(
        flow.at(
            RULE,
            call,
            f"`{short(name)}` keeps the tensor passed here, which is still attached to the autograd graph",
            severity=priced.severity,
            doubts=((EMPTIED_ELSEWHERE,) if outside else ()) + doubts_of(claimed, flow),
            label="passed on with its graph",
            cost=priced.cost,
            help="pass a detached value: `.detach()` keeps a tensor, `.item()` returns a number (and waits for the device)",
            flow=[flow.attached_at(claimed.gids), *kept],
        ),
        claimed.gids,
        event.site.handler,
    )
