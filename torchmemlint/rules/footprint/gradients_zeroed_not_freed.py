"""Gradients are filled with zeros, and stay allocated during the next forward.

## What it does
Reports `zero_grad(set_to_none=False)`, and loops that fill the gradient of each parameter with zeros (`p.grad.zero_()`,
`p.grad.data.zero_()`, `p.grad.fill_(0)`).

It does not report:

- the gradient of an input (an attack, a saliency map), which is a single tensor of the input's size;
- a `set_to_none` that the caller decides.

## What it costs
One set of gradients, as large as the parameters, in addition to the activations: the zeros stay allocated during the
forward, which does not need them, and memory peaks between forward and backward. Measured on the CPU, including parameters: a
6-layer encoder of 4.8 MB peaks at 58.3 MB with zeros and at 53.6 MB with `None`, a convnet of 0.38 MB at 47.1 and 46.7 MB.
Each step also writes the zeros.

## Example
```python
import torch


def train(model, loader, criterion, optimizer):
    for inputs, labels in loader:
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
```

Use instead:

```python
import torch


def train(model, loader, criterion, optimizer):
    for inputs, labels in loader:
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix
Writes `set_to_none=True`, the default from torch 2.0 on, or `p.grad = None`. Unsafe: the optimizer then skips a parameter
without a gradient, while zeros let momentum and weight decay continue; and code that reads `p.grad` must expect `None`. There is
no fix if the zeros may be read before the next backward, or by another function of the file.

## When to ignore
Gradients are read or added to between two steps, or a framework shares their storage with its buffers.

## References
- torch.optim.Optimizer.zero_grad: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
- Performance tuning guide, "Disable gradient calculation" and "set gradients to None":
  https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
- measured: torch 2.13.0 on the CPU, see benchmarks/evidence/records; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Fix, Safety, Severity
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, argument, short
from torchmemlint.rules.card import About, Advice, Correction
from torchmemlint.semantics.dataflow import read_before_backward
from torchmemlint.semantics.state import CallEffect, truth
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName

RULE = Rule(
    code="TML505",
    name="gradients-zeroed-not-freed",
    summary="Gradients are filled with zeros, and stay allocated during the next forward",
    severity=Severity.NOTE,
    about=About.FOOTPRINT,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["gradient-words"],
    root_words=TORCH.words["zeroed-gradient-words"],
    correction=Correction.FREE,
    advice=frozenset({Advice.SMALLER_BATCHES}),
)
EVENT = CallEffect

BACKWARD = TORCH.words["back-propagates"]
OF_GRADIENTS = TORCH.words["works-on-gradients"]
"""Words of code that reads the gradients of parameters: sums of them over processes, and what looks at them."""
COST = "one set of gradients, as large as the parameters, at the peak of the next step"


def check(event: CallEffect, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site):
        return
    fix: Fix | NoFix | None = None
    if event.effect is CallByName.ZERO_GRAD:
        asked = argument(event, 0, TORCH.names["gradients-to-none"])
        if asked is None or truth(asked) is not False:
            return
        node = dict(event.nodes).get(TORCH.names["gradients-to-none"], dict(event.nodes).get("0"))
        if node is not None and flow.source(event.site, node) == "False":
            fix = flow.edits.replace(event.site, node, "True", "Free the gradients", Safety.UNSAFE)
        message, help = (
            f"`{short(event.name)}(set_to_none=False)` keeps every gradient allocated",
            "remove the argument: gradients are then freed" if flow.has(2, 0) else "pass `set_to_none=True`, which frees them",
        )
    elif event.effect is CallByName.GRADIENT_ZEROED:
        message, help = (
            f"`{short(event.name)}.grad` is filled with zeros and stays allocated",
            f"`{short(event.name)}.grad = None` frees it",
        )
        if flow.edits.is_statement(event.site):
            fix = flow.edits.replace(
                event.site, event.site.node, f"{event.name}.grad = None", "Free the gradient", Safety.UNSAFE
            )
    else:
        return
    if fix is not None and reads_zeros(event, flow):
        fix = NoFix("code may read the zeros, which would be None")
    yield Draft(
        flow.at(RULE, event.site, message, label="zeros need as much memory as gradients", cost=COST, help=help, fix=fix),
        handler=event.site.handler,
    )


def reads_zeros(event: CallEffect, flow: Flow) -> bool:
    """Whether the zeros may be read: in the function before its next backward, or in another function of the file, which runs none
    itself; or gradients are handed to what works on all of them at once."""
    world = flow.runs.world
    root = flow.frame(event.site).ref
    if read_before_backward(world, root, event.site.node):
        return True
    for facts in world.project.module(root.path).functions:
        if facts.names & OF_GRADIENTS:
            return True
        zeroing = {call.callee for call in facts.calls if call.callee.endswith((".zero_", ".fill_", ".detach_"))}
        zeroed = {text.partition(".grad.")[0] + ".grad" for text in zeroing}  # it is read to ask whether there is one
        texts = {*facts.reads, *(arg.name for call in facts.calls for arg in call.args)} - zeroed
        asked = {call.callee for call in facts.calls} - zeroing
        reads = any(text.endswith(".grad") for text in texts) or any(".grad." in text for text in asked)
        if facts.qualname != root.qualname and reads and not facts.names & BACKWARD:
            return True
    return False
