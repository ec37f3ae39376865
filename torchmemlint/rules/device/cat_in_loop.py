"""A tensor grows by concatenation in a loop.

## What it does
Reports `out = torch.cat([out, x])`, also with `concat`, `vstack`, `hstack` and similar, or for an attribute, in a loop
that otherwise uses only the size of `out`. The first iteration may assign `out` instead.

It does not report loops that

- read the tensor (token-by-token generation, dense blocks), reset it, keep a window of it, or remove parts of it;
- visibly have sixteen iterations or fewer;
- iterate over a dict, or in a `forward` over the parts of a module.

TML401 reports the outputs of a whole data set that grow so on the device.

## What it costs
Each iteration allocates a new tensor and copies the old one: n iterations allocate about n/2 times the final bytes
(measured: 4.5 times for 8 iterations, 33.5 for 64, 128.5 for 256). At peak, the old and the new tensor are 2.0 times the final
bytes; a preallocated tensor takes 1.02. It is not a leak. Every iteration needs a new size, which on CUDA leaves cached blocks
that fit no request; that has not been measured.

## Example
```python
import torch


@torch.no_grad()
def predict(model, loader):
    out = torch.empty(0)
    for inputs in loader:
        out = torch.cat([out, model(inputs)])
    return out
```

Use instead:

```python
import torch


@torch.no_grad()
def predict(model, loader):
    parts = []
    for inputs in loader:
        parts.append(model(inputs).cpu())
    return torch.cat(parts)
```

## Fix
None: there are two ways. One `cat` of a list copies once, also with 2.0 times the bytes at peak. A preallocated tensor that
is filled part by part needs no second copy.

## When to ignore
The loop has only a few iterations.

## References
- torch.cat: https://docs.pytorch.org/docs/stable/generated/torch.cat.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice, Correction
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import Kind, Regrowth
from torchmemlint.torch_facts import TORCH

WORDS = frozenset(name.rpartition(".")[2] for name in TORCH.concatenations)
RULE = Rule(
    code="TML403",
    name="cat-in-loop",
    summary="A tensor grows by concatenation in a loop",
    severity=Severity.NOTE,
    about=About.FOOTPRINT,
    triggers=WORDS,
    yields_to=frozenset({"TML401"}),
    correction=Correction.ROOM,
    advice=frozenset({Advice.STEADY_SHAPES}),
)
EVENT = Regrowth

FEW = 16
TARGET = re.compile(r"\s*([^=\n]+?)\s*=(?!=)")
DICT = re.compile(r"\.(items|keys|values)\(\)")
"""Loops over a dict: as many iterations as there are keys."""
PARTS = re.compile(r"\bself\.\w+")
"""In a ``forward``: as many iterations as the module has parts, or as its configuration says."""


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """A looped call of one of the words in a statement that names its target twice."""
    for call, place in zip(facts.calls, facts.call_places, strict=True) if facts.names & WORDS else ():
        if call.loops and call.used == "other" and call.callee.rpartition(".")[2] in WORDS:
            start = place.statement
            statement = "".join(runs.world.lines_around(ref)[start.row - 1 : place.row + 3])[start.column - 1 :]
            target = TARGET.match(statement)
            if target is not None and statement.count(target[1].strip(), target.end()):
                return True
    return False


def check(event: Regrowth, flow: Flow) -> Iterator[Draft]:
    info = flow.record.loops.get(event.loop)
    if not flow.own(event.site) or info is None or 0 <= info.turns <= FEW:
        return
    if info.kind in (Kind.MODULE, Kind.PARAMS) or DICT.search(info.text):
        return
    if flow.record.root.qualname.endswith(".forward") and PARTS.search(info.text):
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{event.place}` is copied in full in every iteration of the loop",
            label="the old and the new copy are alive at the same time",
            cost="n iterations allocate and copy about n/2 times the final size; the peak is two copies, as with one `cat` of a list",
            help="collect the parts in a list and concatenate once after the loop, or fill a tensor of the final size",
        ),
        handler=event.site.handler,
    )
