"""Whether a value that is back-propagated may belong to the graph of an earlier iteration or call.

That happens by a name that a loop carries round, or by an attribute that was left attached.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.identity import MODULE_EVIDENCE, looks_like_module
from torchmemlint.semantics.mode import may_be_network
from torchmemlint.semantics.roots.runs import Runs
from torchmemlint.semantics.state import (
    CERTAIN_KINDS,
    MADE_KINDS,
    MARK_KINDS,
    Accumulate,
    Backward,
    Graph,
    GraphKind,
    Mode,
    Record,
    Seen,
    Store,
    World,
)
from torchmemlint.torch_facts import TORCH

MAX_SETTERS = 6
"""Methods that are run to see what they leave in an attribute; where there are more, anything may be there."""
MAX_MEANT = 12
"""Functions that a call may mean and that are run to see whether one gives a graph."""
NOTHING_SEEN = frozenset[str]()
NO_TENSOR = frozenset({Seen.CALLED, TORCH.names["forward"], *MODULE_EVIDENCE.difference(TORCH.methods)})
"""What is done with modules, data sets and optimizers, and never with tensors."""


def hangs_on_earlier_turn(runs: Runs, record: Record, gid: int, event: Backward) -> bool:
    """Whether a mark says that the value depends on what an earlier iteration of a loop around the backward, or an earlier
    call, left attached: then that iteration's graph is gone through again. What a loop inside the iteration carries round is of
    this iteration alone."""
    mark = record.graphs[gid]
    if mark.kind is not GraphKind.CARRIED:
        return False
    if mark.site.node < 0:
        return _is_left_attached(runs, record, mark)
    return any(
        graph.kind is not GraphKind.PARAM and not is_data(runs, record, graph) for graph in _brought_round(record, mark, event)
    )


def comes_round(record: Record, gid: int, event: Backward) -> bool:
    """Whether a mark stands for a state that a call was given and gave back (``state = core.step(x, state)``): whatever is called,
    it may keep the graph."""
    mark = record.graphs[gid]
    if mark.kind is not GraphKind.CARRIED or mark.site.node < 0:
        return False
    return any(gid in record.ancestors(graph.parents) for graph in _brought_round(record, mark, event))


def hangs_on_itself(runs: Runs, record: Record, graph: Graph, event: Backward) -> bool:
    """Whether a network is given what it gave in the iteration before, by way of a list or object: what is taken for data brings
    nothing. A loop inside the iteration starts again in each."""
    if graph.kind is not GraphKind.FORWARD or graph.site.loops != event.site.loops:
        return False
    return graph.gid in record.ancestors(graph.parents, ends=lambda above: is_data(runs, record, above))


def _brought_round(record: Record, mark: Graph, event: Backward) -> list[Graph]:
    """The graphs that a value which a loop around the backward carries round is attached to."""
    if mark.site.loops != event.site.loops[: len(mark.site.loops)]:
        return []
    brought = [record.graphs[g] for g in record.carried.get((mark.place, mark.site.loops[-1]), ())]
    return [graph for graph in brought if graph.kind not in MARK_KINDS]


def is_data(runs: Runs, record: Record, graph: Graph) -> bool:
    """Whether a graph that may exist is hardly one: a batch of what a loop runs over, what something gives that is called by its
    own name (``sampler.next()``, ``Resize(224)``) and reads like no network, or what is itself called, which no tensor is."""
    if graph.kind is GraphKind.PARAM:
        return any(info.text == graph.what for info in record.loops.values()) or _is_collected_input(record, graph)
    return is_no_tensor(runs, record, graph) or _is_given_data(runs, record, graph)


def _is_given_data(runs: Runs, record: Record, graph: Graph) -> bool:
    """Whether a call gave data; of a part, its own name says nothing (``settings.encoder_width``)."""
    if graph.kind is not GraphKind.OPAQUE or graph.direct:
        return False
    call = record.call_of(graph)
    if call.kind is GraphKind.OPAQUE and may_be_network(call.what) and _may_be_made_of_graphs(runs, record, call):
        return False
    return not any(gives_a_graph(runs, ref) for ref in sorted(record.unfollowed.get(graph.site.key, ())))


def is_no_tensor(runs: Runs, record: Record, graph: Graph) -> bool:
    """Whether what a call that is not visible gave is called in its turn, or treated as a module, and was made of no graph that it could
    keep."""
    if not _is_object(record, graph):
        return False
    above = [record.graphs[gid] for gid in record.ancestors(graph.parents)]
    return all(each.kind not in MADE_KINDS or _is_object(record, each) or _is_given_data(runs, record, each) for each in above)


def _is_object(record: Record, graph: Graph) -> bool:
    return graph.kind is GraphKind.OPAQUE and not NO_TENSOR.isdisjoint(record.evidence.get(graph.gid, ()))


def is_of_network(runs: Runs, record: Record, graph: Graph) -> bool:
    """Whether a method of what is treated as a network, or reads like one, gave something that may have a graph."""
    call = record.call_of(graph)
    receiver = call.what.rpartition(".")[0]
    words = runs.world.evidence(record.frames[call.site.frame].ref).get(receiver, NOTHING_SEEN)
    reads_so = bool(receiver) and (looks_like_module(words) or may_be_network(receiver))
    return reads_so and _may_be_made_of_graphs(runs, record, call)


def _may_be_made_of_graphs(runs: Runs, record: Record, call: Graph) -> bool:
    """Whether one of the project's functions and methods that a call may mean gives what a network gives, or none is known."""
    at = record.frames[call.site.frame].ref
    found = runs.world.project.callees(at.path, at.qualname, call.what).refs
    meant = sorted(found or runs.world.project.methods_named(call.what.rpartition(".")[2]))
    known = [runs.records(ref) for ref in meant if runs.root_of(ref) == ref] if len(meant) <= MAX_MEANT else []
    return not meant or len(known) < len(meant) or any(not records or _has_graph(records) for records in known)


def gives_a_graph(runs: Runs, ref: FunctionRef) -> bool:
    """Whether a function of the project, run by itself, returns what a network gives."""
    return _has_graph(runs.records(ref)) if runs.root_of(ref) == ref else False


def _has_graph(records: list[Record]) -> bool:
    """Whether what a function returns or yields is surely attached, in one of its runs."""
    return any(_is_certain(each.graphs[gid]) for each in records for gid in each.ancestors(frozenset(each.returned)))


def _is_collected_input(record: Record, graph: Graph) -> bool:
    """Whether a graph is that of the elements that an attribute has collected, and a network is fed with them."""
    collected = "." in graph.what and graph.what.endswith("[…]")
    return collected and any(graph.gid in other.parents for other in record.graphs.values() if other.kind is GraphKind.FORWARD)


def _is_left_attached(runs: Runs, record: Record, mark: Graph) -> bool:
    """Whether an attribute that the run finds may hold what an earlier call left: what has a graph is put there, here or in a method of
    the root's class other than the one that makes the object."""
    oid, name = mark.place
    put = [event for event in record.events.values() if isinstance(event, (Store, Accumulate)) and _puts(event, oid, name)]
    seen = frozenset((name,))
    if any(_may_bring(runs, record, event, seen) for event in put):
        return True
    owner = runs.world.header(record.root).owner
    return (
        bool(owner)
        and mark.what == f"self.{name}"
        and _may_be_attached(runs, record, ClassRef(record.root.path, owner), name, seen)
    )


def _puts(event: Store | Accumulate, oid: int, name: str) -> bool:
    """Whether an event puts a value into an attribute of an object."""
    if isinstance(event, Store):
        return event.holder == oid and event.place.rpartition(".")[2] == name
    return event.key == (oid, name)


def _may_be_attached(runs: Runs, record: Record, owner: ClassRef, name: str, seen: frozenset[str]) -> bool:
    """Whether a method of a class may put something with a graph into an attribute."""
    setters = _setters(runs, owner, name)
    roots = sorted({runs.root_of(setter) for setter in setters} - {record.root})
    if len(roots) > MAX_SETTERS or _is_handed_in(runs, owner, name) or any(not runs.records(root) for root in roots):
        return True
    return any(
        _may_bring(runs, other, event, seen | {name})
        for root in roots
        for other in runs.records(root)
        for event in _stores_of(other, setters, name)
    )


def is_set_elsewhere(runs: Runs, record: Record, given: Graph, seen: frozenset[str] = NOTHING_SEEN) -> bool:
    """Whether an attribute surely holds a network's result with its graph: a method that does not run here puts one there."""
    prefix, _, name = given.what.rpartition(".")
    owner = runs.world.header(record.root).owner
    if given.kind is not GraphKind.PARAM or prefix != "self" or not owner or name in seen:
        return False
    here = {frame.ref for frame in record.frames}
    setters = _setters(runs, ClassRef(record.root.path, owner), name)
    roots = sorted({runs.root_of(setter) for setter in setters if setter not in here})
    return any(
        _is_certain(graph) or (graph.kind is GraphKind.PARAM and is_set_elsewhere(runs, other, graph, seen | {name}))
        for root in roots[:MAX_SETTERS]
        for other in runs.records(root)
        for event in _stores_of(other, setters, name)
        for graph in map(other.graphs.__getitem__, other.ancestors(event.graphs))
    )


def _is_handed_in(runs: Runs, owner: ClassRef, name: str) -> bool:
    """Whether a method gives an attribute what it is given itself, as it is."""
    found = runs.world.project.attr(owner, name)
    setters = [(FunctionRef(cls.path, fact.method), fact.value) for fact, cls in found if fact.method]
    return any(
        value in {param.name for param in runs.world.header(ref).params} and not _is_of_constructor(runs.world, ref)
        for ref, value in setters
    )


def _setters(runs: Runs, owner: ClassRef, name: str) -> set[FunctionRef]:
    """The methods that give an attribute of a class its value, but those that make the object."""
    found = runs.world.project.attr(owner, name)
    refs = {FunctionRef(cls.path, fact.method) for fact, cls in found if fact.method}
    return {ref for ref in refs if not _is_of_constructor(runs.world, ref)}


def _stores_of(record: Record, setters: set[FunctionRef], name: str) -> Iterator[Store | Accumulate]:
    """What some methods put into an attribute of their object, where that may have a graph."""
    for event in record.events.values():
        if (
            isinstance(event, (Store, Accumulate))
            and event.place == f"self.{name}"
            and record.frames[event.site.frame].ref in setters
        ):
            yield event


def _may_bring(runs: Runs, record: Record, event: Store | Accumulate, seen: frozenset[str]) -> bool:
    """Whether what an event puts somewhere may have a graph. What other attributes hold is asked for in their turn."""
    owner = runs.world.header(record.root).owner
    for gid in record.ancestors(event.graphs | event.hints):
        graph = record.graphs[gid]
        if _is_certain(graph) or (graph.kind is GraphKind.OPAQUE and not is_data(runs, record, graph)):
            return True
        if graph.kind is GraphKind.PARAM or (graph.kind is GraphKind.CARRIED and graph.site.node < 0):
            prefix, _, name = graph.what.rpartition(".")
            if not owner or prefix != "self":
                if not is_data(runs, record, graph):
                    return True
            elif name not in seen and _may_be_attached(runs, record, ClassRef(record.root.path, owner), name, seen):
                return True
    return False


def _is_certain(graph: Graph) -> bool:
    return graph.kind in CERTAIN_KINDS and not graph.frozen and graph.mode is not Mode.OFF


def _is_of_constructor(world: World, method: FunctionRef) -> bool:
    """Whether a method makes the object: the constructor, or one that only the constructor calls."""
    if method.qualname.endswith("__init__"):
        return True
    callers = world.project.callers(method)
    return bool(callers.calls) and not callers.escapes and all(c.ref.qualname.endswith("__init__") for c in callers.calls)
