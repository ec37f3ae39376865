"""Reviewdog's diagnostic format, with suggestions that a reviewer can take.

Columns count bytes of UTF-8, ends are exclusive.
https://github.com/reviewdog/reviewdog/tree/master/proto/rdf
"""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.files.quoting import portable
from torchmemlint.findings import Finding, Position, Safety, Severity, Span
from torchmemlint.reporters import Context, as_json
from torchmemlint.reporters.style import in_cell
from torchmemlint.source.columns import utf8_column

_SEVERITY = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.NOTE: "INFO"}


def render(findings: Sequence[Finding], context: Context) -> str:
    source = {"name": "torchmemlint", **({"url": context.docs} if context.docs else {})}
    whole = {"source": source, "diagnostics": [_diagnostic(finding, context) for finding in findings]}
    return as_json(whole, indent=2) + "\n"


def _diagnostic(finding: Finding, context: Context) -> dict[str, object]:
    placed = context.in_file(finding)
    url = context.url(finding.code)
    details = [f"{word}: {text}" for word, text in (("cost", finding.cost), ("help", finding.help)) if text]
    return {
        "message": "\n".join([in_cell(finding) + finding.message, *details]),
        "location": _location(placed.path, placed.span, context),
        "severity": _SEVERITY[finding.severity],
        "code": {"value": finding.code, **({"url": url} if url else {})},
        "suggestions": _suggestions(finding, context),
        "related_locations": [
            {"message": step.message, "location": _location(step.path, step.span, context)} for step in placed.flow
        ],
    }


def _suggestions(finding: Finding, context: Context) -> list[dict[str, object]]:
    fix = finding.fix
    if fix is None or fix.safety is Safety.NONE or not fix.edits:
        return []
    in_json = None if finding.cell is None else context.edit_in_file(finding)
    edits = fix.edits if finding.cell is None else (in_json,) if in_json is not None else ()
    return [{"range": _range(finding.path, edit.span, context), "text": edit.content} for edit in edits]


def _location(path: str, span: Span, context: Context) -> dict[str, object]:
    return {"path": portable(context.path(path)), "range": _range(path, span, context)}


def _range(path: str, span: Span, context: Context) -> dict[str, object]:
    return {"start": _position(path, span.start, context), "end": _position(path, span.end, context)}


def _position(path: str, at: Position, context: Context) -> dict[str, int]:
    return {"line": at.row, "column": utf8_column(context.row(path, at.row), at.column)}
