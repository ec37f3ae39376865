"""Values as plain data, to be compared but for rounding."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

import torch

from torchmemlint.confirm.worker.graphs import tensors_in
from torchmemlint.confirm.worker.standins import StandIn


def number(tensor: torch.Tensor) -> float:
    """The sum of a tensor, as far as it has one."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        plain = tensor.as_subclass(torch.Tensor) if type(tensor) is not torch.Tensor else tensor
        return float(plain.detach().double().nan_to_num().sum()) if plain.layout is torch.strided else 0.0


def fingerprint(value: Any, depth: int = 6) -> object:
    """A value as plain data: of a tensor shape and sum. Whether it is attached to a graph, or needs gradients, is left out: gradients
    are compared after each backward."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return ("tensor", tuple(value.shape), number(value) if not value.is_complex() else 0.0)
    if isinstance(value, bool | int | str | type(None)):
        return value
    if isinstance(value, float):
        return ("number", value)
    if depth == 0:
        return type(value).__name__
    if isinstance(value, StandIn):
        parts = {
            str(key): fingerprint(part, depth - 1)
            for key, part in value.tml_parts.items()
            if key not in ("requires_grad", "requires_grad_") and _holds_tensors(part)
        }
        return ("stand-in", parts)
    if isinstance(value, dict):
        return {str(key): fingerprint(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [fingerprint(item, depth - 1) for item in value]
    return [type(value).__name__, *(fingerprint(tensor, 1) for tensor in tensors_in(value))]


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, (StandIn, float, int)) or any(True for _ in tensors_in(value))


def same(mine: object, other: object) -> bool:
    """Whether two fingerprints are equal but for rounding; a number and a tensor of that number are."""
    if isinstance(mine, (tuple, list)) and isinstance(other, (tuple, list)):
        if _figure(mine) and _figure(other):
            return close(mine[-1], other[-1]) and (mine[0] != other[0] or mine[1:-1] == other[1:-1])
        return len(mine) == len(other) and all(same(one, two) for one, two in zip(mine, other, strict=True))
    if isinstance(mine, dict) and isinstance(other, dict):
        return mine.keys() == other.keys() and all(same(value, other[key]) for key, value in mine.items())
    if isinstance(mine, float) and isinstance(other, float):
        return close(mine, other)
    return mine == other


def _figure(value: tuple[object, ...] | list[object]) -> bool:
    return isinstance(value, tuple) and bool(value) and value[0] in ("tensor", "number")


def close(mine: object, other: object) -> bool:
    """Whether two numbers are equal but for rounding."""
    if not isinstance(mine, (int, float)) or not isinstance(other, (int, float)):
        return mine == other
    if not (math.isfinite(mine) and math.isfinite(other)):
        return mine == other or (math.isnan(mine) and math.isnan(other))
    return abs(mine - other) <= 1e-4 * max(1.0, abs(mine), abs(other))


def first_difference(mine: object, other: object) -> tuple[tuple[object, ...], object, object] | None:
    """The way to the first part in which two fingerprints differ, and that part of each; None where they differ as a whole, or not."""
    if isinstance(mine, dict) and isinstance(other, dict):
        pairs: list[tuple[object, object, object]] = [
            (key, mine.get(key, "nothing"), other.get(key, "nothing")) for key in {**mine, **other}
        ]
    elif isinstance(mine, (list, tuple)) and isinstance(other, (list, tuple)) and not (_figure(mine) and _figure(other)):
        pairs = [(index, one, two) for index, (one, two) in enumerate(zip_longest(mine, other, fillvalue="nothing"))]
    else:
        return None
    for key, one, two in pairs:
        if not same(one, two):
            deeper = first_difference(one, two)
            return ((key, *deeper[0]), deeper[1], deeper[2]) if deeper is not None else ((key,), one, two)
    return None


def shown(value: object) -> str:
    """Plain data in words."""
    if isinstance(value, tuple) and value and value[0] == "tensor":
        return f"a tensor of shape {value[1]} and sum {value[2]:.4g}"
    if isinstance(value, tuple) and value and value[0] == "number":
        return f"{value[1]:.4g}"
    return repr(value)[:60]
