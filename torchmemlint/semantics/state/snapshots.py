"""What holds at many points of one run, each point kept as what differs from the one before."""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.semantics.state.flow_state import Key, Mode, State, changed
from torchmemlint.semantics.state.values import Value, weight

KEPT = 10
"""Steps that are counted for each part of a value that differs: sums of sums grow with each statement, and are kept for each point."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A point that was kept: its number, its grad mode, and how many places there were."""

    number: int
    mode: Mode
    places: int


class Snapshots:
    """A function of a thousand closures has as many places at each of their definitions: copies of them all would fill the memory."""

    __slots__ = ("_last", "_number", "_read", "_steps")

    def __init__(self) -> None:
        self._steps: list[tuple[dict[Key, Value], list[Key]]] = []
        """For each point the places that differ from the point before, and those that are gone."""
        self._last: dict[Key, Value] = {}
        self._read: dict[Key, Value] = {}
        self._number = -1
        """The point that ``_read`` is of."""

    def keep(self, state: State) -> Snapshot:
        """Counted as the copy that it stands for, and what it holds longer than the run would by what that takes."""
        new = {place: state.vars[place] for place in changed(self._last, state.vars)}
        state.meter.take(len(state.vars) + KEPT * sum(map(weight, new.values())))
        added = sum(place not in self._last for place in new)
        complete = len(self._last) + added == len(state.vars)
        gone = [] if complete else [place for place in self._last if place not in state.vars]
        self._steps.append((new, gone))
        _step(self._last, new, gone)
        return Snapshot(len(self._steps) - 1, state.mode, len(state.vars))

    def places(self, snapshot: Snapshot) -> dict[Key, Value]:
        """What held at a point, to be read before another point is asked for. Asking for them in their order takes least."""
        if snapshot.number < self._number:
            self._read, self._number = {}, -1
        for new, gone in self._steps[self._number + 1 : snapshot.number + 1]:
            _step(self._read, new, gone)
        self._number = snapshot.number
        return self._read


def _step(places: dict[Key, Value], new: dict[Key, Value], gone: list[Key]) -> None:
    for place in gone:
        del places[place]
    places.update(new)
