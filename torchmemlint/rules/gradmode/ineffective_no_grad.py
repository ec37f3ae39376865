"""Grad mode should be off, or a model frozen, but this spelling has no effect.

## What it does
Reports code that should disable grad mode and does not, or does it in the wrong place:

- `torch.no_grad()` as a statement: it creates a context manager and drops it. For `torch.enable_grad()`, this is a note
  unless grad mode is off;
- `@torch.no_grad()` on an `async def`: only the creation of the coroutine or async generator runs without grad;
- `@torch.no_grad()` on a class: only `__init__` runs without grad, and the name becomes a function, which cannot be
  subclassed or used with `isinstance`;
- `with torch.no_grad:` without parentheses: TypeError (AttributeError before Python 3.11);
- `@torch.no_grad` without parentheses, if `target-torch` is below 2.1: it fails there, and works from 2.1 on;
- a generator that yields inside `with torch.no_grad():` disables grad mode in its consumer, too (warning where one
  that is visible trains meanwhile, or any loop over the object may; else a note). There is one finding for each such block, at its first `yield`. The decorator on a generator
  works as expected;
- `volatile=True`, unless grad mode is off anyway, or no network runs in the function and the value stays there; a note if every
  network that runs in the function is frozen or small, runs on the host, or runs in a constructor alone. One finding for each
  function: a single `with torch.no_grad():` replaces them all;
- `net.requires_grad = False` on a module: it sets a plain attribute, and the parameters still require grad. The same for
  `net.requires_grad_ = False`, which hides the method, and for `net.parameters().requires_grad = False`, which raises.

The same applies to `torch.inference_mode`.

It does not report:

- the flag on a tensor or a parameter;
- a flag that the module itself reads;
- a module whose parameters a loop or a call freezes anyway.

## What it costs
The code builds autograd graphs, with the costs of TML201: the peak is higher by a graph (warning), or results are kept with
their graphs at every step (error). A `with` without parentheses raises, and its block does not run. For the generator it is
the opposite: a training step in its consumer may run without grad, and `backward()` fails or does nothing.

A module that is not frozen as intended (warning) gets a gradient for each of its parameters in each backward through it, until the
gradients are reset, and an optimizer that has the parameters trains them. Measured for six linear layers of 25.2 MB before a head: 25.2 MB of
gradients, and 8.4 MB saved for the backward. After `requires_grad_(False)`, there are no gradients, and 2.1 MB are saved, the head's
input. If every forward of the module is under `no_grad`, the finding is a note.

## Example
```python
import torch


def accuracy(model, inputs, labels):
    model.eval()
    torch.no_grad()
    return (model(inputs).argmax(1) == labels).float().mean()
```

Use instead:

```python
import torch


def accuracy(model, inputs, labels):
    model.eval()
    with torch.no_grad():
        return (model(inputs).argmax(1) == labels).float().mean()
```

## Fix
Adds the missing parentheses. Safe: without them the program only raises. There is no fix if the block computes something
that is back-propagated, or that a `forward` or a loss returns: the model would get no gradient, and removing the `with` may be
right. `net.requires_grad = False` becomes `net.requires_grad_(False)`. Unsafe: what was trained until then is frozen. A generator that
yields inside the block is decorated as well. Unsafe: its consumer runs with grad mode on then. The other cases have no fix, because the
code that should run without grad is not known.

## When to ignore
Never for the first four, nor for flags of modules; for the generator, if its consumer never trains.

## References
- torch.no_grad: https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html
- torch.inference_mode: https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html
- Module.requires_grad_: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.requires_grad_
- measured: each spelling was run with torch 2.13.0 on the CPU
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torchmemlint.findings import Edit, Fix, Safety, Severity, Span
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, short
from torchmemlint.rules.card import About, Advice, Correction, Same
from torchmemlint.rules.cost.circumstances import why_cheap
from torchmemlint.rules.evidence.module_evidence import ModuleEvidence, evidence_of
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.gradmode.consumers import may_train_between
from torchmemlint.rules.gradmode.fixes import above_function
from torchmemlint.rules.gradmode.flags import judge_flag, may_set_flag
from torchmemlint.semantics.dataflow import block_needed
from torchmemlint.semantics.identity import FLAG, METHOD
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import CALLED_KINDS, MODULE, GradModeMisuse, Graph, GraphKind, Misuse, Mode
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML202",
    name="ineffective-no-grad",
    summary="Grad mode should be off, or a model frozen, but this spelling has no effect",
    severity=Severity.ERROR,
    typical=Severity.WARNING,
    about=About.NEEDLESS_GRAPH,
    fix=Safety.SAFE,
    triggers=TORCH.words["grad-words"] | {FLAG, METHOD},
    explains=Same.FUNCTION,
    correction=Correction.OWN_FIX,
    advice=frozenset({Advice.NO_GRAPH}),
)
EVENT = GradModeMisuse

SAYINGS = {
    "statement": (
        Severity.WARNING,
        "`{name}` as a statement creates a context manager and discards it: grad mode does not change",
        "write `with {name}:` around the code, or `torch.set_grad_enabled(False)` for the code that follows",
    ),
    "enable-statement": (
        Severity.NOTE,
        "`{name}` as a statement creates a context manager and discards it: grad mode does not change",
        "remove it if grad mode is on anyway, or write `with {name}:` around the code",
    ),
    "enable-statement-off": (
        Severity.ERROR,
        "`{name}` as a statement creates a context manager and discards it: grad mode stays off",
        "write `with {name}:` around the code that needs a graph",
    ),
    "with-uncalled": (
        Severity.ERROR,
        "`with {name}:` enters the class, not an instance of it: this raises TypeError (AttributeError before Python 3.11)",
        "call it: `with {name}():`",
    ),
    "async-decorator": (
        Severity.WARNING,
        "`@{name}` on an `async def` has no effect: the decorated call only creates the coroutine; its body runs later",
        "put `with {name}:` inside the body, without an `await` in it",
    ),
    "async-generator-decorator": (
        Severity.WARNING,
        "`@{name}` on an async generator has no effect: the decorated call only creates the generator; its body runs later",
        "put `with {name}:` inside the body, around the code that runs the model, without a `yield` or `await` in it",
    ),
    "class-decorator": (
        Severity.ERROR,
        "`@{name}` on a class disables grad mode in `__init__` only, and turns the class into a function",
        "decorate the methods that should run without grad",
    ),
    "volatile": (
        Severity.WARNING,
        "`volatile=True` has had no effect since torch 0.4",
        "run the code under `with torch.no_grad():`",
    ),
    "generator-leak": (
        Severity.WARNING,
        "this generator yields inside `with {name}:`: between items, grad mode is off in the consumer, too",
        "decorate the generator instead (`@{name}`), or close the `with` before the `yield`",
    ),
    "bare-decorator": (
        Severity.ERROR,
        "`@{name}` without parentheses fails before torch 2.1",
        "write `@{name}()`",
    ),
}


FREEZE = "`{name}.requires_grad_(False)` freezes each of its parameters"
FLAGS = {
    Misuse.MODULE_FLAG: (
        "`{name}.requires_grad = False` on a module sets a plain attribute: its parameters still require grad",
        FREEZE,
    ),
    Misuse.PARAMETERS_FLAG: (
        "`{name}` is a generator: setting `requires_grad` on it raises AttributeError",
        FREEZE,
    ),
    Misuse.METHOD_OVERWRITTEN: (
        "`{name}.requires_grad_ = False` hides the method instead of calling it: its parameters still require grad",
        FREEZE,
    ),
}
"""Message and help for flags that are set on what has none."""
WITHOUT_BLOCK = (
    "this generator yields with grad mode off: between items, it is off in the consumer, too",
    "decorate the generator instead (`@torch.no_grad()`), or re-enable grad mode before the `yield`",
)
"""Message and help for a generator that switches grad mode off by no ``with``."""
LABELS = {
    "generator-leak": "the consumer continues from here without grad mode",
    "with-uncalled": "not called",
    "bare-decorator": "not called",
    "class-decorator": "applies to `__init__` only",
}
VERSION = re.compile(r"\btorch\.__version__|\b(torch|pytorch)_?version\b", re.IGNORECASE)
"""Tests of torch's version."""
DECORATES = re.compile(r"^[\w.]*(no_grad|inference_mode)\(\)$")
"""Managers that are decorators as well."""
LONGEST = 60
"""Letters of a manager's text that a message has room for."""
COST = "code that runs here still builds autograd graphs"
ENABLE_COSTS = {
    "enable-statement": "nothing while grad mode is on; if a caller has disabled it, it stays off",
    "enable-statement-off": "the following code records no autograd graph: `backward()` fails, or gives no gradient",
}
BUILDS_NONE = ENABLE_COSTS.keys() | {"generator-leak"}
"""Mistakes by which no graph is built that should not be: they explain none that is kept."""
RAISES_COST = "the block never runs: the program always fails here"
UNSEEN_COST = "nothing here visibly builds a graph; code that needs gradients builds one despite the decorator"
WITHOUT_WITH = "call it (`with {name}():`) if nothing is trained on the results of the block, else remove the `with`: `backward()` would fail"
GIVES_LOSS = TORCH.words["gives-loss"]
"""Words of functions whose result something is trained on."""
CONSUMED_COST = "nothing today: no visible consumer trains while it iterates over the items"
FROZEN_COST = "nothing today: all parameters of the networks that run here are frozen, so no graph is built"
CONSUMER_COST = "the consumer's training step may run without grad"


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """Whether a function sets a flag of something that is no parameter which it loops over."""
    return may_set_flag(runs.world, ref, facts)


def check(event: GradModeMisuse, flow: Flow) -> Iterator[Draft | Fact]:
    if not flow.own(event.site):
        return
    if event.kind in FLAGS:
        yield flagged(event, flow)
        return
    if event.kind == "bare-decorator":
        target = flow.runs.world.settings.target_torch
        if target is None or target >= (2, 1):
            return
    if event.kind.startswith("async-") and flow.record.root.qualname == MODULE and dotted_last(event.name) in RULE.triggers:
        return  # the function is run by itself, which shows its body
    if event.kind == "volatile" and (silent := why_no_graph(event, flow)):
        yield silent
        return
    severity, message, help_text = SAYINGS[event.kind]
    cost = CONSUMER_COST if event.kind == "generator-leak" else ENABLE_COSTS.get(event.kind, COST)
    if event.kind == "with-uncalled":
        cost = RAISES_COST
    trained = event.hands_out and is_trained_on(flow)
    if trained:
        help_text = WITHOUT_WITH
    if event.kind.startswith("async-") and not builds_graph(flow):
        cost = UNSEEN_COST
    if event.kind == "volatile":
        networks = networks_of(flow)
        small = "" if not networks or all_frozen(networks) else why_all_small(event, networks, flow)
        if small or all_frozen(networks):
            severity, cost = Severity.NOTE, f"{COST}; small here: {small}" if small else FROZEN_COST
    if event.kind == "generator-leak" and not may_train_between(flow.runs.world, flow.frame(event.site).ref):
        severity, cost = Severity.NOTE, CONSUMED_COST
    name = event.name
    if event.kind == "generator-leak":
        name = name if len(name) <= LONGEST else "torch.no_grad()"
        if not name:
            message, help_text = WITHOUT_BLOCK
    if event.kind.startswith(("generator-", "async-")) and not DECORATES.search(name):
        help_text = help_text.replace("{name}", "torch.no_grad()")
    fix: Fix | NoFix | None = None
    if event.kind in ("with-uncalled", "bare-decorator"):
        fix = call_it(event, trained, flow)
    elif event.kind == "generator-leak" and DECORATES.search(name):
        fix = decorate_generator(event, dotted_last(name.removesuffix("()")), flow)
    yield Draft(
        flow.at(
            RULE, event.site, message.format(name=name), severity=severity, label=LABELS.get(event.kind, "has no effect"),
            cost=cost, help=help_text.format(name=name), fix=fix,
        ),
        handler=event.site.handler,
        loops=event.site.loops,
        cause=event.kind if event.kind == "volatile" else "",
        apart=event.kind in BUILDS_NONE,
    )  # fmt: skip


def flagged(event: GradModeMisuse, flow: Flow) -> Draft | Fact:
    """The finding for a flag that freezes nothing."""
    judged = judge_flag(event, flow)
    if isinstance(judged, Fact):
        return judged
    text, help_text = FLAGS[event.kind]
    return Draft(
        flow.at(
            RULE, event.site, text.format(name=short(event.name)), severity=judged.severity, doubts=judged.doubts,
            label="freezes nothing", cost=judged.cost, help=help_text.format(name=judged.network), fix=judged.fix,
        ),
        handler=event.site.handler,
        apart=True,
    )  # fmt: skip


def decorate_generator(event: GradModeMisuse, manager: str, flow: Flow) -> Fix | NoFix | None:
    """The decorator, which switches grad mode back on at each ``yield``, where nothing in the generator is trained."""
    ref = flow.frame(event.site).ref
    facts = flow.runs.world.facts(ref)
    if facts.qualname != ref.qualname or facts.is_async or not facts.is_generator:
        return None
    trains = sorted(facts.names & BACKWARD)
    if trains:
        return NoFix(f"the generator calls `{trains[0]}`")
    return above_function(ref, flow, f"{manager}()", "Decorate the generator")


BACKWARD = TORCH.words["back-propagates"]


def call_it(event: GradModeMisuse, trained: bool, flow: Flow) -> Fix | NoFix:
    """The missing parentheses, where nothing is trained on what the block makes."""
    why = ""
    if event.kind == "with-uncalled":
        why = block_needed(flow.runs.world, flow.frame(event.site).ref, event.site.node)
        if trained:
            why = why or "the returned value may be trained"
    end = flow.span(event.site).end
    return NoFix(why) if why else Fix("Call it", Safety.SAFE, (Edit(Span(end, end), "()"),))


def is_trained_on(flow: Flow) -> bool:
    """Whether what the function returns is by its name an output or a loss that something is trained on."""
    name = flow.record.root.qualname
    says = GIVES_LOSS.intersection(purpose.words(name)) or (name.endswith(".__call__") and flow.root_is_module())
    return bool(says) and not purpose.evaluates(name)


def networks_of(flow: Flow) -> list[Graph]:
    """The forwards of networks that the root runs with grad mode on."""
    return [
        graph
        for graph in flow.record.graphs.values()
        if graph.kind in CALLED_KINDS and graph.mode is not Mode.OFF and (graph.frozen or is_network(graph, flow))
    ]


def all_frozen(networks: Sequence[Graph]) -> bool:
    """Whether every network is frozen, and given nothing that has a graph; at least one is."""
    return bool(networks) and all(graph.frozen for graph in networks)


def why_all_small(event: GradModeMisuse, networks: Sequence[Graph], flow: Flow) -> str:
    """Why the graphs of all networks are small, in the words for the first of those that are not frozen, or short-lived; "" where one may
    be large."""
    if flow.record.root.qualname.endswith(".__init__") and not event.site.loops:
        return "it runs once, when the object is made"
    reasons = [why_cheap(graph, flow) for graph in networks if not graph.frozen]
    return reasons[0] if all(reasons) else ""


def why_no_graph(event: GradModeMisuse, flow: Flow) -> Fact | None:
    """Why nothing is built of what ``volatile=True`` is set on."""
    if any(VERSION.search(test) for test in event.site.guards):
        return Fact("version-test", "a test of torch's version decides whether it runs")
    if not may_build(event, flow):
        return Fact(
            "volatile-without-graph",
            "nothing that runs here has parameters, and the value stays in the function: no graph is built",
        )
    return None


def may_build(event: GradModeMisuse, flow: Flow) -> bool:
    """Whether a graph may be built of what ``volatile=True`` is set on: a network runs in the function, or it leaves the function."""
    facts = flow.runs.world.facts(flow.frame(event.site).ref)
    if facts.qualname == MODULE or facts.is_generator:
        return True
    built = [graph for graph in flow.record.graphs.values() if graph.mode is not Mode.OFF]
    if any(graph.kind in CALLED_KINDS and (graph.kind is not GraphKind.OPAQUE or runs(graph)) for graph in built):
        return True
    name = flow.lowered(event.site).statement(event.site.node)[1].partition(" = ")[0]
    kept = {use.callee for use in facts.returned} | facts.reads
    return not name.isidentifier() or name in kept


def runs(graph: Graph) -> bool:
    """Whether a callee that is not visible may be a network."""
    return graph.frozen or purpose.may_be_network(graph.what)


def is_network(graph: Graph, flow: Flow) -> bool:
    """Whether a call may run a module that is not one of a network that runs itself."""
    return flow.own(graph.site) and evidence_of(graph, flow) is not ModuleEvidence.NONE


def dotted_last(text: str) -> str:
    """The last name of a decorator's text: "torch.no_grad()" → no_grad."""
    return text.partition("(")[0].rpartition(".")[2]


def builds_graph(flow: Flow) -> bool:
    """Whether the root runs a module with grad mode on, or calls what may be one by its name."""
    return any(
        not graph.frozen
        and (graph.kind is GraphKind.FORWARD or (graph.kind is GraphKind.OPAQUE and purpose.may_be_network(graph.what)))
        for graph in flow.record.graphs.values()
        if graph.mode is not Mode.OFF
    )
