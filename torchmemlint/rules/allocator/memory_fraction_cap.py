"""The process's share of device memory is capped.

## What it does
Reports every use of `set_per_process_memory_fraction` that no other rule reports. Off by default: it is for projects that
want to review each of them.

## What it costs
Nothing, and it saves nothing: the call lowers the limit, not the memory that a step needs. Allocations above it fail even if
the device has room.

## Example
```python
import torch


def main(train):
    torch.cuda.set_per_process_memory_fraction(0.5)
    train()
```

Use instead:

```python
import torch


def main(train):
    train()
```

## Fix
None.

## When to ignore
Several processes share a device, and each gets its share. That is what the call is for.

## References
- torch.cuda.set_per_process_memory_fraction:
  https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.set_per_process_memory_fraction.html
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice
from torchmemlint.semantics.state import CallEffect
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

RULE = Rule(
    code="TML308",
    name="memory-fraction-cap",
    summary="The process's share of device memory is capped",
    severity=Severity.NOTE,
    about=About.ALLOCATOR,
    default=False,
    triggers=TORCH.words["memory-fractions"],
    yields_to=frozenset({"TML305", "TML306"}),
    advice=frozenset({Advice.LIMIT}),
)
EVENT = CallEffect


def check(event: CallEffect, flow: Flow) -> Iterator[Draft]:
    if (
        event.effect is not Effect.MEMORY_FRACTION
        or not flow.own(event.site)
        or event.site.handler >= 0
        or not flow.own_cap(event)
    ):
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{event.name}` lowers the limit, not the memory that a step needs",
            label="limits this process",
            cost="saves no memory; allocations above the limit fail even if the device has room",
            help="use it to share a device between processes; it does not help against out-of-memory errors",
        ),
        handler=event.site.handler,
    )
