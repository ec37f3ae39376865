"""A backward keeps its graph, and no other backward uses it.

## What it does
Reports `backward(retain_graph=True)` if no second backward or `autograd.grad` on the same graph can follow: in this
function, in methods that read the stored value, or in callers. The argument is often added to silence "Trying to
backward through the graph a second time", while the cause remains: a state that is carried on without `detach()`, or a
generator's output that is not detached for the discriminator.

It does not report:

- a graph that a later backward goes through, even in part, unless both share only a network whose gradient of this backward is
  zeroed before its optimizer steps: a generator in the discriminator's loss;
- a call in a loop, if the graph was built before the loop (the rows of a Jacobian, several heads on one trunk);
- a call in a loop, if the loss includes what another method left in an attribute with its graph;
- a graph that includes state of an earlier step, which TML104 reports;
- a loss from callers that are not visible, or a value passed to code that is not visible before the optimizers step.

It does report a loss that leaves a loop, if an optimizer steps after its forward: autograd cannot go back through values
that were computed with the old parameters.

## What it costs
The graph's saved tensors stay alive until the loss, and everything else computed from that forward, is freed. If the names
are only rebound by the next step, that is during its forward. Measured for a 6-layer encoder whose loss is rebound in each
step: a peak of 100.5 MB instead of 53.3 MB, one extra graph. If the loss is also kept (TML101, TML102), the whole graph of
each step stays: 47.2 MB per step. The finding is a note where the graph is likely to be small: linear layers of small or
unknown width, a single layer, or a program that moves nothing to a device. It is also a note where the function returns
after one step and nothing that it returns or stores has the graph: then the saved tensors live through `optimizer.step()`,
and are freed before the next forward.

## Example
```python
import torch


def train(model, loader, criterion, optimizer):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward(retain_graph=True)
        optimizer.step()
```

Use instead:

```python
import torch


def train(model, loader, criterion, optimizer):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
```

## Fix
Removes `retain_graph=True`. Unsafe: code that the analysis cannot see may go through the graph again, and would then
raise RuntimeError.

## When to ignore
A debugger, a hook or a subclass differentiates the same graph again.

## References
- torch.Tensor.backward, "in nearly all cases setting this option to True is not needed":
  https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Fix, Safety, Severity
from torchmemlint.index.arguments import argument_for
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.rules.api import Draft, Flow, NoFix, Rule, short
from torchmemlint.rules.assumed import READ_BY_A_CALLER
from torchmemlint.rules.card import About, Advice, Correction, Shown
from torchmemlint.rules.cost.circumstances import of_graphs
from torchmemlint.rules.cost.size import is_loss
from torchmemlint.rules.cost.table import price
from torchmemlint.rules.evidence.held_by_steps import optimizer_by_steps
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.dataflow import OWN, is_rebound
from torchmemlint.semantics.identity import discards, function_or_closure
from torchmemlint.semantics.roots import need_of
from torchmemlint.semantics.state import CALLED_KINDS, MADE_KINDS, MODULE, Backward, Graph, GraphKind, Mode, Store, World
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML105",
    name="retained-graph-in-loop",
    summary="A backward keeps its graph, and no other backward uses it",
    severity=Severity.WARNING,
    about=About.GRAPH_KEPT,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["retains-graph"],
    correction=Correction.SWITCH,
    keyword=TORCH.names["keeps-graph"],
    shown=frozenset({Shown.SECOND_STEP}),
    advice=frozenset({Advice.NO_GRAPH_KEPT}),
)

EVENT = Backward


def need_of_graph(event: Backward, flow: Flow) -> str:
    """Why the graph may have to be kept; "" where surely nothing needs it."""
    if not event.retains or event.creates or event.gradients or not flow.own(event.site):
        return "it does not say `retain_graph=True` itself, or also says `create_graph=True`"
    if flow.hooks_forwards():
        return "a value that a hook kept from another forward may be part of the loss"
    return need_of(flow.runs, flow.record.root, flow.frame(event.site).ref, event.site.node)


def shared_for_nothing(event: Backward, flow: Flow) -> str:
    """A network that the graph shares with that of another backward, where this one computes for all of them only gradients that are zeroed
    before a step: the discriminator's loss goes through a generator, which its own loss goes through again."""
    if not event.retains or event.creates or event.gradients or flow.hooks_forwards():
        return ""
    record, world, root = flow.record, flow.runs.world, flow.record.root
    call = world.facts(root).call_ending(flow.span(event.site).end)
    if call is None:
        return ""
    others = [each for each in record.events.values() if isinstance(each, Backward) and each.site.key != event.site.key]
    above = record.ancestors(event.graphs | event.hints)
    common = above & frozenset().union(*(record.ancestors(each.graphs | each.hints) for each in others))
    shared = [record.graphs[gid] for gid in sorted(common)]
    networks = [graph.what for graph in shared if graph.kind in CALLED_KINDS and flow.own(graph.site)]
    if above & record.returned or any(graph.kind in (GraphKind.LEAF, GraphKind.WANTED) for graph in shared):
        return ""
    thrown = all(discards(world, root, what, call, optimizer_by_steps(what, flow)) for what in networks)
    return networks[0] if networks and thrown else ""


def from_outside(event: Backward, flow: Flow) -> bool:
    """Whether the graph came in from callers none of whom is visible."""
    graphs = [flow.record.graphs[gid] for gid in event.graphs | event.hints if gid in flow.record.graphs]
    given = any(graph.kind is GraphKind.PARAM for graph in graphs)
    return given and flow.record.mode is Mode.NO_CALLERS


def held_in(event: Backward, flow: Flow) -> str:
    """The attribute in which a function that returns after one step leaves what hangs on the graph (``self.outputs = net(x)``)."""
    if event.site.loops or flow.record.root.qualname == MODULE:
        return ""
    above = flow.record.ancestors(event.graphs | event.hints)
    made = {gid for gid in above if flow.record.graphs[gid].kind in MADE_KINDS}
    stores = (each for each in flow.record.events.values() if isinstance(each, Store) and each.external and flow.own(each.site))
    places = [store.place for store in stores if store.graphs & made and OWN.fullmatch(store.place)]
    return next((place for place in places if not is_rebound(flow.runs.world, flow.record.root, place)), "")


def is_freed_at_return(event: Backward, flow: Flow) -> bool:
    """Whether the function around the backward runs the network itself, returns after one step, and takes the graph with it: nothing that
    it returns or stores is attached to it. What came in as an argument, the caller still holds."""
    record, frame = flow.record, event.site.frame
    own = flow.frame(event.site)
    if any(loop[0] == frame for loop in event.site.loops) or own.ref.qualname == MODULE:
        return False
    if own.parent >= 0 and gives_a_value(flow.runs.world, own.ref):
        return False  # which of its values its own caller keeps, is not followed
    above = {gid for gid in record.ancestors(event.graphs | event.hints) if record.graphs[gid].kind is not GraphKind.WANTED}
    made = [graph for gid in above if (graph := record.graphs[gid]).kind in CALLED_KINDS and not is_loss(graph, flow)]
    if not made or above & record.returned or not all(is_made_in(graph, frame, flow) for graph in made):
        return False
    fates = [flow.runs.fate(record, gid) for gid in sorted(above)]
    return not any(fate.kept or fate.passed or fate.escapes for fate in fates)


def gives_a_value(world: World, ref: FunctionRef) -> bool:
    """Whether a function returns something; of a lambda, whether the function around it does."""
    own = function_or_closure(world, ref) or function_or_closure(world, world.outermost(ref))
    return own is None or any(isinstance(each, ir.Return) and each.value is not None for each in nodes_of(own.body))


def is_made_in(graph: Graph, frame: int, flow: Flow) -> bool:
    """Whether a graph is made in a frame, or in one that was entered from it."""
    found = graph.site.frame
    while found > frame:
        found = flow.record.frames[found].parent
    return bool(found == frame)


def is_let_go_by_callers(event: Backward, flow: Flow) -> bool:
    """Whether the function returns after one step, and neither returns the graph nor finds or leaves it in an attribute, and no caller
    visible has a name for what it gives: it holds the graph no longer than the call."""
    record = flow.record
    if event.site.loops or record.root.qualname == MODULE:
        return False
    above = record.ancestors(event.graphs | event.hints)
    if above & record.returned or any(flow.runs.fate(record, gid).kept for gid in sorted(above)):
        return False
    given = {graph.what for gid in above if (graph := record.graphs[gid]).kind is GraphKind.PARAM}
    if any("." in what for what in given):
        return False
    world = flow.runs.world
    header = world.header(record.root)
    attrs = world.project.attrs(ClassRef(record.root.path, header.owner)) if header.owner else ()
    if any(attr.method == record.root.qualname and attr.value in given for attr in attrs):
        return False
    params = header.params[bool(header.owner) :]
    calls = world.project.callers(record.root).calls
    args = [argument_for(params, name, each.call.args) for each in calls for name in sorted(given)]
    return not any(arg is not None and arg.name and not arg.name.endswith("()") for arg in args)


def stays(event: Backward, flow: Flow) -> tuple[str, str]:
    """What stays, and how long, as the table has it and in words."""
    place, name = held_in(event, flow), short(flow.frame(event.site).ref.qualname)
    if place:
        return "extra-graph", f"`{short(place)}` holds the graph with its saved tensors until it is assigned again"
    if is_freed_at_return(event, flow):
        return "graph-until-return", AT_RETURN.format(until=f"`{name}` returns: no higher peak unless what follows needs more")
    if is_let_go_by_callers(event, flow):
        return "graph-until-return", AT_RETURN.format(until=f"`{name}` returns, or until its caller drops the graph")
    return "extra-graph", "one extra graph at peak: the saved tensors stay alive during the next forward"


AT_RETURN = "the saved tensors stay alive after the backward until {until}"


def check(event: Backward, flow: Flow) -> Iterator[Draft | Fact]:
    if not flow.own(event.site):
        return
    need = need_of_graph(event, flow)
    discarded = shared_for_nothing(event, flow) if need else ""
    if need and not discarded:
        yield Fact("needed-by-a-later-backward", need)
        return
    severity, cost = price(*stays(event, flow), of_graphs(event.graphs | event.hints, flow))
    why = ", but no other backward goes through it"
    fix: Fix | NoFix | None = flow.edits.without_argument(
        event.site, event.kept_by, "Let the backward free its graph", Safety.UNSAFE
    )
    if discarded:
        why = f" for a gradient of `{short(discarded)}` that is zeroed before its optimizer steps"
        fix = NoFix(f"what `{short(discarded)}` gives must be detached in this loss, too")
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`retain_graph=True` keeps the graph{why}",
            label="keeps the saved tensors of this graph",
            severity=severity,
            doubts=(READ_BY_A_CALLER,) if from_outside(event, flow) else (),
            cost=cost,
            help="remove it; if that raises, `detach()` what the two backward calls must not share",
            fix=fix,
        ),
        handler=event.site.handler,
    )
