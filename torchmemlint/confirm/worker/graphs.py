"""What an object holds of autograd graphs: their nodes, the bytes that these save."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class GraphNodes:
    """What is attached to a value: autograd nodes, bytes of saved tensors (leaves excluded), saved slots and how many a
    backward freed."""

    nodes: int = 0
    retained_bytes: int = 0
    slots: int = 0
    freed_slots: int = 0
    tensors: int = 0


def tensors_in(value: object, limit: int = 20_000) -> Iterator[torch.Tensor]:
    """Every tensor that ``value`` holds: itself, elements of containers, attributes of plain objects, and the locals of the frames
    that an exception's traceback keeps; each object once.

    Modules and optimizers are not entered: their parameters are alive anyway. Nor are frames that are still running: what they
    hold, no exception keeps.
    """
    seen: set[int] = set()
    stack: list[object] = [value]
    while stack and len(seen) < limit:
        item = stack.pop()
        if item is None or isinstance(item, (str, bytes, int, float, type)) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)) or type(item).__name__ == "deque":
            stack.extend(item)  # type: ignore[arg-type]
        elif isinstance(item, (torch.nn.Module, torch.optim.Optimizer)):
            continue
        else:
            if isinstance(item, BaseException):
                stack.extend((item.__cause__, item.__context__))
                stack.extend(_left_frames(item.__traceback__))
            try:
                attributes = object.__getattribute__(item, "__dict__")
            except AttributeError:
                continue
            if type(attributes) is dict and not callable(item):
                stack.extend(attributes.values())


def _left_frames(traceback: types.TracebackType | None) -> Iterator[dict[str, Any]]:
    """The locals of each frame of a traceback that has ended."""
    running: set[types.FrameType] = set()
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        running.add(frame)
        frame = frame.f_back
    while traceback is not None:
        if traceback.tb_frame not in running:
            yield dict(traceback.tb_frame.f_locals)
        traceback = traceback.tb_next


def _saved_names(kind: type, memory: dict[type, tuple[str, ...]]) -> tuple[str, ...]:
    names = memory.get(kind)
    if names is None:
        names = tuple(name for name in dir(kind) if name.startswith("_saved_"))
        memory[kind] = names
    return names


def nodes_below(tensors: Iterable[torch.Tensor], limit: int) -> list[Any]:
    """The autograd nodes that the tensors are attached to, so many at most.

    They stay referenced together: Python's wrappers are created again at each access, and ids would repeat."""
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen: dict[Any, None] = {}
    while waiting and len(seen) < limit:
        node = waiting.pop()
        if node not in seen:
            seen[node] = None
            waiting.extend(parent for parent, _ in node.next_functions if parent is not None)
    return list(seen)


def is_leaf(node: object) -> bool:
    """Whether a node only takes a leaf's gradient: its ``variable`` is the leaf."""
    return type(node).__name__ == "AccumulateGrad"


def walk(value: object, limit: int = 200_000, owned: Iterable[int] = ()) -> GraphNodes:
    """Follow ``grad_fn`` from every tensor in ``value``.

    A slot that raises has been freed by a backward. Bytes count each storage once and leave out leaves (parameters and
    inputs that
    require grad) and the storages ``owned``, which modules keep anyway; inputs without grad that a loader owns too are counted, so the
    figure is an upper bound.
    """
    tensors = list(tensors_in(value))
    nodes = nodes_below(tensors, limit)
    interior = [node for node in nodes if not is_leaf(node)]
    leaves = {*owned, *(node.variable.untyped_storage()._cdata for node in nodes if is_leaf(node))}
    storages: dict[int, int] = {}
    names: dict[type, tuple[str, ...]] = {}
    slots = freed = 0
    for node in interior:
        for saved in _saved_values(node, _saved_names(type(node), names)):
            slots += 1
            if saved is None:
                freed += 1
                continue
            with contextlib.suppress(RuntimeError, NotImplementedError):
                storage = saved.untyped_storage()
                storages[storage._cdata] = storage.nbytes()
    held = sum(size for key, size in storages.items() if key not in leaves)
    return GraphNodes(len(interior), held, slots, freed, len(tensors))


def _saved_values(node: Any, names: Iterable[str]) -> Iterator[torch.Tensor | None]:
    """The tensors in a node's saved slots; None for a slot that was freed."""
    for name in names:
        try:
            saved = getattr(node, name)
        except RuntimeError:  # "... after they have already been freed"
            yield None
            continue
        except AttributeError:
            continue
        if isinstance(saved, torch.Tensor):
            yield saved
        elif isinstance(saved, (tuple, list)):
            yield from (item for item in saved if isinstance(item, torch.Tensor))
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        try:
            yield from (item for item in node.saved_tensors if isinstance(item, torch.Tensor))
        except RuntimeError:
            yield None
        yield from (item for item in vars(node).values() if isinstance(item, torch.Tensor))
