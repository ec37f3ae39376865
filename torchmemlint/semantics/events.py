"""What one run over a function told: graphs, what became of them, and events. Rules read nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.event_words import Evidence, Misuse, RecordFlag, Recovery, StoreKind
from torchmemlint.semantics.state import Kind, Meter, Mode, State
from torchmemlint.semantics.values import EMPTY, NOTHING, Value
from torchmemlint.str_enum import StrEnum
from torchmemlint.torch_facts.words import Effect, ToldCall


class GraphKind(StrEnum):
    """What a graph is, or a mark, which says by what way a value came (see ``semantics``)."""

    FORWARD = "forward"
    """A module ran."""
    LEAF = "leaf"
    """A parameter used directly."""
    OPAQUE = "opaque"
    """An unresolved call's result."""
    PARAM = "param"
    """What a parameter of the root brought in."""
    ADDED = "added"
    """A value on its way through an accumulating statement."""
    STORED = "stored"
    """A value on its way through a storing statement."""
    CARRIED = "carried"
    """What a place held when the pass of a loop began."""
    RESULT = "result"
    """What a project function returned to this call."""
    SPENT = "spent"
    """A backward ran through a graph that the value hangs on, while some name held the value."""


# Sets by name, also because reading a member of an enum takes four times as long as reading a name, up to Python 3.11.
CERTAIN_KINDS = frozenset({GraphKind.FORWARD, GraphKind.LEAF})
"""There is a graph."""
UNSURE_KINDS = frozenset({GraphKind.OPAQUE, GraphKind.PARAM})
"""There may be one."""
CALLED_KINDS = frozenset({GraphKind.FORWARD, GraphKind.OPAQUE})
"""A call made it."""
MADE_KINDS = CERTAIN_KINDS | CALLED_KINDS
"""It was made in sight: no parameter brought it in."""
GRAPH_KINDS = CERTAIN_KINDS | UNSURE_KINDS
MARK_KINDS = frozenset({GraphKind.ADDED, GraphKind.STORED, GraphKind.CARRIED, GraphKind.RESULT, GraphKind.SPENT})


class SinkKind(StrEnum):
    """What became of a value that hangs on a graph."""

    CUT = "cut"
    """Its graph was cut (``how``: the operation)."""
    KEPT_PART = "kept-part"
    """An operation gave a part with the graph and one without (``max(dim=…)``)."""
    BACKWARD = "backward"
    STORED = "stored"
    RETURNED = "returned"
    YIELDED = "yielded"
    PASSED = "passed"
    """To code out of sight (``how``: the callee's text)."""
    DROPPED = "dropped"
    """An expression statement."""
    SHOWN = "shown"
    """Formatted, printed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A function being run: the root (depth 0), or a callee inlined at ``call`` of its parent frame."""

    number: int
    ref: FunctionRef
    parent: int
    call: int
    depth: int


class Site(NamedTuple):
    """Where something happens: the frame, the IR node, the loops around it (outermost first; a loop is (frame, node)), the
    tests that guard it inside the innermost loop (their text), the ``except`` handler around it (its node, -1 for none)."""

    frame: int
    node: int
    loops: tuple[tuple[int, int], ...] = ()
    guards: tuple[str, ...] = ()
    handler: int = -1

    @property
    def key(self) -> tuple[int, int]:
        return (self.frame, self.node)


@dataclass(slots=True)
class Graph:
    """A graph or a mark (see ``semantics``).

    what      the callee's or place's text, for messages
    parents   graphs that it hangs on
    mode      grad mode when it was made
    training  what is known of the module's training flag: True after ``.train()``, False after ``.eval()``, None unknown
    module    number of the module object, -1
    frozen    all parameters of the module were frozen and no argument had a graph
    place     for "carried": the place
    cls       the module's class, where it is one of the project
    """

    gid: int
    kind: GraphKind
    site: Site
    what: str
    parents: frozenset[int] = NOTHING
    mode: Mode = Mode.ON
    training: bool | None = None
    module: int = -1
    frozen: bool = False
    place: tuple[int, str] = (-1, "")
    callee: FunctionRef | None = None
    module_loops: tuple[tuple[int, int], ...] = ()
    """The loops in which the module was made."""
    direct: bool = False
    """For "opaque": an object that the code does not show (a parameter, an attribute) was called like a function: it may
    well be a module."""
    cls: ClassRef | None = None


MUST_BE_FREE = Evidence.MUST_BE_FREE


class Sink(NamedTuple):
    """What became of a value that hangs on a graph, by what, and where."""

    kind: SinkKind
    how: str
    site: Site


@dataclass(frozen=True, slots=True)
class Accumulate:
    """A place that outlives a loop (or the calls of a method) gets a value that holds its former one plus something new.

    place     text of the target; key (object or frame number, name)
    how       "+=", "+", "ema", "call"
    mark      the mark that the value carries from here on
    graphs    graphs that the added value certainly hangs on if they are real; hints those it may hang on
    loop      the innermost loop that the place outlives; None when it outlives the calls of this function
    term      node of the added expression when the statement names it (``total += term``), else -1
    through_module  the former value went through a module's call: a recurrent state
    """

    site: Site
    place: str
    key: tuple[int, str]
    how: str
    mark: int
    graphs: frozenset[int]
    hints: frozenset[int]
    loop: tuple[int, int] | None
    term: int
    through_module: bool = False
    sure_tensor: bool = False
    """The added value is a tensor on every path."""
    holder_frame: int = -1
    """Frame that made the place or its holder; -1 for one that was there before the root ran."""
    outlived: tuple[tuple[int, int], ...] = ()
    """Every open loop that the place outlives, as far as it is known; ``loop`` is the innermost of them."""


@dataclass(frozen=True, slots=True)
class Store:
    """A value is put where it outlives a loop, or the calls of this function.

    external: the holder was not made in the root function (an attribute, a parameter, a global)
    ``value`` node is the stored expression
    """

    site: Site
    place: str
    holder: int
    how: StoreKind
    mark: int
    graphs: frozenset[int]
    hints: frozenset[int]
    outputs: frozenset[int]
    flags: int
    loop: tuple[int, int] | None
    value: int
    external: bool
    half_fix: str = ""
    half_base: int = -1
    """Node of what the half fix is called on (``out`` in ``out.cpu()``)."""
    constant_key: bool = False
    holder_frame: int = -1
    """Frame that made the holder; -1 for one that was there before the root ran."""
    sure_tensor: bool = False
    """The stored value is a tensor on every path, and no container of tensors."""
    outlived: tuple[tuple[int, int], ...] = ()
    """Every open loop that the holder outlives, the outermost first; ``loop`` is the last of them."""
    holds_tensors: bool = False
    """The stored value is a container, and each value in it is a tensor that a module or an operation in sight made."""


@dataclass(frozen=True, slots=True)
class ContextStore:
    """``ctx.name = value`` in the forward of an ``autograd.Function``.

    place    text of the attribute; mark: what the value carries from here on (in ``Record.returned``: it is an output)
    tensor   the value is a tensor, or holds one
    things   graphs of the unknown objects that it is or holds: tensors, if there is evidence
    """

    site: Site
    place: str
    mark: int
    tensor: bool
    things: frozenset[int]


@dataclass(frozen=True, slots=True)
class Regrowth:
    """``place = torch.cat([place, …])`` in a loop that does nothing else with the place. ``turns`` of the loop, -1 for unknown."""

    site: Site
    place: str
    loop: tuple[int, int]
    turns: int


@dataclass(frozen=True, slots=True)
class Backward:
    """``value.backward(...)``, or a call that back-propagates its argument.

    retain                 the call may keep the graph
    partial                it runs through part of the graph only (``inputs=…``, ``autograd.grad``)
    retains, creates       ``retain_graph=True``, ``create_graph=True`` in so many words
    kept_by                node of the value of ``retain_graph``, -1 where it is not given by its name
    gradients              it returns the gradients (``autograd.grad``) and leaves ``.grad`` alone
    """

    site: Site
    graphs: frozenset[int]
    hints: frozenset[int]
    retain: bool
    partial: bool
    retains: bool = False
    creates: bool = False
    kept_by: int = -1
    gradients: bool = False


@dataclass(frozen=True, slots=True)
class CachedFunction:
    """``functools.lru_cache`` or ``cache`` on the root function.

    name     the decorator's text; entries: how many calls it keeps, None for all
    modules  parameters that are modules; tensors: those that are annotated as tensors
    things   parameters of which nothing is known, and the graphs that stand for them: tensors, if there is evidence
    """

    site: Site
    name: str
    entries: int | None
    modules: tuple[str, ...]
    tensors: tuple[str, ...]
    things: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class EnvironmentSet:
    """An environment variable of the allocator is set for this process.

    value         its text, None when that is not known
    device_used   something was put on a device before, in this run
    torch_loaded  torch is imported by then
    """

    site: Site
    name: str
    value: str | None
    device_used: bool
    torch_loaded: bool


@dataclass(frozen=True, slots=True)
class HookStore:
    """A module's hook appends one of its arguments, or what hangs on it, to a container that outlives the call.

    value  node of the appended expression; sure: it is the argument itself
    """

    site: Site
    place: str
    value: int
    sure: bool


@dataclass(frozen=True, slots=True)
class GradientsFreed:
    """Gradients are set to None, or deleted; told only in runs that build a graph of gradients (``create_graph=True``)."""

    site: Site


@dataclass(frozen=True, slots=True)
class CallEffect:
    """A call whose effect the torch facts name, or one that is told by its method's name.

    args   positional values and keyword values as text → Value; nodes: the same names → node of the argument's expression
    more   the stars ("*", "**", "***") with which arguments came in that are not known one by one, "" for none
    mode   grad mode at the call
    result number of the object that the call made, -1 for none
    takes  numbers of the unknown objects that the arguments hang on (what "load" made, parameters, attributes)
    ``statement`` True when the call is a statement of its own
    """

    site: Site
    effect: Effect | ToldCall
    name: str
    args: tuple[tuple[str, Value], ...]
    statement: bool
    after_forward: bool = False
    deleted_before: tuple[str, ...] = ()
    """Texts of what was deleted before in the same turn of the innermost loop (or in no loop)."""
    followed_by: str = ""
    """What the next statement of the block is: "break", "return", "raise", or the text of its call or value."""
    nodes: tuple[tuple[str, int], ...] = ()
    more: str = ""
    mode: Mode | None = None
    result: int = -1
    takes: frozenset[int] = NOTHING
    on: frozenset[Kind] = frozenset()
    """For what is told by a method's name: the kinds of what it is called on."""
    gates: tuple[str, ...] = ()
    """What the names in ``site.guards`` are bound to in each turn of the loop, or in each call where no loop is around."""


@dataclass(frozen=True, slots=True)
class GradModeMisuse:
    """A spelling of grad mode that switches nothing off, or fails.

    name: what is spelled so; for a leak the text of the manager, "" where grad mode was switched off by no ``with``
    hands_out: for an uncalled manager: what the block makes is what the function returns
    cls:  for a flag of a module: the module's class, None where it is not known
    """

    site: Site
    kind: Misuse
    name: str
    hands_out: bool = False
    cls: ClassRef | str | None = None


@dataclass(frozen=True, slots=True)
class Handler:
    """An ``except`` that may catch an out-of-memory error.

    types    absolute names of the caught types ("" for a bare except)
    tests    nodes of comparisons of the message with out-of-memory words inside; matched: the words are tested at all
    name     name bound to the exception, "" for none
    reraises every path through the out-of-memory branch ends in ``raise``
    recovery (node, what) of statements that run inside the handler and need memory or free it
    keeps    node of a statement that keeps the exception beyond the handler, -1
    moves    all that was tried is to bring something to a device
    """

    site: Site
    types: tuple[str, ...]
    name: str
    tests: tuple[int, ...]
    guarded: bool
    reraises: bool
    recovery: tuple[tuple[int, Recovery], ...]
    keeps: int
    moves: bool
    loop: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class LastLogits:
    """The last position is taken of a model's logits (``model(ids).logits[:, -1]``)."""

    site: Site


@dataclass(frozen=True, slots=True)
class Attention:
    """Values are mixed by attention weights that lie in memory: ``softmax(q @ k.T) @ v``. ``mode`` is the grad mode there."""

    site: Site
    mode: Mode


@dataclass(frozen=True, slots=True)
class DeprecatedImport:
    """An import of names that torch calls otherwise today: (name that it binds here, absolute old name)."""

    site: Site
    names: tuple[tuple[str, str], ...]


Event = (
    Accumulate
    | Store
    | ContextStore
    | Regrowth
    | Backward
    | CachedFunction
    | EnvironmentSet
    | HookStore
    | GradientsFreed
    | CallEffect
    | GradModeMisuse
    | Handler
    | DeprecatedImport
    | Attention
    | LastLogits
)


@dataclass(frozen=True, slots=True)
class CallFate:
    """One call of a project function: the mark of its result, by which is told what the caller does with it, and the graphs that
    this hangs on, or may."""

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
    """Names that each turn binds."""
    attempts: bool = False
    """A turn that succeeds leaves the loop: each turn is one more attempt at the same thing."""
    listed: bool = False
    """A list comprehension's: what the turns make is held together, until the list goes."""
    is_while: bool = False


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
    """Torch functions and operators (by their last name; "loss" for a loss) that took a value which hangs on a graph or mark."""
    carried: dict[tuple[tuple[int, str], tuple[int, int]], set[int]] = field(default_factory=dict)
    """A place and a loop that carries it round → the graphs and marks that its value hangs on when a pass of the loop ends."""
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
    fates: list[CallFate] = field(default_factory=list)
    handed: set[FunctionRef] = field(default_factory=set)
    """Closures that the root gives to what runs them (``pool.map(score, batches)``)."""
    hook_arguments: set[int] = field(default_factory=set)
    """The graphs of what modules give the hooks that the root registers, where these are in sight."""
    flags: set[RecordFlag] = field(default_factory=set)
    unfollowed: set[FunctionRef] = field(default_factory=set)
    """Functions of the project that were called, and not followed: too deep, or the run was too long by then."""
    loops: dict[tuple[int, int], LoopInfo] = field(default_factory=dict)
    drawing: set[tuple[int, int]] = field(default_factory=set)
    """Loops of which each turn takes the next of what was there before (``next(batches)``)."""
    resets: dict[tuple[tuple[int, str], tuple[int, int]], set[tuple[str, ...]]] = field(default_factory=dict)
    """A place that was added to, and a loop in which some turns give it a number → the tests under which they do."""
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
    stepping: set[tuple[int, int]] = field(default_factory=set)
    """The loops and calls, by frame and node, around these backwards and forwards."""
    final: State | None = None
    """The state in which the root ends."""
    result: Value = EMPTY
    """What the root returns."""
    asking: Meter | None = None
    """Counts what questions look at that go from graph to graph once the run is over. All records of a process share it, as such
    a question may lead to other functions."""
    step: int = 0
    """What looking at one graph counts: one, and the sinks that a graph has on average."""
    known_children: dict[int, list[int]] | None = None
    """What ``children`` was worked out to be, once the run was over; ``outliving`` and ``followed`` are such tables, too."""
    outliving: set[tuple[int, int]] | None = None
    """Keys of the sites at which a value is put where it outlives the root."""
    known_fates: dict[int, object] = field(default_factory=dict)
    """What becomes of a graph's values in this record (``runs.Fate``): rules ask about each graph beside each other one."""
    followed: dict[tuple[int, int], int] | None = None
    """Key of a call's site → the graph of its result, where that hangs on what the call was given."""

    @property
    def children(self) -> dict[int, list[int]]:
        """Graphs and marks → the graphs that hang on them; marks excepted (they are ways, not graphs). To look at it is to look
        at one graph, and is counted."""
        if self.asking is not None:
            self.asking.take(self.step)
        if self.known_children is None:
            self.known_children = {}
            self.step = 1 + sum(map(len, self.sinks.values())) // max(1, len(self.graphs))
            for gid, graph in self.graphs.items():
                if graph.kind in CALLED_KINDS:
                    for parent in graph.parents:
                        self.known_children.setdefault(parent, []).append(gid)
        return self.known_children

    def weight(self) -> int:
        """How much there is to look at for a question about all of the record."""
        parents = sum(len(graph.parents) for graph in self.graphs.values())
        return len(self.events) + len(self.graphs) + parents + sum(map(len, self.sinks.values()))

    def is_let_go(self, event: Store) -> bool:
        """Whether what is stored goes again: the holder is emptied, or loses its oldest element where this one is put in."""
        return event.holder in self.cleared or (event.holder, event.loop) in self.trimmed

    def ancestors(self, gids: frozenset[int]) -> frozenset[int]:
        """The graphs and all that they hang on."""
        out: set[int] = set()
        todo = list(gids)
        while todo:
            gid = todo.pop()
            if gid not in out:
                out.add(gid)
                graph = self.graphs.get(gid)
                if graph is not None:
                    todo.extend(graph.parents)
        return frozenset(out)

    def real(self, gid: int) -> bool:
        """Whether the graph surely exists: a forward or parameter with grad mode on, or an opaque result that the code itself
        treats as attached (it is back-propagated; or an unknown object is called, and what it gives reaches a backward)."""
        graph = self.graphs[gid]
        if graph.kind in CERTAIN_KINDS:
            return not graph.frozen and (graph.mode is Mode.ON or gid in self.backwarded)
        if graph.kind in UNSURE_KINDS:
            return "backward" in self.evidence.get(gid, ()) or (graph.direct and gid in self.trained)
        return False
