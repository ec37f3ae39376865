"""Attention is written out, and materializes the scores of all pairs of positions.

## What it does
Reports the last product of `softmax(q @ k.transpose(-2, -1)) @ v`, also with `matmul`, `bmm`, `einsum`, `nn.Softmax`, and
with masks, dropout and scaling. Off by default, because the rewrite only pays for long sequences.

It does not report:

- attention whose weights are returned or kept;
- keys that are a parameter: the number of scores is the number of codes, not of positions;
- a class that also calls `scaled_dot_product_attention`: this is its alternative;
- a softmax over the queries;
- projects whose `target-torch` is below 2.0, which has no `scaled_dot_product_attention`.

## What it costs
Memory grows with the square of the sequence length, for each head and sample: the scores, their softmax and intermediate
results are kept for the backward. Measured on the CPU: one sample, 4 heads of width 32, peak of forward and backward in MB:

| positions | written out | `scaled_dot_product_attention` |
|---|---|---|
| 256 | 3.4 | 0.66 |
| 512 | 13.1 | 1.3 |
| 1,024 | 51.4 | 2.6 |
| 2,048 | 203 | 5.2 |

With grad mode off, the scores still exist twice at the peak. On the CPU, `scaled_dot_product_attention` also materializes
its scores if `dropout_p` is above zero (204 MB at 2,048); the flash and memory-efficient kernels of CUDA do not (from the
documentation, not measured). `nn.MultiheadAttention` materializes them if it returns weights, which is its default: 207 MB
instead of 10.6 MB with `need_weights=False`.

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
None: scale, mask (True means that a position takes part) and dropout must be transferred by hand.

## When to ignore
Sequences are short. Or the scores are not between positions but between channels or the items of a memory, which this rule
cannot detect: four of 38 findings in real packages were of this kind. Or the code changes the scores in a way that an additive
mask cannot express.

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
from torchmemlint.semantics.state import Attention, Mode, RecordFlag
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML504",
    name="attention-materialized",
    summary="Attention is written out, and materializes the scores of all pairs of positions",
    severity=Severity.NOTE,
    about=About.FOOTPRINT,
    default=False,
    triggers=TORCH.words["softmax"],
    root_words=TORCH.words["softmax"],
    advice=frozenset({Advice.CHECKPOINTING, Advice.SHAPES, Advice.FUSED_ATTENTION}),
)
EVENT = Attention


def check(event: Attention, flow: Flow) -> Iterator[Draft]:
    target = flow.runs.world.settings.target_torch
    if not flow.own(event.site) or RecordFlag.WEIGHTS_KEPT in flow.record.flags or (target is not None and target < (2, 0)):
        return
    if flow.class_says(event.site, frozenset({TORCH.names["fused-attention"]})):
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            "attention is written out: its scores need memory quadratic in the sequence length",
            label="softmax of scores, times values",
            cost="the scores of every position against every other, several times"
            + ("" if event.mode is Mode.OFF else ", kept for the backward")
            + " (203 MB instead of 5 MB at 2,048 positions, 4 heads)",
            help="`torch.nn.functional.scaled_dot_product_attention(q, k, v)` never materializes all of them",
        ),
        handler=event.site.handler,
    )
