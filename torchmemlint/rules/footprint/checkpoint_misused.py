"""Activation checkpointing that cannot run, trains nothing, or saves nothing.

## What it does
Reports these calls of `torch.utils.checkpoint`:

- `checkpoint_sequential(model, segments=4)` without an input (error): it does not wrap the model, but runs it immediately,
  and raises TypeError;
- the reentrant variant if no input requires grad (error): the code inside gets no gradient and is not trained;
- one segment, or one checkpoint around everything between the batch and the loss: it does not lower the peak.

It does not report:

- arguments that come from elsewhere (`**options`);
- code that runs with grad mode off;
- a missing `use_reentrant` if an input requires grad: torch warns, uses the reentrant variant, and trains everything.

## What it costs
Correctly used, checkpointing trades time for memory. Measured on the CPU: 16 encoder layers in segments, relative to the same
without checkpoints (48.5 MB kept for the backward):

| segments | kept after the forward | peak with the backward | time |
|---|---|---|---|
| 1 | 1.00 | 1.00 | 1.26 |
| 2 | 0.50 | 0.64 | 1.17 |
| 4 | 0.26 | 0.47 | 1.32 |
| 8 | 0.16 | 0.38 | 1.35 |
| 16 | 0.14 | 0.33 | 1.35 |

The last segment is never checkpointed, so one segment saves nothing. One checkpoint around the whole model keeps 0.01 after
the forward, but recomputes everything for the backward: the peak is 1.01.

## Example
```python
from torch.utils.checkpoint import checkpoint_sequential


def build(model):
    model = checkpoint_sequential(model, segments=4)
    return model
```

Use instead:

```python
from torch.utils.checkpoint import checkpoint_sequential


def run(model, inputs):
    return checkpoint_sequential(model, 4, inputs, use_reentrant=False)
```

## Fix
Adds `use_reentrant=False`. Unsafe: this variant records the graph in the forward, so outputs may require grad that did not,
and hooks run at other times. A missing input or another number of segments has no fix.

## When to ignore
The segment must not get gradients, or the checkpoint is only used for its random state.

## References
- torch.utils.checkpoint: https://docs.pytorch.org/docs/stable/checkpoint.html
- measured: torch 2.13.0 on the CPU, see benchmarks/evidence/records; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Fix, Safety, Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule, argument
from torchmemlint.rules.card import About, Advice, Correction
from torchmemlint.semantics.mode import family
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import (
    MADE_KINDS,
    Backward,
    CallEffect,
    Const,
    Graph,
    Mode,
    Plain,
    RecordFlag,
    Tensor,
    Value,
    only_const,
    truth,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

RULE = Rule(
    code="TML503",
    name="checkpoint-misused",
    summary="Activation checkpointing that cannot run, trains nothing, or saves nothing",
    severity=Severity.ERROR,
    about=About.FOOTPRINT,
    fix=Safety.UNSAFE,
    triggers=TORCH.words["checkpoints"],
    correction=Correction.NO_CHECKPOINT,
    advice=frozenset({Advice.CHECKPOINTING}),
)
EVENT = CallEffect

OWN = TORCH.words["checkpoint-keywords"]
"""Keywords of the checkpoint itself: all others go to the function that it runs."""


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """A call of what may be torch's function, or that function as a value: most of what is called a checkpoint is a file."""
    if not facts.names & RULE.triggers:
        return False
    project = runs.world.project
    for each, inner in family(runs.world, ref):
        values = inner.reads | {text for _, text in (*inner.bound, *inner.rebound)}
        for text in {call.callee for call in inner.calls} | values:
            if text.rpartition(".")[2] in RULE.triggers:
                absolute = project.resolve(ref.path, text, each.qualname)
                if absolute.startswith("torch.") if absolute is not None else text not in values:
                    return True
    return False


def check(event: CallEffect, flow: Flow) -> Iterator[Draft]:
    if event.effect is not Effect.CHECKPOINT or not flow.own(event.site):
        return
    judged = judge(event, flow)
    if judged is None:
        return
    message, severity, label, cost, help, fix = judged
    finding = flow.at(RULE, event.site, message, severity=severity, label=label, cost=cost, help=help, fix=fix)
    yield Draft(finding, handler=event.site.handler)


def judge(event: CallEffect, flow: Flow) -> tuple[str, Severity, str, str, str, Fix | None] | None:
    """What is wrong with a call, the worst of it: message, severity, label, cost, help and fix."""
    sequential = event.name.endswith(TORCH.names["checkpoints-sequence"])
    first = 2 if sequential else 1
    chooses = flow.has(2, 0) if sequential else flow.has(1, 11)  # torch's documentation of these versions
    inputs = [
        v
        for name, v in event.args
        if (name.isdigit() and int(name) >= first)
        or (not name.isdigit() and name not in OWN | {"segments", "functions", "function"})
    ]
    if sequential and not inputs and not event.more:
        return (
            "`checkpoint_sequential` is called without an input: this raises TypeError", Severity.ERROR, "no input",
            "nothing is saved: the call does not return a model, it runs one",
            f"call it in the forward: `out = checkpoint_sequential(model, 4, inputs{', use_reentrant=False' if chooses else ''})`", None,
        )  # fmt: skip
    if event.mode is Mode.OFF:
        return None
    variant = argument(event, -1, TORCH.names["reentrant"])
    reentrant = variant is None or truth(variant) is True
    if (
        reentrant
        and inputs
        and not event.more
        and all(asks_for_none(v) for v in inputs)
        and flow.record.flags.isdisjoint({RecordFlag.INPUT_GRAD, RecordFlag.LEARNED_NUMBER})
    ):
        if any(type(a) is Tensor for v in inputs for a in v):
            node = dict(event.nodes).get(TORCH.names["reentrant"])
            if not chooses:
                fix = None
            elif variant is None:
                fix = flow.edits.add_argument(event, "use_reentrant=False", "Use the non-reentrant variant", Safety.UNSAFE)
            else:
                fix = (
                    None
                    if node is None
                    else flow.edits.replace(event.site, node, "False", "Use the non-reentrant variant", Safety.UNSAFE)
                )
            return (
                "no input of this reentrant checkpoint requires grad: the code inside gets no gradient", Severity.ERROR,
                "the inputs have no graph", "the segment is not trained; torch only warns",
                "pass `use_reentrant=False`, which needs no such input" if chooses else "give it an input that requires grad", fix,
            )  # fmt: skip
    if sequential:
        segments = argument(event, 1, "segments")
        single = only_const(segments) if segments is not None else None
        if single is not None and single.value == 1:
            return (
                "one segment is never checkpointed: this saves nothing", Severity.WARNING, "one segment",
                "as much memory as without a checkpoint: the last segment always keeps its activations",
                "split the layers into about as many segments as the square root of their number", None,
            )  # fmt: skip
    elif whole_step(event, flow):
        return (
            "one checkpoint around the whole model saves nothing at the peak", Severity.WARNING, "everything between the batch and the loss",
            "the backward recomputes all activations at once: 1.01 times the peak without a checkpoint",
            "checkpoint each layer, or a few groups of layers", None,
        )  # fmt: skip
    return None


def asks_for_none(value: Value) -> bool:
    """Whether a value surely has no tensor that asks for a gradient."""
    return bool(value) and all((type(a) is Tensor and not a.graphs and not a.hints) or type(a) in (Const, Plain) for a in value)


def whole_step(event: CallEffect, flow: Flow) -> bool:
    """Whether everything that a backward goes through is the one forward that runs inside this checkpoint."""
    record = flow.record
    own = {g for g, graph in record.graphs.items() if made(graph) and graph.site.key == event.site.key}
    if not own:
        return False
    for other in record.events.values():
        if isinstance(other, Backward):
            through = record.ancestors(other.graphs | other.hints)
            if through & own:
                return not any(made(record.graphs[g]) for g in through - own if g in record.graphs)
    return False


def made(graph: Graph) -> bool:
    """Whether a graph stands for something that ran and may hold activations."""
    return graph.kind in MADE_KINDS
