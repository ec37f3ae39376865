"""What no name of the program holds: cycles that wait for the collector, what C++ holds."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from torchmemlint.growth.worker.cycles import cycles_in
from torchmemlint.growth.worker.evidence import Evidence
from torchmemlint.growth.worker.heap import Size, is_node, is_tensor, kind_of, storage_of, tensors_and_nodes
from torchmemlint.growth.worker.holders import Path, Root, Search
from torchmemlint.growth.worker.keeper import Keeper

Kept = Callable[[list[Path]], Keeper | None]


def cycles(evidence: Evidence, waste: list[Any]) -> list[Keeper]:
    """The cycle that keeps most of the garbage's tensors."""
    tensors, nodes = tensors_and_nodes(waste)
    # weak references to garbage are gone: what was there is known by its id
    window = [
        one
        for one in tensors
        if id(one) in evidence.second.tensors and evidence.begin.was_new(id(one)) and id(one) not in evidence.first.tensors
    ]
    size = Size()
    for one in window:
        size.tensors += 1
        storage = storage_of(one)
        if storage is not None and storage[0] not in evidence.known:
            evidence.known.add(storage[0])
            size.tensor_bytes += storage[1]
    for one in (*tensors, *nodes):
        node = one if is_node(one) else one.grad_fn
        if node is not None:
            size += evidence.graphs.below(node)
    if not size.tensors and not size.nodes:
        return []
    for cycle in cycles_in(waste, [*window, *tensors][:200])[:1]:
        return [
            Keeper(
                "cycle", cycle.words, "cycle", cycle.owner, "", size, evidence.iterations, mark=cycle.mark, appears=True,
                lines=cycle.lines,
            )
        ]  # fmt: skip
    return [Keeper("cycle", "a reference cycle", "cycle", "", "", size, evidence.iterations)]


def without_name(evidence: Evidence, things: list[Any], search: Search, kept: Kept) -> list[Keeper]:
    """What lives on after a collection: in a list that an expression is making, below a function that C++ holds (a hook), or held by C++."""
    groups: dict[int, list[Path]] = {}
    native: list[Any] = []
    for path in map(search.path, things):
        anchor = evidence.anchor(path)
        if path.root.kind == "nobody" and evidence.is_being_made(path):
            made = path.objects[-1]
            groups.setdefault(id(made), []).append(Path(path.objects, Root("stack", type(made).__name__, "", made)))
        elif anchor is None or path.root.kind == "nobody":
            native.append(path.objects[0])
        else:
            groups.setdefault(id(anchor), []).append(path)
    found = [keeper for some in groups.values() if (keeper := kept(some)) is not None]
    return found + (_native(evidence, native) if native else [])


def _native(evidence: Evidence, things: list[Any]) -> list[Keeper]:
    """What only C++ holds: gradients that were made with a graph are a cycle with their leaf."""
    members = [one for one in evidence.rest.values() if not evidence.in_a_graph(one)]
    often = Counter(map(kind_of, members))
    members = [one for one in members if often[kind_of(one)] >= max(2, evidence.iterations // 4)]
    things = [one for one in things if not evidence.in_a_graph(one)]
    if not members:
        return []
    size = evidence.size(members)
    size += _size_of_gradients(evidence, members)
    leaves = [one for one in things if is_tensor(one) and one.is_leaf and one.requires_grad]
    graph = any(one.grad is not None and one.grad.grad_fn is not None for one in leaves)
    alive: list[Callable[[], object]] = [weakref.ref(one) for one in things[:8] if is_tensor(one)]
    return [
        Keeper(
            "native", "`.grad` → graph → leaf" if graph else "", "nobody", "",
            "a leaf with the graph of its gradient" if graph else "tensors", size, evidence.iterations, alive=alive,
        )
    ]  # fmt: skip


def _size_of_gradients(evidence: Evidence, leaves: list[Any]) -> Size:
    size = Size()
    for one in leaves:
        gradient = one.grad if one.is_leaf else None
        if gradient is None:
            continue
        size.tensors += 1
        found = storage_of(gradient)
        if found is not None and found[0] not in evidence.known:
            evidence.known.add(found[0])
            size.tensor_bytes += found[1]
        if gradient.grad_fn is not None:
            size += evidence.graphs.below(gradient.grad_fn)
    return size


__all__ = ["cycles", "without_name"]
