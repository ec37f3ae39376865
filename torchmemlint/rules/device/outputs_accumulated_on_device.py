"""The outputs of a whole data set accumulate on the device.

## What it does
Reports

- outputs of a model that are collected on the device, batch by batch, in a loop over a data loader, one that gets its
  batches by `next()`, or one over other things of which each turn moves something to the device: in a list, in a dict, by `torch.cat` with those before, or by a method that keeps what it is given (the
  finding is at its call);
- outputs that a method collects which a framework calls for each batch (`validation_step` of Lightning, `prediction_step` of a
  `Trainer` of transformers, `on_predict_batch_end` of a callback, which gets them from the framework), in an attribute of its object: also where another method empties that after each epoch;
- outputs that a method puts into a list of its object that nothing in the project empties, a few for each request or call;
- values that any loop collects there, but that are only read if a parameter with the default False is set
  (`torch.stack(images) if return_all else image`).

This is not about graphs: grad mode is off, or the outputs are detached. The values must be tensors for certain: they are
concatenated, stacked or moved later, the function calls a tensor's method on them or gives them to a function of torch, or the model's
class is part of the project.

It does not report:

- scalars, one number per sample (rewards, losses), and class indices;
- what a method that runs for each batch empties again;
- values that are moved to the CPU, always or by an option, or put on a device where they are stored (`.cuda()`).

## What it costs
Each step keeps one batch of outputs on the device until the collection is dropped: logits of 50,000 tokens over a
vocabulary of 32,000 are 6.4 GB in fp32. `torch.cat` of the collection needs the same again (measured on the CPU: twice the
data at peak). CUDA measurements are still to come.

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
Appends `.cpu()` to the stored value, if it is certainly a tensor. Unsafe: later code may expect the tensors on the device,
and each copy waits for the device. There is no fix if the collected values

- are compared, joined or combined with values that may be on the device;
- are kept in an attribute, passed to an unknown function, or returned to visible callers that read them.

The finding is a note if the concatenated outputs are combined with other tensors that may be on the device, because they may be needed
there: a matrix product, a function of torch, or a move to a device, also in a caller, in another method of the object that keeps
them, or in a function that one of these gives them to.

If a parameter decides whether the values are read, collect them under the same condition; there is no automatic fix.

## When to ignore
The outputs are small, or are used on the device directly after the loop.

## References
- PyTorch FAQ, "Don't hold onto tensors and variables you don't need":
  https://docs.pytorch.org/docs/stable/notes/faq.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torchmemlint.findings import Finding, Fix, Safety, Severity
from torchmemlint.index.arguments import params_given
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower.ways import tests_to
from torchmemlint.lower.written import are_opposite, text_of
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, short
from torchmemlint.rules.assumed import EMPTIED_ELSEWHERE, NO_BATCHES, moved_by_the_step, not_a_module
from torchmemlint.rules.card import About, Advice, Correction, Same
from torchmemlint.rules.cost.table import price
from torchmemlint.rules.evidence.kept_attributes import collecting_attribute
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.semantics.dataflow import emptied_by, is_constructor, is_emptied_each_batch, met_on_device, taken_whole
from torchmemlint.semantics.mode import (
    OF_EVERYTHING,
    callees,
    is_move,
    may_collect_on_device,
    mentions_devices,
    moves_in_a_loop,
    purpose,
    reaches,
)
from torchmemlint.semantics.models import OF_TENSORS
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import (
    COLUMN,
    COMPUTED,
    DETACHED,
    INTEGER,
    MODULE,
    MOVED,
    SCALAR,
    VIEW,
    Backward,
    Graph,
    GraphKind,
    Kind,
    LoopInfo,
    RecordFlag,
    SinkKind,
    Site,
    Store,
    StoreKind,
    World,
    is_batch_hook,
    memoized,
)
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML401",
    name="outputs-accumulated-on-device",
    summary="The outputs of a whole data set accumulate on the device",
    severity=Severity.WARNING,
    about=About.RESULTS_KEPT,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["fills-lists"] | TORCH.words["concatenates"] | TORCH.words["grad-guards"],
    of_results=True,
    yields_to=frozenset({"TML402"}),
    explains=Same.STATEMENT,
    correction=Correction.HOST,
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)
EVENT = Store

ROUNDS = re.compile(r"epoch|range|count|loader|fold|seed|round|task|set|phase|split|stage", re.IGNORECASE)
"""Loops of which each iteration goes over a whole set."""

SMALL = re.compile(
    r"(^|_|\b)(loss(es)?|rewards?|ppls?|perplexit(y|ies)|accs?|accurac(y|ies)|nlls?|elbos?|metrics?|errors?|counts?|lengths?|lens|ids|ind(ex|ices)"
    r"|idxs?|labels?|tokens?|correct)[\]'\")]*$",
    re.IGNORECASE,
)
"""Collections that by their name hold some numbers for each step, or indices."""
JOINS = re.compile(r"(^|[._])(cat|concat\w*|[hv]?stack|pad_sequence|gather|all_gather\w*)(_|$)", re.IGNORECASE)
"""Functions that put tensors together."""
COLLECTS = TORCH.words["fills-lists"]
HELP = {
    False: "store `.cpu()` copies, or reduce each batch to the values that you need",
    True: "collect `.cpu()` copies in a list and concatenate them once after the loop, or reduce each batch to the values that you need",
}
"""What to do instead, and where the outputs are concatenated."""
TREATED = TORCH.words["done-with-tensors"] | {"joined"}
"""What is done with tensors alone: evidence of a collection's elements."""


def may_find(ref: FunctionRef, runs: Runs) -> bool:
    return collects_each_batch(ref, runs) or may_collect_on_device(runs.world, ref)


def collects_each_batch(ref: FunctionRef, runs: Runs) -> bool:
    """Whether a framework calls a method for each batch, which fills a container, or calls what does; or a method puts what it gets of a
    network into an attribute that nothing empties."""
    if is_batch_hook(runs.world, ref):
        return reaches(runs.world, ref, COLLECTS, 1)
    facts = runs.world.facts(ref)
    if not facts.owner or facts.names.isdisjoint(COLLECTS) or not mentions_devices(runs.world, ref):
        return False
    parts = [call.callee.split(".") for call in facts.calls]
    names = {part[1] for part in parts if len(part) == 3 and part[0] == "self" and part[2] in COLLECTS}
    cls = ClassRef(ref.path, facts.owner)
    return is_called_often(ref, runs.world) and any(
        runs.world.project.attr(cls, name) and not emptied_by(runs.world, cls, name) for name in sorted(names)
    )


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """Whether a function may collect on a device, and put together, what a network gives."""
    words = facts.names
    if collects_each_batch(ref, runs):
        return True
    return facts.qualname != MODULE and bool(words & TORCH.words["joins"] and words & COLLECTS) and may_find(ref, runs)


def check(event: Store, flow: Flow) -> Iterator[Draft | Fact]:
    record = flow.record
    forwards = [record.forwards[g] for g in sorted(event.outputs) if g in record.forwards]
    info = record.loops.get(event.loop) if event.loop is not None else None
    in_hook = is_batch_hook(flow.runs.world, record.root) or (info is None and is_never_emptied(event, flow))
    if not forwards or not (in_hook or info is not None):
        return
    if not (
        flow.own(event.site)  # else a method that the hook calls keeps it in the hook's own object
        or (collecting_attribute(event, flow) is not None if in_hook else is_handed_on(event, forwards, flow))
    ):
        return
    flag = "" if in_hook else flag_of_readers(event, flow)
    silent = is_small(event, flow) or is_taken_by_numpy(event, flow)
    if silent is None and in_hook:
        silent = lives_for_one_batch(event, flow) or is_of_no_network(forwards)
    elif silent is None and info is not None:
        silent = is_piece(forwards, info, flow)
        if silent is None and not flag:
            silent = is_no_data_set(event, info, flow) or is_of_no_network(forwards)
    if silent is None and not holds_tensors(event, flow):
        silent = Fact("output-no-tensor", "the stored value may not be a tensor")
    if silent is not None:
        yield silent
        return
    finding = found(event, forwards, info, flag, flow)
    yield Draft(finding, frozenset(event.outputs), event.site.handler, cause=f"{event.loop} {flag}")


def is_handed_on(event: Store, forwards: Sequence[Graph], flow: Flow) -> bool:
    """Whether a function that is called keeps what this one's networks gave, in no container of its own."""
    return (
        event.loop is not None
        and flow.own(Site(event.loop[0], -1))
        and (event.holder_frame < 0 or flow.own(Site(event.holder_frame, -1)))
        and all(flow.own(graph.site) for graph in forwards)
    )


def is_never_emptied(event: Store, flow: Flow) -> bool:
    """Whether a method that is called again and again (for each request, or in a loop) puts what it keeps into an attribute of its object
    that nothing empties."""
    world, root = flow.runs.world, flow.record.root
    attribute = collecting_attribute(event, flow)
    return attribute is not None and is_called_often(root, world) and not emptied_by(world, *attribute)


def is_called_often(ref: FunctionRef, world: World) -> bool:
    """Whether a method, no constructor, part of a network or hook of a framework, is called in a loop, or by nothing visible."""
    if is_constructor(ref.qualname) or world.is_forward(ref) or world.hook(ref) is not None:
        return False
    calls = world.project.callers(ref).calls
    return not calls or any(caller.call.loops for caller in calls)


def lives_for_one_batch(event: Store, flow: Flow) -> Fact | None:
    """Why what a hook collects is gone with the batch, or no attribute of its object holds it."""
    attribute = collecting_attribute(event, flow)
    if attribute is None or is_emptied_each_batch(flow.runs.world, *attribute):
        return Fact("kept-for-a-batch", "it lives for one batch only")
    return None


def found(event: Store, forwards: Sequence[Graph], info: LoopInfo | None, flag: str, flow: Flow) -> Finding:
    """The finding, at the call where a function that is called keeps the outputs; ``flag`` as ``flag_of_readers`` gives it."""
    own = flow.own(event.site)
    movable = own and event.how in (StoreKind.APPEND, StoreKind.ITEM) and event.value >= 0 and not flag
    site, place = event.site, short(event.place)
    steps = [flow.step_of(forwards[0], "the output is created here")]
    if not own:
        steps.append(flow.step(site, f"kept here, in `{place}`"))
        site, callee = flow.own_call(site)
        place = short(callee.qualname)
    severity, cost = price(
        "outputs",
        f"device memory grows by one {'iteration' if flag else 'batch'}'s output per step, {until(event, flow)}"
        + ("; each step copies all of it" if event.how is StoreKind.GROWN else ""),
        {
            "wanted": lambda: (
                "" if flag or not own else taken_whole(flow.runs.world, flow.record.root, event.place, event.site.node)
            )
        },
        info.turns if info is not None and event.holder_frame >= 0 else -1,
    )
    return flow.at(
        RULE,
        site,
        f"`{place}` collects every iteration's output on the device, but reads it only when `{flag}` is set"
        if flag
        else f"`{place}` collects every batch's output on the device",
        doubts=doubts_of(event, forwards, info, flow),
        severity=severity,
        label="stays on the device",
        cost=cost,
        help=f"collect only when `{flag}` is set" if flag else HELP[event.how is StoreKind.GROWN],
        flow=steps,
        fix=move(event, flow) if movable else None,
    )


def until(event: Store, flow: Flow) -> str:
    """How long what is collected stays, in words."""
    attribute = collecting_attribute(event, flow)
    if attribute is None or event.loop is not None:
        return f"until `{short(event.place)}` is dropped"
    if emptied_by(flow.runs.world, *attribute):
        return f"until `{short(event.place)}` is emptied"
    return f"without end: nothing empties `{short(event.place)}`"


def move(event: Store, flow: Flow) -> Fix | NoFix | None:
    """``.cpu()`` on what is stored, where it is a tensor for sure and all that becomes of it can be done on the host."""
    if not event.sure_tensor:
        return NoFix()
    why = met_on_device(flow.runs.world, flow.record.root, event.place, event.site.node)
    if why:
        return NoFix(why)
    joined = TREATED & flow.record.evidence.get(event.mark, set()) or (event.external and joined_elsewhere(event, flow))
    sure = bool(event.flags & (COMPUTED | DETACHED) or joined)
    return flow.edits.append_to(
        event.site, event.value, ".cpu()", "Move the stored tensor to the CPU", Safety.UNSAFE, sure=sure, container=event.place
    )


def doubts_of(event: Store, forwards: Sequence[Graph], info: LoopInfo | None, flow: Flow) -> Iterator[Fact]:
    """What is assumed of the loop and of what it runs."""
    if info is not None and info.kind is not Kind.LOADER:
        yield NO_BATCHES
    elif info is None and not is_batch_hook(flow.runs.world, flow.record.root):
        yield EMPTIED_ELSEWHERE
    if not any(graph.kind is GraphKind.FORWARD for graph in forwards):
        yield not_a_module(short(forwards[0].what), Known.METHOD)
    if all(graph.site.node < 0 for graph in forwards) and not flow.runs.world.project.methods_named(forwards[0].what):
        yield moved_by_the_step(forwards[0].what)


def is_of_no_network(forwards: Sequence[Graph]) -> Fact | None:
    if any(graph.kind is GraphKind.FORWARD or purpose.may_be_network(graph.what) for graph in forwards):
        return None
    return Fact("output-of-no-network", "it may not come from a network")


def is_small(event: Store, flow: Flow) -> Fact | None:
    """Why what is stored is less than the whole output of a network, or does not stay on a device."""
    if event.constant_key:
        return Fact("output-replaced", "each value replaces the previous one")
    if event.flags & (SCALAR | INTEGER | VIEW | COLUMN) or SMALL.search(event.place):
        return Fact("output-small", "the stored value is small: a number, indices, or a part of the output")
    put = event.value >= 0 and PUT_ON_DEVICE.search(flow.source(event.site, event.value))
    if put or event.half_fix == TORCH.names["to-place"] or event.flags & MOVED or goes_to_a_place_of_its_own(event, flow):
        return Fact("output-device-chosen", "the code chooses its device explicitly")
    if any("%" in guard for guard in event.site.guards):
        return Fact("output-of-few-steps", "it stores the output of only a few steps")
    moved = is_batch_hook(flow.runs.world, flow.record.root) or mentions_devices(flow.runs.world, flow.record.root)
    if not moved or flow.record.is_let_go(event):
        return Fact("output-without-device", "no device is used here, or the stored values are released")
    return None


def goes_to_a_place_of_its_own(event: Store, flow: Flow) -> bool:
    """Whether a name in what is stored was moved to another place than what else the function moves: ``out = out.to(target)`` beside
    ``x = x.to(device)``."""
    if event.value < 0:
        return False
    stored = set(NAMES.findall(flow.source(event.site, event.value)))
    moved = {  # a name that is moved twice is where the second move puts it
        call.callee.rpartition(".")[0]: call.args[0].name
        for call in flow.runs.world.facts(flow.frame(event.site).ref).calls
        if call.callee.endswith(f".{TORCH.names['to-place']}") and len(call.args) == 1 and call.args[0].name and is_move(call)
    }
    places = {place for name, place in moved.items() if name in stored}
    return bool(places) and any(place not in places for name, place in moved.items() if name not in stored)


PUT_ON_DEVICE = re.compile(rf"\.{TORCH.names['to-cuda']}\([^()]*\)$")
"""A stored value that is put on a device for that: ``kept.append(out.cuda())``."""
NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
"""Names in a source text."""


def is_taken_by_numpy(event: Store, flow: Flow) -> Fact | None:
    """Whether numpy, and no function of torch, takes what is collected as it is: of a tensor on a GPU it would raise."""
    world, root = flow.runs.world, flow.record.root
    functions = (
        world.project.within(root.path, world.header(root).owner) if is_batch_hook(world, root) else (world.facts(root),)
    )
    takers = [call.callee for facts in functions for call in facts.calls if any(arg.name == event.place for arg in call.args)]
    packages = {(world.project.resolve(root.path, callee, root.qualname) or callee).partition(".")[0] for callee in takers}
    if NUMPY in packages and "torch" not in packages:
        return Fact("output-for-numpy", "numpy takes what is collected, so it is on the host")
    if packages & HOST_PACKAGES:
        bound = re.compile(rf"\b{re.escape(event.place)}\s*=[^=].*\.({TO_HOST})\(")
        if not any(bound.search(line) for line in world.lines_of(root)):
            return Fact("output-for-host-library", "a library without GPUs takes what is collected, so it is on the host")
    return None


NUMPY = "numpy"
HOST_PACKAGES = TORCH.words["array-libraries"] - {NUMPY}
TO_HOST = "|".join(sorted(TORCH.words["reads-out"] | {TORCH.names["to-host"], TORCH.names["to-place"]}))
"""Methods that bring tensors to the host."""


def is_piece(forwards: Sequence[Graph], info: LoopInfo, flow: Flow) -> Fact | None:
    """Why the loop iterates over layers, or over the pieces of one batch."""
    if flow.runs.is_forward(flow.record.root):
        return Fact("loop-over-pieces", "the loop iterates over the pieces of one batch")
    if any(f.what.split(".")[0].split("[")[0] in info.targets for f in forwards):
        return Fact("loop-over-layers", "the loop iterates over layers")
    return None


def is_no_data_set(event: Store, info: LoopInfo, flow: Flow) -> Fact | None:
    """Why the loop does not go over the batches of a data set, or trains with them."""
    record = flow.record
    batches = info.kind is Kind.LOADER or event.loop in record.drawing
    counts = info.text.startswith("range(") and not purpose.STRIDE.search(info.text)
    by_key = event.how is StoreKind.ITEM and not flow.own(event.site)  # a callee may keep one value for each of some keys
    moves = info.turns < 0 and not counts and not by_key and moves_in_a_loop(flow.runs.world.facts(record.root))
    if not (batches or moves or (info.kind in (Kind.THING, Kind.GENERATOR) and purpose.BATCHES.search(info.text))):
        return Fact("loop-over-no-batches", "the loop does not iterate over a loader or batches")
    if counts and not batches:
        return Fact("loop-over-device-parts", "the loop iterates over parts of a tensor that is already on the device")
    if batches:
        # A function that is named for training, and leaves that to others, gives them what it collects.
        trains = any(isinstance(other, Backward) and flow.own(other.site) for other in record.events.values())
        hands_on = purpose.drives(record.root.qualname) and not trains
        if goes_back(event, flow) or (hands_on and info.text.startswith(("enumerate(", "zip("))):
            return Fact("loop-trains", "the loop trains")
        return None
    if RecordFlag.BACKWARD in record.flags or purpose.trains(record.root.qualname):
        return Fact("loop-over-mini-batches", "the loop iterates over the mini-batches of a step")
    if not draws_from_host(event, flow):
        return Fact(
            "loop-over-given-pieces",
            "nothing is moved to the device in the loop, which iterates over pieces of what the function is given",
        )
    around = [record.loops[loop] for loop in event.site.loops if loop not in event.outlived and loop in record.loops]
    if any(each.targets and not ROUNDS.search(each.text) for each in around):
        return Fact("loop-over-item-pieces", "the loop iterates over the pieces of one item, which are joined before the next")
    return None


def draws_from_host(event: Store, flow: Flow) -> bool:
    """Whether a loop may bring batches to the device: a generator of the project that is given the function's own parameters may as well
    cut them into pieces, unless something is moved in the loop, as a data set's batches are."""
    world, root = flow.runs.world, flow.record.root
    facts = world.facts(root)
    info = flow.record.loops[event.loop] if event.loop is not None else None
    given = {param.name for param in facts.params[bool(facts.owner) :]}
    makers = CALLED.findall(info.text) if info is not None and info.kind is Kind.GENERATOR else []
    own = any(world.project.is_function(root.path, root.qualname, name) for name in makers)
    return info is None or not own or given.isdisjoint(NAMES.findall(info.text)) or moves_in_a_loop(facts)


def flag_of_readers(event: Store, flow: Flow) -> str:
    """The parameter, false where nobody gives it, that must be set for the collection to be read at all, while an iteration
    adds to it in any case; "" where there is none."""
    record = flow.record
    sinks = record.sinks.get(event.mark, ())
    params = flow.runs.world.header(record.root).params
    if (
        not sinks
        or not adds_in_any_case(event, flow)
        or event.external
        or event.mark in record.returned
        or event.site.frame != 0
    ):
        return ""
    around = {text_of(test) for test, held in tests_to(flow.runs.world.body(record.root), event.site.node) if held}
    for param in params:
        name = param.name
        own = {name, f"not not {name}"}
        if param.default == "False" and name not in around and all(own & {*sink.site.guards} for sink in sinks):
            return name
    return ""


def adds_in_any_case(event: Store, flow: Flow) -> bool:
    """Whether each iteration adds to the collection: of each test that lets this store through, the other branch has one, too."""
    same = [e for e in flow.record.events.values() if isinstance(e, Store) and (e.place, e.loop) == (event.place, event.loop)]
    tests = {test for each in same for test in each.site.guards}
    return all(any(are_opposite(test, other) for other in tests) for test in event.site.guards)


CALLED = re.compile(r"([\w.]+)\(")
"""What is called in a source text."""


def goes_back(event: Store, flow: Flow) -> bool:
    """Whether an iteration of the loop trains. A loader's loop that does not is an evaluation, whatever stands around it."""
    return any(isinstance(other, Backward) and event.loop in other.site.loops for other in flow.record.events.values())


def holds_tensors(event: Store, flow: Flow) -> bool:
    """Whether what is collected is seen to be tensors: a network's output may as well be text, a dictionary or boxes."""
    record = flow.record
    made = [record.forwards[g] for g in event.outputs if g in record.forwards]
    if event.flags & (COMPUTED | DETACHED) or event.how is StoreKind.GROWN:
        return True
    if (
        event.how in (StoreKind.APPEND, StoreKind.ITEM)
        and (event.sure_tensor or event.holds_tensors)
        and any(f.cls is not None and f.kind is GraphKind.FORWARD for f in made)
    ):
        return True
    if TREATED & record.evidence.get(event.mark, set()):
        return True
    if any(sink.kind is SinkKind.PASSED and JOINS.search(sink.how) for sink in record.sinks.get(event.mark, ())):
        return True
    if any(f.kind is GraphKind.FORWARD for f in made) and is_used_as_tensor(event, made, flow):
        return True
    if event.mark in record.returned and _is_joined_by_callers(flow.runs.world, record.root):
        return True
    return event.external and joined_elsewhere(event, flow)


@memoized
def _is_joined_by_callers(world: World, ref: FunctionRef) -> bool:
    """Whether a caller puts together what a function returns, or elements of it."""
    for caller in world.project.callers(ref).calls:
        facts = world.facts(caller.ref)
        result = f"{caller.call.callee}()"
        names = {result, *(name for name, text in (*facts.bound, *facts.rebound) if text == result)}
        if any(
            JOINS.search(call.callee) and any(ELEMENT.sub("", arg.name) in names for arg in call.args) for call in facts.calls
        ):
            return True
    return False


ELEMENT = re.compile(r"(\[\])+$")
"""The end of dotted text of an element."""


def is_used_as_tensor(event: Store, made: Sequence[Graph], flow: Flow) -> bool:
    """Whether what is stored, or an item of what is written out there, goes by a name that is bound once, to the output, under which the
    function does with it what is done with tensors alone: a method of theirs is called, or a function of torch takes it."""
    text = flow.source(event.site, event.value) if event.value >= 0 else ""
    bound = dict(flow.runs.world.facts(flow.frame(event.site).ref).bound)
    if text in bound:
        names = {text}
    elif text[:1] in ("{", "(", "["):
        calls = {f"{graph.what}()" for graph in made}
        names = {name for name in ITEMS.findall(text) if bound.get(name) in calls}
    else:
        names = set()
    return any(_is_tensor_by_use(flow.runs.world, flow.frame(event.site).ref, name) for name in sorted(names))


ITEMS = re.compile(r"(?<=[:,({\[])\s*([A-Za-z_]\w*)(?=\s*[,)}\]])")
"""The names that are items of a display as they are."""


def _is_tensor_by_use(world: World, ref: FunctionRef, name: str) -> bool:
    facts = world.facts(ref)
    if world.evidence(ref).get(name, frozenset()) & METHODS_OF_TENSORS:
        return True
    takers = [call.callee for call in facts.calls if call.args[:1] and call.args[0].name == name]
    return any(
        TORCH.function_effect(world.project.resolve(ref.path, taker, ref.qualname) or "") in OF_TENSORS for taker in takers
    )


METHODS_OF_TENSORS = TORCH.methods.keys() - OF_EVERYTHING - {TORCH.names["to-place"]}
"""Methods that other results of a network, dicts of tensors and records, do not have."""


def joined_elsewhere(event: Store, flow: Flow) -> bool:
    """Whether some method of the class puts together what an attribute of the object collects."""
    ref = flow.frame(event.site).ref
    owner = flow.runs.world.header(ref).owner
    place = event.place if flow.own(event.site) else f"self.{event.place.rpartition('.')[2]}"
    if not owner or not place.startswith("self."):
        return False
    return _joins(flow.runs.world, ref.path, owner, place)


@memoized
def _joins(world: World, path: str, owner: str, place: str) -> bool:
    return any(
        puts_together(world, FunctionRef(path, function.qualname), place)
        for function in world.project.module(path).functions
        if function.owner == owner
    )


def puts_together(world: World, ref: FunctionRef, place: str, deep: bool = True) -> bool:
    """Whether a function puts together what a name or an attribute holds, or gives it to one of the project that does so by itself."""
    for call in world.facts(ref).calls:
        if all(arg.name != place for arg in call.args):
            continue
        if JOINS.search(call.callee):
            return True
        for callee in callees(world, ref, call).refs if deep else ():
            facts = world.facts(callee)
            bound = facts.owner and all(use.callee != "staticmethod" for use in facts.decorators)
            params = facts.params[bool(bound) :]
            if any(puts_together(world, callee, name, deep=False) for name in params_given(params, place, call.args)):
                return True
    return False
