"""From what the rules found to what is reported.

Findings are numbered first, so that a fingerprint does not depend on which of its neighbours is suppressed; then
per-file-ignores and comments take theirs out.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchmemlint.findings import Finding
from torchmemlint.rules import ALL_RULES
from torchmemlint.settings import Settings
from torchmemlint.source.directives import Directives, read_directives
from torchmemlint.suppress.fingerprint import fingerprint, numbered
from torchmemlint.suppress.per_file import ignored_prefixes

__all__ = ["apply", "fingerprint", "numbered"]

NEVER_BLANKET = "TML001"
"""A failure of our own is hidden only by its code: a bare ``# noqa`` was not written with it in mind."""


def apply(
    findings: Iterable[Finding], source_text: str, settings: Settings, path: str, *, comments: bool = True
) -> list[Finding]:
    """One file's findings that are to be reported, numbered and in the order of every output.

    ``path`` is absolute or relative to the current folder. ``comments=False`` leaves ``# noqa`` and its kin to the caller:
    flake8 applies them itself.
    """
    kept = numbered(findings)
    if not kept:
        return kept
    ignored = ignored_prefixes(settings, path)
    if ignored:
        kept = [finding for finding in kept if not finding.code.startswith(ignored)]
    if kept and comments:
        directives = read_directives(source_text, {rule.name for rule in ALL_RULES})
        kept = [finding for finding in kept if not suppressed(finding, directives)]
    return kept


def suppressed(finding: Finding, directives: Directives) -> bool:
    """Whether a comment switches this finding off."""
    if finding.code == NEVER_BLANKET:
        directives = Directives(
            tuple(directive for directive in directives.found if directive.selectors), directives.next_code, directives.problems
        )
    rows = finding.noqa_rows or {finding.span.start.row}
    return directives.covers(finding.code, finding.name, finding.span.start.row, rows)
