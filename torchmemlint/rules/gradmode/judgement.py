"""Whether the graph of a forward is built for nothing, and how surely: used by every rule that reports one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchmemlint.findings import Confidence
from torchmemlint.index.arguments import argument_given
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules import doubts
from torchmemlint.rules.api import Flow, Silent, short
from torchmemlint.rules.doubts import Doubt, confidence_of, not_a_module
from torchmemlint.rules.gradmode.closures import called_by_others, returns_both
from torchmemlint.rules.gradmode.frozen_namesakes import frozen_elsewhere
from torchmemlint.rules.gradmode.kept_attributes import kept_by_module
from torchmemlint.rules.gradmode.module_evidence import (
    DETACHES,
    WITHOUT_GRAPH,
    ModuleEvidence,
    evidence_of,
    is_trained_beside,
    written,
)
from torchmemlint.rules.gradmode.phases import is_asked_without_grad, left_out_by_callers
from torchmemlint.rules.gradmode.standing import above, stands_here
from torchmemlint.rules.gradmode.wanted_graphs import (
    decided_elsewhere,
    guards_its_network,
    guards_others,
    is_asked_for,
    is_distribution,
    is_given_to_a_callback,
    is_loaded,
    is_missing,
    is_shape,
    may_be_given_gradients,
    may_be_trained_in_a_callee,
    needs_either,
    runs_elsewhere,
    takes_gradients,
)
from torchmemlint.rules.gradmode.wrappers import unseen_wrapper
from torchmemlint.rules.reach import guarded, is_part_of_tests, runs_another_framework
from torchmemlint.semantics import purpose
from torchmemlint.semantics.event_words import RecordFlag
from torchmemlint.semantics.grad_guards import is_called_by_what_is_handed_on, may_guard
from torchmemlint.semantics.graphs import CALLED_KINDS, Graph, GraphKind, Sink, SinkKind
from torchmemlint.semantics.optimized import is_held
from torchmemlint.semantics.parameters import given_frozen
from torchmemlint.semantics.runs import Fate, descendants
from torchmemlint.semantics.state import Mode
from torchmemlint.semantics.world import MODULE, World
from torchmemlint.torch_facts import TORCH


@dataclass(frozen=True, slots=True)
class Verdict:
    """A graph that nothing visible demands.

    fate      what becomes of it
    evaluated the module was put into evaluation mode before
    doubts    what is assumed
    """

    fate: Fate
    evaluated: bool
    doubts: tuple[Doubt, ...]


def meeting(cuts: Iterable[Sink], flow: Flow) -> str:
    """The place in the function where a graph is first cut off, of several that meet there the same (``torch.min(q1, q2).detach()``):
    one guard around what comes before is meant for all of them; "" where it is cut elsewhere."""
    own = [sink.site for sink in cuts if sink.kind is SinkKind.CUT and flow.own(sink.site)]
    return f"cut {min(site.node for site in own)}" if own else ""


def is_reported(event: Graph, flow: Flow) -> bool:
    """Whether a forward's graph is built for nothing, and that is not doubtful."""
    verdict = judge(event, flow)
    return isinstance(verdict, Verdict) and confidence_of(verdict.doubts) is not Confidence.LOW


def judge(event: Graph, flow: Flow) -> Verdict | Silent:
    """Whether nothing that is attached to a forward's graph is demanded by a backward, as far as the project shows."""
    if event.gid not in flow.judged:
        flow.judged[event.gid] = _judge(event, flow)
    found: Verdict | Silent = flow.judged[event.gid]
    return found


def is_constant(event: Graph, flow: Flow) -> bool:
    """Whether a network that the function does not train gives its training step a constant: its output, or a part of it, is
    detached there, and not only what another call makes of it."""
    record = flow.record
    if RecordFlag.BACKWARD not in record.flags or not flow.beside_backward(event) or is_trained_beside(event, flow):
        return False
    parts = [g for g in descendants(record, event.gid) if record.graphs[g].site.key == event.site.key]
    return any(s.how in DETACHES for g in parts for s in record.sinks.get(g, ()))


def when(event: Graph, flow: Flow) -> str:
    """In which phase there is nothing to train, where the same call is trained in another."""
    test = flow.training_test(event)[0]
    if test:
        return f" when `{short(test)}`"
    return " in a phase that does not train" if flow.trains_in_another_phase(event) else ""


def _judge(event: Graph, flow: Flow) -> Verdict | Silent:
    record = flow.record
    name = "" if record.root.qualname == MODULE else record.root.qualname
    silent = not_at_issue(event, flow)
    if silent is not None:
        return silent
    evidence = evidence_of(event, flow)
    if evidence is ModuleEvidence.NONE:
        return Silent("nothing shows that it is a module")
    if not stands_here(event, flow):
        return Silent("it runs in a function that is checked separately")
    here = flow.runs.fate_here(record, event.gid)
    evaluated = is_evaluated(event, flow)
    # What follows may need the callers, who are run for it: first what would rule the graph out whatever they do.
    ends_here = here.only_cut or here.never_read
    silent = open_here(event, flow, here, evaluated) or wants_graph(event, flow, ends_here)
    if silent is not None:
        return silent
    fate = here if ends_here else flow.runs.fate(record, event.gid, cuts_alone=not (evaluated or purpose.evaluates(name)))
    done = fate.only_cut or fate.never_read
    silent = is_demanded(event, flow, here, fate) or (None if done else may_be_demanded(event, flow, fate, evaluated))
    if silent is not None:
        return silent
    chosen = event.kind is GraphKind.OPAQUE and not (fate.cuts and all_detached(fate)) and decided_elsewhere(event, flow)
    if done and chosen:
        return Silent("the same call runs without grad elsewhere in the function")
    kept = kept_by_module(event, flow)
    if kept is None:
        return Silent("attributes that the module's forward sets may be back-propagated")
    assumed = [*doubts_of(event, flow, fate, evaluated, done), *kept, *called_by_others(event, flow, evaluated)]
    if here.kept and not fate.kept:
        assumed.append(doubts.READ_ELSEWHERE)
    if evidence is not ModuleEvidence.CERTAIN:
        assumed.append(not_a_module(short(event.what), int(evidence)))
    if is_asked_for(event, flow):
        assumed.append(doubts.ASKED_FOR)
    if guards_others(event, flow):
        assumed.append(doubts.OTHERS_GUARDED)
    if takes_gradients(event, flow, perhaps=True):
        assumed.append(doubts.TAKES_GRADIENTS)
    wrapper = unseen_wrapper(event, flow)
    if wrapper is not None:
        assumed.append(wrapper)
    given = left_out_by_callers(flow)
    if given:
        assumed.append(doubts.always_given(given))
    assumed += (*may_be_frozen(event, flow), *frozen_elsewhere(event, flow))
    if is_of_unknown_class(event) and may_guard(flow.runs.world, flow.frame(event.site).ref, event.what):
        assumed.append(doubts.NAMESAKE_GUARDS)
    if is_of_unknown_class(event) and purpose.words(event.what.rpartition(".")[2])[:1] == (TORCH.names["trains"],):
        assumed.append(doubts.TRAINS_ITSELF)
    if is_of_unknown_class(event) and event.training is None and purpose.is_helper(event.what.rpartition(".")[0]):
        assumed.append(doubts.named_as_helper(short(event.what)))
    if not assumed and may_guard_itself(event, flow):
        assumed.append(doubts.GUARDS_ITSELF)
    return Verdict(fate, evaluated, tuple(assumed))


def may_guard_itself(event: Graph, flow: Flow) -> bool:
    """Whether a method that no class of the project has is called, by a name for what is done without training (``net.sample(8)``)."""
    name = event.what.rpartition(".")[2]
    named = name.isidentifier() and (purpose.evaluates(name) or purpose.uses(name))
    return named and is_of_unknown_class(event) and not flow.runs.world.methods_named(name)


def is_of_unknown_class(event: Graph) -> bool:
    """Whether a method is called by its name, of an object of which no class is known."""
    return event.what.rpartition(".")[0] not in ("", "self") and event.cls is None


def may_be_frozen(event: Graph, flow: Flow) -> tuple[Doubt, ...]:
    """The doubt of a module that is frozen under a test of which nobody can see whether it holds where the module runs."""
    condition = event.frozen_if
    if condition is None or event.frozen_when_run is not None:
        return ()
    site = condition.site
    place = f"in `{short(condition.method)}`" if site is None else f"on line {flow.span(site).start.row}"
    return (doubts.may_be_frozen(short(event.what), short(condition.test), place, is_default(event, flow)),)


def is_default(event: Graph, flow: Flow) -> bool:
    """Whether the test under which a module is frozen holds by default: it is a parameter of the constructor that freezes it."""
    condition = event.frozen_if
    if condition is None or condition.site is not None:
        return False
    name = condition.test.removeprefix("not ")
    method = FunctionRef(flow.frame(event.site).ref.path, condition.method)
    if not flow.runs.world.project.is_function(method.path, "", method.qualname):
        return False
    params = flow.runs.world.header(method).params
    calls = flow.runs.world.project.callers(method).calls
    if any(argument_given(params[1:], name, each.call.args) is not None for each in calls):
        return False
    return {param.name: param.default for param in params}.get(name) == str(name == condition.test)


def open_here(event: Graph, flow: Flow, here: Fate, evaluated: bool) -> Silent | None:
    """What the function itself leaves open of the result, so that nothing is reported whatever its callers do."""
    beside = flow.beside_backward(event)
    ends_here = here.only_cut or here.never_read
    if not ends_here and not evaluated and (beside or needs_either(flow.record.root, flow)):
        return Silent("the result may be trained in the enclosing step or forward")
    if here.never_read and not (evaluated or is_unread(event, flow)):
        return Silent("the use of the result is unknown")
    if here.never_read and not (event.site.loops or beside or evaluated):
        return Silent("the result is unused, and the call runs once")
    if TORCH.names["gradient-flag"] in flow.record.evidence.get(event.gid, ()):
        return Silent("the function checks whether there is a graph")
    if any(key.endswith(f".{TORCH.names['gradient-flag']}") and not holds for key, holds in flow.record.assumptions):
        return Silent("this way through the function is for values that have no graph")
    return None


def is_demanded(event: Graph, flow: Flow, here: Fate, fate: Fate) -> Silent | None:
    """Why the graph is wanted, or is none, or is reported elsewhere, by all that becomes of the result."""
    if fate.trains:
        return Silent("a caller back-propagates the result")
    if here.escapes and fate.callers and not fate.escapes and is_called_from_outside(flow, fate):
        return Silent("only the callers know how the result is used; they are checked instead")
    if may_be_trained_in_a_callee(event, flow):
        return Silent("an optimizer steps here, and the function that gets the result may run the backward")
    if proves_no_graph(fate) and not drops_other_results(event, flow):
        return Silent("`numpy()` of the result would raise if it had a graph")
    if not flow.own(event.site) and trains_beside(event, flow, fate.only_cut):
        return Silent("another part of the same forward is trained")
    if is_kept_in_a_loss(event, flow):
        return Silent("a kept loss is also computed from it")
    return None


def not_at_issue(event: Graph, flow: Flow) -> Silent | None:
    """What the run itself says against a graph, or against one that is built for nothing."""
    record = flow.record
    if event.kind not in CALLED_KINDS:
        return Silent("no call created it")
    if event.frozen:
        return Silent("all parameters of the module are frozen and no argument has a graph")
    if event.frozen_when_run:
        return Silent("the module is frozen under the test under which it runs")
    if event.mode is Mode.OFF:
        return Silent("grad mode is off here")
    asked = is_asked_with_grad(event, flow)
    if event.mode is not Mode.ON and not asked and not (RecordFlag.BACKWARD in record.flags and flow.beside_backward(event)):
        return Silent("grad mode is unknown here")
    if event.gid in record.backwarded:
        return Silent("its graph is back-propagated")
    if is_decided_inside(event, flow):
        return Silent("the function disables grad mode in another phase")
    if is_trained_by_another_call(event, flow):
        return Silent("another call of the same closure is back-propagated")
    unclear = record.in_unknown_mode if event.kind is GraphKind.OPAQUE else ()
    if unclear and not record.ancestors(frozenset((event.gid,))).isdisjoint(unclear):
        return Silent("its input was computed in an unknown grad mode")
    root = record.root
    name = "" if root.qualname == MODULE else root.qualname
    callers = flow.runs.world.project.callers(root)
    if flow.runs.world.memoize(is_part_of_tests, root) or is_trial(event, flow, bool(callers.calls)):
        return Silent("it is part of a unit test")
    if (
        is_private(name)
        and all(caller.ref == root for caller in callers.calls)
        and not (callers.escapes or is_read(root, flow))
    ):
        return Silent("the function is private, and nothing visible calls it")
    if record.mode is Mode.MIXED and not asked and (record.assumptions or flow.runs.world.project.grad_mode(root).chosen):
        return Silent("callers choose grad mode by a flag, and may disable it for this phase")
    if record.assumptions and is_asked_without_grad(flow):
        return Silent("the callers that ask for this phase disable grad mode")
    if not flow.own(event.site) and flow.runs.world.memoize(runs_another_framework, flow.frame(event.site).ref.path):
        return Silent("it is a network of another framework")
    return None


def is_decided_inside(event: Graph, flow: Flow) -> bool:
    """Whether a function that the root calls runs the module with grad on in the phase that this run assumes of it, and guards other
    phases itself: what it assumes is not this caller's phase."""
    record = flow.record
    assumed = {int(key.partition(":")[0]) for key, _ in record.assumptions}
    inside = (assumed & above(record, event.site.frame)) - {0}
    return any(flow.runs.world.facts(record.frames[number].ref).names & GRAD_WORDS for number in inside)


def is_asked_with_grad(event: Graph, flow: Flow) -> bool:
    """Whether a caller that asks for the very phase of this run leaves grad mode on, whatever others do; in a function that leaves
    grad mode alone."""
    record, project = flow.record, flow.runs.world.project
    around = above(record, event.site.frame)
    for key, value in record.assumptions:
        frame, _, test = key.partition(":")
        if int(frame) not in around:
            continue
        ref = record.frames[int(frame)].ref
        if ref.qualname == MODULE or flow.runs.world.facts(ref).names & GRAD_WORDS:
            continue
        if project.asked_with_grad(ref, test if value else f"not {test}"):
            return True
    return False


GRAD_WORDS = TORCH.words["grad-words"]


def is_trained_by_another_call(event: Graph, flow: Flow) -> bool:
    """Whether the same statement of a closure gives, in another call of the closure, what is back-propagated."""
    if event.site.frame == 0 or not flow.own(event.site) or not is_trained_beside(event, flow):
        return False
    record, ref = flow.record, flow.frame(event.site).ref
    return any(
        other.site.node == event.site.node and other.site.frame != event.site.frame and flow.frame(other.site).ref == ref
        for gid in sorted((flow.backwarded or {}).get(event.what, ()))
        if (other := record.graphs[gid]).gid != event.gid
    )


def is_trial(event: Graph, flow: Flow, called: bool) -> bool:
    """Whether the root tries something out on data of its own: ``def test():``, ``def test_decoder():``, ``def test(self):``."""
    root = flow.record.root
    header = flow.runs.world.header(root)
    name = root.qualname.rpartition(".")[2]
    if len(header.params) > bool(header.owner) or root.qualname == MODULE:
        return False
    return (name == "test" and not called) or (name.startswith("test_") and not event.site.loops)


def wants_graph(event: Graph, flow: Flow, ends_here: bool) -> Silent | None:
    """Why the graph may be wanted without a visible backward, or not be built at all."""
    record, root = flow.record, flow.record.root
    if flow.watches_gradients(ends_here):
        return Silent("the function reads the graph or gradients")
    if flow.toggled(event):
        return Silent("Lightning may have frozen the network for this step")
    if flow.hooks_forwards() and all(sink.kind is SinkKind.DROPPED for sink in record.sinks.get(event.gid, ())):
        return Silent("hooks keep the result")
    if takes_gradients(event, flow):
        return Silent("the module computes gradients in its own forward")
    if may_be_given_gradients(event, flow):
        return Silent("a caller gives a function that computes gradients itself")
    if is_given_to_a_callback(event, flow):
        return Silent("grad mode is enabled for it, and a function that is not visible gets the result")
    if is_shape(event):
        return Silent("it returns a tensor's shape")
    if is_missing(event, flow):
        return Silent("its class has no such method")
    if is_distribution(event, flow):
        return Silent("it is a distribution, not a network")
    if runs_elsewhere(event, flow):
        return Silent("it may not be a torch network that records a graph")
    if event.site.handler >= 0 and decided_elsewhere(event, flow):
        return Silent("the call failed without grad, and needs it")
    if guards_its_network(event, flow):
        return Silent("its own forward disables grad mode")
    if not all(is_held(flow.runs.world, *frozen) for frozen in given_frozen(flow.runs.world, root, event.what)):
        return Silent("a caller may have frozen the module")
    owner = flow.runs.world.header(root).owner
    if owner and event.what.startswith("self.") and flow.runs.frozen_where_made(ClassRef(root.path, owner)):
        return Silent("the owner of the object keeps its parameters frozen")
    return None


def is_evaluated(event: Graph, flow: Flow) -> bool:
    """Whether the module was put into evaluation mode, or the phase is one that does not train: another trains the same call."""
    if event.training is False or flow.assumed_evaluation() or flow.trains_in_another_phase(event):
        return True
    flags = flow.record.flags
    return not flow.own(event.site) and RecordFlag.EVAL in flags and RecordFlag.TRAIN not in flags


def may_be_demanded(event: Graph, flow: Flow, fate: Fate, evaluated: bool) -> Silent | None:
    """Why a result that leaves what is visible may be trained there."""
    record, root = flow.record, flow.record.root
    name = "" if root.qualname == MODULE else root.qualname
    if event.training is True or decided_elsewhere(event, flow):
        return Silent("the module is in training mode, or the same call runs without grad elsewhere")
    if record.flags & {RecordFlag.INPUT_GRAD, RecordFlag.AUTOGRAD_GRAD}:
        return Silent("the function computes gradients of an input")
    phase, evaluated_here = flow.trains_in_another_phase(event), evaluated
    handed_on = fate.escapes and not phase and (not purpose.uses(name) or flow.root_is_module())
    if evaluated and RecordFlag.EVAL not in record.flags and handed_on:
        evaluated = flow.assumed_evaluation()  # another method called `eval()`; this one hands its result on
    if not evaluated and needs_either(root, flow):
        return Silent("the function is part of a forward, which runs in training and evaluation alike")
    if not phase and (not evaluated or fate.escapes) and flow.called_in_training(by_trainers=fate.escapes):
        return Silent("a caller computes a loss or trains")
    if record.mode is Mode.MIXED and RecordFlag.EVAL not in record.flags:
        return Silent("some callers disable grad mode, and the others may need the graph")
    if flow.beside_backward(event) and (fate.passed or not evaluated):
        return Silent("the result may be part of the same training step")
    if evaluated and (phase or not purpose.drives(name)):
        return None
    if is_loaded(event, flow, TORCH.names["loads-from-hub"]):
        return Silent("a predictor of another repository may disable grad mode itself")
    if fate.escapes and not is_detached(fate):
        return Silent("only its name suggests that no code outside trains the result")
    return None if purpose.evaluates(name) or not evaluated_here else Silent("not all uses of the result are visible")


def doubts_of(event: Graph, flow: Flow, fate: Fate, evaluated: bool, done: bool) -> Iterator[Doubt]:
    """What is assumed of callers and of the ways that the result goes."""
    record = flow.record
    name = "" if record.root.qualname == MODULE else record.root.qualname
    called = record.mode is not Mode.NO_CALLERS or flow.root_is_entry()
    if proves_no_graph(fate):
        yield doubts.OTHERS_WITHOUT
    if done:
        if is_called_by_what_is_handed_on(flow.runs.world, record.root):
            yield doubts.HANDED_ON_CALLER
        elif not called:
            yield guarded_piece(event, flow, evaluated)
        if record.mode is Mode.MIXED and RecordFlag.EVAL not in record.flags and not explicit(fate):
            assumed = flow.runs.world.project.grad_mode(record.root).assumed
            if assumed:
                yield doubts.MODE_NOT_SURE
            elif flow.root_is_module() or flow.hooks_forwards():  # what else is computed may be wanted with its graph
                yield doubts.GRAPH_WANTED_BY_SOME
        if fate.never_read and event.kind is GraphKind.OPAQUE:
            yield doubts.FOR_ITS_EFFECT
        if event.kind is GraphKind.OPAQUE and not evaluated and not explicit(fate) and not purpose.uses(name):
            yield doubts.NO_GRAPH
    elif not evaluated and not purpose.evaluates(name):
        yield doubts.PASSED_UNKNOWN if fate.passed else doubts.KEPT_UNKNOWN if fate.kept else doubts.LEFT_UNKNOWN
    elif fate.escapes and flow.trains_in_another_phase(event) and not any(map(purpose.says_phase, dict(record.assumptions))):
        yield doubts.HANDED_BACK
    elif fate.escapes:
        yield doubts.LEFT_UNKNOWN if returns_both(event, flow) else doubts.RETURNED
        if not called and guarded(event.site, flow) is doubts.FORWARD_GUARDED:
            yield doubts.FORWARD_GUARDED
    elif not called:
        yield guarded_piece(event, flow, evaluated)
    elif not evaluated:
        yield doubts.NOT_EVALUATED
    elif event.kind is not GraphKind.FORWARD:
        yield doubts.PASSED if fate.passed else doubts.KEPT


def guarded_piece(event: Graph, flow: Flow, evaluated: bool) -> Doubt:
    """The doubt of a function that nothing visible calls. It is likelier guarded where others use its file, it is no evaluation by
    itself, and it gives nothing else with a graph, which a caller may train."""
    found, project, record = guarded(event.site, flow), flow.runs.world.project, flow.record
    alone = evaluated or event.site.loops or RecordFlag.EVAL in record.flags
    others = (record.graphs[gid] for gid in record.returned - descendants(record, event.gid))
    trained = any(other.kind in CALLED_KINDS for other in others)
    if found is not doubts.GUARDED or alone or trained or project.callers(record.root).calls:
        return found
    return doubts.PIECE_GUARDED if project.is_imported_file(record.root.path) else found


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


def drops_other_results(event: Graph, flow: Flow) -> bool:
    """Whether a method of a network in evaluation mode gives several results (``action, _, value = agent.act(x)``): that one of them has
    no graph, as an action that is drawn or an index, says nothing of the others."""
    bound = NAMES.match(flow.lowered(event.site).statement(event.site.node)[1])
    return bound is not None and "," in bound[1] and is_of_unknown_class(event) and event.training is False


def is_detached(fate: Fate) -> bool:
    """Whether the result is detached somewhere, whatever else becomes of it."""
    return any(s.how in DETACHES for s in fate.cuts)


def all_detached(fate: Fate) -> bool:
    """Whether every cut is one that is written for the graph's sake; the best one's index may be taken of the value as well."""
    hows = {s.how for s in fate.cuts if s.kind is SinkKind.CUT}
    return hows <= WITHOUT_GRAPH | INDICES and not (hows and hows <= INDICES)


INDICES = written(TORCH.words["best-index"]) | {f"torch.{name}" for name in TORCH.words["best-index"]}
"""Ways to an index, as they are written."""


def explicit(fate: Fate) -> bool:
    """Whether the code itself says that the graph is not wanted: a detach, or a conversion that needs one."""
    return any(s.kind is SinkKind.CUT and s.how in EXPLICIT for s in fate.cuts)


EXPLICIT = WITHOUT_GRAPH | written(TORCH.words["reads-out"])


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


def is_unread(event: Graph, flow: Flow) -> bool:
    """Whether the result is dropped at once, or bound to names alone that nothing in the function reads."""
    if any(s.kind is SinkKind.DROPPED for s in flow.record.sinks.get(event.gid, ())):
        return True
    site = flow.own_site(event.site)
    bound = NAMES.match(flow.lowered(site).statement(site.node)[1])
    if bound is None:
        return False
    facts = flow.runs.world.facts(flow.record.root)
    read = {text.partition(".")[0] for text in (*facts.reads, *(call.callee for call in facts.calls))}
    read |= {arg.name.partition(".")[0] for call in facts.calls for arg in call.args}
    return read.isdisjoint(name.strip(" ()*") for name in bound[1].split(","))


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
