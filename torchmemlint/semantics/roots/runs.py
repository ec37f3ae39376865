"""Runs over root functions, each once: one record per phase, followed into what callers do with the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from torchmemlint.errors import TOO_LARGE, SourceError
from torchmemlint.index.arguments import argument_given
from torchmemlint.index.edges import Caller
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.layout import is_test
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.index.query_log import QueryTrace
from torchmemlint.semantics.dataflow import goes_only_into, readers_of_attribute
from torchmemlint.semantics.identity import Freezing, may_hold_module, parametric_attributes
from torchmemlint.semantics.mode import MAX_PHASES, plumbing_names, start_mode
from torchmemlint.semantics.roots.frozen_by_setters import freezes_itself, mentions_freezing, set_frozen
from torchmemlint.semantics.roots.root_run import run_root
from torchmemlint.semantics.state import (
    CALLED_KINDS,
    EMPTY,
    EVERYTHING,
    FROZEN,
    MAX_WORK,
    MAYBE_FROZEN,
    MODULE,
    Accumulate,
    Condition,
    Event,
    Graph,
    GraphKind,
    Machine,
    Meter,
    Mode,
    Obj,
    Record,
    RunLimit,
    Seen,
    Sink,
    SinkKind,
    Value,
    World,
    const,
    new_machine,
)
from torchmemlint.torch_facts import TORCH

MUST_BE_FREE = Seen.MUST_BE_FREE
TO_HOST = TORCH.names["to-host"]
MAX_CALLERS = 12
"""Callers that are run to see what becomes of a result; more than that, and the answer is "unknown"."""
MAX_CALLER_DEPTH = 3
MAX_HOLDERS = 6
"""Classes with an attribute of one name that are looked at: a name that many have says nothing."""
MAX_HOLDERS_ABOVE = 3
"""How far up it is looked for what leaves a module frozen that holds another, which holds the one asked about."""
KEPT_RECORDS = 100
"""Functions whose records are kept from one file to the next: on a large project they would fill the memory."""
KEPT_GRAPHS = 20_000
"""Graphs in the records that are kept: each takes some 2 kB with what is known of it. A hundred functions have a few thousand, but
one that runs a whole file of functions may have as many by itself."""


IDENTITY = frozenset({"is", "is not"})
"""Comparisons that use nothing of a value."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a graph's values, as far as the project shows it.

    trains    some value reaches a backward
    cuts      where values are detached, turned to numbers or indices
    kept      where values are stored in a place that outlives the function
    passed    calls of code that is not visible that get a value and whose result is not followed to its end
    escapes   values leave the function by return or yield, and not all callers are known
    lost      something is computed from the values, attached, of which it is not known what becomes
    held      some value is stored, be it for the function's time alone
    moved     some attached value is moved to the host
    unread    values leave the function only for callers that drop its result
    raises    some attached value is turned into an array on every path, here or in each caller: with grad mode on that raises
    callers   calls of the function (by caller) that were looked at
    """

    trains: bool
    cuts: tuple[Sink, ...] = ()
    kept: tuple[Sink, ...] = ()
    passed: tuple[Sink, ...] = ()
    escapes: bool = False
    callers: tuple[FunctionRef, ...] = ()
    off_callers: int = 0
    lost: bool = False
    raises: bool = False
    held: bool = False
    moved: bool = False
    unread: bool = False

    @property
    def only_cut(self) -> bool:
        """Every value ends in a cut: no backward can ever go through it."""
        return not self._goes_on and bool(self.cuts)

    @property
    def never_read(self) -> bool:
        """Nothing is done with any value."""
        return not self._goes_on and not self.cuts and not self.held

    @property
    def _goes_on(self) -> bool:
        return bool(self.trains or self.kept or self.passed or self.escapes or self.lost)


class Runs:
    """Records by root function. One per process; a root is run when it is first asked for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._records: dict[FunctionRef, tuple[list[Record], QueryTrace]] = {}
        self.steps: dict[FunctionRef, int] = {}
        """What the runs of a root took (``Meter``): the same whoever asked for them."""
        self._graphs: dict[FunctionRef, int] = {}
        """How many graphs the records of a root hold."""
        self._frozen: dict[ClassRef, tuple[Freezing, QueryTrace]] = {}
        self._results: dict[tuple[FunctionRef, str], tuple[Value, QueryTrace]] = {}
        self._frozen_names: dict[str, tuple[bool, QueryTrace]] = {}

    def forget(self) -> None:
        """Between two files: let go of records and lowered functions when there are many. They are worked out again, with the
        same answer, if another file asks. What was asked for last is kept: the caller of a hundred functions, as a rule."""
        if len(self._records) > KEPT_RECORDS:
            for ref in [*self._records][: -KEPT_RECORDS // 2]:
                self._forget_records(ref)
        total = sum(self._graphs.values())
        for ref in [*self._records][:-1] if total > KEPT_GRAPHS else ():
            if total <= KEPT_GRAPHS:
                break
            total -= self._graphs[ref]
            self._forget_records(ref)
        self.world.forget()

    def _forget_records(self, ref: FunctionRef) -> None:
        del self._records[ref], self._graphs[ref]
        self.steps.pop(ref, None)

    def records(self, ref: FunctionRef) -> list[Record]:
        """The records of a root, one per combination of phases; empty where it cannot be run."""
        if self.world.query_log.is_open(self._records, ref):
            return []
        known = self._records.pop(ref, None)
        if known is not None:
            self._records[ref] = known  # the last that was asked for
        found = self.world.query_log.memoize(self._records, ref, lambda: self._run(ref))
        self._graphs[ref] = sum(len(record.graphs) for record in found)
        return found

    def _run(self, ref: FunctionRef) -> list[Record]:
        world = self.world
        try:
            if ref.qualname == MODULE:
                lowered = world.lowered(ref.path, MODULE)
                found = None if lowered is None else (lowered.functions[MODULE], lowered)
            else:
                found = world.function(ref)
        except SourceError as error:
            world.query_log.note(f"{ref.path}: {ref.qualname}: not analysed: {error}")
            return []
        if found is None:
            return []
        function, lowered = found
        owner = world.class_of_method(ref)
        mode = Mode.ON if ref.qualname == MODULE else Mode(start_mode(world, ref))
        meter = Meter()
        try:
            first = self._machine(ref, mode, meter, (), owner)
            run_root(first, function, lowered, owner)
            tests = sorted((k for k, v in first.phase_tests.items() if v == 2), key=str)[:MAX_PHASES]
            if not tests:
                return [first.record]
            known = [self._decided(ref, test) for test in tests]
            records = []
            for values in product(*((True, False) if one is None else (one,) for one in known)):
                m = self._machine(ref, mode, meter, tuple(zip(tests, values, strict=True)), owner)
                run_root(m, function, lowered, owner)
                records.append(m.record)
            return records
        except RunLimit:
            world.query_log.note(f"{ref.path}: {ref.qualname}: {TOO_LARGE}")
            return []
        except RecursionError:
            world.query_log.note(f"{ref.path}: {ref.qualname}: not analysed: nested too deeply")
            return []
        finally:
            self.steps[ref] = MAX_WORK - meter.left

    def result(self, ref: FunctionRef, mode: Mode) -> Value:
        """What a function returns with grad mode "on" or "off", as far as its own code shows; empty where it cannot be run."""
        return self.world.query_log.memoize(self._results, (ref, mode), lambda: self._run_alone(ref, mode))

    def _run_alone(self, ref: FunctionRef, mode: Mode) -> Value:
        try:
            found = self.world.function(ref)
            if found is None:
                return EMPTY
            m = self._machine_alone(ref, mode)
            return run_root(m, *found, self.world.class_of_method(ref)).result
        except (SourceError, RunLimit, RecursionError):
            return EMPTY

    def _machine_alone(self, ref: FunctionRef, mode: Mode = Mode.ON) -> Machine:
        """A machine that asks nothing that needs another function's run: no question can come back to itself."""
        m = new_machine(self.world, ref, mode, Meter())
        m.plumbing = partial(self.world.memoize, plumbing_names)
        m.freezes_itself = partial(freezes_itself, self.world)
        return m

    def _decided(self, ref: FunctionRef, key: str) -> bool | None:
        """How a phase test of a root comes out, where its callers leave only one way (``update(batch, eval=False)``)."""
        frame, _, text = key.partition(":")
        return self.world.project.test_holds(ref, text) if frame == "0" and ref.qualname != MODULE else None

    def _machine(
        self, ref: FunctionRef, mode: Mode, meter: Meter, assumptions: tuple[tuple[str, bool], ...], owner: ClassRef | None
    ) -> Machine:
        m = new_machine(self.world, ref, mode, meter, assumptions)
        m.plumbing = partial(self.world.memoize, plumbing_names)
        m.frozen_in = self.frozen_attributes
        m.frozen_maybe = self.maybe_frozen
        m.result_of = self.result
        m.frozen_wherever = self.frozen_wherever
        m.freezes_itself = partial(freezes_itself, self.world)
        if owner is not None:
            if not ref.qualname.endswith("__init__"):
                m.frozen_attributes = self.frozen_attributes(owner) | self.given_frozen(owner)
        return m

    def frozen_attributes(self, cls: ClassRef) -> frozenset[str]:
        """Attributes that ``__init__``, or every method that sets them, leaves as modules with all parameters frozen; ``EVERYTHING``
        where ``__init__`` freezes all that the object has. ``__init__`` is run only where its words, or those of methods that it
        calls, may freeze."""
        return self._freezing(cls).surely

    def maybe_frozen(self, cls: ClassRef) -> tuple[tuple[str, Condition], ...]:
        """Attributes that ``__init__`` freezes under a condition (see ``frozen_attributes``)."""
        return self._freezing(cls).maybe

    def _freezing(self, cls: ClassRef) -> Freezing:
        if self.world.query_log.is_open(self._frozen, cls):
            return Freezing(frozenset(), ())
        return self.world.query_log.memoize(self._frozen, cls, lambda: self._find_frozen(cls))

    def _find_frozen(self, cls: ClassRef) -> Freezing:
        init = self.world.project.method(cls, "__init__")
        found, maybe = set(), dict[str, Condition]()
        if init is not None and mentions_freezing(self.world, cls):
            for record in self.records(init):
                if record.final is None:
                    continue
                for (_, name), value in record.final.vars.items():
                    for atom in value:
                        if not isinstance(atom, Obj):
                            continue
                        held = record.final.vars.get((atom.oid, FROZEN))
                        if held == const(True):
                            found.add(EVERYTHING if name == "self" else name)
                        elif held == MAYBE_FROZEN and atom.oid in record.conditions:
                            condition = record.conditions[atom.oid]
                            maybe[EVERYTHING if name == "self" else name] = Condition(condition.test, None, init)
        for name, when in set_frozen(self.world, cls, self._machine_alone).items():
            if when is None:
                found.add(name)
            else:
                maybe.setdefault(name, when)
        if found and self.world.is_module_class(cls) and parametric_attributes(self.world, cls) <= found:
            found.add(EVERYTHING)
        return Freezing(frozenset(found), tuple(sorted((each, one) for each, one in maybe.items() if each not in found)))

    def given_frozen(self, cls: ClassRef) -> frozenset[str]:
        """Attributes that hold what the constructor is given, where every visible call gives it an attribute that its own object leaves
        frozen: ``Tuner(reference=self.expert)``."""
        project = self.world.project
        init = project.method(cls, "__init__")
        callers = project.callers(init) if init is not None else None
        if init is None or callers is None or not callers.calls or project.subclasses(cls):
            return frozenset()
        params = {param.name for param in self.world.header(init).params[1:]}
        places: dict[str, set[str]] = {}
        for fact in project.attrs(cls):
            if fact.kind is not AttrKind.NAME or fact.method != init.qualname or fact.value not in params:
                fact = fact._replace(value="")
            places.setdefault(fact.name, set()).add(fact.value)
        return frozenset(
            name
            for name, values in places.items()
            if "" not in values and all(self._always_given_frozen(init, value, callers.calls) for value in values)
        )

    def _always_given_frozen(self, init: FunctionRef, parameter: str, calls: tuple[Caller, ...]) -> bool:
        params = self.world.header(init).params[1:]
        for caller in calls:
            arg = argument_given(params, parameter, caller.call.args)
            owner = self.world.header(caller.ref).owner
            holder, _, name = arg.name.partition(".") if arg is not None else ("", "", "")
            if holder != "self" or not owner or name not in self.frozen_attributes(ClassRef(caller.ref.path, owner)):
                return False
        return True

    def frozen_where_made(self, cls: ClassRef, depth: int = 0) -> bool:
        """Whether each object of a class that is visibly made is held by an attribute that is left frozen, or by an object of
        which that is so."""
        project = self.world.project
        init = project.method(cls, "__init__")
        if init is None or depth == MAX_HOLDERS_ABOVE or project.subclasses(cls):
            return False
        callers = project.callers(init)
        made = [(c.ref, c.call.callee) for c in callers.calls if not is_test(c.ref.path, c.ref.qualname)]
        return bool(made) and not callers.escapes and all(self._held_frozen(ref, callee, depth) for ref, callee in made)

    def _held_frozen(self, ref: FunctionRef, callee: str, depth: int) -> bool:
        """Whether what a call in a method constructs is held by an attribute that is left frozen."""
        cls = self.world.class_of_method(ref)
        if cls is None:
            return False
        names = {
            attr.name for attr in self.world.project.attrs(cls) if attr.method == ref.qualname and attr.value == f"{callee}()"
        }
        if not names:
            return False
        frozen = self.frozen_attributes(cls)
        return names <= frozen or EVERYTHING in frozen or self.frozen_where_made(cls, depth + 1)

    def frozen_wherever(self, name: str) -> bool:
        """Whether some class of the project leaves a module frozen that it holds in an attribute of this name, and no other
        class holds a module there that may want gradients (what keeps the weights of a running average, say)."""
        if self.world.query_log.is_open(self._frozen_names, name):
            return False
        return self.world.query_log.memoize(self._frozen_names, name, lambda: self._find_frozen_name(name))

    def _find_frozen_name(self, name: str) -> bool:
        classes = self.world.project.classes_with_attribute(name)
        if not 0 < len(classes) <= MAX_HOLDERS:
            return False
        frozen = {cls for cls in classes if self.frozen_attributes(cls) & {name, EVERYTHING}}
        return bool(frozen) and not any(may_hold_module(self.world, cls, name) for cls in classes if cls not in frozen)

    # --- fates --------------------------------------------------------------------------------------------------------

    def fate(self, record: Record, gid: int, depth: int = 0, cuts_alone: bool = False) -> Fate:
        """What becomes of a graph's values, in this record and, where they are returned, in the callers of its root (which are
        run for it: ask last). No more callers are asked once the values train something, or, with ``cuts_alone``, once they are
        not only cut."""
        here = self.fate_here(record, gid)
        if here.kept and not (here.trains or here.passed or here.lost):
            here = self._read_later(record, gid, here, depth)
        if here.trains or not here.escapes or (cuts_alone and (here.kept or here.passed or here.lost)):
            return here
        after = self.fate_of_result(record.root, depth, cuts_alone)
        return Fate(
            after.trains,
            here.cuts + after.cuts,
            here.kept + after.kept,
            here.passed + after.passed,
            after.escapes,
            after.callers,
            after.off_callers,
            here.lost or after.lost,
            here.raises or after.raises,
            moved=here.moved or after.moved,
        )

    def _read_later(self, record: Record, gid: int, here: Fate, depth: int) -> Fate:
        """A fate with what methods of the root's class do with the attributes that keep values, where all who read these are in
        sight."""
        cuts = here.cuts
        for place in sorted({sink.how for sink in here.kept}):
            found = self._fate_of_attribute(record, gid, place, depth) if depth < MAX_CALLER_DEPTH else None
            if found is None:
                return here
            if found.trains:
                return Fate(True)
            cuts += found.cuts
        return replace(here, cuts=cuts, kept=())

    def _fate_of_attribute(self, record: Record, gid: int, place: str, depth: int) -> Fate | None:
        """What the methods of the root's class make of what an attribute keeps; None where that is not known, or goes on. A state that goes
        from one call into the next is wanted where something else that the call gives is."""
        readers = readers_of_attribute(self.world, record.root, place)
        made = record.graphs[gid]
        goes_round = made.site.frame == 0 and goes_only_into(self.world, record.root, place, made.site.node)
        cuts: list[Sink] = []
        for reader in readers or ():
            if goes_round and reader == record.root:
                continue
            graphs = [
                (each, gid)
                for each in self.records(self.root_of(reader))
                for gid, graph in each.graphs.items()
                if graph.kind is GraphKind.PARAM and (graph.what == place or graph.what.startswith(f"{place}["))
            ]
            fates = [self.fate(each, gid, depth + 1) for each, gid in graphs]
            if any(fate.trains for fate in fates):
                return Fate(True)
            if not any(fate.only_cut for fate in fates) or not all(fate.only_cut or fate.never_read for fate in fates):
                return None
            cuts += [sink for fate in fates for sink in fate.cuts]
        return Fate(False, tuple(cuts)) if cuts or (readers == [record.root] and goes_round) else None

    def fate_here(self, record: Record, gid: int) -> Fate:
        """What becomes of a graph's values in this record alone; a value that is returned escapes."""
        known = record.known_fates.get(gid)
        if known is None:
            known = record.known_fates[gid] = self._find_fate(record, gid)
        return known  # type: ignore[return-value]

    def _find_fate(self, record: Record, gid: int) -> Fate:
        family = descendants(record, gid)
        if family & record.backwarded:
            return Fate(True)
        found = set[Sink]().union(*(record.sinks[each] for each in family if each in record.sinks))
        sinks = sorted(found, key=lambda s: (s.site.frame, s.site.node, s.kind, s.how))
        return Fate(
            False,
            cuts=tuple(
                s for s in sinks if s.kind in (SinkKind.CUT, SinkKind.SHOWN, SinkKind.KEPT_PART) and s.how not in IDENTITY
            ),
            kept=tuple(s for s in sinks if s.kind is SinkKind.STORED and self._outlives(record, s)),
            passed=tuple(s for s in sinks if s.kind is SinkKind.PASSED and not self._is_result_tracked(record, s)),
            escapes=any(s.kind in (SinkKind.RETURNED, SinkKind.YIELDED) for s in sinks),
            lost=loses(record, gid, family),
            raises=any(MUST_BE_FREE in record.evidence.get(g, ()) for g in family),
            held=any(s.kind in (SinkKind.STORED, SinkKind.PASSED) for s in sinks),
            moved=any(TO_HOST in record.operations.get(g, ()) for g in family),
        )

    def _outlives(self, record: Record, sink: Sink) -> bool:
        """Whether a store is into something that outlives the root; a local list is followed by its own sinks."""
        if record.outliving is None:
            record.outliving = {event.site.key for event in record.events.values() if _keeps(record, event)}
        return sink.site.key in record.outliving

    def _is_result_tracked(self, record: Record, sink: Sink) -> bool:
        """Whether the result of the call that got the value is itself followed (then its own sinks decide)."""
        if record.call_results is None:
            record.call_results = {}
            for gid, graph in record.graphs.items():
                if graph.kind is GraphKind.OPAQUE and graph.parents:
                    record.call_results.setdefault(graph.site.key, gid)
        found = record.call_results.get(sink.site.key)
        if found is None:
            return False
        tracked = record.tracked.get(found)
        if tracked is None:
            family = descendants(record, found)
            tracked = any(s.kind not in (SinkKind.DROPPED, SinkKind.PASSED) for g in family for s in record.sinks.get(g, ()))
            record.tracked[found] = tracked
        return tracked

    def fate_of_result(self, ref: FunctionRef, depth: int = 0, cuts_alone: bool = False) -> Fate:
        """What the callers of a function do with what it returns; see ``fate``."""
        if ref.qualname == MODULE or self.is_forward(ref):
            return Fate(False, escapes=True)
        callers = self.world.project.callers(ref)
        if not callers.calls or callers.escapes or depth >= MAX_CALLER_DEPTH or len(callers.calls) > MAX_CALLERS:
            return Fate(False, escapes=True)
        trains, escapes = False, False
        cuts: list[Sink] = []
        kept: list[Sink] = []
        passed: list[Sink] = []
        seen: list[FunctionRef] = []
        off = 0
        lost = moved = unread = False
        raises: list[bool] = []
        for caller in sorted({self.root_of(c.ref) for c in callers.calls}):
            if caller == ref:
                continue
            seen.append(caller)
            answered = False
            for record in self.records(caller):
                escapes |= any(ref in refs for refs in record.unfollowed.values())  # a call of it, or more, was not run
                for call in record.fates:
                    if call.callee != ref:
                        continue
                    answered = True
                    if call.mode is Mode.OFF:
                        off += 1
                        continue
                    inner = self.fate(record, call.mark, depth + 1, cuts_alone)
                    dropped = any(sink.kind is SinkKind.DROPPED for sink in record.sinks.get(call.mark, ()))
                    seen_at_all = inner.trains or inner.cuts or inner.kept or inner.passed or inner.escapes
                    if not seen_at_all and self.root_of(record.frames[call.site.frame].ref) != caller:
                        continue  # this caller calls another one, which is asked itself
                    escapes |= not (seen_at_all or dropped)  # the result was lost on its way: nothing is known of it
                    unread |= dropped and not seen_at_all
                    trains |= inner.trains
                    cuts += inner.cuts
                    kept += inner.kept
                    passed += inner.passed
                    escapes |= inner.escapes
                    lost |= inner.lost
                    moved |= inner.moved
                    raises.append(inner.raises)
            escapes |= not answered
            if trains or (cuts_alone and (escapes or kept or passed or lost)):
                break
        proven = bool(raises) and all(raises)
        escapes, unread = escapes or unread, unread and not escapes
        return Fate(
            trains, tuple(cuts), tuple(kept), tuple(passed), escapes, tuple(seen), off, lost, proven, moved=moved, unread=unread
        )

    def is_forward(self, ref: FunctionRef) -> bool:
        """Whether a function is a module's own forward: who runs the module may not be visible (a trainer that was handed it),
        whatever visible callers do with what it returns."""
        return self.world.is_forward(ref)

    def root_of(self, ref: FunctionRef) -> FunctionRef:
        return self.world.outermost(ref)


def _keeps(record: Record, event: Event) -> bool:
    """Whether an event puts a value where it outlives the root."""
    if getattr(event, "external", False):
        return True
    if not isinstance(event, Accumulate):
        return False
    owner, name = event.key
    return owner == -2 or (owner >= len(record.frames) and (event.holder_frame == -1 or not name.startswith("[")))


def loses(record: Record, gid: int, family: frozenset[int]) -> bool:
    """Whether something is computed from a graph's values, attached, of which the analysis does not know what becomes: it may
    well be trained. A piece of a result that nothing is done with is no such thing."""
    followed = frozenset[int]().union(*(record.graphs[each].parents for each in family))
    return any(
        each not in followed
        and not any(sink.kind is not SinkKind.STORED for sink in record.sinks.get(each, ()))
        and (not is_part(record, record.graphs[each]) or bool(record.evidence.get(each)))
        for each in family - {gid}
    )


def is_part(record: Record, graph: Graph) -> bool:
    """Whether the graph is that of one part of a result (``out[0]``), not of the result itself: that may be attached to a part
    of the iteration before (``out, state = net(x, state)``)."""
    if graph.kind is not GraphKind.OPAQUE:
        return False
    parents = [record.graphs[gid] for gid in graph.parents]
    return any(
        parent.site == graph.site and parent.kind in CALLED_KINDS and len(parent.what) < len(graph.what) for parent in parents
    )


def descendants(record: Record, gid: int) -> frozenset[int]:
    """The graph and every graph that depends on it."""
    children = record.children
    out = {gid}
    todo = [gid]
    for each in todo:  # it grows on the way
        for child in children.get(each, ()):
            if child not in out:
                out.add(child)
                todo.append(child)
    record.note_asked(len(out) - 1)
    return frozenset(out)
