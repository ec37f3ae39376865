"""What is known of how much a forward's graph holds: which graphs are small, whatever model the user has."""

from __future__ import annotations

import re

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.semantics.events import CALLED_KINDS, Backward, Graph, SinkKind
from torchmemlint.semantics.runs import MAX_CALLERS, descendants
from torchmemlint.torch_facts import TORCH

STEPS = TORCH.words["environment-steps"]
DENSE = TORCH.words["dense-layers"]
WIDE = 1024
"""Features of a linear layer from which on its graph is not small: 256 samples of three such layers save 3 MB."""
MAX_DEPTH = 3

NARROW = "the network has only narrow linear layers"
ENDS_AT_ONCE = "the graph ends at the detach, before that of the training step is built"


def why_small(graph: Graph, flow: Flow) -> str:
    """Why a forward's graph is small beside that of a training step, in words; "" where it may be large."""
    if is_dense(graph.cls, flow):
        return NARROW
    if not flow.beside_backward(graph) and acts(flow.record.root, flow):
        return "the batch is one step of an environment"
    if is_cut_at_once(graph, flow) and is_first_of_step(graph, flow):
        return ENDS_AT_ONCE
    return ""


def small_cost(cost: str, small: str) -> str:
    """What a graph costs, with why it is small here, "" where it may be large."""
    return f"{cost}; small here: {small}" if small else cost


def is_first_of_step(graph: Graph, flow: Flow) -> bool:
    """Whether a step's backward follows a forward in the same loop, and no graph that it walks is there already."""
    record = flow.record
    row, loops = flow.span(graph.site).start.row, graph.site.loops
    steps = [e for e in record.events.values() if isinstance(e, Backward) and flow.own(e.site) and e.site.loops == loops]
    trained = [each for gid in record.backwarded if (each := record.graphs.get(gid)) is not None and each.kind in CALLED_KINDS]
    before = [each for each in trained if flow.own(each.site) and flow.span(each.site).start.row < row]
    return any(flow.span(e.site).start.row > row for e in steps) and not any(each.site.loops == loops for each in before)


def is_cut_at_once(graph: Graph, flow: Flow) -> bool:
    """Whether the statement of the forward cuts the graph off again, or one that gives its result's name to what is cut off: no name
    holds it when what follows runs."""
    record = flow.record
    sinks = [s for g in descendants(record, graph.gid) for s in record.sinks.get(g, ())]
    if not sinks or any(s.kind is not SinkKind.CUT or s.site.frame != graph.site.frame for s in sinks):
        return False
    lowered = flow.lowered(graph.site)
    own = lowered.statement(graph.site.node)[1]
    bound = NAME.match(own)
    texts = {lowered.statement(s.site.node)[1] for s in sinks}
    return all(text == own or (bound is not None and text.startswith(f"{bound[1]} =")) for text in texts)


NAME = re.compile(r"([A-Za-z_][\w.]*) = ")
"""The one name that a statement assigns, in normalised source."""


def acts(ref: FunctionRef, flow: Flow, depth: int = 0) -> bool:
    """Whether a function, or one that calls it, gives an environment its next action (``state, reward, … = env.step(action)``)."""
    world = flow.runs.world
    if any(
        call.used == "unpacked" and call.args and call.callee.rpartition(".")[2] in STEPS and "." in call.callee
        for call in world.facts(ref).calls
    ):
        return True
    callers = world.project.callers(ref).calls
    if depth == MAX_DEPTH or not callers or len(callers) > MAX_CALLERS:
        return False
    return all(caller.ref != ref and acts(caller.ref, flow, depth + 1) for caller in callers)


def is_called_in_loops(ref: FunctionRef, flow: Flow, depth: int = 0) -> bool:
    """Whether a call of a function, or of one that calls it, stands in a loop."""
    callers = flow.runs.world.project.callers(ref).calls
    return len(callers) > MAX_CALLERS or any(
        caller.call.loops or (caller.ref != ref and depth < MAX_DEPTH and is_called_in_loops(caller.ref, flow, depth + 1))
        for caller in callers
    )


def is_dense(cls: ClassRef | None, flow: Flow, depth: int = 0) -> bool:
    """Whether a module of the project is made of narrow linear layers alone."""
    world = flow.runs.world
    if cls is None or depth == MAX_DEPTH or not world.is_module_class(cls):
        return False
    own = [each for each in world.project.mro(cls) if isinstance(each, ClassRef)]
    linear = False
    for each in own:
        for facts in world.within(each.path, each.qualname):
            for call in facts.calls:
                found = world.project.resolve(each.path, call.callee, facts.qualname) or ""
                if found.startswith("torch.nn.") and not found.startswith(("torch.nn.functional.", "torch.nn.init.")):
                    if found.rpartition(".")[2] not in DENSE | {"Module"}:
                        return False
                    if any(arg.const.isdecimal() and int(arg.const) > WIDE for arg in call.args):
                        return False
                    linear = linear or "Linear" in found
                elif isinstance(symbol := world.symbol(found) if found else None, ClassRef) and world.is_module_class(symbol):
                    if not is_dense(symbol, flow, depth + 1):
                        return False
                    linear = True
    return linear
