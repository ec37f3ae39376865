"""What is known of how much a forward's graph holds: which graphs are small, whatever model the user has."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Flow
from torchmemlint.rules.reach import (
    FORWARD,
    acts,
    is_fed_on_host,
    is_given_an_observation,
    is_of_host_program,
    is_on_host,
    is_read_on_host,
    is_without_gpu,
)
from torchmemlint.semantics.dataflow import keeps_optimizers
from torchmemlint.semantics.identity import DEEP_COPIES, given_frozen
from torchmemlint.semantics.roots import descendants
from torchmemlint.semantics.size import (
    WIDE,
    estimate_of,
    is_class_of_dense,
    is_made_of_dense,
    is_one_layer,
    sizes_of,
    weights_of,
)
from torchmemlint.semantics.state import (
    CALLED_KINDS,
    CERTAIN_KINDS,
    Backward,
    Graph,
    GraphKind,
    RecordFlag,
    SinkKind,
    World,
    memoized,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

MAX_DEPTH = 3
"""How far a module is followed into those that it is made of."""
LAYERS = TORCH.words["saves-its-input"]
NARROW = f"the network has only linear layers, none known to exceed {WIDE:,} features"
LONE = "a linear or embedding layer saves only its input, which has no graph of its own"
IN_PART = "most of the network is frozen, so only the parts that learn and what follows them save tensors"
TINY = 250_000
"""Parameters up to which a network whose layers do not go over positions saves little: 1 MB, and some MB for a batch."""
BYTES = 4
"""Of a parameter in single precision."""
LARGE_BYTES = 75_000_000
"""Bytes from which on a copy of a network's weights is worth a change: what readers of some 200 findings took for it."""
SIZE_UNKNOWN = "the code does not show that the networks are large"
ON_HOST = "it runs on the host, where nothing is moved to a device"
ONE_STEP = "the batch is one step of an environment"
ENDS_AT_ONCE = "dropped at the detach, before that of the training step is built"


def why_small(graphs: Sequence[Graph], flow: Flow) -> str:
    """Why the graphs of some forwards are small together beside that of a training step, in words; "" where one may be large."""
    networks = [graph for graph in graphs if not is_loss(graph, flow)]
    if not networks:
        return ""
    if all(are_dense(graph, flow) for graph in networks):
        return NARROW
    if all(is_lone_layer(graph, flow) for graph in networks):
        return LONE
    if all(graph.in_part or given_frozen(flow.runs.world, flow.record.root, graph.what) for graph in networks):
        return IN_PART
    counts = [tiny_count(each, flow) for each in networks]
    return f"the network has {in_words(sum(counts))} parameters, and no layer goes over positions" if all(counts) else ""


def why_one_step(graph: Graph, flow: Flow) -> str:
    """Why the batch of a forward is one step of an environment, in words."""
    acting = RecordFlag.BACKWARD not in flow.record.flags and acts(flow.record.root, flow)
    return ONE_STEP if acting or is_given_an_observation(graph, flow) else ""


def why_dropped_first(graph: Graph, flow: Flow) -> str:
    """Why a graph is gone before that of the training step is built, in words."""
    return ENDS_AT_ONCE if is_cut_at_once(graph, flow) and is_first_of_step(graph, flow) else ""


def why_on_host(graph: Graph, flow: Flow) -> str:
    """Why a forward runs on the host, in words; "" where it may run on a device."""
    if is_without_gpu(graph.site):
        return "it runs only without a GPU"
    if is_of_host_program(flow.runs.world, flow.record.root) or (
        not is_in_training_loop(graph, flow) and is_on_host(graph, flow)
    ):
        return ON_HOST
    if is_read_on_host(graph, flow):
        return "it runs on the host, as `numpy()` of its result would raise for a tensor on a GPU"
    return "it runs on the host, where its input is made" if is_fed_on_host(graph, flow) else ""


def tiny_count(graph: Graph, flow: Flow) -> int:
    """The parameters of the network that a forward runs, where they are few and none of its layers goes over positions; else 0."""
    weights = weights_of(flow.runs.world, flow.frame(graph.site).ref, graph.what)
    return 0 if weights is None or weights.count > TINY or weights.spatial else weights.count


def in_words(count: int) -> str:
    """A number of parameters, rounded up."""
    for unit, name in ((1_000_000, " million"), (1_000, " thousand")):
        if count >= unit:
            return f"at most {math.ceil(10 * count / unit) / 10:g}{name}"
    return str(count)


def why_little(networks: Iterable[tuple[FunctionRef, str]], more: bool, flow: Flow) -> str:
    """Why a file with the weights of some networks is not known to be large, as the end of a cost; "" where it is large. Each network is
    a function and the name that it has there; ``more``: the file holds something else that nothing takes over, such as the state of an
    optimizer."""
    world = flow.runs.world
    networks = [*networks]
    found = [weights_of(world, *network) for network in networks]
    counts = [each.count for each in found if each is not None]
    if counts and len(counts) == len(found) and BYTES * sum(counts) * (3 if more else 1) < LARGE_BYTES:
        return f"small here: its networks have {in_words(sum(counts))} parameters"
    about = sum(estimate_of(world, *network) for network in networks)
    twice = more and keeps_optimizers(world)
    return "" if BYTES * about * (2 if twice else 1) >= LARGE_BYTES else SIZE_UNKNOWN


def is_in_training_loop(graph: Graph, flow: Flow) -> bool:
    """Whether a backward stands in the outermost loop around a forward, however deep: there its graph adds to those of the training."""
    around = graph.site.loops[:1]
    return bool(around) and any(
        isinstance(event, Backward) and event.site.loops[:1] == around for event in flow.record.events.values()
    )


def are_on_host(networks: Iterable[Graph], flow: Flow) -> bool:
    """Whether a program runs networks on the host: it moves nothing to a device, or moves none of these."""
    networks = [graph for graph in networks if not is_loss(graph, flow)]
    return is_of_host_program(flow.runs.world, flow.record.root) or (
        bool(networks) and all(is_on_host(graph, flow) for graph in networks)
    )


def forwards_among(gids: frozenset[int], flow: Flow) -> list[Graph]:
    """The forwards of networks that some graphs are attached to, or are."""
    above = (flow.record.graphs[gid] for gid in sorted(flow.record.ancestors(gids)))
    return [graph for graph in above if graph.kind is GraphKind.FORWARD]


def is_first_of_step(graph: Graph, flow: Flow) -> bool:
    """Whether a step's backward follows a forward in the same loop, and no graph that it walks is there already."""
    record = flow.record
    here, loops = flow.span(graph.site).end, graph.site.loops
    steps = [e for e in record.events.values() if isinstance(e, Backward) and flow.own(e.site) and e.site.loops == loops]
    trained = [each for gid in record.backwarded if (each := record.graphs.get(gid)) is not None and each.kind in CALLED_KINDS]
    before = [each for each in trained if flow.own(each.site) and flow.span(each.site).end < here]
    return any(flow.span(e.site).end > here for e in steps) and not any(each.site.loops == loops for each in before)


def is_cut_at_once(graph: Graph, flow: Flow) -> bool:
    """Whether the statement of the forward cuts the graph off again, or one that gives its result's name to what is cut off: no name
    holds it when what follows runs."""
    record = flow.record
    sinks = [s for g in descendants(record, graph.gid) for s in record.sinks.get(g, ())]
    if not sinks or any(s.kind is not SinkKind.CUT or s.site.frame != graph.site.frame for s in sinks):
        return False
    lowered = flow.lowered(graph.site)
    own = lowered.statement(graph.site.node)[1]
    targets = TARGETS.match(own)
    names = {name for name in targets[1].split(", ") if name != UNUSED} if targets is not None else set()
    texts = {lowered.statement(s.site.node)[1] for s in sinks}
    rebound = {name for name in names if any(text.startswith(f"{name} = ") for text in texts)}
    return all(text == own or any(text.startswith(f"{name} = ") for name in rebound) for text in texts) and (
        texts == {own} or rebound == names
    )


def stays_bound(graph: Graph, flow: Flow) -> bool:
    """Whether a name of the function whose loop runs a forward may hold its result while the next turn runs another: not where the
    statement cuts it off, or where it is cut off in functions that the loop calls, and their names are gone."""
    if not graph.site.loops or is_cut_at_once(graph, flow):
        return False
    frame = graph.site.loops[-1][0]
    below = descendants(flow.record, graph.gid)
    return graph.site.frame == frame or any(s.site.frame == frame for gid in below for s in flow.record.sinks.get(gid, ()))


TARGETS = re.compile(r"([A-Za-z_][\w.]*(?:, [A-Za-z_][\w.]*)*) = ")
"""The names that a statement assigns, in normalised source."""
UNUSED = "_"
"""What people call what they do not want: it is taken to hold nothing of the graph."""


def is_lone_layer(graph: Graph, flow: Flow) -> bool:
    """Whether a graph is that of one linear or embedding layer, on data that has no graph, and no module but a loss works on its
    result."""
    record = flow.record
    if layer_of(graph, flow) not in LAYERS and not wraps_a_layer(graph, flow):
        return False
    above = [record.graphs[gid] for gid in record.ancestors(graph.parents)]
    built = any(other.kind in CERTAIN_KINDS or (other.kind is GraphKind.OPAQUE and other.direct) for other in above)
    return not built and not networks_below(graph, flow)


def wraps_a_layer(graph: Graph, flow: Flow) -> bool:
    """Whether a network has one linear or embedding layer, and its forward does no more than call that and change shapes."""
    world, cls = flow.runs.world, graph.cls
    forward = world.project.method(cls, FORWARD) if cls is not None else None
    if cls is None or forward is None:
        return False
    calls = [call.callee.rpartition(".") for call in world.facts(forward).calls]
    plain = all(
        TORCH.methods.get(name) in SHAPES or (holder == "self" and world.project.method(cls, name) is None)
        for holder, _, name in calls
    )
    return plain and is_one_layer(world, flow.frame(graph.site).ref, graph.what)


SHAPES = frozenset({Effect.VIEW, Effect.DEVICE, Effect.SHAPE})
"""What a method does that saves no tensor."""


def networks_below(graph: Graph, flow: Flow) -> list[Graph]:
    """The modules that are given what a forward gives, losses aside: their graphs are attached to its graph."""
    below = (flow.record.graphs[gid] for gid in descendants(flow.record, graph.gid) - {graph.gid})
    return [other for other in below if other.kind is GraphKind.FORWARD and not is_loss(other, flow)]


def is_loss(graph: Graph, flow: Flow) -> bool:
    """Whether a graph is that of one of torch's loss modules."""
    return layer_of(graph, flow).endswith("Loss")


def layer_of(graph: Graph, flow: Flow) -> str:
    """The name of the class in ``torch.nn`` of what was called; "" where it is none, or not known."""
    world = flow.runs.world
    ref = flow.frame(graph.site).ref
    facts = world.facts(ref)
    name = graph.what.removeprefix("self.")
    made: ClassRef | str | None = None
    if name == graph.what:
        texts = [text for bound, text in facts.bound if bound == name and text.endswith("()")]
        made = world.project.resolve(ref.path, texts[0].removesuffix("()"), ref.qualname) if texts else None
        if made is not None and world.project.function(made) is not None:  # `head = build_head(sizes)`
            made = world.project.class_of(ref.path, ref.qualname, name)
    elif facts.owner and name.isidentifier():
        made = world.project.attribute_class(ClassRef(ref.path, facts.owner), name)
    return made.rpartition(".")[2] if isinstance(made, str) and made.startswith("torch.nn.") else ""


def chains(graph: Graph, flow: Flow) -> Iterator[Graph]:
    """The forward itself, or modules that run inside it, if what one gives goes into its next run in the loop (``hidden``, an attribute
    with a state): all of its iterations' graphs are attached to each other. What runs in a loop inside the forward goes into its next
    run there, as the layers of a network do."""
    own, record = graph.site.loops, flow.record
    brought = {place[1] for (place, loop), gids in record.carried.items() if loop in own and graph.gid in gids}
    round_ = {
        gid for gid in graph.parents if record.graphs[gid].kind is GraphKind.CARRIED and record.graphs[gid].what in brought
    }
    if round_:
        yield graph
    for each in (graph, *flow.made_inside(graph.site)) if own else ():
        deeper = each.site.loops != own
        if any(gid == graph.gid if deeper else hangs_for_sure(gid, each, flow) for gid in each.parents):
            yield each


def hangs_for_sure(gid: int, graph: Graph, flow: Flow) -> bool:
    """Whether a graph is that of a forward, or is attached to it: made by a module, or by an object that the code does not show, and
    not by a function that may as well return a number."""
    other = flow.record.graphs[gid]
    attached = gid == graph.gid or gid in descendants(flow.record, graph.gid)
    return attached and (gid == graph.gid or other.kind is not GraphKind.OPAQUE or other.direct)


def are_dense(graph: Graph, flow: Flow) -> bool:
    """Whether every visible network that a forward may be of is made of narrow linear layers alone."""
    classes = classes_of(graph, flow)
    if classes and all(isinstance(cls, ClassRef) and is_class_of_dense(flow.runs.world, cls) for cls in classes):
        return True
    asked = (flow.runs.world, flow.frame(graph.site).ref, graph.what)
    return sizes_of(*asked).visible and is_made_of_dense(*asked)


def classes_of(graph: Graph, flow: Flow) -> tuple[ClassRef | str, ...]:
    """The classes of what was called, as far as they are visible: what the engine knows of it, else what callers give for it."""
    if graph.cls is not None:
        return (graph.cls,)
    return _classes_given(flow.runs.world, flow.frame(graph.site).ref, graph.what)


@memoized
def _classes_given(world: World, ref: FunctionRef, text: str) -> tuple[ClassRef | str, ...]:
    """The classes of a name or an attribute of a function: of the arguments that its calls, or those of the constructor that stores
    one, give for it; a deep copy is of the class of what it copies."""
    return _given(world, ref, text, 0)


def _given(world: World, ref: FunctionRef, text: str, depth: int) -> tuple[ClassRef | str, ...]:
    project, facts = world.project, world.facts(ref)
    ref = FunctionRef(ref.path, facts.qualname)  # a lambda has the facts of the function around it
    if text in {param.name for param in facts.params}:
        return project.classes_given(ref, text)
    found: dict[ClassRef | str, None] = {}
    for fact, owner in world.assigned(ref, text) if depth < MAX_DEPTH else ():
        maker = FunctionRef(owner.path, fact.method)
        source = copied(world, maker, text) if fact.value.startswith(DEEP_COPIES) else fact.value
        if not fact.method or source in ("", text):
            continue
        known = project.class_of(maker.path, maker.qualname, source)
        found.update(dict.fromkeys((known,) if known is not None else _given(world, maker, source, depth + 1)))
    return tuple(found)


def copied(world: World, ref: FunctionRef, text: str) -> str:
    """The name or attribute of which a method assigns a deep copy to its attribute; "" where it is not one of these."""
    facts = world.facts(ref)
    calls = [call for call in facts.calls if f"{call.callee}()" in DEEP_COPIES]
    kept = [
        f"self.{attr.name}"
        for attr in world.project.attrs(ClassRef(ref.path, facts.owner))
        if attr.method == facts.qualname and attr.value.startswith(DEEP_COPIES)
    ]
    if len(kept) != len(calls) or text not in kept:
        return ""
    given = calls[kept.index(text)].args
    return given[0].name if given else ""
