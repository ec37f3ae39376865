"""Sizes, devices and inputs, as they are written on the command line."""

from __future__ import annotations

import re

from torchmemlint.errors import UsageError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}

GPUS: dict[str, tuple[tuple[int, int], int]] = {
    "T4": ((7, 5), 15 << 30), "V100": ((7, 0), 16 << 30), "V100-32": ((7, 0), 32 << 30), "A10": ((8, 6), 22 << 30),
    "A100": ((8, 0), 40 << 30), "A100-80": ((8, 0), 80 << 30), "RTX3090": ((8, 6), 24 << 30), "L4": ((8, 9), 22 << 30),
    "L40S": ((8, 9), 45 << 30), "RTX4090": ((8, 9), 24 << 30), "H100": ((9, 0), 80 << 30), "H200": ((9, 0), 141 << 30),
}  # fmt: skip
"""Compute capability, and memory in bytes: NVIDIA's data sheets; with ECC a little of it is not for programs."""

DTYPES = frozenset({"float16", "bfloat16", "float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"})


def bytes_of(text: str) -> int:
    """``24GiB`` → 25769803776. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?|)b?", text.strip().lower())
    if match is None:
        raise UsageError(f"not a size: {text!r} (24GiB, 16GB, 800MiB)")
    return int(float(match[1]) * _UNITS[match[2]])


def written(size: float) -> str:
    """A size for people."""
    for unit, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size) >= step:
            return f"{size / step:.2f} {unit}" if unit == "GiB" else f"{size / step:.0f} {unit}"
    return f"{size:.0f} B"


def input_of(text: str) -> tuple[str, str, list[int]]:
    """``ids:int64[8,256]`` → ("ids", "int64", [8, 256]). Raises UsageError."""
    match = re.fullmatch(r"(?:(\w+)\s*:\s*)?(\w+)\s*\[([\d,\s]*)\]", text.strip())
    if match is None or match[2] not in DTYPES:
        raise UsageError(f"not an input: {text!r} (ids:int64[8,256], x:float32[16,3,224,224])")
    return match[1] or "x", match[2], [int(part) for part in match[3].split(",") if part.strip()]


def gpu_of(name: str) -> tuple[tuple[int, int], int]:
    """Capability and memory by name. Raises UsageError."""
    for known, found in GPUS.items():
        if known.lower() == name.lower().replace(" ", ""):
            return found
    raise UsageError(f"unknown device: {name!r} ({', '.join(GPUS)})")
