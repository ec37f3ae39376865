"""How surely the graph of a forward is built for nothing: used by every rule that reports one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchmemlint.findings import Confidence
from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow, short
from torchmemlint.rules.card import About
from torchmemlint.rules.evidence import alive, demand, frozen, identity, mode
from torchmemlint.rules.evidence.candidate import Candidate
from torchmemlint.rules.evidence.mode import may_guard_itself
from torchmemlint.rules.evidence.module_evidence import DETACHES, is_trained_beside
from torchmemlint.rules.evidence.standing import stands_here
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.scorecard import confidence_of, probability, silences
from torchmemlint.semantics.roots import Fate, descendants
from torchmemlint.semantics.state import Graph, RecordFlag, Sink, SinkKind


@dataclass(frozen=True, slots=True)
class Verdict:
    """A graph that nothing visible demands.

    fate      what becomes of it
    evaluated the module was put into evaluation mode before
    facts     what is assumed
    """

    fate: Fate
    evaluated: bool
    facts: tuple[Fact, ...]


def facts_of(candidate: Candidate) -> Iterator[Fact]:
    """What speaks about a forward, in order of price: what the run has, what the text around it says, and what its callers, who
    are run for it, make of the result."""
    yield from identity.in_the_run(candidate)
    yield from frozen.in_the_run(candidate)
    yield from mode.in_the_run(candidate)
    yield from demand.in_the_run(candidate)
    yield from alive.facts(candidate)
    yield from identity.shown(candidate)
    yield from demand.in_the_function(candidate)
    yield from demand.without_backward(candidate)
    yield from mode.inside(candidate)
    if not stands_here(candidate.event, candidate.flow):
        yield Fact("stands-elsewhere", "it runs in a function that is checked separately")
    yield from frozen.by_others(candidate)
    yield from demand.by_callers(candidate)
    if not candidate.done:
        yield from demand.out_of_sight(candidate)
    yield from demand.of_attributes(candidate)
    yield from identity.resolved(candidate)
    yield from demand.assumed_of(candidate)
    yield from mode.of_callers(candidate)
    yield from identity.assumed_of(candidate)
    yield from mode.assumed_of(candidate)
    yield from frozen.assumed_of(candidate)
    yield from demand.by_name(candidate)


def judge(event: Graph, flow: Flow) -> Verdict | Fact:
    """Whether nothing that is attached to a forward's graph is demanded by a backward, as far as the project shows."""
    if event.gid not in flow.judged:
        flow.judged[event.gid] = _judge(Candidate(event, flow))
    found: Verdict | Fact = flow.judged[event.gid]
    return found


def _judge(candidate: Candidate) -> Verdict | Fact:
    facts: list[Fact] = []
    for fact in facts_of(candidate):
        if silences(fact):
            return fact
        facts.append(fact)
    if not any(fact.unless for fact in facts) and may_guard_itself(candidate.event, candidate.flow):
        facts.append(assumed.GUARDS_ITSELF)
    return Verdict(candidate.fate, candidate.evaluated, tuple(facts))


def is_reported(event: Graph, flow: Flow) -> bool:
    """Whether a forward's graph is built for nothing, and that is not doubtful."""
    verdict = judge(event, flow)
    return isinstance(verdict, Verdict) and is_sure(verdict, flow)


def is_sure(verdict: Verdict, flow: Flow) -> bool:
    """Whether a finding of that would be of more than low confidence."""
    chance = probability(CODE, flow.evidence(About.NEEDLESS_GRAPH, verdict.facts))
    return confidence_of(chance) is not Confidence.LOW


CODE = "TML201"
"""The rule that reports what nothing else does."""


def meeting(cuts: Iterable[Sink], flow: Flow) -> str:
    """The place in the function where a graph is first cut off, of several that meet there the same (``torch.min(q1, q2).detach()``):
    one guard around what comes before is meant for all of them; "" where it is cut elsewhere."""
    own = [sink.site for sink in cuts if sink.kind is SinkKind.CUT and flow.own(sink.site)]
    return f"cut {min(site.node for site in own)}" if own else ""


def is_constant(event: Graph, flow: Flow) -> bool:
    """Whether a network that the function does not train gives its training step a constant: its output, or a part of it, is
    detached there, and not only what another call makes of it."""
    record = flow.record
    if RecordFlag.BACKWARD not in record.flags or not flow.beside_backward(event) or is_trained_beside(event, flow):
        return False
    parts = [g for g in descendants(record, event.gid) if record.graphs[g].site.key == event.site.key]
    return any(s.how in DETACHES for g in parts for s in record.sinks.get(g, ()))


def when(event: Graph, flow: Flow) -> str:
    """In which phase there is nothing to train, where the same call is trained in another."""
    test = flow.training_test(event)[0]
    if test:
        return f" when `{short(test)}`"
    return " in a phase that does not train" if flow.trains_in_another_phase(event) else ""
