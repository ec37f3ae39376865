"""Whether anything but a test runs it."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.candidate import Candidate
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.rules.reach import is_part_of_tests
from torchmemlint.semantics.state import MODULE, Graph


def facts(candidate: Candidate) -> Iterator[Fact]:
    root = candidate.root
    callers = candidate.project.callers(root)
    in_tests = is_part_of_tests(candidate.world, root)
    if in_tests or is_trial(candidate.event, candidate.flow, bool(callers.calls)):
        yield Fact("in-a-test", "it is part of a unit test", Known.RESOLVED if in_tests else Known.NAME)


def is_trial(event: Graph, flow: Flow, called: bool) -> bool:
    """Whether the root tries something out on data of its own: ``def test():``, ``def test_decoder():``, ``def test(self):``."""
    root = flow.record.root
    header = flow.runs.world.header(root)
    name = root.qualname.rpartition(".")[2]
    if len(header.params) > bool(header.owner) or root.qualname == MODULE:
        return False
    return (name == "test" and not called) or (name.startswith("test_") and not event.site.loops)
