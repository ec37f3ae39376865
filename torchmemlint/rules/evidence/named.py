"""Networks that their names alone show: what is called like one, in a loop over batches, where nothing says what it is."""

from __future__ import annotations

import math

from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow, short
from torchmemlint.rules.evidence.module_evidence import may_be_module
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.reach import runs_another_framework
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.roots import descendants
from torchmemlint.semantics.state import Graph, GraphKind, Kind, Mode, RecordFlag


def networks_by_name(gids: frozenset[int], loop: tuple[int, int] | None, flow: Flow) -> list[Graph]:
    """The calls on whose graphs a kept value hangs, if what is called is what its name says: networks that run in a loop over batches,
    and of all that their results go through (a criterion) most that are called so pass the graph on. A backward in the function
    would say more than names."""
    record = flow.record
    info = record.loops.get(loop) if loop is not None else None
    if (
        info is None
        or not (info.kind is Kind.LOADER or purpose.BATCHES.search(info.text))
        or RecordFlag.BACKWARD in record.flags
    ):
        return []
    if runs_another_framework(flow.runs.world, record.root.path):
        return []
    calls = {
        call.gid: call
        for gid in record.ancestors(gids)
        if (call := record.call_of(record.graphs[gid])).kind is GraphKind.OPAQUE
    }
    networks = [call for call in calls.values() if is_called_like_one(call, flow) and loop in call.site.loops]
    through = {gid for call in networks for gid in (call.gid, *descendants(record, call.gid))}
    found = [calls[gid] for gid in sorted(through & calls.keys())]
    passed_on = all(call.direct and purpose.named(call.what).attached >= purpose.MOST for call in found)
    return found if passed_on else []


def is_called_like_one(call: Graph, flow: Flow) -> bool:
    """Whether a call is of what is named like a network, with grad mode on, and nothing speaks against that."""
    return (
        call.direct
        and call.cls is None
        and call.mode is Mode.ON
        and purpose.may_be_network(call.what)
        and may_be_module(call, flow)
    )


def facts_of_names(graphs: tuple[Graph, ...], flow: Flow) -> tuple[Fact, ...]:
    """What is assumed where names alone show the graphs of a kept value."""
    unknown = {} if any(map(flow.record.real, [g.gid for g in graphs])) else {g.what: purpose.named(g.what) for g in graphs}
    if not unknown:
        return ()
    chance = math.prod(each.attached if each.network < purpose.MOST else each.network for each in unknown.values())
    return (assumed.named_alone([short(what) for what in unknown], chance),)
