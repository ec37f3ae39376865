"""A model is trained on a GPU in full precision, and nothing in the project uses a smaller type.

## What it does
Reports the first forward of a training loop on a CUDA device (a backward and an optimizer's step, with the model or its
input moved there), if no function of the project uses `autocast`, `bfloat16`, `float16`, `half`, gradient scaling, TF32
(`allow_tf32`, `set_float32_matmul_precision`) or a framework's `precision`, `mixed_precision`, `fp16` or `bf16`. Off by
default, because full precision may be intended.

## What it costs
Activations are larger in float32 than in bfloat16. Measured on the CPU: activations kept for the backward, and peak of a
training step, under bfloat16 `autocast` relative to float32:

| model | activations | peak |
|---|---|---|
| encoder, 6 layers | 0.70 | 0.73 |
| convnet | 0.51 | 0.51 |
| LSTM | 0.71 | 0.75 |

It is not half, because autocast keeps copies of the weights and leaves some operations in float32. If the weights are larger
than the activations, autocast needs more memory: 1.4 to 3.9 times with a single wide layer and a small batch. TF32 changes
time, not memory.

## Example
```python
import torch
import torch.nn.functional as F


def train(model, loader):
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

Use instead:

```python
import torch
import torch.nn.functional as F


def train(model, loader):
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Fix
None: another type changes the results, and float16 also needs a `GradScaler`.

## When to ignore
The device is not faster with smaller types, the model is unstable with them, or memory and time do not matter.

## References
- Automatic mixed precision: https://docs.pytorch.org/docs/stable/amp.html
- Numerical accuracy, TF32: https://docs.pytorch.org/docs/stable/notes/cuda.html#tf32-on-ampere
- measured: torch 2.13.0 on the CPU, see benchmarks/evidence/records; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice
from torchmemlint.semantics.state import Backward, CallEffect, GraphKind, Site
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName

RULE = Rule(
    code="TML502",
    name="full-precision-training",
    summary="A model is trained on a GPU in full precision, and nothing in the project uses a smaller type",
    severity=Severity.NOTE,
    about=About.FOOTPRINT,
    default=False,
    triggers=TORCH.words["backward"],
    advice=frozenset({Advice.PRECISION}),
)
EVENT = Backward

SMALLER = TORCH.words["smaller-types"]
"""What code says that takes a smaller type, or lets a framework take one."""


def check(event: Backward, flow: Flow) -> Iterator[Draft]:
    record = flow.record
    if not flow.own(event.site) or not event.site.loops or event.partial or not flow.on_cuda():
        return
    if not any(isinstance(e, CallEffect) and e.effect is CallByName.OPTIMIZER_STEP for e in record.events.values()):
        return
    if flow.names_anywhere(SMALLER):
        return
    sites = [
        record.graphs[g].site
        for g in record.trained
        if g in record.graphs and record.graphs[g].site.loops and flow.own(record.graphs[g].site)
        and (record.graphs[g].kind is GraphKind.FORWARD or record.graphs[g].direct)
    ]  # fmt: skip
    if not sites or event.site != min(steps(flow), key=lambda site: flow.span(site)):
        return
    yield Draft(
        flow.at(
            RULE,
            min(sites, key=lambda site: flow.span(site)),
            "a model is trained on a GPU in full precision",
            label="float32 activations, and no smaller type anywhere in the project",
            cost="activations in bfloat16 took 0.51 to 0.71 of those in float32 (more if the weights are larger)",
            help='run the forward and the loss under `torch.autocast("cuda", dtype=torch.bfloat16)`',
            flow=[flow.step(event.site, "back-propagated here")],
        ),
        handler=event.site.handler,
    )


def steps(flow: Flow) -> list[Site]:
    """The backwards of the function's loops."""
    return [e.site for e in flow.record.events.values() if isinstance(e, Backward) and e.site.loops and flow.own(e.site)]
