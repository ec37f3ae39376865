"""The cache is emptied to cure an out-of-memory error, while the tensors that fill the memory are still referenced.

## What it does
Reports `empty_cache()` in an out-of-memory handler that raises again: the tensors that fill the memory are still
referenced. TML303 reports handlers that continue.

## What it costs
The call has no effect. PyTorch returns every unused block to the driver before it raises the error, and inside the handler
the exception keeps the tensors of the failed step alive.

## Example
```python
import torch


def step(model, batch):
    try:
        return model(batch).sum().backward()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        raise
```

Use instead:

```python
import torch


def step(model, batch):
    return model(batch).sum().backward()
```

## Fix
None.

## When to ignore
The process continues without the device after the error, and another process needs it.

## References
- PyTorch FAQ, "My out of memory exception handler can't allocate memory":
  https://docs.pytorch.org/docs/stable/notes/faq.html
- torch.cuda.empty_cache: https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About
from torchmemlint.semantics.state import OomHandler
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML302",
    name="empty-cache-with-live-tensors",
    summary="The cache is emptied to cure an out-of-memory error, while the tensors that fill the memory are still referenced",
    severity=Severity.WARNING,
    about=About.ALLOCATOR,
    triggers=TORCH.words["empties-cache"],
    yields_to=frozenset({"TML303"}),
)

EVENT = OomHandler


def check(event: OomHandler, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site) or not event.reraises:
        return
    for node, what in event.recovery:
        if what == "empty_cache":
            yield Draft(
                flow.at(
                    RULE,
                    event.site,
                    "`empty_cache()` in an out-of-memory handler frees no tensor: the tensors that fill the memory are still referenced",
                    node=node,
                    label="returns only unused cached blocks",
                    cost="frees no tensor; the exception keeps the failed step's tensors alive",
                    help="remove it: the allocator has already returned its unused blocks before it raised",
                ),
                handler=event.site.node,
            )
            return
