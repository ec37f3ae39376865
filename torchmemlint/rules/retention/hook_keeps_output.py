"""A hook collects values with their autograd graph, and nothing empties the collection.

## What it does
Reports

- a forward or backward hook (a function, a lambda, a method) that appends its inputs or outputs with their graph to
  a container that outlives the call;
- a hook that each turn of a loop puts on the same module, by a function or a constructor that the loop calls
  (`Recorder(model)`), and that stores tensors in something which each turn makes: the module keeps the hook, and the hook the object,
  also after `del recorder`.

It does not report:

- detached values and numbers;
- one entry per layer that the next forward overwrites;
- hooks that this function or class removes (`handle.remove()`); those that each turn adds, only where what removes them is called
  by something, or in a `__del__`;
- containers that it empties (`clear()`, `pop()`, a new container); a global one, that the file empties;
- hooks of a script that runs no forward in a loop.

## What it costs
Each forward adds the collected tensor. If grad mode is on and nothing is back-propagated, it also adds the graph up to the
hook. Measured for an output of 262,144 bytes: 262,144 bytes per step in training and under `no_grad`, 3.4 MB per step in
an evaluation with grad mode on. Detaching frees the graph, not the tensor.

Of hooks that pile up, each keeps storing what later forwards give: measured for a recorder that is made in each step, on an output of
262,144 bytes: 262,144 bytes per step, detached and under `no_grad`.

## Example
```python
from torch import nn


def watch(layer: nn.Module):
    outputs = []

    def keep(module, inputs, output):
        outputs.append(output)

    layer.register_forward_hook(keep)
    return outputs
```

Use instead:

```python
from torch import nn


def outputs_of(model: nn.Module, layer: nn.Module, inputs):
    outputs = []

    def keep(module, inputs, output):
        outputs.append(output.detach())

    handle = layer.register_forward_hook(keep)
    model(inputs)
    handle.remove()
    return outputs
```

## Fix
Appends `.detach()` to the collected value. Unsafe, because a loss may be computed from it. The tensors themselves still
accumulate until the container is emptied.

## When to ignore
The container is emptied, or the hook removed, by code that the analysis cannot see.

## References
- torch.nn.Module.register_forward_hook:
  https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torchmemlint.findings import Fix, Safety, Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import everything
from torchmemlint.lower.written import text_of
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, short
from torchmemlint.rules.card import About, Advice
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.dataflow import hooked_in_turns, is_set_again, removes_by_handle
from torchmemlint.semantics.mode import runs_steps
from torchmemlint.semantics.state import MODULE, GraphKind, HookAdded, HookStore
from torchmemlint.torch_facts import TORCH

WORDS = TORCH.words["forward-hooks"]
RULE = Rule(
    code="TML108",
    name="hook-keeps-output",
    summary="A hook collects values with their autograd graph, and nothing empties the collection",
    severity=Severity.WARNING,
    about=About.TENSORS_KEPT,
    fix=Safety.UNSAFE,
    triggers=WORDS,
    root_words=WORDS,
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)
EVENT = (HookStore, HookAdded)

EMPTIES = TORCH.words["empties"]


def check(event: HookStore | HookAdded, flow: Flow) -> Iterator[Draft | Fact]:
    if isinstance(event, HookAdded):
        yield from added_in_turns(event, flow)
        return
    if is_emptied(event, flow) or flow.frame(event.site).ref.path != flow.record.root.path:
        return
    if runs_once(flow):
        yield Fact("one-forward-stored", "the program runs no forward in a loop")
        return
    fix: Fix | NoFix | None = None
    if event.sure and event.value >= 0:
        fix = flow.edits.append_to(
            event.site, event.value, ".detach()", "Detach the collected tensor", Safety.UNSAFE, sure=True
        )
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` collects what this hook receives at every call of the module",
            label="kept with its autograd graph",
            cost="one more tensor in each forward, and its graph if nothing is back-propagated",
            help="detach it, and empty the container or `remove()` the hook after use",
            fix=fix,
        ),
        handler=event.site.handler,
    )


def added_in_turns(event: HookAdded, flow: Flow) -> Iterator[Draft]:
    """The finding for a hook that each turn of a loop in a caller adds to the same module."""
    world, ref = flow.runs.world, flow.frame(event.site).ref
    if not flow.own(event.site) or ref != flow.record.root:
        return
    turns = hooked_in_turns(world, ref, event.site.node)
    if turns is None:
        return
    where = "" if turns.ref.path == ref.path else f" of {turns.ref.path}"
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{event.name}()` adds one more hook to the same module in each turn of a loop in `{short(turns.ref.qualname)}`{where}, and nothing removes it",
            label="the module keeps the hook, and the hook what it stores",
            cost="one more object in each turn, with the tensors that its hook stores at every call of the module",
            help="keep the handle and `remove()` it when the work is done, or register once, before the loop",
            fix=NoFix("the handle must be kept, and removed where the hook is no longer needed"),
        ),
        handler=event.site.handler,
    )


def is_emptied(event: HookStore, flow: Flow) -> bool:
    """Whether something takes elements out of what the hook fills or takes the hook away, or another container is put in its place: by the
    class or the function around the hook, or for a global by any function of the file."""
    world, root = flow.runs.world, flow.record.root
    facts = world.facts(root)
    holder = event.place.partition("[")[0]
    hook = flow.frame(event.site).ref
    owner = world.header(world.outermost(hook)).owner  # whoever holds the object, its class empties what its hooks fill
    inside = dict.fromkeys(((root.path, facts.owner or facts.qualname), (hook.path, owner or hook.qualname)))
    around = functions = tuple(each for path, name in inside for each in world.project.within(path, name))
    if facts.qualname == MODULE or not any(holder.partition(".")[0] in other.locals for other in around):
        functions = world.project.module(root.path).functions
    if any(other.names & EMPTIES for other in around) or any(takes_out(other, holder) for other in functions):
        return True
    if holder.startswith("self.") and is_set_again(world, root, [holder.removeprefix("self.")]):
        return True
    found = [world.body(FunctionRef(root.path, other.qualname)) for other in functions if not other.parent]
    made = Counter(text for each in found for text in assigned(each))
    return made[holder] > 1 or made[f"{holder}[]"] > 1


def takes_out(facts: FunctionFacts, holder: str) -> bool:
    """Whether a function may take elements out of a global container, or takes a hook away by its handle."""
    empties = holder in facts.names and not facts.names.isdisjoint(EMPTIES)
    return empties or removes_by_handle(facts)


def assigned(body: list[ir.Stmt]) -> Iterator[str]:
    """What the statements of a function assign, or delete: the texts of names and attributes, those of containers with "[]"."""
    for node in everything(body):
        if isinstance(node, ir.Assign | ir.Delete):
            for target in node.targets:
                yield f"{text_of(target.value)}[]" if isinstance(target, ir.Subscript) else text_of(target)


def runs_once(flow: Flow) -> bool:
    """Whether the file's own statements run forwards, and neither they nor a function of the file runs any in a loop."""
    record, world = flow.record, flow.runs.world
    ran = [g for g in (*record.graphs.values(), *record.forwards.values()) if g.kind is GraphKind.FORWARD or g.direct]
    loops = [each.site.loops for each in ran]
    if record.root.qualname != MODULE or not loops or any(loops):
        return False
    refs = [FunctionRef(record.root.path, facts.qualname) for facts in world.project.module(record.root.path).functions]
    return not any(runs_steps(world, ref) for ref in refs)
