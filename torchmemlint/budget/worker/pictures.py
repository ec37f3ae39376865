"""Height and width of pictures that nobody has, where options of the program say them."""

from __future__ import annotations

import re
from collections.abc import Mapping

SMALLEST, LARGEST = 16, 4096
"""Other numbers are no sizes of a picture: an index, a number of bytes."""
_OF = r"(?:img|image|im|frame|video|crop|load|fine|scaled?|input_image|train_(?:img|image|crop))"
_SIZE = re.compile(rf"^(?:{_OF}_?(?:size|sz|res|resolution|side|dim)|resolution|isize)$", re.IGNORECASE)
_HEIGHT = re.compile(rf"^(?:{_OF}_?)?(?:height|h)$", re.IGNORECASE)
_WIDTH = re.compile(rf"^(?:{_OF}_?)?(?:width|w)$", re.IGNORECASE)
_PATCH = re.compile(r"^(?:train_)?patch_?(?:size|sz)$", re.IGNORECASE)
SMALLEST_PATCH = 64
"""Patches that are cut out of pictures; those that a transformer makes of one are smaller."""
_FIRST = ("crop", "train", "fine", "patch")
"""What a picture is cut to, after it was loaded, is what the network gets."""


def of_options(values: Mapping[str, object]) -> tuple[int, int, str]:
    """Height, width and the names of the options that say them; (0, 0, "") where none does, or where two contradict each other."""
    heights, widths, sizes = (
        {name: number for name, value in values.items() if pattern.match(name) and (number := _number(value))}
        for pattern in (_HEIGHT, _WIDTH, _SIZE)
    )
    sizes |= {
        name: number for name, value in values.items() if _PATCH.match(name) and (number := _number(value)) >= SMALLEST_PATCH
    }
    if len(heights) == 1 and len(widths) == 1:
        (height,), (width,) = heights, widths
        return heights[height], widths[width], f"{height} and {width}"
    cut = {name: number for name, number in sizes.items() if name.lower().startswith(_FIRST)} or sizes
    if len(set(cut.values())) != 1:
        return 0, 0, ""
    name = next(iter(cut))
    return cut[name], cut[name], name


def _number(value: object) -> int:
    """A side: an integer, or a pair of two that are the same."""
    if isinstance(value, (list, tuple)) and len(set(map(str, value))) == 1 and len(value) <= 2:
        value = value[0]
    return value if type(value) is int and SMALLEST <= value <= LARGEST else 0
