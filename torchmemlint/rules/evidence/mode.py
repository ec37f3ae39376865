"""Whether grad mode is on where it is called, by whose decision."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.candidate import Candidate, is_of_unknown_class
from torchmemlint.rules.evidence.cuts import explicit
from torchmemlint.rules.evidence.phases import is_asked_without_grad, left_out_by_callers
from torchmemlint.rules.evidence.standing import above
from torchmemlint.rules.evidence.wanted_graphs import decided_elsewhere, guards_its_network, guards_others, is_asked_for
from torchmemlint.rules.evidence.wrappers import unseen_wrapper
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.rules.program import SWITCHES
from torchmemlint.rules.reach import guarded
from torchmemlint.semantics.mode import is_called_by_what_is_handed_on, may_guard, purpose
from torchmemlint.semantics.roots import descendants
from torchmemlint.semantics.state import CALLED_KINDS, MODULE, Graph, GraphKind, Mode, RecordFlag


def in_the_run(candidate: Candidate) -> Iterator[Fact]:
    """What the run itself says of it."""
    event, flow, record = candidate.event, candidate.flow, candidate.record
    if event.mode is Mode.OFF:
        yield Fact("grad-off", "grad mode is off here")
    asked = is_asked_with_grad(event, flow)
    if event.mode is not Mode.ON and not asked and not (RecordFlag.BACKWARD in record.flags and flow.beside_backward(event)):
        yield Fact("mode-unknown", "grad mode is unknown here", Known.SOME_CALLERS)
    unclear = record.in_unknown_mode if event.kind is GraphKind.OPAQUE else ()
    if unclear and not record.ancestors(frozenset((event.gid,))).isdisjoint(unclear):
        yield Fact("input-mode-unknown", "its input was computed in an unknown grad mode", Known.ASSUMED)
    if record.mode is Mode.MIXED and not asked and (record.assumptions or candidate.project.grad_mode(candidate.root).chosen):
        yield Fact(
            "mode-by-a-flag", "callers choose grad mode by a flag, and may disable it for this phase", Known.SOME_CALLERS
        )
    if record.assumptions and is_asked_without_grad(flow):
        yield Fact("phase-guarded-by-callers", "the callers that ask for this phase disable grad mode", Known.ALL_CALLERS)


def inside(candidate: Candidate) -> Iterator[Fact]:
    """Whether what is called decides its own grad mode."""
    event, flow = candidate.event, candidate.flow
    if event.site.handler >= 0 and decided_elsewhere(event, flow):
        yield Fact("retried-with-grad", "the call failed without grad, and needs it")
    if guards_its_network(event, flow):
        yield Fact("guards-itself", "its own forward disables grad mode")


def assumed_of(candidate: Candidate) -> Iterator[Fact]:
    """What is assumed of grad mode, beside what is of callers."""
    event, flow = candidate.event, candidate.flow
    if is_asked_for(event, flow):
        yield assumed.ASKED_FOR
    if guards_others(event, flow):
        yield assumed.OTHERS_GUARDED
    wrapper = unseen_wrapper(event, flow)
    if wrapper is not None:
        yield wrapper
    given = left_out_by_callers(flow)
    if given:
        yield assumed.always_given(given)
    if is_of_unknown_class(event) and may_guard(candidate.world, flow.frame(event.site).ref, event.what):
        yield assumed.NAMESAKE_GUARDS


def of_callers(candidate: Candidate) -> Iterator[Fact]:
    """What is assumed of the grad mode of the function's callers."""
    record, flow, fate = candidate.record, candidate.flow, candidate.fate
    if candidate.done:
        if is_called_by_what_is_handed_on(candidate.world, candidate.root):
            yield assumed.HANDED_ON_CALLER
        elif not candidate.called:
            yield guarded_piece(candidate)
        if record.mode is Mode.MIXED and RecordFlag.EVAL not in record.flags and not explicit(fate):
            if candidate.project.grad_mode(candidate.root).assumed:
                yield assumed.MODE_NOT_SURE
            elif flow.root_is_module() or flow.hooks_forwards():  # what else is computed may be wanted with its graph
                yield assumed.GRAPH_WANTED_BY_SOME
    elif not candidate.called and (candidate.evaluated or purpose.evaluates(candidate.name)):
        if not fate.escapes:
            yield guarded_piece(candidate)
        elif guarded(candidate.event.site, flow) is assumed.FORWARD_GUARDED and not is_returned_in_a_phase(candidate):
            yield assumed.FORWARD_GUARDED


def is_returned_in_a_phase(candidate: Candidate) -> bool:
    """Whether the function hands the result out in a phase of which only another one's training says that it does not train."""
    says = any(map(purpose.says_phase, dict(candidate.record.assumptions)))
    return candidate.fate.escapes and candidate.phase and not says


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
        if ref.qualname == MODULE or flow.runs.world.facts(ref).names & SWITCHES:
            continue
        if project.asked_with_grad(ref, test if value else f"not {test}"):
            return True
    return False


def guarded_piece(candidate: Candidate) -> Fact:
    """The doubt of a function that nothing visible calls. It is likelier guarded where others use its file, it is no evaluation by
    itself, and it gives nothing else with a graph, which a caller may train."""
    event, flow, project, record = candidate.event, candidate.flow, candidate.project, candidate.record
    found = guarded(event.site, flow)
    alone = candidate.evaluated or event.site.loops or RecordFlag.EVAL in record.flags
    others = (record.graphs[gid] for gid in record.returned - descendants(record, event.gid))
    trained = any(other.kind in CALLED_KINDS for other in others)
    if found is not assumed.GUARDED or alone or trained or project.callers(record.root).calls:
        return found
    return assumed.PIECE_GUARDED if project.is_imported_file(record.root.path) else found


def may_guard_itself(event: Graph, flow: Flow) -> bool:
    """Whether a method that no class of the project has is called, by a name for what is done without training (``net.sample(8)``)."""
    name = event.what.rpartition(".")[2]
    named = name.isidentifier() and (purpose.evaluates(name) or purpose.uses(name))
    return named and is_of_unknown_class(event) and not flow.runs.world.project.methods_named(name)
