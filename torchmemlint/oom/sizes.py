"""Sizes as text."""

from __future__ import annotations

MIB = 1024**2
GIB = 1024**3
TIB = 1024**4


def format_size(size: int) -> str:
    """``size`` bytes with a binary unit and two decimals, as PyTorch prints them: ``512.00 MiB``."""
    for unit, scale in (("EiB", 1024**6), ("PiB", 1024**5), ("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", 1024)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} bytes"


def percent(part: int, whole: int) -> str:
    """``part`` of ``whole`` in whole per cent."""
    return f"{100 * part / whole:.0f} %" if whole else "?"
