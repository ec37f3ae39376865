"""A network whose output is only a constant runs with grad mode on in a training step.

## What it does
Reports a network that runs with grad mode on in a function that trains another network, if its output is only used
detached: a teacher, a target network, a reference policy. The detach shows that the output is a constant, but its graph has
already been built.

Also reports a network for which a backward computes gradients that nothing uses, in the function or in the trainer that gets
its loss:

- its weights come from another network (`load_state_dict`, or parameter by parameter), the optimizer has the other network's
  parameters but not its own, and its input depends on nothing that is trained through it;
- or they come from a file or a library (the VGG of a perceptual loss), the optimizer has another network's parameters, or the
  image that is optimized, and this forward is given nothing that wants a gradient;
- or a function or class is given it, only evaluates it (`eval()`, never `train()`), and makes its optimizer of another network's
  parameters, or is a trainer of transformers, which trains its `model` alone: a teacher, a reference model;
- or it belongs to a criterion whose parameters no optimizer holds, and this forward is given nothing that wants a gradient: a perceptual
  loss on the wanted image;
- or its own optimizer zeroes the gradients before it steps: a discriminator that sees real data in the generator's step, a generator in
  the discriminator's. Where optimizers are made elsewhere, what steps after which backward shows the networks that they hold.

It does not report:

- networks with frozen parameters;
- outputs that are detached in one term of the loss, and trained or kept in another;
- outputs from which the code computes a value with a graph that the analysis cannot follow to its end: it may be trained;
- a policy that chooses the action for a target network, if its optimizer calls `zero_grad()` before it steps.

## What it costs
One extra graph at peak, in addition to the trained one, if the detach comes after the student's forward. Measured on the
CPU with a teacher and a student that are 6-layer encoders: a peak of 68.0 MB instead of 49.3 MB under `no_grad`, and 87.0 MB if
the detach comes last. If the output is detached before the student runs, the peak is 49.3 MB, too, and only the time to build
the graph is lost.

## Example
```python
import torch


def distill(student, teacher, loader, criterion, optimizer):
    teacher.eval()
    for inputs in loader:
        wanted = teacher(inputs)
        loss = criterion(student(inputs), wanted.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

Use instead:

```python
import torch


def distill(student, teacher, loader, criterion, optimizer):
    teacher.eval()
    for inputs in loader:
        with torch.no_grad():
            wanted = teacher(inputs)
        loss = criterion(student(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Fix
Adds `with torch.no_grad():` around the statement, if it is alone on one line; adjacent statements share one. Unsafe: the
output may reach a backward that the analysis cannot see. There is no fix, and the finding says why, if the statement also
computes something that is trained (`loss = ce(net(x), y) + kd(net(x), teacher(x).detach())`), or if a backward may go through
its result on another path, in another phase or in a caller.

## When to ignore
The output is detached immediately, and the network is small.

## References
- torch.no_grad: https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Safety, Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.rules.assumed import OPTIMIZED
from torchmemlint.rules.card import About, Advice, Correction, Same, Shown
from torchmemlint.rules.cost.circumstances import of_forward
from torchmemlint.rules.cost.size import stays_bound
from torchmemlint.rules.cost.table import price
from torchmemlint.rules.evidence.frozen import on_a_branch
from torchmemlint.rules.evidence.module_evidence import DETACHES
from torchmemlint.rules.evidence.standing import name_in_root
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.gradmode.fixes import guard_statement, guard_unheld
from torchmemlint.rules.gradmode.judgement import is_constant, is_reported, judge, meeting, when
from torchmemlint.rules.gradmode.never_updated import is_discarded, is_never_updated
from torchmemlint.semantics.identity import is_left_out, is_of_library
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import CALLED_KINDS, Backward, Graph, RecordFlag
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML203",
    name="frozen-model-with-grad",
    summary="A network whose output is only a constant runs with grad mode on in a training step",
    severity=Severity.WARNING,
    about=About.NEEDLESS_GRAPH,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["back-propagates"] | TORCH.words["cuts"],
    of_results=True,
    always=True,
    explains=Same.GRAPHS,
    correction=Correction.NO_GRAD,
    shown=frozenset({Shown.NO_BACKWARD, Shown.ONLY_CONSTANT}),
    advice=frozenset({Advice.NO_GRAPH}),
)

EVENT = Graph

COST = "one extra graph at peak, in addition to the trained one"
BOUND_COST = ", and one more for each earlier result that something still holds"
UNUSED_COST = f"{COST}, and one gradient for each of its parameters, which no optimizer uses"
ZEROED = " that is zeroed before its optimizer steps"
SHOWN_COST = "one whole graph, built in each such step after the backward, and dropped"


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """Whether a function runs a network of a library that its object holds, and that no optimizer holds: one that only gives features."""
    own = {call.callee for call in facts.calls if call.args and call.callee.startswith("self.")} if facts.owner else ()
    return any(is_of_library(runs.world, ref, text) and is_left_out(runs.world, ref, text) for text in sorted(own))


def check(event: Graph, flow: Flow) -> Iterator[Draft | Fact]:
    unheld = is_never_updated(event, flow)
    if unheld:
        above = [flow.record.graphs[gid] for gid in flow.record.ancestors(event.parents)]
        if any(is_never_updated(graph, flow) for graph in above):
            return  # one chain, one cause: reported at its first network
        zeroed = is_discarded(event, flow)
        doubts: tuple[Fact, ...] = (*(() if zeroed else (OPTIMIZED,)), *on_a_branch(event, flow))
        cause = ""
        site, steps, cost = flow.own_site(event.site), [], COST if is_wanted_elsewhere(event, flow) else UNUSED_COST
        text = f" and gets a gradient{ZEROED if zeroed else ', but no optimizer holds its parameters'}"
    else:
        verdict = judge(event, flow)
        if isinstance(verdict, Fact):
            if RecordFlag.BACKWARD in flow.record.flags and event.kind in CALLED_KINDS:
                yield verdict
            return
        if not is_constant(event, flow):
            return
        if is_fed_by_reported(event, flow):
            yield Fact("chain-reported", "a forward whose result it is given is reported: one chain, one cause")
            return
        site = flow.own_site(event.site)
        doubts = verdict.facts
        cause = meeting(verdict.fate.cuts, flow)
        steps = [flow.step(s.site, "detached here") for s in verdict.fate.cuts if s.how in DETACHES][:1]
        cost = SHOWN_COST if is_behind_all_steps(event, flow) else COST + BOUND_COST * stays_bound(event, flow)
        text = ", but its output is only used as a constant, detached"
    fate = flow.runs.fate(flow.record, event.gid)
    severity, cost = price("extra-graph", cost, of_forward(event, fate, flow))
    called = f"`{short(flow.callee(site))}(…)`"
    if unheld and not flow.own(event.site):
        called = f"`{short(name_in_root(event, flow))}`, which {called} calls,"
    yield Draft(
        flow.at(
            RULE,
            site,
            f"{called} runs with grad mode on{'' if unheld else when(event, flow)}{text}",
            severity=severity,
            doubts=doubts,
            label="builds an autograd graph " + ("for gradients that nothing uses" if unheld else "that is dropped"),
            cost=cost,
            help="run it under `with torch.no_grad():`"
            + ("" if unheld else "; a detach afterwards comes too late for the peak"),
            flow=steps,
            fix=(guard_unheld if unheld else guard_statement)(event, flow, site, "Disable grad mode for the statement"),
        ),
        frozenset((event.gid,)),
        event.site.handler,
        cause=cause,
    )


def is_wanted_elsewhere(event: Graph, flow: Flow) -> bool:
    """Whether a backward goes through another forward of the same network to what wants a gradient, and so computes one for each of
    its parameters in any case."""
    record = flow.record
    others = [
        g for g in record.graphs.values() if g.what == event.what and g.kind in CALLED_KINDS and g.gid in record.backwarded
    ]
    return any(not is_never_updated(graph, flow) for graph in others)


def is_behind_all_steps(event: Graph, flow: Flow) -> bool:
    """Whether the network runs behind every backward of the function: what was trained has no graph any more by then."""
    backwards = [flow.span(e.site).end for e in flow.record.events.values() if isinstance(e, Backward) and flow.own(e.site)]
    return bool(backwards) and max(backwards) < flow.span(event.site).end


def is_fed_by_reported(event: Graph, flow: Flow) -> bool:
    """Whether a forward of the same iteration whose result this one is given builds its graph for nothing as well."""
    here = flow.own_site(event.site)
    for graph in map(flow.record.graphs.__getitem__, sorted(flow.record.ancestors(event.parents))):
        site = flow.own_site(graph.site) if graph.kind in CALLED_KINDS else here
        if site.key != here.key and site.loops == here.loops and is_reported(graph, flow):
            return True
    return False
