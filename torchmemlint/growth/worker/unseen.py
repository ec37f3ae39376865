"""Holders that Python's collector does not see.

A tensor is one of its gradient, an array of numpy of its objects and of the tensor that it was made from by ``numpy()``, a task
of asyncio of its result. A dict or tuple that has nothing but such arrays, numbers and texts is not seen either, until Python 3.14;
in Python 3.10 so is the ``__dict__`` of an instance.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from torchmemlint.growth.worker.frames import locals_of
from torchmemlint.growth.worker.heap import is_tensor, of_types
from torchmemlint.growth.worker.holders import Roots, is_array

MOST_ELEMENTS = 200_000
"""Of longer arrays the elements are not looked at."""
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
_CONTAINERS: set[type] = {dict, tuple}
"""Types of containers that the collector leaves out where they have nothing that it sees."""


def holders(tensors: Iterable[Any], roots: Roots) -> dict[int, list[Any]]:
    """The holders of an object by its id."""
    arrays, left_out = _arrays(roots)
    found: dict[int, list[Any]] = {}
    for one in tensors:
        if one.is_leaf and one.requires_grad and one.grad is not None:
            found.setdefault(id(one.grad), []).append(one)
    level: list[Any] = []
    for array in arrays:
        inside = [held for held in held_by(array) if type(held) not in _PLAIN]
        for held in inside:
            found.setdefault(id(held), []).append(array)
        if inside:
            level.append(array)
    climbed: set[int] = set()
    while level:
        wanted, level = {*map(id, level)}, []
        for container in left_out:
            has = wanted.intersection(map(id, gc.get_referents(container)))
            for held_id in has:
                found.setdefault(held_id, []).append(container)
            if has and id(container) not in climbed:
                climbed.add(id(container))
                level.append(container)
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


def is_unseen(thing: object) -> bool:
    """Whether something is an array, or a container that the collector leaves out."""
    return is_array(thing) or (type(thing) in _CONTAINERS and not gc.is_tracked(thing))


def is_older(holder: Any, new: set[int]) -> bool:
    """Whether one of these, above something new, was there before: it holds something older, too. A tuple is made after what it holds."""
    return type(holder) is not tuple and any(id(held) not in new for held in _inside(holder))


def _inside(holder: Any) -> Iterator[Any]:
    """What the collector sees of what lies in one of these, and in those in it."""
    todo, seen = [holder], {id(holder)}
    while todo:
        top = todo.pop()
        for held in held_by(top) if is_array(top) else gc.get_referents(top):
            if gc.is_tracked(held):
                yield held
            elif is_unseen(held) and id(held) not in seen:
                seen.add(id(held))
                todo.append(held)


def _arrays(roots: Roots) -> tuple[list[Any], list[Any]]:
    """The arrays, and the containers that the collector leaves out."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return [], []
    some = [*gc.get_referents(*gc.get_objects()), *(value for frame in roots.frames for value in locals_of(frame).values())]
    arrays: dict[int, Any] = {}  # made now, else they would be among what is found
    left_out: dict[int, Any] = {}
    while some:
        kinds = {cls for cls in set(map(type, some)) if issubclass(cls, numpy.ndarray)}
        arrays.update((id(one), one) for one in of_types(some, kinds))
        fresh = {id(one): one for one in of_types(some, _CONTAINERS) if not gc.is_tracked(one) and id(one) not in left_out}
        left_out.update(fresh)
        some = gc.get_referents(*fresh.values())
    return [*arrays.values()], [*left_out.values()]


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


__all__ = ["gradients", "held_by", "holders", "is_older", "is_unseen"]
