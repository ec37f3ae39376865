"""Reads a child's records back into plain data: they come from a process that ran foreign code, so nothing in them is
trusted."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from math import isfinite

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
    def whole(name: str) -> int:
        return _whole(figures.get(name))

    def series(name: str) -> tuple[int, ...]:
        return _list(figures.get(name))

    def word(name: str) -> str:
        return printable(figures.get(name, ""), 200)

    def texts(name: str) -> tuple[str, ...]:
        return _texts(figures.get(name))

    def located(name: str) -> tuple[Located, ...]:
        return _located(figures.get(name))

    modes, seconds = figures.get("grad_modes"), figures.get("seconds")
    return Run(
        live_bytes=series("live_bytes"),
        uncollected_bytes=series("uncollected_bytes"),
        nodes=series("nodes"),
        retained_bytes=series("retained_bytes"),
        requested_bytes=series("requested_bytes"),
        fragmented_bytes=whole("fragmented_bytes"),
        peak_bytes=whole("peak_bytes"),
        graph_bytes=whole("graph_bytes"),
        fallbacks=whole("fallbacks"),
        seen=word("seen"),
        place=word("place"),
        errors=located("errors"),
        device=word("device"),
        seconds=min(float(seconds), 1e6) if isinstance(seconds, float) and isfinite(seconds) else 0.0,
        mode=word("mode"),
        attached=figures.get("attached") is True,
        backwards=whole("backwards"),
        graphs_built=whole("graphs_built"),
        grad_modes=tuple(mode is True for mode in modes) if isinstance(modes, list) else (),
        guesses=texts("guesses"),
        decorators=located("decorators"),
        contexts=located("contexts"),
        forced=series("forced"),
        later_backwards=whole("later_backwards"),
        empty_backwards=whole("empty_backwards"),
        swallowed=located("swallowed"),
        probe_bytes=whole("probe_bytes"),
        value_bytes=whole("value_bytes"),
        ran=whole("ran"),
        went_back=whole("went_back"),
        turned=series("turned"),
        assumed=series("assumed"),
        blocked=located("blocked"),
        may_retain=figures.get("may_retain") is True,
        hung=figures.get("hung") is True,
        allocated_bytes=series("allocated_bytes"),
        joined_bytes=series("joined_bytes"),
        left_gradients=whole("left_gradients"),
        raised=word("raised"),
        ungraphed=figures.get("ungraphed") is True,
        hidden_inputs=figures.get("hidden_inputs") is True,
        keys=word("keys"),
        partly_freed=figures.get("partly_freed") is True,
        backward_row=whole("backward_row"),
        guess_row=whole("guess_row"),
        needed_at=series("needed_at"),
        escapes=escapes if isinstance(escapes := figures.get("escapes"), bool) else None,
    )


def _whole(value: object) -> int:
    return max(-MAX_WHOLE, min(value, MAX_WHOLE)) if isinstance(value, int) else 0


def _list(value: object) -> tuple[int, ...]:
    return tuple(_whole(item) for item in value[:MAX_SAMPLES] if isinstance(item, int)) if isinstance(value, list) else ()


def _texts(value: object) -> tuple[str, ...]:
    return tuple(printable(item) for item in value[:5]) if isinstance(value, list) else ()


def _located(value: object) -> tuple[Located, ...]:
    pairs = [item for item in value if isinstance(item, list) and len(item) == 2] if isinstance(value, list) else []
    return tuple(Located(_whole(line), printable(text)) for line, text in pairs[:5])
