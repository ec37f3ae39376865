"""A tensor is set on the context of an autograd.Function.

## What it does
Reports `ctx.name = tensor` in the `forward` or `setup_context` of a `torch.autograd.Function`, also for a tuple or list
of tensors. Use `ctx.save_for_backward` instead. The message says whether the tensor is an output.

It does not report:

- sizes, dtypes, numbers and options;
- the state of a random number generator;
- scalars and tensors without elements;
- results of an extension, about which nothing is known.

## What it costs
`backward()` frees the tensors of `save_for_backward`, and outputs saved there form no cycle. An attribute of `ctx` lives
as long as the graph's node. Measured with a tensor of 4.0 MB:

- an output (warning): the node refers to the tensor, and the tensor to the node. 4.0 MB per step stay until Python's
  cyclic garbage collector runs, even if the loss is dropped;
- an input or another tensor (note): a peak of 12.0 MB instead of 8.0 MB in one step, because the tensor outlives the
  backward. If the loss is kept, 4.0 MB per loss instead of 4 bytes.

Saved-tensor hooks (such as offloading to the CPU), the check for in-place changes, and double backward do not work for
such a tensor either.

## Example
```python
import torch


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.result = result
        return result

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.result
```

Use instead:

```python
import torch


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * result
```

## Fix
None: `save_for_backward` is called once with all tensors, and all code that reads the attribute must change.

## When to ignore
`backward` frees the attribute itself (`del ctx.result`), or the tensor is small.

## References
- Extending PyTorch, "tensors that are neither input nor output … save_for_backward":
  https://docs.pytorch.org/docs/stable/notes/extending.html
- FunctionCtx.save_for_backward, "to prevent incorrect gradients and memory leaks":
  https://docs.pytorch.org/docs/stable/generated/torch.autograd.function.FunctionCtx.save_for_backward.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice, Correction
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import ContextStore
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML107",
    name="tensor-set-on-autograd-ctx",
    summary="A tensor is set on the context of an autograd.Function",
    severity=Severity.WARNING,
    about=About.TENSORS_KEPT,
    triggers=TORCH.words["autograd-functions"],
    correction=Correction.DETACH,
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)
EVENT = ContextStore


WITHOUT_ELEMENTS = re.compile(r"(empty|zeros)\(\s*0\s*[,)]|tensor\(\s*\[\s*\]\s*[,)]")
"""A tensor that is made with no elements."""


LEGACY_COST = "a function whose `forward` is no static method raises on today's torch"


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    name = ref.qualname.rpartition(".")[2]
    if not facts.owner or name not in TORCH.words["context-methods"]:
        return False
    return runs.world.is_autograd_function(ClassRef(ref.path, facts.owner))


def check(event: ContextStore, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site) or not (event.tensor or any(flow.shown_tensor(gid) for gid in event.things)):
        return
    if WITHOUT_ELEMENTS.search(flow.lowered(event.site).statement(event.site.node)[1]):
        return  # a place for the kernel to put something, and no memory
    output = bool(({event.mark} | event.things) & flow.record.returned)
    if output:
        message = f"`{event.place}` holds an output of this function: the tensor and its node keep each other alive"
        cost = "the output stays until the cyclic garbage collector runs, even if nothing else refers to it"
    else:
        message = f"`{event.place}` is a tensor that `backward()` does not free: it lives as long as the graph's node"
        cost = "the tensor outlives the backward, and is kept as long as the loss"
    legacy = is_legacy(flow)
    if legacy:
        cost = f"{cost}; {LEGACY_COST}"
    yield Draft(
        flow.at(
            RULE,
            event.site,
            message,
            severity=Severity.WARNING if output and not legacy else Severity.NOTE,
            label="set as an attribute",
            cost=cost,
            help="pass it to `ctx.save_for_backward(…)`, once with all tensors, and read `ctx.saved_tensors` in `backward`",
        ),
        handler=event.site.handler,
    )


def is_legacy(flow: Flow) -> bool:
    """Whether the method is no static one: calling such a function raises on today's torch."""
    root = flow.record.root
    return not any(use.callee == "staticmethod" for use in flow.runs.world.facts(root).decorators)
