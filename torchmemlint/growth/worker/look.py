"""A look at the heap in three moments: what was born between the first two and lives at the third is kept by somebody.

It begins an iteration before the first of them: an iteration's batch is older than its first call of a module, and its graph keeps it.

``Look.finish`` names who keeps it, and makes a ``Keeper`` of each: bytes an iteration, and marks for the search for its line.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch

from torchmemlint.growth.worker import unseen
from torchmemlint.growth.worker.carried import carried, carriers
from torchmemlint.growth.worker.evidence import NAMED, Evidence
from torchmemlint.growth.worker.heap import Begin, Snapshot, garbage, is_node, is_tensor
from torchmemlint.growth.worker.holders import Path, Roots, Search
from torchmemlint.growth.worker.keeper import Keeper, each_once
from torchmemlint.growth.worker.kept import kept
from torchmemlint.growth.worker.nameless import cycles, without_name
from torchmemlint.growth.worker.replaced import buffers_in, replaced

ROUNDS = 4
"""Searches for holders of the survivors that belong to none yet."""
ENOUGH = 0.95
"""No further search is made once this share of the measured growth has holders."""


class Look:
    """``begin`` is the moment of its making; then ``opens``, ``middle`` and ``finish``, each at the head of an iteration."""

    def __init__(self, iteration: int) -> None:
        self.begin = Begin()
        self.first: Snapshot | None = None
        self.second: Snapshot | None = None
        self.start = self.mid = self.end = iteration

    def opens(self, iteration: int) -> None:
        """The first moment."""
        self.start, self.first = iteration, Snapshot(young=True)

    def middle(self, iteration: int) -> None:
        """The second moment."""
        self.mid, self.second = iteration, Snapshot()

    def cancel(self) -> None:
        """There will be no third moment."""
        self.begin.end(ids=False)

    def ends(self, iteration: int) -> None:
        """The third moment is at this iteration."""
        self.end = iteration

    def finish(self, stack: types.FrameType, loop_frame: types.FrameType, rate: float) -> list[Keeper]:
        """The third moment: who keeps what was born between the first two. ``rate`` are the bytes an iteration that were measured."""
        assert self.first is not None
        assert self.second is not None
        with torch._C.DisableTorchFunction():
            evidence = Evidence(self.begin, self.first, self.second, self.start, self.mid, self.end, rate)
            return _Finished(evidence, stack, loop_frame).keepers()


class _Finished:
    def __init__(self, evidence: Evidence, stack: types.FrameType, loop_frame: types.FrameType) -> None:
        self.evidence = evidence
        self._stack, self._loop_frame = stack, loop_frame
        self._buffers = buffers_in(evidence.begin)
        self._roots = Roots(stack)
        self._unseen: dict[int, list[Any]] | None = None

    def keepers(self) -> list[Keeper]:
        """All of them. The collector runs only if somebody holds what has no name: its garbage, or C++."""
        evidence = self.evidence
        found, unnamed = self._named()
        if unnamed:
            found += self._nameless(unnamed)
        if self._explained(found) < 0.5:
            found += replaced(evidence, self._buffers, self._roots)
        least = evidence.rate * evidence.iterations / 20
        found = each_once(found)
        return [keeper for keeper in found if keeper.size.with_overhead > (least if keeper.kind in ("native", "cycle") else 0)]

    def _explained(self, found: list[Keeper]) -> float:
        """The share of the measured growth that has holders."""
        evidence = self.evidence
        return sum(keeper.size.with_overhead for keeper in found) / (evidence.iterations * max(1.0, evidence.rate))

    def _named(self) -> tuple[list[Keeper], list[Any]]:
        """What has a name, and the things that have none."""
        evidence, tried = self.evidence, set[int]()
        found: list[Keeper] = []
        unnamed: list[Any] = []
        first = carriers(evidence)
        nodes = evidence.sample_of_nodes()
        for _ in range(ROUNDS):
            things = [*evidence.sample(tried), *nodes]
            if not things and not first:
                break
            tried.update(map(id, things))
            search = self._search([*things, *first], unnamed, first, nodes, things)
            found += carried(evidence, first, search)
            groups, others = self._grouped(search, things)
            if others and self._unseen is None:
                self._unseen = unseen.holders(evidence.tensors, self._roots)
            if others and self._unseen:
                again, others = self._grouped(self._search(others, unnamed, things), others)
                for key, some in again.items():
                    groups.setdefault(key, []).extend(some)
            unnamed += others
            found += [keeper for some in groups.values() if (keeper := self._kept(some)) is not None]
            first, nodes = [], []
            if self._explained(found) > ENOUGH:
                break
        return found, [one for one in unnamed if is_node(one) or not evidence.in_a_graph(one)]

    def _search(self, things: list[Any], *mine: object) -> Search:
        mine = (*self.evidence.mine(), self._buffers, *mine)
        return Search(things, self._roots, mine, self._unseen, self.evidence.begin.is_new)

    def _grouped(self, search: Search, things: list[Any]) -> tuple[dict[int, list[Path]], list[Any]]:
        """The paths of each anchor, and the things that have none. A thing that takes the place of an earlier one is in neither."""
        groups: dict[int, list[Path]] = {}
        others: list[Any] = []
        for path in map(search.path, things):
            anchor = self.evidence.anchor(path)
            if anchor is not None and path.root.kind in NAMED:
                groups.setdefault(id(anchor), []).append(path)
            elif path.root.kind in NAMED:
                self.evidence.rest.pop(id(path.objects[0]), None)
            else:
                others.append(path.objects[0])
        return groups, others

    def _kept(self, paths: list[Path]) -> Keeper | None:
        return kept(self.evidence, paths, self._stack, self._loop_frame)

    def _nameless(self, unnamed: list[Any]) -> list[Keeper]:
        """Cycles, and what C++ holds. Nothing of it may be held from here while the collector runs."""
        evidence = self.evidence
        references = [weakref.ref(one) for one in unnamed if is_tensor(one)]
        others = [weakref.ref(one) for one in evidence.rest.values()]
        unnamed.clear()
        evidence.rest.clear()
        evidence.tensors, evidence.nodes, evidence.survivors = [], [], []
        self._unseen = None
        waste = garbage()
        found = cycles(evidence, waste)
        del waste
        native = [one for reference in references if (one := reference()) is not None]
        evidence.rest.update((id(one), one) for reference in others if (one := reference()) is not None)
        if native:
            found += without_name(evidence, native, self._search(native, native), self._kept)
        return found


__all__ = ["Look"]
