"""What lies on the heap at the third moment of a look, by how much of it each holder keeps."""

from __future__ import annotations

import gc
import types
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from torchmemlint.growth.worker.heap import Begin, Graphs, Size, Snapshot, is_node, is_tensor, storage_of, tensors_and_nodes
from torchmemlint.growth.worker.holders import CACHE, Path, is_a, is_array
from torchmemlint.growth.worker.unseen import held_by, is_older, is_unseen

NAMED = ("local", "global", "class", "generator", "context")
"""Kinds of roots that are a name in the program."""
PER_KIND, MOST = 3, 60
_MADE = (list, dict, set)


class Evidence:
    """``survivors`` are the tensors that were made between the first two moments, from iteration ``start`` to ``mid``, and live at the
    third one; older is what was there at ``begin``; ``rest`` are those of them that belong to no holder yet; ``rate`` are the bytes an
    iteration that were measured."""

    def __init__(self, begin: Begin, first: Snapshot, second: Snapshot, start: int, mid: int, end: int, rate: float) -> None:
        self.begin, self.first, self.second = begin, first, second
        self.iterations, self.held_for = max(1, mid - start), max(1, end - mid)
        self.rate = rate
        begin.end()
        everything = gc.get_objects()
        self.tensors, self.nodes = tensors_and_nodes(everything)
        self._containers = {id(one) for one in everything if type(one) in _MADE and not begin.is_new(one)}
        del everything
        self.known = {
            found[0] for tensor in self.tensors if not begin.is_new(tensor) and (found := storage_of(tensor)) is not None
        }
        self.graphs = Graphs(first.sequence, second.sequence, self.known)
        self.survivors = [one for one in self.tensors if second.has(one) and begin.is_new(one) and not first.has(one)]
        self.rest = {id(one): one for one in self.survivors}

    def mine(self) -> tuple[object, ...]:
        """Containers that hold what is searched, and are not the program's."""
        return self.tensors, self.nodes, self.survivors, self.rest, self.known, self.graphs.nodes

    def sample(self, tried: set[int]) -> list[Any]:
        """Some of the rest, of each kind; those that are in no other one's graph come first."""
        inner = self.graphs.strictly_below(
            node for one in self.survivors if not one.is_leaf and (node := one.grad_fn) is not None
        )
        groups: dict[tuple[bool, object], list[Any]] = {}
        for one in self.rest.values():
            node = None if one.is_leaf else one.grad_fn
            if id(one) not in tried:
                kind = (_shape(one), one.dtype, one.requires_grad, type(node).__name__)
                groups.setdefault((node in inner, kind), []).append(one)
        found: list[Any] = []
        for _, some in sorted(groups.items(), key=lambda pair: pair[0][0]):
            found += some[:: -(-len(some) // PER_KIND)]
        return found[:MOST]

    def sample_of_nodes(self) -> list[Any]:
        """Some nodes of the window that Python knows."""
        since, until = self.graphs.since, self.graphs.until
        mine = (node for node in self.nodes if type(node).__name__ != "AccumulateGrad")
        return [node for node in mine if since <= int(node._sequence_nr()) < until][:12]

    def anchor(self, path: Path) -> Any:
        """The first object on the way up that was there before what it holds; the owner of the name if there is none; None where nobody
        in Python holds it, or where it only takes the place of an earlier one: the gradient of an old tensor."""
        for one, above in pairwise([*path.objects[1:], None]):
            if is_unseen(one):
                if self._was_there(one, above):
                    return one
            elif not self.begin.is_new(one):
                if is_a(above, CACHE):  # its own table
                    return above
                return None if is_tensor(one) else one
        return path.root.owner if path.root.kind in NAMED else None

    def _was_there(self, holder: Any, above: Any) -> bool:
        """Of a holder that the collector does not see: whether it holds something older. If it is no array, it also needs several of a
        kind, and a holder that is not new: a record of one step may hold an older tensor."""
        if not is_older(holder, self.begin.new):
            return False
        return is_array(holder) or (
            not self.begin.is_new(above) and self.of_several_iterations(below(holder, {id(one): one for one in self.survivors}))
        )

    def is_being_made(self, path: Path) -> bool:
        """Whether a path ends at a container that was there before and has no holder: an expression is making it."""
        return len(path.objects) > 1 and id(path.objects[-1]) in self._containers

    def size(self, members: Iterable[Any]) -> Size:
        """What some survivors and nodes keep; these are no longer of the rest."""
        size = Size()
        for one in members:
            if is_node(one):
                size += self.graphs.below(one)
                continue
            if self.rest.pop(id(one), None) is None:
                continue
            size.tensors += 1
            found = storage_of(one)
            if found is not None and found[0] not in self.known:
                self.known.add(found[0])
                size.tensor_bytes += found[1]
            if one.grad_fn is not None:
                size += self.graphs.below(one.grad_fn)
        return size

    def in_a_graph(self, tensor: Any) -> bool:
        """Whether a tensor is saved by, or the result of, a node that a holder was found for."""
        if tensor.grad_fn is not None and tensor.grad_fn in self.graphs.nodes:
            return True
        found = storage_of(tensor)
        return found is not None and (found[0] in self.known or found[0] in self.graphs.later)

    def of_several_iterations(self, members: Iterable[Any], least: int = 2) -> bool:
        """Whether there are several of a kind: a single one takes the place of the one before it."""
        return max(Counter((type(one), _shape(one)) for one in members if is_tensor(one)).values(), default=0) >= least


def _shape(tensor: Any) -> tuple[int, ...]:
    """The shape of a tensor; nothing for those that have none."""
    try:
        return tuple(tensor.size())
    except Exception:  # nested tensors, and whatever a subclass raises
        return ()


_NO_HOLDERS = (type, types.ModuleType, types.CodeType, str, int, float)


def below(top: Any, wanted: dict[int, Any], limit: int = 20_000) -> list[Any]:
    """Those of the wanted objects that a container holds; what is but the key of a dict is not held by it alone."""
    todo, seen, found = [top], {id(top)}, []
    while todo and len(seen) < limit:
        for one in _held(todo.pop()):
            if id(one) in seen or is_a(one, _NO_HOLDERS):
                continue
            seen.add(id(one))
            if id(one) in wanted:
                found.append(one)
            if gc.is_tracked(one) or is_unseen(one):
                todo.append(one)
    return found


def _held(holder: Any) -> list[Any]:
    if is_a(holder, dict):
        return list(dict.values(holder))
    if is_array(holder):
        return held_by(holder)
    if is_a(holder, types.FunctionType):
        return [*(holder.__closure__ or ()), *(holder.__defaults__ or ()), *(holder.__kwdefaults__ or {}).values()]
    if is_a(holder, types.FrameType):
        return [one for one in gc.get_referents(holder) if not is_a(one, (types.FrameType, dict))]
    if is_tensor(holder):
        gradient = holder.grad if holder.is_leaf and holder.requires_grad else None
        return [*gc.get_referents(holder), gradient]
    return gc.get_referents(holder)


__all__ = ["NAMED", "Evidence", "below"]
