"""What one run over a function recorded: graphs, what became of them, events.

Rules read nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torchmemlint.index.project import FunctionRef
from torchmemlint.semantics.state.event_words import RecordFlag, Seen
from torchmemlint.semantics.state.events import Backward, Event, Store
from torchmemlint.semantics.state.flow_state import Kind, Meter, Mode, State
from torchmemlint.semantics.state.graphs import (
    CALLED_KINDS,
    CERTAIN_KINDS,
    EACH_PART,
    UNSURE_KINDS,
    Condition,
    Frame,
    Graph,
    GraphKind,
    Sink,
    Site,
)
from torchmemlint.semantics.state.values import EMPTY, Value
from torchmemlint.torch_facts import TORCH

BACKWARD = TORCH.names["backward"]


@dataclass(frozen=True, slots=True)
class CallFate:
    """One call of a project function: the mark of its result, which shows what the caller does with it, and the graphs that
    this is attached to, or may."""

    callee: FunctionRef
    site: Site
    mode: Mode
    mark: int
    graphs: frozenset[int]


@dataclass(frozen=True, slots=True)
class LoopInfo:
    """What a loop runs over: the iterable's text, and its kind (None when unknown)."""

    text: str
    kind: Kind | None
    targets: frozenset[str] = frozenset()
    """Names that each iteration binds."""
    attempts: bool = False
    """An iteration that succeeds leaves the loop: each iteration is one more attempt at the same thing."""
    listed: bool = False
    """A list comprehension's: what the iterations make is held together, until the list goes."""
    is_while: bool = False
    turns: int = -1
    """How many turns it has at most, -1 where that is not known."""


@dataclass(slots=True)
class Record:
    """One run over a root function under one set of assumptions about its phase."""

    root: FunctionRef
    mode: Mode
    assumptions: tuple[tuple[str, bool], ...]
    frames: list[Frame] = field(default_factory=list)
    graphs: dict[int, Graph] = field(default_factory=dict)
    sinks: dict[int, tuple[Sink, ...]] = field(default_factory=dict)
    """Graphs → the sinks that their values went to, once the run is over."""
    evidence: dict[int, set[str]] = field(default_factory=dict)
    operations: dict[int, set[str]] = field(default_factory=dict)
    """Torch functions and operators (by their last name; "loss" for a loss) that took a value which is attached to a graph or
    mark."""
    carried: dict[tuple[tuple[int, str], tuple[int, int]], set[int]] = field(default_factory=dict)
    """A place and a loop that carries it round → the graphs and marks that its value is attached to when a pass of the loop
    ends."""
    reused: set[tuple[int, str]] = field(default_factory=set)
    """Places that a loop carries round and whose values a module was given after a backward had run through their graphs."""
    backwarded: set[int] = field(default_factory=set)
    """Graphs and marks that certainly or possibly reach a backward."""
    trained: set[int] = field(default_factory=set)
    """Graphs that certainly reach a backward, if they are real."""
    freed: set[int] = field(default_factory=set)
    """Graphs whose saved tensors a backward certainly freed (no ``retain_graph``, not partial)."""
    events: dict[tuple[str, int, int, str], Event] = field(default_factory=dict)
    forwards: dict[int, Graph] = field(default_factory=dict)
    """Forwards that ran with grad mode off, by output number (those with grad on are in ``graphs``)."""
    arrays: dict[int, set[Site]] = field(default_factory=dict)
    """Forwards → where arrays are made of their outputs, which nothing moved to the host before."""
    fates: list[CallFate] = field(default_factory=list)
    handed: set[FunctionRef] = field(default_factory=set)
    """Closures that the root gives to what runs them (``pool.map(score, batches)``)."""
    hook_arguments: set[int] = field(default_factory=set)
    """The graphs of what modules give the hooks that the root registers, where these are visible."""
    flags: set[RecordFlag] = field(default_factory=set)
    unfollowed: dict[tuple[int, int], set[FunctionRef]] = field(default_factory=dict)
    """Key of a call's site → the functions of the project that were called there, and not followed: too deep, or the run was too long by
    then."""
    leaving: set[tuple[int, tuple[tuple[int, int], ...], str]] = field(default_factory=set)
    """The tests under which a branch leaves its block (``continue``, ``return``), each with its frame and the loops around."""
    loops: dict[tuple[int, int], LoopInfo] = field(default_factory=dict)
    drawing: set[tuple[int, int]] = field(default_factory=set)
    """Loops of which each iteration takes the next of what was there before (``next(batches)``)."""
    resets: dict[tuple[tuple[int, str], tuple[int, int]], set[tuple[str, ...]]] = field(default_factory=dict)
    """A place that was added to, or a container with "", and a loop in which some turns give the place a number, or the container's name
    another one → the tests under which they do."""
    cleared: set[int] = field(default_factory=set)
    """Containers that are emptied by ``clear()`` somewhere in the run."""
    trimmed: set[tuple[int, tuple[int, int] | None]] = field(default_factory=set)
    """Containers whose oldest element is taken out, with each loop in which that happens, and with None for the call."""
    returned: set[int] = field(default_factory=set)
    """Graphs and marks that the root returns or yields."""
    alive: set[int] = field(default_factory=set)
    """What files were read into, and parts of it, that some name still holds at a backward or forward inside a loop."""
    in_dicts: set[int] = field(default_factory=set)
    """Those of them whose tensors are in a dict that the run made."""
    given_away: set[int] = field(default_factory=set)
    """What files were read into, of which the root gives something to its callers, or to an object that they have."""
    in_unknown_mode: frozenset[int] = frozenset()
    """The forwards that ran in a grad mode that is not known."""
    stepping: set[tuple[int, int]] = field(default_factory=set)
    """The loops and calls, by frame and node, around these backwards and forwards."""
    final: State | None = None
    """The state in which the root ends."""
    conditions: dict[int, Condition] = field(default_factory=dict)
    """Modules that one branch froze → its test."""
    result: Value = EMPTY
    """What the root returns."""
    asking: Meter | None = None
    """Counts what questions look at that go from graph to graph once the run is over. All records of a process share it, as such
    a question may lead to other functions."""
    step: int = 0
    """What looking at one graph counts: one, and the sinks that a graph has on average."""
    known_children: dict[int, list[int]] | None = None
    """What ``children`` was worked out to be, once the run was over; ``outliving`` and ``call_results`` are such tables, too."""
    outliving: set[tuple[int, int]] | None = None
    """Keys of the sites at which a value is put where it outlives the root."""
    known_methods: dict[str, set[str]] | None = None
    known_backwards: dict[int, list[Backward]] | None = None
    """What ``trained_methods`` and ``backwards_of`` were worked out to be."""
    known_fates: dict[int, object] = field(default_factory=dict)
    """What becomes of a graph's values in this record (``runs.Fate``): rules ask about each graph beside each other one."""
    call_results: dict[tuple[int, int], int] | None = None
    """Key of a call's site → the graph of its result, where that depends on what the call was given."""
    tracked: dict[int, bool] = field(default_factory=dict)
    """Such a graph → whether something is done with the result."""

    @property
    def children(self) -> dict[int, list[int]]:
        """Graphs and marks → the graphs that depend on them; marks excepted (they are ways, not graphs). To look at it is to
        look at one graph, and is counted."""
        self.note_asked(1)
        if self.known_children is None:
            self.known_children = {}
            self.step = 1 + sum(map(len, self.sinks.values())) // max(1, len(self.graphs))
            for gid, graph in self.graphs.items():
                if graph.kind in CALLED_KINDS:
                    for parent in graph.parents:
                        self.known_children.setdefault(parent, []).append(gid)
        return self.known_children

    def note_asked(self, graphs: int) -> None:
        """Counts looks at graphs."""
        if self.asking is not None:
            self.asking.take(self.step * graphs)

    @property
    def trained_methods(self) -> dict[str, set[str]]:
        """Receiver → its methods that give, as calls that are not visible, what is back-propagated; each with the receiver."""
        if self.known_methods is None:
            self.known_methods = {}
            for gid, graph in self.graphs.items():
                if graph.kind is GraphKind.OPAQUE and gid in self.trained:
                    self.known_methods.setdefault(graph.what.rpartition(".")[0], set()).add(graph.what)
        return self.known_methods

    def backwards_of(self, gid: int) -> list[Backward]:
        """The backwards that reach a graph, once the run is over."""
        if self.known_backwards is None:
            self.known_backwards = {}
            for event in (each for each in self.events.values() if isinstance(each, Backward)):
                for reached in self.ancestors(event.graphs | event.hints):
                    self.known_backwards.setdefault(reached, []).append(event)
        return self.known_backwards.get(gid, [])

    def weight(self) -> int:
        """How much there is to look at for a question about all of the record."""
        parents = sum(len(graph.parents) for graph in self.graphs.values())
        return len(self.events) + len(self.graphs) + parents + sum(map(len, self.sinks.values()))

    def is_let_go(self, event: Store) -> bool:
        """Whether what is stored goes again: the holder is emptied, or loses its oldest element where this one is put in."""
        return event.holder in self.cleared or (event.holder, event.loop) in self.trimmed

    def ancestors(self, gids: frozenset[int], ends: Callable[[Graph], bool] | None = None) -> frozenset[int]:
        """The graphs and all that they are attached to, or what lies no further than graphs of which ``ends`` holds."""
        out: set[int] = set()
        todo = set(gids)
        while todo:
            out |= todo
            known = [self.graphs[gid] for gid in todo if gid in self.graphs]
            todo = {parent for graph in known if ends is None or not ends(graph) for parent in graph.parents} - out
        return frozenset(out)

    def real(self, gid: int) -> bool:
        """Whether the graph surely exists: a forward or parameter with grad mode on, or an opaque result that the code itself
        treats as attached (it is back-propagated; or an unknown object is called, and what it gives reaches a backward)."""
        graph = self.graphs[gid]
        if graph.kind in CERTAIN_KINDS:
            return not graph.frozen and (graph.mode is Mode.ON or gid in self.backwarded)
        if graph.kind in UNSURE_KINDS:
            known = BACKWARD in self.evidence.get(gid, ()) or (graph.direct and gid in self.trained)
            return known or self.visits_trained_part(graph)
        return False

    def wholes(self, gid: int) -> list[int]:
        """The opaque result of which the graph's value is a part (``losses`` of ``losses["total"]``)."""
        graph = self.graphs[gid]
        parents = [self.graphs[parent] for parent in graph.parents if graph.kind is GraphKind.OPAQUE]
        return [p.gid for p in parents if p.kind in UNSURE_KINDS and p.site == graph.site and graph.what.startswith(p.what)]

    def call_of(self, graph: Graph) -> Graph:
        """What a call that is not visible gave, of which the graph's value is all or a part."""
        above = self.wholes(graph.gid)
        return self.call_of(self.graphs[above[0]]) if above else graph

    def visits_trained_part(self, graph: Graph) -> bool:
        """Whether a loop takes every part of an opaque result in turn, of which one is back-propagated."""
        return graph.what.endswith(EACH_PART) and any(
            Seen.PART_BACKWARD in self.evidence.get(whole, ()) for whole in self.wholes(graph.gid)
        )
