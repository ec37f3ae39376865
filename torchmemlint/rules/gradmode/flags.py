"""What a ``requires_grad`` that is set on a module costs, if it is a mistake at all."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchmemlint.findings import Edit, Fix, Safety, Severity
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Flow, NoFix
from torchmemlint.rules.assumed import not_a_module
from torchmemlint.rules.evidence.module_evidence import BACKWARD, MODULES_ALONE
from torchmemlint.rules.evidence.wanted_graphs import GUARDS
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.semantics.identity import (
    FLAG,
    METHOD,
    PARAMETER_ITERATORS,
    functions_that_know,
    looks_like_module,
    may_freeze,
    parametric_attributes,
    says_any,
)
from torchmemlint.semantics.state import GradModeMisuse, Misuse, World
from torchmemlint.torch_facts import TORCH

SETS = re.compile(r"([\w.\[\]()'\"]+)\.requires_grad_?\s*=\s*False\b")
COST = "each backward through it computes and keeps a gradient for each of its parameters, and the graph through it is built"
GUARDED_COST = (
    "nothing while it runs without grad, as it does here; elsewhere a graph, and a gradient for each of its parameters"
)
UNTRAINED_COST = "nothing in this file back-propagates: a graph through it is built, but no gradient"
LAYER_COST = "a gradient for each parameter of one layer, in each backward"
RAISES_COST = "nothing is frozen: the program stops here each time"


@dataclass(frozen=True, slots=True)
class IneffectiveFlag:
    """A flag that freezes nothing, and what that costs. ``network``: what it should freeze."""

    severity: Severity
    cost: str
    network: str
    doubts: tuple[Fact, ...]
    fix: Fix | NoFix | None


def may_set_flag(world: World, ref: FunctionRef, facts: FunctionFacts) -> bool:
    """Whether a function sets the flag of something that is no parameter which it loops over."""
    if facts.names.isdisjoint({FLAG, METHOD}):
        return False
    looped = {name for name, made in (*facts.bound, *facts.rebound) if made.endswith("[]")}
    rows = world.lines_of(ref)
    return any(found[1] not in looped for row in rows for found in SETS.finditer(row))


BY_NAME = re.compile(r"\[['\"]")


def judge_flag(event: GradModeMisuse, flow: Flow) -> IneffectiveFlag | Fact:
    """What a flag that is set on a module costs, or why it is not reported."""
    world, ref = flow.runs.world, flow.frame(event.site).ref
    network = event.name
    if event.kind is Misuse.PARAMETERS_FLAG:
        network = network.rpartition(".")[0]
        doubts = () if is_known(event, network, flow) else (not_a_module(network, Known.METHOD),)
        return IneffectiveFlag(Severity.ERROR, RAISES_COST, network, doubts, fix_of(event, network, flow))
    knowing = functions_that_know(world, ref, network)
    if event.kind is Misuse.MODULE_FLAG and is_read(world, event, knowing, network):
        return Fact("flag-is-read", "the attribute is read: a flag of the module's own")
    if is_frozen_anyway(world, ref, knowing, network):
        return Fact("frozen-in-another-way", "its parameters are frozen in another way")
    severity, cost = cost_of(event, flow, knowing, network)
    # What a dict of modules holds under a name is a module, and what one of parameters holds has a flag.
    known_by = Known.NAME if BY_NAME.search(network) else Known.METHOD
    doubts = () if is_known(event, network, flow) else (not_a_module(network, known_by),)
    return IneffectiveFlag(severity, cost, network, doubts, fix_of(event, network, flow))


def is_known(event: GradModeMisuse, network: str, flow: Flow) -> bool:
    """Whether the class of the module is known, or the code does with it what can be done with modules alone."""
    words = flow.runs.world.evidence(flow.frame(event.site).ref).get(network, frozenset())
    return event.cls is not None or looks_like_module(words)


def is_read(world: World, event: GradModeMisuse, knowing: tuple[FunctionFacts, ...], network: str) -> bool:
    """Whether the attribute that is set is read again: by code that knows the module, or in its own class, which may make a property
    of it."""
    if any(f"{network}.{FLAG}" in facts.reads for facts in knowing):
        return True
    if not isinstance(event.cls, ClassRef):
        return False
    if world.project.method(event.cls, FLAG) is not None:
        return True
    classes = [cls for cls in world.project.mro(event.cls) if isinstance(cls, ClassRef)]
    return any(f"self.{FLAG}" in facts.reads for cls in classes for facts in world.project.within(cls.path, cls.qualname))


def is_frozen_anyway(world: World, ref: FunctionRef, knowing: tuple[FunctionFacts, ...], network: str) -> bool:
    """Whether a function that knows the module, or the one that sets its flag, may freeze its parameters, or those of what holds it."""
    parts = network.split(".")
    holders = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    called = {holder: world.evidence(ref).get(holder, frozenset()) for holder in holders}
    return any(may_freeze(facts, holder, called[holder]) for facts in knowing for holder in holders)


def cost_of(event: GradModeMisuse, flow: Flow, knowing: tuple[FunctionFacts, ...], network: str) -> tuple[Severity, str]:
    world = flow.runs.world
    if network == "self" and isinstance(event.cls, ClassRef) and not parametric_attributes(world, event.cls):
        return Severity.NOTE, LAYER_COST
    forwards = [(facts, call) for facts in knowing for call in facts.calls if runs_it(call, network)]
    if forwards and all(is_guarded(facts, call) for facts, call in forwards):
        return Severity.NOTE, GUARDED_COST
    evaluated = "eval" in world.evidence(flow.frame(event.site).ref).get(network, frozenset())
    if (forwards or evaluated) and not network.startswith("self"):
        if not says_any(world, flow.frame(event.site).ref.path, BACKWARD):
            return Severity.NOTE, UNTRAINED_COST
    return Severity.WARNING, COST


def runs_it(call: CallFact, network: str) -> bool:
    """Whether a call may run the module: it calls it, or one of its own methods."""
    name = call.callee.removeprefix(f"{network}.")
    return call.callee == network or (
        name != call.callee
        and name not in MODULES_ALONE | {TORCH.names["to-cuda"], TORCH.names["to-half"], *PARAMETER_ITERATORS}
    )


def is_guarded(facts: FunctionFacts, call: CallFact) -> bool:
    """Whether a call runs under a guard of its own function."""
    guards = [use.callee.rpartition(".")[2] for use in (*call.managers, *facts.decorators)]
    return not GUARDS.isdisjoint(guards)


def fix_of(event: GradModeMisuse, network: str, flow: Flow) -> Fix | NoFix | None:
    """The call in the place of the assignment, where that is all of the statement."""
    span, text = flow.lowered(event.site).statement(event.site.node)
    name = METHOD if event.kind is Misuse.METHOD_OVERWRITTEN else FLAG
    if "".join(text.split()) != f"{event.name}.{name}=False":
        return NoFix("the statement does more than that")
    edit = Edit(span, f"{network}.{METHOD}(False)")
    return Fix("Freeze its parameters", Safety.UNSAFE, (edit,))
