"""A hook collects values with their autograd graph, and nothing empties the collection.

## What it does
Reports a forward or backward hook (a function, a lambda, a method) that appends its inputs or outputs with their graph to
a container that outlives the call.

It does not report:

- detached values and numbers;
- one entry per layer that the next forward overwrites;
- hooks that this function or class removes (`handle.remove()`);
- containers that it empties (`clear()`, `pop()`, a new container).

The rule is in preview: real packages have too few such hooks to measure its accuracy.

## What it costs
Each forward adds the collected tensor. If grad mode is on and nothing is back-propagated, it also adds the graph up to the
hook. Measured for an output of 262,144 bytes: 262,144 bytes per step in training and under `no_grad`, 3.4 MB per step in
an evaluation with grad mode on. Detaching frees the graph, not the tensor.

## Example
```python
from torch import nn


def watch(layer: nn.Module):
    outputs = []

    def keep(module, inputs, output):
        outputs.append(output)

    layer.register_forward_hook(keep)
    return outputs
```

Use instead:

```python
from torch import nn


def outputs_of(model: nn.Module, layer: nn.Module, inputs):
    outputs = []

    def keep(module, inputs, output):
        outputs.append(output.detach())

    handle = layer.register_forward_hook(keep)
    model(inputs)
    handle.remove()
    return outputs
```

## Fix
Appends `.detach()` to the collected value. Unsafe, because a loss may be computed from it. The tensors themselves still
accumulate until the container is emptied.

## When to ignore
The container is emptied, or the hook removed, by code that the analysis cannot see.

## References
- torch.nn.Module.register_forward_hook:
  https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Fix, Safety, Severity
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, short
from torchmemlint.rules.card import About, Advice
from torchmemlint.semantics.events import HookStore
from torchmemlint.torch_facts import TORCH

WORDS = TORCH.words["forward-hooks"]
RULE = Rule(
    code="TML108",
    name="hook-keeps-output",
    summary="A hook collects values with their autograd graph, and nothing empties the collection",
    severity=Severity.WARNING,
    about=About.TENSORS_KEPT,
    fix=Safety.UNSAFE,
    triggers=WORDS,
    root_words=WORDS,
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)
EVENT = HookStore

EMPTIES = TORCH.words["empties"]


def check(event: HookStore, flow: Flow) -> Iterator[Draft]:
    world = flow.runs.world
    facts = world.facts(flow.record.root)
    around = (facts.owner or facts.qualname) + "."
    functions = [
        other
        for other in world.project.module(flow.record.root.path).functions
        if other.qualname == facts.qualname or other.qualname.startswith(around)
    ]
    if any(other.names & EMPTIES for other in functions) or flow.frame(event.site).ref.path != flow.record.root.path:
        return
    if event.place.startswith("self.") and flow.set_again(event.place.removeprefix("self.")):
        return
    fix: Fix | NoFix | None = None
    if event.sure and event.value >= 0:
        fix = flow.append_to(event.site, event.value, ".detach()", "Detach the collected tensor", Safety.UNSAFE, sure=True)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` collects what this hook receives at every call of the module",
            label="kept with its autograd graph",
            cost="one more tensor in each forward, and its graph if nothing is back-propagated",
            help="detach it, and empty the container or `remove()` the hook after use",
            fix=fix,
        ),
        handler=event.site.handler,
    )
