"""The grad mode in which a function's body starts: by its decorators, by frameworks that call it, and by all its callers.

The mode at a call is set by the last thing around or before it that touches grad mode; where nothing does, it is the mode in
which the calling function starts. So the answer is the least fixpoint over the call graph: every function collects the modes
of its callers, sets only grow, and circles need no special case.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import NamedTuple

from torchmemlint.index import keys
from torchmemlint.index.callgraph import CallGraph
from torchmemlint.index.dependency_log import MISSING, Dependency, DependencyLog, Memoized, memoized
from torchmemlint.index.edges import Caller
from torchmemlint.index.grad_effects import ON
from torchmemlint.index.modes import CallerMode, StartMode
from torchmemlint.index.references import FunctionRef
from torchmemlint.index.starts import Node, Starts


class GradMode:
    """Solves for the modes in which functions start."""

    def __init__(self, starts: Starts, calls: CallGraph, log: DependencyLog) -> None:
        self._starts = starts
        self._calls = calls
        self._log = log
        self._modes: Memoized[FunctionRef, frozenset[StartMode]] = memoized(log, self._solve)
        self._answers = memoized(log, self._find_mode)

    def grad_mode(self, ref: FunctionRef) -> CallerMode:
        """The grad mode in which the body of ``ref`` starts."""
        return self._answers.answer(ref)

    def asked_with_grad(self, ref: FunctionRef, test: str) -> bool:
        """Whether some call under which a test of a parameter of ``ref`` surely holds runs with grad mode on."""
        for caller in self._starts.for_which(ref, test):
            effect = self._starts.mode_at(caller)
            if effect == ON or (effect is None and self.grad_mode(caller.ref).mode in (StartMode.ON, StartMode.NO_CALLERS)):
                return True
        return False

    def _find_mode(self, ref: FunctionRef) -> CallerMode:
        modes = self._solve(ref)
        if modes <= {StartMode.NO_CALLERS, StartMode.OFF} and StartMode.NO_CALLERS in modes:
            meant = self._meant(ref)
            if meant == StartMode.OFF:
                modes = frozenset({StartMode.OFF})
            elif meant == StartMode.MIXED:
                return CallerMode(StartMode.ESCAPES, self._path(ref, StartMode.NO_CALLERS), True)
        if StartMode.ON in modes or StartMode.NO_CALLERS in modes:
            wanted = StartMode.ON if StartMode.ON in modes else StartMode.NO_CALLERS
            path, assumed = self._path(ref, wanted), wanted == StartMode.NO_CALLERS
            if StartMode.OFF in modes or StartMode.CHOSEN in modes:
                return CallerMode(StartMode.MIXED, path, assumed)
            if StartMode.ESCAPES in modes and wanted == StartMode.ON and not all(caller.certain for caller in path):
                return CallerMode(StartMode.ESCAPES, path, True)
            return CallerMode(StartMode.ON if wanted == StartMode.ON else StartMode.NO_CALLERS, path, assumed)
        if StartMode.CHOSEN in modes:
            return CallerMode(StartMode.MIXED, self._path(ref, StartMode.CHOSEN), chosen=True)
        if StartMode.OFF in modes:
            return CallerMode(StartMode.OFF)
        if StartMode.UNSEEN_BASE in modes:
            return CallerMode(StartMode.UNSEEN_BASE, self._path(ref, StartMode.UNSEEN_BASE), True)
        return CallerMode(StartMode.ESCAPES, self._path(ref, StartMode.ESCAPES), True)

    def _meant(self, ref: FunctionRef) -> StartMode | None:
        """What the visible calls of namesakes show about the methods from which no visible code is known to call ``ref``,
        directly or not: one of these calls may be it, on an object of no visible class (``self.task.valid_step(…)``, and there
        ``model.predict(…)``). OFF where all of them have namesakes that are called, and all of these calls run with grad mode
        off; MIXED where some of these do; None where none. What is solved for others does not rest on this."""
        seen, queue, found, off, on = {ref}, [ref], False, False, False
        while queue:
            current = queue.pop()
            node = self._starts.node(current)
            if StartMode.NO_CALLERS in node.fixed:
                found = True
                others = [
                    caller
                    for caller in self._calls.namesakes(current)
                    if caller.ref not in seen and not self._starts.is_test(caller.ref)
                ]
                guarded = [self._starts.guarded(each) or self._solve(each.ref) == {StartMode.OFF} for each in others]
                off |= any(guarded)
                on |= not all(guarded) or not guarded
                if off and on:
                    return StartMode.MIXED
            new = {caller.ref for caller, _ in node.edges} - seen
            seen |= new
            queue += sorted(new)
        return StartMode.OFF if found and off else None

    def _solve(self, ref: FunctionRef) -> frozenset[StartMode]:
        known = self._modes.known(ref)
        if known is MISSING:
            self._solve_around(ref)
            known = self._modes.known(ref)
        return known

    def _solve_around(self, ref: FunctionRef) -> None:
        """Solves for a function and all whose start mode it takes: which are made of each other, also in circles."""
        nodes: dict[FunctionRef, Node] = {}
        reads_of: dict[FunctionRef, list[Dependency]] = {}
        solved: dict[FunctionRef, frozenset[StartMode]] = {}
        queue = [ref]
        with self._log.untracked():
            while queue:
                current = queue.pop()
                if current in nodes or current in solved:
                    continue
                self._log.reads = []
                known = self._modes.known(current)
                if known is not MISSING:
                    solved[current] = known
                    reads_of[current] = self._log.reads
                    continue
                node = nodes[current] = self._starts.node(current)
                reads_of[current] = self._log.reads
                queue.extend(caller.ref for caller, _ in node.edges)
        places = self._write_down(nodes, reads_of)
        with self._log.untracked():
            for each, modes in _least_fixpoint(nodes, solved).items():
                self._modes.put(each, frozenset(modes), places[each])

    def _write_down(
        self, nodes: dict[FunctionRef, Node], reads_of: dict[FunctionRef, list[Dependency]]
    ) -> dict[FunctionRef, int]:
        """Writes into the log that the modes of ``nodes`` are made of each other and of what else is on their ``reads_of``; gives the
        numbers that they have there."""
        first = self._log.next
        places = {each: first + place for place, each in enumerate(nodes)}
        if self._log.on:
            for each, node in nodes.items():
                for caller, _ in node.edges:
                    if caller.ref in places:
                        reads_of[each].append(places[caller.ref])
                    else:
                        reads_of[each] += reads_of[caller.ref]
            self._log.cycle([reads_of[each] for each in nodes])
        return places

    def _path(self, ref: FunctionRef, wanted: StartMode) -> tuple[Caller, ...]:
        """The shortest chain of calls by which ``wanted`` reaches ``ref``, the immediate caller first; a certain one if any."""
        path = self._chain(ref, wanted, True) or self._chain(ref, wanted, False)
        for caller in path:  # of several calls in one function, the first was taken
            self._note_places(keys.PLACED, caller.ref)
        return path

    def _note_places(self, kind: int, ref: FunctionRef) -> None:
        self._log.read(kind, ref.path, ref.qualname)

    def _chain(self, ref: FunctionRef, wanted: StartMode, certain: bool) -> tuple[Caller, ...]:
        reached: dict[FunctionRef, _Link | None] = {ref: None}
        queue = deque([ref])
        while queue:
            current = queue.popleft()
            link = reached[current]
            node = self._starts.node(current)
            last = node.fixed.get(wanted)
            if wanted in node.fixed and (last is None or last.certain or not certain):
                return _calls(link) if last is None else (*_calls(link), last)
            length = 1 if link is None else link.length + 1
            if length > LONGEST_PATH:
                return _calls(link)
            for caller, deferred in node.edges:
                if (
                    caller.ref not in reached
                    and (caller.certain or not certain)
                    and wanted in (_through(self._solve(caller.ref), True) if deferred else self._solve(caller.ref))
                ):
                    reached[caller.ref] = _Link(caller, link, length)
                    queue.append(caller.ref)
        return ()


LONGEST_PATH = 100
"""Calls of a chain that are listed: each of a thousand functions that call one another has a chain of its own."""


class _Link(NamedTuple):
    """A call of a chain, the one before it, and how many they are."""

    caller: Caller
    before: _Link | None
    length: int


def _calls(link: _Link | None) -> tuple[Caller, ...]:
    """The calls of a chain up to a link, the immediate caller first."""
    found = []
    while link is not None:
        found.append(link.caller)
        link = link.before
    return tuple(reversed(found))


def _least_fixpoint(
    nodes: dict[FunctionRef, Node], solved: dict[FunctionRef, frozenset[StartMode]]
) -> dict[FunctionRef, set[StartMode]]:
    """The least sets of modes that hold what is fixed of each node and what its callers have, some of which are ``solved``."""
    sets: dict[FunctionRef, set[StartMode]] = {each: set(node.fixed) for each, node in nodes.items()}
    callees: dict[FunctionRef, list[tuple[FunctionRef, bool]]] = defaultdict(list)
    for each, node in nodes.items():
        for caller, deferred in node.edges:
            if caller.ref in solved:
                sets[each] |= _through(solved[caller.ref], deferred)
            else:
                callees[caller.ref].append((each, deferred))
    _spread(sets, callees, list(sets))
    # Circles that nothing outside calls.
    empty = [each for each, modes in sets.items() if not modes]
    for each in empty:
        sets[each].add(StartMode.NO_CALLERS)
    _spread(sets, callees, empty)
    return sets


def _spread(
    sets: dict[FunctionRef, set[StartMode]],
    callees: dict[FunctionRef, list[tuple[FunctionRef, bool]]],
    changed: Iterable[FunctionRef],
) -> None:
    """Pass modes from callers to callees until nothing grows."""
    queue = deque(changed)
    while queue:
        current = queue.popleft()
        for callee, deferred in callees.get(current, ()):
            new = _through(sets[current], deferred) - sets[callee]
            if new:
                sets[callee] |= new
                queue.append(callee)


def _through(modes: Iterable[StartMode], deferred: bool) -> set[StartMode]:
    """A caller's modes at the call. A lambda made with grad on may be called under no_grad; the other way round is rare."""
    return {StartMode.OFF if mode == StartMode.OFF else StartMode.ESCAPES for mode in modes} if deferred else set(modes)
