"""A running total keeps the autograd graph of every step it adds.

## What it does
Reports a total to which every step adds a tensor with its autograd graph: `total += loss`, `total = total + loss`, a
moving average, `totals[key] += loss`, `self.total += loss`. The total must outlive the loop, or the call of the
method.

If nothing shows what is called, as in a fragment (`total += criterion(model(batch), labels)` in a loop over `dataloader`), the names
decide: how often what is called so was a network or a loss, in code where its class is known. Such a finding is never of high
confidence and names what it assumes, and its help has the remedy for a training loop and that for an evaluation.

It does not report:

- a sum that is back-propagated itself, here or in a caller (several terms of one objective);
- a local variable of the step, if the step back-propagates all its terms together;
- numbers, indices and detached values;
- a loop over the parts of one network, such as its heads;
- code that runs with grad mode off, here or in all callers;
- a total that existed before the function ran (an attribute, an argument), unless the step's graph is visibly
  back-propagated: otherwise, code elsewhere may do that.

## What it costs
It depends on whether the step's graph is back-propagated:

- **Back-propagated**, before or after the addition (warning): the backward frees the saved tensors. The graph's nodes stay in host
  memory, and the total stays where it is. Measured on the CPU with a 6-layer transformer encoder: 0 bytes of
  activations, 465 nodes and 231 kB of host memory per step, about 0.5 kB per node. If the total is reset with each
  backward or update of the parameters, or the loop has at most 16 iterations, this is a note, because it keeps only a few steps.
  A value computed beside the loss (an entropy, a metric) also keeps what its own operations saved. Measured for the
  entropy of logits for 32 × 50,000 classes: 12.8 MB per step.
- **Not back-propagated** (error): the whole graph of every step stays. Measured for the same encoder in evaluation:
  19.0 MB per step.
- **Back-propagated with `retain_graph=True`** (error): the whole graph stays. Measured: 47.2 MB per training step. Where an iteration
  of the loop resets the total, the graphs stay until then (warning).

## Example
```python
import torch


def train(model, loader, criterion, optimizer):
    total = 0.0
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        total += loss
    print(total / len(loader))
```

Use instead:

```python
import torch


def train(model, loader, criterion, optimizer):
    total = 0.0
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(total / len(loader))
```

## Fix
Appends `.detach()` to the added term. There is no fix if the term may be a number, for example because a helper also
returns one. The fix is safe if the total is a local variable of which every read is visible and ends in a number or a text:
the results are identical, bit for bit. Otherwise it is unsafe: a total that reaches a backward in code that is not visible would no longer train the
model. The fix never writes `.item()`, which makes a number but waits for the device at each step.

## When to ignore
The total is back-propagated by code that the analysis cannot see, or the loop has so few steps that a few hundred
kilobytes of host memory per step do not matter.

## References
- PyTorch FAQ, "Don't accumulate history across your training loop":
  https://docs.pytorch.org/docs/stable/notes/faq.html
- torch.Tensor.detach: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Fix, Safety, Severity
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, short
from torchmemlint.rules.card import About, Advice, Correction, Shown
from torchmemlint.rules.evidence.named import facts_of_names
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.retention.claims import (
    Claim,
    claim,
    doubts_of,
    is_dropped_at_return,
    is_one_graph,
    price_of,
)
from torchmemlint.rules.retention.reads import with_reads
from torchmemlint.semantics.state import Accumulate, Backward, Kind, RecordFlag
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML101",
    name="graph-attached-running-total",
    summary="A running total keeps the autograd graph of every step it adds",
    severity=Severity.ERROR,
    typical=Severity.WARNING,
    about=About.GRAPH_KEPT,
    fix=Safety.SAFE,
    triggers=TORCH.words["back-propagates"] | TORCH.words["evaluation-words"],
    of_results=True,
    yields_to=frozenset({"TML201", "TML202", "TML203", "TML204"}),
    correction=Correction.DETACH,
    shown=frozenset({Shown.NO_BACKWARD}),
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)
EVENT = Accumulate


HELP = "add a detached value: `.detach()` keeps a tensor, `.item()` returns a number (and waits for the device)"
HELP_BOTH = f"if the loop trains, {HELP}; if it only evaluates, run it under `torch.no_grad()`"


def check(event: Accumulate, flow: Flow) -> Iterator[Draft | Fact]:
    if not flow.own(event.site):
        return
    claimed = kept(event, flow)
    if isinstance(claimed, Fact):
        yield claimed
        return
    outlives = "the loop" if event.loop is not None else "this call"
    priced = price_of(claimed, event, flow)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` accumulates tensors that are still attached to the autograd graph",
            severity=priced.severity,
            doubts=doubts_of(claimed, flow),
            label=f"added to `{short(event.place)}`, which outlives {outlives}",
            cost=priced.cost,
            help=HELP if trains(flow) else HELP_BOTH,
            flow=[flow.attached_at(claimed.gids)],
            fix=detach(event, claimed, flow),
        ),
        claimed.gids,
        event.site.handler,
    )


def trains(flow: Flow) -> bool:
    """Whether a backward is in sight."""
    return RecordFlag.BACKWARD in flow.record.flags


def kept(event: Accumulate, flow: Flow) -> Claim | Fact:
    """What the total keeps, or why that is no mistake."""
    if event.through_module:
        return Fact("a-state", "it is a state that goes through the module, not a total")
    if is_one_graph(flow, event):
        return Fact("one-forward-added", "all added values come from one forward before the loop")
    claimed = claim(flow, event.graphs, event.mark, event.holder_frame < 0, event.loop, total=True)
    if isinstance(claimed, Claim) and claimed.freed and is_term_of_one_step(event, flow):
        return Fact("terms-of-one-objective", "it adds up the terms of one objective, and ends with the call")
    return claimed


def is_term_of_one_step(event: Accumulate, flow: Flow) -> bool:
    """Whether a local adds up the terms of one objective, and dies with the call: no loop that it outlives back-propagates, so the
    terms go through one backward, behind them all, and their graphs live until then whatever the local does."""
    loops = flow.record.loops
    if not event.outlived or any(loops[loop].kind is Kind.LOADER for loop in event.outlived if loop in loops):
        return False
    backwards = [e for e in flow.record.events.values() if isinstance(e, Backward)]
    return is_dropped_at_return(event, flow) and not any(set(event.outlived) & set(e.site.loops) for e in backwards)


def detach(event: Accumulate, claimed: Claim, flow: Flow) -> Fix | NoFix | None:
    """``.detach()`` on the added term: safe where the term is a tensor for sure and the total is only looked at afterwards."""
    if event.term < 0:
        return None
    if facts_of_names(claimed.graphs, flow):
        return NoFix("the code does not show whether it trains or only evaluates")
    strict = not event.sure_tensor
    fix = flow.edits.append_to(event.site, event.term, ".detach()", "Detach the added tensor", Safety.UNSAFE, strict=strict)
    return with_reads(fix, event, flow)
