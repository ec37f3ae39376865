"""What is on the heap: tensors, nodes of autograd graphs, what only the cyclic collector frees.

No attribute of a user's object is asked through its class here, no hook of a saved tensor runs: sizes come from ``_raw_saved_*``.
"""

from __future__ import annotations

import gc
import sys
import weakref
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress
from types import ModuleType
from typing import Any

import torch

NODE_BYTES, TENSOR_BYTES = 700, 400
"""What a node, and a tensor beside its storage, take of malloc: measured with torch 2.13 on 1,000 tensors of one element (390 bytes each),
and on graphs of a small network that a backward has freed (7.8 kB for 11 nodes)."""

MOST_NODES = 300_000

_TENSOR, _NODE, _OTHER = 1, 2, 0
_kinds: dict[type, int] = {}


def _kind(cls: type) -> int:
    if issubclass(cls, torch.Tensor):
        return _TENSOR
    names = (
        {name for base in type.mro(cls) for name in vars(base)}
        if cls.__module__ in ("builtins", "torch.autograd.function")
        else ()
    )
    if ("next_functions" in names and "_sequence_nr" in names) or issubclass(cls, torch.autograd.function.BackwardCFunction):
        return _NODE
    return _OTHER


def is_tensor(thing: object) -> bool:
    """Whether something is a tensor, by its type alone: ``isinstance`` runs code of proxies."""
    return issubclass(type(thing), torch.Tensor)


def is_node(thing: object) -> bool:
    """Whether something is a node of an autograd graph."""
    return _kinds.setdefault(type(thing), _kind(type(thing))) == _NODE


def of_types(some: list[Any], types: set[type]) -> list[Any]:
    """Those of many objects that are of some types: a million of them in a tenth of a second."""
    return list(compress(some, map(types.__contains__, map(type, some))))


def tensors_and_nodes(objects: Iterable[object]) -> tuple[list[Any], list[Any]]:
    """The tensors and the autograd nodes among objects."""
    some = objects if isinstance(objects, list) else list(objects)
    types = set(map(type, some))
    for cls in types:
        if cls not in _kinds:
            _kinds[cls] = _kind(cls)
    of_tensors = {cls for cls in types if _kinds[cls] == _TENSOR}
    of_nodes = {cls for cls in types if _kinds[cls] == _NODE}
    either = of_tensors | of_nodes
    found = of_types(some, either)
    return [one for one in found if type(one) in of_tensors], [one for one in found if type(one) in of_nodes]


def storage_of(tensor: Any) -> tuple[int, int] | None:
    """The address and the bytes of a tensor's storage, None where it has none (sparse, nested, wrappers)."""
    try:
        storage = torch.Tensor.untyped_storage(tensor)
        return int(storage._cdata), int(storage.nbytes())
    except Exception:  # whatever a subclass raises
        return None


def kind_of(tensor: Any) -> object:
    """What a tensor has in common with one that is longer: its type, its number of dimensions, and all but one of its sizes."""
    shape = sorted(torch.Tensor.size(tensor))
    return tensor.dtype, tuple(shape[:-1])


def born_now() -> int:
    """The number that the next node of this thread's graphs will get: nodes are numbered as they are made."""
    return int(torch._C._autograd._get_sequence_nr())


class Snapshot:
    """The tensors that are alive at one moment, by weak references; if ``young``, those that the collector has in its young generations
    alone: what an iteration has made, without a scan of all objects."""

    __slots__ = ("longest", "sequence", "tensors")

    def __init__(self, young: bool = False) -> None:
        tensors, _ = tensors_and_nodes(gc.get_objects(0) + gc.get_objects(1) if young else gc.get_objects())
        self.tensors = {id(one): weakref.ref(one) for one in tensors}
        self.longest: dict[object, int] = {}
        for one in tensors:
            found = storage_of(one)
            if found is not None:
                self.longest[kind_of(one)] = max(found[1], self.longest.get(kind_of(one), 0))
        self.sequence = born_now()

    def has(self, tensor: Any) -> bool:
        """Whether this very tensor was alive."""
        reference = self.tensors.get(id(tensor))
        return reference is not None and reference() is tensor


class Begin:
    """The moment from which on objects are new. Where nothing in the program but torch uses ``gc``, the objects of now are frozen until
    ``end``: then a scan sees the new ones alone, which takes a hundredth of the time. Else the ids of all of them are kept, and weak
    references to tensors, because a new one may get the id of one that has gone. ``new`` are the ids of those that were made since, once
    it has ended."""

    def __init__(self) -> None:
        self.frozen = gc.get_freeze_count() == 0 and not _uses_gc()
        self._ids = array("Q")
        self._tensors: dict[int, weakref.ref[Any]] = {}
        self.new: set[int] = set()
        if self.frozen:
            gc.freeze()
        else:
            everything = gc.get_objects()
            self._ids = array("Q", map(id, everything))
            self._tensors = {id(one): weakref.ref(one) for one in tensors_and_nodes(everything)[0]}

    def end(self, ids: bool = True) -> None:
        """All objects are the collector's again; from now on it can be asked which are new."""
        if self.frozen:
            self.new = set(map(id, gc.get_objects())) if ids else set()
            gc.unfreeze()
            self.frozen = False
        elif ids and self._ids:
            everything = gc.get_objects()
            now = set(map(id, everything))
            self.new = now.difference(self._ids)
            self.new.update(key for key, reference in self._tensors.items() if key in now and reference() is None)
            for one in tensors_and_nodes(everything)[0]:
                reference = self._tensors.get(id(one))
                if reference is None or reference() is not one:
                    self.new.add(id(one))
            self._ids, self._tensors = array("Q"), {}

    def is_new(self, thing: object) -> bool:
        """Whether something was made since."""
        return id(thing) in self.new

    def was_new(self, identity: int) -> bool:
        """The same by its id."""
        return identity in self.new


def _uses_gc() -> bool:
    """Whether a module other than torch's and Python's own has ``gc`` at hand: it may count objects, or collect."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _QUIET or type(module) is not ModuleType:
            continue
        if any(value is gc or value is gc.get_objects or value is gc.collect for value in list(vars(module).values())):
            return True
    return False


_QUIET = frozenset(
    {"torch", "torchmemlint", "gc", "numpy", "torchvision", "sympy", *getattr(sys, "stdlib_module_names", ())}
) - {"__main__"}


@dataclass(slots=True)
class Size:
    """Bytes of tensors that a holder keeps, by how they are kept. ``unknown`` saved tensors were packed by a hook of the program."""

    tensors: int = 0
    tensor_bytes: int = 0
    nodes: int = 0
    saved: int = 0
    saved_bytes: int = 0
    unknown: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of storages."""
        return self.tensor_bytes + self.saved_bytes

    @property
    def with_overhead(self) -> int:
        """Bytes with an estimate of what nodes and tensors take beside them."""
        return self.bytes + NODE_BYTES * self.nodes + TENSOR_BYTES * (self.tensors + self.saved)

    def __add__(self, other: Size) -> Size:
        return Size(
            self.tensors + other.tensors,
            self.tensor_bytes + other.tensor_bytes,
            self.nodes + other.nodes,
            self.saved + other.saved,
            self.saved_bytes + other.saved_bytes,
            self.unknown + other.unknown,
        )


@dataclass(slots=True)
class Graphs:
    """Walks graphs, each node once, down to nodes older than ``since``; storages in ``known`` are not counted, nor any twice. ``later``
    are those that nodes from ``until`` on save."""

    since: int
    until: int
    known: set[int]
    nodes: dict[Any, None] = field(default_factory=dict)
    later: set[int] = field(default_factory=set)
    cut: bool = False
    _names: dict[type, tuple[str, ...]] = field(default_factory=dict)

    def below(self, start: Any) -> Size:
        """What is new below a node: nodes made from ``since`` on, before ``until``, and what they save. Newer nodes are walked, not counted."""
        size = Size()
        todo = [start]
        while todo:
            node = todo.pop()
            if node is None or node in self.nodes:
                continue
            if len(self.nodes) >= MOST_NODES:
                self.cut = True
                break
            number = 0 if type(node).__name__ == "AccumulateGrad" else int(node._sequence_nr())
            if number < self.since or number > 1 << 62:
                continue
            self.nodes[node] = None
            todo.extend(parent for parent, _ in node.next_functions)
            if number < self.until:
                size.nodes += 1
                self._saved(node, size, self.known)
            else:
                self._saved(node, Size(), self.later)
        return size

    def strictly_below(self, starts: Iterable[Any]) -> set[Any]:
        """The nodes, made from ``since`` on, that lie below some nodes."""
        todo = [parent for start in starts for parent, _ in start.next_functions]
        seen: set[Any] = set()
        while todo and len(seen) < MOST_NODES:
            node = todo.pop()
            if node is None or node in seen or type(node).__name__ == "AccumulateGrad":
                continue
            if int(node._sequence_nr()) >= self.since:
                seen.add(node)
                todo.extend(parent for parent, _ in node.next_functions)
        return seen

    def reaches(self, start: Any, targets: set[Any], limit: int = 20_000) -> bool:
        """Whether one of the nodes lies below another node."""
        todo = [parent for parent, _ in start.next_functions]
        seen: set[Any] = set()
        while todo and len(seen) < limit:
            node = todo.pop()
            if node is None or node in seen or type(node).__name__ == "AccumulateGrad":
                continue
            if node in targets:
                return True
            if int(node._sequence_nr()) >= self.since:
                seen.add(node)
                todo.extend(parent for parent, _ in node.next_functions)
        return False

    def oldest(self, start: Any, limit: int = MOST_NODES) -> bool:
        """Whether a node made in the window lies at or below one."""
        todo, seen = [start], set[Any]()
        while todo and len(seen) < limit:
            node = todo.pop()
            if node is None or node in seen or type(node).__name__ == "AccumulateGrad":
                continue
            number = int(node._sequence_nr())
            if self.since <= number < self.until:
                return True
            if number >= self.until:
                seen.add(node)
                todo.extend(parent for parent, _ in node.next_functions)
        return False

    def _saved(self, node: Any, size: Size, known: set[int]) -> None:
        kind = type(node)
        names = self._names.get(kind)
        if names is None:
            names = self._names[kind] = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
        for name in names:
            try:
                values = getattr(node, name)
            except (RuntimeError, AttributeError):  # freed by a backward
                continue
            for raw in values if type(values) in (tuple, list) else (values,):
                _count(raw, size, known)


def _count(raw: Any, size: Size, known: set[int]) -> None:
    data = getattr(raw, "data", None)
    if data is None:
        return
    if getattr(raw, "unpack_hook", None) is not None:
        size.unknown += 1
        data = next(iter(_tensors_in(data)), None)
    if not is_tensor(data):
        return
    size.saved += 1
    found = storage_of(data)
    if found is not None and found[0] not in known:
        known.add(found[0])
        size.saved_bytes += found[1]


def _tensors_in(packed: object) -> Iterator[Any]:
    for item in packed if type(packed) in (tuple, list) else (packed,):  # type: ignore[attr-defined]
        if is_tensor(item):
            yield item


def garbage() -> list[Any]:
    """Collects, and gives what only the collector frees; the caller drops it. Debug flags and the program's own garbage stay as they were."""
    flags, before = gc.get_debug(), len(gc.garbage)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
    finally:
        gc.set_debug(flags)
    found = gc.garbage[before:]
    del gc.garbage[before:]
    return found
