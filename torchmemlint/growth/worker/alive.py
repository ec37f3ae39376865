"""What was alive at an out-of-memory error, by its holders."""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from typing import Any

import torch

from torchmemlint.growth import words
from torchmemlint.growth.worker.heap import Graphs, is_tensor, storage_of, tensors_and_nodes
from torchmemlint.growth.worker.holders import Roots, Search, named

MOST, SHOWN = 400, 8
"""Tensors whose holders are searched for, the largest; and holders that are shown."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error says that memory is used up: torch has a class for CUDA's, and words for the host's."""
    if error is None:
        return False
    if isinstance(
        error, (MemoryError, torch.OutOfMemoryError if hasattr(torch, "OutOfMemoryError") else torch.cuda.OutOfMemoryError)
    ):
        return True
    text = str(error) if type(error) is RuntimeError else ""
    return "out of memory" in text or "can't allocate memory" in text


def alive_at(error: BaseException) -> list[str]:
    """The largest holders of tensors, in lines of the report."""
    with torch._C.DisableTorchFunction():
        tensors, _ = tensors_and_nodes(gc.get_objects())
        sizes: dict[int, int] = {}
        largest: dict[int, Any] = {}
        for one in tensors:
            found = storage_of(one)
            if found is not None:
                sizes[found[0]] = found[1]
                if found[0] not in largest or not one._is_view():
                    largest[found[0]] = one
        known = set(sizes)
        heads = [one for one in tensors if not one.is_leaf and one.grad_fn is not None]
        top = sorted(largest, key=lambda key: -sizes[key])[:MOST]
        targets = [*(largest[key] for key in top), *heads[-MOST:]]
        search = Search(targets, Roots(_innermost(error)), (tensors, targets, heads, top, sizes, largest))
        graphs = Graphs(0, 1 << 62, known)
        by_name = sorted(
            heads[-MOST:], key=lambda one: search.path(one).root.kind == "nobody"
        )  # a name before what its graph holds
        saved = [(one, graphs.below(one.grad_fn).saved_bytes) for one in by_name]
        totals: dict[str, int] = defaultdict(int)
        for key in top:
            totals[_holder(search, largest[key])] += sizes[key]
        for one, size in saved:
            totals[_holder(search, one) + " (saved by its graph)"] += size
    whole = sum(sizes.values()) + sum(size for _, size in saved)
    lines = [f"Out of memory: {words.size(whole)} of tensors were alive. The largest holders:"]
    shown = sorted(totals.items(), key=lambda pair: -pair[1])[:SHOWN]
    rest = whole - sum(size for _, size in shown)
    return [
        *lines,
        *(f"    {words.size(size):>8}  {name}" for name, size in [*shown, *([("in smaller ones", rest)] if rest else [])]),
    ]


def _innermost(error: BaseException) -> Any:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame if trace is not None else sys._getframe()


def _holder(search: Search, tensor: Any) -> str:
    assert is_tensor(tensor)
    path = search.path(tensor)
    if path.root.kind == "nobody":
        return "no Python object"
    of = f" (local of `{path.root.of}`)" if path.root.kind in ("local", "frame", "generator") else ""
    top = path.objects[-1]
    return f"`{named(path, top)}`{of}"
