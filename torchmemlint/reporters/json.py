"""A JSON array with ruff's keys and more; rows and columns 1-based, columns in code points, ends exclusive."""

from __future__ import annotations

import json
from collections.abc import Sequence

from torchmemlint.findings import Finding, Fix, Position, Safety
from torchmemlint.reporters import Context
from torchmemlint.suppress.fingerprint import fingerprint


def render(findings: Sequence[Finding], context: Context) -> str:
    return json.dumps([entry(finding, context) for finding in findings], indent=2) + "\n"


def entry(finding: Finding, context: Context) -> dict[str, object]:
    """One finding as the value of the array; ``confirm`` is there where an experiment was."""
    measurement = context.measured(finding)
    return {
        "code": finding.code,
        "name": finding.name,
        "fingerprint": fingerprint(finding),
        "noqa_row": finding.noqa_row or finding.span.start.row,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "message": finding.message,
        "filename": finding.path,
        "cell": finding.cell,
        "location": _position(finding.span.start),
        "end_location": _position(finding.span.end),
        "function": finding.function,
        "flow": [
            {
                "filename": step.path,
                "cell": step.cell,
                "row": step.span.start.row,
                "column": step.span.start.column,
                "message": step.message,
            }
            for step in finding.flow
        ],
        "url": context.url(finding.code),
        "fix": _fix(finding.fix),
        **({} if measurement is None else {"confirm": dict(measurement.record)}),
    }


def _fix(fix: Fix | None) -> dict[str, object] | None:
    if fix is None or fix.safety is Safety.NONE:
        return None
    return {
        "applicability": fix.safety.value,
        "message": fix.message,
        "edits": [
            {
                "content": edit.content,
                "location": _position(edit.span.start),
                "end_location": _position(edit.span.end),
            }
            for edit in fix.edits
        ],
    }


def _position(at: Position) -> dict[str, int]:
    return {"row": at.row, "column": at.column}
