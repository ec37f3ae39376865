"""Whether a backward wants the graph, in the function, its callers, or out of sight."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower.walk import names_used
from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow, watches_gradients
from torchmemlint.rules.evidence.candidate import Candidate, is_of_unknown_class
from torchmemlint.rules.evidence.closures import called_by_others, returns_both
from torchmemlint.rules.evidence.cuts import explicit, is_detached
from torchmemlint.rules.evidence.kept_attributes import kept_by_module
from torchmemlint.rules.evidence.mode import is_returned_in_a_phase
from torchmemlint.rules.evidence.wanted_graphs import (
    decided_elsewhere,
    may_be_trained_in_a_callee,
    needs_either,
    takes_gradients,
)
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.roots import Fate, descendants
from torchmemlint.semantics.state import Graph, GraphKind, Mode, RecordFlag, SinkKind, World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import HookEffect


def in_the_run(candidate: Candidate) -> Iterator[Fact]:
    """What the run itself says of it."""
    if candidate.event.gid in candidate.record.backwarded:
        yield Fact("back-propagated", "its graph is back-propagated")


def in_the_function(candidate: Candidate) -> Iterator[Fact]:
    """What the function itself leaves open of the result, whatever its callers do."""
    event, flow, record, here = candidate.event, candidate.flow, candidate.record, candidate.here
    beside, evaluated = flow.beside_backward(event), candidate.evaluated
    if not candidate.ends_here and not evaluated and (beside or needs_either(candidate.root, flow)):
        yield Fact("part-of-a-step", "the result may be trained in the enclosing step or forward", Known.ASSUMED)
    if here.never_read and not (evaluated or is_unread(event, flow)):
        yield Fact("use-unknown", "the use of the result is unknown", Known.ASSUMED)
    if here.never_read and not (event.site.loops or beside or evaluated):
        yield Fact("unused-once", "the result is unused, and the call runs once")
    if TORCH.names["gradient-flag"] in record.evidence.get(event.gid, ()):
        yield Fact("checks-for-a-graph", "the function checks whether there is a graph")
    if any(key.endswith(f".{TORCH.names['gradient-flag']}") and not holds for key, holds in record.assumptions):
        yield Fact("path-without-graph", "this way through the function is for values that have no graph")


def without_backward(candidate: Candidate) -> Iterator[Fact]:
    """Why the graph may be wanted without a visible backward."""
    event, flow = candidate.event, candidate.flow
    if watches_gradients(candidate.world, flow.record.root, candidate.ends_here):
        yield Fact("gradients-watched", "the function reads the graph or gradients")
    if flow.hooks_forwards() and all(sink.kind is SinkKind.DROPPED for sink in candidate.record.sinks.get(event.gid, ())):
        yield Fact("hooks-keep-it", "hooks keep the result")
    if takes_gradients(event, flow):
        yield Fact("takes-gradients", "the module computes gradients in its own forward")


def by_callers(candidate: Candidate) -> Iterator[Fact]:
    """Why the graph is wanted, or is none, or is reported elsewhere, by all that becomes of the result."""
    event, flow, fate = candidate.event, candidate.flow, candidate.fate
    if fate.trains:
        yield Fact("trained-by-a-caller", "a caller back-propagates the result")
    if candidate.here.escapes and fate.callers and not fate.escapes and is_called_from_outside(flow, fate):
        yield Fact("stands-in-callers", "only the callers know how the result is used; they are checked instead")
    if may_be_trained_in_a_callee(event, flow):
        yield Fact(
            "trained-in-a-callee",
            "an optimizer steps here, and the function that gets the result may run the backward",
            Known.ASSUMED,
        )
    if proves_no_graph(fate):
        yield Fact("numpy-without-graph", "`numpy()` of the result would raise if it had a graph")
    if not flow.own(event.site) and trains_beside(event, flow, fate.only_cut):
        yield Fact("sibling-trained", "another part of the same forward is trained")
    if is_kept_in_a_loss(event, flow):
        yield Fact("in-a-kept-loss", "a kept loss is also computed from it")


def out_of_sight(candidate: Candidate) -> Iterator[Fact]:
    """Why a result that leaves what is visible may be trained there."""
    event, flow, record, fate, name = candidate.event, candidate.flow, candidate.record, candidate.fate, candidate.name
    if event.training is True or decided_elsewhere(event, flow):
        yield Fact(
            "training-or-guarded-elsewhere",
            "the module is in training mode, or the same call runs without grad elsewhere",
        )
    if record.flags & {RecordFlag.INPUT_GRAD, RecordFlag.AUTOGRAD_GRAD}:
        yield Fact("gradients-of-an-input", "the function computes gradients of an input")
    phase, evaluated = candidate.phase, is_evaluated_for_good(candidate)
    if not evaluated and needs_either(candidate.root, flow):
        yield Fact(
            "part-of-a-forward",
            "the function is part of a forward, which runs in training and evaluation alike",
            Known.ASSUMED,
        )
    if not phase and (not evaluated or fate.escapes) and flow.called_in_training(by_trainers=fate.escapes):
        yield Fact("caller-trains", "a caller computes a loss or trains", Known.SOME_CALLERS)
    if record.mode is Mode.MIXED and RecordFlag.EVAL not in record.flags:
        yield Fact("callers-differ", "some callers disable grad mode, and the others may need the graph", Known.SOME_CALLERS)
    if flow.beside_backward(event) and (fate.passed or not evaluated):
        yield Fact("same-step", "the result may be part of the same training step", Known.ASSUMED)
    if evaluated and (phase or not purpose.drives(name)):
        return
    if fate.escapes and not is_detached(fate):
        yield Fact("named-for-evaluation", "only its name suggests that no code outside trains the result", Known.NAME)
    if candidate.evaluated and not purpose.evaluates(name):
        yield Fact("uses-not-visible", "not all uses of the result are visible", Known.ASSUMED)


def is_evaluated_for_good(candidate: Candidate) -> bool:
    """Whether the phase is one of evaluation for those, too, whom the function hands the result on to: not where another method called
    ``eval()``, unless they get it on the host, where no loss is computed of what ran on a device."""
    record, flow, fate = candidate.record, candidate.flow, candidate.fate
    says_use = fate.moved or purpose.uses(candidate.name)
    handed_on = fate.escapes and not candidate.phase and (not says_use or flow.root_is_module())
    if candidate.evaluated and RecordFlag.EVAL not in record.flags and handed_on:
        return flow.assumed_evaluation()
    return candidate.evaluated


def of_attributes(candidate: Candidate) -> Iterator[Fact]:
    """What is known or assumed of what the module keeps of its own forward, and of closures that keep calling it."""
    kept = kept_by_module(candidate.event, candidate.flow)
    if kept is None:
        yield Fact("kept-attributes-trained", "attributes that the module's forward sets may be back-propagated")
    yield from kept or ()
    yield from called_by_others(candidate.event, candidate.flow, candidate.evaluated)
    if candidate.here.kept and not candidate.fate.kept:
        yield assumed.READ_ELSEWHERE


def assumed_of(candidate: Candidate) -> Iterator[Fact]:
    """What is assumed of the ways that the result goes."""
    event, flow, fate, evaluated, name = (
        candidate.event,
        candidate.flow,
        candidate.fate,
        candidate.evaluated,
        candidate.name,
    )
    if candidate.done:
        if fate.never_read and event.kind is GraphKind.OPAQUE:
            yield assumed.FOR_ITS_EFFECT
        if event.kind is GraphKind.OPAQUE and not evaluated and not explicit(fate) and not purpose.uses(name):
            yield assumed.NO_GRAPH
    elif not evaluated and not purpose.evaluates(name):
        yield assumed.PASSED_UNKNOWN if fate.passed else assumed.KEPT_UNKNOWN if fate.kept else assumed.LEFT_UNKNOWN
    elif is_returned_in_a_phase(candidate):
        yield assumed.HANDED_BACK
    elif fate.escapes:
        if candidate.world.hook(candidate.root) is not HookEffect.EVALUATION:
            yield assumed.LEFT_UNKNOWN if returns_both(event, flow) else assumed.RETURNED
    elif candidate.called and not evaluated:
        yield assumed.NOT_EVALUATED
    elif candidate.called and event.kind is not GraphKind.FORWARD:
        yield assumed.PASSED if fate.passed else assumed.KEPT


def by_name(candidate: Candidate) -> Iterator[Fact]:
    """What only names say of who wants the graph."""
    event, flow = candidate.event, candidate.flow
    if takes_gradients(event, flow, perhaps=True):
        yield assumed.TAKES_GRADIENTS
    if is_of_unknown_class(event) and purpose.words(event.what.rpartition(".")[2])[:1] == (TORCH.names["trains"],):
        yield assumed.TRAINS_ITSELF


def trains_beside(event: Graph, flow: Flow, only_cut: bool) -> bool:
    """Whether the call of the root by which this module runs runs another one, or this one again, whose result is trained, or is
    handed out with its graph where this one's is cut: both are of one forward, as of a discriminator that sees two inputs."""
    others = [g for g in flow.made_inside(flow.own_site(event.site)) if g.kind == event.kind and g.gid != event.gid]
    fates = [flow.runs.fate(flow.record, other.gid) for other in others]
    return any(fate.trains or (only_cut and fate.escapes) for fate in fates)


def proves_no_graph(fate: Fate) -> bool:
    """Whether a result is turned into an array without a detach: that raises where the result has a graph, so it has none. Where
    it is detached as well, the array may be of that, unless it is known to be of another part of the result."""
    if is_detached(fate):
        return fate.raises
    return any(s.how == ".numpy()" or s.how.startswith("numpy.") for s in fate.cuts)


def is_unread(event: Graph, flow: Flow) -> bool:
    """Whether the result is dropped at once, or bound to names alone that nothing in the function reads."""
    if any(s.kind is SinkKind.DROPPED for s in flow.record.sinks.get(event.gid, ())):
        return True
    site = flow.own_site(event.site)
    bound = NAMES.match(flow.lowered(site).statement(site.node)[1])
    if bound is None:
        return False
    read = names_read(flow.runs.world, flow.record.root)
    return read.isdisjoint(name.strip(" ()*") for name in bound[1].split(","))


@memoized
def names_read(world: World, ref: FunctionRef) -> frozenset[str]:
    """The names that a function, or one inside it, uses."""
    return frozenset(names_used(world.body(ref)))


NAMES = re.compile(r"([\w\s,()*]+?)\s*=[^=]")
"""The targets of an assignment to names."""


def is_called_from_outside(flow: Flow, fate: Fate) -> bool:
    """Whether the root is a method of a module, and a function that is none of this object's own calls it."""
    world, root = flow.runs.world, flow.record.root
    owner = world.header(root).owner
    if not owner or not flow.root_is_module():
        return False
    own = {owner, *(cls.qualname for cls in world.project.mro(ClassRef(root.path, owner)) if isinstance(cls, ClassRef))}
    return any(world.header(caller).owner not in own for caller in fate.callers)


def is_kept_in_a_loss(event: Graph, flow: Flow) -> bool:
    """Whether the output also goes attached through a loss that is kept beside a backward: it is meant to be trained there. What a
    loss function adds up in a name of its own ends with its call."""
    record = flow.record
    if RecordFlag.BACKWARD not in record.flags:
        return False
    family = descendants(record, event.gid)
    lost = [g for g in family if "loss" in record.operations.get(g, ())]
    sinks = (s for g in family for s in record.sinks.get(g, ()) if s.kind is SinkKind.STORED)
    return bool(lost) and any(flow.own(s.site) or not s.how.isidentifier() for s in sinks)
