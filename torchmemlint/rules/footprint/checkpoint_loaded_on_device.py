"""A checkpoint is loaded onto the device that it was saved from, in addition to the model.

## What it does
Reports, in a project that uses CUDA:

- a checkpoint on the device whose dict is still referenced by a name while the model trains or is tested (warning). A name that
  is deleted or rebound before that, under the condition that loaded the file, does not count;
- `torch.load` without `map_location` in a program with several processes: all of them load the file onto the GPU that it was
  saved from (warning);
- other calls of `torch.load` without `map_location` whose result goes to `load_state_dict()` (note): the copy lives until the dict
  is dropped, and the file cannot be loaded on a machine without that GPU.

It does not report

- calls with any `map_location`, unless the dict stays referenced;
- arguments that come from elsewhere (`**options`), and code under a condition that says that no GPU is used;
- files with data or a whole module;
- functions that quantize dynamically, because such modules are on the CPU;
- projects that never use CUDA.

## What it costs
A second copy of the model's weights on the device, until the dict is dropped, or during all steps if it stays referenced.
Measured on the CPU, where model and dict share one memory: the dict of a 6-layer encoder takes 4.8 MB, as much as its weights, in
addition to each step's 43.8 MB (a convnet's 0.38 MB, an LSTM's 0.87 MB). An optimizer's state, twice the weights for Adam, is not
copied: `optimizer.load_state_dict()` uses the loaded tensors if device and type agree. With `map_location="cpu"` the copy is in
host memory, and `load_state_dict()` moves one tensor after the other.

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
Adds `map_location="cpu"`. Unsafe: other tensors that the program reads from the dict are then on the host. There is no fix

- if the project's own `load_state_dict` keeps the tensors, or other code computes with them or keeps one;
- for a dict that stays referenced: `del` it after `load_state_dict()`.

## When to ignore
The file was saved from the CPU, or is small compared with the free memory. Many programs load a checkpoint once before they
start, so that case is only a note.

## References
- torch.load, "map_location": https://docs.pytorch.org/docs/stable/generated/torch.load.html
- Saving and loading models across devices: https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html
- measured: torch 2.13.0 on the CPU, see benchmarks/evidence/records; CUDA measurements are still to come
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torchmemlint.findings import Fix, Safety, Severity
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, Silent, argument
from torchmemlint.rules.card import About, Advice, Repair
from torchmemlint.rules.doubts import Doubt
from torchmemlint.rules.reach import is_without_gpu
from torchmemlint.semantics.events import CallEffect
from torchmemlint.semantics.loaded import keeps_a_parameter, taken_otherwise
from torchmemlint.semantics.released import release
from torchmemlint.semantics.values import Func, Value, only_const
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect, ToldCall

RULE = Rule(
    code="TML506",
    name="checkpoint-loaded-on-device",
    summary="A checkpoint is loaded onto the device that it was saved from, in addition to the model",
    severity=Severity.WARNING,
    about=About.FOOTPRINT,
    fix=Safety.UNSAFE,
    triggers=frozenset({"load_state_dict"}),
    roots=frozenset({"load_state_dict"}),
    repair=Repair.LOAD,
    advice=frozenset({Advice.LOADING}),
)
EVENT = CallEffect

LOADERS = TORCH.words["loads-tensors"]
ON_THE_HOST = TORCH.words["quantizes"]
"""Dynamically quantised modules run, and so are saved, on the CPU alone: docs.pytorch.org/docs/stable/quantization.html."""


RATES = TORCH.words["gives-rates"]
PROCESSES = TORCH.words["runs-processes"]
"""Words of a file whose program runs in several processes, each of which loads the file."""
ONE_PROCESS = re.compile(r"rank|is_main|is_master", re.IGNORECASE)
"""Tests that one process of several passes."""
BY_DEVICE = Doubt(1, "the file was saved from the CPU")
ON_HOST = Doubt(1, "the device is the CPU")

HELD = "a second copy of the model's weights, and of everything else in the file, on the device during all steps"
HELD_AT_FIRST = (
    "a second copy of the model's weights, and of everything else in the file, on the device until line {row} rebinds the name"
)
FOR_EACH = "all processes load the file onto the GPU that it was saved from: one copy each"
ONCE = "a second copy of the weights on the device, until the dict is dropped"


def check(event: CallEffect, flow: Flow) -> Iterator[Draft | Silent]:
    if event.effect is not Effect.LOAD or event.name not in LOADERS or not flow.own(event.site):
        return
    if "**" in event.more:
        yield Silent("the arguments come from elsewhere, and may include a device")
        return
    uses = [
        e
        for e in flow.record.events.values()
        if isinstance(e, CallEffect) and e.effect is ToldCall.RESTORE and event.result in e.takes
    ]
    if not uses:
        yield Silent("no visible `load_state_dict()` uses the loaded values")
    elif not flow.speaks_of_cuda():
        yield Silent("the project does not use CUDA")
    elif flow.also_calls(event.site, ON_THE_HOST):
        yield Silent("dynamically quantized modules are on the CPU")
    elif is_without_gpu(event.site):
        yield Silent("it runs only without a GPU")
    else:
        yield from told(event, uses, flow)


def is_of_scheduler(use: CallEffect, flow: Flow) -> bool:
    """Whether what is restored was made of an optimizer, or is asked for a learning rate: a scheduler's state has no tensors."""
    receiver = use.name.rpartition(".")[0]
    asked = {call.callee for call in flow.runs.world.facts(flow.frame(use.site).ref).calls}
    if any(f"{receiver}.{name}" in asked for name in RATES):
        return True
    facts = flow.runs.world.facts(flow.frame(use.site).ref)
    makers = {text.removesuffix("()") for name, text in facts.bound if name == receiver and text.endswith("()")}
    words = flow.runs.world.evidence(flow.record.root)
    return any(
        "zero_grad" in words.get(arg.name, ()) for call in facts.calls if call.callee in makers for arg in call.args if arg.name
    )


def is_function(place: Value) -> bool:
    """Whether ``map_location`` is a function: ``lambda storage, place: storage`` leaves the tensors on the host."""
    return bool(place) and all(type(atom) is Func for atom in place)


def told(event: CallEffect, uses: Sequence[CallEffect], flow: Flow) -> Iterator[Draft | Silent]:
    place = argument(event, 1, "map_location")
    single = only_const(place) if place is not None else None
    held = any(use.takes & flow.record.alive for use in uses)
    freed = release(flow.runs.world, flow.frame(event.site).ref, event.site.node) if held else None
    held = held and not (freed is not None and freed.early)
    held_cost = HELD if freed is None else HELD_AT_FIRST.format(row=flow.span(event.site, freed.node).start.row)
    schedules = all(is_of_scheduler(use, flow) for use in uses)
    loaded = [flow.step(uses[0].site, "its tensors are copied into the parameters here")]
    if place is None or (single is not None and single.value is None):
        several = (
            not schedules
            and bool(PROCESSES & flow.names_in_file())
            and not any(ONE_PROCESS.search(test) for test in event.site.guards)
        )
        yield Draft(
            flow.at(
                RULE,
                event.site,
                "`torch.load` without `map_location` loads tensors saved from a GPU back onto that GPU",
                severity=Severity.WARNING if held or several else Severity.NOTE,
                doubts=(BY_DEVICE,) if held or several else (),
                label="no `map_location`",
                cost=held_cost if held else FOR_EACH if several else ONCE,
                help='load onto the host with `map_location="cpu"`: `load_state_dict` copies each tensor to its parameter'
                + ("" if held or several else ", and the file can be loaded without that GPU"),
                flow=loaded,
                fix=on_host(event, uses, flow) if place is None else None,
            ),
            handler=event.site.handler,
        )
    elif is_function(place):
        yield Silent("a function chooses the device of each tensor")
    elif not held:
        yield Silent("`map_location` is given, and the dict is not referenced while steps run")
    elif single is not None and str(single.value).startswith(("cpu", "meta")):
        yield Silent("it is loaded onto the host")
    else:
        yield Draft(
            flow.at(
                RULE,
                event.site,
                "the loaded checkpoint stays on the device while the model runs its steps",
                doubts=() if single is not None else (ON_HOST,),
                label="loaded onto the device and never released" if freed is None else "loaded onto the device and kept",
                cost=held_cost,
                help='`del` it after `load_state_dict`, or load with `map_location="cpu"`',
                flow=loaded,
            ),
            handler=event.site.handler,
        )


def on_host(event: CallEffect, uses: Sequence[CallEffect], flow: Flow) -> Fix | NoFix | None:
    """``map_location="cpu"``, where what is restored copies the tensors that it is given, and nothing else takes them."""
    world, ref = flow.runs.world, flow.frame(event.site).ref
    keeper = next((keeper for use in uses if (keeper := keeps_what_it_is_given(use, flow))), "")
    if keeper:
        return NoFix(f"`{keeper}` keeps the tensors that it gets")
    other = taken_otherwise(world, ref, event.site.node)
    if other:
        return NoFix(other)
    return flow.add_argument(event, 'map_location="cpu"', "Load on the host", Safety.UNSAFE)


def namesakes(use: CallEffect, flow: Flow) -> Sequence[FunctionRef]:
    """Every ``load_state_dict`` of the project, where the object is handed in and nothing says what it is."""
    world, ref = flow.runs.world, flow.frame(use.site).ref
    receiver = use.name.rpartition(".")[0]
    found = world.function(ref)
    if found is None or all(param.name != receiver for param in found[0].params):
        return ()
    return () if world.project.class_of(ref.path, ref.qualname, receiver) else world.methods_named("load_state_dict")


def keeps_what_it_is_given(use: CallEffect, flow: Flow) -> str:
    """The project's own ``load_state_dict`` that may run here and is no module's: it may keep the tensors of the dict."""
    world, ref = flow.runs.world, flow.frame(use.site).ref
    refs = world.project.callees(ref.path, ref.qualname, use.name).refs
    for found in refs or namesakes(use, flow):
        owner = world.facts(found).owner
        if owner and world.is_module_class(ClassRef(found.path, owner)) and "super" in world.facts(found).names:
            continue
        if found.qualname.rpartition(".")[2] == "load_state_dict" and keeps_a_parameter(world, found):
            return found.qualname
    return ""
