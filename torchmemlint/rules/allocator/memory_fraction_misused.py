"""A memory fraction is invalid, or set too late.

## What it does
Reports a call of `set_per_process_memory_fraction` that fails or comes too late:

- an int for CUDA, which requires a float and raises TypeError (error);
- a number outside 0 to 1, or 0 to 2 for MPS, which raises ValueError (error);
- a limit that is set after a model has already run (warning).

## What it costs
The program raises, or the limit does not apply to memory that is already allocated.

## Example
```python
import torch


def share_the_device():
    torch.cuda.set_per_process_memory_fraction(80)
```

Use instead:

```python
import torch


def share_the_device():
    torch.cuda.set_per_process_memory_fraction(0.8)
```

## Fix
None: 80 may mean 0.8 or 80 GB.

## When to ignore
Never for a value that raises.

## References
- torch.cuda.set_per_process_memory_fraction:
  https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.set_per_process_memory_fraction.html
- torch.mps.set_per_process_memory_fraction:
  https://docs.pytorch.org/docs/stable/generated/torch.mps.set_per_process_memory_fraction.html
- read: the checks are those of torch 2.13.0, `torch/cuda/memory.py` and `torch/mps/__init__.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule, argument
from torchmemlint.rules.card import About, Advice, Same
from torchmemlint.semantics.state import CallEffect, only_const
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

RULE = Rule(
    code="TML306",
    name="memory-fraction-misused",
    summary="A memory fraction is invalid, or set too late",
    severity=Severity.ERROR,
    about=About.ALLOCATOR,
    triggers=TORCH.words["memory-fractions"],
    explains=Same.STATEMENT,
    advice=frozenset({Advice.LIMIT}),
)
EVENT = CallEffect


def check(event: CallEffect, flow: Flow) -> Iterator[Draft]:
    if event.effect is not Effect.MEMORY_FRACTION or not flow.own(event.site) or event.site.handler >= 0:
        return
    value = argument(event, 0, "fraction")
    single = only_const(value) if value is not None else None
    mps = ".mps." in event.name
    problem = None
    severity = Severity.ERROR
    if single is not None and isinstance(single.value, (int, float)) and not isinstance(single.value, bool):
        number = single.value
        top = 2 if mps else 1
        if isinstance(number, int) and not mps and ".cuda." in event.name:
            problem = f"`{number}` is an int: the call takes a float and raises TypeError"
        elif not 0 <= number <= top:
            problem = f"`{number}` is outside the valid range 0…{top}: the call raises ValueError"
    if problem is None and event.after_forward:
        problem, severity = "the fraction is set after a model has already run on the device", Severity.WARNING
    if problem is None:
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            problem,
            severity=severity,
            label="not a valid use",
            cost="the limit does not apply as intended",
            help="pass a float in [0, 1] (MPS: up to 2), before the first use of the device",
        ),
        handler=event.site.handler,
    )
