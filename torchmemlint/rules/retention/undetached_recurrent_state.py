"""A recurrent state is carried to the next step without being detached.

## What it does
Reports a hidden state, a memory or a buffer that goes through a module in each step of a loop, is carried to the next
step without being detached, and belongs to a graph that is back-propagated inside the loop.

It does not report:

- a state that is reset in each outer step and back-propagated once, after the inner loop: that is back-propagation
  through time;
- a state that is detached under the very test for which the backward waits: truncated back-propagation through time;
- steps that are back-propagated with `retain_graph=True` and summed for a later backward through all of them, as when a
  learned optimizer is trained.

## What it costs
- With a plain `backward()`, the second step reaches the freed graph of the first and raises
  `RuntimeError: Trying to backward through the graph a second time`.
- With `retain_graph=True` and an optimizer step between, the second step fails as well ("modified by an inplace
  operation").
- With `retain_graph=True` and no optimizer step between, the graphs of all earlier steps stay alive and are traversed again.
  Measured for an LSTM on the CPU: 2.2 MB more per step, and 6.7 ms for the first steps against 34.7 ms for the 23rd.

## Example
```python
import torch
from torch import nn


def train(cell: nn.GRUCell, readout: nn.Linear, chunks, criterion, optimizer):
    hidden = torch.zeros(4, 32)
    for inputs, targets in chunks:
        hidden = cell(inputs, hidden)
        loss = criterion(readout(hidden), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

Use instead:

```python
import torch
from torch import nn


def train(cell: nn.GRUCell, readout: nn.Linear, chunks, criterion, optimizer):
    hidden = torch.zeros(4, 32)
    for inputs, targets in chunks:
        hidden = cell(inputs, hidden.detach())
        loss = criterion(readout(hidden), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Fix
None: the place of the `detach()` decides how far back gradients reach, which is a choice about training.

## When to ignore
Gradients are meant to reach earlier steps, and the loop is short enough for the memory.

## References
- PyTorch FAQ, "Don't run RNNs on sequences that are too large": https://docs.pytorch.org/docs/stable/notes/faq.html
- torch.Tensor.backward: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.card import About, Advice, Correction, Shown
from torchmemlint.rules.evidence.module_evidence import DETACHES
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.retention.claims import is_detached_in_place
from torchmemlint.semantics.state import Accumulate, Backward, CallEffect
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName

RULE = Rule(
    code="TML104",
    name="undetached-recurrent-state",
    summary="A recurrent state is carried to the next step without being detached",
    severity=Severity.ERROR,
    about=About.GRAPH_KEPT,
    fix=Safety.NONE,
    triggers=TORCH.words["back-propagates"],
    of_results=True,
    yields_to=frozenset({"TML201", "TML202", "TML203"}),
    correction=Correction.DETACH_STATE,
    shown=frozenset({Shown.SECOND_STEP}),
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)
EVENT = Accumulate
AGAIN = "the second step back-propagates through the freed graph of the first: RuntimeError"
CHANGED = (
    "the second step back-propagates through the graph of the first as well, for which the optimizer has changed the weights in place: "
    "RuntimeError, in spite of `retain_graph=True`"
)
GROWS = "the graph of every earlier step stays alive and is traversed again: memory and time grow with each step"


def check(event: Accumulate, flow: Flow) -> Iterator[Draft | Fact]:
    if not event.through_module or event.loop is None or not flow.own(event.site):
        return
    record = flow.record
    graphs = flow.real(event.graphs)
    if not graphs:
        yield Fact("state-without-graph", "the state may not have a graph")
        return
    if is_detached_in_place(flow, event.mark):
        yield Fact("detached-in-place", "`detach_()` detaches it in every iteration")
        return
    if event.key not in record.reused:
        yield Fact("state-not-chained", "its graph does not include an earlier back-propagated iteration")
        return
    gids = frozenset(g.gid for g in graphs)
    inside = [
        e
        for e in record.events.values()
        if isinstance(e, Backward) and event.loop in e.site.loops and record.ancestors(e.graphs | e.hints) & gids
    ]
    if not inside:
        yield Fact("state-not-trained", "no backward in the loop goes through the state's graph")
        return
    if all(is_met_by_a_detach(e, gids, flow) for e in inside):
        yield Fact("detached-with-the-backward", "where its graph is back-propagated now and then, it is detached as well")
        return
    retained = all(e.retain for e in inside)
    if retained and is_summed_for_later(flow, event, gids):
        yield Fact("losses-summed", "the losses of all steps are summed, and the sum may be back-propagated")
        return
    cost = AGAIN
    if retained:
        cost = CHANGED if any(is_step(e, event.loop) for e in record.events.values()) else GROWS
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


def is_met_by_a_detach(backward: Backward, gids: frozenset[int], flow: Flow) -> bool:
    """Whether a backward that waits for a test has a detach of the state under the same test: truncated back-propagation through time."""
    tests = set(backward.site.guards)
    sinks = (sink for gid in sorted(gids) for sink in flow.record.sinks.get(gid, ()))
    return bool(tests) and any(sink.how in DETACHES and tests <= set(sink.site.guards) for sink in sinks)


def is_step(event: object, loop: tuple[int, int]) -> bool:
    """Whether an optimizer steps in a loop."""
    return isinstance(event, CallEffect) and event.effect is CallByName.OPTIMIZER_STEP and loop in event.site.loops


def is_summed_for_later(flow: Flow, event: Accumulate, gids: frozenset[int]) -> bool:
    """Whether what is attached to the state's graph is summed over the loop's iterations, and the sum is not only looked at:
    then a backward through all steps is what the graphs are kept for."""
    record = flow.record
    for other in record.events.values():
        if not isinstance(other, Accumulate) or other.key == event.key or event.loop not in other.outlived:
            continue
        if not gids & record.ancestors(other.graphs | other.hints):
            continue
        fate = flow.runs.fate(record, other.mark)
        if fate.trains or fate.escapes or fate.kept or fate.passed:
            return True
    return False
