"""Whether what a function calls is a module, by evidence: nothing else that is called builds a graph of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import AttrFact, CallFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.semantics.identity import (
    MODULE_EVIDENCE,
    TRAINER_WORDS,
    asks_for_parameters,
    class_kind,
    has_parameters,
    is_made_parametric,
    is_torch_function,
    looks_like_module,
    module_given,
    parametric_attributes,
    words_given,
)
from torchmemlint.semantics.mode import is_imported, purpose
from torchmemlint.semantics.roots import MAX_CALLERS, descendants, gives_a_graph, is_part
from torchmemlint.semantics.state import (
    CERTAIN_KINDS,
    MADE_KINDS,
    MODULE,
    Graph,
    GraphKind,
    Kind,
    Seen,
    SinkKind,
    World,
    memoized,
    shows_no_tensor,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import ClassKind


def may_be_module(event: Graph, flow: Flow) -> bool:
    """Whether there is no evidence against a module."""
    if (
        not (event.direct or is_beside_trained(event, flow) or runs_by_a_method(event, flow))
        or is_part(flow.record, event)
        or event.what in asked_for_arrays(flow.runs.world, flow.frame(event.site).ref)
        or (purpose.is_helper(event.what) and not is_method_of_evaluated(event, flow))
        or is_callable(event.what, flow)
        or event.what in tuple_classes(flow.runs.world, flow.record.root.path)
        or runs_no_network(event.what, flow)
    ):
        return False
    if CLASS.fullmatch(event.what.rpartition(".")[2]) and not words_on(event, flow) & MODULE_WORDS:
        return False  # a class, by the way that classes are written: the call makes an object
    seen = seen_on(event, flow)
    if "array" in seen or ("maybe-array" in seen and not words_on(event, flow) & MODULE_WORDS):
        return False  # a session of another library, which returns arrays
    if seen & MODULES_ALONE:
        return False  # it gives a module, and runs none (``self._wrap_model(model)``)
    if is_function_by_its_place(event.what, flow) and not words_on(event, flow) & MODULE_WORDS:
        return False
    return (
        purpose.may_be_network(event.what)
        or bool(words_on(event, flow) & MODULE_WORDS or seen & TENSOR_ONLY)
        or is_trained_beside(event, flow)
        or flow.trains_in_another_phase(event)
    )


@memoized
def asked_for_arrays(world: World, ref: FunctionRef) -> frozenset[str]:
    """The tokenizers and processors that a function calls, by an argument that says in which arrays they give their ids: no model takes
    one."""
    return frozenset(call.callee for call in world.facts(ref).calls if ARRAYS.intersection(call.keywords))


ARRAYS = TORCH.words["chooses-arrays"]


@memoized
def tuple_classes(world: World, path: str) -> frozenset[str]:
    """The names of a file for classes of plain objects that a call makes: ``Batch = namedtuple("Batch", "x y")``."""
    bound = world.facts(FunctionRef(path, MODULE)).bound
    return frozenset(
        name for name, made in bound if made.removesuffix("()").rpartition(".")[2] in TORCH.words["makes-plain-classes"]
    )


def runs_no_network(what: str, flow: Flow) -> bool:
    """Whether what is called is a method by which no module runs: one of ``nn.Module`` itself beside its forward
    (``net.state_dict()``), one that hands out what a mapping holds (``params.get("rate")``), or one of which every definition in the project uses nothing of the object but such methods, and calls
    nothing that is given to it (``net.load_model(path)``, ``net.dummy_batch()``)."""
    receiver, _, name = what.rpartition(".")
    if not receiver or receiver == "self":
        return False
    if name in MODULES_ALONE or name in HANDS_OUT:
        return True
    world = flow.runs.world
    namesakes = [ref for ref in world.project.methods_named(name) if ref != flow.record.root]
    return 0 < len(namesakes) <= MAX_CALLERS and not any(may_run_network(ref, flow) for ref in namesakes)


@memoized
def takes_a_step(world: World, root: FunctionRef, what: str) -> bool:
    """Whether some call of this name in a function is given an optimizer, or the parameters of a module (``scaler(loss, optimizer,
    parameters=net.parameters())``): no forward is; it may run the backward of what else it is given."""
    facts = world.facts(root)
    given = dict.fromkeys(arg.name for call in facts.calls if call.callee == what for arg in call.args if arg.name)
    return any(asks_for_parameters(name) or is_optimizer(name, root, world) for name in given)


def is_optimizer(text: str, root: FunctionRef, world: World) -> bool:
    """Whether a name or attribute is an optimizer, by its class or by what the function does with it."""
    made = world.project.class_of(root.path, root.qualname, text)
    if isinstance(made, str) and class_kind(made) is Kind.OPTIMIZER:
        return True
    words = world.evidence(root).get(text, frozenset())
    return (
        words >= TORCH.words["optimizer-words"]
        or (TORCH.names["clears-gradients"] in words and not words & SURE)
        or f"{text}.param_groups" in world.facts(root).reads
    )


PARAMETER_ITERATORS = TORCH.words["parameter-iterators"]
HANDS_OUT = TORCH.words["hands-out"]
SURE = TORCH.words["sure-module-evidence"] | {"()"}


def may_run_network(ref: FunctionRef, flow: Flow) -> bool:
    """Whether a method calls a part of its object that may have parameters, the object itself, or what it was given."""
    facts = flow.runs.world.facts(ref)
    given = {p.name for p in facts.params} | {"super"}
    owner = facts.params[0].name if facts.params else "self"
    if facts.owner and holds_no_module(flow.runs.world, ClassRef(ref.path, facts.owner)):
        given.discard(owner)
        return any(call.callee.partition(".")[0].removesuffix("()").removesuffix("[]") in given for call in facts.calls)
    bare = parts_without_parameters(flow.runs.world, ClassRef(ref.path, facts.owner)) if facts.owner else frozenset()

    def harmless(text: str) -> bool:
        start, _, rest = text.partition(".")
        return start == owner and (rest.rpartition(".")[2] in MODULES_ALONE or rest.partition(".")[0] in bare)

    if any(use.callee.startswith(f"{owner}.") and not harmless(use.callee) for use in facts.returned or ()):
        return True
    return any(
        (
            call.callee.partition(".")[0].removesuffix("()").removesuffix("[]") in given
            and not harmless(call.callee)
            and not is_tensors_method(call.callee)
        )
        or any(arg.name.startswith(f"{owner}.") and not harmless(arg.name) for arg in call.args)
        for call in facts.calls
    )


@memoized
def holds_no_module(world: World, cls: ClassRef) -> bool:
    """Whether a class of the project is none of modules, nor is any below it, and none of them keeps anything that may have parameters (a
    schedule of noise, made of numbers)."""
    family = (cls, *world.project.subclasses(cls))
    return all(world.is_module_class(each) is False and not parametric_attributes(world, each) for each in family)


@memoized
def parts_without_parameters(world: World, cls: ClassRef) -> frozenset[str]:
    """The attributes in which a class keeps what a visible call makes, nothing of it with parameters (a filter bank, a tokenizer)."""
    bases = [base for base in world.project.mro(cls) if isinstance(base, ClassRef)]
    attrs = [attr for base in bases for attr in world.project.attrs(base)]
    given = {attr.name for attr in attrs if attr.kind is not AttrKind.CALL}
    return frozenset(attr.name for attr in attrs) - given - parametric_attributes(world, cls)


class ModuleEvidence(IntEnum):
    """How surely an object that is called is a module, by what the code shows of it; the number is that of its doubts (``judgement``)."""

    CERTAIN = 0
    """Its class says so, or the code does with it what can be done with modules alone."""
    LIKELY = 1
    """Its result is detached, or it reads like a network and its result is treated as a tensor."""
    WEAK = 3
    """It reads like a network, or its result is treated as a tensor."""
    NONE = 9


def evidence_of(event: Graph, flow: Flow) -> ModuleEvidence:
    """How surely what is called is a module that has parameters."""
    if shows_no_tensor(flow.record.evidence.get(event.gid, frozenset())):
        return ModuleEvidence.NONE
    found = shown_by_uses(event, flow)
    if (
        found is not ModuleEvidence.NONE
        and event.kind is GraphKind.OPAQUE
        and event.cls is None
        and is_of_bare_class(event, flow)
    ):
        return ModuleEvidence.NONE
    if found > ModuleEvidence.LIKELY or not may_be_bare_loss(event, flow):
        return found
    above = (flow.record.graphs[gid] for gid in flow.record.ancestors(event.parents))
    return ModuleEvidence.LIKELY if any(g.kind is GraphKind.OPAQUE for g in above) else ModuleEvidence.WEAK


def shown_by_uses(event: Graph, flow: Flow) -> ModuleEvidence:
    """As ``evidence_of``, by the class and by what the code does with it."""
    if event.cls is None and (
        takes_a_step(flow.runs.world, flow.record.root, event.what) or views_a_dict(event) or is_of_plain_object(event, flow)
    ):
        return ModuleEvidence.NONE
    of_a_method = event.cls is None and event.what.rpartition(".")[2] != TORCH.names["forward"]
    if event.kind is GraphKind.FORWARD and of_a_method and runs_no_network(event.what, flow):
        return ModuleEvidence.NONE
    if event.kind is GraphKind.FORWARD or (event.what in ("self", "self.forward") and flow.root_is_module()):
        return ModuleEvidence.WEAK if may_be_pipeline(event, flow) else ModuleEvidence.CERTAIN
    if is_step_of_evaluated(event):
        return ModuleEvidence.LIKELY
    if not may_be_module(event, flow):
        return ModuleEvidence.NONE
    words, seen = words_on(event, flow), seen_on(event, flow)
    if (
        words & MODULE_WORDS
        or (event.training is False and event.direct and not event.what.startswith("self."))
        or flow.trains_in_another_phase(event)
        or is_trained_beside(event, flow, alone=True)
    ):
        return ModuleEvidence.CERTAIN
    if is_trained_by_callers(event, flow):
        return ModuleEvidence.CERTAIN
    cuts = cuts_of(event, flow)
    if Seen.FIELDS in seen or any(
        other.what.startswith(event.what + ".") and event.gid in other.parents for other in flow.record.graphs.values()
    ):
        cuts -= {".data", "no_grad"}  # an object with fields of its own: `data` is one of them
    taken = any(cut.startswith("torch.") for cut in cuts - COPIES_VALUES)  # a tensor can be made of numbers as well
    is_tensor = bool(seen & TENSOR_ONLY or cuts & WITHOUT_GRAPH or taken)
    if holds_a_lambda(event.what, flow):
        return ModuleEvidence.WEAK
    named = purpose.may_be_network(event.what) or gives_outputs(event, flow)
    beside = (named or is_given_a_graph(event, flow)) and is_trained_beside(event, flow)
    if beside or is_detached_here(event, flow) or event.training is False or (is_tensor and named):
        return ModuleEvidence.LIKELY
    receiver, _, name = event.what.rpartition(".")
    if is_tensor and is_treated_as_module(receiver, name, flow):
        return ModuleEvidence.LIKELY
    return ModuleEvidence.WEAK


def gives_outputs(event: Graph, flow: Flow) -> bool:
    """Whether a field of the result is read that the outputs of networks have: ``reference(**inputs).logits``."""
    fields = {graph.what.removeprefix(f"{event.what}.") for graph in flow.record.graphs.values() if graph.site == event.site}
    return not OUTPUTS.isdisjoint(fields) or event.what.rpartition(".")[2] in OUTPUTS


OUTPUTS = TORCH.words["outputs-of-networks"]


def may_be_pipeline(event: Graph, flow: Flow) -> bool:
    """Whether all that shows a module is that the object was moved to a device, and nothing that its result is a tensor: pipelines of
    libraries are moved, too, and run their networks without grad."""
    words = words_on(event, flow)
    return (
        event.cls is None
        and bool(words & MOVES)
        and not looks_like_module(words - MOVES)
        and not seen_on(event, flow) & TENSOR_ONLY
        and not (event.what.isidentifier() and module_given(flow.runs.world, flow.record.root, event.what))
    )


COPIES_VALUES = TORCH.words["copies-values"]
MOVES = TORCH.words["gives-itself"] - MODULE_EVIDENCE
"""Methods that modules, tensors and pipelines have, and that give the object itself."""


def is_of_plain_object(event: Graph, flow: Flow) -> bool:
    """Whether what is called is a method of an object that keeps no module: an abstract one, which classes below define."""
    cls, name = flow.runs.world.class_of_method(flow.frame(event.site).ref), event.what.removeprefix("self.")
    if event.kind is not GraphKind.OPAQUE or cls is None or name == event.what or not name.isidentifier():
        return False
    return bool(flow.runs.world.project.method(cls, name)) and holds_no_module(flow.runs.world, cls)


WITHOUT_PARAMETERS = frozenset({ClassKind.MODULE_NOPARAM, ClassKind.LOSS})


def is_of_bare_class(event: Graph, flow: Flow) -> bool:
    """Whether an attribute that the run did not follow holds, by all that its class assigns, a module of the project without parameters
    (a measure of quality), or callers give such a one of a library for a parameter (a transform)."""
    ref, world = flow.frame(event.site).ref, flow.runs.world
    owner, name = world.header(ref).owner, event.what.removeprefix("self.")
    if name.isidentifier() and any(param.name == event.what for param in world.header(ref).params):
        given = world.project.classes_given(ref, name)
        return bool(given) and all(isinstance(cls, str) and TORCH.class_kind(cls) in WITHOUT_PARAMETERS for cls in given)
    if not owner or name == event.what or not name.isidentifier():
        return False
    cls = world.project.attribute_class(ClassRef(ref.path, owner), name)
    return isinstance(cls, ClassRef) and bool(world.is_module_class(cls)) and not has_parameters(world, cls)


def may_be_bare_loss(event: Graph, flow: Flow) -> bool:
    """Whether what reads like a loss, of a class that is not known or not surely one with parameters, is given nothing that surely has a
    graph: few losses have parameters. A part of a result (``student, teacher = net(x)``) may have none where another one has."""
    name = event.what.partition("[")[0].rpartition(".")[2]
    if TORCH.words["loss-classes"].isdisjoint(purpose.words(event.cls.qualname if event.cls is not None else name)):
        return False
    record = flow.record
    above = [record.graphs[gid] for gid in record.ancestors(event.parents, lambda graph: is_part(record, graph))]
    if any(graph.kind in CERTAIN_KINDS or (graph.kind is GraphKind.OPAQUE and graph.gid in record.trained) for graph in above):
        return False
    return event.cls is None or not makes_parameters(flow.runs.world, event.cls)


def makes_parameters(world: World, cls: ClassRef) -> bool:
    """Whether a class of the project surely holds a parameter, or a module of torch's that has some."""
    names = {fact.name for base in world.project.mro(cls) if isinstance(base, ClassRef) for fact in world.project.attrs(base)}
    return any(is_made_parametric(world, cls, name) for name in sorted(names))


def views_a_dict(event: Graph) -> bool:
    """Whether a method of dicts is called without arguments: ``self.variables.items()``, ``inputs.copy()``."""
    return not event.direct and event.what.rpartition(".")[2] in VIEWS_OF_DICT


VIEWS_OF_DICT = TORCH.words["views-of-dict"] | TORCH.words["copies-container"]


def cuts_of(event: Graph, flow: Flow) -> set[str]:
    """By what the result, or what is computed from it, loses its graph in this function."""
    sinks = flow.record.sinks
    return {s.how for gid in descendants(flow.record, event.gid) for s in sinks.get(gid, ()) if s.kind is SinkKind.CUT}


def is_beside_trained(event: Graph, flow: Flow) -> bool:
    """Whether a method of the same object as this one's gives, in this run, what is back-propagated: it holds networks."""
    receiver = event.what.rpartition(".")[0]
    if not receiver or flow.record.trained_methods.get(receiver, set()) <= {event.what}:
        return False
    known = sorted(flow.record.unfollowed.get(event.site.key, ()))
    return not known or any(gives_a_graph(flow.runs, ref) for ref in known)


def runs_by_a_method(event: Graph, flow: Flow) -> bool:
    """Whether a method of a network may run it by another way than its forward (``agent.act(state)``)."""
    return is_method_of_module(event, flow) or is_method_of_evaluated(event, flow)


def is_method_of_evaluated(event: Graph, flow: Flow) -> bool:
    """Whether a method of a module in evaluation mode gives what only a tensor can be, and that goes through no module: what
    prepares a network's input does. What is given nothing has nothing to run on, but for what draws samples."""
    if event.training is not False or "." not in event.what or not seen_on(event, flow) & TENSOR_ONLY:
        return False
    if event.what.rpartition(".")[2] not in TORCH.words["draws"] and flow.source(event.site, event.site.node).endswith("()"):
        return False
    family = descendants(flow.record, event.gid)
    return not any(flow.record.graphs[gid].kind is GraphKind.FORWARD for gid in family)


def is_step_of_evaluated(event: Graph) -> bool:
    """Whether a module in evaluation mode is asked for a step by a name that Lightning gave to it, in a loop of the project's own:
    nothing but Lightning's loops switches grad mode off for it."""
    name = event.what.rpartition(".")[2]
    of_lightning = name.endswith("_step") and TORCH.hooks.get((TORCH.names["lightning-module"], name)) == "grad-off"
    return event.training is False and bool(event.parents) and of_lightning


def is_method_of_module(event: Graph, flow: Flow) -> bool:
    """Whether a method of a module gives what only a tensor can be: it runs the network by another way than its forward
    (``net.features(x)``). A module is what the function treats as one, and what only modules of the project have such a method of;
    what merely reads like a network is one where the function detaches the result."""
    receiver, _, name = event.what.rpartition(".")
    detached = is_detached_here(event, flow)
    if receiver in ("", "self") or not (detached or seen_on(event, flow) & TENSOR_ONLY):
        return False
    world = flow.runs.world
    namesakes = [ref for ref in world.project.methods_named(name) if ref != flow.record.root]
    may = [world.is_of_module(ref) for ref in namesakes]
    if may and not any(each is not False for each in may):
        return False  # an object that drives a network, which is judged inside
    if is_treated_as_module(receiver, name, flow):
        return True
    return detached and all(may) and (bool(may) or purpose.may_be_network(receiver))


def is_treated_as_module(text: str, name: str, flow: Flow) -> bool:
    """Whether what the function does with an object shows that it is a module: less will do where no class of the project has a
    method of this name, or a module has."""
    world = flow.runs.world
    words = world.evidence(flow.record.root).get(text, frozenset())
    if looks_like_module(words):
        return True
    if words & TRAINER_WORDS or not words & MODULE_WORDS:
        return False
    namesakes = world.project.methods_named(name)
    return not namesakes or any(map(world.is_of_module, namesakes))


def is_trained_by_callers(event: Graph, flow: Flow) -> bool:
    """Whether a caller back-propagates what it computes itself with the very object that it gives here."""
    if not event.what.isidentifier():
        return False
    given = flow.runs.world.project.objects_given(flow.record.root, event.what)
    return len(given) <= MAX_CALLERS and any(
        graph.what == text and graph.gid in record.trained
        for caller, text in given
        if BACKWARD & flow.runs.world.facts(caller).names
        for record in flow.runs.records(flow.runs.root_of(caller))
        for graph in record.graphs.values()
    )


BACKWARD = TORCH.words["back-propagates"]


def is_trained_beside(event: Graph, flow: Flow, alone: bool = False) -> bool:
    """Whether another call of the same object is back-propagated in this run; ``alone``: through nothing but that call. What is given
    a result that has a graph passes it on, with or without parameters of its own."""
    if flow.backwarded is None:
        flow.backwarded = {}
        for graph in flow.record.graphs.values():
            if graph.gid in flow.record.backwarded:
                flow.backwarded.setdefault(graph.what, set()).add(graph.gid)
    others = flow.backwarded.get(event.what, set()) - {event.gid}
    return any(not alone or not is_given_a_trained(flow.record.graphs[gid], flow) for gid in others)


def is_given_a_trained(event: Graph, flow: Flow) -> bool:
    """Whether a call is given what a call made that a backward goes through as well."""
    record = flow.record
    return any(gid in record.backwarded and record.graphs[gid].kind in MADE_KINDS for gid in event.parents)


def is_given_a_graph(event: Graph, flow: Flow) -> bool:
    """Whether a call is given what surely has a graph: it goes on in the result, be what is called a module or a function."""
    return any(flow.record.graphs[gid].kind in CERTAIN_KINDS for gid in flow.record.ancestors(event.parents))


MODULES_ALONE = MODULE_EVIDENCE - TORCH.methods.keys()
"""Methods that modules have, and no tensor."""
MODULE_WORDS = MODULES_ALONE | TORCH.words["moves-modules"]
TENSOR_ONLY = TORCH.words["tensor-evidence"] | {Seen.TORCH_OP}
"""What is done to a result that only a tensor can undergo."""


def written(words: Iterable[str]) -> frozenset[str]:
    """Attributes and methods of a tensor as sinks name them: ``.data``, ``.detach()``."""
    return frozenset(f".{word}" if word in TORCH.attributes else f".{word}()" for word in words)


DETACHES = written(TORCH.words["detaches"])
WITHOUT_GRAPH = DETACHES | {"no_grad"}
"""By what a result loses its graph where that is all that it is for."""

CLASS = re.compile(r"[A-Z]+[a-z]\w*")


def is_detached_here(event: Graph, flow: Flow) -> bool:
    """Whether the function itself detaches what it got. A helper that does so takes all kinds of values, and says nothing."""
    if TORCH.names["detach"] not in seen_on(event, flow):
        return False
    sinks = flow.record.sinks
    family = descendants(flow.record, event.gid)
    return any(s.how == ".detach()" and s.site.frame == event.site.frame for gid in family for s in sinks.get(gid, ()))


def is_function_by_its_place(what: str, flow: Flow) -> bool:
    """Whether what is called is a name that is imported, or one of ``self`` that no visible class assigns (a method of a class
    that is not visible), and does not read like a network's."""
    if purpose.may_be_network(what):
        return False
    world, root = flow.runs.world, flow.record.root
    if what.isidentifier():
        facts = world.facts(root)
        if what in facts.locals or what in {p.name for p in facts.params}:
            return False
        if is_imported(world, root.path, what):
            absolute = world.project.resolve(root.path, what, root.qualname)
            is_variable = absolute is not None and world.symbol(absolute) is None and world.project.is_inside(absolute)
            return not is_variable
        return world.project.assigned(root.path, what) is None
    owner, name = world.header(root).owner, what.removeprefix("self.")
    return bool(owner) and name != what and name.isidentifier() and not world.project.attr(ClassRef(root.path, owner), name)


def is_callable(what: str, flow: Flow) -> bool:
    """Whether what is called is a parameter of the root, or an attribute that holds one of its class's, that is annotated as a
    function, and no more; or for which every visible call gives a function that is no model's."""
    project, root = flow.runs.world.project, flow.record.root
    sources = [(root, what)]
    owner, name = flow.runs.world.header(root).owner, what.removeprefix("self.")
    if owner and name != what:
        held = project.attr(ClassRef(root.path, owner), name)
        if any(says_function(fact.annotation, cls.path, flow) for fact, cls in held):
            return True
        if held and all(is_plain_function(fact, cls, flow) for fact, cls in held):
            return True
        sources = [(FunctionRef(cls.path, f.method), f.value) for f, cls in held if f.kind is AttrKind.NAME and f.method]
    for ref, parameter in sources:
        params = [p for p in flow.runs.world.header(ref).params if p.name == parameter]
        if any(says_function(p.annotation, ref.path, flow) for p in params):
            return True
        given = project.functions_given(ref, parameter) if params else ()
        if given and all(flow.runs.world.is_of_module(each) is False for each in given):
            return True
    return False


def holds_a_lambda(what: str, flow: Flow) -> bool:
    """Whether a method of the class may assign a lambda to the attribute that is called, and calls nothing in lambdas that reads like
    a network."""
    world, held = flow.runs.world, flow.runs.world.assigned(flow.record.root, what)
    makers = [FunctionRef(cls.path, fact.method) for fact, cls in held if fact.kind is AttrKind.FUNCTION and fact.method]
    inside = [call.callee for ref in makers for call in world.facts(ref).calls if call.deferred]
    return bool(makers) and not any(purpose.may_be_network(each) or each.endswith(FORWARD_CALL) for each in inside)


FORWARD_CALL = f".{TORCH.names['forward']}"


def is_plain_function(fact: AttrFact, cls: ClassRef, flow: Flow) -> bool:
    """Whether an attribute is assigned a lambda or a function of the project that calls nothing but torch's functions and methods of
    tensors."""
    world = flow.runs.world
    if fact.kind is AttrKind.FUNCTION and fact.method:  # the calls in a lambda are those of the function around it
        ref = FunctionRef(cls.path, fact.method)
        return all(is_arithmetic(call, ref, world) for call in world.facts(ref).calls if call.deferred)
    absolute = world.project.resolve(cls.path, fact.value, fact.method) if fact.kind is AttrKind.NAME else None
    function = world.project.function(absolute) if absolute is not None else None
    if function is None or world.header(function).owner:
        return False
    return all(is_arithmetic(call, function, world) for call in world.facts(function).calls)


def is_arithmetic(call: CallFact, ref: FunctionRef, world: World) -> bool:
    """Whether a call in a function is one of torch's functions, or of a method that tensors have and modules do not."""
    called = world.project.resolve(ref.path, call.callee, ref.qualname)
    return is_torch_function(called) if called is not None else is_tensors_method(call.callee)


def is_tensors_method(callee: str) -> bool:
    """Whether a method is called that tensors have and modules do not."""
    receiver, _, name = callee.rpartition(".")
    return bool(receiver) and name in TORCH.methods and name not in TORCH.module_methods


def says_function(annotation: str, path: str, flow: Flow) -> bool:
    """Whether an annotation is `Callable`, or a name that the file gives to one (``Score = Callable[[Any], float]``)."""
    named = flow.runs.world.project.assigned(path, annotation) if annotation.isidentifier() else None
    return (named or annotation).removesuffix("[]").rpartition(".")[2] == "Callable"


def words_on(event: Graph, flow: Flow) -> frozenset[str]:
    """The methods that the function calls on what is called here, and every caller in sight on what it gives for it."""
    world, root = flow.runs.world, flow.record.root
    own = world.evidence(root).get(event.what, frozenset())
    return own | words_given(world, root, event.what) if event.what.isidentifier() else own


def seen_on(event: Graph, flow: Flow) -> set[str]:
    """What is done to the result, and to its items and fields."""
    if flow.opaque is None:
        flow.opaque = {}
        for graph in flow.record.graphs.values():
            if graph.kind is GraphKind.OPAQUE:
                flow.opaque.setdefault(graph.site, []).append(graph)
    seen = set(flow.record.evidence.get(event.gid, ()))
    for other in flow.opaque.get(event.site, ()):
        if other.what.startswith((event.what + "[", event.what + ".")):
            seen |= flow.record.evidence.get(other.gid, set())
    return seen
