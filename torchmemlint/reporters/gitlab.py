"""GitLab's code quality report.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format

GitLab wants paths from the repository's root without ``./`` before them, and drops findings that share a fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from torchmemlint.files.quoting import portable
from torchmemlint.findings import Finding, Position, Severity
from torchmemlint.reporters import Context, as_json
from torchmemlint.reporters.style import in_cell, place
from torchmemlint.suppress.fingerprint import fingerprint

_SEVERITY = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.NOTE: "info"}


def render(findings: Sequence[Finding], context: Context) -> str:
    return as_json([_issue(finding, context) for finding in findings], indent=2) + "\n"


def _issue(finding: Finding, context: Context) -> dict[str, object]:
    placed = context.in_file(finding)
    path = portable(context.path(finding.path))
    # That of the finding is the same in two files with the same mistake; and of one without a statement, in two places.
    parts = (path, fingerprint(finding), "" if finding.statement else f"{place(finding)} {finding.message}")
    return {
        "check_name": finding.code,
        "description": f"{in_cell(finding)}{finding.code} {finding.message}",
        "categories": ["Performance"],
        "severity": _SEVERITY[finding.severity],
        "fingerprint": blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest(),
        "location": {
            "path": path,
            "positions": {"begin": _position(placed.span.start), "end": _position(placed.span.end)},
        },
    }


def _position(at: Position) -> dict[str, int]:
    return {"line": at.row, "column": at.column}
