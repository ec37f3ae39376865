"""The cache is emptied as the cure of an out-of-memory error, while what fills the memory is still referenced."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.semantics.events import Handler

RULE = Rule(
    code="TML302",
    name="empty-cache-with-live-tensors",
    summary="The cache is emptied as the cure of an out-of-memory error, while what fills the memory is still referenced",
    severity=Severity.WARNING,
    triggers=frozenset({"empty_cache"}),
    experiment=None,
)
EVENT = Handler


def check(event: Handler, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site) or not event.reraises:
        return
    for node, what in event.recovery:
        if what == "empty_cache":
            yield Draft(
                flow.at(
                    RULE,
                    event.site,
                    "`empty_cache()` in the handler of an out-of-memory error frees no tensor: what fills the memory is still referenced",
                    node=node,
                    label="returns only unused cached blocks",
                    cost="frees no tensor; the exception keeps the failed step's tensors alive here",
                    help="leave it out: the allocator has already returned its unused blocks before it raised",
                ),
                handler=event.site.node,
            )
            return
