"""What keeping a graph costs, by its state: the same words for every rule that reports one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchmemlint.findings import Severity
from torchmemlint.index.project import ClassRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import text_of
from torchmemlint.rules.api import Flow, short
from torchmemlint.rules.assumed import EMPTIED_ELSEWHERE, no_tensor
from torchmemlint.rules.cost.circumstances import of_graphs
from torchmemlint.rules.cost.often import turns_of
from torchmemlint.rules.cost.table import Price, price
from torchmemlint.rules.evidence.named import facts_of_names, networks_by_name
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.reach import guarded, is_called_by_forwards
from torchmemlint.semantics.dataflow import is_only_filled
from torchmemlint.semantics.state import (
    CALLED_KINDS,
    COMPUTED,
    MADE_KINDS,
    MODULE,
    SCALAR,
    Accumulate,
    Backward,
    CallEffect,
    Event,
    Graph,
    GraphKind,
    Kind,
    Mode,
    RecordFlag,
    SinkKind,
    Store,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName

VIEWS_OF_DICT = tuple(f".{name}()" for name in sorted(TORCH.words["views-of-dict"]))
NODES_COST = (
    "graph nodes: the backward freed the saved tensors that it used, but host memory grows by about 0.5 kB per graph node each step, "
    "and the kept tensor itself stays"
)
WHOLE_COST = "retains the whole autograd graph of every step: one graph's saved tensors per step"
ONLY_FILLED_COST = (
    "retains the tensor and the nodes of its graph in every call, whoever back-propagates, and what the graph saved where nobody does: "
    "nothing reads or empties the list"
)
WHOLE, NODES, UNTIL_EMPTIED = "whole-graphs", "graph-nodes", "until-emptied"
RETAINED_COST = "`retain_graph=True` keeps the saved tensors, so the kept value keeps the whole graph of every step"


@dataclass(frozen=True, slots=True)
class Claim:
    """A kept value's graphs that surely exist, and what keeping them costs."""

    graphs: tuple[Graph, ...]
    growth: str
    cost: str

    @property
    def freed(self) -> bool:
        """Whether a backward has freed what the graphs saved."""
        return self.growth == NODES

    @property
    def gids(self) -> frozenset[int]:
        return frozenset(g.gid for g in self.graphs)


def claim(
    flow: Flow,
    gids: frozenset[int],
    mark: int,
    outside: bool,
    loop: tuple[int, int] | None,
    outlived: tuple[tuple[int, int], ...] = (),
    *,
    total: bool = False,
    attribute: tuple[ClassRef, str] | None = None,
) -> Claim | Fact:
    """The claim about a value that is attached to these graphs and is kept by way of ``mark``; ``total``: added to what was
    there; ``attribute``: in what the object of a class holds under that name.

    Fact where nothing is sure: no graph that surely exists; the kept value is itself back-propagated later (it is
    the objective, or part of it), or is detached in place; the holder lives for one step only, made in the loop that back-propagates and filled in
    one inside it (``outlived``: the loops that it does outlive, where that is known); or it leaves for code that is not visible while its graph is still alive (into a holder that was
    there before the function ran: ``outside``).
    """
    record = flow.record
    if mark in record.backwarded:
        return Fact("kept-back-propagated", "the kept value is back-propagated itself")
    marked = record.graphs.get(mark)
    if marked is not None and flow.trains_in_another_phase(marked):
        return Fact("kept-trained-in-a-phase", "the kept value is back-propagated in another phase")
    if is_detached_in_place(flow, mark):
        return Fact("detached-in-place", "`detach_()` detaches it in every iteration")
    graphs = flow.real(gids) or networks_by_name(gids, loop, flow)
    if not graphs:
        return Fact("kept-without-graph", "the value may not have a graph")
    # torch.autograd.grad may differentiate the same graph again: what only it reaches is not done with.
    reached = [
        g for g in graphs if record.visits_trained_part(g) or (g.gid in record.backwarded and not only_partially(flow, g))
    ]
    if len(reached) == len(graphs):
        if not outside and outlived and not any(in_training_loop(flow, each) for each in outlived):
            return Fact("container-of-one-step", "its container lives for one step only")
        if not outside and len(outlived) <= 1 and is_over_networks(flow, loop, graphs):
            return Fact("another-network-each", "each iteration trains another network")
        retained = not any(g.gid in record.freed for g in graphs) and literally_retained(flow, graphs)
        if retained:
            return Claim(tuple(graphs), WHOLE, RETAINED_COST)
        return Claim(tuple(graphs), NODES, NODES_COST)
    if outside and attribute is not None and is_only_filled(flow.runs.world, *attribute):
        return Claim(tuple(graphs), UNTIL_EMPTIED, ONLY_FILLED_COST)
    if is_over_parts(flow, loop, graphs):
        return Fact("another-part-each", "each iteration runs another part of one network")
    steps = in_training_loop(flow, loop, graphs) or (
        total and not flow.runs.is_forward(record.root) and runs_forwards(loop, graphs)
    )
    whole = side_branches(flow, graphs, reached, mark) if steps and not outside else None
    if whole is not None:
        return whole
    # A second backward through a freed graph raises: whatever else the value is attached to, it is no objective of a later one.
    freed = [g for g in reached if g.gid in record.freed]
    if freed and in_training_loop(flow, loop):
        return Claim(tuple(freed), NODES, NODES_COST)
    return open_end(flow, reached, mark, outside, bool(steps))


def is_over_parts(flow: Flow, loop: tuple[int, int] | None, graphs: Sequence[Graph]) -> bool:
    """Whether each iteration of the loop runs another module, which its own variable chooses: ``self.heads[i](x)``, or by a name
    (``head = self.heads[i]``)."""
    info = flow.record.loops.get(loop) if loop is not None else None
    forwards = [graph for graph in graphs if graph.kind in CALLED_KINDS]
    return info is not None and bool(forwards) and all(is_chosen_by(info.targets, graph, flow) for graph in forwards)


def is_chosen_by(names: frozenset[str], graph: Graph, flow: Flow) -> bool:
    """Whether one of these names says which module is called."""
    if names & set(WORDS.findall(graph.what)):
        return True
    world, ref = flow.runs.world, flow.frame(graph.site).ref
    called = graph.what.partition(".")[0]
    chosen = [
        each.value
        for each in nodes_of(world.body(world.outermost(ref)))
        if isinstance(each, ir.Assign) and isinstance(each.value, ir.Subscript) and called in map(text_of, each.targets)
    ]
    return bool(chosen) and all(names & set(WORDS.findall(text_of(value))) for value in chosen)


def is_over_networks(flow: Flow, loop: tuple[int, int] | None, graphs: Sequence[Graph]) -> bool:
    """Whether the loop's own variable is the network that each iteration runs (``for critic in critics``)."""
    info = flow.record.loops.get(loop) if loop is not None else None
    called = {graph.what for graph in graphs if graph.kind in CALLED_KINDS}
    return info is not None and bool(called) and called <= info.targets


WORDS = re.compile(r"\w+")


def open_end(flow: Flow, reached: Sequence[Graph], mark: int, outside: bool, steps: bool) -> Fact:
    """Why what becomes of a kept value is not known."""
    if reached:
        return Fact("partly-back-propagated", "only a part of its graphs is back-propagated; the others are unknown")
    if outside:
        return Fact("outside-may-train-it", "code that is not visible may back-propagate it")
    if not steps:
        return Fact("no-backward-in-the-loop", "no backward runs in the loop: its iterations may not be steps")
    fate = flow.runs.fate(flow.record, mark)
    if fate.trains:
        return Fact("kept-trained-by-a-caller", "a caller back-propagates it")
    if fate.passed:
        return Fact("kept-passed-on", f"it is passed to `{short(fate.passed[0].how)}`, which is not visible")
    return Fact("kept-leaves", "it leaves the function, and not all uses are visible")


def is_detached_in_place(flow: Flow, mark: int) -> bool:
    """Whether what is kept is cut off again in every iteration by ``detach_()``."""
    return any(s.how == ".detach_()" and not s.site.guards for s in flow.record.sinks.get(mark, ()))


def doubts_of(claimed: Claim, flow: Flow) -> tuple[Fact, ...]:
    """What is assumed of who calls the function, where no backward in it shows that grad mode is on."""
    record = flow.record
    sure = claimed.freed or RecordFlag.BACKWARD in record.flags or flow.root_is_entry() or not may_be_off(flow)
    elsewhere = (EMPTIED_ELSEWHERE,) if claimed.cost == ONLY_FILLED_COST else ()
    unsure = facts_of_names(claimed.graphs, flow) or unsure_graph(claimed, flow)
    return (*(() if sure else (guarded(None, flow),)), *elsewhere, *unsure)


def may_be_off(flow: Flow) -> bool:
    """Whether grad mode may be off for all callers: none is visible, or forwards alone are among those that leave it on."""
    mode = flow.record.mode
    return mode is Mode.NO_CALLERS or (mode is Mode.MIXED and is_called_by_forwards(flow))


def unsure_graph(claimed: Claim, flow: Flow) -> tuple[Fact, ...]:
    """The doubt where functions that are not visible gave all that is kept, and what is back-propagated has its graph from elsewhere,
    too: they may as well give numbers (a reward, a rate)."""
    record = flow.record
    if any(graph.kind is not GraphKind.OPAQUE for graph in claimed.graphs):
        return ()
    own = record.ancestors(claimed.gids)
    for event in record.events.values():
        if isinstance(event, Backward):
            through = record.ancestors(event.graphs | event.hints)
            made = {gid for gid in through if record.graphs[gid].kind in MADE_KINDS}
            sources = {gid for gid in made if made.isdisjoint(record.graphs[gid].parents)}
            if claimed.gids & through and sources <= own:
                return ()
    return (no_tensor(short(claimed.graphs[0].what)),)


def why_few(event: Accumulate | Store, flow: Flow) -> str:
    """Why what is kept of freed graphs is little, in words: its holder goes with a batch, or with an update."""
    if until := starts_again(event, flow):
        return f"`{short(event.place)}` lives {until}"
    loops = flow.record.loops
    around = set(event.site.loops) - set(event.outlived)
    if not event.outlived or event.loop not in loops:
        return ""
    if any(loops[each].kind is Kind.LOADER for each in around if each in loops):
        return f"`{short(event.place)}` lives for one batch"
    updates = any(is_of_updates(each, flow) for each in around) or is_one_update(event, flow)
    return f"`{short(event.place)}` lives for one update" if updates else ""


def resets_of(event: Accumulate | Store, flow: Flow) -> set[tuple[str, ...]]:
    """The tests under which an iteration of the loop gives a total a number, or the name of a container another one."""
    if isinstance(event, Store) and not is_only_looked_at(event, flow):
        return set()  # another has the container by then
    place = event.key if isinstance(event, Accumulate) else (event.holder, "")
    return flow.record.resets.get((place, event.loop), set()) if event.loop is not None else set()


def starts_again(event: Accumulate | Store, flow: Flow) -> str:
    """For how long what is kept lives, in words, that starts again with each update of the parameters, or each backward, under the very
    test of it (``if step % 8 == 0: optimizer.step(); total = 0``), in the function or in one that it calls there: for few steps. Where
    only an error leads past what starts it again, it is one iteration."""
    resets = resets_of(event, flow)
    if any(set(event.site.guards).issuperset(guards) for guards in resets):
        return "for one iteration, but for one that an error ends"
    resets = {guards for guards in resets if guards}
    events = flow.record.events.values()
    updates = {flow.own_site(each.site).guards for each in events if is_step(each)}
    if any(guards in updates or any(word in test for test in guards for word in UPDATES) for guards in resets):
        return "for one update"
    backwards = {flow.own_site(each.site).guards for each in events if isinstance(each, Backward)}
    return "until the next backward" if resets & backwards else ""


def is_step(event: Event) -> bool:
    """Whether an event updates the parameters."""
    return isinstance(event, CallEffect) and event.effect is CallByName.OPTIMIZER_STEP


UPDATES = TORCH.words["updates-now"]
"""What frameworks say in the steps that update the parameters."""


def is_of_updates(loop: tuple[int, int], flow: Flow) -> bool:
    """Whether each iteration of a loop itself steps an optimizer: the loops in it go over the parts of one update."""
    return any(is_step(e) and e.site.loops[-1:] == (loop,) for e in flow.record.events.values())


def is_one_update(event: Accumulate | Store, flow: Flow) -> bool:
    """Whether the function makes the holder itself, steps an optimizer in no loop, and hands nothing of the holder on: its loops go over
    the parts of one update."""
    return is_dropped_at_return(event, flow) and any(
        is_step(e) and flow.own(e.site) and not e.site.loops for e in flow.record.events.values()
    )


def price_of(claimed: Claim, event: Accumulate | Store, flow: Flow) -> Price:
    """What keeping a claim's graphs costs, with its bound where nothing else takes the kept value: the next iteration of a loop around
    that creates the holder again, or the end of the function that made it."""
    few = {"few": lambda: why_few(event, flow), **of_graphs(claimed.gids, flow)}
    turns = turns_of(event.outlived or (event.loop,), flow) if event.loop else -1
    bounded = claimed.growth == WHOLE and bool(resets_of(event, flow))
    found = price(UNTIL_EMPTIED if bounded else claimed.growth, claimed.cost, few, turns)
    if found.severity is Severity.NOTE:
        return found  # it says why it is little
    return Price(found.severity, f"{found.cost}{until(claimed, event, flow)}")


def until(claimed: Claim, event: Accumulate | Store, flow: Flow) -> str:
    """When all of it is freed, in words; "" where nothing shows it."""
    if resets_of(event, flow):
        return f"; all of it is freed when an iteration resets `{short(event.place)}`"
    around = set(event.site.loops) - set(event.outlived)
    if claimed.cost == NODES_COST and event.holder_frame >= 0 and event.outlived and around and is_only_looked_at(event, flow):
        return f"; all of it is freed when the outer loop resets `{short(event.place)}`"
    alone = event.place.isidentifier() and flow.record.returned.isdisjoint(
        event.graphs
    )  # no dict has the list, no result the graphs
    if alone and is_dropped_at_return(event, flow):
        return f"; all of it is freed when `{short(flow.record.root.qualname)}` returns"
    return ", until memory runs out" if claimed.cost == WHOLE_COST else ""


def is_computed(event: Store) -> bool:
    """Whether an operation of torch made what is stored: then it is a tensor."""
    return event.sure_tensor and bool(event.flags & (COMPUTED | SCALAR))


def is_replaced(flow: Flow, event: Store) -> Fact | None:
    """Why what is stored goes again when the next value comes."""
    if event.constant_key:
        return Fact(
            "constant-key", f"`{short(event.place)}` is written at a constant key: each value replaces the previous one"
        )
    if flow.record.is_let_go(event):
        return Fact("emptied", f"`{short(event.place)}` is emptied by `clear()`, or loses its oldest element at each step")
    return None


def is_dropped_at_return(event: Accumulate | Store, flow: Flow) -> bool:
    """Whether what is kept lives in the function's own local alone, and dies with it."""
    record = flow.record
    if event.holder_frame != 0 or record.root.qualname == MODULE or event.mark in record.returned:
        return False
    return is_only_looked_at(event, flow)


def is_only_looked_at(event: Accumulate | Store, flow: Flow) -> bool:
    """Whether nothing takes the kept value to keep it elsewhere: a list of all epochs' totals, an attribute, code that is not visible."""
    return {sink.kind for sink in flow.record.sinks.get(event.mark, ())} <= {
        SinkKind.CUT,
        SinkKind.SHOWN,
        SinkKind.DROPPED,
        SinkKind.KEPT_PART,
    }


def is_one_graph(flow: Flow, event: Accumulate | Store) -> bool:
    """Whether all that is kept comes of forwards that ran before the loops that its holder, which the root made, outlives: no
    turn adds a graph, however often the values of that one are kept."""
    graphs = flow.real(event.graphs)
    if event.holder_frame < 0 or not event.outlived or not graphs:
        return False
    around = set(event.site.loops) - set(event.outlived)
    return all(g.kind in CALLED_KINDS and around.issuperset(g.site.loops) for g in graphs)


def side_branches(flow: Flow, graphs: list[Graph], reached: list[Graph], mark: int) -> Claim | None:
    """Where one forward of several is back-propagated, the others are a side branch: theirs are the graphs that stay whole."""
    graphs = [g for g in graphs if g not in reached]
    fate = flow.runs.fate(flow.record, mark)
    if fate.trains or fate.escapes or fate.passed or fate.kept:
        return None
    if any(flow.runs.fate(flow.record, graph.gid).trains for graph in graphs if graph.gid not in flow.record.backwarded):
        return None
    return Claim(tuple(graphs), WHOLE, WHOLE_COST)


def in_training_loop(flow: Flow, loop: tuple[int, int] | None, graphs: Sequence[Graph] = ()) -> bool:
    """Whether the loop back-propagates something: its iterations are steps, and not the layers or the time steps of one
    forward. ``autograd.grad`` says that only where one of ``graphs`` is made in the loop, else it differentiates one graph,
    part by part; and not with ``create_graph``, where a later backward goes through the gradients of all turns: the inner steps
    of one outer one."""
    info = flow.record.loops.get(loop) if loop is not None else None
    if info is not None and info.text.endswith(VIEWS_OF_DICT):
        return False  # the parts of one step
    made_here = any(loop in graph.site.loops for graph in graphs)
    return loop is not None and any(
        isinstance(e, Backward) and loop in e.site.loops and (not e.gradients or (made_here and not e.creates))
        for e in flow.record.events.values()
    )


def runs_forwards(loop: tuple[int, int] | None, graphs: Sequence[Graph]) -> bool:
    """Whether each iteration of the loop runs again the forwards whose results are kept."""
    return loop is not None and bool(graphs) and all(g.kind in CALLED_KINDS and loop in g.site.loops for g in graphs)


def only_partially(flow: Flow, graph: Graph) -> bool:
    """Whether no full backward reaches the graph, only ``torch.autograd.grad`` or ``backward(inputs=…)``."""
    return not any(
        isinstance(e, Backward) and not e.partial and graph.gid in flow.record.ancestors(e.graphs | e.hints)
        for e in flow.record.events.values()
    )


def literally_retained(flow: Flow, graphs: list[Graph]) -> bool:
    """Whether every backward that reaches these graphs says ``retain_graph=True``."""
    found = False
    for event in flow.record.events.values():
        if isinstance(event, Backward) and flow.record.ancestors(event.graphs | event.hints) & {g.gid for g in graphs}:
            if not event.retain or event.partial:
                return False
            found = True
    return found
