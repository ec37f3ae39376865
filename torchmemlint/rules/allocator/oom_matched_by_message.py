"""An out-of-memory error is recognized by its message.

## What it does
Reports a handler that recognizes an out-of-memory error by its message (`"out of memory" in str(error)`) and acts on it, and
a function that decides by the message whether its argument is such an error, if an annotation or an `isinstance` shows that
the argument is an exception.

It does not report:

- a handler whose recovery TML303 reports;
- a function that tests the class as well;
- a second handler after one that catches the class: the message is then for a device whose error has no class
  (`MPS backend out of memory`);
- messages of other failures (`CUBLAS_STATUS_NOT_SUPPORTED`);
- projects whose `target-torch` or requirement is below 1.13, which has no class for such errors.

## What it costs
No memory. The message differs between devices and has changed between releases: `CUDA out of memory` is no part of the errors
of the Apple GPU (`MPS backend out of memory`) or of ROCm (`HIP out of memory`). Where the handler looks for `out of memory`
alone, which all of them hold today, or where nothing in the project says that it runs on another device than CUDA, the
finding is a note. `torch.OutOfMemoryError` (from torch 2.4; `torch.cuda.OutOfMemoryError` from 1.13) is a subclass of
`RuntimeError` and does not depend on the message.

## Example
```python
import torch

DEVICE = "mps" if torch.backends.mps.is_available() else "cuda"


def fits(model, batch, optimizer):
    try:
        model(batch.to(DEVICE)).sum().backward()
    except RuntimeError as error:
        if "CUDA out of memory" in str(error):
            optimizer.zero_grad()
            return False
        raise
    return True
```

Use instead:

```python
import torch

DEVICE = "mps" if torch.backends.mps.is_available() else "cuda"


def fits(model, batch, optimizer):
    enough = True
    try:
        model(batch.to(DEVICE)).sum().backward()
    except torch.OutOfMemoryError:
        enough = False
    if not enough:
        optimizer.zero_grad()
    return enough
```

## Fix
None: which class exists depends on the oldest release that the code must run with.

## When to ignore
The code must run with torch below 1.13, or must catch errors of libraries that raise a plain `RuntimeError`.

## References
- torch.cuda.OutOfMemoryError: https://docs.pytorch.org/docs/stable/generated/torch.cuda.OutOfMemoryError.html
- PyTorch FAQ, "My out of memory exception handler can't allocate memory":
  https://docs.pytorch.org/docs/stable/notes/faq.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.interpret import OOM_WORDS
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import OomHandler
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML304",
    name="oom-matched-by-message",
    summary="An out-of-memory error is recognized by its message",
    severity=Severity.WARNING,
    about=About.HANDLER,
    triggers=frozenset(name.rpartition(".")[2] for name in TORCH.words["wide-exceptions"]),
    yields_to=frozenset({"TML303"}),
    advice=frozenset({Advice.HANDLER}),
)

EVENT = OomHandler
OF_A_DEVICE = re.compile(r"cuda|cudnn|cublas|hip|mps|xpu", re.IGNORECASE)
"""Words of a message that other devices' errors do not have."""
OTHER_DEVICES = TORCH.words["other-devices"]
"""Words of a project that runs on devices whose errors say neither "CUDA" nor each other's name."""
STRINGS = re.compile(r"[\"']([^\"']*)[\"']")
ONE_COST = "an error of another device (HIP, MPS, XPU), or with another wording, is not handled"
ALL_COST = "little: the messages of the CUDA, HIP, MPS and XPU allocators all hold these words, today"
CUDA_COST = (
    "little: CUDA's errors hold these words in every release so far, and nothing here says that the code runs on another device"
)


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """Whether a function is given an exception, by its annotation, and speaks of memory."""
    given = any(param.annotation.rpartition(".")[2] in RULE.triggers for param in facts.params)
    return given and any(OOM_WORDS.search(line) for line in runs.world.lines_of(ref))


def check(event: OomHandler, flow: Flow) -> Iterator[Draft | Fact]:
    if not event.tests or not flow.own(event.site) or any(TORCH.names["out-of-memory"] in t for t in event.types):
        return
    if event.reraises:
        return
    if not flow.has(1, 13):
        yield Fact("no-class-for-oom", "torch before 1.13 has no class for out-of-memory errors")
        return
    texts = [text for test in event.tests for text in STRINGS.findall(flow.source(event.site, test)) if OOM_WORDS.search(text)]
    alone = bool(texts) and all(map(OF_A_DEVICE.search, texts)) and any(map(flow.runs.world.project.says, OTHER_DEVICES))
    little = CUDA_COST if texts and all(map(OF_A_DEVICE.search, texts)) else ALL_COST
    yield Draft(
        flow.at(
            RULE,
            event.site,
            "out-of-memory errors are recognized by their message, which differs between devices and versions",
            node=event.tests[0],
            severity=Severity.WARNING if alone else Severity.NOTE,
            label="matches the text of the message",
            cost=ONE_COST if alone else little,
            help=classes(flow),
        ),
        handler=event.site.node,
    )


def classes(flow: Flow) -> str:
    """What to catch, by the versions of torch that the project supports."""
    if flow.runs.world.settings.target_torch is None:
        return "catch `torch.OutOfMemoryError` (torch 2.4; `torch.cuda.OutOfMemoryError` from 1.13)"
    return f"catch `torch.{'' if flow.has(2, 4) else 'cuda.'}OutOfMemoryError`"
