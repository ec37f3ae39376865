"""A result is moved or copied before it is stored, but not detached.

## What it does
Reports a value that is moved or copied before it is stored (`.cpu()`, `.to(…)`, `.clone()`, `.float()`, `.double()`,
`.half()`, `.contiguous()`), but not detached: the copy belongs to the same graph. It replaces TML102 for that store.

## What it costs
The copy keeps the whole graph (error): for a 6-layer encoder on the CPU, in evaluation with grad mode on,
`outputs.append(out.cpu())` was measured at 19.0 MB per step, the same as without `.cpu()`. If a backward goes through the
graph, its nodes stay (warning).

## Example
```python
from torch import nn


def train(model: nn.Module, loader, criterion, optimizer):
    outputs = []
    for inputs, labels in loader:
        out = model(inputs)
        loss = criterion(out, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outputs.append(out.cpu())
    return outputs
```

Use instead:

```python
from torch import nn


def train(model: nn.Module, loader, criterion, optimizer):
    outputs = []
    for inputs, labels in loader:
        out = model(inputs)
        loss = criterion(out, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outputs.append(out.detach().cpu())
    return outputs
```

## Fix
Inserts `.detach()` before the move. Safe where the container is a local variable of which every read is visible and ends in a number
or a text; otherwise unsafe, because code that reads the container later may need the graph.

## When to ignore
The stored value is back-propagated later, by code that the analysis cannot see.

## References
- torch.Tensor.detach: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Edit, Fix, Safety, Severity, Span
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, short
from torchmemlint.rules.card import About, Advice, Correction, Same
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.retention.claims import claim, doubts_of, is_replaced, price_of
from torchmemlint.rules.retention.reads import with_reads
from torchmemlint.semantics.dataflow import shown
from torchmemlint.semantics.state import Store
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML204",
    name="half-detached-result",
    summary="A result is moved or copied before it is stored, but not detached",
    severity=Severity.ERROR,
    typical=Severity.WARNING,
    about=About.GRAPH_KEPT,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["half-fixes"],
    of_results=True,
    yields_to=frozenset({"TML201", "TML202", "TML203"}),
    explains=Same.STATEMENT,
    correction=Correction.DETACH,
    advice=frozenset({Advice.NO_GRAPH}),
)
EVENT = Store


def check(event: Store, flow: Flow) -> Iterator[Draft | Fact]:
    if not event.half_fix or not flow.own(event.site):
        return
    claimed = is_replaced(flow, event) or claim(flow, event.graphs, event.mark, event.external, event.loop, event.outlived)
    if isinstance(claimed, Fact):
        yield claimed
        return
    end = flow.span(event.site, event.half_base).end
    seen = shown(flow.runs.world, flow.frame(event.site).ref, event.half_base, event.place)
    fix: Fix | NoFix = Fix("Detach before the move", Safety.UNSAFE, (Edit(Span(end, end), ".detach()"),))
    if seen.may_not:
        fix = NoFix(seen.why)
    priced = price_of(claimed, event, flow)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`.{event.half_fix}()` does not detach: `{short(event.place)}` still keeps the autograd graph",
            severity=priced.severity,
            doubts=doubts_of(claimed, flow),
            label=f"stored in `{short(event.place)}` with its graph",
            cost=priced.cost,
            help=f"detach first: `.detach().{event.half_fix}()`",
            flow=[flow.attached_at(claimed.gids)],
            fix=with_reads(fix, event, flow),
        ),
        claimed.gids,
        event.site.handler,
    )
