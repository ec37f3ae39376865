"""Holders that Python's collector does not see.

A tensor is one of its gradient, an array of numpy of its objects and of the tensor that it was made from by ``numpy()``, a task
of asyncio of its result.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from torchmemlint.growth.worker.frames import locals_of
from torchmemlint.growth.worker.heap import is_tensor, of_types
from torchmemlint.growth.worker.holders import Roots

MOST_ELEMENTS = 200_000
"""Of longer arrays the elements are not looked at."""
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})


def holders(tensors: Iterable[Any], roots: Roots) -> dict[int, list[Any]]:
    """The holders of an object by its id."""
    found: dict[int, list[Any]] = {}
    for one in tensors:
        if one.is_leaf and one.requires_grad and one.grad is not None:
            found.setdefault(id(one.grad), []).append(one)
    for array in _arrays(roots):
        for held in held_by(array):
            if type(held) not in _PLAIN:
                found.setdefault(id(held), []).append(array)
    for task, result in _results():
        found.setdefault(id(result), []).append(task)
    return found


def _results() -> Iterator[tuple[Any, Any]]:
    """The tasks and futures of asyncio that have ended, each with its result, read without asking it: ``exception()`` would count as seen."""
    module: Any = sys.modules.get("_asyncio")
    if module is None:
        return
    kinds: list[Any] = [kind for kind in (module.Future, module.Task) if hasattr(kind, "_state") and hasattr(kind, "_result")]
    readers = {kind: (kind._state.__get__, kind._result.__get__) for kind in kinds}
    for one in of_types(gc.get_objects(), {*readers}):
        state, result = readers[type(one)]
        if state(one) == "FINISHED" and type(held := result(one)) not in _PLAIN:
            yield one, held


def gradients(tensors: Iterable[Any]) -> set[int]:
    """The ids of the gradients of some tensors."""
    return {id(one.grad) for one in tensors if one.is_leaf and one.requires_grad and one.grad is not None}


def is_older(array: Any, new: set[int]) -> bool:
    """Whether one of an array's objects is none of the new ones."""
    return any(type(held) not in _PLAIN and id(held) not in new for held in _elements(array))


def _arrays(roots: Roots) -> list[Any]:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return []
    some = [*gc.get_referents(*gc.get_objects()), *(value for frame in roots.frames for value in locals_of(frame).values())]
    kinds = {cls for cls in set(map(type, some)) if issubclass(cls, numpy.ndarray)}
    return list({id(one): one for one in of_types(some, kinds)}.values())


def held_by(array: Any) -> list[Any]:
    """The objects of an array, and the tensor whose memory it shows."""
    numpy: Any = sys.modules["numpy"]
    base = numpy.ndarray.base.__get__(array)
    while issubclass(type(base), numpy.ndarray):  # of a view of a view
        base = numpy.ndarray.base.__get__(base)
    return [*_elements(array), *([base] if is_tensor(base) else [])]


def _elements(array: Any) -> list[Any]:
    numpy: Any = sys.modules["numpy"]
    if numpy.ndarray.dtype.__get__(array).char != "O":
        return []
    if numpy.ndarray.size.__get__(array) > MOST_ELEMENTS:
        return []
    held: list[Any] = numpy.ndarray.ravel(array, "K").tolist()
    return held


__all__ = ["gradients", "held_by", "holders", "is_older"]
