"""Findings of one cause in a file: the first that no comment suppresses stands for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from torchmemlint.findings import Edit, Finding, Fix, FlowStep
from torchmemlint.rules import ALL_RULES
from torchmemlint.rules.card import Once
from torchmemlint.source import is_notebook

ALSO = "here, too"


def once_a_file(findings: Sequence[Finding]) -> list[Finding]:
    """One file's findings, in order, of rules that report once a file, only the first: it names the other places, and its fix covers
    all."""
    codes = {rule.code for rule in ALL_RULES if rule.once is Once.A_FILE}
    together: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.code in codes:
            together.setdefault(finding.code, []).append(finding)
    return [
        for_all(together[finding.code]) if finding.code in codes else finding
        for finding in findings
        if finding.code not in codes or finding is together[finding.code][0]
    ]


def with_places(finding: Finding, others: Sequence[Finding]) -> Finding:
    """A finding with the places of others that it stands for."""
    steps = tuple(FlowStep(one.path, one.span, ALSO, one.cell) for one in others)
    return replace(finding, flow=(*finding.flow, *steps)) if steps else finding


def for_all(findings: Sequence[Finding]) -> Finding:
    """The first of these, with the places of the others, and a fix for all where there can be one."""
    return replace(with_places(findings[0], findings[1:]), fix=_fix_of_all(findings)) if len(findings) > 1 else findings[0]


def _fix_of_all(findings: Sequence[Finding]) -> Fix | None:
    """One fix for all; the first's own where one of them has none, or not of the same safety, or two change the same text, or in a
    notebook, whose cells are edited one by one."""
    fixes = [one.fix for one in findings]
    first = fixes[0]
    if first is None or is_notebook(findings[0].path) or any(fix is None or fix.safety is not first.safety for fix in fixes):
        return first
    edits: list[Edit] = sorted({edit for fix in fixes if fix is not None for edit in fix.edits}, key=lambda e: e.span)
    apart = all(before.span.end <= after.span.start for before, after in pairwise(edits))
    imports = {fix.needs_import for fix in fixes if fix is not None} - {None}
    if not apart or len(imports) > 1:
        return first
    return replace(first, edits=tuple(edits), needs_import=min(imports, default=None))  # type: ignore[type-var]
