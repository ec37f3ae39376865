"""Where a finding stands: at the forward itself, or at the call of the root by which it runs."""

from __future__ import annotations

from torchmemlint.index.arguments import argument_for
from torchmemlint.index.modes import StartMode
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.wanted_graphs import FORWARD
from torchmemlint.semantics.mode import start_mode
from torchmemlint.semantics.roots import descendants
from torchmemlint.semantics.state import Graph, GraphKind, Mode, Record, RecordFlag, Site


def stands_here(event: Graph, flow: Flow) -> bool:
    """Whether the finding stands in the root: at the forward itself, or at the root's call of a function of the project through
    which it runs, where that function is part of forwards of either kind and its callers alone know what the result is for."""
    if flow.own(event.site):
        return True
    record, world = flow.record, flow.runs.world
    site, callee = flow.own_call(event.site)
    if any(g.kind is GraphKind.FORWARD and g.site.key == site.key for g in record.graphs.values()):
        return False  # where the call itself makes a graph, that one is judged
    out = comes_out(event, flow)
    owner = world.header(callee).owner
    if owner and world.is_module_class(ClassRef(callee.path, owner)):
        around = world.header(record.root).owner
        inherited = world.project.mro(ClassRef(record.root.path, around)) if around else ()
        from_outside = ClassRef(callee.path, owner) not in inherited
        if out and (from_outside or callee.qualname.rpartition(".")[2] in FORWARD):
            return True
        evaluated = event.training is False or RecordFlag.EVAL in record.flags
        if from_outside and evaluated and start_mode(world, flow.frame(event.site).ref) is StartMode.UNKNOWN:
            return True  # only from here it is sure that grad mode is on, and that nothing is trained
    if not out and gives_only_numbers(callee, site, flow):
        return True
    if not out and not hands_out(callee, event, flow):
        return False  # the function that is called keeps its result to itself
    # Where no other caller trains what it returns, the finding stands in that function.
    return flow.runs.fate_of_result(callee).trains


def comes_out(event: Graph, flow: Flow) -> bool:
    """Whether a forward that runs in a function which the root calls hands its graph to the root, or to what runs there."""
    record = flow.record
    site, inside = flow.own_site(event.site), entered(event, flow)
    family = descendants(record, event.gid)
    sinks = [s for gid in family for s in record.sinks.get(gid, ())]
    returned = any(each.site.key == site.key and each.graphs & family for each in record.fates)
    return returned or any(inside not in above(record, s.site.frame) for s in sinks)


def name_in_root(event: Graph, flow: Flow) -> str:
    """What the root calls the network of a forward: of one in a function that it calls, what it gives that; "" where it gives none."""
    world, record = flow.runs.world, flow.record
    frame, text = flow.frame(event.site), event.what
    while text and not flow.own(Site(frame.number, -1)) and frame.parent >= 0:
        caller, header = record.frames[frame.parent], world.header(frame.ref)
        head, dot, rest = text.partition(".")
        params = header.params[bool(header.owner) :]
        if not any(param.name == head for param in params):
            return ""
        call = world.facts(caller.ref).call_ending(flow.span(Site(caller.number, frame.call)).end)
        arg = argument_for(params, head, call.args) if call is not None else None
        text = f"{arg.name}{dot}{rest}" if arg is not None and arg.name else ""
        frame = caller
    return text


def gives_only_numbers(callee: FunctionRef, site: Site, flow: Flow) -> bool:
    """Whether the root calls a module, whose forward cuts in this call all that it returns (labels are not given: the best index): what
    its other calls are for, says nothing of this one."""
    given = [each for each in flow.record.fates if each.callee == callee and each.site.key == site.key]
    return flow.runs.is_forward(callee) and bool(given) and not any(each.graphs or each.mode is Mode.OFF for each in given)


def entered(event: Graph, flow: Flow) -> int:
    """The frame of the function that the root called, in which a forward runs."""
    frame = flow.frame(event.site)
    while frame.parent >= 0 and not flow.own(Site(frame.parent, -1)):
        frame = flow.record.frames[frame.parent]
    return frame.number


def above(record: Record, number: int) -> set[int]:
    """A frame, and those that it was called from."""
    found = set()
    while number >= 0:
        found.add(number)
        number = record.frames[number].parent
    return found


def hands_out(callee: FunctionRef, event: Graph, flow: Flow) -> bool:
    """Whether a function of the project returns what this forward in it gives, with the graph."""
    return flow.frame(event.site).ref == callee and any(
        is_same_call(graph, event) and flow.runs.fate_here(record, graph.gid).escapes
        for record in flow.runs.records(callee)
        for graph in record.graphs.values()
    )


def is_same_call(one: Graph, other: Graph) -> bool:
    """Whether graphs of two runs are made by the same call of one function, which both runs enter."""
    return (one.site.node, one.kind) == (other.site.node, other.kind)


def twins(event: Graph, root: FunctionRef, there: Flow) -> list[Graph]:
    """The graphs that the call of a function makes where one of its callers is run (``there``)."""
    return [
        graph for graph in there.record.graphs.values() if is_same_call(graph, event) and there.frame(graph.site).ref == root
    ]
