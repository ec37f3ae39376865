"""A checkpoint is loaded onto the device, where the model already is.

## What it does
Reports, in a project that uses CUDA:

- a checkpoint on the device whose dict is still referenced by a name while the model trains or is tested (warning). A name that
  is deleted or rebound before that, under the condition that loaded the file, does not count. If a function returns what it
  loads, the names of its callers count;
- `torch.load` without `map_location` in a program with several processes: all of them load the file onto the GPU that it was
  saved from (warning). The file of the call runs several, or, if more than weights is loaded, a function that leads to the call
  joins several;
- a checkpoint that several processes load onto the same GPU (warning): by its number (`map_location="cuda:0"`), or by `"cuda"` for
  safetensors' `load_file`, to which that is the first GPU;
- other calls of `torch.load` without `map_location` whose result goes to `load_state_dict()` (note): the copy lives until the dict
  is dropped, and the file cannot be loaded on a machine without that GPU. In a program that moves nothing to a device, every
  call without `map_location` is a note;
- the same if only other entries of the dict are read (`checkpoint["epoch"]`), and every visible `torch.save` that writes these saves a
  network's state beside them.

It does not report:

- calls with another `map_location`, or a `device` for `load_file`, unless the checkpoint stays referenced; `load_file` without a
  `device` loads onto the host;
- calls whose `map_location` is a dict that maps devices to the host;
- files that only `net.cpu()`-style code saves: every visible `torch.save` that may have written the file saves from the host;
- files with the state of a scheduler, a gradient scaler or a data loader, which are numbers;
- arguments that come from elsewhere (`**options`), and code under a condition that says that no GPU is used;
- files with data or a whole module;
- functions that quantize dynamically, because such modules are on the CPU;
- projects that never use CUDA.

## What it costs
A second copy of the model's weights on the device, until the dict is dropped, or during all steps if it stays referenced.
Measured on the CPU, where model and dict share one memory: the checkpoint of a 6-layer encoder (`benchmarks/evidence/models.py`)
takes 4.8 MB, as much as its weights, in addition to each step's 43.8 MB (a convnet's 0.38 MB, an LSTM's 0.87 MB). An optimizer's
state, twice the weights for Adam, is not copied: `optimizer.load_state_dict()` uses the loaded tensors if device and type agree.
With `map_location="cpu"` the copy is in host memory, and `load_state_dict()` moves one tensor after the other.

A finding about a dict that stays referenced is a warning only if the code shows that the copy takes 75 MB or more: by the widths
and depths in it, the defaults of its options, and the architectures of torchvision, timm and transformers that it names. Other
contents of the file count, too, unless an optimizer takes them over. If the size is small or unknown, the finding is a note.

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
Adds `map_location="cpu"`, or puts it in the place of another. Unsafe: a state may be kept as it is loaded, or compared on the device. `full` output and JSON (`proof`) say where every use of what is loaded is visible, and either restores the state of a network or an
optimizer, or makes a number or text of a part: `load_state_dict` copies each tensor to the device of its parameter. Otherwise
other tensors that the program reads from the dict are then on the host. There is no fix if the project's own `load_state_dict` keeps the
tensors, or if other code computes with them or keeps one.

## When to ignore
The file was saved from the CPU, or is small compared with the free memory. Many programs load a checkpoint once before they
start, so that case is only a note.

## References
- torch.load, "map_location": https://docs.pytorch.org/docs/stable/generated/torch.load.html
- safetensors' `load_file`: https://huggingface.co/docs/safetensors/api/torch; `"cuda"` is the first GPU there, not the current one:
  https://github.com/huggingface/lerobot/pull/4042
- Saving and loading models across devices: https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html
- measured: torch 2.13.0 on the CPU, see benchmarks/evidence/records; CUDA measurements are still to come
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torchmemlint.findings import Fix, FlowStep, Safety, Severity, Span
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule
from torchmemlint.rules.card import About, Advice, Correction
from torchmemlint.rules.cost.size import why_little
from torchmemlint.rules.cost.table import price
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.rules.reach import CALLERS_UP, callers_of, is_without_gpu
from torchmemlint.semantics.dataflow import (
    Release,
    Saved,
    has_no_tensors,
    is_optimizer,
    keeps_a_parameter,
    left_unread,
    nodes_of_file,
    release,
    saved_from_host,
    saves_more,
    taken_otherwise,
    used_otherwise,
)
from torchmemlint.semantics.identity import files_with, looks_like_module
from torchmemlint.semantics.mode import DEVICE_WORDS, moves_something
from torchmemlint.semantics.roots import MAX_CALLERS, Runs
from torchmemlint.semantics.state import MODULE, CallEffect, Const, Func, Kind, Obj, Site, Value, only_const
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName, Effect

RULE = Rule(
    code="TML506",
    name="checkpoint-loaded-on-device",
    summary="A checkpoint is loaded onto the device, where the model already is",
    severity=Severity.WARNING,
    typical=Severity.NOTE,
    about=About.FOOTPRINT,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["checkpoint-words"],
    root_words=TORCH.words["restores"],
    correction=Correction.LOAD,
    advice=frozenset({Advice.LOADING}),
)
EVENT = CallEffect

LOADERS = TORCH.words["loads-tensors"]
LOADER_WORDS = frozenset(name.rpartition(".")[2] for name in LOADERS)
ONTO_HOST = TORCH.words["loads-onto-the-host"]
"""Loaders that leave tensors on the host where they are given no device; "cuda" is the first GPU to them."""
PLACES = TORCH.words["loads-onto"] | {"1"}
"""How loaders call the argument that says where the tensors go, and its position."""
ON_THE_HOST = TORCH.words["quantizes"]
"""Dynamically quantised modules run, and so are saved, on the CPU alone: docs.pytorch.org/docs/stable/quantization.html."""


PROCESSES = TORCH.words["runs-processes"]
"""Words of a file whose program runs in several processes, each of which loads the file."""
JOINS = TORCH.words["joins-processes"]
TRAINS = frozenset({TORCH.names["backward"]})
RANK = TORCH.names["asks-for-rank"]
ONE_PROCESS = re.compile(r"rank|is_main|is_master|process_index", re.IGNORECASE)
"""Tests that one process of several passes, and paths of files of one process."""
NUMBERED = re.compile(r"(cuda:)?\d+")
ALONE = re.compile(r"not [\w.]*(distributed|world_size)", re.IGNORECASE)
"""Tests that hold where there is one process alone."""
BY_DEVICE = Fact("saved-from-the-host", unless="the file was saved from the CPU", known_by=Known.ASSUMED)
ON_HOST = Fact("device-is-the-host", unless="the device is the CPU", known_by=Known.ASSUMED)

ALL_STEPS = "on the device during all steps"
UNTIL_BOUND = "on the device until line {row} rebinds `{name}`"
UNTIL_DELETED = "on the device until line {row} deletes `{name}`"
WEIGHTS = "a second copy of the weights that the file has"
FOR_EACH = "all processes load {copied} onto the GPU that it was saved from: one copy each"
ON_ONE = "one copy for each process of the machine, all on one GPU"
ONCE = "{copied} on the device, until the dict is dropped"
TAKEN = "no second copy if the optimizer uses the loaded tensors; the file cannot be loaded without that GPU"
STRAY = "the tensors of the file are on the GPU that they were saved from; the model stays on the host"
COPIED = "its tensors are copied into the parameters here"
STATE = "its tensors become the optimizer's state here"


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """A function that loads something, and returns something and is called: its callers may hold what it loaded; or one in a project
    that saves checkpoints, of which it may read a part."""
    if facts.qualname == MODULE or not LOADER_WORDS & facts.names:
        return False
    project = runs.world.project
    if not any(project.resolve(ref.path, call.callee, facts.qualname) in LOADERS for call in facts.calls):
        return False
    return bool(facts.returned and project.callers(ref).calls) or saves_more(runs.world)


def check(event: CallEffect, flow: Flow) -> Iterator[Draft | Fact]:
    if event.effect is not Effect.LOAD or event.name not in LOADERS or not flow.own(event.site):
        return
    if "**" in event.more:
        yield Fact("load-arguments-unknown", "the arguments come from elsewhere, and may include a device")
        return
    harmless = is_harmless(event, flow)
    if harmless is not None:
        yield harmless
        return
    restored = restored_in(event, flow, event.site)
    leaves = event.result < 0 or event.result in flow.record.given_away
    if leaves and (restored is None or restored.holding is None):
        restored = restored_by_callers(event, flow) or restored
    if restored is None:
        yield read_in_part(event, flow)
    elif is_without_gpu(restored.event.site):
        yield Fact("load-without-gpu", "it runs only without a GPU")
    elif restored.numbers and all(is_whole(use, restored.event) for use in restored.uses):
        yield Fact("load-without-tensors", "the state of a scheduler or a gradient scaler has no tensors")
    else:
        yield from restored_at(event, restored, flow)


def read_in_part(event: CallEffect, flow: Flow) -> Draft | Fact:
    """The finding for a checkpoint of which no state is restored: only other parts of it are read."""
    world, ref, node = flow.runs.world, flow.frame(event.site).ref, event.site.node
    read, unread = left_unread(world, ref, node)
    if not unread or place_of(event) is not None:
        return Fact("load-not-copied", "no visible `load_state_dict()` uses the loaded values")
    if is_without_gpu(event.site) or runs_on_host(flow):
        return Fact("load-no-device", "the program moves nothing to a device")
    wanted = " and ".join(f"`{key}`" for key in sorted(read))
    other = taken_otherwise(world, ref, node)
    return Draft(
        flow.at(
            RULE,
            event.site,
            f"`torch.load` without `map_location` loads a file's tensors onto the GPU that they were saved from; only {wanted} {'is' if len(read) == 1 else 'are'} read",
            severity=Severity.NOTE,
            label="no `map_location`",
            cost=f"what the file holds under {' and '.join(f'`{key}`' for key in sorted(unread))} on the device, until the dict is dropped",
            help='load on the host, `map_location="cpu"`, and drop the dict when it has been read',
            fix=NoFix(other) if other else flow.edits.add_argument(event, 'map_location="cpu"', FOR_HOST, Safety.UNSAFE),
        ),
        handler=event.site.handler,
    )


def is_harmless(event: CallEffect, flow: Flow) -> Fact | None:
    """Why a load costs nothing whatever becomes of it: this is asked before callers are run."""
    if is_function(place_of(event)):
        return Fact("load-by-a-function", "a function chooses the device of each tensor")
    if is_loaded_on_host(event):
        return Fact("load-onto-host", "it is loaded onto the host")
    if not flow.runs.world.project.mentions_cuda():
        return Fact("load-no-cuda", "the project does not use CUDA")
    if flow.also_calls(event.site, ON_THE_HOST):
        return Fact("load-quantized", "dynamically quantized modules are on the CPU")
    return None


@dataclass(frozen=True, slots=True)
class Holding:
    """What some name holds while steps run: more than weights, or these alone; what releases it, None for nothing, and in which row
    that stands."""

    more: bool
    until: Release | None
    row: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A load as the function, or a caller that gets its result, sees it.

    uses     the calls that restore a state from it
    holding  what is held of it while steps run
    numbers  what is restored are the states of schedulers and the like
    taken    the file is an optimizer's state, of which ``load_state_dict`` takes the tensors themselves
    steps    the flow of a finding
    handed   a caller gets the result
    mapped   ``map_location`` is a dict that leads to the host
    small    why what is held is not known to be large, "" where it is
    """

    event: CallEffect
    uses: tuple[CallEffect, ...]
    holding: Holding | None
    numbers: bool
    taken: bool
    steps: tuple[FlowStep, ...]
    handed: bool
    mapped: bool
    small: str


def restored_in(event: CallEffect, flow: Flow, site: Site) -> Restored | None:
    """What becomes of a load in one record; ``site`` is the load, or the call through which the root got its result."""
    events = flow.record.events.values()
    uses = [e for e in events if isinstance(e, CallEffect) and e.effect is CallByName.RESTORE and event.result in e.takes]
    if not uses:
        return None
    of_numbers = {(use.site.frame, use.site.node) for use in uses if is_of_numbers(use, flow)}
    uses = [use for use in uses if all((at.number, node) not in of_numbers for at, node in [*flow.way_out(use.site)][1:])]
    handed = site != event.site
    copying = [use for use in uses if not is_of_optimizer(use, flow)]
    holding = what_is_held(event, copying, flow, site) if copying else None
    numbers = all(is_of_numbers(use, flow) for use in uses)
    taken = not copying and all(is_whole(use, event) for use in uses)
    steps = [flow.step(uses[0].site, STATE if is_of_optimizer(uses[0], flow) else COPIED)]
    if handed and holding is not None:
        steps.insert(0, flow.step(site, "what was loaded is bound here, and held while steps run"))
    small = ""
    if holding is not None:
        small = why_little(networks_of(copying, flow), holding.more and len(copying) == len(uses), flow)
    return Restored(event, tuple(uses), holding, numbers, taken, tuple(steps), handed, is_mapped_to_host(event, flow), small)


def restored_by_callers(event: CallEffect, flow: Flow) -> Restored | None:
    """What the first caller that holds the result of a load does with it, with the steps of all callers that hold it. Those further
    up are asked where a caller gives it away in turn."""
    found: dict[tuple[str, Span], Restored] = {}
    ref = flow.frame(event.site).ref
    asked, todo = {ref}, [ref]
    for _ in range(CALLERS_UP):
        above = dict.fromkeys(root for each in todo for root in callers_of(each, flow.runs.world, 1))
        todo = [root for root in above if root not in asked][: MAX_CALLERS + 1 - len(asked)]
        asked |= {*todo}
        todo = [root for root in todo if look_at_caller(event, ref, root, flow.runs, found)]
    if not found:
        return None
    first, *more = found.values()
    return replace(first, steps=(*first.steps, *(restored.steps[0] for restored in more)))


def look_at_caller(
    event: CallEffect, ref: FunctionRef, root: FunctionRef, runs: Runs, found: dict[tuple[str, Span], Restored]
) -> bool:
    """Adds to ``found`` what a caller of the function that loads something does with it; whether it gives any of it to its own callers."""
    given = False
    for record in runs.records(root):
        there = Flow(runs, record, root.path)
        for other in record.events.values():
            if not isinstance(other, CallEffect) or (other.effect, other.site.node) != (event.effect, event.site.node):
                continue
            if there.frame(other.site).ref == ref and not there.own(other.site) and not is_loaded_on_host(other):
                site = there.own_site(other.site)
                restored = restored_in(other, there, site)
                given |= other.result < 0 or other.result in record.given_away
                if restored is not None and restored.holding is not None:
                    found.setdefault((root.path, there.span(site)), restored)
    return given


def is_loaded_on_host(event: CallEffect) -> bool:
    """Whether ``map_location`` says that the tensors stay on the host, by its name or by a function."""
    place = place_of(event)
    single = only_const(place) if place is not None else None
    if place is None and event.name in ONTO_HOST:
        return True
    return is_function(place) or (single is not None and str(single.value).startswith((TORCH.names["host"], "meta")))


def place_of(event: CallEffect) -> Value | None:
    """The value of the argument that says where the tensors go, None where it is not given."""
    return next((value for name, value in event.args if name in PLACES), None)


def is_of_numbers(use: CallEffect, flow: Flow) -> bool:
    """Whether what is restored is a scheduler's state, or that of a gradient scaler: no tensors."""
    return has_no_tensors(flow.runs.world, flow.frame(use.site).ref, use.name.rpartition(".")[0])


def is_of_optimizer(use: CallEffect, flow: Flow) -> bool:
    """Whether what is restored is an optimizer's state."""
    world, ref, receiver = flow.runs.world, flow.frame(use.site).ref, use.name.rpartition(".")[0]
    return use.on == {Kind.OPTIMIZER} or is_optimizer(world, ref, receiver, world.evidence(ref).get(receiver, frozenset()))


def is_whole(use: CallEffect, event: CallEffect) -> bool:
    """Whether all that a call loaded is restored, not a part of it."""
    return any(type(atom) is Obj and atom.oid == event.result for _, value in use.args for atom in value)


def is_function(place: Value | None) -> bool:
    """Whether ``map_location`` is a function: ``lambda storage, place: storage`` leaves the tensors on the host."""
    return bool(place) and all(type(atom) is Func for atom in place or ())


def is_mapped_to_host(event: CallEffect, flow: Flow) -> bool:
    """Whether ``map_location`` is a dict that leads to the host alone (``{"cuda:0": "cpu"}``)."""
    node = next((node for name, node in event.nodes if name in PLACES), -1)
    place = flow.literal(event.site, node) if node >= 0 else None
    return isinstance(place, dict) and bool(place) and all(value == TORCH.names["host"] for value in place.values())


def restored_at(event: CallEffect, restored: Restored, flow: Flow) -> Iterator[Draft | Fact]:
    place = place_of(restored.event)
    single = only_const(place) if place is not None else None
    holding = restored.holding
    by_default = place is None or (single is not None and single.value is None)
    if is_function(place):
        yield Fact("load-by-a-function", "a function chooses the device of each tensor")
    elif restored.mapped:
        yield Fact("load-mapped-to-host", "a dict maps the device to the host")
    elif goes_to_one_gpu(event) and not restored.numbers and is_in_each_process(event, restored, flow):
        yield onto_one_gpu(event, restored, flow)
    elif not by_default and holding is None:
        yield Fact("load-dropped", "`map_location` is given, and the dict is not referenced while steps run")
    elif by_default:
        saved = saved_from_host(flow.runs.world, flow.frame(event.site).ref, event.site.node)
        if saved is not None and not saved.elsewhere:
            yield Fact("saved-from-host", "what the project saves in this file was on the host")
        else:
            yield without_place(event, restored, what_is_copied(saved), flow)
    elif holding is not None:
        severity, cost = price("copy-held", cost_of_holding(holding, ""), {"few-weights": lambda: restored.small})
        yield Draft(
            flow.at(
                RULE,
                event.site,
                "the loaded checkpoint stays on the device while the model runs its steps",
                severity=severity,
                doubts=() if single is not None else (ON_HOST,),
                label="loaded onto the device and " + ("held" if holding.until is not None else "never released"),
                cost=cost,
                help='`del` it after `load_state_dict`, or load with `map_location="cpu"`',
                flow=restored.steps,
                fix=on_host(event, restored, flow),
            ),
            handler=event.site.handler,
            cause=restored_by(restored),
        )


def without_place(event: CallEffect, restored: Restored, copied: str, flow: Flow) -> Draft:
    """A load without ``map_location``; ``copied`` is what the file holds beside weights that were saved from the host."""
    holding = restored.holding
    several = not restored.numbers and is_in_each_process(event, restored, flow)
    if runs_on_host(flow):
        growth, cost = "copy-on-host", STRAY
    elif holding is not None:
        growth, cost = "copy-for-each-process" if several else "copy-held", cost_of_holding(holding, copied)
    elif several:
        growth, cost = "copy-for-each-process", FOR_EACH.format(copied=copied or "the file")
    else:
        growth, cost = (
            "copy-in-passing",
            TAKEN if restored.taken else ONCE.format(copied=copied or "a second copy of the weights"),
        )
    severity, cost = price(growth, cost, of_load(restored))
    costly = severity is Severity.WARNING
    return Draft(
        flow.at(
            RULE,
            event.site,
            "`torch.load` without `map_location` loads tensors saved from a GPU back onto that GPU",
            severity=severity,
            doubts=(BY_DEVICE,) if costly else (),
            label="no `map_location`",
            cost=cost,
            help='load on the host, `map_location="cpu"`: `load_state_dict` copies each tensor to its parameter'
            + ("" if costly else ", and the file can be read without that GPU"),
            flow=restored.steps,
            fix=on_host(event, restored, flow) if place_of(event) is None else None,
        ),
        handler=event.site.handler,
        cause=restored_by(restored),
    )


def of_load(restored: Restored) -> dict[str, Callable[[], str]]:
    """The circumstances of what a load leaves on the device."""
    return {"few-weights": lambda: restored.small}


def goes_to_one_gpu(event: CallEffect) -> bool:
    """Whether the place that is given is one GPU, the same in each process: its number, or "cuda" where that is the first one."""
    place = place_of(event) or frozenset()
    given = {str(atom.value) for atom in place if type(atom) is Const and not isinstance(atom.value, bool)}
    gpus = {name for name in given if not name.startswith(TORCH.names["host"])}
    first = event.name in ONTO_HOST and gpus == {TORCH.names["to-cuda"]}
    return len(given) == len(place) and (first or (len(gpus) == 1 and all(map(NUMBERED.fullmatch, gpus))))


def onto_one_gpu(event: CallEffect, restored: Restored, flow: Flow) -> Draft:
    """A load in several processes onto the same GPU, whichever is each process's own."""
    severity, cost = price("copy-for-each-process", ON_ONE, of_load(restored))
    return Draft(
        flow.at(
            RULE,
            event.site,
            "every process loads the checkpoint onto the same GPU",
            severity=severity,
            label="one GPU for all processes",
            cost=cost,
            help="load on the host: `load_state_dict` copies each tensor to its parameter; or onto the device of the process",
            flow=restored.steps,
            fix=on_host(event, restored, flow),
        ),
        handler=event.site.handler,
        cause=restored_by(restored),
    )


def is_in_each_process(event: CallEffect, restored: Restored, flow: Flow) -> bool:
    """Whether each of several processes runs a load: its own file runs several, or, of a checkpoint with more than a network's weights,
    a function that leads to it joins several, and no test on the way lets one process alone pass. A file for each process is loaded where it
    was saved; one of weights alone, in a file that knows of no processes, may be published."""
    world, project = flow.runs.world, flow.runs.world.project
    if any(map(is_for_one_process, event.site.guards)) or names_one_process(event, flow):
        return False
    if has_place_on_other_branch(event, flow):
        return False
    if flow.file_says(PROCESSES) or (flow.file_says(JOINS) and flow.file_says(TRAINS)):
        return True  # what a launcher starts in several processes trains; a script that generates runs in one as well
    if place_of(event) is None and all(is_whole(use, restored.event) for use in restored.uses):
        return False
    seen: set[FunctionRef] = set()
    todo = [flow.frame(event.site).ref]
    for _ in range(CALLERS_UP):
        calls = [caller for ref in todo for caller in project.callers(ref).calls[:MAX_CALLERS] if caller.certain]
        calls = [caller for caller in calls if caller.ref not in seen and not any(map(is_for_one_process, caller.call.branch))]
        if any(joins_processes(world.facts(caller.ref)) for caller in calls):
            return True
        todo = [caller.ref for caller in calls]
        seen.update(todo)
    return False


def names_one_process(event: CallEffect, flow: Flow) -> bool:
    """Whether the call says which process loads (``f"model.{rank}.pt"``), or what the function gives to a name in the file's."""
    site = event.site
    nodes = (site.node, *nodes_of_file(flow.runs.world, flow.frame(site).ref, site.node))
    return any(ONE_PROCESS.search(flow.source(site, node)) for node in nodes)


def joins_processes(facts: FunctionFacts) -> bool:
    """Whether a function makes its process one of several, and asks for no rank, by which one of them may go on alone."""
    return bool(JOINS & facts.names) and RANK not in facts.names


def has_place_on_other_branch(event: CallEffect, flow: Flow) -> bool:
    """Whether the same function loads with a ``map_location`` on the other branch of a test: that one is for several processes."""
    other = {test.removeprefix("not ") if test.startswith("not ") else f"not {test}" for test in event.site.guards}
    calls = flow.runs.world.facts(flow.frame(event.site).ref).calls
    return any("map_location" in call.keywords and other & {*call.branch} for call in calls)


def is_for_one_process(test: str) -> bool:
    return bool(ONE_PROCESS.search(test) or ALONE.fullmatch(test))


def restored_by(restored: Restored) -> str:
    """The calls that take the states: two loads that are chosen between (``if args.gpu is None``) are one mistake."""
    return " ".join(sorted(f"{use.site.frame}:{use.site.node}" for use in restored.uses))


def runs_on_host(flow: Flow) -> bool:
    """Whether a program is visible that moves nothing to a device, neither in its file nor in what it calls."""
    if not flow.root_is_entry() or flow.file_says(DEVICE_WORDS):
        return False
    return not moves_something(flow.runs.world, flow.record.root)


def what_is_copied(saved: Saved | None) -> str:
    """What a file holds on the device beside weights on the host; "" where it is these."""
    if saved is None:
        return ""
    return "what the file holds under " + " and ".join(f"`{key}`" for key in sorted(saved.elsewhere))


def what_is_held(event: CallEffect, uses: Sequence[CallEffect], flow: Flow, site: Site) -> Holding | None:
    """What the function's names still hold of a loaded file where steps run; None where that is nothing."""
    record = flow.record
    alive = frozenset[int]().union(*(use.takes for use in uses)) & record.alive
    if not alive:
        return None
    world, ref = flow.runs.world, flow.frame(site).ref
    stepping = frozenset(node for frame, node in record.stepping if record.frames[frame].ref == ref)
    freed = release(world, ref, site.node, stepping)
    if freed is None or not freed.early:
        more = event.result in alive and not any(is_whole(use, event) for use in uses)
        return Holding(more, freed, row_of(freed, flow, site, event))
    if alive == {event.result} and event.result not in record.in_dicts:
        return None
    for name in sorted({flow.source(use.site, node) for use in uses for _, node in use.nodes} - {freed.name}):
        if name.isidentifier():
            later = release(world, ref, site.node, stepping, name)
            if later is None or not later.early:
                return Holding(False, later, row_of(later, flow, site, event))
    return None


def networks_of(uses: Sequence[CallEffect], flow: Flow) -> list[tuple[FunctionRef, str]]:
    """The networks that are restored, each with the function that calls it so; those further in are parts of them."""
    own = [use for use in uses if flow.own(use.site)] or uses
    return [*dict.fromkeys((flow.frame(use.site).ref, use.name.rpartition(".")[0]) for use in own)]


def row_of(freed: Release | None, flow: Flow, site: Site, event: CallEffect) -> str:
    """The row of a release, with the file where that is another than the load's."""
    if freed is None:
        return ""
    path = flow.frame(site).ref.path
    row = str(flow.span(site, freed.node).start.row)
    return row if path == flow.frame(event.site).ref.path else f"{row} of {path}"


def cost_of_holding(holding: Holding, copied: str) -> str:
    """What is held on the device, and until when; ``copied`` as in ``without_place``."""
    until = ALL_STEPS
    if (freed := holding.until) is not None:
        until = (UNTIL_DELETED if freed.deletes else UNTIL_BOUND).format(row=holding.row, name=freed.name)
    if copied:
        return f"{copied}, {until}"
    return f"{WEIGHTS} {until}"


def on_host(event: CallEffect, restored: Restored, flow: Flow) -> Fix | NoFix | None:
    """``map_location="cpu"``, where what is restored copies the tensors that it is given, and nothing else takes them."""
    world, ref = flow.runs.world, flow.frame(event.site).ref
    if restored.handed:
        return NoFix("what it returns may be needed on the device")
    keeper = next((keeper for use in restored.uses if (keeper := keeps_what_it_is_given(use, flow))), "")
    if keeper:
        return NoFix(f"`{keeper}` keeps the tensors that it gets")
    other = taken_otherwise(world, ref, event.site.node)
    if other:
        return NoFix(other)
    given = next((node for name, node in event.nodes if name in PLACES), -1)
    if given >= 0:
        fix: Fix | None = flow.edits.replace(event.site, given, '"cpu"', FOR_HOST, Safety.UNSAFE)
    else:
        fix = flow.edits.add_argument(event, 'map_location="cpu"', FOR_HOST, Safety.UNSAFE)
    is_proved = (
        fix is not None and all(copies(use, flow) for use in restored.uses) and not used_otherwise(world, ref, event.site.node)
    )
    if (
        fix is None
        or not is_proved
        or any(
            world.project.says(word) or world.project.methods_named(word) for word in sorted(TORCH.words["restores-otherwise"])
        )
    ):
        return fix
    return replace(fix, proof=((ALL_COPIED, Known.RESOLVED.value), (COPIES, Known.RESOLVED.value)))


FOR_HOST = "Load on the host"
ALL_COPIED = "every use of what is loaded is visible, and restores a state of it or makes a number of a part"
COPIES = "`load_state_dict` copies each tensor to the device of its parameter"


def copies(use: CallEffect, flow: Flow) -> bool:
    """Whether what restores a state is a network, or an optimizer, for sure, and copies the tensors that it is given."""
    if use.more or any(name == TORCH.names["assigns-tensors"] for name, _ in use.args):
        return False
    world, ref, receiver = flow.runs.world, flow.frame(use.site).ref, use.name.rpartition(".")[0]
    project = world.project
    near = files_with(world, ref.path)
    if any(method.path in near for method in world.project.methods_named(TORCH.names["restores"])):
        return False
    cls = project.class_of(ref.path, ref.qualname, receiver)
    if isinstance(cls, ClassRef):
        return bool(world.is_module_class(cls))
    known = use.on == {Kind.MODULE} or looks_like_module(world.evidence(ref).get(receiver, frozenset()))
    return known or is_of_optimizer(use, flow)


def namesakes(use: CallEffect, flow: Flow) -> Sequence[FunctionRef]:
    """Every ``load_state_dict`` of the project, where the object is handed in and nothing says what it is."""
    world, ref = flow.runs.world, flow.frame(use.site).ref
    receiver = use.name.rpartition(".")[0]
    found = world.ir_of(ref)
    if found is None or all(param.name != receiver for param in found.params):
        return ()
    return (
        () if world.project.class_of(ref.path, ref.qualname, receiver) else world.project.methods_named(TORCH.names["restores"])
    )


def keeps_what_it_is_given(use: CallEffect, flow: Flow) -> str:
    """The project's own ``load_state_dict`` that may run here and is no module's: it may keep the tensors of the dict."""
    world, ref = flow.runs.world, flow.frame(use.site).ref
    refs = world.project.callees(ref.path, ref.qualname, use.name).refs
    for found in refs or namesakes(use, flow):
        if world.is_of_module(found) and "super" in world.facts(found).names:
            continue
        if found.qualname.rpartition(".")[2] == TORCH.names["restores"] and keeps_a_parameter(world, found):
            return found.qualname
    return ""
