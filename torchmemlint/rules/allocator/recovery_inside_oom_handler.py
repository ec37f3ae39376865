"""Recovery from an out-of-memory error runs inside the handler, while the exception still holds the failed step's tensors."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.semantics.events import Handler

RULE = Rule(
    code="TML303",
    name="recovery-inside-oom-handler",
    summary="Recovery from an out-of-memory error runs inside the handler, while the exception holds the failed step's tensors",
    severity=Severity.ERROR,
    triggers=frozenset({"RuntimeError", "OutOfMemoryError", "Exception", "BaseException", "empty_cache", "AcceleratorError"}),
    experiment=None,
)
EVENT = Handler

WORDS = {
    "retry": "the retry runs inside the handler",
    "empty_cache": "the cache is emptied inside the handler",
    "gc.collect": "garbage is collected inside the handler",
    "del": "names are deleted inside the handler",
    "zero_grad": "gradients are dropped inside the handler",
    "cleanup": "memory is cleaned up inside the handler",
    "move": "tensors are moved inside the handler",
}


def check(event: Handler, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site):
        return
    if event.keeps >= 0 and not event.reraises:
        yield draft(event, flow, event.keeps, "the exception is kept", "kept here, with its traceback")
        return
    recovery = [(n, w) for n, w in event.recovery]
    if event.reraises or not any(w in ("retry", "empty_cache", "gc.collect", "cleanup") for _, w in recovery):
        return
    node, what = recovery[0]
    yield draft(event, flow, node, WORDS[what], "the failed step's tensors are still alive here")


def draft(event: Handler, flow: Flow, node: int, what: str, label: str) -> Draft:
    return Draft(
        flow.at(
            RULE,
            event.site,
            f"{what}, while the exception's traceback keeps every tensor of the failed step alive",
            node=node,
            label=label,
            cost="the exception keeps every frame's tensors: the failed graph and its locals stay allocated until the handler ends",
            help="only set a flag in the handler; retry and clean up after the `try` statement, when the exception is gone",
            flow=[flow.step(event.site, "the exception lives from here to the end of the handler")],
        ),
        handler=event.site.node,
    )
