"""A tensor is stored at every step with its autograd graph.

## What it does
Reports a tensor that is stored with its autograd graph where it outlives the loop or the call: by `append`, `insert`,
`add`, `extend`, `stored[key] = value` with a changing key, in an attribute or a global, or by a comprehension over
batches.

It does not report:

- a key or name that is overwritten at each step, because only one graph is alive then;
- values that a later backward uses (log-probabilities, rewards, losses that are summed and back-propagated);
- numbers, indices and detached values;
- code that runs with grad mode off;
- a container that existed before the function ran (an attribute, an argument), unless the step's graph is visibly
  back-propagated: otherwise, code elsewhere may do that. A list that the constructor makes, and that nothing in the project
  reads or empties (attention maps that a module's forward appends), is reported all the same: it grows with every call.

## What it costs
The same as for TML101:

- If a backward goes through the step's graph (warning), the graph's nodes stay, and the stored tensor. Measured for a
  6-layer encoder: 231 kB of host memory per step. A value computed beside the loss (an entropy, a metric) also keeps
  what its own operations saved. Measured for the entropy of logits for 32 × 50,000 classes: 12.8 MB per step.
- If no backward does, or with `retain_graph=True` (error), the whole graph stays. Measured: 19.0 MB per evaluation
  step, 47.2 MB per training step.
- If the loop has few iterations (at most 16, or 3 for whole graphs), or the container lives for only one batch or one
  update of the parameters, little stays (note).

## Example
```python
import torch


def train(model, loader, criterion, optimizer):
    history = []
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        history.append(loss)
    return [float(loss) for loss in history]
```

Use instead:

```python
import torch


def train(model, loader, criterion, optimizer):
    history = []
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        history.append(loss.detach())
    return [float(loss) for loss in history]
```

## Fix
Appends `.detach()` to the stored value. Safe where the container is a local variable of which every read is visible and ends in a number
or a text; otherwise unsafe, because code that reads the container later may need the graph. There is
no fix

- if the value is not known to be a tensor on every path, or it, or an element of the container, is read by key, unpacked, or used in a
  way that no tensor supports;
- for `extend` and comprehensions, which store no single expression.

## When to ignore
The stored value is back-propagated later, by code that the analysis cannot see.

## References
- PyTorch FAQ, "Don't hold onto tensors and variables you don't need":
  https://docs.pytorch.org/docs/stable/notes/faq.html
- torch.Tensor.detach: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Fix, Safety, Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, short
from torchmemlint.rules.card import About, Advice, Correction, Shown
from torchmemlint.rules.evidence.kept_attributes import collecting_attribute
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.retention.claims import (
    Claim,
    claim,
    doubts_of,
    is_computed,
    is_one_graph,
    is_replaced,
    price_of,
)
from torchmemlint.rules.retention.reads import with_reads
from torchmemlint.semantics.dataflow import is_only_filled
from torchmemlint.semantics.interpret import RECORDED
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import Store, StoreKind
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML102",
    name="graph-attached-tensor-stored",
    summary="A tensor is stored at every step with its autograd graph",
    severity=Severity.ERROR,
    typical=Severity.WARNING,
    about=About.GRAPH_KEPT,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["back-propagates"] | TORCH.words["evaluation-words"],
    of_results=True,
    yields_to=frozenset({"TML201", "TML202", "TML203", "TML204"}),
    correction=Correction.DETACH,
    shown=frozenset({Shown.NO_BACKWARD}),
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)

EVENT = Store


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """Whether a function, which need not train anything, adds to a list of its object that nothing reads or empties."""
    if not facts.owner or facts.names.isdisjoint(TORCH.words["fills-lists"]):
        return False
    parts = [call.callee.split(".") for call in facts.calls]
    names = {
        name
        for me, name, how in (part for part in parts if len(part) == 3)
        if me == "self" and how in TORCH.words["fills-lists"]
    }
    return any(is_only_filled(runs.world, ClassRef(ref.path, facts.owner), name) for name in sorted(names))


def kept(event: Store, flow: Flow) -> Claim | Fact:
    """What the stored value keeps, or why that is no mistake."""
    if is_one_graph(flow, event):
        return Fact("one-forward-stored", "all stored values come from one forward before the loop")
    attribute = collecting_attribute(event, flow) if event.how in GROWS else None
    return is_replaced(flow, event) or claim(
        flow, event.graphs, event.mark, event.external, event.loop, event.outlived, attribute=attribute
    )


GROWS = frozenset({StoreKind.APPEND, StoreKind.EXTEND, StoreKind.INSERT})
"""Ways to put a value beside those that are there."""


def check(event: Store, flow: Flow) -> Iterator[Draft | Fact]:
    if event.how == RECORDED or not flow.own(event.site):
        return
    claimed = kept(event, flow)
    if isinstance(claimed, Fact):
        yield claimed
        return
    outlives = "the loop" if event.loop is not None else "this call"
    fix: Fix | NoFix | None = None
    if event.how not in ("extend", "comprehension") and event.value >= 0:
        fix = NoFix()
        if event.sure_tensor:
            sure, message = is_computed(event), "Detach the stored tensor"
            fix = flow.edits.append_to(
                event.site, event.value, ".detach()", message, Safety.UNSAFE, sure=sure, container=event.place
            )
    priced = price_of(claimed, event, flow)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` collects tensors that are still attached to the autograd graph",
            severity=priced.severity,
            doubts=doubts_of(claimed, flow),
            label=f"stored in `{short(event.place)}`, which outlives {outlives}",
            cost=priced.cost,
            help="store a detached value: `.detach()` keeps a tensor, `.item()` returns a number (and waits for the device)",
            flow=[flow.attached_at(claimed.gids)],
            fix=with_reads(fix, event, flow),
        ),
        claimed.gids,
        event.site.handler,
    )
