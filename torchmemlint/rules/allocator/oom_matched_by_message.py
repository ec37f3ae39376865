"""An out-of-memory error is recognised by the words of its message."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.semantics.events import Handler

RULE = Rule(
    code="TML304",
    name="oom-matched-by-message",
    summary="An out-of-memory error is recognised by the words of its message",
    severity=Severity.WARNING,
    triggers=frozenset({"RuntimeError", "Exception", "BaseException"}),
    experiment=None,
)
EVENT = Handler


def check(event: Handler, flow: Flow) -> Iterator[Draft]:
    if not event.tests or not flow.own(event.site) or any("OutOfMemoryError" in t for t in event.types):
        return
    if not event.recovery and event.keeps < 0:
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            "an out-of-memory error is recognised by the words of its message, which differ between devices and versions",
            node=event.tests[0],
            label="matches the text of the message",
            cost="an error with other words (cuBLAS, cuDNN, MPS, a newer torch) is not recovered from",
            help="catch `torch.OutOfMemoryError` (torch 2.4; `torch.cuda.OutOfMemoryError` from 1.13)",
        ),
        handler=event.site.node,
    )
