"""One root cause is told once: which findings of one function stand for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchmemlint.findings import Confidence, Severity
from torchmemlint.rules.api import Draft

KEEPERS = frozenset({"TML101", "TML102", "TML103", "TML104", "TML204"})
IN_HANDLER = frozenset({"TML301", "TML302", "TML304"})


def told_once(drafts: Sequence[Draft]) -> list[Draft]:
    """Drafts of one root function, less those that another one explains. What is doubtful explains nothing that is not."""
    doubtful = [d for d in drafts if d.finding.confidence is Confidence.LOW]
    sure = _told_once([d for d in drafts if d.finding.confidence is not Confidence.LOW])
    told = {(d.finding.code, d.part) for d in sure} | {(d.finding.code, d.finding.statement) for d in sure}
    return [
        *sure,
        *(
            d
            for d in _told_once(doubtful)
            if told.isdisjoint({(d.finding.code, d.part), (d.finding.code, d.finding.statement)})
        ),
    ]


def _told_once(drafts: Sequence[Draft]) -> list[Draft]:
    """Drafts that are alike sure, less those that another of them explains.

    A missing ``no_grad`` (TML201) stands for the stores that it fills, and what one guard would cover has one, at its first forward,
    or the first that fills any;
    TML204 stands for TML101/102 at its statement; TML303 for what else is said of its handler.
    """
    out = list(drafts)
    if any(d.finding.code == "TML202" for d in out):
        # The guard that does nothing is the cause: mended, it covers the forwards. It costs what they do.
        stands_for = [d.finding.severity for d in out if d.finding.code in ("TML201", *KEEPERS)]
        out = [d for d in out if d.finding.code not in ("TML201", *KEEPERS)]
        if Severity.ERROR in stands_for:
            out = [d if d.finding.code != "TML202" else raised(d) for d in out]
    misused = {d.finding.statement for d in out if d.finding.code in ("TML305", "TML306")}
    out = [d for d in out if not (d.finding.code == "TML308" and d.finding.statement in misused)]
    inference = [d for d in out if d.finding.code == "TML201"]
    if inference:
        covered = frozenset().union(*(d.graphs for d in inference))
        out = [d for d in out if not (d.finding.code in KEEPERS and d.graphs and d.graphs <= covered)]
        parts: dict[tuple[tuple[int, int], ...], list[Draft]] = {}
        for draft in inference:
            parts.setdefault(draft.part, []).append(draft)
        out = [*(d for d in out if d.finding.code != "TML201"), *map(for_all, parts.values())]
    halves = {d.finding.statement for d in out if d.finding.code == "TML204"}
    out = [d for d in out if not (d.finding.code in ("TML101", "TML102") and d.finding.statement in halves)]
    teachers = frozenset().union(*(d.graphs for d in out if d.finding.code == "TML203"))
    out = [d for d in out if not (d.finding.code in KEEPERS and d.graphs and d.graphs <= teachers)]
    handlers = {d.handler for d in out if d.finding.code == "TML303"}
    out = [d for d in out if not (d.finding.code in IN_HANDLER and d.handler in handlers)]
    views = {d.finding.statement for d in out if d.finding.code == "TML402"}
    return [d for d in out if not (d.finding.code == "TML401" and d.finding.statement in views)]


def raised(draft: Draft) -> Draft:
    """A draft whose mistake lets the memory grow."""
    return replace(draft, finding=replace(draft.finding, severity=Severity.ERROR))


def for_all(there: Sequence[Draft]) -> Draft:
    """The draft that speaks for a part of the function, with what it speaks for in other loops: there a comment on its own row says
    nothing."""
    first = first_of(there)
    loops: dict[tuple[int, int], list[Draft]] = {}
    for draft in there:
        if draft.loops and draft.loops[0] not in first.loops[:1]:
            loops.setdefault(draft.loops[0], []).append(draft)
    others = [first_of(each) for each in loops.values()]
    return replace(first, also=tuple(sorted((d.finding for d in others if d is not first), key=lambda one: one.sort_key)))


def first_of(there: Sequence[Draft]) -> Draft:
    """The first of the costliest drafts of a part of the function, what is computed from another's result left out: what another
    forward keeps is not its own."""
    first = [d for d in there if not any(d.graphs < other.graphs for other in there)]
    worst = max((d.finding.severity for d in first), key=lambda s: s.weight)
    return min((d for d in first if d.finding.severity is worst), key=lambda d: d.finding.sort_key)
