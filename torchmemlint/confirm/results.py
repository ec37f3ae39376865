"""Reads a child's records back into plain data: they come from a process that ran foreign code, so nothing in them is trusted."""

from __future__ import annotations

from collections.abc import Mapping

from torchmemlint.confirm.launch import Ended
from torchmemlint.confirm.verdict import Run

_NUMBERS = ("peak_bytes", "graph_bytes", "fallbacks", "backwards", "graphs_built")
_SERIES = ("live_bytes", "uncollected_bytes", "nodes", "retained_bytes")
_TEXTS = ("guesses", "decorators", "contexts")
_WORDS = ("seen", "place", "device", "mode")


def run_of(ended: Ended, variant: str) -> Run | None:
    """The last figures that a child reported for ``variant``, None when there are none."""
    found: Run | None = None
    for record in ended.records:
        if record.get("variant") == variant and isinstance(record.get("run"), dict):
            figures = record["run"]
            assert isinstance(figures, dict)
            found = _run(figures)
    return found


def _run(figures: Mapping[str, object]) -> Run:
    numbers = {name: _whole(figures.get(name)) for name in _NUMBERS}
    series = {name: _list(figures.get(name)) for name in _SERIES}
    words = {name: str(figures.get(name, ""))[:200] for name in _WORDS}
    texts = {name: _texts(figures.get(name)) for name in _TEXTS}
    modes = figures.get("grad_modes")
    seconds = figures.get("seconds")
    return Run(
        **numbers, **series, **words, **texts,
        errors=_texts(figures.get("errors")),
        forced=_list(figures.get("forced")),
        attached=figures.get("attached") is True,
        grad_modes=tuple(mode is True for mode in modes) if isinstance(modes, list) else (),
        seconds=float(seconds) if isinstance(seconds, (int, float)) else 0.0,
    )  # fmt: skip


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _list(value: object) -> tuple[int, ...]:
    return tuple(item for item in value if isinstance(item, int)) if isinstance(value, list) else ()


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item)[:300] for item in value[:5]) if isinstance(value, list) else ()
