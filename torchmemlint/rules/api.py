"""What a rule sees: events through a ``Flow``, from which it makes the ``Draft`` of a finding.

A rule is one file: a docstring with fixed headings (the page), a ``RULE`` constant, and functions from an event to findings.
It keeps no state, sees no tree, and imports no other rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torchmemlint.findings import Finding, Fix, FlowStep, Severity, Span
from torchmemlint.index.project import FunctionRef
from torchmemlint.index.queries.contents import MAX_INSIDE
from torchmemlint.lower.syntax import gates_of
from torchmemlint.lower.written import short as short
from torchmemlint.rules.card import About
from torchmemlint.rules.card import Rule as Rule
from torchmemlint.rules.edits import Edits
from torchmemlint.rules.edits import NoFix as NoFix
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.program import facts_of
from torchmemlint.rules.scorecard import confidence_of, probability, unless_of
from torchmemlint.semantics.dataflow import Written, uses_of, written
from torchmemlint.semantics.identity import says_any
from torchmemlint.semantics.mode import Reason, family, purpose, why_not_run
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import (
    MODULE,
    Backward,
    CallEffect,
    Frame,
    Graph,
    Record,
    RecordFlag,
    Seen,
    Site,
    World,
    memoized,
    shows_no_tensor,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName, HookEffect

TENSOR_WORDS = (frozenset(TORCH.methods) | {Seen.TENSOR}) - TORCH.words["not-tensors-alone"]
"""Methods that only tensors have (not arrays, strings, lists, modules), and what the engine says of annotated tensors."""

GRAPH_NODES = TORCH.words["graph-nodes"]
"""Ways to the nodes of a graph, and from one to the next."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A finding, with what is needed to report one root cause once.

    graphs   the graphs that it is about; handler, the exception handler around it
    part     the part of the function that one fix would cover (empty: all of it)
    loops    the loops around it
    also     the findings of the same cause in other loops, for which it stands
    apart    it explains no other finding, though others of its rule may
    cause    those of one rule with the same cause are one finding of the function, at the first of the costliest
    """

    finding: Finding
    graphs: frozenset[int] = frozenset()
    handler: int = -1
    part: tuple[object, ...] = ()
    loops: tuple[tuple[int, int], ...] = ()
    also: tuple[Finding, ...] = ()
    apart: bool = False
    cause: str = ""


def is_legacy(target: tuple[int, int] | None) -> bool:
    """Whether the project declares a torch in which ``volatile`` still worked and ``no_grad`` did not exist
    (https://pytorch.org/blog/pytorch-0_4_0-migration-guide/)."""
    return target is not None and target < (0, 4)


@dataclass(slots=True)
class Flow:
    """What a rule may ask beside the event itself: the record it is part of, spans, names, and what callers do."""

    runs: Runs
    record: Record
    path: str
    severities: dict[str, Severity] = field(default_factory=dict)
    guards: int = 0
    """How often it was asked whether a guard around one statement is safe: each answer follows all of the function."""
    judged: dict[int, Any] = field(default_factory=dict)
    """What ``gradmode.judgement`` found of a graph: several rules ask."""
    opaque: dict[Site, list[Graph]] | None = None
    """What calls of invisible code gave, by site, once that was asked for; the next four are such tables, too: what is asked of each
    graph must not look at all of them."""
    backwarded: dict[str, set[int]] | None = None
    """What is called → those of its graphs that may reach a backward."""
    own_and_trained: tuple[list[Graph], set[int]] | None = None
    """The root's own calls of what may be a module, and which of them are, or may be, demanded (``inference_with_grad``)."""
    weighed: list[tuple[Finding, tuple[Fact, ...]]] = field(default_factory=list)
    """What each finding of this run rests on, for ``trace``."""
    proofs: dict[tuple[tuple[int, int], str], tuple[Fact, ...]] | None = None
    """By what a fix of some rows, for a call of one text, is proved safe, or is not (``gradmode.proof``)."""
    _own: dict[int, bool] = field(default_factory=dict)
    _inside: dict[tuple[int, int], list[Graph]] | None = None

    def why_not_run(self, site: Site) -> Reason | None:
        """Why nothing but tests runs the root, or nothing can come to a site; None where something may."""
        world = self.runs.world
        places = [(world.outermost(frame.ref), node) for frame, node in self.way_out(site)]
        return why_not_run(world, self.record.root, reversed(places))

    def way_out(self, site: Site) -> Iterator[tuple[Frame, int]]:
        """A place, and the calls by which the root came to it, the innermost first: each a node in its frame."""
        frame, node = self.frame(site), site.node
        while node >= 0:
            yield frame, node
            if frame.parent < 0:
                return
            frame, node = self.record.frames[frame.parent], frame.call

    # --- where ------------------------------------------------------------------------------------------------------

    def frame(self, site: Site) -> Frame:
        return self.record.frames[site.frame]

    def own(self, site: Site) -> bool:
        """Whether the site is in the root function itself or in one of its closures (not in an inlined callee)."""
        known = self._own.get(site.frame)
        if known is None:
            ref, root = self.frame(site).ref, self.record.root
            below = root.qualname != MODULE and ref.qualname.startswith(root.qualname + ".")
            known = self._own[site.frame] = ref.path == root.path and (ref == root or below)
        return known

    def own_call(self, site: Site) -> tuple[Site, FunctionRef]:
        """The root's call through which an inlined callee's site was reached, and the function that was called."""
        frame = self.frame(site)
        while frame.parent >= 0:
            above = self.record.frames[frame.parent]
            if self.own(Site(above.number, -1)):
                return Site(above.number, frame.call, site.loops, site.guards, site.handler), frame.ref
            frame = above
        return site, frame.ref

    def own_site(self, site: Site) -> Site:
        """The site, or the root's call through which it was reached."""
        return site if self.own(site) else self.own_call(site)[0]

    def made_inside(self, call: Site) -> list[Graph]:
        """The graphs that are made inside a call of the root's, by the functions of the project that it runs."""
        if self._inside is None:
            self._inside = {}
            for graph in self.record.graphs.values():
                if not self.own(graph.site):
                    self._inside.setdefault(self.own_call(graph.site)[0].key, []).append(graph)
        return self._inside.get(call.key, [])

    def lowered(self, site: Site):  # type: ignore[no-untyped-def]
        ref = self.frame(site).ref
        world = self.runs.world
        return world.placed(ref.path, world.outermost(ref).qualname)

    def span(self, site: Site, node: int | None = None) -> Span:
        return self.lowered(site).span(site.node if node is None else node)  # type: ignore[no-any-return]

    def source(self, site: Site, node: int) -> str:
        return self.lowered(site).source(node)  # type: ignore[no-any-return]

    def literal(self, site: Site, node: int) -> object:
        """The value of an expression that is a literal; None for any other."""
        try:
            return ast.literal_eval(self.source(site, node).strip())
        except (SyntaxError, ValueError):
            return None

    def step(self, site: Site, message: str) -> FlowStep:
        return FlowStep(self.frame(site).ref.path, self.span(site), message)

    def step_of(self, graph: Graph, message: str) -> FlowStep | None:
        return self.step(graph.site, message) if graph.site.node >= 0 else None

    def own_cap(self, event: CallEffect) -> bool:
        """Whether a cap stands in no loop, or is set for each device in turn: the loop's variable says for which."""
        if not event.site.loops:
            return True
        info = self.record.loops.get(event.site.loops[-1])
        device = next((node for name, node in event.nodes if name in ("1", TORCH.names["place"])), -1)
        if info is None or device < 0:
            return False
        return bool(info.targets & set(re.findall(r"\w+", self.source(event.site, device))))

    def has(self, major: int, minor: int) -> bool:
        """Whether every torch that the project supports has what came with a version; true where the project does not say."""
        target = self.runs.world.settings.target_torch
        return target is None or target >= (major, minor)

    def evidence(self, about: About, facts: Iterable[Fact]) -> tuple[Fact, ...]:
        """These facts, and what the program around them shows."""
        return (*facts, *facts_of(self.runs, self.record, about))

    @property
    def edits(self) -> Edits:
        """Fixes at the record's sites."""
        return Edits(self.runs.world, self.record)

    # --- what -------------------------------------------------------------------------------------------------------

    def at(
        self,
        rule: Rule,
        site: Site,
        message: str,
        *,
        node: int | None = None,
        severity: Severity | None = None,
        doubts: Iterable[Fact] = (),
        label: str = "",
        cost: str = "",
        help: str = "",
        flow: Iterable[FlowStep | None] = (),
        fix: Fix | NoFix | None = None,
    ) -> Finding:
        """A finding at a site (at another node of the same frame when ``node`` is given), as sure as its ``doubts`` leave it."""
        evidence = self.evidence(rule.about, doubts)
        chance = probability(rule.code, evidence)
        if isinstance(fix, NoFix):
            help, fix = f"{help}; there is no automatic fix{fix and ': '}{fix}", None
        if is_legacy(self.runs.world.settings.target_torch):
            severity, help = Severity.NOTE, f"written for torch before 0.4, which has no `no_grad`: {help}"
        elif (severity or rule.severity) is not Severity.NOTE and (why := self.why_not_run(site)):
            severity, cost = Severity.NOTE, with_reason(cost, why)
        lowered = self.lowered(site)
        where = site.node if node is None else node
        span = lowered.span(where)
        if lowered.enclosing(where) == where:
            span = lowered.header_span(where)
        statement_span, statement = lowered.statement(where)
        ref = self.frame(site).ref
        rows = set(range(statement_span.start.row, statement_span.end.row + 1))
        function = ""
        if ref.qualname != MODULE:
            function = ref.qualname
            facts = self.runs.world.facts(self.runs.world.outermost(ref))
            rows |= set(range(facts.row, facts.header_end_row + 1))
        found = Finding(
            code=rule.code,
            name=rule.name,
            severity=severity or rule.severity,
            confidence=confidence_of(chance),
            message=message,
            path=ref.path,
            span=span,
            label=label,
            cost=cost,
            help=help,
            unless=unless_of(evidence),
            function=function,
            statement=statement,
            noqa_rows=frozenset(rows),
            noqa_row=statement_span.end.row,
            flow=tuple(s for s in flow if s is not None),
            fix=fix,
            evidence=tuple(sorted({(fact.name, fact.known_by.value) for fact in evidence})),
            probability=round(chance, 4),
        )
        self.weighed.append((found, evidence))
        return found

    # --- names --------------------------------------------------------------------------------------------------------

    def uses(self, site: Site, name: str) -> list[Written] | None:
        """Every use of a name that the import at a site binds; see ``semantics.dataflow.import_uses``."""
        ref = self.frame(site).ref
        return uses_of(self.runs.world, ref.path, self.runs.world.outermost(ref).qualname, name)

    def written(self, site: Site) -> Written | None:
        """The call or bare decorator at a site, as it is written."""
        return written(self.lowered(site), site.node)

    def bound_to(self, site: Site, name: str) -> frozenset[str]:
        """All that imports anywhere in the site's file bind a name to."""
        imports = self.runs.world.project.imports(self.frame(site).ref.path)
        return frozenset(target for local, target in imports if local == name)

    def also_calls(self, site: Site, names: frozenset[str]) -> bool:
        """Whether the site's function calls one of these absolute names as well."""
        return _calls_one_of(self.runs.world, self.frame(site).ref, names)

    def class_says(self, site: Site, words: frozenset[str]) -> bool:
        """Whether the site's function, or a method of its class, says one of these words."""
        ref = self.frame(site).ref
        facts = self.runs.world.facts(ref)
        prefix = (facts.owner or facts.qualname) + "."
        return any(
            other.names & words
            for other in self.runs.world.project.within(ref.path, prefix[:-1])
            if other.qualname == facts.qualname or other.qualname.startswith(prefix)
        )

    def passes_keyword(self, site: Site, words: frozenset[str]) -> bool:
        """Whether some call in the site's function is given an argument of one of these names."""
        return any(a.keyword in words for call in self.runs.world.facts(self.frame(site).ref).calls for a in call.args)

    def names_anywhere(self, words: frozenset[str]) -> bool:
        """Whether any function of the project says one of these words."""
        return any(self.runs.world.project.says(word) for word in sorted(words))

    def file_says(self, words: frozenset[str]) -> bool:
        """Whether any function of the root's file says one of these words."""
        return says_any(self.runs.world, self.record.root.path, words)

    def gates(self, site: Site) -> tuple[str, ...]:
        """The tests of every ``if`` around a site, from the outermost on, and "try" for each ``try``; see ``gates_of``."""
        lowered = self.lowered(site)
        function = lowered.functions[next(iter(lowered.functions))]
        return gates_of(function.body, lowered.enclosing(site.node)) or ()

    # --- the root -----------------------------------------------------------------------------------------------------

    def assumed_evaluation(self) -> bool:
        """Whether this record assumes a phase that does not train (``model.training`` is False), or a framework only evaluates by it."""
        if self.runs.world.hook(self.record.root) is HookEffect.EVALUATION:
            return True
        return any(text.endswith(".training") and not value for text, value in self.record.assumptions)

    def trains_in_another_phase(self, graph: Graph) -> bool:
        """Whether the same call's result is back-propagated in another phase of this function."""
        return any(other is not self.record for other in self._trained_in(graph))

    def _trained_in(self, graph: Graph) -> list[Record]:
        """The records of this function in which the same call's result is back-propagated."""
        return [
            other
            for other in self.runs.records(self.record.root)
            if any(is_twin(twin, graph) and twin.gid in other.backwarded for twin in other.graphs.values())
        ]

    def training_test(self, graph: Graph) -> tuple[str, str]:
        """The test that says in which phase the same call's result is back-propagated, as this record has it, and as it is where
        that is so: ("optimizer is None", "optimizer is not None"). Two empty texts where no one test of the root says it."""
        trained = [dict(other.assumptions) for other in self._trained_in(graph)]
        found = [
            (key.partition(":")[2], value)
            for key, value in self.record.assumptions
            if key.startswith("0:") and trained and all(there.get(key, value) != value for there in trained)
        ]
        return (holds(*found[0]), holds(found[0][0], not found[0][1])) if len(found) == 1 else ("", "")

    def beside_backward(self, graph: Graph) -> bool:
        """Whether a backward, or an optimizer's step, runs in each of the iterations that the forward runs in: they share a
        step, and not merely an epoch."""
        loops = graph.site.loops
        return any(
            event.site.loops == loops[: len(event.site.loops)]
            for event in self.record.events.values()
            if isinstance(event, Backward) or (isinstance(event, CallEffect) and event.effect is CallByName.OPTIMIZER_STEP)
        )

    def on_cuda(self) -> bool:
        """Whether something is moved to a CUDA device in the function, or to a device that is not named in a project that works
        with CUDA."""
        flags = self.record.flags
        return RecordFlag.ON_CUDA in flags or (RecordFlag.ON_SOME_DEVICE in flags and self.runs.world.project.mentions_cuda())

    def called_in_training(self, by_trainers: bool = False) -> bool:
        """Whether some caller of the root is a module's forward or computes a loss (or, ``by_trainers``, back-propagates
        something, or says that it trains): what the root returns may be trained."""
        project = self.runs.world.project
        todo, seen = [self.record.root], {self.record.root}
        for _ in range(3):
            callers = [c.ref for ref in todo for c in project.callers(ref).calls if c.ref not in seen]
            for ref in callers:
                last = ref.qualname.rpartition(".")[2]
                if by_trainers and (
                    self.runs.world.facts(ref).names & TORCH.words["back-propagates"]
                    or purpose.words(last)[:1] == (TORCH.names["trains"],)
                ):
                    return True
                if last in TORCH.words["forward"] | TORCH.words["training-steps"] or (purpose.trains(last) and "loss" in last):
                    return True
            seen |= set(callers)
            todo = sorted(set(callers))
        return False

    def callee(self, site: Site) -> str:
        """The text of what is called at a site, the arguments of calls inside it left out: "super(…).forward"."""
        try:
            call = ast.parse(self.source(site, site.node).strip(), mode="eval").body
        except SyntaxError:
            return " ".join(self.source(site, site.node).split("(")[0].split())
        return ast.unparse(_WithoutArguments().visit(call.func if isinstance(call, ast.Call) else call))

    def root_is_module(self) -> bool:
        """Whether the root is a method of an ``nn.Module``, or of a class that may be one."""
        return self.runs.world.is_of_module(self.record.root) is not False

    def root_is_entry(self) -> bool:
        """Whether the program begins with the root: it has no callers, and needs none."""
        name = self.record.root.qualname
        return name == MODULE or name.rpartition(".")[2] == "main"

    def hooks_forwards(self) -> bool:
        """Whether the root registers forward hooks that may keep what modules give them, with its graph: what a model returns is
        not all that comes of running it."""
        if TORCH.names["forward-hook"] not in self.runs.world.facts(self.record.root).names:
            return False
        fates = [self.runs.fate_here(self.record, gid) for gid in self.record.hook_arguments]
        return not any(fate.only_cut for fate in fates) or not all(fate.only_cut or fate.never_read for fate in fates)

    def shown_tensor(self, gid: int) -> bool:
        """Whether the code treats an unknown object, given by its graph, as only a tensor can be treated."""
        words = self.record.evidence.get(gid, set())
        return bool(words & TENSOR_WORDS) and not shows_no_tensor(words)

    # --- graphs -----------------------------------------------------------------------------------------------------

    def real(self, gids: Iterable[int]) -> list[Graph]:
        """The graphs among these that surely exist, in order of their numbers."""
        return [self.record.graphs[g] for g in sorted(gids) if self.record.real(g)]

    def attached_at(self, gids: Iterable[int]) -> FlowStep | None:
        """Where the first of these graphs was made: the call that the root itself makes, also where the graph is that of a
        module further in."""
        for graph in self.real(gids):
            if graph.site.node < 0:
                continue
            site = self.own_site(graph.site)
            called = short(self.callee(site))
            return self.step(site, f"`{called}(…)` runs here with grad mode on: its result carries an autograd graph")
        return None


class _WithoutArguments(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        arguments: list[ast.expr] = [ast.Name("…")] if node.args or node.keywords else []
        return ast.Call(node.func, arguments, [])


def is_twin(one: Graph, other: Graph) -> bool:
    """Whether two records' graphs are those of the same call."""
    return (
        one.site.node == other.site.node
        and one.site.frame == other.site.frame
        and (one.kind, one.what)
        == (
            other.kind,
            other.what,
        )
    )


def holds(test: str, value: bool) -> str:
    """What is written where a test (``x``, ``x is None``, ``x == 1``, ``x()``) comes out so, as an expression that is a bool."""
    left, operator, right = test.partition(" is ") if " is " in test else test.partition(" == ")
    if operator:
        return test if value else f"{left} {'is not' if operator == ' is ' else '!='} {right}"
    return f"bool({test})" if value and not test.endswith(".training") else test if value else f"not {test}"


@memoized
def watches_gradients(world: World, root: FunctionRef, ends_here: bool) -> bool:
    """Whether a root walks a graph's nodes, or hooks into gradients, as may the class it is part of, or makes an input that
    the root reads require grad: its graphs are wanted without a visible backward. What ``ends_here``, in numbers, asks for no
    gradient of a parameter that another method watches; of an activation that keeps its own it may."""
    facts = world.facts(root)
    if any(own.names & GRAPH_NODES for _, own in family(world, root)):
        return True
    prefix = (facts.owner or facts.qualname) + "."
    inside = world.project.within(root.path, prefix[:-1])
    if len(inside) > MAX_INSIDE:
        inside = world.project.within(root.path, facts.qualname)
    return any(
        (
            other.names & TORCH.words["gradient-hooks"]
            and (not ends_here or other.qualname == facts.qualname or TORCH.names["keeps-gradient"] in other.names)
        )
        or any(
            call.callee.startswith("self.")
            and call.callee.endswith(".requires_grad_")
            and not call.args
            and call.callee.split(".")[1] in facts.names
            for call in other.calls
        )
        for other in inside
        if other.qualname == facts.qualname or other.qualname.startswith(prefix)
    )


def with_reason(cost: str, reason: Reason) -> str:
    """What a mistake costs in code that does not run."""
    return f"{cost}; {reason.words}" if cost else reason.words


def argument(event: CallEffect, position: int, keyword: str):  # type: ignore[no-untyped-def]
    """The value of an argument by position or keyword, None when it is not given."""
    for name, value in event.args:
        if name in (str(position), keyword):
            return value
    return None


@memoized
def _calls_one_of(world: World, ref: FunctionRef, names: frozenset[str]) -> bool:
    callees = dict.fromkeys(call.callee for call in world.facts(ref).calls)
    return any(world.project.resolve(ref.path, callee, ref.qualname) in names for callee in callees)
