"""Forwards whose result may be wanted by callers that are not visible: what is detached beside it, closures that others call."""

from __future__ import annotations

import re

from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.identity import handed_out
from torchmemlint.semantics.roots import descendants
from torchmemlint.semantics.state import Graph, Sink


def returns_both(event: Graph, flow: Flow) -> bool:
    """Whether a ``return`` detaches a part of a result, and hands on another one with its graph: a value and the loss that it learns by
    (``return v.detach(), loss(v, target)``)."""
    return any(
        sink.how == ".detach()"
        and flow.own(sink.site)
        and RETURNS.match(flow.lowered(sink.site).statement(sink.site.node)[1]) is not None
        for sink in sinks_of(event, flow)
    )


RETURNS = re.compile(r"return\b.*,")


def sinks_of(event: Graph, flow: Flow) -> list[Sink]:
    """Where a graph, and all that depends on it, ends."""
    return [sink for gid in descendants(flow.record, event.gid) for sink in flow.record.sinks.get(gid, ())]


def called_by_others(event: Graph, flow: Flow, evaluated: bool) -> tuple[Fact, ...]:
    """The doubt about a forward in a closure that leaves the root, and gives its result with the graph: what this run's calls of it do
    with the result says nothing of other calls."""
    site = event.site
    if site.frame == 0 or not flow.own(site):
        return ()
    name = flow.frame(site).ref.qualname.rpartition(".")[2]
    if name not in handed_out(flow.runs.world, flow.record.root):
        return ()
    if all(sink.site.frame == site.frame for sink in sinks_of(event, flow)):
        return ()
    return (assumed.RETURNED if evaluated else assumed.LEFT_UNKNOWN,)
