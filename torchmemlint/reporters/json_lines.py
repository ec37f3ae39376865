"""The objects of ``json``, one on each line: for programs that read findings as a stream."""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.findings import Finding
from torchmemlint.reporters import Context, as_json
from torchmemlint.reporters.json import entry


def render(findings: Sequence[Finding], context: Context) -> str:
    return "".join(f"{as_json(entry(finding, context))}\n" for finding in findings)
