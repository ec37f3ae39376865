"""Whether anything but a test runs it."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.candidate import Candidate
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.rules.reach import is_part_of_tests
from torchmemlint.semantics.graphs import Graph
from torchmemlint.semantics.world import MODULE, World


def facts(candidate: Candidate) -> Iterator[Fact]:
    root, name = candidate.root, candidate.name
    callers = candidate.project.callers(root)
    in_tests = candidate.world.memoize(is_part_of_tests, root)
    if in_tests or is_trial(candidate.event, candidate.flow, bool(callers.calls)):
        yield Fact("in-a-test", "it is part of a unit test", Known.RESOLVED if in_tests else Known.NAME)
    if (
        is_private(name)
        and all(caller.ref == root for caller in callers.calls)
        and not (callers.escapes or is_read(root, candidate.flow))
    ):
        yield Fact("private-uncalled", "the function is private, and nothing visible calls it", Known.NAME)


def is_trial(event: Graph, flow: Flow, called: bool) -> bool:
    """Whether the root tries something out on data of its own: ``def test():``, ``def test_decoder():``, ``def test(self):``."""
    root = flow.record.root
    header = flow.runs.world.header(root)
    name = root.qualname.rpartition(".")[2]
    if len(header.params) > bool(header.owner) or root.qualname == MODULE:
        return False
    return (name == "test" and not called) or (name.startswith("test_") and not event.site.loops)


def is_private(name: str) -> bool:
    """Whether a function, or a class that it is a method of, is named for its module's own use."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def is_read(root: FunctionRef, flow: Flow) -> bool:
    """Whether a class of the same file keeps the root as a value (``self.loss = self._quantile_loss``): it is called under another
    name."""
    return flow.runs.world.memoize(_is_kept_as_value, root)


def _is_kept_as_value(world: World, root: FunctionRef) -> bool:
    last = root.qualname.rpartition(".")[2]
    classes = world.project.module(root.path).classes
    return any(fact.kind is AttrKind.NAME and fact.value in (last, f"self.{last}") for cls in classes for fact in cls.attrs)
