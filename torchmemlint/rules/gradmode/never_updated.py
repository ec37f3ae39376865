"""Networks that a step back-propagates into though nothing updates them.

No optimizer holds their parameters, or each gradient is thrown away, and through them the gradient goes on to nothing that
wants it.
"""

from __future__ import annotations

from dataclasses import replace

from torchmemlint.index.facts import CallFact
from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.held_by_steps import optimizer_by_steps
from torchmemlint.rules.evidence.module_evidence import ModuleEvidence, evidence_of
from torchmemlint.rules.evidence.standing import above, name_in_root, twins
from torchmemlint.rules.reach import callers_of
from torchmemlint.semantics.identity import discards, holds_tensors, is_copy, is_held, is_left_out, may_discard, throws_away
from torchmemlint.semantics.roots import Fate, descendants
from torchmemlint.semantics.state import (
    CALLED_KINDS,
    CERTAIN_KINDS,
    MODULE,
    GradModeMisuse,
    Graph,
    GraphKind,
    Mode,
    RecordFlag,
    SinkKind,
    memoized,
)
from torchmemlint.torch_facts import TORCH


def is_never_updated(event: Graph, flow: Flow) -> bool:
    """Whether a step back-propagates into a network that no optimizer holds, and through it into nothing that wants a gradient: a
    target network that is neither frozen nor run without grad. Of what it is given, the gradient may be thrown away, too."""
    record, world = flow.record, flow.runs.world
    if event.kind not in CALLED_KINDS or event.mode is Mode.OFF or event.frozen or event.fixed or event.frozen_when_run:
        return False
    if record.flags & {RecordFlag.UNMARKED_INPUT_GRAD, RecordFlag.AUTOGRAD_GRAD}:
        return False
    trained = event.gid in record.backwarded
    if trained != (RecordFlag.BACKWARD in record.flags) or (trained and not flow.beside_backward(event)):
        return False
    if not flow.own(event.site):
        callee, name = flow.frame(event.site).ref, name_in_root(event, flow)
        if not name or is_copy(world, callee, event.what) or is_left_out(world, callee, event.what):
            return False  # it is reported there
        event = replace(event, what=name)
    unsure = RecordFlag.INPUT_GRAD not in record.flags or RecordFlag.LEARNED_NUMBER in record.flags
    if unsure and holds_tensors(world, record.root) and not is_copy(world, record.root, event.what):
        return False  # which tensor it is that the optimizer holds, is not followed
    if is_handed_on(event, flow) or reads_gradients(event, flow):
        return False
    if evidence_of(event, flow) > ModuleEvidence.LIKELY and not is_copy(world, record.root, event.what):
        return False
    if not trained and not may_reach_backward(flow.runs.fate_here(record, event.gid)):
        return False
    before = [record.graphs[gid] for gid in record.ancestors(event.parents)]
    if any(g.kind is GraphKind.WANTED or (g.kind is GraphKind.LEAF and flow.own(g.site)) for g in before):
        return False
    others = {
        g.what for g in before if g.kind is GraphKind.OPAQUE and g.direct and g.gid in record.trained and flow.own(g.site)
    }
    inside = {flow.callee(flow.own_site(g.site)) for g in before if g.kind in CERTAIN_KINDS and not flow.own(g.site)}
    networks = {g.what for g in before if g.kind is GraphKind.FORWARD and flow.own(g.site)} | {event.what}
    wanted: list[str] = []
    for what in sorted(networks | inside | others):
        if what in others or not is_unheld(what, flow):
            if not is_thrown_away(what, event, flow):
                return False
            wanted.append(what)
    if event.what in wanted:
        fed = {record.graphs[gid].what for gid in descendants(record, event.gid) if record.graphs[gid].kind in CALLED_KINDS}
        if not is_discarded(event, flow) or any(is_unheld(what, flow) for what in fed):
            return False  # what a copy is fed with is reported there
    elif is_held(world, record.root, event.what):
        return False
    if not is_of_this_definition(event, flow):
        return False
    elsewhere = where_called(event, flow)
    if any(takes_what_learns(graph, there) for graph, there in elsewhere):
        return False
    ends = any(graph.gid in there.record.backwarded for graph, there in elsewhere)
    return trained or ends or flow.runs.fate(record, event.gid).trains


def may_reach_backward(here: Fate) -> bool:
    """Whether a backward may reach a graph of this fate, here or in a caller."""
    return bool(here.trains or here.escapes or here.kept)


def is_handed_on(event: Graph, flow: Flow) -> bool:
    """Whether the function gives a tensor that is optimized to something that is not visible, or puts it there: what that gives the
    network may hang on it."""
    record = flow.record
    wanted = [gid for gid, graph in record.graphs.items() if graph.kind is GraphKind.WANTED]
    return any(
        flow.own(sink.site) and (sink.kind is SinkKind.STORED or (sink.kind is SinkKind.PASSED and sink.how != event.what))
        for gid in wanted
        for sink in record.sinks.get(gid, ())
    )


def reads_gradients(event: Graph, flow: Flow) -> bool:
    """Whether the function goes through the network's parameters and reads gradients: it updates something by hand."""
    facts = flow.runs.world.facts(flow.record.root)
    iterators = {f"{event.what}.{name}" for name in ITERATORS}
    return GRADIENT in facts.names and any(call.callee in iterators for call in facts.calls)


ITERATORS = TORCH.words["parameter-iterators"]
GRADIENT = TORCH.names["gradient"]


def where_called(event: Graph, flow: Flow) -> list[tuple[Graph, Flow]]:
    """The graphs of the same forward in the runs of the function's callers."""
    root = flow.record.root
    runs = [Flow(flow.runs, record, ref.path) for ref in callers_of(root, flow.runs.world) for record in flow.runs.records(ref)]
    return [(graph, there) for there in runs for graph in twins(event, root, there)]


def takes_what_learns(graph: Graph, there: Flow) -> bool:
    """Whether a caller of the function gives it what hangs on a network that an optimizer may hold, and this graph hangs on that:
    the gradient goes on through it (a criterion with a network of its own)."""
    return any(learns(there.record.graphs[gid], graph, there) for gid in there.record.ancestors(graph.parents))


def learns(given: Graph, graph: Graph, there: Flow) -> bool:
    """Whether a graph is that of a network that an optimizer may hold, made before the function was called that made another one."""
    record, world = there.record, there.runs.world
    if given.kind not in CERTAIN_KINDS or graph.site.frame in above(record, given.site.frame):
        return False
    ref = there.frame(given.site).ref
    return not (is_copy(world, ref, given.what) or is_left_out(world, ref, given.what))


def is_unheld(what: str, flow: Flow) -> bool:
    """Whether no optimizer holds the parameters of a network: a copy of another one, or one that only gives features."""
    world, root = flow.runs.world, flow.record.root
    if is_copy(world, root, what):
        return True
    if not left_out_of(world, root, what):
        return False
    mistaken = any(isinstance(each, GradModeMisuse) and each.name == what for each in flow.record.events.values())
    return not mistaken  # a flag that freezes nothing is reported where it is set


left_out_of = memoized(is_left_out)
"""It is asked for each forward beside each other one."""


def is_of_this_definition(event: Graph, flow: Flow) -> bool:
    """Whether the facts of the root are those of the definition that runs: of a name that is defined again they are of one."""
    root = flow.record.root
    facts = flow.runs.world.facts(root)
    return root.qualname == MODULE or facts.row <= flow.span(flow.own_site(event.site)).start.row <= facts.end_row


def is_discarded(event: Graph, flow: Flow) -> bool:
    """Whether an optimizer holds the parameters of what is called, and each backward that reaches this call computes gradients for
    them which are zeroed before a step can read them: a discriminator that sees real data in the generator's step."""
    if not may_discard(flow.runs.world, flow.record.root):
        return False
    world, root = flow.runs.world, flow.record.root
    backwards, optimizer = backwards_of(event, flow), optimizer_by_steps(event.what, flow)
    return bool(backwards) and all(discards(world, root, event.what, each, optimizer) for each in backwards)


def is_thrown_away(network: str, event: Graph, flow: Flow) -> bool:
    """Whether each backward that reaches a graph computes gradients for a network above it which are zeroed before any step."""
    world, root = flow.runs.world, flow.record.root
    backwards, optimizer = backwards_of(event, flow), optimizer_by_steps(network, flow)
    return bool(backwards) and all(throws_away(world, root, network, each, optimizer) for each in backwards)


def backwards_of(event: Graph, flow: Flow) -> list[CallFact]:
    """The backwards that reach a graph; none where one of them stands in another function."""
    record, facts = flow.record, flow.runs.world.facts(flow.record.root)
    reached = record.backwards_of(event.gid)
    calls = [facts.call_ending(flow.span(each.site).end) for each in reached if flow.own(each.site)]
    known = [call for call in calls if call is not None]
    return known if len(known) == len(reached) else []
