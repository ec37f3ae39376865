"""Whether a backward that keeps its graph (``retain_graph=True``) is followed by one that needs it.

A second backward, or an ``autograd.grad``, needs the graph when it shares one with the first and can run after it while the
graph is the same: later in the same iteration of every loop that made the graph, or in another iteration of a loop that the
graph outlives. What leaves the function by ``return`` is followed into the callers; what comes in by a parameter is judged in
theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, takewhile

from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.roots.earlier_turns import (
    comes_round,
    hangs_on_earlier_turn,
    hangs_on_itself,
    is_data,
    is_no_tensor,
    is_of_network,
    is_set_elsewhere,
)
from torchmemlint.semantics.roots.runs import MAX_CALLERS, Runs, descendants
from torchmemlint.semantics.state import (
    CALLED_KINDS,
    CERTAIN_KINDS,
    MADE_KINDS,
    MARK_KINDS,
    MODULE,
    PLAIN_ROOTS,
    Accumulate,
    Backward,
    CallEffect,
    Graph,
    GraphKind,
    Record,
    SinkKind,
    Site,
    Store,
    StoreKind,
    Tensor,
    Tuple,
    Unknown,
    World,
    memoized,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName

MAX_DEPTH = 2
"""Callers of callers that are asked about a graph which a parameter brought in."""
GRADIENT = TORCH.names["gradient"]
"""``torch.autograd.grad``, and the attribute that a backward writes."""
BACK_PROPAGATES = TORCH.words["back-propagates"]
GOING_BACK = (*sorted(BACK_PROPAGATES), GRADIENT)
"""Words of functions that may back-propagate."""
MAX_BELOW = 60
"""Functions that are looked through for such words, below one that was not followed."""


GATHERING = frozenset({StoreKind.APPEND, StoreKind.EXTEND, StoreKind.INSERT, StoreKind.ADD})
NAMED = re.compile(r"self\.(\w+)")
NOT_SEEN = "no run of the function comes by"
NOT_FOLLOWED = "a function called next to it was not analyzed, and may back-propagate through it"
NEEDLESS = ""


def need_of(runs: Runs, root: FunctionRef, ref: FunctionRef, node: int, depth: int = 0, whole: bool = True) -> str:
    """What may need the graph that the backward at ``node`` of ``ref`` keeps, in any phase of a root that is this function or calls
    it: ``NEEDLESS`` where surely nothing does, ``NOT_SEEN`` where the root's runs do not come by. A root that calls it is asked
    of what it gives, unless the ``whole`` graph is that."""
    found = NOT_SEEN
    for record in runs.records(root):
        for event in backwards(record):
            if event.site.node == node and record.frames[event.site.frame].ref == ref:
                own = not whole and not _is_given_graph(runs, record, event)
                found = NEEDLESS if own else _need_here(runs, record, event, depth)
                if found:
                    return found
    return found


def _is_given_graph(runs: Runs, record: Record, event: Backward) -> bool:
    """Whether the function that has a backward may go back through a graph that one which calls it has made, or gives it again."""
    above = [record.graphs[gid] for gid in record.ancestors(event.graphs | event.hints)]
    if any(_is_solid(graph) and not _is_inside(record, graph.site.frame, event.site.frame) for graph in above):
        return True
    return any(hangs_on_earlier_turn(runs, record, gid, event) for gid in event.graphs)


def _is_inside(record: Record, frame: int, around: int) -> bool:
    """Whether a frame is another one, or of a function called there."""
    while frame >= 0 and frame != around:
        frame = record.frames[frame].parent
    return frame == around


def backwards(record: Record) -> list[Backward]:
    return [event for event in record.events.values() if isinstance(event, Backward)]


def _need_here(runs: Runs, record: Record, event: Backward, depth: int) -> str:
    starts = _starts_of(record, event)
    above = record.ancestors(starts, ends=lambda graph: is_no_tensor(runs, record, graph))
    own = frozenset(g for g in above if record.graphs[g].kind not in MARK_KINDS)
    data = _data_among(runs, record, event, own)
    own -= data
    if any(hangs_on_earlier_turn(runs, record, g, event) for g in event.graphs) or any(
        comes_round(record, g, event) for g in record.ancestors(event.graphs | event.hints)
    ) or any(hangs_on_itself(runs, record, record.graphs[g], event) for g in own):  # fmt: skip
        return "the value may belong to the graph of an earlier iteration or call"
    if event.site.loops and any(is_set_elsewhere(runs, record, record.graphs[g]) for g in event.graphs | event.hints):
        return "each iteration of the loop back-propagates through what another method left in an attribute"
    graphs = [record.graphs[g] for g in own]
    brought = [graph for graph in graphs if graph.kind is GraphKind.PARAM and graph.site.node < 0]
    made = [graph for graph in graphs if graph.kind is not GraphKind.PARAM]
    repeated = next((graph.what for graph in made if _repeats(graph, event)), None)
    if repeated is not None:
        return f"each iteration of the loop back-propagates through the graph of `{repeated}`, made before it"
    others = [other for other in backwards(record) if other is not event]
    if any(_follows(runs, record, event, other, own, data) for other in others):
        return "another backward that may follow shares a graph with it, or may"
    rest = [other for other in others if not _starts_anew(runs, record, event, other)]
    if not any(_is_fresh(graph) for graph in made) and (rest or not made) and not brought:
        return "nothing shows which graph it goes through"
    if _is_within_reach(runs, record, event, own):
        return NOT_FOLLOWED
    gone = _escape_of(runs, record, event, own, depth)
    if gone or not runs.world.header(record.root).params:
        return gone
    whole = bool(brought) and not any(record.graphs[gid].kind in MADE_KINDS for gid in starts)
    needless = _needless_for_callers(runs, record, event, whole, depth)
    return NEEDLESS if needless else "a caller may need the graph of what it gives"


def _starts_of(record: Record, event: Backward) -> frozenset[int]:
    """The graphs that a backward starts from: those that its value is surely attached to, and where nothing here made one of these (a
    loss of fields that are not visible, times a weight that was given), those that it may be attached to."""
    if any(record.graphs[gid].kind in MADE_KINDS for gid in record.ancestors(event.graphs)):
        return event.graphs
    made = any(record.graphs[gid].kind in MADE_KINDS for gid in record.ancestors(event.hints))
    return event.graphs | event.hints if made else event.graphs


def _data_among(runs: Runs, record: Record, event: Backward, own: frozenset[int]) -> frozenset[int]:
    """What a backward would go through that is hardly a graph, where each iteration makes something else for it to go through: what a
    network or an unknown object gave, or what it starts from."""
    made = {g for g in own if record.graphs[g].kind in MADE_KINDS and not _repeats(record.graphs[g], event)}
    data = frozenset(g for g in record.ancestors(event.graphs | event.hints) if is_data(runs, record, record.graphs[g]))
    if not made <= data:
        return data
    started = _started(record, event) or {g for g in made & event.graphs if is_of_network(runs, record, record.graphs[g])}
    calls = {record.graphs[gid].site.key for gid in started}
    rest = [record.graphs[gid] for gid in data if calls and record.graphs[gid].site.key not in calls]
    return frozenset(graph.gid for graph in rest if not is_of_network(runs, record, graph))


def _repeats(graph: Graph, event: Backward) -> bool:
    """Whether the backward runs several times over one graph: it stands in a loop that the graph was made outside of."""
    return len(event.site.loops) > len(_common(event.site.loops, graph.site.loops))


def _is_solid(graph: Graph) -> bool:
    """Whether there is a graph, or what is called may well be a network."""
    return graph.kind in CERTAIN_KINDS or (graph.kind is GraphKind.OPAQUE and graph.direct)


def _started(record: Record, event: Backward) -> frozenset[int]:
    """What surely has a graph, whatever it is: that which a backward starts from, if this iteration made all of it."""
    starts = [record.graphs[gid] for gid in event.graphs if record.graphs[gid].kind not in MARK_KINDS]
    made = all(graph.kind in CALLED_KINDS and not _repeats(graph, event) for graph in starts)
    return frozenset(graph.gid for graph in starts) if made else frozenset()


def _is_fresh(graph: Graph) -> bool:
    """Whether a graph is surely this call's own: not what a method of an unknown object may share with another of its results."""
    return graph.kind in CERTAIN_KINDS or graph.direct or graph.module < 0


def _follows(runs: Runs, record: Record, event: Backward, other: Backward, own: frozenset[int], data: frozenset[int]) -> bool:
    """Whether another backward may run after this one and go through a graph of it. What is taken for data is none."""
    all_theirs = record.ancestors(other.graphs | other.hints)
    theirs = all_theirs - data
    apart = _excludes(record, event.site, other.site)
    same_turn = not apart and not precedes(record, other.site, event.site)
    if not all_theirs:
        return same_turn and not other.known  # of a value that nothing is known of
    fed = {g for g in own if record.graphs[g].kind is GraphKind.PARAM} - event.graphs  # the callers are asked of it
    shared = theirs & own - fed
    common = _common(event.site.loops, other.site.loops)
    if same_turn and (shared or any(_may_share(runs, record, record.graphs[g], own) for g in theirs)):
        return True
    return any(len(record.graphs[g].site.loops) < len(common) for g in shared if record.graphs[g].kind is not GraphKind.PARAM)


def _may_share(runs: Runs, record: Record, theirs: Graph, own: frozenset[int]) -> bool:
    """Whether a graph that a method of an unknown object gives may be part of one that is already there: that of the same object, or of
    what may be part of it. What the object itself gives when a module is called is new."""
    if theirs.kind is GraphKind.PARAM or _is_fresh(theirs):
        return False
    if any(other.site.key == theirs.site.key for other in record.graphs.values() if other.kind is GraphKind.FORWARD):
        return False
    call = record.call_of(theirs)
    return any(_is_related(record.graphs[gid], theirs) and not _is_again(runs, record, record.graphs[gid], call) for gid in own)


def _starts_anew(runs: Runs, record: Record, event: Backward, other: Backward) -> bool:
    """Whether all that another backward starts from, one more call of the same methods has worked out."""
    starts = [record.call_of(record.graphs[gid]) for gid in other.graphs if record.graphs[gid].kind not in MARK_KINDS]
    mine = [record.graphs[gid] for gid in event.graphs]
    return bool(starts) and all(any(_is_again(runs, record, graph, call) for graph in mine) for call in starts)


def _is_again(runs: Runs, record: Record, graph: Graph, call: Graph) -> bool:
    """Whether a method that gave something is called once more with what it is to work on: then it works that out anew, if none of the
    methods in sight that may be meant leaves something with a graph in its object."""
    first = record.call_of(graph)
    if first.what != call.what or first.site.key == call.site.key or not call.parents:
        return False
    meant = runs.world.project.methods_named(call.what.rpartition(".")[2])
    known = [runs.records(ref) for ref in meant if runs.root_of(ref) == ref] if len(meant) <= MAX_CALLERS else []
    return bool(known) and len(known) == len(meant) and not any(map(_leaves_a_graph, chain.from_iterable(known)))


def _leaves_a_graph(record: Record) -> bool:
    """Whether a run puts something that may have a graph of a call where it outlives the function."""
    kept = [event for event in record.events.values() if isinstance(event, (Store, Accumulate)) and _is_kept(event)]
    above = (record.graphs[gid] for event in kept for gid in record.ancestors(event.graphs | event.hints))
    return any(graph.kind in MADE_KINDS for graph in above)


def _is_related(graph: Graph, theirs: Graph) -> bool:
    """Whether a graph may be of the object that gives another one, or of a part of it."""
    if graph.kind not in CALLED_KINDS:
        return False
    if graph.module in (-1, theirs.module):
        return True
    receiver = theirs.what.rpartition(".")[0]
    first, second = f"{graph.what}.", f"{receiver}."
    return graph.site.frame == theirs.site.frame and (first.startswith(second) or second.startswith(first))


def _is_apart(record: Record, event: Backward, site: Site, graphs: frozenset[int]) -> bool:
    """Whether a site is come to only in iterations in which the backward is not, with graphs that the same iteration made: none made in
    the backward's branch, or carried round the loop, and still there when the other branch runs."""
    if not _excludes(record, event.site, site):
        return False
    common = len(_common(event.site.loops, site.loops))
    if any(isinstance(each, (Store, Accumulate)) and each.graphs & (event.graphs | graphs) for each in record.events.values()):
        return False  # a container may bring it into the other branch of a later iteration
    made = [record.graphs[gid] for gid in graphs]
    return all(
        graph.kind is not GraphKind.CARRIED and len(graph.site.loops) >= common and not _excludes(record, graph.site, site)
        for graph in made
    )


def _excludes(record: Record, first: Site, second: Site) -> bool:
    """Whether an iteration that comes to the first site does not come to the second."""
    return exclusive(first, second) or _leaves_before(record, first, second)


def _leaves_before(record: Record, first: Site, second: Site) -> bool:
    """Whether a branch that has the first site leaves its block before it comes to the second."""
    inside = second.loops == first.loops and _is_inside(record, second.frame, first.frame)
    return inside and any(
        (first.frame, first.loops, test) in record.leaving and test not in second.guards for test in first.guards
    )


def precedes(record: Record, first: Site, second: Site) -> bool:
    """Whether one site stands before another in the text of the function that has both (calls stand for their bodies)."""
    for a, b in zip(_path(record, first), _path(record, second), strict=False):
        if a != b:
            return a < b
    return False


def _path(record: Record, site: Site) -> list[int]:
    nodes = [site.node]
    frame = record.frames[site.frame]
    while frame.parent >= 0:
        nodes.append(frame.call)
        frame = record.frames[frame.parent]
    return nodes[::-1]


def exclusive(first: Site, second: Site) -> bool:
    """Whether two sites stand on different branches of one test."""
    return first.loops == second.loops and any(
        f"not {test}" in b for a, b in ((first.guards, second.guards), (second.guards, first.guards)) for test in a
    )


def _common(left: tuple[tuple[int, int], ...], right: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def _escape_of(runs: Runs, record: Record, event: Backward, own: frozenset[int], depth: int) -> str:
    """How a value that is attached to the graph may reach a backward out of this function; ``NEEDLESS`` where it cannot."""
    solid, family = _made_and_family(record, event, own)
    steps = _steps_in_turn(record, event)
    lone = len({step.name for step in steps}) == 1
    first = _networks_of(record, (g for g in solid if not record.ancestors(record.graphs[g].parents) & solid))

    def is_spent(value: frozenset[int]) -> bool:
        return bool(steps) and bool(first) and first <= _networks_of(record, record.ancestors(value))

    kept = [
        other
        for other in record.events.values()
        if isinstance(other, (Store, Accumulate))
        and other.graphs & family
        and _is_kept(other)
        and not _is_apart(record, event, other.site, other.graphs)
    ]
    kept = [other for other in kept if not (_collects(other) and is_spent(other.graphs))]
    read = next((other.place for other in kept if _may_be_read_later(runs, record, other)), None)
    if read is not None:
        return f"`{read}` keeps a value of it, which may be read by what back-propagates"
    passed: dict[Site, set[int]] = {}
    carried = {gid for gid, graph in record.graphs.items() if graph.kind is GraphKind.CARRIED}
    late = {sink.site for gid in carried for sink in record.sinks.get(gid, ()) if sink.kind is SinkKind.PASSED}
    for gid in family:
        for sink in record.sinks.get(gid, ()):
            if sink.kind is SinkKind.YIELDED:
                return "a value of it is yielded"
            if sink.kind is not SinkKind.PASSED or not precedes(record, event.site, sink.site):
                continue
            if sink.site in late or not _is_apart(record, event, sink.site, frozenset((gid,))):
                passed.setdefault(sink.site, set()).add(gid)
    for site, given in passed.items():
        before = [precedes(record, step.site, site) for step in steps]
        later = len(site.loops) < len(event.site.loops) or all(before) or (lone and any(before))
        if not later or not is_spent(frozenset(given)):
            how = next(s.how for gid in sorted(given) for s in record.sinks[gid] if s.site == site)
            return f"a value of it is passed to `{how}`, which is not visible"
    if any(not is_spent(value) for value in _returned(record, family)):
        fate = runs.fate_of_result(record.root, depth)
        if fate.trains or (fate.escapes and not fate.unread) or fate.kept or fate.passed:
            return "a value of it is returned, and may be back-propagated by a caller"
    return NEEDLESS


def _networks_of(record: Record, gids: Iterable[int]) -> set[object]:
    """What runs to make some graphs: the same network with the same parameters, each time and in each branch that it is called."""
    calls = [record.call_of(record.graphs[gid]) for gid in gids]
    return {(call.module, call.what) if call.module >= 0 else call.gid for call in calls}


def _steps_in_turn(record: Record, event: Backward) -> list[CallEffect]:
    """The steps of optimizers behind a backward in each iteration of its loop. What is taken out of the loop, or used behind
    the step of the only optimizer or behind all steps, is then of no use for training: autograd refuses to go back through what
    was computed with parameters that have changed since. A single step says less: it may be that of another part (a temperature,
    a discriminator) than the one that is trained next."""
    return [
        other
        for other in record.events.values()
        if event.site.loops
        and isinstance(other, CallEffect)
        and other.effect in (CallByName.OPTIMIZER_STEP, CallByName.POSSIBLE_STEP)
        and other.site.loops == event.site.loops
        and precedes(record, event.site, other.site)
    ]


def _collects(event: Store | Accumulate) -> bool:
    """Whether a place gathers a value of each iteration, instead of holding the last one for whoever comes next."""
    return isinstance(event, Accumulate) or event.how in GATHERING


def _returned(record: Record, family: frozenset[int]) -> list[frozenset[int]]:
    """What each returned value is attached to, of those that are attached to a family of graphs; all of it together where they
    are not distinguished."""
    values = []
    todo = list(record.result)
    while todo:
        atom = todo.pop()
        if type(atom) is Tuple:
            todo += [inner for item in atom.items for inner in item]
        elif type(atom) is Tensor:
            values.append(frozenset(atom.graphs | atom.hints))
        elif type(atom) is Unknown:
            values.append(frozenset(atom.hints))
    hanging = [value for value in values if value & family]
    rest = (record.returned & family).difference(*hanging)
    return [*hanging, frozenset(rest)] if rest else hanging


def _is_within_reach(runs: Runs, record: Record, event: Backward, own: frozenset[int]) -> bool:
    """Whether a function that was called, and not followed, may back-propagate what it finds without being given it: in the variables of a
    function around it, in those of the module, or in an attribute. (What it is given is passed to code that is not visible.)"""
    refs = frozenset().union(*record.unfollowed.values()) if record.unfollowed else frozenset[FunctionRef]()
    if not refs:
        return False
    _, family = _made_and_family(record, event, own)
    kept = any(isinstance(e, (Store, Accumulate)) and "." in e.place and e.graphs & family for e in record.events.values())

    def finds(ref: FunctionRef) -> bool:
        around = runs.root_of(ref) != ref or (record.root.qualname == MODULE and ref.path == record.root.path)
        if around and (record.final is None or not _names_of(record, family).isdisjoint(runs.world.facts(ref).names)):
            return True
        return kept and bool(runs.world.header(ref).owner)

    return any(finds(ref) and _may_go_back(runs, ref) for ref in sorted(refs))


def _names_of(record: Record, family: frozenset[int]) -> set[str]:
    """The variables of the root that hold a value of some graphs when it ends."""
    places = record.final.vars.items() if record.final is not None else ()
    return {
        name
        for (frame, name), value in places
        if frame == 0 and any(type(atom) is Tensor and (atom.graphs | atom.hints) & family for atom in value)
    }


def _made_and_family(record: Record, event: Backward, own: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    """Of the graphs that a backward goes through, those that surely are some, and all that hang on what was made here. What a parameter
    brought in, the callers are asked of: it goes where it likes without this graph."""
    solid = frozenset(g for g in own if _is_solid(record.graphs[g])) or _started(record, event)
    made = frozenset(g for g in own if record.graphs[g].kind is not GraphKind.PARAM) if solid else own
    return solid, frozenset().union(*(descendants(record, g) for g in made)) if made else frozenset()


def _may_go_back(runs: Runs, ref: FunctionRef) -> bool:
    """Whether a function back-propagates, or may call one of the project that does."""
    project = runs.world.project
    seen, todo = {ref}, [ref]
    while todo:
        at = todo.pop()
        facts = runs.world.facts(at)
        if _says_backward(facts) or len(seen) > MAX_BELOW:
            return True
        for call in facts.calls:
            below = set(project.callees(at.path, at.qualname, call.callee, *call.keywords).refs) - seen
            seen |= below
            todo += below
    return False


def _may_be_read_later(runs: Runs, record: Record, event: Store | Accumulate) -> bool:
    """Whether what is kept may be read by what back-propagates: in a method of the class that keeps it, or, where the root is no
    method of that class, in any function beside the two that says the attribute's name."""
    if not event.place.startswith("self."):
        return True
    keeper = record.frames[event.site.frame].ref
    owner, name = runs.world.header(keeper).owner, NAMED.findall(event.place)[0]
    if _class_goes_back(runs, keeper, record.root, name):
        return True
    return keeper != record.root and any(
        _goes_back_with(runs.world, path, owner, name) for path in {keeper.path, record.root.path}
    )


@memoized
def _goes_back_with(world: World, path: str, owner: str, name: str) -> bool:
    """Whether a function of a file that is no method of a class reads an attribute of a name, and back-propagates."""
    return any(
        facts.owner != owner and _says_backward(facts) and _reads_attribute(facts, name)
        for facts in world.project.module(path).functions
    )


def _reads_attribute(facts: FunctionFacts, name: str) -> bool:
    texts = (*facts.reads, *(text for _, text in (*facts.bound, *facts.rebound)), *(call.callee for call in facts.calls))
    return name in facts.names and any(name in re.split(r"\W+", text.partition(".")[2]) for text in texts)


def _class_goes_back(runs: Runs, keeper: FunctionRef, seen: FunctionRef, name: str) -> bool:
    """Whether another method of the function's class, of its bases or of its subclasses reads an attribute, and another back-propagates
    anything, or is out of sight; but one whose backwards are looked at anyway."""
    project = runs.world.project
    own = runs.world.class_of_method(keeper)
    if own is None:
        return True
    classes = [*project.mro(own), *project.subclasses(own)]
    if any(isinstance(cls, str) and cls.partition(".")[0] not in PLAIN_ROOTS | {"torch"} for cls in classes):
        return True

    def others(*words: str) -> list[FunctionFacts]:
        known = [cls for cls in classes if isinstance(cls, ClassRef)]
        refs = [FunctionRef(cls.path, each) for cls in known for each in project.saying(cls.path, cls.qualname, *words)]
        return [runs.world.facts(ref) for ref in refs if ref.qualname != keeper.qualname and ref != seen]

    read = any(_reads_attribute(facts, name) for facts in others(name))
    return read and any(_says_backward(facts) for facts in others(*GOING_BACK))


def _says_backward(facts: FunctionFacts) -> bool:
    """Whether a function says a word that back-propagates, or calls something named ``grad``: an attribute of that name is only read."""
    if not facts.names.isdisjoint(BACK_PROPAGATES):
        return True
    return GRADIENT in facts.names and any(call.callee.rpartition(".")[2] == GRADIENT for call in facts.calls)


def _is_kept(event: Store | Accumulate) -> bool:
    return event.external if isinstance(event, Store) else event.holder_frame < 0


def _needless_for_callers(runs: Runs, record: Record, event: Backward, whole: bool, depth: int) -> bool:
    """What a parameter brings in may be a graph of the caller's: a loss that comes in ``whole`` must be needed by none of them,
    and all must be visible. What only goes into a model here is taken for data, unless a caller shows that it is not."""
    ref = record.frames[event.site.frame].ref
    callers = runs.world.project.callers(record.root)
    known = bool(callers.calls) and not callers.escapes and len(callers.calls) <= MAX_CALLERS and depth < MAX_DEPTH
    if not known:
        return not whole
    roots = sorted({runs.root_of(c.ref) for c in callers.calls if not _is_overridden(runs, c.ref, ref)} - {record.root})
    answers = {need_of(runs, root, ref, event.site.node, depth + 1, whole) for root in roots}
    unseen = {NOT_SEEN, NOT_FOLLOWED}
    return answers <= {NEEDLESS, *unseen} and not (whole and answers & unseen)


def _is_overridden(runs: Runs, caller: FunctionRef, ref: FunctionRef) -> bool:
    """Whether a calling method of a base class is not the one that objects of the called method's class have: then its call
    through ``self`` reaches another override."""
    world = runs.world
    owner, base = world.header(ref).owner, world.header(caller).owner
    if not owner or not base or ClassRef(caller.path, base) not in world.project.mro(ClassRef(ref.path, owner))[1:]:
        return False
    return world.project.method(ClassRef(ref.path, owner), caller.qualname.rpartition(".")[2]) != caller
