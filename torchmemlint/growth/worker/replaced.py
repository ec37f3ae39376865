"""Memory that is no new tensor: longer ones in place of shorter, containers of arrays."""

from __future__ import annotations

import collections
import gc
import sys
from typing import Any

from torchmemlint.growth.worker import again, marks
from torchmemlint.growth.worker.evidence import NAMED, Evidence
from torchmemlint.growth.worker.heap import Begin, Size, kind_of, storage_of, tensors_and_nodes
from torchmemlint.growth.worker.holders import Path, Roots, Search, named
from torchmemlint.growth.worker.keeper import Keeper

SIZED = (list, dict, collections.deque)
MOST = 12


def buffers_in(begin: Begin) -> list[Any]:
    """Containers, older than the window, whose last element is an array or a string of bytes."""
    return [one for one in gc.get_objects() if type(one) in SIZED and _ends_in_a_buffer(one) and not begin.is_new(one)]


def replaced(evidence: Evidence, buffers: list[Any], roots: Roots) -> list[Keeper]:
    """Whether these grow is seen when lines are traced."""
    tensors, _ = tensors_and_nodes(gc.get_objects())
    longer = [one for one in tensors if not evidence.second.has(one) and evidence.begin.is_new(one) and _longer(evidence, one)]
    del longer[MOST:]
    fitting = [one for one in buffers if evidence.rate / 20 <= _nbytes(_last(one)) <= 2 * evidence.rate]
    fitting = sorted(fitting, key=lambda one: abs(_nbytes(_last(one)) - evidence.rate))[:MOST]
    search = Search([*longer, *fitting], roots, (*evidence.mine(), tensors, longer, fitting, buffers))
    found = [_of_longer(evidence, search.path(one), one) for one in longer]
    found += [_of_buffer(evidence, search.path(one), one) for one in fitting]
    return [keeper for keeper in found if keeper.root in NAMED]


def _of_longer(evidence: Evidence, path: Path, tensor: Any) -> Keeper:
    size, root = Size(tensor_bytes=int(_longer(evidence, tensor) * evidence.iterations)), path.root
    mark = marks.slot(path)
    bindings = mark if isinstance(mark, marks.Bindings) else None
    return Keeper(
        "name", named(path), root.kind, root.of, "a longer tensor", size, evidence.iterations,
        mark=mark.mark if isinstance(mark, marks.Bindings) else mark, bindings=bindings,
    )  # fmt: skip


def _of_buffer(evidence: Evidence, path: Path, container: Any) -> Keeper:
    last, root = _last(container), path.root
    size = Size(tensor_bytes=_nbytes(last) * evidence.iterations)
    return Keeper(
        "container", named(path), root.kind, root.of, f"a `{type(last).__name__}`", size, evidence.iterations,
        mark=marks.contents(container, last), length=again.length(path, container),
    )  # fmt: skip


def _longer(evidence: Evidence, tensor: Any) -> float:
    """Bytes an iteration that a tensor has more than one of its kind had at the second moment; 0 if there was none."""
    found = storage_of(tensor)
    before = evidence.second.longest.get(kind_of(tensor)) if tensor.ndim else None
    if found is None or before is None or found[1] <= before:
        return 0.0
    rate = (found[1] - before) / evidence.held_for
    return rate if evidence.rate / 2 < rate < 2 * evidence.rate else 0.0


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


__all__ = ["buffers_in", "replaced"]
