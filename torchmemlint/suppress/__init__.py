"""From what the rules found to what is reported.

Findings are numbered first, so that a fingerprint does not depend on which of its neighbours is suppressed; then
per-file-ignores and comments take theirs out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from torchmemlint.findings import INTERNAL_ERROR, UNUSED_SUPPRESSION, Finding
from torchmemlint.project.settings import Settings
from torchmemlint.rules import ALL_RULES
from torchmemlint.source.directives import Directives, read_directives
from torchmemlint.suppress.fingerprint import fingerprint, numbered
from torchmemlint.suppress.per_file import ignored_prefixes
from torchmemlint.suppress.together import for_all, once_a_file, with_places
from torchmemlint.suppress.unused import unused_suppressions

__all__ = ["apply", "fingerprint", "numbered"]

EMPTY: Mapping[Finding, Sequence[Finding]] = MappingProxyType({})


def apply(
    findings: Iterable[Finding],
    source_text: str,
    settings: Settings,
    path: str,
    *,
    comments: bool = True,
    judge_comments: bool = True,
    also: Mapping[Finding, Sequence[Finding]] = EMPTY,
) -> list[Finding]:
    """One file's findings that are to be reported, numbered and in the order of every output.

    ``path`` is absolute or relative to the current folder. ``comments=False`` leaves ``# noqa`` and its kin to the caller:
    flake8 applies them itself. ``judge_comments=False`` is for an analysis that did not get through the file: which comments
    are unused (TML002, if it is on) is then unknown. ``also`` has what a finding stands for in other places: where a comment
    switches the finding off there, and not at these, the next of them is reported in its place.
    """
    found = list(findings)
    judge_comments = judge_comments and UNUSED_SUPPRESSION in settings.codes
    if not found and not judge_comments:
        return []
    ignored = ignored_prefixes(settings, path)
    directives = (
        read_directives(source_text, {rule.name for rule in ALL_RULES}) if comments or judge_comments or also else Directives()
    )
    if judge_comments and directives != Directives():
        judged = [code for code in settings.codes if not (ignored and code.startswith(ignored))]
        all_found = [*found, *(other for one in found for other in also.get(one, ()))]
        found += unused_suppressions(directives, all_found, path, source_text, ALL_RULES, judged)
    if also:
        found = [representative(one, also[one], directives) if one in also else one for one in found]
    kept = numbered(found)
    if ignored:
        kept = [finding for finding in kept if not finding.code.startswith(ignored)]
    if comments:
        kept = [finding for finding in kept if not suppressed(finding, directives)]
    return once_a_file(kept)


def representative(finding: Finding, others: Sequence[Finding], directives: Directives) -> Finding:
    """The first of several findings of one cause that no comment switches off, with the places of those behind it and a fix for all; the
    first of all where there is none."""
    left = [one for one in (finding, *others) if not suppressed(one, directives)]
    if not left:
        return finding
    # A fix may reach what a comment keeps as it is.
    return for_all(left) if len(left) > len(others) else with_places(replace(left[0], fix=None), left[1:])


def suppressed(finding: Finding, directives: Directives) -> bool:
    """Whether a comment switches this finding off.

    A failure of our own is hidden only by a code: a bare ``# noqa`` was not written with it in mind. A comment without use is
    hidden only by its full code or name: else it would hide itself.
    """
    if finding.code in (INTERNAL_ERROR, UNUSED_SUPPRESSION):
        names = (finding.code, finding.name)
        meant = [
            one
            for one in directives.found
            if one.selectors and (finding.code == INTERNAL_ERROR or any(selector in names for selector in one.selectors))
        ]
        directives = Directives(tuple(meant), directives.next_code, directives.problems)
    rows = finding.noqa_rows or {finding.span.start.row}
    return directives.covers(finding.code, finding.name, finding.span.start.row, rows)
