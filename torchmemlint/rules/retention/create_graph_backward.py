"""A backward builds a graph of the gradients and leaves them in `.grad`.

## What it does
Reports `backward(create_graph=True)` if `.grad` is not reset to None later in the same step: by `p.grad = None`,
`del p.grad`, or `zero_grad()` without `set_to_none=False`. An input that the step makes and that requires grad has a
`.grad` of its own, which no `zero_grad()` resets: `x.grad = None` does.

It does not report:

- `torch.autograd.grad(…, create_graph=True)`, which returns the gradients;
- arguments other than a literal `True`.

## What it costs
Each gradient belongs to a graph that refers to its parameter, and the parameter refers to the gradient. This cycle goes
through C++, where Python's garbage collector cannot find it. Measured for a convolutional network whose graph holds 9.7 MB:

- `.grad` never reset: 17.1 MB more in each step;
- the model dropped afterwards: 18.0 MB per model, never freed, whether the collector runs or not;
- `.grad` reset only before the next backward: no growth, but a peak of 27.7 MB instead of 10.8 MB;
- a gradient penalty on an input of 0.5 MB whose own `.grad` is never reset, with `zero_grad()` in each step: 1.0 MB more in
  each step, never freed, whether the collector runs or not.

PyTorch warns about such a call once.

## Example
```python
import torch


def penalty(net, inputs):
    loss = net(inputs).square().mean()
    loss.backward(create_graph=True)
    return sum(p.grad.square().sum() for p in net.parameters())
```

Use instead:

```python
import torch


def penalty(net, inputs):
    loss = net(inputs).square().mean()
    gradients = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    return sum(g.square().sum() for g in gradients)
```

## Fix
None: the code that reads `.grad` must change to use the returned gradients.

## When to ignore
An optimizer that needs second derivatives reads them from `.grad` (AdaHessian, Sophia), and code that the analysis
cannot see resets `.grad`.

## References
- torch.Tensor.backward, create_graph: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html
- the warning, "a reference cycle between the parameter and its gradient which can cause a memory leak":
  https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/engine.cpp
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice, Correction
from torchmemlint.rules.reach import is_called_in_loops
from torchmemlint.semantics.roots import precedes
from torchmemlint.semantics.state import Backward, GradientsFreed, GraphKind
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML106",
    name="create-graph-backward",
    summary="A backward builds a graph of the gradients and leaves them in `.grad`",
    severity=Severity.ERROR,
    typical=Severity.WARNING,
    about=About.TENSORS_KEPT,
    triggers=TORCH.words["creates-graph"],
    correction=Correction.SWITCH,
    keyword=TORCH.names["creates-graph"],
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)

EVENT = Backward


def check(event: Backward, flow: Flow) -> Iterator[Draft]:
    if not event.creates or event.gradients or not flow.own(event.site):
        return
    if leaves_kept(event, flow):
        looped = event.site.loops or is_called_in_loops(flow.record.root, flow)
        yield Draft(
            flow.at(
                RULE,
                event.site,
                "`create_graph=True` ties an input that requires grad and its `.grad` into a cycle that nothing frees",
                severity=Severity.ERROR if looped else Severity.WARNING,
                label="leaves a gradient with a graph in the input's `.grad`",
                cost="the graph of each step's gradient stays, and with it the input if the step made it: no `zero_grad()` resets "
                "them, and the collector cannot find them",
                help=HELP,
            ),
            handler=event.site.handler,
        )
        return
    freed = [e.site for e in flow.record.events.values() if isinstance(e, GradientsFreed) and not e.wanted]
    turn = event.site.loops
    if any(site.loops[: len(turn)] == turn and precedes(flow.record, event.site, site) for site in freed):
        return
    later = any(site.loops[: len(turn)] == turn for site in freed) or resets_in_callers(flow.record.root, flow)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`create_graph=True` ties each parameter and its `.grad` into a cycle that {LATER if later else 'nothing frees'}",
            label="leaves gradients with a graph in `.grad`",
            cost=LATER_COST
            if later
            else "each step's graph stays as long as `.grad` does; if the model is dropped, it is never freed",
            severity=Severity.WARNING,
            help=HELP,
        ),
        handler=event.site.handler,
    )


HELP = "use `torch.autograd.grad(…, create_graph=True)`; or set `.grad` to None when the gradients are used"


def leaves_kept(event: Backward, flow: Flow) -> frozenset[int]:
    """The marks of inputs that require grad, which the backward gives a ``.grad`` that nothing resets afterwards: each step makes
    another, or adds to the one, whose graph then has all steps' (both measured: they grow)."""
    record = flow.record
    if event.partial:
        return frozenset()  # which of them get one is not known
    freed = [e for e in record.events.values() if isinstance(e, GradientsFreed) and precedes(record, event.site, e.site)]
    return frozenset(
        gid
        for gid in record.ancestors(event.graphs | event.hints) - {g for e in freed for g in e.wanted}
        if record.graphs[gid].kind is GraphKind.WANTED
    )


def resets_in_callers(root: FunctionRef, flow: Flow, depth: int = 0) -> bool:
    """Whether a visible caller of a function, or one that calls it, zeroes gradients: in its next step, at the latest."""
    world = flow.runs.world
    callers = {caller.ref for caller in world.project.callers(root).calls} - {root}
    return depth < MAX_DEPTH and any(
        TORCH.names["clears-gradients"] in world.facts(ref).names or resets_in_callers(ref, flow, depth + 1)
        for ref in sorted(callers)
    )


MAX_DEPTH = 3
"""How far callers are followed up."""
LATER = "only the next step frees"
LATER_COST = "the graph of this step is still alive during the next forward: up to two extra graphs at peak"
