"""The memory fraction is lowered as a remedy for an out-of-memory error.

## What it does
Reports `set_per_process_memory_fraction` in an exception handler or in a loop. It does not report a share that is set
once, or once for each device.

## What it costs
The call lowers the limit, not the memory that a step needs. Nothing is freed. Allocations above the limit fail even if the
device has room, so the next step fails earlier than the last one. CUDA measurements are still to come.

## Example
```python
import torch


def train(step, loader):
    for batch in loader:
        torch.cuda.set_per_process_memory_fraction(0.8)
        step(batch)
```

Use instead:

```python
import torch


def train(step, loader):
    for batch in loader:
        step(batch)
```

## Fix
None. Reduce the memory that a step needs: a smaller batch with gradient accumulation, `no_grad` where nothing trains,
mixed precision, checkpointing.

## When to ignore
The program changes its share on purpose, because other processes on the device come and go.

## References
- torch.cuda.set_per_process_memory_fraction:
  https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.set_per_process_memory_fraction.html
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice, Same
from torchmemlint.semantics.state import CallEffect
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

RULE = Rule(
    code="TML305",
    name="memory-fraction-as-remedy",
    summary="The memory fraction is lowered as a remedy for an out-of-memory error",
    severity=Severity.WARNING,
    about=About.ALLOCATOR,
    triggers=TORCH.words["memory-fractions"],
    explains=Same.STATEMENT,
    advice=frozenset({Advice.LIMIT}),
)
EVENT = CallEffect


def check(event: CallEffect, flow: Flow) -> Iterator[Draft]:
    if event.effect is not Effect.MEMORY_FRACTION or not flow.own(event.site):
        return
    if event.site.handler < 0 and flow.own_cap(event):
        return
    where = "in an exception handler" if event.site.handler >= 0 else "in a loop"
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{event.name}` {where} lowers the limit, not the memory that a step needs: the next step fails sooner",
            label="a limit saves no memory",
            cost="frees nothing; allocations above the limit fail even if the device has room",
            help="reduce what a step needs (smaller batch, `no_grad`, mixed precision, checkpointing); set a limit once, at the start, to share a device",
        ),
        handler=event.site.handler,
    )
