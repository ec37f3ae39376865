"""Memory grows from step to step in a run, and no other rule explains it.

## What it does
`torchmemlint run` reports it: a program was run, memory grew from step to step of a loop, and this line puts into a container, a name or
a cycle what then stays there. `torchmemlint check` never reports it, because no program runs then.

## What it costs
The finding says how many bytes a step were kept in the run.

## Example
A hook that fills a list of its module:

    activations = []

    def keep(module, inputs, output):
        activations.append(output)  # with the graph of every step

    model.layer.register_forward_hook(keep)

## Fix
None by itself. Keep what has no graph (`output.detach()`), keep the last few (`collections.deque(maxlen=10)`), or release what is kept at the end of
a step.

## When to ignore
The container is meant to hold a result of every step, and the number of steps is known.

## References
- docs/run.md
"""

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Rule
from torchmemlint.rules.card import About

RULE = Rule(
    code="TML901",
    name="grows-at-run-time",
    summary="Memory grows from step to step when the program runs",
    severity=Severity.WARNING,
    about=About.GROWTH,
    default=False,
)
