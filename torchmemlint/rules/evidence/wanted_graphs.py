"""Where a graph may be wanted though no visible backward runs through it, or is not built at all."""

from __future__ import annotations

import re

from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.grad_effects import OFF, ON
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.module_evidence import MODULES_ALONE, takes_a_step, words_on
from torchmemlint.semantics.dataflow import classes_of
from torchmemlint.semantics.mode import guards_what_it_runs
from torchmemlint.semantics.roots import descendants
from torchmemlint.semantics.state import CERTAIN_KINDS, CallEffect, Graph, GraphKind, RecordFlag, SinkKind, World, memoized
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName, ClassKind, Effect

FORWARD = TORCH.words["forward"]
GUARDS = TORCH.words["grad-guards"]
CLEARS = TORCH.words["clears-gradients"]


def takes_gradients(event: Graph, flow: Flow, *, perhaps: bool = False) -> bool:
    """Whether the module may need the graph within its own forward, as one that gives forces with energies does: its class, or
    where that is not known, or is a chain of modules that are given to it, classes of its package: many of them, or with
    ``perhaps`` a few."""
    project = flow.runs.world.project
    if event.cls is not None:
        if project.differentiates(event.cls):
            return True
        if not project.is_subclass(event.cls, TORCH.names["sequence"]) and not runs_what_it_is_given(event.cls, flow):
            return False
    path = flow.record.root.path
    return project.differentiates_somewhere(path) if perhaps else project.differentiates_often(path)


def is_shape(event: Graph) -> bool:
    """Whether a tensor's own method was called that gives numbers about its shape (``self.weights[0].size(1)``)."""
    _, dot, method = event.what.rpartition(".")
    return bool(dot) and event.cls is None and TORCH.methods.get(method) is Effect.SHAPE


def is_asked_for(event: Graph, flow: Flow) -> bool:
    """Whether the function enables grad mode around each such call, in blocks of its own: hooks or attention processors may keep parts of
    the forward, of which gradients are taken."""
    return event.what in callees_with_enabled_grad(flow.runs.world, flow.frame(event.site).ref)


@memoized
def callees_with_enabled_grad(world: World, ref: FunctionRef) -> frozenset[str]:
    """What a function calls in blocks alone that enable grad mode."""
    facts, project = world.facts(ref), world.project
    if TORCH.names["switches-grad-on"] not in facts.names:
        return frozenset()
    called = [call.callee for call in facts.calls]
    enabled = [
        call.callee
        for call in facts.calls
        if any(project.manager_effect(ref.path, ref.qualname, use) == ON for use in call.managers)
    ]
    return frozenset(callee for callee in enabled if enabled.count(callee) == called.count(callee))


def runs_what_it_is_given(cls: ClassRef, flow: Flow) -> bool:
    """Whether a module's forward calls a part of itself (``self.model(x)``, ``self.models[task](x)``) that no visible class is
    known to be of."""
    project = flow.runs.world.project
    forward = project.method(cls, TORCH.names["forward"])
    if forward is None:
        return False
    for call in project.facts(forward).calls:
        name = call.callee.removeprefix("self.")
        facts = [fact for fact, _ in project.attr(cls, name.removesuffix("[]"))] if name != call.callee else []
        if name.endswith("[]"):
            known = any(fact.element and fact.kind is not AttrKind.OTHER for fact in facts)
        else:
            known = project.attribute_class(cls, name) is not None
        if facts and not known:
            return True
    return False


def is_distribution(event: Graph, flow: Flow) -> bool:
    """Whether a method of one of torch's distributions is called, as far as what calls give for a name says, or the name of a method
    that distributions have, of what a call gave (``policy.density(states).log_prob(actions)``): it is no network, and has no graph
    but that of its parameters and its input."""
    receiver, _, name = event.what.rpartition(".")
    if not receiver or event.kind is not GraphKind.OPAQUE:
        return False
    if name in OF_DISTRIBUTIONS and is_made_by_a_call(receiver, event, flow):
        return True
    found = classes_of(flow.runs.world, flow.frame(event.site).ref, receiver)
    return bool(found) and all(isinstance(cls, str) and TORCH.class_kind(cls) is ClassKind.DISTRIBUTION for cls in found)


OF_DISTRIBUTIONS = frozenset({TORCH.names["log-probability"], TORCH.names["samples-with-graph"], TORCH.names["entropy"]})


def is_made_by_a_call(name: str, event: Graph, flow: Flow) -> bool:
    """Whether a name of the function is bound to what a method of another object gives, and nothing treats it as a module."""
    facts = flow.runs.world.facts(flow.frame(event.site).ref)
    made = [text for bound, text in (*facts.bound, *facts.rebound) if bound == name]
    return (
        bool(made) and all(text.endswith("()") and "." in text for text in made) and not words_on(event, flow) & MODULES_ALONE
    )


def is_missing(event: Graph, flow: Flow) -> bool:
    """Whether what is called is a method that neither its class, all of which is visible, nor one below has: the call raises."""
    world, ref = flow.runs.world, flow.frame(event.site).ref
    receiver, _, name = event.what.rpartition(".")
    cls = world.project.class_of(ref.path, ref.qualname, receiver) if receiver and name.isidentifier() else None
    if not isinstance(cls, ClassRef) or name in FORWARD or world.project.is_attribute(name):
        return False
    mro = world.project.mro(cls)
    own = [each for each in mro if isinstance(each, ClassRef)]
    if any(isinstance(each, str) and each not in TORCH.words["bare-bases"] for each in mro):
        return False
    words = frozenset[str]().union(*(facts.names for each in own for facts in world.project.within(each.path, each.qualname)))
    has = world.project.method(cls, name) or world.project.method(cls, "__getattr__") or world.project.attr(cls, name)
    below = any(world.project.method(each, name) for each in world.project.subclasses(cls))
    return not (has or below) and words.isdisjoint(SETS_BY_NAME)


SETS_BY_NAME = TORCH.words["registers-by-name"] | {"setattr", "__dict__"}


def decided_elsewhere(event: Graph, flow: Flow) -> bool:
    """Whether the author chose: the same callee runs under ``no_grad`` on another path of the function, or the result is a
    distribution whose ``log_prob`` or ``entropy`` leaves the function, as a loss needs them."""
    record = flow.record
    if any(g.what == event.what and flow.own(g.site) for g in record.forwards.values()):
        return True
    seen = record.evidence.get(event.gid, set())
    return bool(seen & {TORCH.names["log-probability"], TORCH.names["samples-with-graph"], "called"}) or (
        event.gid in record.returned and TORCH.names["entropy"] in seen
    )


def guards_others(event: Graph, flow: Flow) -> bool:
    """Whether a method that is not visible is called with grad mode on, and the function guards other calls on the same object: the
    one that it does not guard may run no network (``model.normalize(x)``)."""
    receiver = event.what.rpartition(".")[0]
    if not receiver or receiver == "self" or event.cls is not None:
        return False
    guarded = calls_without_grad(flow.runs.world, flow.frame(event.site).ref)
    return any(callee != event.what and callee.rpartition(".")[0] == receiver for callee in guarded)


@memoized
def calls_without_grad(world: World, ref: FunctionRef) -> frozenset[str]:
    """What a function calls, with arguments, in blocks that disable grad mode."""
    return frozenset(
        call.callee
        for call in world.facts(ref).calls
        if call.args and any(world.project.manager_effect(ref.path, ref.qualname, use) == OFF for use in call.managers)
    )


def may_be_trained_in_a_callee(event: Graph, flow: Flow) -> bool:
    """Whether the function zeroes gradients, or steps an optimizer, while no backward is visible: it is in an object that is not visible
    that a value of the graph is passed to (``loss_scaler(loss)``), whatever becomes of its result, or in the network itself, where
    the optimizer steps in a phase that has no backward. What is given the optimizer with it may do all of that, whatever else the
    function does."""
    record, world = flow.record, flow.runs.world
    family = descendants(record, event.gid)
    passed = [sink for gid in family for sink in record.sinks.get(gid, ()) if sink.kind is SinkKind.PASSED]
    if any(flow.own(sink.site) and takes_a_step(flow.runs.world, flow.record.root, sink.how) for sink in passed):
        return True
    stepping = [
        each for each in record.events.values() if isinstance(each, CallEffect) and each.effect is CallByName.OPTIMIZER_STEP
    ]
    beside = any(flow.own(each.site) and each.site.loops == event.site.loops for each in stepping)
    if beside and RecordFlag.BACKWARD not in record.flags:
        return True
    steps = world.facts(record.root).names & CLEARS or stepping
    if not steps or any(RecordFlag.BACKWARD in each.flags for each in flow.runs.records(record.root)):
        return False
    return bool(passed)


def guards_its_network(event: Graph, flow: Flow) -> bool:
    """Whether the module's own forward runs a network with grad mode off, and nothing beside it but what it was given and of
    which no parameters are visible (a preprocessor)."""
    record, project = flow.record, flow.runs.world.project
    cls = event.cls or forward_run_by_root(event, flow)
    if cls is not None and guards_what_it_runs(flow.runs.world, cls):
        return True
    if event.cls is None:
        return False

    def inside(graph: Graph) -> bool:
        return not flow.own(graph.site) and flow.own_call(graph.site)[0].key == event.site.key

    def is_given(graph: Graph) -> bool:
        ref = flow.frame(graph.site).ref
        owner = flow.runs.world.header(ref).owner
        made = project.attribute_class(ClassRef(ref.path, owner), graph.what.removeprefix("self.")) if owner else ""
        return made is None or made in TORCH.words["any-module"]

    if not any(inside(graph) for graph in record.forwards.values()):
        return False
    return all(is_given(graph) for graph in record.graphs.values() if graph.kind in CERTAIN_KINDS and inside(graph))


def forward_run_by_root(event: Graph, flow: Flow) -> ClassRef | None:
    """The class of the module whose forward the root calls by its name (``net.forward(x)``), where that runs what is called."""
    if flow.own(event.site):
        return None
    callee = flow.own_call(event.site)[1]
    owner = flow.runs.world.header(callee).owner
    return ClassRef(callee.path, owner) if owner and callee.qualname.rpartition(".")[2] in FORWARD else None


def needs_either(root: FunctionRef, flow: Flow) -> bool:
    """Whether the function is part of a module's own forward, which runs in training and evaluation alike: one of the methods that
    stand for it, or one that nothing else visible calls."""
    last = root.qualname.rpartition(".")[2]
    if last in TORCH.words["training-steps"] | {"__init__"}:
        return True
    if not flow.root_is_module():
        return False
    if last in FORWARD:
        return True
    if FORWARDS.fullmatch(last):
        return True
    owner = flow.runs.world.header(root).owner
    own = {FunctionRef(root.path, f"{owner}.{name}") for name in FORWARD}
    callers = {caller.ref for caller in flow.runs.world.project.callers(root).calls}
    return bool(callers) and callers <= own


FORWARDS = re.compile(r"_?forward_\w+|forward")
