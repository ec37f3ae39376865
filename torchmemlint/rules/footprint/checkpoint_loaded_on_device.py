"""A checkpoint is loaded onto the device that it was saved from, beside the model that it is for.

## What it does
Reports, in a project that works with CUDA devices:

- `torch.load` without `map_location`, whose result goes into `load_state_dict()`: a tensor that was saved from a GPU is
  put back on that GPU, and every process of a distributed run on the same one;
- a checkpoint loaded onto a device whose dict some name still holds while the model trains.

It is silent where `map_location` is given in any form (but for the second case), where the arguments come from
elsewhere (`**options`), where what is loaded is data or a whole module, where the function quantises dynamically (such
modules live on the CPU), and in projects that never speak of CUDA.

## What it costs
One more copy of everything in the file, on the device: until the dict is dropped for the first case, through the whole
training for the second. Measured on the CPU, where model and dict share the one memory: the dict of a 6-layer encoder
holds 4.8 MB, as much as its weights, on top of each step's 43.8 MB (a convnet's 0.38 MB, an LSTM's 0.87 MB). A file with
Adam's state is three times its weights. With `map_location="cpu"` the copy is in host memory, and `load_state_dict()`
moves one tensor after the other.

## Example
```python
import torch


def resume(model, optimizer, path):
    model.cuda()
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
```

Use instead:

```python
import torch


def resume(model, optimizer, path):
    model.cuda()
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
```

## Fix
Adds `map_location="cpu"`. Unsafe: what the program takes from the dict besides `load_state_dict()` is on the host then.
For a dict that is held there is no fix; `del` it after `load_state_dict()`.

## When to ignore
The file was saved from the CPU, or is small beside the memory that is left.

## References
- torch.load, "map_location": https://docs.pytorch.org/docs/stable/generated/torch.load.html
- Saving and loading models across devices: https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html
- measured: torch 2.13.0 on the CPU, see benchmarks/evidence/records; figures on CUDA are owed
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.rules.api import Draft, Flow, Rule, argument
from torchmemlint.semantics.events import CallEffect
from torchmemlint.semantics.values import only_const
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect, ToldCall

RULE = Rule(
    code="TML506",
    name="checkpoint-loaded-on-device",
    summary="A checkpoint is loaded onto the device that it was saved from, beside the model that it is for",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    triggers=frozenset({"load_state_dict"}),
    roots=frozenset({"load_state_dict"}),
    experiment="peak",
)
EVENT = CallEffect

LOADERS = TORCH.words["loads-tensors"]
ON_THE_HOST = TORCH.words["quantizes"]
"""Dynamically quantised modules run, and so are saved, on the CPU alone: docs.pytorch.org/docs/stable/quantization.html."""


def check(event: CallEffect, flow: Flow) -> Iterator[Draft]:
    if event.effect is not Effect.LOAD or event.name not in LOADERS or not flow.own(event.site) or "**" in event.more:
        return
    uses = [
        e
        for e in flow.record.events.values()
        if isinstance(e, CallEffect) and e.effect is ToldCall.RESTORE and event.result in e.takes
    ]
    if not uses or not flow.speaks_of_cuda() or flow.also_calls(event.site, ON_THE_HOST):
        return
    place = argument(event, 1, "map_location")
    single = only_const(place) if place is not None else None
    held = any(use.takes & flow.record.alive for use in uses)
    loaded = [flow.step(uses[0].site, "its tensors are copied into the parameters here")]
    if place is None or (single is not None and single.value is None):
        yield Draft(
            flow.at(
                RULE,
                event.site,
                "`torch.load` without `map_location` puts what was saved from a GPU back on that GPU",
                label="no `map_location`",
                cost="a second copy of the checkpoint on the device, beside the model"
                + (
                    " for as long as the model trains"
                    if held
                    else "; in a distributed run every process loads onto the same GPU"
                ),
                help='load on the host, `map_location="cpu"`: `load_state_dict` copies each tensor to its parameter',
                flow=loaded,
                fix=flow.add_argument(event, 'map_location="cpu"', "Load on the host", Safety.UNSAFE)
                if place is None
                else None,
            ),
            handler=event.site.handler,
        )
    elif held and not (single is not None and str(single.value).startswith(("cpu", "meta"))):
        yield Draft(
            flow.at(
                RULE,
                event.site,
                "the loaded checkpoint is held on the device while the model trains",
                label="loaded onto the device, and never let go",
                cost="a second copy of the checkpoint on the device through the whole training",
                help='`del` it after `load_state_dict`, or load with `map_location="cpu"`',
                flow=loaded,
            ),
            handler=event.site.handler,
        )
