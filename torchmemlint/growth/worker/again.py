"""How long a container is, asked again later without holding it: by its way down from a name."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from torchmemlint.growth.worker.frames import locals_of, name_of
from torchmemlint.growth.worker.holders import CACHE, CLASS_SPACE, Path, attributes, is_a
from torchmemlint.growth.worker.marks import CONTAINERS, place_of


def length(path: Path, anchor: Any) -> Callable[[Any], int | None] | None:
    """Asks again how long the container is, by its way down from a global; None for what cannot be found again."""
    kind: Any = next((base for base in (*CONTAINERS, CACHE) if is_a(anchor, base)), None)
    if kind is None:
        return None
    size = (lambda one: one.cache_info().currsize) if kind is CACHE else kind.__len__
    chain = path.objects[place_of(path.objects, anchor) :]
    root = path.root
    name = root.name
    if root.kind not in ("local", "global", "class") or any(is_a(one, CACHE) for one in chain[1:]):
        return None
    steps = [_downward(holder, held) for holder, held in zip(chain[::-1], chain[-2::-1], strict=False)]
    of, kind_of_root = root.of, root.kind
    space = root.owner if root.kind == "global" else None
    cls = weakref.ref(root.owner) if root.kind == "class" else None

    def ask(frame: types.FrameType | None) -> int | None:
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

    return ask


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


__all__ = ["length"]
