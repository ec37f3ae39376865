"""Who keeps tensors that live on: the container that gets them, or the name or attribute that is given more in each step."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from torchmemlint.growth.worker import again, marks
from torchmemlint.growth.worker.evidence import Evidence, below
from torchmemlint.growth.worker.frames import Place, name_of
from torchmemlint.growth.worker.heap import is_tensor
from torchmemlint.growth.worker.holders import CACHE, Path, described, element, is_a, is_array, is_namespace, named
from torchmemlint.growth.worker.keeper import Keeper


def kept(evidence: Evidence, paths: list[Path], stack: types.FrameType, loop_frame: types.FrameType) -> Keeper | None:
    """The keeper of what some paths of one anchor lead to; None where a single thing replaces the one before it."""
    path = paths[0]
    anchor = evidence.anchor(path)
    inside = next((place for place, one in enumerate(path.objects) if one is anchor), None)
    members = [one.objects[0] for one in paths]
    held = below(anchor if inside is not None else path.objects[-1], evidence.rest)
    members += [one for one in held if all(one is not other for other in members)]
    container = inside is not None and _is_container(anchor, path, inside)
    if not container and not evidence.of_several_iterations(members) and any(map(is_tensor, members)):
        return None
    size = evidence.size(members)
    root = path.root
    keeper = Keeper(
        "name", named(path, path.objects[-1]), root.kind, root.of, described(path.objects), size, evidence.iterations,
        alive=[weakref.ref(one) for one in members[:8] if is_tensor(one)],
        elsewhere=root.owner.f_code if root.kind == "local" and not _in_stack(root.owner, stack) else None,
    )  # fmt: skip
    if inside is None:  # the name itself is given something else in each step
        mark = marks.slot(path)
        keeper.bindings = mark if isinstance(mark, marks.Bindings) else None
        keeper.mark = mark.mark if isinstance(mark, marks.Bindings) else mark
    elif container:
        is_local = (root.kind == "local" and root.owner is loop_frame) or root.kind in ("global", "stack")
        keeper.kind, keeper.holder, keeper.gets = "container", named(path, anchor), element(path, anchor)
        keeper.mark, keeper.length = _changes(anchor, path.objects[inside - 1]), again.length(path, anchor)
        keeper.loop_local = is_local and inside == len(path.objects) - 1 and not is_a(anchor, CACHE)
    else:
        keeper.kind, keeper.holder = "attribute", named(path, path.objects[inside - 1])
        keeper.gets, keeper.mark = described(path.objects[:inside]), marks.attribute(anchor, path.objects[inside - 1])
    if is_a(anchor, CACHE):
        keeper.holder, keeper.gets, keeper.defined = f"{keeper.holder} (cache)", "an entry", _defined(anchor)
    return keeper


def _is_container(anchor: Any, path: Path, inside: int) -> bool:
    if is_a(anchor, CACHE) or is_array(anchor):
        return True
    return is_a(anchor, marks.CONTAINERS) and not _is_namespace(anchor, path, inside)


def _defined(cache: Any) -> Place | None:
    function: Any = getattr(cache, "__wrapped__", None)
    if not is_a(function, types.FunctionType):
        return None
    return Place(function.__code__.co_filename, function.__code__.co_firstlineno, name_of(function.__code__))


def _changes(anchor: Any, held: Any) -> Callable[[types.FrameType | None], object]:
    if is_a(anchor, CACHE):
        return lambda frame: anchor.cache_info().currsize
    return marks.elements(anchor, held) if is_array(anchor) else marks.contents(anchor, held)


def _is_namespace(anchor: Any, path: Path, inside: int) -> bool:
    """Whether a dict is the ``__dict__`` of the object above it, or of a module or class."""
    if path.root.owner is anchor and path.root.kind == "global":
        return True
    above = (
        path.objects[inside + 1] if inside + 1 < len(path.objects) else path.root.owner if path.root.kind == "class" else None
    )
    return is_namespace(anchor, above)


def _in_stack(wanted: types.FrameType, frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame is wanted:
            return True
        frame = frame.f_back
    return False


__all__ = ["kept"]
