"""A helper deletes its own name of an object and empties the cache, while its caller still holds the object.

## What it does
Reports `del` of a parameter, or of what a loop takes out of one, in a function that then empties the cache, where a caller's name
still refers to the object and the program goes on to need memory: `del` removes one name, and an object is freed with its last.

It does not report:

- helpers that do more with the object: move it to the host, shut it down, take it out of a container;
- callers that delete the name or bind it to `None` afterwards, that use the object again, or that end there;
- callers that hand over what no name holds, or what was handed to them;
- helpers that nothing visible calls.

## What it costs
The object stays until its last name is gone; of a model, all its weights: measured, 4.2 MB of a layer of 4.2 MB stay after the helper,
and 0 bytes if the caller deletes its name before. In a loop that loads one model after the other, the peak is two models.

## Example
```python
import gc

import torch


def free(model):
    del model
    gc.collect()
    torch.cuda.empty_cache()


def compare(load, evaluate, names):
    for name in names:
        model = load(name).cuda()
        evaluate(model)
        free(model)
```

Use instead:

```python
import gc

import torch


def free():
    gc.collect()
    torch.cuda.empty_cache()


def compare(load, evaluate, names):
    for name in names:
        model = load(name).cuda()
        evaluate(model)
        del model
        free()
```

## Fix
None: which names of the callers go is theirs to say.

## When to ignore
The object is small, or is to be kept.

## References
- Python's `del` statement removes a name: https://docs.python.org/3/reference/simple_stmts.html#the-del-statement
- the same mistake in a library's helper: https://github.com/huggingface/diffusers/pull/9543
- torch.cuda.empty_cache: https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html
- measured: torch 2.13.0 on the CPU; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import FlowStep, Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.dataflow import deleted, held
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import CallEffect
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

RULE = Rule(
    code="TML309",
    name="argument-deleted-by-helper",
    summary="A helper deletes its own name of an object and empties the cache, while its caller still holds the object",
    severity=Severity.WARNING,
    about=About.ALLOCATOR,
    triggers=TORCH.words["empties-cache"],
)
EVENT = CallEffect


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """A helper that empties the cache, and deletes what it was given."""
    return not facts.names.isdisjoint(TORCH.words["empties-cache"]) and deleted(runs.world, ref) is not None


def check(event: CallEffect, flow: Flow) -> Iterator[Draft | Fact]:
    if event.effect is not Effect.EMPTY_CACHE or not flow.own(event.site):
        return
    world, ref = flow.runs.world, flow.record.root
    gone = deleted(world, ref)
    if gone is None or gone.node > event.site.node:
        return
    holder = held(world, ref, gone)
    if holder is None:
        yield Fact("no-name-left", "no caller visibly holds what it deletes while memory is needed")
        return
    names = " and ".join(f"`{name}`" for name in holder.names)
    span = world.lowered(holder.caller.path, holder.caller.qualname).span(holder.node)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`del {gone.name}` removes only this function's name: the caller's {names} still {'refers' if len(holder.names) == 1 else 'refer'}"
            f" to what is to be freed (line {span.start.row})",
            node=gone.node,
            label="frees nothing",
            cost="what is passed stays allocated, and `empty_cache()` returns nothing of it",
            help=f"delete the caller's own names (`del {', '.join(holder.names)}`), and then collect and empty the cache",
            flow=[FlowStep(holder.caller.path, span, "still holds it")],
        ),
        handler=event.site.handler,
    )
