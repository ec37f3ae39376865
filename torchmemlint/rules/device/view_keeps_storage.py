"""A small view of a large output is stored, and keeps the whole output alive.

## What it does
Reports a slice of a model's output that is kept for each step of a loop: `hidden[:, 0]`, or what `select`, `narrow` or
`diagonal` gives. Such a slice is a view: it shares the storage of the whole tensor, which stays allocated, also with
`no_grad` or `detach()`.

It does not report

- copies: `.clone()`, indexing with a list or a mask, `stack`, `cat`;
- a part of the batch alone (`out[-1]`), and a piece of `split` or `chunk`: the other pieces may be kept, too;
- a slice beside which the step keeps another part of the same output;
- slices of the pieces of one item: the loop must go over the batches of a data set, or move something to the device in each turn.

## What it costs
Each stored slice keeps the whole output. Measured on the CPU, under `no_grad`: 262,144 bytes per batch for `hidden[:, 0]`
of 64 positions, 4,096 bytes with `.clone()`; in other cases 64 to 4,096 times the slice. `deepcopy`, `pickle` and
`torch.save` of the view include the whole storage. From a GPU, `.cpu()` copies only the slice (from the documentation, not
measured).

## Example
```python
import torch
from torch import nn


@torch.no_grad()
def embed(model: nn.Module, batches):
    vectors = []
    for batch in batches:
        hidden = model(batch)
        vectors.append(hidden[:, 0])
    return vectors
```

Use instead:

```python
import torch
from torch import nn


@torch.no_grad()
def embed(model: nn.Module, batches):
    vectors = []
    for batch in batches:
        hidden = model(batch)
        vectors.append(hidden[:, 0].clone())
    return vectors
```

## Fix
Appends `.clone()` to the stored slice. Unsafe: a later write to the slice would no longer change the whole tensor.

## When to ignore
The slice is nearly as large as the whole tensor, or the whole tensor is kept anyway.

## References
- Tensor views: https://docs.pytorch.org/docs/stable/tensor_view.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.card import About, Advice, Correction, Same
from torchmemlint.rules.device.outputs_accumulated_on_device import is_no_data_set
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.mode import reaches_network, stores_in_loop
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import VIEW, Store, StoreKind
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML402",
    name="view-keeps-storage",
    summary="A small view of a large output is stored, and keeps the whole output alive",
    severity=Severity.WARNING,
    about=About.RESULTS_KEPT,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["fills-lists"] | TORCH.words["grad-guards"],
    of_results=True,
    explains=Same.STATEMENT,
    correction=Correction.CLONE,
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)

EVENT = Store


def may_find(ref: FunctionRef, runs: Runs) -> bool:
    return stores_in_loop(runs.world, ref) and (runs.world.hook(ref) is not None or reaches_network(runs.world, ref))


def check(event: Store, flow: Flow) -> Iterator[Draft | Fact]:
    record = flow.record
    forwards = [record.forwards[g] for g in sorted(event.outputs) if g in record.forwards]
    if not forwards or not event.flags & VIEW or event.constant_key or event.loop is None or not flow.own(event.site):
        return
    if is_rest_kept(event, flow):
        yield Fact("rest-is-kept", "another part of the same output is kept as well")
        return
    info = record.loops.get(event.loop)
    silent = is_no_data_set(event, info, flow) if info is not None else None
    if silent is not None:
        yield silent
        return
    fix = None
    if event.how == StoreKind.APPEND and event.value >= 0 and event.sure_tensor:
        fix = flow.edits.append_to(
            event.site, event.value, ".clone()", "Copy the slice", Safety.UNSAFE, sure=True, container=event.place
        )
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` keeps a view: each stored slice keeps the whole output allocated",
            label="a slice shares the storage of the whole tensor",
            cost="keeps the whole output for each slice (measured: 64 to 4096 times the slice)",
            help="store a copy of the slice: `.clone()`",
            flow=[flow.step_of(forwards[0], "the whole output is created here")],
            fix=fix,
        ),
        frozenset(event.outputs),
        event.site.handler,
    )


def is_rest_kept(event: Store, flow: Flow) -> bool:
    """Whether the same turn of the loop keeps another part of the same output, or all of it."""
    others = (each for each in flow.record.events.values() if isinstance(each, Store) and each.site.key != event.site.key)
    return any(each.loop == event.loop and not each.outputs.isdisjoint(event.outputs) for each in others)
