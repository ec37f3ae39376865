"""Whether the parameters of what is called want a gradient."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.arguments import argument_given
from torchmemlint.index.project import ClassRef
from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow, short
from torchmemlint.rules.evidence.candidate import Candidate
from torchmemlint.rules.evidence.frozen_namesakes import frozen_elsewhere
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.identity import given_frozen, is_held
from torchmemlint.semantics.state import Graph


def in_the_run(candidate: Candidate) -> Iterator[Fact]:
    """What the run itself says of it."""
    event = candidate.event
    if event.frozen:
        yield Fact("frozen", "all parameters of the module are frozen and no argument has a graph")
    if event.frozen_when_run:
        yield Fact("frozen-when-run", "the module is frozen under the test under which it runs")


def by_others(candidate: Candidate) -> Iterator[Fact]:
    """Who else may have frozen it: a framework, a caller, the class that keeps it."""
    event, flow, world, root = candidate.event, candidate.flow, candidate.world, candidate.root
    if not all(is_held(world, *frozen) for frozen in given_frozen(world, root, event.what)):
        yield Fact("frozen-by-a-caller", "a caller may have frozen the module")
    owner = world.header(root).owner
    if owner and event.what.startswith("self.") and flow.runs.frozen_where_made(ClassRef(root.path, owner)):
        yield Fact("frozen-by-its-owner", "the owner of the object keeps its parameters frozen")


def assumed_of(candidate: Candidate) -> Iterator[Fact]:
    """What is assumed of its parameters."""
    yield from on_a_branch(candidate.event, candidate.flow)
    yield from frozen_elsewhere(candidate.event, candidate.flow)


def on_a_branch(event: Graph, flow: Flow) -> tuple[Fact, ...]:
    """The doubt of a module that is frozen under a test of which nobody can see whether it holds where the module runs."""
    condition = event.frozen_if
    if condition is None or event.frozen_when_run is not None:
        return ()
    site = condition.site
    maker = condition.method.qualname if condition.method is not None else ""
    place = f"in `{short(maker)}`" if site is None else f"on line {flow.span(site).start.row}"
    return (assumed.may_be_frozen(short(event.what), short(condition.test), place, is_default(event, flow)),)


def is_default(event: Graph, flow: Flow) -> bool:
    """Whether the test under which a module is frozen holds by default: it is a parameter of the constructor that freezes it."""
    condition = event.frozen_if
    method = condition.method if condition is not None else None
    if condition is None or method is None:
        return False
    name = condition.test.removeprefix("not ")
    params = flow.runs.world.header(method).params
    calls = flow.runs.world.project.callers(method).calls
    if any(argument_given(params[1:], name, each.call.args) is not None for each in calls):
        return False
    return {param.name: param.default for param in params}.get(name) == str(name == condition.test)
