"""One line per finding: ``path:row:column: CODE message``."""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.files.quoting import printable
from torchmemlint.findings import Finding
from torchmemlint.reporters import Context
from torchmemlint.reporters.style import SEVERITY_STYLE, Style, paint, place


def render(findings: Sequence[Finding], context: Context) -> str:
    return "".join(f"{line(finding, context.color)}\n" for finding in findings)


def line(finding: Finding, color: bool = False) -> str:
    code = paint(finding.code, SEVERITY_STYLE[finding.severity], color)
    return f"{paint(place(finding), Style.BOLD, color)}: {code} {printable(finding.message)}"
