"""One line per finding: ``path:row:column: CODE message``."""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.files.quoting import printable
from torchmemlint.findings import Finding
from torchmemlint.reporters import Context
from torchmemlint.reporters.style import place


def render(findings: Sequence[Finding], context: Context) -> str:
    return "".join(f"{line(finding)}\n" for finding in findings)


def line(finding: Finding) -> str:
    return f"{place(finding)}: {finding.code} {printable(finding.message)}"
