"""A graph that grows below one name: a sum of losses, a state that is carried on."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torchmemlint.growth.worker.evidence import NAMED, Evidence
from torchmemlint.growth.worker.holders import Path, Search, named
from torchmemlint.growth.worker.keeper import Keeper
from torchmemlint.growth.worker.marks import Bindings, slot
from torchmemlint.growth.worker.unseen import gradients

MOST = 12


class Sentinel:
    """Put beside a node, to see by a weak reference when the node goes."""

    __slots__ = ("__weakref__",)


def carriers(evidence: Evidence) -> list[Any]:
    """Tensors of now, not of the window, whose graphs reach back into the window."""
    survivors = {id(one) for one in evidence.survivors}
    fresh = [one for one in evidence.tensors if id(one) not in survivors and not one.is_leaf]
    return [one for one in fresh if one.grad_fn is not None and evidence.graphs.oldest(one.grad_fn)][:MOST]


def carried(evidence: Evidence, some: list[Any], search: Search) -> list[Keeper]:
    """Who keeps the carriers: the graphs of the others are part of these."""
    every = [(search.path(one), one) for one in some]
    ways = [pair for pair in every if pair[0].root.kind in NAMED]
    if not ways:
        of_leaves = gradients(evidence.tensors)
        ways = [pair for pair in every if id(pair[1]) in of_leaves]
    upstream = {id(one) for one in _upstream(evidence, [one for _, one in ways])}
    keepers = [_keeper(evidence, way, one) for way, one in ways if id(one) in upstream]
    return [keeper for keeper in keepers if keeper is not None]


def _upstream(evidence: Evidence, some: list[Any]) -> list[Any]:
    nodes = {one.grad_fn for one in some}
    upstream: dict[Any, Any] = {}
    for one in some:
        if not evidence.graphs.reaches(one.grad_fn, nodes - {one.grad_fn}):
            upstream.setdefault(one.grad_fn, one)
    return list(upstream.values())


def _keeper(evidence: Evidence, path: Path, tensor: Any) -> Keeper | None:
    graphs = evidence.graphs
    size = graphs.below(tensor.grad_fn)
    if not size.nodes:
        return None
    node = next((one for one in graphs.nodes if graphs.since <= int(one._sequence_nr()) < graphs.until), None)
    alive = [_beside(node)] if node is not None else []
    if path.root.kind not in NAMED:  # `backward(create_graph=True)`, and nothing sets the gradients to None
        gets = "a leaf with the graph of its gradient"
        return Keeper("native", "`.grad` → graph → leaf", "nobody", "", gets, size, evidence.iterations, alive=alive)
    mark = slot(path)
    bindings = mark if isinstance(mark, Bindings) else None
    return Keeper(
        "name", named(path), path.root.kind, path.root.of, "the result of each step", size, evidence.iterations,
        mark=mark.mark if isinstance(mark, Bindings) else mark, bindings=bindings, alive=alive,
    )  # fmt: skip


def _beside(node: Any) -> Callable[[], object]:
    """A weak reference to a sentinel that lives as long as a node."""
    sentinel = Sentinel()
    node.metadata["torchmemlint"] = sentinel
    return weakref.ref(sentinel)


__all__ = ["carried", "carriers"]
