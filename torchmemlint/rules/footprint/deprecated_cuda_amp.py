"""Mixed precision is switched on by a name that torch has deprecated.

## What it does
Reports `autocast`, `GradScaler`, `custom_fwd` and `custom_bwd` of `torch.cuda.amp` (and of `torch.cpu.amp`). If the file
imports the name, there is one finding at the import; otherwise one at each call.

It does not report:

- names that are also imported from `torch.amp`, because the file chooses by version, or imports under `TYPE_CHECKING`;
- names that are only used in `isinstance`;
- names without a replacement in `target-torch`: `torch.amp.autocast` came with 1.10, `GradScaler` with 2.3, `custom_fwd` and
  `custom_bwd` with 2.4.

## What it costs
No memory: the new names do the same. From torch 2.4 on, each call raises a FutureWarning, and the old names will be removed.
If a program drops mixed precision instead, it needs more memory: measured on the CPU, activations in bfloat16 take 0.51 to
0.71 of the bytes of those in full precision.

## Example
```python
from torch.cuda.amp import GradScaler, autocast


def step(model, inputs, labels, criterion, optimizer, use_amp):
    scaler = GradScaler()
    with autocast(use_amp):
        loss = criterion(model(inputs), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

Use instead:

```python
from torch.amp import GradScaler, autocast


def step(model, inputs, labels, criterion, optimizer, use_amp):
    scaler = GradScaler(device="cuda")
    with autocast(device_type="cuda", enabled=use_amp):
        loss = criterion(model(inputs), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Fix
Uses the names of `torch.amp`, adds the device, and passes positional arguments by keyword, because their order has changed.
Safe if `target-torch` or the project's requirement has the new names. Unsafe if the version is unknown, and in projects that
set autocast's dtype for the device themselves, which the old `autocast` ignored. There is no fix

- if the name is also subclassed, compared, rebound or used as a value;
- in code for some versions of torch only (a version check, `hasattr`, `try`).

## When to ignore
The code must also run with a version of torch that does not have the new names. Better: set `target-torch`.

## References
- Automatic mixed precision: https://docs.pytorch.org/docs/stable/amp.html
- read: torch 2.13.0, `torch/cuda/amp/autocast_mode.py` and `torch/cuda/amp/grad_scaler.py`
- bytes of autocast: benchmarks/evidence/records
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torchmemlint.findings import Edit, Fix, Position, Safety, Severity, Span
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule
from torchmemlint.rules.card import About, Advice, Once
from torchmemlint.semantics.dataflow import Written
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import MODULE, CallEffect, DeprecatedImport, Site
from torchmemlint.torch_facts import TORCH, Renamed
from torchmemlint.torch_facts.words import CallByName

RULE = Rule(
    code="TML501",
    name="deprecated-cuda-amp",
    summary="Mixed precision is switched on by a name that torch has deprecated",
    severity=Severity.NOTE,
    about=About.FOOTPRINT,
    fix=Safety.SAFE,
    triggers=TORCH.words["amp-packages"],
    root_words=frozenset(name.rpartition(".")[2] for name in TORCH.renamed),
    once=Once.A_FILE,
    advice=frozenset({Advice.PRECISION}),
)
EVENT = (CallEffect, DeprecatedImport)

FOR_SOME = "the code around it runs only with some versions of torch"
COST = "no memory cost: a FutureWarning at each call since torch 2.4, and an ImportError once it is removed"


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    return facts.qualname == MODULE and any(target in TORCH.renamed for _, target in runs.world.project.imports(ref.path))


def check(event: CallEffect | DeprecatedImport, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site):
        return
    if isinstance(event, DeprecatedImport):
        yield from imported(event, flow)
    elif event.effect is CallByName.RENAMED and "." in flow.callee(event.site).removeprefix("@"):
        yield from called(event, flow)


def imported(event: DeprecatedImport, flow: Flow) -> Iterator[Draft]:
    """An import of deprecated names: one finding for the statement, and one fix for it and every use."""
    new = [TORCH.renamed[old] for _, old in event.names]
    if not all(flow.has(*version(one)) for one in new) or any("TYPE_CHECKING" in guard for guard in event.site.guards):
        return
    if any(flow.bound_to(event.site, local) & one.names for (local, _), one in zip(event.names, new, strict=True)):
        return
    olds = ", ".join(f"`{old}`" for _, old in event.names)
    one = len(event.names) == 1
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"{olds} {'is' if one else 'are'} deprecated",
            label="the old name" if one else "the old names",
            cost=COST,
            help="import from `torch.amp` and name the device: " + ", ".join(dict.fromkeys(f"`{call(n)}`" for n in new)),
            fix=rename_import(event, new, flow),
        ),
        handler=event.site.handler,
    )


def called(event: CallEffect, flow: Flow) -> Iterator[Draft]:
    """A call by a dotted name: one finding each."""
    new = TORCH.renamed[event.name]
    if not flow.has(*version(new)) or flow.also_calls(event.site, new.names):
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{event.name}` is deprecated",
            label="the old name",
            cost=COST,
            help=f"use `{new.name}` and name the device: `{call(new)}`",
            fix=rename_call(event.site, new, flow),
        ),
        handler=event.site.handler,
    )


def call(new: Renamed) -> str:
    return f'{new.name.rpartition(".")[2]}({new.keyword}="{new.value}")'


def version(new: Renamed) -> tuple[int, int]:
    major, minor = TORCH.versions[new.name].split(".")
    return int(major), int(minor)


def safety(flow: Flow) -> Safety:
    known = flow.runs.world.settings.target_torch is not None
    return (
        Safety.SAFE
        if known and not flow.names_anywhere(frozenset({"set_autocast_dtype", "set_autocast_gpu_dtype"}))
        else Safety.UNSAFE
    )


GATED = re.compile(r"version|hasattr|getattr|^try$|torch_?\d|(^|_)(ge|le|gt|lt)_?\d|available|has_|supports", re.IGNORECASE)
"""Tests, and names of constants, that show which torch it is."""


def is_gated(site: Site, flow: Flow) -> bool:
    """Whether the code runs with some versions of torch alone, or is tried: what it says holds for those."""
    return any(GATED.search(gate) for gate in flow.gates(site))


def rename_import(event: DeprecatedImport, new: Sequence[Renamed], flow: Flow) -> Fix | NoFix | None:
    if is_gated(event.site, flow):
        return NoFix(FOR_SOME)
    span, _ = flow.lowered(event.site).statement(event.site.node)
    source = flow.source(event.site, event.site.node)
    home = re.match(r"from\s+(torch\.(?:cuda|cpu)\.amp(?:\.\w+)?)\s+import\b", source)
    names = source.partition("import")[2]
    if (
        home is None
        or "\n" in source[: home.end(1)]
        or len(re.findall(r"[\w.]+(?:\s+as\s+\w+)?", re.sub(r"#.*", "", names))) != len(new)
    ):
        return None  # other names of that module come along
    start = Position(span.start.row, span.start.column + home.start(1))
    edits = [Edit(Span(start, Position(start.row, start.column + len(home[1]))), "torch.amp")]
    for (local, _), one in zip(event.names, new, strict=True):
        uses = flow.uses(event.site, local)
        if uses is None:
            return None
        for use in uses:
            changed = arguments(use, one, flow, event.site)
            if changed is None:
                return None
            edits += changed
    return Fix("Import from `torch.amp`", safety(flow), tuple(edits))


def rename_call(site: Site, new: Renamed, flow: Flow) -> Fix | NoFix | None:
    if is_gated(site, flow):
        return NoFix(FOR_SOME)
    use = flow.written(site)
    name, needed = flow.edits.torch_at(site)
    changed = arguments(use, new, flow, site) if use is not None else None
    if use is None or changed is None or name is None:
        return None
    edits = (Edit(use.callee, name + new.name.removeprefix("torch")), *changed)
    return Fix(f"Use `{new.name}`", safety(flow), edits, needed)


def arguments(use: Written, new: Renamed, flow: Flow, site: Site) -> list[Edit] | None:
    """The edits that name the device and make positional arguments keywords; None where they are not known one by one."""
    device = f'{new.keyword}="{new.value}"'
    end = use.callee.end
    if not use.called:
        return [Edit(Span(end, end), f"({device})")]
    if any(star for _, star, _ in use.arguments):
        return None
    line = flow.runs.world.lines_around(flow.frame(site).ref)[end.row - 1]
    opened = line.find("(", end.column - 1)
    if opened < 0:
        return None
    inside = Position(end.row, opened + 2)
    rest = line[opened + 1 :].strip()
    comma = "" if not use.arguments else "," if not rest or rest.startswith("#") else ", "
    edits = [Edit(Span(inside, inside), device + comma)]
    positional = [span for keyword, _, span in use.arguments if keyword is None]
    if len(positional) > len(new.parameters) or any(k == new.keyword for k, _, _ in use.arguments):
        return None
    for parameter, span in zip(new.parameters, positional, strict=False):
        if span.start == inside:
            edits[0] = Edit(Span(inside, inside), f"{device}{comma}{parameter}=")
        else:
            edits.append(Edit(Span(span.start, span.start), f"{parameter}="))
    return edits
