"""One finding per root cause: which findings of one function stand for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from torchmemlint.findings import Confidence, Finding, Severity
from torchmemlint.rules import rule_of
from torchmemlint.rules.api import Draft
from torchmemlint.rules.card import Once, Rule, Same
from torchmemlint.rules.cards import CARDS


def after(rule: Rule) -> int:
    """After how many others, one upon the other, a rule is asked what it explains: what is explained explains nothing."""
    return max((1 + after(rule_of(code)) for code in rule.yields_to), default=0)


CAUSES = sorted(((rule, rule.explains) for rule in CARDS.values() if rule.explains is not None), key=lambda one: after(one[0]))
"""The rules that explain others, and what these must share with them; what may be explained itself comes late."""


def one_per_cause(drafts: Sequence[Draft]) -> list[Draft]:
    """Drafts of one root function, less those that another one explains. What is doubtful explains nothing that is not."""
    doubtful = [d for d in drafts if d.finding.confidence is Confidence.LOW]
    sure = _explained_left_out([d for d in drafts if d.finding.confidence is not Confidence.LOW])
    reported = {(d.finding.code, d.part) for d in sure} | {(d.finding.code, d.finding.statement) for d in sure}
    return [
        *sure,
        *(
            d
            for d in _explained_left_out(doubtful)
            if reported.isdisjoint({(d.finding.code, d.part), (d.finding.code, d.finding.statement)})
        ),
    ]


def _explained_left_out(drafts: Sequence[Draft]) -> list[Draft]:
    """Drafts that are alike sure, less those that another of them explains: a missing ``no_grad`` the stores that it fills, a bad
    handler what else is reported of it. The cards of the rules have who explains whom, and what of."""
    out = list(drafts)
    for cause, same in CAUSES:
        there = [d for d in out if d.finding.code == cause.code and not d.apart]
        if not there:
            continue
        shares = sharer(same, there)
        explained = [d for d in out if cause.code in rule_of(d.finding.code).yields_to and shares(d)]
        left_out = {id(d) for d in explained}
        if cause.once is Once.A_PART:
            left_out |= {id(d) for d in there}
        out = [d for d in out if id(d) not in left_out]
        if cause.once is Once.A_PART:
            out += map(for_all, parts_of(there))
        if same is Same.FUNCTION and any(d.finding.severity is Severity.ERROR for d in explained):
            out = [raised(d) if d.finding.code == cause.code else d for d in out]
    return _once_per_cause(out)


def _once_per_cause(drafts: Sequence[Draft]) -> list[Draft]:
    """Drafts, of those that state a cause only one for each cause of a rule. It stands for the others, as far as no comment suppresses
    it."""
    out, causes = [], dict[tuple[str, str], list[Draft]]()
    for draft in drafts:
        if draft.cause:
            causes.setdefault((draft.finding.code, draft.cause), []).append(draft)
        else:
            out.append(draft)
    for there in causes.values():
        first = for_all(there)
        known = {first.finding.span, *(other.span for other in first.also)}
        others = {d.finding for d in there if d.finding.span not in known} | set(first.also)
        out.append(replace(first, also=tuple(sorted(others, key=lambda one: one.sort_key))))
    return out


def sharer(same: Same, there: Sequence[Draft]) -> Callable[[Draft], bool]:
    """Says whether a draft has this in common with those."""
    if same is Same.GRAPHS:
        graphs = frozenset().union(*(d.graphs for d in there))
        spans = {d.finding.span for d in there}  # the same call in another mode of the function has a graph of another number
        return lambda d: bool(d.graphs) and (d.graphs <= graphs or d.finding.span in spans)
    if same is Same.STATEMENT:
        statements = {d.finding.statement for d in there}
        return lambda d: d.finding.statement in statements
    if same is Same.HANDLER:
        handlers = {d.handler for d in there}
        return lambda d: d.handler in handlers
    return lambda d: True  # all are of one function


def parts_of(there: Sequence[Draft]) -> Iterable[list[Draft]]:
    """Drafts by the part of the function that they are in."""
    parts: dict[tuple[object, ...], list[Draft]] = {}
    for draft in there:
        parts.setdefault(draft.part, []).append(draft)
    return parts.values()


def raised(draft: Draft) -> Draft:
    """A draft whose mistake lets the memory grow."""
    return replace(draft, finding=replace(draft.finding, severity=Severity.ERROR))


def for_all(there: Sequence[Draft]) -> Draft:
    """The draft that stands for a part of the function, with what it stands for: in other loops, where a comment on its own row says
    nothing, and in other statements beside it, which that comment means as well."""
    first = first_of(there)
    loops: dict[tuple[int, int], list[Draft]] = {}
    for draft in there:
        if draft.loops and draft.loops[0] not in first.loops[:1]:
            loops.setdefault(draft.loops[0], []).append(draft)
    others = {each.finding for each in map(first_of, loops.values())} - {first.finding} | beside(first, there)
    return replace(first, also=tuple(sorted(others, key=lambda one: one.sort_key)))


def beside(first: Draft, there: Sequence[Draft]) -> set[Finding]:
    """The findings as costly as the first in other statements of the same loop, of what is not computed from one another's result."""
    found: dict[str, Draft] = {first.finding.statement: first}
    for draft in sorted(there, key=lambda one: one.finding.sort_key):
        alike = draft.loops[:1] == first.loops[:1] and draft.finding.severity is first.finding.severity
        if alike and all(draft.graphs.isdisjoint(other.graphs) for other in found.values()):
            found.setdefault(draft.finding.statement, draft)
    rows = first.finding.noqa_rows
    return {replace(d.finding, noqa_rows=d.finding.noqa_rows | rows) for d in found.values() if d is not first}


def first_of(there: Sequence[Draft]) -> Draft:
    """The first of the costliest drafts of a part of the function, what is computed from another's result left out: what another
    forward keeps is not its own."""
    first = [d for d in there if not any(d.graphs < other.graphs for other in there)]
    worst = max((d.finding.severity for d in first), key=lambda s: s.weight)
    return min((d for d in first if d.finding.severity is worst), key=lambda d: d.finding.sort_key)
