"""Where a graph may be wanted though no backward in sight runs through it, or is not built at all."""

from __future__ import annotations

import re

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.rules.gradmode.module_evidence import MODULES_ALONE, takes_a_step, words_on
from torchmemlint.semantics.event_words import RecordFlag
from torchmemlint.semantics.events import CERTAIN_KINDS, CallEffect, Graph, SinkKind
from torchmemlint.semantics.grad_guards import guards_what_it_runs
from torchmemlint.semantics.roots import reaches
from torchmemlint.semantics.runs import descendants
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ToldCall

FORWARD = TORCH.words["forward"]
GUARDS = TORCH.words["grad-guards"]
GRADIENTS = TORCH.words["takes-gradients"]
CLEARS = TORCH.words["clears-gradients"]


def takes_gradients(event: Graph, flow: Flow) -> bool:
    """Whether the module may need the graph within its own forward, as one that gives forces with energies does: its class, or
    where that is not known, or is a chain of modules that are given to it, some class of the package."""
    project = flow.runs.world.project
    if event.cls is not None:
        if project.differentiates(event.cls):
            return True
        if not project.is_subclass(event.cls, "torch.nn.Sequential") and not runs_what_it_is_given(event.cls, flow):
            return False
    return project.differentiates_somewhere(flow.record.root.path)


def may_be_given_gradients(event: Graph, flow: Flow) -> bool:
    """Whether what is called is a parameter for which a caller in sight gives a function that takes gradients itself (the score of a
    density): without a graph it fails."""
    world, root = flow.runs.world, flow.record.root
    if not event.what.isidentifier():
        return False
    return any(
        reaches(world, callee, GRADIENTS)
        for caller, text in world.project.objects_given(root, event.what)
        for callee in world.project.callees(caller.path, caller.qualname, text).refs
    )


def runs_what_it_is_given(cls: ClassRef, flow: Flow) -> bool:
    """Whether a module's forward calls a part of itself (``self.model(x)``, ``self.models[task](x)``) that no class in sight is
    known to be of."""
    project = flow.runs.world.project
    forward = project.method(cls, "forward")
    if forward is None:
        return False
    for call in project.facts(forward).calls:
        name = call.callee.removeprefix("self.")
        facts = [fact for fact, _ in project.attr(cls, name.removesuffix("[]"))] if name != call.callee else []
        if name.endswith("[]"):
            known = any(fact.element for fact in facts)
        else:
            known = project.attribute_class(cls, name) is not None
        if facts and not known:
            return True
    return False


def runs_elsewhere(event: Graph, flow: Flow) -> bool:
    """Whether what is called may as well be no network of torch's that records a graph: a compiled artifact that is loaded
    (``torch.jit.load``), of whose parameters nothing is said; an attribute that also holds a session of another library, where
    the class runs it elsewhere with grad mode off."""
    world, root = flow.runs.world, flow.record.root
    owner, name = world.facts(root).owner, event.what.removeprefix("self.")
    if owner and name != event.what and name.isidentifier():
        cls = ClassRef(root.path, owner)
        if any(world.is_session(each) for each in world.project.attribute_classes(cls, name)) and any(
            call.callee == event.what and any(use.callee.rpartition(".")[2] in GUARDS for use in call.managers)
            for base in world.project.mro(cls)
            if isinstance(base, ClassRef)
            for other in world.within(base.path, base.qualname)
            for call in other.calls
        ):
            return True
    return is_loaded(event, flow, "torch.jit.load")


def is_loaded(event: Graph, flow: Flow, loader: str) -> bool:
    """Whether what is called is what a function of torch loads, as far as its name or attribute tells, and nothing in sight treats
    it as a module (``eval()``)."""
    world, root = flow.runs.world, flow.record.root
    facts = world.facts(root)
    name = event.what.removeprefix("self.")
    if name == event.what:
        made = [(root, text) for bound, text in (*facts.bound, *facts.rebound) if bound == name]
    elif facts.owner and name.isidentifier():
        held = world.project.attr(ClassRef(root.path, facts.owner), name)
        made = [(FunctionRef(at.path, fact.method), fact.value) for fact, at in held if fact.method]
    else:
        made = []
    last = loader.partition(".")[2]
    return not words_on(event, flow) & MODULES_ALONE and any(
        text.startswith(f"{loader}()") or world.project.resolve(ref.path, text.partition("()")[0], ref.qualname) == loader
        for ref, text in made
        if last in text
    )


def decided_elsewhere(event: Graph, flow: Flow) -> bool:
    """Whether the author chose: the same callee runs under ``no_grad`` on another path of the function, or the result is a
    distribution whose ``log_prob`` or ``entropy`` leaves the function, as a loss needs them."""
    record = flow.record
    if any(g.what == event.what and flow.own(g.site) for g in record.forwards.values()):
        return True
    seen = record.evidence.get(event.gid, set())
    return bool(seen & {"log_prob", "rsample", "called"}) or (event.gid in record.returned and "entropy" in seen)


def may_be_trained_in_a_callee(event: Graph, flow: Flow) -> bool:
    """Whether the function zeroes gradients, or steps an optimizer, while no backward is in sight: it is in an object out of sight
    that a value of the graph is passed to (``loss_scaler(loss)``), whatever becomes of its result. What is given the optimizer
    with it may do all of that, whatever else the function does."""
    record, world = flow.record, flow.runs.world
    family = descendants(record, event.gid)
    passed = [sink for gid in family for sink in record.sinks.get(gid, ()) if sink.kind is SinkKind.PASSED]
    if any(flow.own(sink.site) and takes_a_step(sink.how, flow) for sink in passed):
        return True
    steps = world.facts(record.root).names & CLEARS or any(
        isinstance(each, CallEffect) and each.effect is ToldCall.OPTIMIZER_STEP for each in record.events.values()
    )
    if not steps or any(RecordFlag.BACKWARD in each.flags for each in flow.runs.records(record.root)):
        return False
    return bool(passed)


def guards_its_network(event: Graph, flow: Flow) -> bool:
    """Whether the module's own forward runs a network with grad mode off, and nothing beside it but what it was given and of
    which no parameters are in sight (a preprocessor)."""
    record, project = flow.record, flow.runs.world.project

    def inside(graph: Graph) -> bool:
        return not flow.own(graph.site) and flow.own_call(graph.site)[0].key == event.site.key

    def is_given(graph: Graph) -> bool:
        ref = flow.frame(graph.site).ref
        owner = flow.runs.world.facts(ref).owner
        made = project.attribute_class(ClassRef(ref.path, owner), graph.what.removeprefix("self.")) if owner else ""
        return made is None or made in TORCH.words["any-module"]

    if not any(inside(graph) for graph in record.graphs.values()) and event.cls is not None:
        return guards_what_it_runs(flow.runs.world, event.cls)  # its forward was not followed: the function is a long one
    if not any(inside(graph) for graph in record.forwards.values()):
        return False
    return all(is_given(graph) for graph in record.graphs.values() if graph.kind in CERTAIN_KINDS and inside(graph))


def needs_either(root: FunctionRef, flow: Flow) -> bool:
    """Whether the function is part of a module's own forward, which runs in training and evaluation alike: one of the methods that
    stand for it, or one that nothing else in sight calls."""
    last = root.qualname.rpartition(".")[2]
    if last in TORCH.words["training-steps"] | {"__init__"}:
        return True
    if not flow.root_is_module():
        return False
    if last in FORWARD:
        return True
    if FORWARDS.fullmatch(last):
        return True
    owner = flow.runs.world.facts(root).owner
    own = {FunctionRef(root.path, f"{owner}.{name}") for name in FORWARD}
    callers = {caller.ref for caller in flow.runs.world.project.callers(root).calls}
    return bool(callers) and callers <= own


FORWARDS = re.compile(r"_?forward_\w+|forward")
