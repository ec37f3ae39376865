"""By what a fix that switches grad mode off is proved to change no result.

Each part of the proof is a fact of its own, and a fix of which one is missing stays unsafe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchmemlint.findings import Fix
from torchmemlint.rules.api import Flow
from torchmemlint.rules.fact import Fact, Known
from torchmemlint.rules.reach import callers_of
from torchmemlint.semantics.dataflow import changes_the_program, seen_by
from torchmemlint.semantics.state import GRAPH_KINDS, MODULE, Graph, GraphKind, Record, RecordFlag, SinkKind, Site
from torchmemlint.torch_facts import TORCH

MAX_GRAPHS = 200
"""Graphs of a function whose uses are looked at before a fix of all of it."""
WHOLE = (0, 0)
BACKWARD = TORCH.words["back-propagates"]
TORCH_ITSELF = TORCH.names["module"].partition(".")[0]
AUTOCAST = TORCH.words["casts-automatically"]
USES = "every use of what is computed there is visible, and none back-propagates"
BLIND = "nothing that runs there, and no network, goes by grad mode or works on gradients"
PROGRAM = "the code is part of a program, in which nothing takes a gradient"


def with_proof(fix: Fix, event: Graph, flow: Flow, site: Site | None = None) -> Fix:
    """The fix, with what is known of it where it is shown that to switch grad mode off for a site's statement, or for all of the function, changes no
    result."""
    if flow.proofs is None:
        flow.proofs = {}
    key = (WHOLE if site is None else rows_of(site, flow), event.what)
    if key not in flow.proofs:
        flow.proofs[key] = tuple(_proof(event, flow, *key))
    facts = flow.proofs[key]
    missing = any(fact.unless for fact in facts)
    if missing:
        return fix
    return replace(fix, proof=tuple((fact.words, fact.known_by.value) for fact in facts))


def rows_of(site: Site, flow: Flow) -> tuple[int, int]:
    span = flow.lowered(site).statement(site.node)[0]
    return span.start.row, span.end.row


def _proof(event: Graph, flow: Flow, rows: tuple[int, int], what: str) -> Iterator[Fact]:
    """The parts of the proof, the cheapest first; the first that is missing ends it, and says why in ``unless``."""
    world, root = flow.runs.world, flow.record.root
    if not world.project.is_part_of_program(root.path):
        yield Fact("not-a-program", unless="code that is not visible may use it")
        return
    if flow.why_not_run(event.site) is not None:
        yield Fact("not-a-program", unless="no program runs it")
        return
    yield Fact("program", PROGRAM)
    why = changes_the_program(world, root.path)
    if why:
        yield Fact("may-ask-for-a-graph", unless=why)
        return
    why, known_by = open_use(flow, rows)
    if why:
        yield Fact("use-not-visible", unless=why)
        return
    yield Fact("uses-visible", USES, known_by)
    why = cached_casts(flow, rows) or seen_by(world, root, rows, networks_of(flow) | {what})
    if why:
        yield Fact("may-ask-for-a-graph", unless=why)
        return
    yield Fact("blind-to-grad-mode", BLIND)


def open_use(flow: Flow, rows: tuple[int, int]) -> tuple[str, Known]:
    """What is made there and may be back-propagated, in any phase, here or in a caller; "" and how the rest is known."""
    known = Known.RESOLVED
    for record in flow.runs.records(flow.record.root):
        if record.root.qualname != MODULE and RecordFlag.BACKWARD in record.flags and rows == WHOLE:
            return "the function back-propagates", known
        graphs = [
            graph for graph in record.graphs.values() if graph.kind in GRAPH_KINDS and is_there(graph, record, flow, rows)
        ]
        if len(graphs) > MAX_GRAPHS:
            return "too much is computed there", known
        for graph in graphs:
            if is_of_a_library(graph, record, flow):
                continue
            fate = flow.runs.fate(record, graph.gid)
            if not (fate.only_cut or fate.never_read):
                return f"`{graph.what}` may be used elsewhere", known
            if any(sink.kind is SinkKind.SHOWN for sink in record.sinks.get(graph.gid, ())):
                return f"what `{graph.what}` gives is shown, with its graph", known
            if fate.callers:
                known = Known.ALL_CALLERS
    return "", known


def networks_of(flow: Flow) -> frozenset[str]:
    """The texts by which the function calls what may be a network."""
    graphs = [graph for record in flow.runs.records(flow.record.root) for graph in record.graphs.values()]
    return frozenset(graph.what for graph in graphs if graph.kind is GraphKind.FORWARD or graph.direct)


def is_of_a_library(graph: Graph, record: Record, flow: Flow) -> bool:
    """Whether a function of another library than torch gave it, and was given nothing that has a graph: that has none, or one of its
    own."""
    if graph.kind is not GraphKind.OPAQUE or graph.direct or graph.parents:
        return False
    ref, project = record.frames[graph.site.frame].ref, flow.runs.world.project
    absolute = project.resolve(ref.path, graph.what, ref.qualname)
    return absolute is not None and not project.is_inside(absolute) and absolute.partition(".")[0] != TORCH_ITSELF


def is_there(graph: Graph, record: Record, flow: Flow, rows: tuple[int, int]) -> bool:
    """Whether a graph is made in the rows, by the root or what it runs there."""
    if rows == WHOLE:
        return True
    there = Flow(flow.runs, record, flow.path)
    site = there.own_site(graph.site)
    return site.node >= 0 and there.own(site) and rows[0] <= there.span(site).start.row <= rows[1]


def cached_casts(flow: Flow, rows: tuple[int, int]) -> str:
    """Autocast keeps what it makes of weights until its block ends: without a graph, where that was off, also for what is trained
    later in the block."""
    world, root = flow.runs.world, flow.record.root
    around = [*callers_of(root, world), *(() if rows == WHOLE else (root,))]
    if any(world.facts(ref).names & AUTOCAST and world.facts(ref).names & BACKWARD for ref in around):
        return "autocast keeps weights without a graph for what is trained in its block"
    return ""
