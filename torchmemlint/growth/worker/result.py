"""A session as plain data, for the report."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torchmemlint.growth import words
from torchmemlint.growth.worker.frames import Place
from torchmemlint.growth.worker.keeper import Keeper
from torchmemlint.growth.worker.session import FIRST_TRY, Found, Loop, Session

NEEDED = FIRST_TRY + 10
"""Iterations until a first holder can be named: those before a look, and those of the look and of its lines."""


def data_of(session: Session, alive: list[str] | None = None, torch: bool = True) -> dict[str, Any]:
    """What the report is made of."""
    growths: list[dict[str, Any]] = []
    loops: list[dict[str, Any]] = []
    for loop in sorted(session.loops.values(), key=lambda one: one.looked):
        some = [growth_of(loop, found, session) for found in loop.found if _grew(loop, found)]
        summary = _summary(loop, some)
        if summary is not None:
            loops.append(summary)
            growths += some
    growths = _each_once(growths)
    longest = max(session.loops.values(), key=lambda one: one.count, default=None)
    gone = sum(not found.grew for loop in session.loops.values() for found in loop.found)
    return {
        "growths": growths,
        "loops": [one for one in loops if one["residue"] or any(growth["loop"] == one["place"] for growth in growths)],
        "device": session.meter.device,
        "off": session.off,
        "alive": alive or [],
        "torch": torch,
        "iterations": longest.count + 1 if longest else 0,
        "longest": longest.place().as_json() if longest else None,
        "needed": NEEDED,
        "bounded": f"; {gone} that grew at first did not grow on" if gone else "",
        "spent": round(session.spent, 3),
        "metered": round(session.metered, 3),
        "calls": session.calls,
    }


def _grew(loop: Loop, found: Found) -> bool:
    """Whether a holder grew on. Where nothing of it can be asked again, the loop must have grown on."""
    keeper = found.keeper
    if keeper.alive or found.length is not None:
        return found.grew
    rate = keeper.size.with_overhead / keeper.iterations
    return found.grew and found.asked > 0 and loop.last_rate >= rate / 2


def _each_once(growths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A holder that two loops were blamed for (epochs, and the steps in them) is named for the one that fills it in each iteration."""
    best: dict[tuple[object, ...], dict[str, Any]] = {}
    for growth in growths:
        key = (growth["kind"], growth["holder"], growth["of"], str(growth["line"]))
        if key not in best or growth["total_per_step"] > best[key]["total_per_step"]:
            best[key] = growth
    return [growth for growth in growths if any(growth is one for one in best.values())]


def growth_of(loop: Loop, found: Found, session: Session) -> dict[str, Any]:
    """One holder."""
    keeper = found.keeper
    line, callers = _line(found)
    if keeper.kind == "native" and keeper.holder and session.create_graph:
        line = session.create_graph.most_common(1)[0][0]
    size, steps = keeper.size, keeper.iterations
    growth: dict[str, Any] = {
        "kind": keeper.kind,
        "holder": keeper.called,
        "root": keeper.root,
        "of": keeper.of,
        "gets": keeper.gets,
        "bytes_per_step": size.bytes / steps,
        "total_per_step": size.with_overhead / steps,
        "tensors_per_step": size.tensors / steps,
        "nodes_per_step": size.nodes / steps,
        "saved_bytes_per_step": size.saved_bytes / steps,
        "unknown_saved": size.unknown,
        "chained": keeper.kind == "name" and keeper.gets == "the result of each step",
        "line": line.as_json() if line else None,
        "defined": keeper.defined.as_json() if keeper.defined else None,
        "callers": [caller.as_json() for caller in callers],
        "no_line": found.no_line or "nothing changed at a line of yours in the iterations that were traced",
        "loop": loop.place().as_json(),
        "iterations": loop.count + 1,
        "asked_after": found.last_asked,
        "note": _is_note(keeper),
    }
    growth["words"] = words.kept(growth)
    if found.asked:
        growth["words"] += f"; still growing after {found.last_asked} steps"
    return growth


def _is_note(keeper: Keeper) -> bool:
    """Results without a graph, in a container that the code around the loop has made for them, may be wanted."""
    return keeper.kind == "container" and not keeper.size.nodes and keeper.loop_local


def _line(found: Found) -> tuple[Place | None, list[Place]]:
    if not found.lines:
        return None, []
    stack = Counter(found.lines).most_common(1)[0][0]
    return stack[0], list(stack[1:])


def _summary(loop: Loop, growths: list[dict[str, Any]]) -> dict[str, Any] | None:
    if loop.trend is None:
        return None
    explained = sum(growth["total_per_step"] for growth in growths)
    measured = loop.last_rate if loop.last_rate > 0 else loop.trend.rate
    residue = ""
    if not growths:
        if not loop.unexplained:
            return None
        measured = loop.unexplained
        residue = "no tensor that Python knows was kept, and no graph: other memory of the program grows"
    elif measured - explained > max(0.3 * measured, 2000):
        residue = f"{words.size(measured - explained)} per step are not explained: no tensor and no graph that Python knows"
    return {
        "place": loop.place().as_json(),
        "iterations": loop.count + 1,
        "measured_per_step": measured,
        "explained_per_step": explained,
        "residue": residue,
    }
