"""Reads a child's records back into plain data, of which nothing is trusted: the child ran foreign code."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from math import isfinite
from typing import Any

from torchmemlint.confirm.launch import Ended, printable
from torchmemlint.confirm.verdict import Answer, Comparison, Located, Run

MAX_SNAPSHOT_BYTES = 256 << 20
MAX_WHOLE = 1 << 62
MAX_SAMPLES = 1000


def run_of(ended: Ended, variant: str) -> Run | None:
    """The last figures that a child reported for ``variant``, None when there are none."""
    found: Run | None = None
    for record in ended.records:
        if record.get("variant") == variant and isinstance(record.get("run"), dict):
            figures = record["run"]
            assert isinstance(figures, dict)
            found = _run(figures)
    return found


def snapshot_of(ended: Ended) -> tuple[bytes, str]:
    """The memory snapshot that a child sent, as PyTorch's memory viewer opens it, or why there is none; it is not unpickled
    here: it comes from a process that ran foreign code."""
    for record in ended.records:
        packed = record.get("snapshot")
        if isinstance(packed, str):
            try:
                unpack = zlib.decompressobj()
                data = unpack.decompress(base64.b64decode(packed, validate=True), MAX_SNAPSHOT_BYTES)
            except (ValueError, zlib.error):
                return b"", "what the child sent cannot be unpacked"
            return (b"", "it is too large") if unpack.unconsumed_tail else (data, "")
        if "no_snapshot" in record:
            return b"", printable(record["no_snapshot"], 200)
    return b"", ""


def comparison_of(ended: Ended) -> Comparison | None:
    """What a child says of its finding's fix; None where it compared nothing."""
    for record in ended.records:
        answer = record.get("compared")
        if isinstance(answer, dict) and answer.get("answer") in {known.value for known in Answer}:
            return Comparison(Answer(answer["answer"]), printable(answer.get("why", "")), _whole(answer.get("phases")))
    return None


def _run(figures: Mapping[str, object]) -> Run:
    return Run(**{field.name: _READ[str(field.type)](figures.get(field.name)) for field in fields(Run)})


def _whole(value: object) -> int:
    return max(-MAX_WHOLE, min(value, MAX_WHOLE)) if isinstance(value, int) else 0


def _list(value: object) -> tuple[int, ...]:
    return tuple(_whole(item) for item in value[:MAX_SAMPLES] if isinstance(item, int)) if isinstance(value, list) else ()


def _word(value: object) -> str:
    return "" if value is None else printable(value, 200)


def _seconds(value: object) -> float:
    return min(float(value), 1e6) if isinstance(value, float) and isfinite(value) else 0.0


def _modes(value: object) -> tuple[bool, ...]:
    return tuple(mode is True for mode in value) if isinstance(value, list) else ()


def _texts(value: object) -> tuple[str, ...]:
    return tuple(printable(item) for item in value[:5]) if isinstance(value, list) else ()


def _located(value: object) -> tuple[Located, ...]:
    pairs = [item for item in value if isinstance(item, list) and len(item) == 2] if isinstance(value, list) else []
    return tuple(Located(_whole(line), printable(text)) for line, text in pairs[:5])


_READ: Mapping[str, Callable[[object], Any]] = {
    "int": _whole,
    "float": _seconds,
    "str": _word,
    "bool": lambda value: value is True,
    "bool | None": lambda value: value if isinstance(value, bool) else None,
    "tuple[int, ...]": _list,
    "tuple[str, ...]": _texts,
    "tuple[bool, ...]": _modes,
    "tuple[Located, ...]": _located,
}
"""How a figure is read, by the type that it has in ``Run``."""
