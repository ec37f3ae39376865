"""The protocol of lintrunner's adapters, PyTorch's own driver of linters: one JSON object a line.

https://github.com/suo/lintrunner, src/lint_message.rs. ``code`` must be the one in ``.lintrunner.toml``. A replacement is the
text of a whole file, and lintrunner takes one a file at most: so the safe fixes of a file are one, and stand with its first
finding that they answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from torchmemlint.errors import SourceError
from torchmemlint.files.quoting import portable
from torchmemlint.findings import Finding, Severity
from torchmemlint.fixes import FixResult, apply_fixes
from torchmemlint.reporters import Context, as_json, concise
from torchmemlint.reporters.style import in_cell
from torchmemlint.source import is_notebook
from torchmemlint.source.file import decode_source

CODE = "TORCHMEMLINT"
_SEVERITY = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "advice"}


def render(findings: Sequence[Finding], context: Context) -> str:
    rows = []
    for path, group in groupby(findings, key=lambda one: one.path):
        inside = list(group)
        original = None if is_notebook(path) else context.text(path)
        fixed = _fixed(path, original, inside)
        answered = list(fixed.applied) if fixed is not None else []
        for finding in inside:
            if finding in answered[1:]:
                continue
            message = _message(finding, context)
            if fixed is not None and finding in answered:
                also = "".join(f"\nalso fixed: {concise.line(one)}" for one in answered[1:])
                message |= {
                    "description": f"{message['description']}{also}",
                    "original": original,
                    "replacement": fixed.text,
                }
            rows.append(as_json(message))
    return "".join(f"{row}\n" for row in rows)


def _message(finding: Finding, context: Context) -> dict[str, object]:
    at = context.in_file(finding).span.start
    details = [f"{word}: {text}" for word, text in finding.details]
    return {
        "path": portable(finding.path),
        "line": at.row,
        "char": at.column,
        "code": CODE,
        "severity": _SEVERITY[finding.severity],
        "name": f"{finding.code} {finding.name}",
        "description": "\n".join([in_cell(finding) + finding.message, *details]),
        "original": None,
        "replacement": None,
    }


def _fixed(path: str, text: str | None, findings: Sequence[Finding]) -> FixResult | None:
    """The file's text after its safe fixes; None where there are none."""
    if text is None:
        return None
    try:
        source = decode_source(path, text.encode())
    except (SourceError, UnicodeError):
        return None
    if source.encoding != "utf-8":  # lintrunner would write UTF-8 all the same
        return None
    result = apply_fixes(source, findings)
    return result if result.applied else None
