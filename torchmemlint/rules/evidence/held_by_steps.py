"""Which optimizer holds a network's parameters where none is visibly made: what a function steps after each of its backwards shows it."""

from __future__ import annotations

from torchmemlint.index.facts import CallFact
from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.module_evidence import is_optimizer
from torchmemlint.semantics.identity import back_propagates, is_made_beside, may_discard
from torchmemlint.semantics.roots import descendants
from torchmemlint.semantics.state import Backward, Graph, GraphKind
from torchmemlint.torch_facts import TORCH

STEPS = TORCH.names["steps"]


def optimizer_by_steps(network: str, flow: Flow) -> str:
    """The optimizer that must hold a network's parameters, "" where the function does not show it. Of two that step after different
    backwards, one holds the network that a term of its loss depends on alone: no gradient of that term goes anywhere else. The other
    holds the one network that is left to it."""
    world, root = flow.runs.world, flow.record.root
    if not may_discard(world, root) or is_made_beside(world, root, network):
        return ""
    stepped = each_step(flow)
    optimizers = {name for _, name in stepped}
    if "" in optimizers or len(optimizers) < 2:
        return ""
    found: dict[str, set[str]] = {}
    first = networks_on_data(flow)
    for gids, optimizer in stepped:
        for each in alone_in(gids, first, flow):
            found.setdefault(each, set()).add(optimizer)
    if any(len(names) > 1 for names in found.values()):
        return ""
    for optimizer in sorted(optimizers - set().union(*found.values())):
        reached = {g.what for gids, name in stepped if name == optimizer for g in networks_in(gids, flow)}
        left = reached & first - found.keys()
        if len(left) == 1:
            found.setdefault(left.pop(), set()).add(optimizer)
    names = found.get(network, set())
    return names.pop() if len(names) == 1 else ""


def each_step(flow: Flow) -> list[tuple[frozenset[int], str]]:
    """For each backward of the function the graphs that it goes through, and the one optimizer that steps next; "" where it is not
    known."""
    record, facts = flow.record, flow.runs.world.facts(flow.record.root)
    found: list[tuple[frozenset[int], str]] = []
    for event in record.events.values():
        if isinstance(event, Backward):
            call = facts.call_ending(flow.span(event.site).end) if flow.own(event.site) else None
            names = steps_after(call, facts.calls, flow) if call is not None else set()
            found.append((record.ancestors(event.graphs | event.hints), names.pop() if len(names) == 1 else ""))
    return found


def steps_after(backward: CallFact, calls: tuple[CallFact, ...], flow: Flow) -> set[str]:
    """The optimizers that step behind a backward, up to the backward that follows a step."""
    found: set[str] = set()
    for call in calls[backward.place + 1 :]:
        receiver, _, name = call.callee.rpartition(".")
        if found and back_propagates(call):
            break
        if name == STEPS and receiver and is_optimizer(receiver, flow.record.root, flow.runs.world):
            found.add(receiver)
    return found


def networks_in(gids: frozenset[int], flow: Flow) -> list[Graph]:
    """The function's own calls of what may be a network among some graphs."""
    graphs = [flow.record.graphs[gid] for gid in sorted(gids) if gid in flow.record.graphs]
    return [g for g in graphs if (g.kind is GraphKind.FORWARD or g.direct) and flow.own(g.site)]


def networks_on_data(flow: Flow) -> frozenset[str]:
    """What the function calls on something that hangs on no other network: no criterion."""
    found = networks_in(frozenset(flow.record.backwarded), flow)
    return frozenset(g.what for g in found if not networks_in(flow.record.ancestors(g.parents), flow))


def alone_in(gids: frozenset[int], first: frozenset[str], flow: Flow) -> set[str]:
    """The networks that a backward reaches by a way through no other one."""
    found: set[str] = set()
    for graph in networks_in(gids, flow):
        above = networks_in(flow.record.ancestors(graph.parents), flow)
        below = networks_in(frozenset(descendants(flow.record, graph.gid)) & gids, flow)
        if graph.what in first and not above and {g.what for g in below} & first <= {graph.what}:
            found.add(graph.what)
    return found
