"""How this process's torch is changed: in one place, so that it is seen where."""

from __future__ import annotations


def put(place: object, name: str, value: object) -> None:
    """Set an attribute of a module or a class that others made."""
    setattr(place, name, value)
