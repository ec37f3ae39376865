"""Allocator options are set too late, or in an invalid form.

## What it does
Reports `PYTORCH_CUDA_ALLOC_CONF` and `PYTORCH_ALLOC_CONF` in `os.environ` (also by `setdefault`, `update`, `os.putenv`)

- set after a model or tensor was moved to the device, in this function or in one that it calls: the allocator reads its
  options once, at its first use;
- with `backend:` set after `import torch`: the allocator is chosen when the library is loaded, and a difference is an error at
  the first allocation;
- with an invalid value: `expandable_segments:true` (valid are `True` and `False`), `=` instead of `:`, `max_split_size_mb`
  below 20, a misspelled option;
- as `PYTORCH_ALLOC_CONF`, if `target-torch` or the project's requirement is below 2.10, which does not read it.

It does not report:

- options set between `import torch` and the first use of the device (measured: the options are read late);
- the environment of a child process.

## What it costs
The option has no effect, so it does not prevent fragmentation. An invalid value raises ValueError or RuntimeError when the
device is first used.

## Example
```python
import os

import torch


def main(model):
    model = model.to("cuda")
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return model
```

Use instead:

```python
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch


def main(model):
    return model.to("cuda")
```

## Fix
None: move the statement to the start of the program, or set the variable in the shell.

## When to ignore
The option is for processes that are started later.

## References
- CUDA semantics, "Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF":
  https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf
- measured: what is refused, and when it is read, with torch 2.13.0 on the CPU, whose library has the same parser
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from torchmemlint.findings import Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import MODULE, EnvironmentSet
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML307",
    name="allocator-config-too-late",
    summary="Allocator options are set too late, or in an invalid form",
    severity=Severity.WARNING,
    about=About.ALLOCATOR,
    triggers=TORCH.words["allocator-variables"],
    advice=frozenset({Advice.SEGMENTS}),
)
EVENT = EnvironmentSet

SMALLEST_SPLIT = 20


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    if not facts.names & {"environ", "putenv"}:
        return False
    lines = runs.world.lines(ref.path)
    return any("ALLOC_CONF" in line for line in (lines if facts.qualname == MODULE else lines[facts.row - 1 : facts.end_row]))


def check(event: EnvironmentSet, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site):
        return
    found = problem(event, flow.runs.world.settings.target_torch)
    if found is None:
        return
    message, cost, help_text = found
    yield Draft(
        flow.at(RULE, event.site, message, label="not read" if "raise" not in cost else "refused", cost=cost, help=help_text),
        handler=event.site.handler,
    )


def problem(event: EnvironmentSet, target: tuple[int, int] | None) -> tuple[str, str, str] | None:
    """What is wrong, what comes of it, and what to do; None where nothing is."""
    refused = refusal(event.value or "")
    if refused is not None:
        return refused[0], "the first use of the device raises", refused[1]
    early = "set it before `import torch`, or in the shell"
    if event.device_used:
        message = f"`{event.name}` is set after the device was first used: the allocator has already read its options"
        return message, "the option has no effect in this process", early
    if event.torch_loaded and any(option == "backend" for option, _ in options(event.value or "")):
        message = f"`{event.name}` names a backend after `import torch`: the allocator has already been chosen"
        return message, "the first use of the device raises where the two differ", early
    if event.name == TORCH.names["allocator-variable"] and target is not None and target < (2, 10):
        message = f"`PYTORCH_ALLOC_CONF` is read from torch 2.10 on, but this code must run with {target[0]}.{target[1]}, too"
        return message, "the option has no effect there", "set `PYTORCH_CUDA_ALLOC_CONF`, which all versions read"
    return None


def options(value: str) -> list[tuple[str, str]]:
    """The options of a value ("a:1,b:[256:1,512:2]"), each with the text of its own value."""
    flat, depth = "", 0
    for sign in value:
        depth += (sign == "[") - (sign == "]")
        flat += "\0" if sign == "," and depth == 0 else sign
    pairs = [part.partition(":") for part in flat.split("\0") if part.strip()]
    return [(name.strip(), held.strip()) for name, _, held in pairs]


def refusal(value: str) -> tuple[str, str] | None:
    """What the allocator refuses in a value, and what to write."""
    for name, held in options(value):
        if "=" in name:
            return (
                f"`{name}` is not an allocator option: separate name and value with a colon",
                f"write `{name.replace('=', ':')}`",
            )
        if held.lower() in ("true", "false") and held not in ("True", "False"):
            return f"`{name}:{held}` is invalid: use `True` or `False`", f"write `{name}:{held.capitalize()}`"
        if name == "max_split_size_mb" and held.isdecimal() and int(held) < SMALLEST_SPLIT:
            return f"`{name}:{held}` is invalid: the minimum is {SMALLEST_SPLIT}", "use a larger size, or remove the option"
        near = get_close_matches(name, sorted(TORCH.allocator_options), n=1, cutoff=0.75)
        if near and name not in TORCH.allocator_options:
            return f"`{name}` is not an allocator option", f"did you mean `{near[0]}`?"
    return None
