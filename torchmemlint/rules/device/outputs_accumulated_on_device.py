"""The outputs of a whole data set pile up on the device.

## What it does
Reports outputs of a model that are collected on the device, batch after batch, in a loop over a data loader. The
graph is not the matter here: grad mode is off or the outputs are detached. That they are tensors must be seen: they are
concatenated, stacked or moved later, or the model's class is one of the project. Scalars, one number for each sample
(rewards, losses), class indices and what is moved to the CPU, always or where a switch says so, are silent.

## What it costs
One batch's outputs per step stay on the device until the collection is dropped: logits of 50,000 tokens over a
vocabulary of 32,000 are 6.4 GB in fp32. `torch.cat` of the collection takes the same again at the call (measured on
the CPU: twice the data at peak). Figures on CUDA are owed.

## Example
```python
import torch
from torch import nn
from torch.utils.data import DataLoader


@torch.no_grad()
def predict(model: nn.Module, dataset):
    outputs = []
    for inputs in DataLoader(dataset, batch_size=64):
        outputs.append(model(inputs.cuda()))
    return torch.cat(outputs)
```

Use instead:

```python
import torch
from torch import nn
from torch.utils.data import DataLoader


@torch.no_grad()
def predict(model: nn.Module, dataset):
    outputs = []
    for inputs in DataLoader(dataset, batch_size=64):
        outputs.append(model(inputs.cuda()).cpu())
    return torch.cat(outputs)
```

## Fix
Appends `.cpu()` to the stored value. Unsafe: later code may expect the tensors on the device, and each copy waits for
it.

## When to ignore
The outputs are small, or are used on the device right after the loop.

## References
- PyTorch FAQ, "Don't hold onto tensors and variables you don't need":
  https://docs.pytorch.org/docs/stable/notes/faq.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torchmemlint.findings import Safety, Severity
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule, Silent, short
from torchmemlint.rules.card import About, Advice, Repair
from torchmemlint.semantics import purpose
from torchmemlint.semantics.event_words import RecordFlag, StoreKind
from torchmemlint.semantics.events import Backward, Graph, GraphKind, SinkKind, Store
from torchmemlint.semantics.roots import may_collect_on_device
from torchmemlint.semantics.runs import Runs
from torchmemlint.semantics.state import Kind
from torchmemlint.semantics.values import COLUMN, COMPUTED, DETACHED, INTEGER, MOVED, SCALAR, VIEW
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML401",
    name="outputs-accumulated-on-device",
    summary="The outputs of a whole data set pile up on the device",
    severity=Severity.WARNING,
    about=About.RESULTS_KEPT,
    fix=Safety.UNSAFE,
    triggers=frozenset({"append", "cat", "extend", "inference_mode", "no_grad"}),
    of_results=True,
    yields_to=frozenset({"TML402"}),
    repair=Repair.HOST,
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)
EVENT = Store

ROUNDS = re.compile(r"epoch|range|count|loader|fold|seed|round|task|set|phase|split|stage", re.IGNORECASE)
"""Loops of which each turn goes over a whole set."""

SMALL = re.compile(
    r"(^|_|\b)(loss(es)?|rewards?|ppls?|perplexit(y|ies)|accs?|accurac(y|ies)|nlls?|elbos?|metrics?|errors?|counts?|lengths?|lens|ids|ind(ex|ices)"
    r"|idxs?|labels?|tokens?|correct)[\]'\")]*$",
    re.IGNORECASE,
)
"""Collections that by their name hold some numbers for each step, or indices."""
JOINS = re.compile(r"(^|[._])(cat|concat\w*|[hv]?stack|pad_sequence|gather|all_gather\w*)(_|$)", re.IGNORECASE)
"""Functions that put tensors together."""
TREATED = TORCH.words["done-with-tensors"] | {"joined"}
"""What is done with tensors alone: evidence of a collection's elements."""


def may_find(ref: FunctionRef, runs: Runs) -> bool:
    return may_collect_on_device(runs.world, ref)


def check(event: Store, flow: Flow) -> Iterator[Draft | Silent]:
    record = flow.record
    forwards = [record.forwards[g] for g in sorted(event.outputs) if g in record.forwards]
    if not forwards or not flow.own(event.site):
        return
    silent = is_small(event, flow) or is_no_data_set(event, forwards, flow)
    if silent is not None:
        yield silent
        return
    fix = None
    if event.how in (StoreKind.APPEND, StoreKind.ITEM) and event.value >= 0 and event.sure_tensor:
        fix = flow.append_to(event.site, event.value, ".cpu()", "Move the stored tensor to the CPU", Safety.UNSAFE)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` collects every batch's output on the device",
            label="stays on the device",
            cost=f"device memory grows by one batch's output per step, until `{short(event.place)}` is dropped",
            help="store `.cpu()` copies, or reduce each batch to what is needed",
            flow=[flow.step_of(forwards[0], "the output is made here")],
            fix=fix,
        ),
        frozenset(event.outputs),
        event.site.handler,
    )


def is_small(event: Store, flow: Flow) -> Silent | None:
    """Why what is stored takes little memory on the device, or none."""
    if event.constant_key or event.loop is None:
        return Silent("the former value goes when the next one comes")
    if event.flags & (SCALAR | INTEGER | VIEW | COLUMN) or SMALL.search(event.place):
        return Silent("what is stored is small: a number, indices, or a part of the output")
    if not flow.device_words() or flow.record.is_let_go(event):
        return Silent("nothing here works with a device, or what is stored is let go of")
    if event.half_fix == "to" or event.flags & MOVED:
        return Silent("the author says where it shall lie")
    if any("%" in guard for guard in event.site.guards):
        return Silent("it stores the output of few of many steps")
    return None if holds_tensors(event, flow) else Silent("nothing shows that what is stored is a tensor")


def is_no_data_set(event: Store, forwards: Sequence[Graph], flow: Flow) -> Silent | None:
    """Why the loop does not go over a data set, or the outputs are no network's."""
    record = flow.record
    info = record.loops.get(event.loop) if event.loop is not None else None
    if info is None or not (
        info.kind is Kind.LOADER or (info.kind in (Kind.THING, Kind.GENERATOR) and purpose.BATCHES.search(info.text))
    ):
        return Silent("the loop goes over no loader or batches")
    if not any(f.kind is GraphKind.FORWARD or purpose.may_be_network(f.what) for f in forwards):
        return Silent("nothing shows that a network made it")
    root = record.root.qualname
    hands = info.text.startswith("range(") or flow.runs.world.is_hook(record.root)
    if hands or root.rpartition(".")[2] in TORCH.words["forward"]:
        return Silent("the loop goes over the pieces of one batch")
    if goes_back(event, flow) if info.kind is Kind.LOADER else RecordFlag.BACKWARD in record.flags or purpose.trains(root):
        return Silent("the loop goes over the mini-batches of a step")
    if any(f.what.split(".")[0].split("[")[0] in info.targets for f in forwards):
        return Silent("the loop goes over layers")
    around = [record.loops[loop] for loop in event.site.loops if loop not in event.outlived and loop in record.loops]
    if info.kind is not Kind.LOADER and any(each.targets and not ROUNDS.search(each.text) for each in around):
        return Silent("the loop goes over the pieces of one item, which are put together before the next")
    return None


def goes_back(event: Store, flow: Flow) -> bool:
    """Whether a turn of the loop trains. A loader's loop that does not is an evaluation, whatever stands around it."""
    return any(isinstance(other, Backward) and event.loop in other.site.loops for other in flow.record.events.values())


def holds_tensors(event: Store, flow: Flow) -> bool:
    """Whether what is collected is seen to be tensors: a network's output may as well be text, a dictionary or boxes."""
    record = flow.record
    made = [record.forwards[g] for g in event.outputs if g in record.forwards]
    if event.flags & (COMPUTED | DETACHED):
        return True
    if (
        event.how in (StoreKind.APPEND, StoreKind.ITEM)
        and event.sure_tensor
        and any(f.cls is not None and f.kind is GraphKind.FORWARD for f in made)
    ):
        return True
    if TREATED & record.evidence.get(event.mark, set()):
        return True
    if any(sink.kind is SinkKind.PASSED and JOINS.search(sink.how) for sink in record.sinks.get(event.mark, ())):
        return True
    return event.external and joined_elsewhere(event, flow)


def joined_elsewhere(event: Store, flow: Flow) -> bool:
    """Whether some method of the class puts together what an attribute of the object collects."""
    owner = flow.runs.world.facts(flow.record.root).owner
    if not owner or not event.place.startswith("self."):
        return False
    module = flow.runs.world.project.module(flow.record.root.path)
    return any(
        JOINS.search(call.callee) and any(arg.name == event.place for arg in call.args)
        for function in module.functions
        if function.owner == owner
        for call in function.calls
    )
