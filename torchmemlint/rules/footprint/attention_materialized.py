"""Attention is written out, and materializes the scores of all pairs of positions.

## What it does
Reports the last product of `softmax(q @ k.transpose(-2, -1)) @ v`, in any of its spellings (`matmul`, `bmm`, `einsum`,
`nn.Softmax`, masks, dropout and scaling between). Off by default: it is a rewrite that is worth it for long sequences.

It reports nothing:

- where the weights themselves are returned or kept;
- where the keys are a parameter (as many scores as there are codes, not positions);
- where the class also calls `scaled_dot_product_attention` (this is its other branch);
- where the softmax is over the queries;
- where `target-torch` is below 2.0, which has no `scaled_dot_product_attention`.

## What it costs
Memory by the square of the sequence length, for each head and sample: the scores, their softmax and what lies between
are kept for the backward. Measured on the CPU, one sample of 4 heads of width 32, peak of forward and backward in MB:

| positions | written out | `scaled_dot_product_attention` |
|---|---|---|
| 256 | 3.4 | 0.66 |
| 512 | 13.1 | 1.3 |
| 1,024 | 51.4 | 2.6 |
| 2,048 | 203 | 5.2 |

Without grad mode the scores still lie there twice at the peak. On the CPU a `dropout_p` above zero makes the function
write its scores out as well (204 MB at 2,048); the flash and memory-efficient kernels of CUDA do not (from the documentation,
not measured). `nn.MultiheadAttention` writes them out when it has to return weights, which is its default:
207 MB against 10.6 with `need_weights=False`.

## Example
```python
import torch


def attend(q, k, v):
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    return torch.softmax(scores, dim=-1) @ v
```

Use instead:

```python
import torch.nn.functional as F


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)
```

## Fix
None is written: scale, mask (True means "take part" there) and dropout have to be carried over by hand.

## When to ignore
Sequences are short; or the scores are not of positions (of channels, of the items of a memory), which this rule cannot
see: of 38 findings read in real packages four were such. Or something is done to the scores that a mask which is added
cannot express.

## References
- torch.nn.functional.scaled_dot_product_attention:
  https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
- measured: torch 2.13.0 on the CPU, see benchmarks/evidence/records; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice
from torchmemlint.semantics.event_words import RecordFlag
from torchmemlint.semantics.events import Attention
from torchmemlint.semantics.state import Mode
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML504",
    name="attention-materialized",
    summary="Attention is written out, and materializes the scores of all pairs of positions",
    severity=Severity.NOTE,
    about=About.FOOTPRINT,
    default=False,
    triggers=TORCH.words["softmax"],
    roots=TORCH.words["softmax"],
    advice=frozenset({Advice.CHECKPOINTING, Advice.SHAPES, Advice.FUSED_ATTENTION}),
)
EVENT = Attention


def check(event: Attention, flow: Flow) -> Iterator[Draft]:
    target = flow.runs.world.settings.target_torch
    if not flow.own(event.site) or RecordFlag.WEIGHTS_KEPT in flow.record.flags or (target is not None and target < (2, 0)):
        return
    if flow.class_says(event.site, frozenset({"scaled_dot_product_attention"})):
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            "attention is written out: its scores need memory quadratic in the sequence length",
            label="softmax of scores, times values",
            cost="the scores of every position against every other, several times"
            + ("" if event.mode is Mode.OFF else ", kept for the backward")
            + " (203 MB against 5 MB at 2,048 positions, 4 heads)",
            help="`torch.nn.functional.scaled_dot_product_attention(q, k, v)` never materializes all of them",
        ),
        handler=event.site.handler,
    )
