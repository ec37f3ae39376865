"""The state of one run over a root function: frames, heap objects, graphs, sinks, events.

It knows no Python and no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.state.events import Accumulate, Event, Store
from torchmemlint.semantics.state.flow_state import (
    ELEMENTS,
    FROZEN,
    KEYS,
    TRAINING,
    Closure,
    Kind,
    Meter,
    Mode,
    ObjInfo,
    RunLimit,
    State,
)
from torchmemlint.semantics.state.graphs import Condition, Frame, Graph, GraphKind, Sink, SinkKind, Site
from torchmemlint.semantics.state.record import Record
from torchmemlint.semantics.state.snapshots import Snapshot, Snapshots
from torchmemlint.semantics.state.values import (
    EMPTY,
    NOTHING,
    UNKNOWN,
    WITHOUT_PARTS,
    Atom,
    Func,
    Obj,
    Tensor,
    Tuple,
    Unknown,
    Value,
    const,
    join,
    truth,
)
from torchmemlint.semantics.state.world import World

CONTAINERS = frozenset({Kind.LIST, Kind.DICT, Kind.SET})
MAX_STATEMENTS = 2_500
"""Statements that one run may execute, inlined callees included, before it stops looking into callees."""
HARD_LIMIT = 20_000
"""Statements after which a run is given up (its function is reported under ``-v``, never in part)."""

SINK = 20
"""Steps that are counted for a graph and what became of it: it is kept, for the rules to look at."""
FIRST_NUMBER = 1_000_000
"""Objects are numbered from here: places are (frame or object, name), and there are never as many frames."""

MAX_GRAPHS = 4_000
"""Graphs and marks that one run may distinguish."""


class Handed(NamedTuple):
    """A call that runs a closure which it is given: its node, its text, and the state there."""

    node: int
    text: str
    state: Snapshot


HOLDING = CONTAINERS | {Kind.GENERATOR, Kind.INSTANCE, Kind.DISTRIBUTION}
"""Objects that are looked into for what they hold; an instance and a distribution for what their constructor was given."""
EVERYTHING = "*"
"""Stands for all attributes of an object."""


class LoopEnds:
    """States that leave a loop's body by ``break`` and ``continue``."""

    __slots__ = ("breaks", "continues")

    def __init__(self) -> None:
        self.breaks: State | None = None
        self.continues: State | None = None


class FrameEnds:
    """States and values with which a frame's body returns."""

    __slots__ = ("returns", "state", "yields")

    def __init__(self) -> None:
        self.returns: Value = EMPTY
        self.yields: Value = EMPTY
        self.state: State | None = None


THAWED_IN_PART = const("")
"""Of a module's parameters: some want gradients, the others were frozen."""
MAYBE_FROZEN = join(const(True), const(False))
"""Of a module that was frozen on one branch."""


@dataclass(eq=False)
class Machine:
    """Numbers things and keeps them. All numbering is by site, so that the passes of a loop refer to the same things."""

    world: World
    record: Record
    assumptions: dict[str, bool]
    """Phase tests (``phase_key``) → the answer that this run assumes."""
    meter: Meter
    """Shared by all runs over the root."""
    heap: dict[int, ObjInfo] = field(default_factory=dict)
    closures: list[Closure] = field(default_factory=list)
    frame_closure: list[Closure] = field(default_factory=list)
    loops: list[tuple[int, int]] = field(default_factory=list)
    loop_statements: dict[tuple[int, int], ir.For | ir.While] = field(default_factory=dict)
    counters: dict[tuple[int, int], str] = field(default_factory=dict)
    """Loops → the name that counts their iterations (``one_turn.counter_of``)."""
    counts: dict[tuple[tuple[int, int], str], bool] = field(default_factory=dict)
    """What is known of ``one_turn._counts``."""
    once: list[tuple[int, int]] = field(default_factory=list)
    """The loops of which one iteration at most passes the tests around: nothing grows with their iterations here."""
    guards: list[tuple[int, str]] = field(default_factory=list)
    """The tests of the branches around, each with the number of loops around it."""
    passed: list[tuple[int, str, int]] = field(default_factory=list)
    """As ``guards``, of tests that let the run go on where others leave the turn or the call (``if step % 100: continue``), each with
    its frame."""
    handlers: list[int] = field(default_factory=list)
    holders: dict[int, int] = field(default_factory=dict)
    """Object held by an attribute → the object whose attribute it is."""
    bare: set[int] = field(default_factory=set)
    """Modules that were constructed so that they have no parameters."""
    batches: set[int] = field(default_factory=set)
    """Generators that go over a loader (``enumerate(loader)``)."""
    loaded: dict[int, int] = field(default_factory=dict)
    """What a file was read into, and each part taken from it → the object that the reading made."""
    result_of: Callable[[FunctionRef, Mode], Value] = lambda *_: EMPTY
    """What a function returns in a grad mode, run by itself (``Runs.result``)."""
    frozen_in: Callable[[ClassRef], frozenset[str]] = lambda _: frozenset()
    """The attributes that a class's ``__init__`` leaves frozen (``Runs.frozen_attributes``)."""
    frozen_maybe: Callable[[ClassRef], tuple[tuple[str, Condition], ...]] = lambda _: ()
    """Those that it leaves frozen under a condition (``Runs.maybe_frozen``)."""
    frozen_wherever: Callable[[str], bool] = lambda _: False
    """Whether every class of the project that holds a module in an attribute of that name leaves it frozen."""
    freezes_itself: Callable[[str], bool] = lambda _: False
    """Whether all methods of the project of that name freeze the whole object (``freezes_itself``)."""
    plumbing: Callable[[FunctionRef], frozenset[str] | None] = lambda _: None
    """The words of a function that cannot touch a tensor (``plumbing.plumbing_names``)."""
    retyped: int = 0
    """How often an object turned out to be of another kind: what was evaluated before may have another result now."""
    growing: dict[tuple[int, int], bool] = field(default_factory=dict)
    """(loop, call), by the identity of both → whether the loop does nothing with a tensor but to make it longer by that call."""
    bound_names: dict[int, tuple[frozenset[str], int]] = field(default_factory=dict)
    """Loops, by identity → the texts that an iteration binds, and how many parts the loop has."""
    turn: int = 0
    """Number of the unrolled turn of a loop over literals: part of every site's identity."""
    statements: int = 0
    contexts: set[int] = field(default_factory=set)
    """Objects that are the context of an ``autograd.Function`` whose forward is run."""
    hooked: set[Func] = field(default_factory=set)
    """Functions that were registered as hooks of a module."""
    handed: dict[int, Handed] = field(default_factory=dict)
    """Closures that were given to what runs them (``pool.map(score, batches)``)."""
    hook_arguments: frozenset[int] = NOTHING
    """While a hook runs: the graphs that stand for its arguments."""
    weighs_evidence: bool = False
    """Whether evidence of what unknown objects are, and are not, is gathered with care in this run."""
    first_values: dict[tuple[int, int, str], tuple[ObjInfo, Value]] = field(default_factory=dict)
    set_attributes: dict[int, dict[str, None]] = field(default_factory=dict)
    """The attributes of an instance that the run set: who gets the instance, gets what they hold."""
    """(frame, object, attribute) → what it holds before anything is stored there, for the object as it was known then."""
    _ids: dict[tuple[object, ...], int] = field(default_factory=dict)
    sunk: dict[Sink, set[int]] = field(default_factory=dict)
    """Sinks → the graphs that went there: the record has them the other way round, once the run is over."""
    _sunk: dict[tuple[str, str, int, int], set[int]] = field(default_factory=dict)
    """Kind, how, frame and node of a sink → the graphs that went there."""
    _hanging: dict[int, list[int]] | None = None
    """``hanging``, kept up to date once it was asked for."""
    absolutes: dict[str, Value] = field(default_factory=dict)
    """What absolute names stand for. Kept for the run, which is charged with what was asked for it."""
    closure_keys: dict[tuple[object, ...], int] = field(default_factory=dict)
    frame: int = -1
    ends: list[FrameEnds] = field(default_factory=list)
    loop_ends: list[LoopEnds] = field(default_factory=list)
    phase_tests: dict[str, int] = field(default_factory=dict)
    """Tests that the run could not decide → 2 when a branch of theirs trains (backward, step), else 1."""
    loop_names: set[str] = field(default_factory=set)
    frozen_attributes: frozenset[str] = frozenset()
    freezes: set[int] = field(default_factory=set)
    """Modules that the run froze somewhere."""
    texts: dict[int, str] = field(default_factory=dict)
    """Text of the tests of ``if`` statements, by the identity of these (which live as long as the run)."""
    phases: dict[int, list[tuple[set[str], str, int]]] = field(default_factory=dict)
    """What ``phases_in`` finds of them."""
    following: ir.Stmt | None = None
    """The statement after the one being run, in its block."""
    offs: list[tuple[int, str]] = field(default_factory=list)
    """The ``with`` items around that switched grad mode off, innermost last: node and text of the manager."""
    leaks: dict[int, int] = field(default_factory=dict)
    """Such an item → the first ``yield`` inside it."""
    stored_items: dict[tuple[int, int, int], Value] = field(default_factory=dict)
    """(frame, turn, node of ``d[k]``) → all that was put there."""
    element_classes: dict[int, ClassRef] = field(default_factory=dict)
    """Containers that were there before the run → the class of all that they hold, which is none of modules."""
    held_whole: dict[int, set[int]] = field(default_factory=dict)
    """Containers that were put into others → the marks that their elements have from there."""
    watch: Callable[[Machine, ir.Stmt, State], None] | None = None
    """Called before each statement with the state there (``trace`` looks through it)."""
    comprehension_names: list[frozenset[str]] = field(default_factory=list)
    """Names that the comprehension clauses being bound right now introduce: locals of their own, whatever is outside."""
    deleted: list[tuple[str, tuple[tuple[int, int], ...]]] = field(default_factory=list)
    """Texts of what the root function has deleted so far, or set to None, and the loops around."""
    defined: dict[int, Snapshot] = field(default_factory=dict)
    """Closures → the state at their definition."""
    snapshots: Snapshots = field(default_factory=Snapshots)
    """The states at definitions, and at calls that run closures."""
    owner_of_params: dict[int, int] = field(default_factory=dict)
    """``parameters()`` of a module → the module."""
    foreign: set[int] = field(default_factory=set)
    """What is attached to inputs that a tokenizer made for another framework: a network that takes them is of that
    framework."""
    mode_before: Mode | None = None
    """The grad mode before the ``set_grad_enabled`` that the last evaluation called, None when it called none."""
    entered: dict[int, Mode] = field(default_factory=dict)
    """Managers whose ``__enter__`` was called by hand → the grad mode before."""
    pending_kwargs: tuple[int, dict[str, Value], Value] | None = None
    """The object of ``**kwargs`` of the function that is about to run, what it is given by name, and what may be in it."""

    # --- numbering ------------------------------------------------------------------------------------------------

    def number(self, *key: object) -> int:
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._ids) + FIRST_NUMBER
        return found

    def site(self, node: int) -> Site:
        depth = len(self.loops)
        guards: tuple[str, ...] = ()
        if self.guards or self.passed:
            passed = [text for level, text, _ in self.passed if level == depth]
            guards = (*[text for level, text in self.guards if level == depth], *passed)
        return Site(self.frame, node, tuple(self.loops), guards, self.handlers[-1] if self.handlers else -1)

    def open_frame(self, closure: Closure, call: int) -> int:
        parent = self.frame
        key = ("frame", parent, call, self.turn, id(closure.function))
        number = self._ids.get(key)
        if number is None:
            number = self._ids[key] = len(self.record.frames)
            depth = self.record.frames[parent].depth + 1 if parent >= 0 else 0
            self.record.frames.append(Frame(number, closure.ref, parent, call, depth))
            self.frame_closure.append(closure)
        return number

    def closure(self, function: ir.Function, lowered: object, ref: FunctionRef, parent: int, owner: ClassRef | None) -> int:
        key = (id(function), parent)
        found = self.closure_keys.get(key)
        if found is None:
            found = self.closure_keys[key] = len(self.closures)
            self.closures.append(Closure(function, lowered, ref, parent, owner))
        return found

    @property
    def path(self) -> str:
        return self.frame_closure[self.frame].ref.path

    @property
    def ref(self) -> FunctionRef:
        return self.frame_closure[self.frame].ref

    @property
    def evidence(self) -> dict[str, frozenset[str]]:
        """What the function at hand calls on what (``World.evidence``)."""
        closure = self.frame_closure[self.frame]
        if closure.evidence is None:
            closure.evidence = self.world.evidence(closure.ref)
        return closure.evidence

    # --- heap -----------------------------------------------------------------------------------------------------

    def allocate(self, kind: Kind, node: int, name: str = "", cls: ClassRef | str | None = None, tag: object = "") -> int:
        """A new object made here; the same site gives the same object on every pass."""
        oid = self.number("obj", self.frame, node, self.turn, kind, tag)
        self.heap[oid] = ObjInfo(oid, kind, cls, name, tuple(self.loops), False, self.frame)
        return oid

    def outside(self, kind: Kind, name: str, cls: ClassRef | str | None = None, key: object = None) -> int:
        """An object that was there before the run: an attribute's first value, a parameter, a global."""
        oid = self.number("ext", key if key is not None else name)
        if oid not in self.heap:
            self.heap[oid] = ObjInfo(oid, kind, cls, name, (), True, -1)
        return oid

    def first_held(self, kind: Kind, name: str, holder: ObjInfo, key: object) -> int:
        """The container that an object's constructor puts into an attribute: it lives as long as the object does."""
        if holder.external:
            return self.outside(kind, name, None, key)
        oid = self.number("ext", key)
        self.heap[oid] = ObjInfo(oid, kind, None, name, holder.loops, False, holder.frame)
        return oid

    def set_attribute(self, oid: int, name: str, value: Value, state: State) -> None:
        state.vars[oid, name] = value
        if self.heap[oid].kind is Kind.INSTANCE:
            self.set_attributes.setdefault(oid, {})[name] = None

    def retype(self, oid: int, kind: Kind, cls: ClassRef | str | None = None) -> None:
        info = self.heap[oid]
        self.retyped += info.kind != kind
        cls = cls if cls is not None else info.cls
        self.heap[oid] = ObjInfo(oid, kind, cls, info.name, info.loops, info.external, info.frame)

    def goes_over_batches(self, oid: int) -> bool:
        """Whether each iteration of a loop over the object gets a batch of a loader's."""
        return self.heap[oid].kind is Kind.LOADER or oid in self.batches

    def outlived_loop(self, oid: int) -> tuple[int, int] | None:
        """The innermost open loop that the object outlives, None when it was made inside all of them."""
        outlived = self.outlived_loops(oid)
        return outlived[-1] if outlived else None

    def outlived_loops(self, oid: int) -> tuple[tuple[int, int], ...]:
        """The open loops that the object was made outside of and of which several iterations come here, the outermost first."""
        made = self.heap[oid].loops
        return tuple(loop for loop in self.loops if loop not in made and loop not in self.once)

    def training(self, oid: int, state: State) -> bool | None:
        """What is known of a module's training flag: its own, or that of the module that holds it."""
        seen: set[int] = set()
        while oid not in seen:
            seen.add(oid)
            held = state.vars.get((oid, TRAINING))
            if held is not None:
                return truth(held)
            oid = self.holders.get(oid, oid)
        return None

    def frozen(self, oid: int, state: State) -> bool:
        """Whether no parameter of a module wants a gradient, by what is known of it or of a module that holds it."""
        seen: set[int] = set()
        while oid not in seen:
            seen.add(oid)
            held = state.vars.get((oid, FROZEN))
            if held is not None:
                return truth(held) is True
            info = self.heap[oid]
            if isinstance(info.cls, ClassRef) and info.kind is Kind.MODULE and EVERYTHING in self.frozen_in(info.cls):
                return True
            holder = self.holders.get(oid, oid)
            built_by = self.heap[holder].cls
            name = info.name.rpartition(".")[2]
            if holder != oid and isinstance(built_by, ClassRef):
                names = self.frozen_in(built_by)
                if EVERYTHING in names or name in names:
                    return True
            elif info.external and "." in info.name and info.cls is None and self.frozen_wherever(name):
                return True  # an attribute of an unknown object
            oid = holder
        return False

    def set_frozen(self, oid: int, frozen: bool, state: State) -> None:
        """Freeze all parameters of a module; or thaw them, so that every frozen module that has this one as a part is thawed there."""
        if frozen:
            state.vars[oid, FROZEN] = const(True)
            self.freezes.add(oid)
            return
        state.vars[oid, FROZEN] = UNKNOWN
        seen = {oid}
        while (oid := self.holders.get(oid, oid)) not in seen:
            seen.add(oid)
            if self.frozen(oid, state):
                state.vars[oid, FROZEN] = THAWED_IN_PART

    # --- graphs ---------------------------------------------------------------------------------------------------

    def graph(
        self,
        kind: GraphKind,
        node: int,
        what: str,
        *,
        key: object = None,
        parents: frozenset[int] = NOTHING,
        mode: Mode = Mode.ON,
        training: bool | None = None,
        module: int = -1,
        frozen: bool = False,
        place: tuple[int, str] = (-1, ""),
        callee: FunctionRef | None = None,
        site: Site | None = None,
        direct: bool = False,
    ) -> int:
        if site is None:
            gid = self.number("graph", kind, self.frame, node, self.turn, key)
        else:
            gid = self.number("graph", kind, site.frame, site.node, self.turn, key)
        old = self.record.graphs.get(gid)
        if gid in parents:
            parents = parents - {gid}
        if old is None:
            if len(self.record.graphs) > MAX_GRAPHS:
                raise RunLimit
            self._hang(gid, parents)
            self.record.graphs[gid] = Graph(
                gid, kind, site or self.site(node), what, parents, mode, training, module, frozen, place, callee,
                self.heap[module].loops if module in self.heap else (), direct,
            )  # fmt: skip
        else:
            if not parents <= old.parents:
                self._hang(gid, parents - old.parents)
                old.parents |= parents
            if old.mode != mode:
                old.mode = Mode.UNKNOWN if mode is Mode.UNKNOWN or old.mode is Mode.UNKNOWN else mode
            old.frozen = old.frozen and frozen
        return gid

    @property
    def hanging(self) -> dict[int, list[int]]:
        """Graphs and marks → the graphs that depend on them, so far."""
        if self._hanging is None:
            self._hanging = {}
            for gid, graph in self.record.graphs.items():
                self._hang(gid, graph.parents)
        return self._hanging

    def _hang(self, gid: int, parents: frozenset[int]) -> None:
        if self._hanging is not None:
            for parent in parents:
                self._hanging.setdefault(parent, []).append(gid)

    def sink(self, gids: Iterable[int], kind: SinkKind, how: str, node: int) -> None:
        key = (kind, how, self.frame, node)
        seen = self._sunk.get(key)
        if seen is None:
            new = set(gids)
        else:  # another pass of a loop: the same node of the same frame has the same site
            new = {gid for gid in gids if gid not in seen}
            self.meter.take(len(seen))
        if not new:
            return
        self.meter.take(SINK * len(new))
        sink = Sink(kind, how, self.site(node))
        if seen is None:
            self._sunk[key] = self.sunk[sink] = new
            return
        there = self.sunk.get(sink)
        if there is seen:
            seen |= new
        else:
            self.sunk[sink] = new if there is None else there | new
            self._sunk[key] = seen | new

    def notice(self, gids: Iterable[int], what: str) -> None:
        for gid in gids:
            self.record.evidence.setdefault(gid, set()).add(what)

    def notice_done(self, atom: Tensor, what: str) -> None:
        """Note what is done with a tensor: of the graphs that it is attached to, and of the outputs that have none."""
        self.notice(atom.graphs | (atom.outputs - self.record.graphs.keys()), what)

    def operation(self, gids: Iterable[int], what: str) -> None:
        for gid in gids:
            self.record.operations.setdefault(gid, set()).add(what)

    def emit(self, event: Event, tag: str = "") -> None:
        """Record an event; a later pass over the same site joins what it knows to what was known."""
        key = (type(event).__name__, event.site.frame, event.site.node, f"{tag}/{self.turn}")
        old = self.record.events.get(key)
        if isinstance(event, Store) and isinstance(old, Store):
            event = replace(
                event, graphs=event.graphs | old.graphs, hints=event.hints | old.hints, outputs=event.outputs | old.outputs
            )
        elif isinstance(event, Accumulate) and isinstance(old, Accumulate):
            event = replace(
                event,
                graphs=event.graphs | old.graphs,
                hints=event.hints | old.hints,
                through_module=event.through_module or old.through_module,
                sure_tensor=event.sure_tensor and old.sure_tensor,
            )
        self.record.events[key] = event

    # --- deep looks -----------------------------------------------------------------------------------------------

    def deep(self, value: Value, state: State, depth: int = 3) -> tuple[frozenset[int], frozenset[int], frozenset[int], int]:
        """Graphs, hints, outputs and flags of a value, looking into containers that the state knows."""
        if len(value) == 1:  # most values, and most of them have nothing to add up
            (atom,) = value
            kind = type(atom)
            if kind is Tensor:
                self.meter.take(len(atom.graphs) + len(atom.hints))  # type: ignore[union-attr]
                return atom.graphs, atom.hints, atom.outputs, atom.flags  # type: ignore[union-attr]
            if kind is Unknown:
                self.meter.take(len(atom.hints))  # type: ignore[union-attr]
                return NOTHING, atom.hints, NOTHING, 0  # type: ignore[union-attr]
            if not depth or not (kind is Tuple or kind is Obj):
                return NOTHING, NOTHING, NOTHING, 0
            if kind is Obj and self.heap[atom.oid].kind not in HOLDING:  # type: ignore[union-attr]
                self.meter.take(1)
                return NOTHING, NOTHING, NOTHING, 0
        graphs: set[int] = set()
        hints: set[int] = set()
        outputs: set[int] = set()
        flags = 0
        for atom in value:
            if type(atom) is Tensor:
                graphs |= atom.graphs
                hints |= atom.hints
                outputs |= atom.outputs
                flags |= atom.flags
            elif type(atom) is Unknown:
                hints |= atom.hints
            else:
                for item in self.inside(atom, state) if depth else ():
                    g, h, o, f = self.deep(item, state, depth - 1)
                    graphs |= g
                    hints |= h
                    outputs |= o
                    flags |= f
        self.meter.take(len(value) + len(graphs) + len(hints))
        return frozenset(graphs), frozenset(hints), frozenset(outputs), flags

    def inside(self, atom: Atom, state: State) -> Sequence[Value]:
        """What a tuple or a container holds; nothing for any other atom."""
        if type(atom) is Tuple:
            return atom.items
        if type(atom) is Obj and self.heap[atom.oid].kind in HOLDING:
            return self.contents(atom.oid, state)
        return ()

    def contents(self, oid: int, state: State) -> list[Value]:
        """What a container holds: its elements joined, and each constant key's value."""
        return [state.vars[place] for place in self.places(oid, state)]

    def places(self, oid: int, state: State) -> list[tuple[int, str]]:
        """The places of a container, or of an instance, at which something is held."""
        held = state.vars.get
        out = [(oid, ELEMENTS)] if held((oid, ELEMENTS)) else []
        words = self.set_attributes.get(oid)
        if words:
            out += [(oid, word) for word in words if held((oid, word))]
        keys = held((oid, KEYS))
        if keys:
            self.meter.take(len(keys))
            for atom in keys:
                name = getattr(atom, "value", None)
                if isinstance(name, str) and held((oid, name)):
                    out.append((oid, name))
        return out

    def whole(self, value: Value, state: State) -> tuple[frozenset[int]]:
        """Graphs, marks and hints of a value, containers included: what a sink takes."""
        if len(value) == 1:  # most values
            (atom,) = value
            if type(atom) in WITHOUT_PARTS:
                return (NOTHING,)
            if type(atom) is Obj and self.heap[atom.oid].kind is Kind.THING:
                return (frozenset((self.thing_graph(atom.oid),)),)
            graphs, hints, _, _ = self.deep(value, state)
            return (graphs | hints if hints else graphs,)
        graphs, hints, _, _ = self.deep(value, state)
        extra = {self.thing_graph(a.oid) for a in value if type(a) is Obj and self.heap[a.oid].kind is Kind.THING}
        return (graphs | hints | extra,)

    def thing_graph(self, oid: int) -> int:
        """The graph that an unknown object (a parameter, an attribute) brings with it, if it is a tensor."""
        info = self.heap[oid]
        gid = self.number("graph", GraphKind.PARAM, oid)
        if gid not in self.record.graphs:
            self.record.graphs[gid] = Graph(
                gid, GraphKind.PARAM, Site(max(self.frame, 0), -1), info.name, mode=Mode.UNKNOWN, module=oid
            )
        return gid

    def number_mark(self, kind: GraphKind, what: str, place: tuple[int, str], node: int = -1, key: object = "calls") -> int:
        gid = self.number("mark", kind, place, node, key)
        if gid not in self.record.graphs:
            self.record.graphs[gid] = Graph(gid, kind, self.site(node), what, place=place)
        return gid

    def is_tired(self) -> bool:
        return self.statements > MAX_STATEMENTS


def new_machine(
    world: World, root: FunctionRef, mode: Mode, meter: Meter, assumptions: Iterable[tuple[str, bool]] = ()
) -> Machine:
    """The state in which a run over a root function starts: with a grad mode, and answers to tests of a phase."""
    assumed = tuple(assumptions)
    return Machine(world, Record(root, mode, assumed, asking=world.asking), dict(assumed), meter)
