"""The losses of several forwards are summed before one backward: all their graphs are alive at once.

## What it does
Reports a sum of losses, in a variable or a list, to which each iteration of a loop adds one forward of the same model, and
which is back-propagated as a whole, after the loop or every few iterations. One backward for each part gives the same
gradients, and frees each graph before the next one is built.

It does not report:

- parts that share a graph from before the loop (several heads on one body);
- iterations that continue from the previous one (a recurrent state, the layers of a network);
- loops over models;
- a backward of something other than a sum (a maximum, a square, a loss of summed outputs);
- loops over a few written-out items (`for view in (x, x.flip(0))`), `while` loops, and the episode of an agent: what its steps are worth
  is known at its end.

## What it costs
As many graphs at the peak as there are parts. Measured on the CPU: one step over the same samples (128 for a 6-layer
encoder, 256 for a convnet), peak in MB:

| micro-batches | encoder, backward each | encoder, summed | convnet, each | convnet, summed |
|---|---|---|---|---|
| 1 | 768 | 768 | 738 | 738 |
| 2 | 386 | 760 | 369 | 604 |
| 4 | 193 | 755 | 185 | 537 |
| 8 | 97 | 753 | 92 | 503 |
| 16 | 49 | 752 | 46 | 486 |

It is a note where the program runs on the host, and where the loop goes over something of which the code does not show that it has
more than two items: a plain list may have one. A slice that moves over a list (`data[start : start + size]`) is a batch.

With one backward per part, memory depends on the size of a part. With a sum, it is nearly that of the whole batch, so the
parts save almost nothing.

## Example
```python
import torch.nn.functional as F


def step(model, batch, labels, optimizer, parts=4):
    optimizer.zero_grad()
    total = 0.0
    for x, y in zip(batch.chunk(parts), labels.chunk(parts)):
        total = total + F.cross_entropy(model(x), y) / parts
    total.backward()
    optimizer.step()
```

Use instead:

```python
import torch.nn.functional as F


def step(model, batch, labels, optimizer, parts=4):
    optimizer.zero_grad()
    for x, y in zip(batch.chunk(parts), labels.chunk(parts)):
        loss = F.cross_entropy(model(x), y) / parts
        loss.backward()
    optimizer.step()
```

## Fix
None: move the backward into the loop, together with the division of the sum.

## When to ignore
There are few parts, and memory for all of them. Or a hook, a distributed wrapper or an optimizer's closure needs exactly one
backward per step (`DistributedDataParallel.no_sync()` allows several).

## References
- torch.Tensor.backward, gradients accumulate: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html
- Automatic mixed precision examples, "Gradient accumulation": https://docs.pytorch.org/docs/stable/notes/amp_examples.html
- measured: torch 2.13.0 on the CPU, see benchmarks/evidence/records; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.card import About, Advice, Correction
from torchmemlint.rules.cost.size import ON_HOST, are_on_host
from torchmemlint.rules.cost.table import price
from torchmemlint.rules.reach import rows_of_steps
from torchmemlint.semantics.interpret import ANY_WIDTH, width_of_loop
from torchmemlint.semantics.state import (
    CALLED_KINDS,
    MADE_KINDS,
    MARK_KINDS,
    Accumulate,
    Backward,
    Graph,
    GraphKind,
    Kind,
    LoopInfo,
    Site,
    Store,
)
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML507",
    name="micro-batches-summed-before-backward",
    summary="The losses of several forwards are summed before one backward: all their graphs are alive at once",
    severity=Severity.WARNING,
    about=About.FOOTPRINT,
    triggers=TORCH.words["back-propagates"],
    correction=Correction.BACKWARD,
    advice=frozenset({Advice.SMALLER_BATCHES}),
)
EVENT = (Accumulate, Store)


def is_episode(loop: tuple[int, int], site: Site, flow: Flow) -> bool:
    """Whether each iteration gives an environment an action."""
    span = flow.span(site, loop[1])
    return any(span.start.row <= row <= span.end.row for row in rows_of_steps(flow.frame(site).ref, flow))


FEW = 2
"""Iterations up to which a backward in each of them saves little."""
NOT_LINEAR = TORCH.words["not-linear"]
"""What makes one value of the parts that a backward for each of them would not give."""


def check(event: Accumulate | Store, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site) or event.loop is None or event.loop not in event.site.loops:
        return
    if isinstance(event, Accumulate):
        if event.through_module or event.how not in ("+=", "+"):
            return
    elif event.how != "append" or event.external:
        return
    record = flow.record
    info = record.loops.get(event.loop)
    if info is None or info.is_while or info.text.startswith(("(", "[")) or not linear(event.mark, flow):
        return
    later = next(
        (e for e in record.events.values() if isinstance(e, Backward) and event.mark in e.graphs and after(e, event)), None
    )
    if later is None or later.partial or shared(event, later, flow) or is_episode(event.loop, event.site, flow):
        return
    own = one_forward_a_turn(event, flow, info.targets)
    if own is None or is_added_before(event, own, flow):
        return
    cost = "as many graphs at the peak as the loop has iterations, instead of one"
    circumstances = {
        "on-host": lambda: ON_HOST if are_on_host((own,), flow) else "",
        "unknown-many": lambda: why_unknown(info, event.loop, flow),
    }
    severity, cost = price("graphs-of-parts", cost, circumstances, info.turns)
    yield Draft(
        flow.at(
            RULE,
            event.site,
            f"`{short(event.place)}` collects losses that are back-propagated together: all their graphs are alive at once",
            label="one more graph in each iteration",
            severity=severity,
            cost=cost,
            help="call `backward()` for each part, inside the loop: gradients accumulate, and each graph is freed before the next",
            flow=[
                flow.step_of(own, f"`{short(own.what)}(…)` builds a graph in each iteration"),
                flow.step(later.site, "one backward for all of them"),
            ],
        ),
        handler=event.site.handler,
    )


def is_added_before(event: Accumulate | Store, forward: Graph, flow: Flow) -> bool:
    """Whether an iteration adds another loss of the same forward to the same sum before: one backward for both frees the graph."""
    for other in flow.record.events.values():
        if other is event:
            return False
        if isinstance(other, Accumulate | Store) and (other.place, other.loop) == (event.place, event.loop):
            if flow.own(other.site) and forward.gid in flow.record.ancestors(other.graphs):
                return True
    return False


def why_unknown(info: LoopInfo, loop: tuple[int, int], flow: Flow) -> str:
    """Why the graphs may be few, in words; "" where they are many: of the parts of a batch, or of batches."""
    text = info.text.removeprefix("enumerate(").removesuffix(")")
    many = info.kind is Kind.LOADER or loop in flow.record.drawing or "(" in text
    if not many:
        width = width_of_loop(flow.runs.world, flow.record.frames[loop[0]].ref, loop[1])
        many = width == ANY_WIDTH or width > FEW
    return "" if many else f"the code does not show that `{short(text)}` has many items"


def shared(event: Accumulate | Store, backward: Backward, flow: Flow) -> bool:
    """Whether something else that an iteration's graph gave is kept, and used in another way than by this backward: the graph
    is still needed when the loop is over."""
    record = flow.record

    def of_a_turn(graphs: frozenset[int]) -> set[int]:
        found = {g for g in record.ancestors(graphs) if g in record.graphs and event.loop in record.graphs[g].site.loops}
        return {g for g in found if record.graphs[g].kind in CALLED_KINDS and not record.graphs[g].frozen}

    mine = of_a_turn(event.graphs)
    return any(
        isinstance(other, (Accumulate, Store))
        and other.mark not in (event.mark, *backward.graphs)
        and bool(mine & of_a_turn(other.graphs))
        for other in record.events.values()
    )


def linear(mark: int, flow: Flow) -> bool:
    """Whether only sums and factors stand between the collected losses and the backward."""
    seen = flow.record.evidence.get(mark, set()) | flow.record.operations.get(mark, set())
    return not seen & NOT_LINEAR


def after(backward: Backward, event: Accumulate | Store) -> bool:
    """Whether a backward runs after the loop, or in some of its iterations only (``if i % 8 == 0``)."""
    if event.loop not in backward.site.loops:
        return True
    inside = backward.site.loops[-1] == event.loop and event.site.loops[-1] == event.loop
    return inside and bool(set(backward.site.guards) - set(event.site.guards))


def one_forward_a_turn(event: Accumulate | Store, flow: Flow, targets: frozenset[str]) -> Graph | None:
    """The forward of the loop's iteration that the added loss is attached to; None where the iterations share a graph, or go on
    from one another."""
    record = flow.record
    through = [record.graphs[g] for g in sorted(record.ancestors(event.graphs)) if g in record.graphs]
    total = event.key if isinstance(event, Accumulate) else None
    carried = [g for g in through if g.kind is GraphKind.CARRIED and g.place != total and event.loop in g.site.loops]
    first = {record.call_of(g).what for g in through if g.kind is GraphKind.OPAQUE and event.loop not in g.site.loops}
    ahead = {record.call_of(g).what for each in carried for g in brought_by(each, flow)} & first
    if not all(is_taken_ahead(each, event, ahead, flow) for each in carried):
        return None
    ran: list[Graph] = []
    for graph in through:
        if graph.kind in MADE_KINDS and graph.site.node >= 0:  # not a part of what was handed in
            if record.call_of(graph).what in ahead:
                continue
            if event.loop not in graph.site.loops:
                return None
            if graph.kind is GraphKind.FORWARD or graph.direct:
                if is_one_of_many(graph, targets):
                    return None
                ran.append(graph)
    models = [g for g in ran if is_model(g, ran, flow)]
    return models[0] if models else None


def is_one_of_many(graph: Graph, targets: frozenset[str]) -> bool:
    """Whether what ran is another network in each iteration: what the loop goes over, or what that chooses (``self.heads[domain]``)."""
    return graph.what.partition(".")[0].partition("[")[0] in targets or any(f"[{name}]" in graph.what for name in targets)


def brought_by(carried: Graph, flow: Flow) -> list[Graph]:
    """What the value hangs on that an iteration leaves under a name for the next one."""
    record = flow.record
    brought = record.carried.get((carried.place, carried.site.loops[-1]), ())
    hanging = [record.graphs[gid] for gid in sorted(record.ancestors(frozenset(brought)))]
    return [graph for graph in hanging if graph.kind not in PASSING]


def is_taken_ahead(carried: Graph, event: Accumulate | Store, ahead: set[str], flow: Flow) -> bool:
    """Whether an iteration, once it has added its loss, takes the batch of the next one by a call that gave the first batch, too
    (``x, y = get_batch()``): no two iterations share what it gives, and none goes on from another."""
    brought = brought_by(carried, flow)
    return bool(brought) and all(
        flow.record.call_of(g).what in ahead and g.site.loops == event.site.loops and g.site.node > event.site.node
        for g in brought
    )


PASSING = MARK_KINDS - {GraphKind.CARRIED, GraphKind.WANTED}
"""Marks of what was done with a value, which say nothing of where it comes from."""


def is_model(graph: Graph, ran: list[Graph], flow: Flow) -> bool:
    """Whether what ran is a model, and not the loss of one: a module, or an unknown object whose result goes into a loss."""
    if graph.kind is GraphKind.FORWARD:
        return not graph.frozen
    return "loss" in flow.record.operations.get(graph.gid, ()) or any(graph.gid in other.parents for other in ran)
