"""Recovery from an out-of-memory error runs inside the handler, while the exception still holds the failed step's tensors.

## What it does
Reports recovery from an out-of-memory error inside the `except` block: a retry, a fallback, `empty_cache()`, `gc.collect()` or
another cleanup. Also reports an exception that is stored beyond its handler. The finding is at the `except`, and names each such
statement; where a fallback is all there is, it is at its call:

- an error for a retry, a fallback or a stored exception;
- a warning for a retry if only a move to the device failed (`model.to(device)`), whose frames hold little;
- a note for a cleanup without a retry, and for a retry on the host only: nothing asks for device memory before the handler
  ends, which frees what the failed step holds.

A fallback is a call of another function on the same values: it calculates with tensors or runs a network, and its result takes the
place of the failed one (`out = tiled(x)` after `out = whole(x)`), or it is run for its effect.

A handler is recognized by its type (`torch.OutOfMemoryError`, `torch.cuda.OutOfMemoryError`), a test of the message, a
helper (`is_oom_error(e)`), or because it empties the cache. One of any other error counts where it runs the network again on each part of
what failed (`except Exception: for item in batch: encode([item])`): a warning, at the call.

It does not report:

- setting a flag, logging and raising again;
- a cleanup that is repeated after the handler: at the start of the next attempt, directly after the `try` statement, or in
  its `finally`;
- a cleanup without a retry, if only a move to the device failed;
- fallbacks that only give a default or a message;
- handlers of code that only calls torch's own operations, which have no frames, if the handler first drops the names that the
  code has bound: nothing stays alive.

## What it costs
While the exception is alive, its traceback keeps every frame of the failed step with its tensors: the unfinished graph, the
inputs, the activations. Measured on the CPU: 55 MB were still alive in the handler. A retry inside it peaked at 90.6 MB, the
same retry after the `try` statement at 35.8 MB. Every stored exception kept 55 MB.

## Example
```python
import torch


def forward(model, batch):
    try:
        return model(batch)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return torch.cat([model(half) for half in batch.chunk(2)])
```

Use instead:

```python
import torch


def forward(model, batch):
    try:
        return model(batch)
    except torch.OutOfMemoryError:
        pass
    return torch.cat([model(half) for half in batch.chunk(2)])
```

## Fix
None: the code must move out of the handler, together with the values that it needs.

## When to ignore
The handler only cleans up before the program exits.

## References
- PyTorch FAQ, "My out of memory exception handler can't allocate memory":
  https://docs.pytorch.org/docs/stable/notes/faq.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; CUDA measurements are still to come
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchmemlint.findings import Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About, Advice, Same
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.semantics.interpret import is_shown_to_run_model
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import GraphKind, Mode, OomHandler
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML303",
    name="recovery-inside-oom-handler",
    summary="Recovery from an out-of-memory error runs inside the handler, while the exception holds the failed step's tensors",
    severity=Severity.ERROR,
    about=About.HANDLER,
    triggers=TORCH.words["empties-cache"]
    | {name.rpartition(".")[2] for name in (*TORCH.oom_exceptions, *TORCH.words["wide-exceptions"])},
    always=True,
    explains=Same.HANDLER,
    advice=frozenset({Advice.HANDLER}),
)

EVENT = OomHandler

WORDS = {
    "caught": "caught here, and alive to the end of this block",
    "keep": "kept here",
    "retry": "the retry runs inside the handler",
    "fallback": "the fallback runs inside the handler",
    "unseen-fallback": "the fallback runs inside the handler",
    "host-retry": "the retry on the host runs inside the handler",
    "empty_cache": "the cache is emptied inside the handler",
    "gc.collect": "garbage is collected inside the handler",
    "del": "names are deleted inside the handler",
    "zero_grad": "gradients are dropped inside the handler",
    "cleanup": "memory is cleaned up inside the handler",
    "move": "tensors are moved inside the handler",
}
UNSEEN = Fact(
    "callee-not-visible", unless="what the handler calls instead needs no memory of the device", known_by=Known.ASSUMED
)
ASKS = ("retry", "fallback", "unseen-fallback")
"""What asks the device for memory inside the handler."""
AGAIN = (*ASKS, "host-retry")


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """A function that catches any error, and calls in a loop what it calls outside of that as well, and what runs a network: it may do
    again what failed."""
    if WIDE.isdisjoint(facts.names):
        return False
    depths: dict[str, int] = {}
    again = {call.callee for call in facts.calls if call.args and depths.setdefault(call.callee, call.loops) != call.loops}
    return any(is_shown_to_run_model(runs.world, ref, callee) for callee in sorted(again))


WIDE = frozenset(name.rpartition(".")[2] for name in TORCH.words["wide-exceptions"])


def check(event: OomHandler, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site):
        return
    if event.keeps >= 0 and not event.reraises:
        yield draft(
            event,
            flow,
            event.site.node,
            "the exception is kept",
            "kept beyond this handler, with its traceback",
            [(event.keeps, "keep")],
        )
        return
    recovery = [(n, w) for n, w in event.recovery]
    if event.reraises or not any(w in (*AGAIN, "empty_cache", "gc.collect", "cleanup") for _, w in recovery):
        return
    if event.moves and not any(w in AGAIN for _, w in recovery):
        return  # the frames of a move hold what is moved, which its owner holds anyway
    alone = event.of_any_error or all(w.endswith("fallback") for _, w in recovery)
    yield draft(
        event,
        flow,
        recovery[0][0] if alone else event.site.node,
        WORDS[next((again for again in ASKS if any(w == again for _, w in recovery)), recovery[0][1])],
        "the failed step's tensors stay alive to the end of this handler",
        [(event.site.node, "caught")] if alone else recovery,
        [UNSEEN] if alone and any(w == "unseen-fallback" for _, w in recovery) else [],
    )


def cost(flow: Flow, keeps: bool) -> str:
    """What the exception holds, and for how long; a graph only where one is built visible."""
    built = "backward" in flow.record.flags or any(
        graph.kind is GraphKind.FORWARD and graph.mode is not Mode.OFF and not graph.frozen
        for graph in flow.record.graphs.values()
    )
    held = "the failed graph and its locals" if built else "the memory of the failed step"
    until = "while the exception is kept" if keeps else "until the handler ends"
    return f"the exception keeps every frame's tensors: {held} stay{'' if built else 's'} allocated {until}"


def severity(event: OomHandler) -> Severity:
    if event.keeps < 0 and not any(word in ASKS for _, word in event.recovery):
        return Severity.NOTE  # nothing asks the device for memory before the handler ends, which frees all of it
    return Severity.WARNING if event.moves or event.of_any_error else Severity.ERROR


def draft(
    event: OomHandler,
    flow: Flow,
    node: int,
    what: str,
    label: str,
    steps: Sequence[tuple[int, str]],
    doubts: Sequence[Fact] = (),
) -> Draft:
    return Draft(
        flow.at(
            RULE,
            event.site,
            f"{what}, while the exception's traceback keeps every tensor of the failed step alive",
            node=node,
            severity=severity(event),
            doubts=doubts,
            label=label,
            cost=cost(flow, event.keeps >= 0),
            help="only set a flag in the handler; retry and clean up after the `try` statement, when the exception is freed",
            flow=[flow.step(event.site._replace(node=n), WORDS[w]) for n, w in steps[:3]],
        ),
        handler=event.site.node,
    )
