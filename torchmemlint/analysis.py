"""One file of a project → its findings."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from torchmemlint import rules
from torchmemlint.errors import TOO_LARGE, SourceError, TooLargeError, UnreadError
from torchmemlint.files.quoting import quoted
from torchmemlint.findings import Confidence, Finding
from torchmemlint.index.layout import is_test
from torchmemlint.index.project import FunctionRef
from torchmemlint.rules.api import Draft, Flow
from torchmemlint.rules.reach import is_of_another_framework
from torchmemlint.rules.root_cause import one_per_cause
from torchmemlint.semantics.mode import purpose, root_choice
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import UNBOUNDED, RunLimit, World
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import HookEffect

if TYPE_CHECKING:
    from torchmemlint.index.facts import FunctionFacts
    from torchmemlint.index.project import FunctionRef, Project
    from torchmemlint.index.query_log import Query, QueryTrace
    from torchmemlint.project.config import Settings
    from torchmemlint.semantics.roots import Runs


@dataclass(slots=True)
class Analysis:
    """What one file's analysis gave: findings, those that they stand for (``also``), notes for ``-v``, a traceback for each crash of
    ours, and the queries that all of it rests on."""

    findings: list[Finding] = field(default_factory=list)
    also: dict[Finding, tuple[Finding, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    queries: set[Query] = field(default_factory=set)

    def add(self, found: OfFunction) -> None:
        self.findings += found.findings
        self.also |= dict(found.also)


@dataclass(frozen=True, slots=True)
class OfFunction:
    """What the analysis of one outermost function gave: findings, those that they stand for, notes, the steps that it took, and
    those for which values were followed for fixes."""

    findings: tuple[Finding, ...]
    also: tuple[tuple[Finding, tuple[Finding, ...]], ...]
    notes: tuple[str, ...]
    steps: int
    tracked: int


class Memory(Protocol):
    """Results of functions from one check of a file to the next (``incremental.functions``)."""

    def known(self, ref: FunctionRef, /) -> OfFunction | None: ...
    def last_result(self, ref: FunctionRef, /) -> OfFunction | None: ...
    def store(self, ref: FunctionRef, result: OfFunction, trace: QueryTrace, /) -> None: ...


BACKWARD = TORCH.words["back-propagates"] | {"empty_cache"}
OF_INFERENCE = TORCH.words["of-inference"]
AS_AN_ARRAY = TORCH.words["as-array"]
"""The words of ``net(x).data.numpy()``, which is a detach."""
AskRule = Callable[[Any, object, object], Iterable[Any]]
"""As ``ask_rule``."""


def make_runs(project: Project, settings: Settings, read: Callable[[str], str]) -> Runs:
    """The engine over a project; make it once per process and pass it to every ``analyze_module``."""
    return Runs(World(project, settings, read))


def training_names(project: Project, path: str) -> frozenset[str]:
    """Last names of the file's functions that back-propagate: what calls one of them in a loop has steps."""
    return frozenset(
        facts.qualname.rpartition(".")[2]
        for facts in project.module(path).functions
        if facts.qualname != "<module>" and facts.names & TORCH.words["back-propagates"]
    )


def is_candidate(
    runs: Runs,
    ref: FunctionRef,
    facts: FunctionFacts,
    checks: Sequence[ModuleType],
    trainers: frozenset[str],
    enough: frozenset[str],
) -> bool:
    """Whether an outermost function is worth running as a root: its words may make one of the rules report. ``enough`` are the
    words that do by themselves."""
    words = facts.names
    if words & enough:
        return True
    if facts.qualname == "<module>":
        said = words & (BACKWARD | OF_INFERENCE | WITHOUT_GRAPH)
        if said and not (said <= NO_GRAD and root_choice.stands_above_functions(runs.world, ref.path, said)):
            return True
        return may_waste_graphs(runs, ref, facts)
    if words & BACKWARD or runs.world.hook(ref) in (HookEffect.BACKWARD_RETURN, HookEffect.EVALUATION):
        return True
    if words & WITHOUT_GRAPH:
        # Under an effective decorator there is no graph worth mentioning, nor where a constructor changes weights.
        plain = root_choice.is_off_by_decorator(runs.world, ref, WITHOUT_GRAPH) or (
            facts.qualname.endswith(".__init__")
            and not words & (WITHOUT_GRAPH - NO_GRAD)
            and not root_choice.may_misuse(runs.world, ref, NO_GRAD)
        )
        if not plain or may_infer(runs, ref, facts, checks):
            return True
    by_name = purpose.uses(facts.qualname) and not is_test(ref.path, facts.qualname)
    as_array = words >= AS_AN_ARRAY and root_choice.reads_data(runs.world, ref)
    if (by_name or words & OF_INFERENCE or as_array) and may_infer(runs, ref, facts, checks):
        return True
    for call in facts.calls:
        receiver, _, name = call.callee.rpartition(".")
        if name in trainers and receiver in ("", "self") and call.loops:
            return True
    if root_choice.trains_in_a_loop(runs.world, ref):
        return True
    if words & WIDE_EXCEPTIONS and any("out of memory" in line for line in runs.world.lines(ref.path)):
        return True
    return may_waste_graphs(runs, ref, facts)


def may_waste_graphs(runs: Runs, ref: FunctionRef, facts: FunctionFacts) -> bool:
    """Whether a function with no word of a mistake may run a network for nothing but its result; the file's own statements only in
    a loop: what they run once costs little."""
    if facts.qualname == "<module>" and not any(call.loops for call in facts.calls):
        return False
    return root_choice.may_waste_graphs(runs.world, ref)


def may_infer(runs: Runs, ref: FunctionRef, facts: FunctionFacts, checks: Sequence[ModuleType]) -> bool:
    """Whether a function that only its name, or a word of inference, makes interesting can have a finding: it has a word of a
    rule that is not about graphs, or of one that says itself that it may have something to say, it runs a model with grad mode on, or something that it calls
    back-propagates."""
    world = runs.world
    triggered = [m for m in checks if facts.names & m.RULE.triggers]
    # What a function loads may go into a model in a function that it calls.
    in_callees = root_choice.BACKWARD | {"load_state_dict"} if "load" in facts.names else root_choice.BACKWARD
    return (
        any(m.RULE.root_words for m in triggered)
        or any(m.may_find(ref, runs) for m in triggered if hasattr(m, "may_find"))
        or root_choice.may_build_graphs(world, ref)
        or root_choice.reaches(world, ref, in_callees)
    )


NO_GRAD = TORCH.words["grad-guards"]
WIDE_EXCEPTIONS = {name.rpartition(".")[2] for name in TORCH.words["wide-exceptions"]}
WITHOUT_GRAPH = TORCH.words["grad-words"] | TORCH.words["memory-words"]


def analyze_module(
    project: Project,
    path: str,
    settings: Settings,
    runs: Runs | None = None,
    ask: AskRule | None = None,
    memory: Memory | None = None,
    report_early: Callable[[Analysis], None] | None = None,
) -> Analysis:
    """The findings of one file, unsorted. ``runs`` shares what earlier files made the engine learn; ``ask`` stands in for
    ``ask_rule``; ``memory`` has results of functions that still hold. ``report_early`` hears what is found once the functions whose
    own text changed were run, before those are that depend on them."""
    from torchmemlint.index.query_log import QueryTrace, queries_and_notes

    assert runs is not None
    analysis = Analysis()
    trace = project.query_log.current = QueryTrace()
    if is_of_another_framework(project, path):
        analysis.queries, analysis.notes = queries_and_notes(trace)
        return analysis
    codes = frozenset(settings.codes)
    trace.queries.add(("text", path))
    roots = [*roots_of(project, path, runs, checks_for(codes, beside=True))]
    one = _OneFunction(runs, codes, checks_for(codes), ask or ask_rule, trace, memory)
    if memory is not None and report_early is not None:
        first = one.changed_first(roots, memory)
        if first is not None:
            report_early(first)
    steps = 0
    runs.world.following.left = MAX_TRACKED
    for number, ref in enumerate(roots):
        if steps > MAX_IN_FILE:
            project.query_log.note(f"{path}: {ref.qualname}: {TOO_LARGE}")
            continue
        found = memory.known(ref) if memory is not None else None
        if found is not None:
            trace.notes.extend(found.notes)
            runs.world.following.left -= found.tracked
        else:
            found = one.run(ref, analysis)
        if found is not None:
            analysis.add(found)
            steps += found.steps + (ONE_MORE if number >= MANY else 0)
    analysis.queries, analysis.notes = queries_and_notes(trace)
    return analysis


@dataclass(frozen=True, slots=True)
class _OneFunction:
    """How the functions of a file are run, one at a time; what each rests on goes into ``trace``."""

    runs: Runs
    codes: frozenset[str]
    checks: Sequence[Any]
    ask: AskRule
    trace: QueryTrace
    memory: Memory | None

    def run(self, ref: FunctionRef, analysis: Analysis) -> OfFunction | None:
        """What a function gives; None where it makes us fail, which goes into ``analysis``."""
        from torchmemlint.index.query_log import QueryTrace, queries_and_notes

        runs, query_log = self.runs, self.runs.world.query_log
        runs.world.go_on()
        own, left = QueryTrace(), runs.world.following.left
        self.trace.used.add(own)
        query_log.current = own
        try:
            drafts, walked = bounded_drafts_of(runs, ref, self.checks, self.ask)
            kept = [d for d in one_per_cause(drafts) if d.finding.code in self.codes]
            findings, also = tuple(d.finding for d in kept), tuple((d.finding, d.also) for d in kept if d.also)
            taken = runs.steps.get(ref, 0) + walked + (STEPS_TO_LOCATE if drafts else 0)
            runs.forget()  # of hundreds of functions the records would fill the memory
        except UnreadError:
            raise
        except Exception:  # the one function is lost, the run goes on
            analysis.crashes.append(f"{quoted(ref.path)}: {ref.qualname}: {traceback.format_exc()}")
            return None
        finally:
            query_log.current = self.trace
        found = OfFunction(findings, also, (), taken, left - runs.world.following.left)
        if self.memory is not None:
            self.memory.store(ref, replace(found, notes=tuple(queries_and_notes(own)[1])), own)
        return found

    def changed_first(self, roots: Sequence[FunctionRef], memory: Memory) -> Analysis | None:
        """Runs the functions whose own text changed. What is found then, with what those that depend on them gave before; None where
        nothing does."""
        first = Analysis()
        changed, waiting = [], False
        for ref in roots:
            found = memory.known(ref)
            if found is None:
                found = memory.last_result(ref)
                waiting |= found is not None
            if found is None:
                changed.append(ref)
            else:
                first.add(found)
        for ref in changed if waiting else ():
            self.runs.world.following.left = MAX_TRACKED
            found = self.run(ref, first)
            if found is not None:
                first.add(found)
        return first if waiting else None


def checks_for(codes: frozenset[str], beside: bool = False):  # type: ignore[no-untyped-def]
    """The modules of the rules that are asked where these codes are selected, or ``always``. With ``beside``
    those whose words choose the functions that are looked at."""
    codes = rules.looked_at_for(codes) if beside else codes

    return [m for m in rules.modules() if hasattr(m, "check") and (m.RULE.code in codes or m.RULE.always)]


def roots_of(project: Project, path: str, runs: Runs, checks) -> Iterator[FunctionRef]:  # type: ignore[no-untyped-def]
    """The outermost functions of a file, and its own statements, that are worth a run: rules are asked of these alone."""
    trainers = training_names(project, path)
    choosers = [m.is_root for m in checks if hasattr(m, "is_root")]
    enough = frozenset[str]().union(*[m.RULE.root_words for m in checks])
    seen: set[FunctionRef] = set()
    for facts in project.module(path).functions:
        ref = FunctionRef(path, facts.qualname)
        if facts.parent or ref in seen:  # what is defined again goes by one name
            continue
        if is_candidate(runs, ref, facts, checks, trainers, enough) or any(wanted(facts, ref, runs) for wanted in choosers):
            seen.add(ref)
            yield ref


def ask_rule(module, event, flow):  # type: ignore[no-untyped-def]
    """What a rule's file says of an event."""
    return module.check(event, flow)


MAX_IN_FILE = 15_000_000
"""Steps that the runs over the functions of one file, and the walks for the rules, may take; the functions that follow are not
analysed."""
STEPS_TO_LOCATE = 20_000
"""Steps that are counted for a function with a finding: libcst reads it, and what it calls, in milliseconds."""
MANY = 1_000
"""Functions of a file that are looked at for no more than their own steps; no file of 51 packages and 185 repositories defines more
than 410."""
ONE_MORE = 10_000
"""Steps that are counted for each function beyond these: what it starts with, and what is asked of its callers, takes milliseconds."""
MAX_WALKED = 4_000_000
"""Steps that the rules, asked about one root, may go from graph to graph, in its records and its callers'."""
MAX_TRACKED = 2_000_000
"""Steps that values are followed for the fixes of one file; the findings that follow have none, and say so."""
MAX_ASKED = 2_000_000_000
"""Events and graphs that the rules may look at, over all events of a root: each may look through the whole record for each."""


def bounded_drafts_of(runs: Runs, ref, checks, ask):  # type: ignore[no-untyped-def]
    """``drafts_of``, and the steps of the walks for it; no drafts where these are too many, or libcst would take too much memory
    to read what a finding stands in."""
    meter = runs.world.asking
    meter.left = MAX_WALKED
    try:
        drafts = drafts_of(runs, ref, checks, ask)
        return drafts, MAX_WALKED - meter.left
    except (RunLimit, TooLargeError):
        runs.world.query_log.note(f"{ref.path}: {ref.qualname}: {TOO_LARGE}")
        return [], MAX_WALKED - max(0, meter.left)
    finally:
        meter.left = UNBOUNDED


def drafts_of(runs: Runs, ref, checks, ask):  # type: ignore[no-untyped-def]
    """Every draft of the rules over one root's records, the same place reported once."""
    seen: dict[tuple[object, ...], Draft] = {}
    asked: dict[type, list[object]] = {}
    records = runs.records(ref)
    steps = 0
    for record in records:
        events = Counter(map(type, record.events.values())) + Counter(map(type, record.graphs.values()))
        for kind in events:
            if kind not in asked:
                asked[kind] = [module for module in checks if issubclass(kind, module.EVENT)]
        steps += record.weight() * sum(count * len(asked[kind]) for kind, count in events.items())
    if steps > MAX_ASKED:
        runs.world.query_log.note(f"{ref.path}: {ref.qualname}: {TOO_LARGE}")
        return []
    for record in records:
        flow = Flow(runs, record, ref.path)
        for event in [*record.events.values(), *sorted(record.graphs.values(), key=lambda g: g.gid)]:
            for module in asked[type(event)]:
                try:
                    for draft in ask(module, event, flow):
                        if isinstance(draft, Draft):
                            key = (draft.finding.code, draft.finding.span, draft.finding.path)
                            if key not in seen or seen[key].finding.confidence is Confidence.LOW:
                                seen[key] = draft
                except TooLargeError:
                    raise
                except SourceError as error:  # the place that a finding would show has no source that libcst can read
                    runs.world.query_log.note(f"{quoted(ref.path)}: {ref.qualname}: not reported: {error}")
    return list(seen.values())
