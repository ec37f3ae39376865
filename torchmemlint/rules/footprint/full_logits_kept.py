"""Logits are computed for every position, but only the last position's are used.

## What it does
Reports `outputs.logits[:, -1]` if the logits have no other use: the head of the language model has already computed every
word for every position. Off by default, because it only matters for long prompts and large vocabularies.

It does not report:

- logits of which other positions are used, too (a loss, `argmax` over all);
- calls that limit the positions (`logits_to_keep`, `num_logits_to_keep`).

## What it costs
Positions × vocabulary for each sample, and twice that in addition if the logits are cast to float32. Measured on the CPU: a
bfloat16 head of 32,000 words, a batch of 2, peak in MB:

| positions | all, cast to float32 | all | last only |
|---|---|---|---|
| 128 | 49 | 17 | 0.4 |
| 512 | 197 | 66 | 0.4 |
| 2,048 | 787 | 263 | 0.4 |

With a key-value cache, only the first call, over the prompt, computes more than one position.

## Example
```python
import torch


@torch.no_grad()
def next_token(model, ids):
    outputs = model(input_ids=ids)
    return outputs.logits[:, -1].argmax(-1)
```

Use instead:

```python
import torch


@torch.no_grad()
def next_token(model, ids):
    outputs = model(input_ids=ids, logits_to_keep=1)
    return outputs.logits[:, -1].argmax(-1)
```

## Fix
None: the name of the argument depends on the version of transformers (`num_logits_to_keep` in 4.45 to 4.49,
`logits_to_keep` later), and not every model has it. In your own model, slice the input of the head.

## When to ignore
Prompts are short, or each call adds only one token.

## References
- transformers, `logits_to_keep`: https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaForCausalLM.forward
- measured: torch 2.13.0 on the CPU, see benchmarks/evidence/records; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice
from torchmemlint.semantics.state import LastLogits, RecordFlag
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML508",
    name="full-logits-kept",
    summary="Logits are computed for every position, but only the last position's are used",
    severity=Severity.NOTE,
    about=About.FOOTPRINT,
    default=False,
    triggers=TORCH.words["logits"],
    root_words=TORCH.words["logits"],
    advice=frozenset({Advice.CHECKPOINTING, Advice.SHAPES}),
)

EVENT = LastLogits


def check(event: LastLogits, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site) or RecordFlag.LOGITS_USED in flow.record.flags:
        return
    if flow.passes_keyword(event.site, frozenset({"logits_to_keep", "num_logits_to_keep"})):
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            "logits are computed for every position, but only the last position's are used",
            label="only one position is used",
            cost="positions × vocabulary for each sample: 263 MB instead of 0.4 MB (2,048 positions, 32,000 words, batch of 2)",
            help="let the model compute only the last one: `logits_to_keep=1` in transformers",
        ),
        handler=event.site.handler,
    )
