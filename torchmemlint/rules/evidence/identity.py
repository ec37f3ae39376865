"""What is called: a network that records a graph, or something else?"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.rules import assumed
from torchmemlint.rules.api import short
from torchmemlint.rules.evidence.candidate import Candidate, is_of_unknown_class
from torchmemlint.rules.evidence.module_evidence import ModuleEvidence
from torchmemlint.rules.evidence.wanted_graphs import is_distribution, is_missing, is_shape
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.rules.reach import runs_another_framework
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.state import CALLED_KINDS


def in_the_run(candidate: Candidate) -> Iterator[Fact]:
    """What the run itself says of it."""
    event, flow = candidate.event, candidate.flow
    if event.kind not in CALLED_KINDS:
        yield Fact("no-call", "no call created it")
    elif not flow.own(event.site) and runs_another_framework(candidate.world, flow.frame(event.site).ref.path):
        yield Fact("another-framework", "it is a network of another framework")


def shown(candidate: Candidate) -> Iterator[Fact]:
    """What the code around it shows."""
    event, flow = candidate.event, candidate.flow
    if candidate.module is ModuleEvidence.NONE:
        yield Fact("not-shown-a-module", "nothing shows that it is a module")
    if is_shape(event):
        yield Fact("gives-a-shape", "it returns a tensor's shape")
    if is_missing(event, flow):
        yield Fact("no-such-method", "its class has no such method")
    if is_distribution(event, flow):
        yield Fact("a-distribution", "it is a distribution, not a network")


def resolved(candidate: Candidate) -> Iterator[Fact]:
    """How the class of what is called is known."""
    if candidate.event.cls is not None:
        yield Fact("class-resolved", "the class of what is called is known")


def assumed_of(candidate: Candidate) -> Iterator[Fact]:
    """What is assumed of what is called."""
    event = candidate.event
    if candidate.module is not ModuleEvidence.CERTAIN:
        known = Known.METHOD if candidate.module is ModuleEvidence.LIKELY else Known.NAME
        yield assumed.not_a_module(short(event.what), known)
    if is_of_unknown_class(event) and event.training is None and purpose.is_helper(event.what.rpartition(".")[0]):
        yield assumed.named_as_helper(short(event.what))
