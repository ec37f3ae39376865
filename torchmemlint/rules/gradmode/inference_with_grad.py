"""A model is run for its result alone, but with grad mode on.

## What it does
Reports the call of a model that builds an autograd graph which nothing uses: after `model.eval()`, in a function that
evaluates, predicts, samples or acts, or wherever every result is only detached, turned into numbers or compared. The
finding stands at the first such call of a function, or the first whose results are kept, and speaks for all of them.

Grad mode is followed through `with` blocks, decorators, `set_grad_enabled`, the project's own wrappers, hooks that a
framework runs without grad (`validation_step`), and the function's callers; a function, closure or lambda that is given to what
runs it (a pool, a process, the `map` of a data set, a command line) starts in the mode of that call. It is silent where all callers switch grad
mode off, or some do and the function neither calls `eval()` nor detaches or reads its result, in a method that
overrides one of a base class out of sight, where all parameters are frozen (`requires_grad_(False)`, Lightning's
`freeze()`), for modules that
have none, in the hooks of a module with a `training_step` that nothing in sight drives, for networks of JAX,
TensorFlow, OpenVINO and ONNX Runtime, for what `torch.jit.load` gives unless it is treated as a module (`eval()`), where
nodes of the graph are read (`grad_fn`), in
code that needs gradients of inputs (attacks, saliency) or hooks into gradients, for modules whose own forward takes
gradients (forces from an energy), and where `numpy()` of what is not detached would raise with grad mode on. A function without a caller in sight is taken to run with grad mode on, with
confidence medium; it is silent about one that hands its result out with the graph where nothing but its name
(`predict`, `infer`) says that it evaluates, and no detach in sight.

`eval()` changes dropout and batch normalisation. It does not switch grad mode off.

## What it costs
- Results are kept with their graphs (error): one whole graph per step. Measured on the CPU with a 6-layer transformer
  encoder: 19.0 MB per step, until memory runs out; `.cpu()` changes nothing about it.
- Results are dropped or detached (warning): no growth, but a higher peak, since each graph lives until its result is
  rebound. Measured: a peak of 39.3 MB where the result stays bound to a name through the next forward, 20.3 MB where
  it does not, 2.1 MB under `no_grad`.
- All parameters frozen and no input that requires grad: no cost at all, and no finding.

## Example
```python
import torch


def predict(model, loader):
    model.eval()
    outputs = []
    for inputs in loader:
        outputs.append(model(inputs))
    return torch.cat(outputs)
```

Use instead:

```python
import torch


@torch.no_grad()
def predict(model, loader):
    model.eval()
    outputs = []
    for inputs in loader:
        outputs.append(model(inputs))
    return torch.cat(outputs)
```

## Fix
Puts `@torch.no_grad()` above the function where nothing in it trains; elsewhere `with torch.no_grad():` around the
statement, where that stands alone on one row. A forward that another phase of the function trains is put under
`with torch.set_grad_enabled(…):` with the test of that phase (`optimizer is not None`), or is left alone. Unsafe: a caller out
of sight may back-propagate what the function returns. `torch.inference_mode()` needs the same memory (measured); its
tensors may not be used in training later.

## When to ignore
The result is back-propagated by code that the analysis cannot see. Where a wrapper of another package switches grad
mode off, name it in `no-grad-wrappers` instead.

## References
- Autograd mechanics, locally disabling gradient computation, evaluation mode:
  https://docs.pytorch.org/docs/stable/notes/autograd.html
- torch.no_grad: https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html
- measured: torch 2.13.0 on the CPU, see docs/costs.md; figures on CUDA are owed
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.findings import Confidence, Edit, Fix, FlowStep, Position, Safety, Severity, Span
from torchmemlint.index.layout import is_test
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule, short
from torchmemlint.semantics import purpose
from torchmemlint.semantics.events import CALLED_KINDS, CERTAIN_KINDS, Graph, GraphKind, SinkKind, Store
from torchmemlint.semantics.grad_guards import guards_what_it_runs, is_imported
from torchmemlint.semantics.roots import reaches
from torchmemlint.semantics.runs import MAX_CALLERS, Fate, descendants
from torchmemlint.semantics.state import Mode
from torchmemlint.semantics.world import MODULE
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML201",
    name="inference-with-grad",
    summary="A model is run for its result alone, but with grad mode on",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    triggers=frozenset(
        {"eval", "detach", "item", "numpy", "argmax", "cpu", "max", "tolist", "topk", "append", "softmax", "sigmoid"}
    ),
    experiment="peak",
)
EVENT = Graph

KEPT_COST = "every step's whole autograd graph is kept with the stored results: one graph's saved tensors per step"
HELP = "run it under `torch.no_grad()` (or `torch.inference_mode()`); `eval()` does not switch grad mode off"
HELP_BOTH = "run it under `torch.set_grad_enabled(…)` with the test of the phase; `eval()` does not switch grad mode off"
HELP_ASKED = "remove `{name}`: it switches grad mode on here, also where the caller has switched it off"
LISTED_COST = (
    "builds an autograd graph that nothing uses in each turn of the comprehension, whose list keeps all of them until they are "
    "detached: the peak grows with the number of turns"
)
PEAK_COST = "builds an autograd graph that nothing uses: up to one extra graph at peak"
LOOP_COST = f"{PEAK_COST}, and two at a time where the result stays bound to a name through the next turn"


def check(event: Graph, flow: Flow) -> Iterator[Draft]:
    why = reason(event, flow)
    if why is None:
        return
    text, confidence = why
    hanging = descendants(flow.record, event.gid)
    kept = [
        e
        for e in flow.record.events.values()
        if isinstance(e, Store)
        and not e.constant_key
        and hanging & e.graphs
        and e.loop in event.site.loops  # else each turn keeps the one graph that was made before
        and flow.own(e.site)
    ]
    elsewhere = [] if kept or event.gid not in flow.record.returned else kept_by_callers(event, flow)
    site = event.site if flow.own(event.site) else flow.own_call(event.site)[0]
    yield Draft(
        flow.at(
            RULE,
            site,
            f"`{short(flow.callee(site))}(…)` runs with grad mode on{when(event, flow)}, {text}",
            severity=Severity.ERROR if kept or elsewhere else Severity.WARNING,
            confidence=confidence,
            label="builds an autograd graph that is never used",
            cost=KEPT_COST if kept or elsewhere else cost_at_peak(event, flow),
            help=help_for(event, flow),
            flow=[flow.step(e.site, f"kept with its graph in `{short(e.place)}`") for e in kept[:3]] + elsewhere[:3],
            fix=decorate(event, flow),
        ),
        frozenset((event.gid,)),
        event.site.handler,
        event.gid,
    )


def cost_at_peak(event: Graph, flow: Flow) -> str:
    """What a graph costs that no result keeps beyond its step."""
    if is_listed(event, flow):
        return LISTED_COST
    return LOOP_COST if event.site.loops and not is_cut_at_once(event, flow) else PEAK_COST


def is_cut_at_once(event: Graph, flow: Flow) -> bool:
    """Whether the statement of the forward cuts the graph off again, so that no name holds it when the next turn begins."""
    record = flow.record
    sinks = [s for g in descendants(record, event.gid) for s in record.sinks.get(g, ())]
    if not sinks or any(s.kind is not SinkKind.CUT or s.site.frame != event.site.frame for s in sinks):
        return False
    lowered = flow.lowered(event.site)
    return {lowered.enclosing(s.site.node) for s in sinks} == {lowered.enclosing(event.site.node)}


def is_listed(event: Graph, flow: Flow) -> bool:
    """Whether a list comprehension collects what this forward gives with its graph: nothing cuts it inside of a turn."""
    record = flow.record
    info = record.loops.get(event.site.loops[-1]) if event.site.loops else None
    if info is None or not info.listed:
        return False
    cuts = [s for g in descendants(record, event.gid) for s in record.sinks.get(g, ())]
    return bool(cuts) and not any(event.site.loops[-1] in s.site.loops for s in cuts)


def when(event: Graph, flow: Flow) -> str:
    """In which phase there is nothing to train, where the same call is trained in another."""
    test = flow.training_test(event)[0]
    return f" when `{short(test)}`" if test else ""


def help_for(event: Graph, flow: Flow) -> str:
    if flow.trains_in_another_phase(event):
        return HELP_BOTH
    world, root = flow.runs.world, flow.record.root
    facts = world.facts(root)
    for use in facts.decorators:
        if facts.qualname == root.qualname and world.project.decorator_effect(root.path, facts.parent, use) == "on":
            return HELP_ASKED.format(name=f"@{use.callee}{'()' if use.called else ''}")
    return HELP


def kept_by_callers(event: Graph, flow: Flow) -> list[FlowStep]:
    """Where callers that were run store what this forward gives, turn after turn, with its graph."""
    root = flow.record.root
    callers = flow.runs.world.project.callers(root).calls
    steps: list[FlowStep] = []
    for caller in sorted({flow.runs.root_of(c.ref) for c in callers} - {root}) if len(callers) <= MAX_CALLERS else ():
        for record in flow.runs.records(caller):
            there = Flow(flow.runs, record, caller.path)
            twins = {
                g.gid: g.site.loops
                for g in record.graphs.values()
                if (g.site.node, g.kind, g.mode) == (event.site.node, event.kind, Mode.ON) and there.frame(g.site).ref == root
            }
            steps += [
                there.step(e.site, f"kept with its graph in `{short(e.place)}`")
                for e in record.events.values()
                if isinstance(e, Store)
                and not e.constant_key
                and not record.is_let_go(e)
                and there.own(e.site)
                and any(e.loop in loops for gid, loops in twins.items() if gid in e.graphs and e.loop is not None)
            ]
    return list(dict.fromkeys(steps))


def reason(event: Graph, flow: Flow) -> tuple[str, Confidence] | None:
    """Why this forward needs no graph, and how sure that is; None where it may need one."""
    record = flow.record
    if event.kind not in CALLED_KINDS or event.frozen:
        return None
    if event.mode is not Mode.ON:
        return None
    if record.flags & {"input-grad", "autograd-grad"} or event.gid in record.backwarded:
        return None
    if not flow.own(event.site) and not through_own_forward(event, flow) and not through_method(event, flow):
        return None
    if flow.watches_gradients() or flow.toggled(event):
        return None
    root = record.root
    name = "" if root.qualname == MODULE else root.qualname
    callers = flow.runs.world.project.callers(root)
    named_test = name.rpartition(".")[2] == "test" and not flow.runs.world.facts(root).params
    if is_test(root.path, name) or (named_test and not callers.calls):
        return None
    if is_private(name) and not callers.calls and not (callers.escapes or is_read(root, flow)):
        return None  # no public API, and nobody in sight calls it
    if record.assumptions and record.mode is Mode.MIXED:
        return None  # some callers switch grad mode off: those, it may be, that ask for this phase
    if record.mode is Mode.MIXED and flow.runs.world.project.grad_mode(root).chosen:
        return None  # callers leave it to a flag: who asks for the graph there wants it
    if flow.hooks_forwards() and all(sink.kind is SinkKind.DROPPED for sink in record.sinks.get(event.gid, ())):
        return None  # what the hooks keep is the result
    evaluated = event.training is False or flow.assumed_evaluation()
    if not flow.own(event.site) and through_method(event, flow):
        evaluated = evaluated or ("eval()" in record.flags and "train()" not in record.flags)
    trains_here = flow.beside_backward(event)
    # What follows needs the callers, who are run for it: first what would rule the graph out whatever they do.
    if not evaluated and (trains_here or needs_either(root, flow)):
        return None
    if event.kind is GraphKind.OPAQUE and not may_be_module(event, flow):
        return None
    here = flow.runs.fate_here(record, event.gid)
    if (here.kept or here.passed) and not evaluated and not purpose.evaluates(name):
        return None
    if takes_gradients(event, flow) or runs_elsewhere(event, flow):
        return None
    if event.site.handler >= 0 and decided_elsewhere(event, flow):
        return None  # what was tried without grad needs it after all
    if event.cls is not None and guards_its_network(event, flow):
        return None
    cuts_alone = not evaluated and not purpose.evaluates(name)
    fate = flow.runs.fate(record, event.gid, cuts_alone=cuts_alone)
    if fate.trains or (cuts_alone and not fate.only_cut):
        return None
    if event.kind is GraphKind.OPAQUE and not likely_module(event, flow, fate):
        return None
    if not flow.own(event.site) and trains_beside(event, flow, fate.only_cut):
        return None
    owner = flow.runs.world.facts(root).owner
    if owner and event.what.startswith("self.") and flow.runs.frozen_where_made(ClassRef(root.path, owner)):
        return None
    thrown_away = fate.only_cut and all_detached(fate)
    if proves_no_graph(fate) or (not thrown_away and (event.training is True or decided_elsewhere(event, flow))):
        return None
    if evaluated and "eval()" not in record.flags and not fate.only_cut and fate.escapes:
        if not purpose.uses(name) or flow.root_is_module():
            evaluated = flow.assumed_evaluation()  # another method called `eval()`; this one hands its result on
    wanted = purpose.uses(name) and not purpose.trains(name)
    sure = event.kind is GraphKind.FORWARD and not fate.escapes and (record.mode is not Mode.NO_CALLERS or is_entry(name))
    confidence = Confidence.HIGH if sure else Confidence.MEDIUM
    if not evaluated and needs_either(root, flow):
        return None
    if not fate.only_cut and (not evaluated or fate.escapes) and flow.called_in_training(by_trainers=fate.escapes):
        return None
    if record.mode is Mode.MIXED and "eval()" not in record.flags and not explicit(fate):
        if not fate.only_cut or flow.runs.world.project.grad_mode(root).assumed:
            return None  # some callers switch grad mode off, and nothing says that the others exist, or want no graph
    if fate.only_cut:
        text = "but every result is detached, turned into numbers or compared"
        if evaluated and not trains_here:
            return text, confidence
        if trains_here or (purpose.trains(name) and not all_detached(fate)):
            return None
        # Of what is certainly a network, nothing is left that could be trained, whatever the function is called.
        return (text, confidence) if wanted or explicit(fate) or event.kind is GraphKind.FORWARD else None
    if trains_here and (fate.passed or not evaluated):
        return None
    if fate.passed and not evaluated and not purpose.evaluates(name):
        return None
    if evaluated and not purpose.trains(name):
        return "after `eval()`, and nothing computed from it is back-propagated in sight", confidence
    if is_loaded(event, flow, "torch.hub.load"):
        return None  # a predictor of another repository, it may be, that guards itself
    if fate.escapes and not is_detached(fate):
        return None  # its name alone says that nobody out of sight trains what it hands out
    if purpose.evaluates(name):
        return f"in `{short(name)}`, and nothing computed from it is back-propagated in sight", Confidence.MEDIUM
    return None


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


TENSOR_ONLY = frozenset(
    {
        "detach", "argmax", "softmax", "sigmoid", "log_softmax", "unsqueeze", "squeeze", "cpu", "item", "backward", "cuda", "topk",
        "permute", "view", "exp", "torch-op", "shape",
    }
)  # fmt: skip
"""What is done to a result that only a tensor can undergo (arrays have ``sum``, ``max``, ``reshape`` as well)."""


def may_be_module(event: Graph, flow: Flow) -> bool:
    """Whether ``likely_module`` can say yes, whatever becomes of the result."""
    if not event.direct or flow.is_part(event) or purpose.is_helper(event.what) or is_callable(event.what, flow):
        return False
    seen = seen_on(event, flow)
    if "array" in seen or ("maybe-array" in seen and not words_on(event, flow) & MODULE_WORDS):
        return False  # a session of another library, which returns arrays
    if seen & (MODULES_ALONE | {"named_parameters"}):
        return False  # it gives a module, and runs none (``self._wrap_model(model)``)
    if is_function_by_its_place(event.what, flow) and not words_on(event, flow) & MODULE_WORDS:
        return False
    return (
        purpose.may_be_network(event.what)
        or bool(words_on(event, flow) & MODULE_WORDS)
        or is_detached_here(event, flow)
        or flow.trains_in_another_phase(event)
    )


def is_detached_here(event: Graph, flow: Flow) -> bool:
    """Whether the function itself detaches what it got. A helper that does so takes all kinds of values, and says nothing."""
    if "detach" not in seen_on(event, flow):
        return False
    sinks = flow.record.sinks
    family = descendants(flow.record, event.gid)
    return any(s.how == ".detach()" and s.site.frame == event.site.frame for gid in family for s in sinks.get(gid, ()))


def is_function_by_its_place(what: str, flow: Flow) -> bool:
    """Whether what is called is a name that is imported, or one of ``self`` that no class in sight assigns (a method of a class
    out of sight), and does not read like a network's."""
    if purpose.may_be_network(what):
        return False
    world, root = flow.runs.world, flow.record.root
    if what.isidentifier():
        return what not in {p.name for p in world.facts(root).params} and is_imported(world, root.path, what)
    owner, name = world.facts(root).owner, what.removeprefix("self.")
    return bool(owner) and name != what and name.isidentifier() and not world.project.attr(ClassRef(root.path, owner), name)


def is_callable(what: str, flow: Flow) -> bool:
    """Whether what is called is a parameter of the root, or an attribute that holds one of its class's, that is annotated as a
    function, and no more; or for which every call in sight gives a function that is no model's."""
    project, root = flow.runs.world.project, flow.record.root
    sources = [(root, what)]
    owner, name = flow.runs.world.facts(root).owner, what.removeprefix("self.")
    if owner and name != what:
        held = project.attr(ClassRef(root.path, owner), name)
        if any(says_function(fact.annotation, cls.path, flow) for fact, cls in held):
            return True
        sources = [(FunctionRef(cls.path, f.method), f.value) for f, cls in held if f.kind == "name" and f.method]
    for ref, parameter in sources:
        params = [p for p in flow.runs.world.facts(ref).params if p.name == parameter]
        if any(says_function(p.annotation, ref.path, flow) for p in params):
            return True
        given = project.functions_given(ref, parameter) if params else ()
        if given and not any(runs_model(each, flow) for each in given):
            return True
    return False


def says_function(annotation: str, path: str, flow: Flow) -> bool:
    """Whether an annotation is `Callable`, or a name that the file gives to one (``Score = Callable[[Any], float]``)."""
    named = flow.runs.world.project.assigned(path, annotation) if annotation.isidentifier() else None
    return (named or annotation).removesuffix("[]").rpartition(".")[2] == "Callable"


def runs_model(ref: FunctionRef, flow: Flow) -> bool:
    """Whether a function is a method of a module, or of a class that may be one."""
    owner = flow.runs.world.facts(ref).owner
    return bool(owner) and flow.runs.world.is_module_class(ClassRef(ref.path, owner)) is not False


def words_on(event: Graph, flow: Flow) -> frozenset[str]:
    """The methods that the function calls on what is called here."""
    return flow.runs.world.evidence(flow.record.root).get(event.what, frozenset())


def seen_on(event: Graph, flow: Flow) -> set[str]:
    """What is done to the result, and to its items and fields."""
    seen = set(flow.record.evidence.get(event.gid, ()))
    for other in flow.record.graphs.values():
        if (
            other.kind is GraphKind.OPAQUE
            and other.site == event.site
            and other.what.startswith((event.what + "[", event.what + "."))
        ):
            seen |= flow.record.evidence.get(other.gid, set())
    return seen


def likely_module(event: Graph, flow: Flow, fate: Fate) -> bool:
    """Whether an object that is called, and of which nothing else is known, is a module; asked where ``may_be_module``.

    Evidence: what else is called on it; its result is trained in another phase of the same function; its own result is
    detached. A name that reads like a network's counts only together with what is done to the result and with the purpose
    of the function.
    """
    if flow.trains_in_another_phase(event):
        return True
    words = words_on(event, flow)
    seen = seen_on(event, flow)
    cuts = {s.how for s in fate.cuts}
    if any(other.what.startswith(event.what + ".") and event.gid in other.parents for other in flow.record.graphs.values()):
        cuts -= {".data", "no_grad"}  # an object with fields of its own: `data` is one of them
    wanted = purpose.uses(flow.record.root.qualname) or fate.only_cut
    if wanted and (
        words & MODULE_WORDS
        or is_detached_here(event, flow)
        or (cuts & {".data", ".detach()"} and purpose.may_be_network(event.what))
    ):
        return True
    seen |= {"torch-op" for how in cuts if how.startswith("torch.")}
    suspicious = purpose.may_be_network(event.what)
    if suspicious and event.training is False:
        return True
    return (
        suspicious
        and bool(seen & TENSOR_ONLY or "no_grad" in cuts)
        and (purpose.uses(flow.record.root.qualname) or "no_grad" in cuts)
    )


MODULES_ALONE = TORCH.words["modules-alone"]
"""Methods that modules have, and no tensor."""
MODULE_WORDS = MODULES_ALONE | {"cuda", "half"}


def through_own_forward(event: Graph, flow: Flow) -> bool:
    """Whether the module runs inside a ``forward`` of this very object, inlined into the function that wants its result. A
    ``forward`` of a class that is no module is a function like any other: the finding stands there."""
    if flow.frame(event.site).depth != 1:
        return False
    site, callee = flow.own_call(event.site)
    if callee.qualname.rpartition(".")[2] not in ("forward", "__call__") or not flow.root_is_module():
        return False
    # Where the call itself makes a graph, that one is judged.
    return not any(g.kind is GraphKind.FORWARD and g.site.key == site.key for g in flow.record.graphs.values())


def trains_beside(event: Graph, flow: Flow, only_cut: bool) -> bool:
    """Whether the call of the root by which this module runs runs another one, or this one again, whose result is trained, or is
    handed out with its graph where this one's is cut: both are of one forward, as of a discriminator that sees two inputs."""
    site, _ = flow.own_call(event.site)
    others = [g for g in flow.record.graphs.values() if g.kind == event.kind and g.gid != event.gid and not flow.own(g.site)]
    fates = [flow.runs.fate(flow.record, other.gid) for other in others if flow.own_call(other.site)[0].key == site.key]
    return any(fate.trains or (only_cut and fate.escapes) for fate in fates)


def through_method(event: Graph, flow: Flow) -> bool:
    """Whether the module runs inside a method of another module that is part of its own forward (``net.forward_masks(x)``): it is
    run in training and evaluation alike, so that the finding stands with who calls it."""
    site, callee = flow.own_call(event.site)
    world = flow.runs.world
    owner = world.facts(callee).owner
    last = callee.qualname.rpartition(".")[2]
    if not owner or not FORWARDS.match(last):
        return False
    if any(g.kind is GraphKind.FORWARD and g.site.key == site.key for g in flow.record.graphs.values()):
        return False
    around = world.facts(flow.record.root).owner
    inherited = world.project.mro(ClassRef(flow.record.root.path, around)) if around else ()
    cls = ClassRef(callee.path, owner)
    return bool(world.is_module_class(cls)) and cls not in inherited


FORWARDS = re.compile(r"_?forward_\w+|forward")


def proves_no_graph(fate: Fate) -> bool:
    """Whether a result is turned into an array without a detach: that raises where the result has a graph, so it has none. Where
    it is detached as well, the array may be of that, unless it is known to be of another part of the result."""
    if is_detached(fate):
        return fate.raises
    return any(s.how == ".numpy()" or s.how.startswith("numpy.") for s in fate.cuts)


def is_detached(fate: Fate) -> bool:
    """Whether the result is detached somewhere, whatever else becomes of it."""
    return any(s.how in (".detach()", ".data") for s in fate.cuts)


def decided_elsewhere(event: Graph, flow: Flow) -> bool:
    """Whether the author chose: the same callee runs under ``no_grad`` on another path of the function, or the result is a
    distribution whose ``log_prob`` or ``entropy`` leaves the function, as a loss needs them."""
    record = flow.record
    if any(g.what == event.what and flow.own(g.site) for g in record.forwards.values()):
        return True
    seen = record.evidence.get(event.gid, set())
    return bool(seen & {"log_prob", "rsample", "called"}) or (event.gid in record.returned and "entropy" in seen)


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
        return made is None or made in ("torch.nn.Module", "torch.jit.ScriptModule")

    if not any(inside(graph) for graph in record.graphs.values()) and event.cls is not None:
        return guards_what_it_runs(flow.runs.world, event.cls)  # its forward was not followed: the function is a long one
    if not any(inside(graph) for graph in record.forwards.values()):
        return False
    return all(is_given(graph) for graph in record.graphs.values() if graph.kind in CERTAIN_KINDS and inside(graph))


def all_detached(fate: Fate) -> bool:
    """Whether every cut is one that is written for the graph's sake; the best one's index may be taken of the value as well."""
    hows = {s.how for s in fate.cuts if s.kind is SinkKind.CUT}
    return hows <= {".detach()", ".data", "no_grad"} | INDICES and not (hows and hows <= INDICES)


INDICES = frozenset({".argmax()", ".argmin()", "torch.argmax", "torch.argmin"})
"""Ways to an index, as they are written."""


def explicit(fate: Fate) -> bool:
    """Whether the code itself says that the graph is not wanted: a detach, or a conversion that needs one."""
    return any(
        s.kind is SinkKind.CUT and s.how in (".detach()", ".data", ".item()", ".tolist()", ".numpy()", "no_grad")
        for s in fate.cuts
    )


def is_private(name: str) -> bool:
    """Whether a function, or a class that it is a method of, is named for its module's own use."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def is_read(root: FunctionRef, flow: Flow) -> bool:
    """Whether a class of the same file keeps the root as a value (``self.loss = self._quantile_loss``): it is called under another
    name."""
    last = root.qualname.rpartition(".")[2]
    classes = flow.runs.world.project.module(root.path).classes
    return any(fact.kind == "name" and fact.value in (last, f"self.{last}") for cls in classes for fact in cls.attrs)


def is_entry(name: str) -> bool:
    return name.rpartition(".")[2] in ("main", "")


def needs_either(root: FunctionRef, flow: Flow) -> bool:
    """Whether the function is part of a module's own forward, which runs in training and evaluation alike: one of the methods that
    stand for it, or one that nothing else in sight calls."""
    last = root.qualname.rpartition(".")[2]
    if last in ("training_step", "compute_loss", "loss", "__init__"):
        return True
    if not flow.root_is_module():
        return False
    if last in ("forward", "__call__"):
        return True
    if purpose.uses(last):
        return False
    if FORWARDS.fullmatch(last):
        return True
    owner = flow.runs.world.facts(root).owner
    own = {FunctionRef(root.path, f"{owner}.{name}") for name in ("forward", "__call__")}
    callers = {caller.ref for caller in flow.runs.world.project.callers(root).calls}
    return bool(callers) and callers <= own


def decorate(event: Graph, flow: Flow) -> Fix | None:
    """``@torch.no_grad()`` above the function, where nothing in it trains and a decorator reaches its body. A forward that another
    phase trains keeps its graph there."""
    record = flow.record
    root = record.root
    if flow.trains_in_another_phase(event):
        test = flow.training_test(event)[1]
        names = {p.name for p in flow.runs.world.facts(root).params} | {"bool", "not", "is", "None", "True", "False"}
        if not flow.own(event.site) or not test or not set(ROOTS.findall(STRINGS.sub("", test))) <= names:
            return None
        call = f"set_grad_enabled({test})"
        return flow.under_no_grad(event.site, "Switch grad mode on for training alone, in this statement", call)
    evaluates = purpose.uses(root.qualname) or "eval()" in record.flags
    others = [
        g
        for g in record.graphs.values()
        if g.gid != event.gid and (g.kind is GraphKind.FORWARD or g.direct) and flow.own(g.site)
    ]
    fates = [flow.runs.fate(record, other.gid) for other in others]
    trained = any(fate.trains or (fate.escapes and not evaluates) for fate in fates)
    guards = flow.runs.world.facts(root).names & GUARDS  # what the author left out of the block may need a graph
    wants = bool(guards) and any(g.mode is Mode.ON for g in others if g.kind is GraphKind.OPAQUE)
    apart = trained or wants or hands_on_another_graph(event, flow) or asks_for_gradients(flow)
    if root.qualname == MODULE or "backward" in record.flags or record.assumptions or apart:
        return flow.under_no_grad(event.site, "Switch grad mode off for the statement") if flow.own(event.site) else None
    world = flow.runs.world
    site = event.site if flow.own(event.site) else flow.own_call(event.site)[0]
    inside = flow.frame(site).ref
    facts = world.facts(inside)
    if inside != root and (inside not in record.handed or facts.qualname != inside.qualname):
        return None  # a closure that is called here or is a hook, or a lambda, above which no decorator can stand
    if facts.is_async or world.facts(root).names & {"enable_grad", "set_grad_enabled"}:
        return None
    torch_name, needed = flow.torch_name(root.path, facts.first_row)
    if torch_name is None:
        return None
    line = world.lines(root.path)[facts.row - 1]
    indent = line[: len(line) - len(line.lstrip())]
    newline = line[len(line.rstrip("\r\n")) :] or "\n"
    start = Position(facts.row, len(indent) + 1)
    text = f"@{torch_name}.no_grad(){newline}{indent}"
    return Fix("Switch grad mode off for the function", Safety.UNSAFE, (Edit(Span(start, start), text),), needed)


ROOTS = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
"""The names in a test that something must bind."""
STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")


def hands_on_another_graph(event: Graph, flow: Flow) -> bool:
    """Whether the function's result hangs on what it was given, and on no forward of its own: the caller may want that graph."""
    graphs = [flow.record.graphs[g] for g in flow.record.returned]
    return any(g.kind is GraphKind.PARAM for g in graphs) and not any(g.kind in CALLED_KINDS for g in graphs)


def asks_for_gradients(flow: Flow) -> bool:
    """Whether the function calls something of the project that takes gradients: a decorator would reach that as well."""
    world, root = flow.runs.world, flow.record.root
    called = world.facts(root).calls
    if reaches(world, root, GRADIENTS) or any(ATTACKS.intersection(purpose.words(call.callee)) for call in called):
        return True
    names = {call.callee.rpartition(".")[2] for call in world.facts(root).calls if call.callee.startswith("self.")}
    named = {name: world.methods_named(name) for name in names}
    return any(world.facts(ref).names & GRADIENTS for refs in named.values() if len(refs) <= MAX_NAMESAKES for ref in refs)


ATTACKS = frozenset({"attack", "adversary", "perturb", "saliency"})
"""Words of callables that take gradients of a model's inputs."""
GUARDS = TORCH.words["grad-guards"]
GRADIENTS = frozenset({"autograd", "requires_grad_", "backward"})
"""Words of code that takes gradients."""
MAX_NAMESAKES = 8
"""Methods of one name that are looked at: a name that many have says nothing."""
