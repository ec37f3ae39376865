"""Operations on tensors that are put off: the shape of what they were given, from that of their result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LENGTH = 128
"""Length of a sequence that nobody has."""
Shape = tuple[int, ...]
Inverse = Callable[[Shape], Shape]
Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Changes of layout, in order: the name of each (of ``SHAPES``) and its arguments."""


def flat(args: Any) -> Any:
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else args


def before_slice(shape: Shape, part: slice) -> Shape:
    cut = abs(part.stop or 0) if (part.stop or 0) < 0 else part.start or 0
    return (shape[0], shape[1] + cut, *shape[2:]) if len(shape) > 1 else shape


def _unsqueeze(batch: int, dim: int) -> Inverse:
    return lambda shape: tuple(size for at, size in enumerate(shape) if at != dim % len(shape))


def _squeeze(batch: int, dim: int | None = None) -> Inverse:
    def before(shape: Shape) -> Shape:
        if dim is None:
            return shape
        at = dim % (len(shape) + 1)
        return (*shape[:at], 1, *shape[at:])

    return before


def _transpose(batch: int, one: int, other: int) -> Inverse:
    def before(shape: Shape) -> Shape:
        sizes = list(shape)
        sizes[one], sizes[other] = sizes[other], sizes[one]
        return tuple(sizes)

    return before


def _permute(batch: int, *order: int) -> Inverse:
    def before(shape: Shape) -> Shape:
        sizes = list(shape)
        for at, place in enumerate(order):
            sizes[place] = shape[at]
        return tuple(sizes)

    return before


def _index(batch: int, *kept: int) -> Inverse:
    """An element was taken of each dimension that is not kept: how many there are is a guess."""

    def before(shape: Shape) -> Shape:
        sizes = iter(shape)
        return (*(next(sizes, LENGTH) if keep else LENGTH for keep in kept), *sizes)

    return before


def _same(batch: int, *args: Any, **kwargs: Any) -> Inverse:
    return lambda shape: shape


SHAPES: dict[str, Callable[..., Inverse]] = {
    "unsqueeze": _unsqueeze, "squeeze": _squeeze, "transpose": _transpose, "permute": _permute, "t": lambda batch: _transpose(batch, 0, 1),
    "swapaxes": _transpose, "flatten": _same, "view": _same, "reshape": _same, "squeeze_": _squeeze, "unsqueeze_": _unsqueeze,
}  # fmt: skip


MORE = {"unsqueeze": 1, "unsqueeze_": 1, "squeeze": -1, "squeeze_": -1}
"""By how many dimensions a result has more."""


def before_layout(shape: Shape, layout: Layout, batch: int) -> Shape | None:
    """The shape of what has this one after the changes of ``layout``; None where its rank is another."""
    try:
        for name, numbers in reversed(layout):
            shape = (_index if name == "index" else SHAPES[name])(batch, *numbers)(shape)
    except IndexError:
        return None
    return shape


def more_dimensions(layout: Layout) -> int:
    """By how many dimensions the result has more."""
    return sum(MORE.get(name, 0) - (numbers.count(0) if name == "index" else 0) for name, numbers in layout)


def before_index(shape: Shape, key: tuple[Any, ...], batch: int) -> Shape:
    """``x[:, :, ids, 0]``: where one element is taken, the size was at least so large."""
    kept = sum(1 for item in key if item is not Ellipsis and not isinstance(item, int))
    sizes: list[int] = []
    at = 0
    for place, item in enumerate(key):
        if item is Ellipsis:
            sizes += shape[at : at + len(shape) - kept]
            at += len(shape) - kept
        elif isinstance(item, int):
            sizes.append(batch if not place else item + 1 if item >= 0 else -item)
        else:
            if item is not None:
                sizes.append(_before_part(shape[at], item))
            at += 1
    return (*sizes, *shape[at:])


def _before_part(size: int, item: Any) -> int:
    if not isinstance(item, slice):
        return size
    start, stop = int(item.start or 0), int(item.stop or 0)
    return max(size, stop) if stop > 0 else size + max(0, start) - stop


def chosen(key: tuple[Any, ...]) -> dict[int, int]:
    """The sizes that an index says: by the place of a tensor of indices in the result, how many it has."""
    if Ellipsis in [item for item in key if not hasattr(item, "ndim")]:
        return {}
    kept = [item for item in key if not isinstance(item, int)]
    return {at: len(item) for at, item in enumerate(kept) if getattr(item, "ndim", 0) == 1}


def is_row(key: tuple[Any, ...]) -> bool:
    """``x[0, :]``: who writes the last slice out says that there is no further dimension."""
    return len(key) == 2 and isinstance(key[0], int) and key[1] == slice(None)


def can_wait(key: Any) -> bool:
    """Whether an index says the rank of its result: slices and numbers, and one tensor of indices at most."""
    if not isinstance(key, tuple) or not all(
        item is None or item is Ellipsis or isinstance(item, (int, slice)) or getattr(item, "ndim", 0) == 1 for item in key
    ):
        return False
    numbers = [
        part for item in key if isinstance(item, slice) for part in (item.start, item.stop, item.step) if part is not None
    ]
    indices = [item for item in key if not (item is None or item is Ellipsis or isinstance(item, (int, slice)))]
    return all(isinstance(part, int) for part in numbers) and len(indices) <= 1
