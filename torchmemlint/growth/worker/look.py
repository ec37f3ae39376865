"""A look at the heap in three moments: what was born between the first two and lives at the third is kept by somebody.

``Look.finish`` names who keeps it, and makes a ``Keeper`` of each: bytes an iteration, and marks for the search for its line.
"""

from __future__ import annotations

import collections
import gc
import sys
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchmemlint.growth.worker.cycles import cycles_in
from torchmemlint.growth.worker.frames import locals_of, name_of
from torchmemlint.growth.worker.heap import (
    Begin,
    Graphs,
    Size,
    Snapshot,
    garbage,
    is_node,
    is_tensor,
    kind_of,
    storage_of,
    tensors_and_nodes,
)
from torchmemlint.growth.worker.holders import (
    CACHE,
    CLASS_SPACE,
    Path,
    Roots,
    Search,
    attributes,
    described,
    element,
    is_a,
    is_namespace,
    named,
)
from torchmemlint.growth.worker.lines import Mark

SAMPLED = 12
NAMED = ("local", "global", "class", "generator")
CONTAINERS = (list, dict, set, bytearray)


class Sentinel:
    """Put beside a node, to see by a weak reference when the node goes."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True)
class Keeper:
    """Who keeps what grows. ``kind``: container, name, attribute, cycle, native. ``size`` is that of ``iterations`` iterations;
    ``elsewhere``: a variable of another thread."""

    kind: str
    holder: str
    root: str
    of: str
    gets: str
    size: Size
    iterations: int
    mark: Mark | None = None
    appears: bool = False
    alive: list[Callable[[], object]] = field(default_factory=list)
    length: Callable[[Any], int | None] | None = None
    attribute: str = ""
    owner: str = ""
    lines: tuple[tuple[str, int, str], ...] = ()
    loop_local: bool = False
    elsewhere: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What is the same in two looks at one growth."""
        return self.kind, self.holder, self.of


class Look:
    """``first`` is the moment of its making; then ``middle`` and ``finish``, each at the head of an iteration."""

    def __init__(self, iteration: int) -> None:
        self.start = iteration
        self.first = Begin()
        self.second: Snapshot | None = None
        self.mid = self.end = iteration

    def middle(self, iteration: int) -> None:
        """The second moment."""
        self.mid, self.second = iteration, Snapshot()

    def cancel(self) -> None:
        """There will be no third moment."""
        self.first.end(ids=False)

    def ends(self, iteration: int) -> None:
        """The third moment is at this iteration."""
        self.end = iteration

    def finish(self, stack: types.FrameType, loop_frame: types.FrameType, rate: float) -> list[Keeper]:
        """The third moment: who keeps what was born between the first two. ``rate`` are the bytes an iteration that were measured."""
        assert self.second is not None
        with torch._C.DisableTorchFunction():
            return _Finished(self, stack, loop_frame, rate).keepers()


class _Finished:
    def __init__(self, look: Look, stack: types.FrameType, loop_frame: types.FrameType, rate: float) -> None:
        assert look.second is not None
        self.look, self.second = look, look.second
        self.iterations = max(1, look.mid - look.start)
        self.loop_frame = loop_frame
        self.stack, self.rate = stack, rate
        look.first.end()
        everything = gc.get_objects()
        self.tensors, self.nodes = tensors_and_nodes(everything)
        self.buffers = [
            one for one in everything if type(one) in SIZED and _ends_in_a_buffer(one) and not look.first.is_new(one)
        ]
        del everything
        is_new = look.first.is_new
        self.known = {found[0] for tensor in self.tensors if not is_new(tensor) and (found := storage_of(tensor)) is not None}
        self.graphs = Graphs(look.first.sequence, self.second.sequence, self.known)
        self.survivors = [one for one in self.tensors if self.second.has(one) and is_new(one)]

    def keepers(self) -> list[Keeper]:
        """All of them. The collector runs only if somebody holds what has no name: its garbage, or C++."""
        found, unnamed, rest = self._named()
        if unnamed:
            references = [weakref.ref(one) for one in unnamed if is_tensor(one)]
            others = [weakref.ref(one) for one in rest.values()]
            unnamed.clear()
            rest.clear()
            self.tensors, self.nodes, self.survivors = [], [], []
            waste = garbage()
            found += self._cycles(waste)
            del waste
            native = [one for reference in references if (one := reference()) is not None]
            rest = {id(one): one for reference in others if (one := reference()) is not None}
            if native:
                found += self._without_name(native, rest)
        explained = sum(keeper.size.with_overhead for keeper in found) / self.iterations
        if explained < self.rate / 2:
            found += self._other_memory()
        least = self.rate * self.iterations / 20
        return [keeper for keeper in found if keeper.size.with_overhead > (least if keeper.kind in ("native", "cycle") else 0)]

    def _named(self) -> tuple[list[Keeper], list[Any], dict[int, Any]]:
        """What has a name; the things that have none; all survivors that belong to no name."""
        carriers = self._carriers()
        sampled = self.survivors[:: max(1, len(self.survivors) // SAMPLED)][: 2 * SAMPLED]
        old_nodes = [
            node for node in self.nodes
            if type(node).__name__ != "AccumulateGrad" and self.graphs.since <= int(node._sequence_nr()) < self.graphs.until
        ][:SAMPLED]  # fmt: skip
        targets = [*sampled, *carriers, *old_nodes]
        found: list[Keeper] = []
        if not targets:
            return found, [], {}
        mine = (
            self.tensors,
            self.nodes,
            self.survivors,
            sampled,
            carriers,
            old_nodes,
            targets,
            found,
            self.known,
            self.graphs.nodes,
        )
        search = Search(targets, Roots(self.stack), mine)
        ways = [(search.path(one), one) for one in carriers]
        with_name = [pair for pair in ways if pair[0].root.kind in NAMED] or ways
        upstream = {id(one) for one in self._upstream([one for _, one in with_name])}
        for way, carrier in with_name:
            keeper = self._carried(way, carrier) if id(carrier) in upstream else None
            if keeper is not None:
                found.append(keeper)
        paths = [search.path(thing) for thing in (*sampled, *old_nodes)]
        groups: dict[int, list[Path]] = {}
        unnamed: list[Any] = []
        for path in paths:
            anchor = self._anchor(path)
            if anchor is None or path.root.kind not in NAMED:
                unnamed.append(path.objects[0])
            else:
                groups.setdefault(id(anchor), []).append(path)
        rest = {id(one): one for one in self.survivors}
        for some in groups.values():
            keeper = self._kept(some, rest)
            if keeper is not None:
                found.append(keeper)
        unnamed = [one for one in unnamed if is_node(one) or not self._in_a_graph(one)]
        return found, unnamed, rest

    # -- graphs that grow below one name

    def _carriers(self) -> list[Any]:
        """Tensors of now, not of the window, whose graphs reach back into the window."""
        survivors = {id(one) for one in self.survivors}
        fresh = [one for one in self.tensors if id(one) not in survivors and not one.is_leaf]
        return [one for one in fresh if one.grad_fn is not None and self.graphs.oldest(one.grad_fn)][:SAMPLED]

    def _upstream(self, carriers: list[Any]) -> list[Any]:
        """Those of the carriers whose graphs are part of the others' graphs."""
        nodes = {one.grad_fn for one in carriers}
        upstream: dict[Any, Any] = {}
        for one in carriers:
            if not self.graphs.reaches(one.grad_fn, nodes - {one.grad_fn}):
                upstream.setdefault(one.grad_fn, one)
        return list(upstream.values())

    def _carried(self, path: Path, tensor: Any) -> Keeper | None:
        size = self.graphs.below(tensor.grad_fn)
        if not size.nodes:
            return None
        found = next(
            (node for node in self.graphs.nodes if self.graphs.since <= int(node._sequence_nr()) < self.graphs.until), None
        )
        keeper = Keeper(
            "name", named(path), path.root.kind, path.root.of, "the result of each step", size, self.iterations,
            mark=_slot(path), alive=[_beside(found)] if found is not None else [],
        )  # fmt: skip
        return keeper

    # -- containers

    def _anchor(self, path: Path) -> Any:
        """The first object on the way up that was there before what it holds; None where nobody in Python holds it."""
        for one in path.objects[1:]:
            if not self.look.first.is_new(one) and not is_tensor(one):
                return one
        root = path.root
        if root.kind in NAMED:
            return root.owner
        return None

    def _kept(self, paths: list[Path], rest: dict[int, Any]) -> Keeper | None:
        path = paths[0]
        anchor = self._anchor(path)
        members = [one.objects[0] for one in paths]
        below = _below(anchor if anchor is not path.root.owner else path.objects[-1], rest)
        members = [*members, *(one for one in below if all(one is not other for other in members))]
        size = self._size(members, rest)
        inside = next((index for index, one in enumerate(path.objects) if one is anchor), None)
        is_local = (path.root.kind == "local" and path.root.owner is self.loop_frame) or path.root.kind == "global"
        elsewhere = path.root.kind == "local" and not _in_stack(path.root.owner, self.stack)
        common: dict[str, Any] = {
            "elsewhere": elsewhere,
            "root": path.root.kind, "of": path.root.of, "size": size, "iterations": self.iterations,
            "alive": [weakref.ref(one) for one in members[:8] if is_tensor(one)],
        }  # fmt: skip
        if inside is None:  # the name itself is given something else in each step
            return Keeper("name", named(path, path.objects[-1]), gets=described(path.objects), mark=_slot(path), **common)
        if is_a(anchor, CACHE):
            mark = lambda frame: anchor.cache_info().currsize  # noqa: E731
            return Keeper(
                "container", named(path, anchor), gets="an entry", mark=mark, length=_length(path, anchor), **common
            )  # fmt: skip
        if is_a(anchor, CONTAINERS) or _is_deque(anchor):
            holder = named(path, anchor)
            attribute = not _is_namespace(anchor, path, inside)
            if attribute:
                loop_local = is_local and inside == len(path.objects) - 1
                return Keeper(
                    "container", holder, gets=element(path, anchor), mark=_contents(anchor, path.objects[inside - 1]),
                    length=_length(path, anchor), loop_local=loop_local, **common,
                )  # fmt: skip
        return Keeper(
            "attribute", named(path, path.objects[inside - 1]), gets=described(path.objects[:inside]),
            mark=_attribute(anchor, path.objects[inside - 1]), **common,
        )  # fmt: skip

    def _size(self, members: list[Any], rest: dict[int, Any]) -> Size:
        size = Size()
        for one in members:
            if is_node(one):
                size += self.graphs.below(one)
                continue
            if rest.pop(id(one), None) is None:
                continue
            size.tensors += 1
            found = storage_of(one)
            if found is not None and found[0] not in self.known:
                self.known.add(found[0])
                size.tensor_bytes += found[1]
            if one.grad_fn is not None:
                size += self.graphs.below(one.grad_fn)
        return size

    # -- memory that is no new tensor

    def _other_memory(self) -> list[Keeper]:
        """A tensor that is replaced by a longer one, and containers of arrays. Whether these grow is seen when lines are traced."""
        tensors, _ = tensors_and_nodes(gc.get_objects())
        joined = [one for one in tensors if not self.second.has(one) and self.look.first.is_new(one) and self._longer(one)]
        fitting = [one for one in self.buffers if self.rate / 20 <= _nbytes(_last(one)) <= 2 * self.rate]
        self.buffers = sorted(fitting, key=lambda one: abs(_nbytes(_last(one)) - self.rate))[:SAMPLED]
        search = Search(
            [*joined[:SAMPLED], *self.buffers], Roots(self.stack), (tensors, joined, fitting, self.buffers, self.known)
        )
        found = []
        for one in joined[:SAMPLED]:
            path = search.path(one)
            if path.root.kind in NAMED:
                size = Size(tensor_bytes=int(self._longer(one) * self.iterations))
                found.append(
                    Keeper(
                        "name",
                        named(path),
                        path.root.kind,
                        path.root.of,
                        "a longer tensor",
                        size,
                        self.iterations,
                        mark=_slot(path),
                    )
                )
        for one in self.buffers:
            path = search.path(one)
            if path.root.kind in NAMED:
                last = _last(one)
                size = Size(tensor_bytes=_nbytes(last) * self.iterations)
                found.append(
                    Keeper(
                        "container", named(path), path.root.kind, path.root.of, f"a `{type(last).__name__}`", size, self.iterations,
                        mark=_contents(one, last), length=_length(path, one),
                    )
                )  # fmt: skip
        return found

    def _longer(self, tensor: Any) -> float:
        """Bytes an iteration that a tensor has more than one of its kind had at the second moment; 0 if there was none."""
        found = storage_of(tensor)
        before = self.second.longest.get(kind_of(tensor)) if tensor.ndim else None
        if found is None or before is None or found[1] <= before:
            return 0.0
        rate = (found[1] - before) / max(1, self.look.end - self.look.mid)
        return rate if self.rate / 2 < rate < 2 * self.rate else 0.0

    # -- nobody in Python, and cycles

    def _without_name(self, things: list[Any], rest: dict[int, Any]) -> list[Keeper]:
        """What lives on after a collection: below a function that C++ holds (a hook), or held by C++ itself."""
        search = Search(things, Roots(self.stack), (things, rest, self.known, self.graphs.nodes))
        groups: dict[int, list[Path]] = {}
        native: list[Any] = []
        for path in map(search.path, things):
            anchor = self._anchor(path)
            if anchor is None or path.root.kind == "nobody":
                native.append(path.objects[0])
            else:
                groups.setdefault(id(anchor), []).append(path)
        found = [keeper for some in groups.values() if (keeper := self._kept(some, rest)) is not None]
        return found + (self._native(native, rest) if native else [])

    def _native(self, things: list[Any], rest: dict[int, Any]) -> list[Keeper]:
        """What only C++ holds: gradients that were made with a graph are a cycle with their leaf."""
        members = [one for one in rest.values() if not self._in_a_graph(one)]
        things = [one for one in things if not self._in_a_graph(one)]
        if len(members) < max(2, self.iterations // 4):
            return []
        size = self._size(members, rest)
        size += self._size_of_gradients(members)
        leaves = [one for one in things if is_tensor(one) and one.is_leaf and one.requires_grad]
        graph = any(one.grad is not None and one.grad.grad_fn is not None for one in leaves)
        holder = "`.grad` → graph → leaf" if graph else ""
        alive: list[Callable[[], object]] = [weakref.ref(one) for one in things[:8] if is_tensor(one)]
        return [
            Keeper(
                "native",
                holder,
                "nobody",
                "",
                "a leaf with the graph of its gradient" if graph else "tensors",
                size,
                self.iterations,
                alive=alive,
            )
        ]

    def _size_of_gradients(self, leaves: list[Any]) -> Size:
        size = Size()
        for one in leaves:
            gradient = one.grad if one.is_leaf else None
            if gradient is None:
                continue
            size.tensors += 1
            found = storage_of(gradient)
            if found is not None and found[0] not in self.known:
                self.known.add(found[0])
                size.tensor_bytes += found[1]
            if gradient.grad_fn is not None:
                size += self.graphs.below(gradient.grad_fn)
        return size

    def _in_a_graph(self, tensor: Any) -> bool:
        """Whether a tensor is saved by, or the result of, a node that a holder was found for."""
        if tensor.grad_fn is not None and tensor.grad_fn in self.graphs.nodes:
            return True
        found = storage_of(tensor)
        return found is not None and (found[0] in self.known or found[0] in self.graphs.later)

    def _cycles(self, waste: list[Any]) -> list[Keeper]:
        first, second = self.look.first, self.second
        tensors, nodes = tensors_and_nodes(waste)
        # weak references to garbage are gone: what was there is known by its id
        window = [one for one in tensors if id(one) in second.tensors and first.was_new(id(one))]
        size = Size()
        for one in window:
            size.tensors += 1
            storage = storage_of(one)
            if storage is not None and storage[0] not in self.known:
                self.known.add(storage[0])
                size.tensor_bytes += storage[1]
        for one in (*tensors, *nodes):
            node = one if is_node(one) else one.grad_fn
            if node is not None:
                size += self.graphs.below(node)
        if not size.tensors and not size.nodes:
            return []
        for cycle in cycles_in(waste, [*window, *tensors][:200])[:1]:
            return [
                Keeper(
                    "cycle", cycle.words, "cycle", cycle.owner, "", size, self.iterations, mark=cycle.mark, appears=True,
                    attribute=cycle.attribute, owner=cycle.owner, lines=cycle.lines,
                )
            ]  # fmt: skip
        return [Keeper("cycle", "a reference cycle", "cycle", "", "", size, self.iterations)]


SIZED = (list, dict, collections.deque)


def _last(container: Any) -> Any:
    if not len(container):
        return None
    if type(container) is dict:
        return container[next(reversed(container))]
    return container[-1]


def _nbytes(thing: Any) -> int:
    """Bytes of an array of numpy, or of a string of bytes; 0 of anything else."""
    if type(thing) in (bytes, bytearray):
        return len(thing)
    numpy = sys.modules.get("numpy")
    return int(thing.nbytes) if numpy is not None and type(thing) is numpy.ndarray else 0


def _ends_in_a_buffer(container: Any) -> bool:
    return len(container) >= 4 and _nbytes(_last(container)) >= 64


# -- marks: what is compared from line to line


def _value(thing: Any) -> object:
    if is_tensor(thing):
        return id(thing), thing._version, id(thing.grad_fn)
    return id(thing)


def _contents(container: Any, held: Any) -> Mark:
    """The length of a container; of a dict or list, also what lies where ``held`` does."""
    kind = next(base for base in (*CONTAINERS, _DEQUE) if is_a(container, base))
    key = None
    if kind is dict:
        key = next((name for name, value in list(dict.items(container)) if value is held), None)

    def mark(frame: types.FrameType | None) -> object:
        at = dict.get(container, key) if kind is dict and key is not None else None
        return kind.__len__(container), id(at), _sample(kind, container)

    return mark


def _sample(kind: Any, container: Any) -> object:
    """The last element: a bounded deque keeps its length."""
    if kind in (list, _DEQUE) and kind.__len__(container):
        return id(kind.__getitem__(container, -1)), id(kind.__getitem__(container, 0))
    return None


def _slot(path: Path) -> Mark | None:
    """The value of what a root names, or, below it, of the attribute or item that holds the tensor."""
    chain, root = path.objects, path.root
    if len(chain) > 1:
        holder = next((one for one in chain[1:] if not (is_a(one, tuple) or is_a(one, types.CellType))), None)
        if is_a(holder, dict) or is_a(holder, list):
            return _item(holder, chain[_place(chain, holder) - 1])
        if holder is not None and not is_a(holder, (types.FunctionType, types.FrameType)):
            return _attribute(holder, chain[_place(chain, holder) - 1])
        cell = next((one for one in chain[1:] if is_a(one, types.CellType)), None)
        if cell is not None:
            return lambda frame: _value(cell.cell_contents)
        return None
    name, owner = root.name, root.owner
    if root.kind == "local":
        return lambda frame: _value(locals_of(owner).get(name))
    if root.kind == "global":
        return lambda frame: _value(owner.get(name))
    if root.kind == "class":
        space = CLASS_SPACE(owner)
        return lambda frame: _value(space.get(name))
    return None


def _place(chain: list[Any], thing: Any) -> int:
    return next(index for index, one in enumerate(chain) if one is thing)


def _item(container: Any, held: Any) -> Mark:
    if is_a(container, list):
        return lambda frame: tuple(map(_value, list.__iter__(container)))
    key = next((name for name, value in list(dict.items(container)) if value is held), None)
    return lambda frame: _value(dict.get(container, key))


def _attribute(owner: Any, held: Any) -> Mark:
    if is_a(owner, dict):
        return _item(owner, held)
    inside = attributes(owner)
    name = next((key for key, value in inside.items() if value is held), None)
    if name is None:
        return lambda frame: {key: _value(value) for key, value in attributes(owner).items()}
    return lambda frame: _value(attributes(owner).get(name))


_DEQUE: Any = collections.deque


def _is_deque(thing: Any) -> bool:
    return is_a(thing, _DEQUE)


def _is_namespace(anchor: Any, path: Path, inside: int) -> bool:
    """Whether a dict is the ``__dict__`` of the object above it, or of a module or class."""
    if path.root.owner is anchor and path.root.kind == "global":
        return True
    above = (
        path.objects[inside + 1] if inside + 1 < len(path.objects) else path.root.owner if path.root.kind == "class" else None
    )
    return is_namespace(anchor, above)


def _length(path: Path, anchor: Any) -> Callable[[Any], int | None] | None:
    """Asks again how long the container is, by its way down from a global; None for what cannot be found again."""
    kind: Any = next((base for base in (*CONTAINERS, _DEQUE, CACHE) if is_a(anchor, base)), None)
    if kind is None:
        return None
    size = (lambda one: one.cache_info().currsize) if kind is CACHE else kind.__len__
    place = _place(path.objects, anchor)
    chain = path.objects[place:]
    root = path.root
    name = root.name
    if root.kind not in ("local", "global", "class") or any(is_a(one, CACHE) for one in chain[1:]):
        return None
    steps = [_downward(holder, held) for holder, held in zip(chain[::-1], chain[-2::-1], strict=False)]
    of, kind_of_root = root.of, root.kind
    space = root.owner if root.kind == "global" else None
    cls = weakref.ref(root.owner) if root.kind == "class" else None

    def length(frame: types.FrameType | None) -> int | None:
        thing: Any = None
        if kind_of_root == "local":
            while frame is not None and name_of(frame.f_code) != of:
                frame = frame.f_back
            thing = locals_of(frame).get(name) if frame is not None else None
        elif kind_of_root == "global":
            thing = space.get(name) if space is not None else None
        elif cls is not None and cls() is not None:
            thing = CLASS_SPACE(cls()).get(name)
        for step in steps:
            thing = step(thing) if thing is not None else None
        return size(thing) if thing is not None and is_a(thing, kind) else None

    return length


def _downward(holder: Any, held: Any) -> Callable[[Any], Any]:
    if is_a(holder, dict):
        key = next((name for name, value in list(dict.items(holder)) if value is held), None)
        return lambda thing: dict.get(thing, key) if is_a(thing, dict) else None
    if is_a(holder, (list, tuple)):
        at = next((index for index, value in enumerate(holder) if value is held), None)
        return lambda thing: thing[at] if is_a(thing, (list, tuple)) and at is not None and at < len(thing) else None
    inside = attributes(holder)
    if type(held) is dict and not any(value is held for value in inside.values()):
        return attributes
    if is_a(holder, types.CellType):
        return lambda thing: thing.cell_contents
    if is_a(holder, types.FunctionType):
        at = next((index for index, cell in enumerate(holder.__closure__ or ()) if cell is held), None)
        return lambda thing: thing.__closure__[at] if at is not None and thing.__closure__ else None
    name = next((key for key, value in inside.items() if value is held), None)
    return lambda thing: attributes(thing).get(name) if name is not None else None


def _below(top: Any, wanted: dict[int, Any], limit: int = 20_000) -> list[Any]:
    """Those of the wanted objects that a container holds."""
    todo, seen, found = [top], {id(top)}, []
    while todo and len(seen) < limit:
        for one in gc.get_referents(todo.pop()):
            if id(one) in seen or is_a(one, (type, types.ModuleType, types.FunctionType, types.CodeType, str, int, float)):
                continue
            seen.add(id(one))
            if id(one) in wanted:
                found.append(one)
            if gc.is_tracked(one):
                todo.append(one)
    return found


def _in_stack(wanted: types.FrameType, frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame is wanted:
            return True
        frame = frame.f_back
    return False


def _beside(node: Any) -> Callable[[], object]:
    """A weak reference to a sentinel that lives as long as a node."""
    sentinel = Sentinel()
    node.metadata["torchmemlint"] = sentinel
    return weakref.ref(sentinel)


__all__ = ["Keeper", "Look"]
