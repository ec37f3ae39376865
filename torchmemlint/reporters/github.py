"""GitHub workflow commands: annotations in the diff.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions; of one step GitHub shows only the first ten
errors, ten warnings and ten notices (actions/toolkit issue 734). So the worst come first, and the tenth of a kind says how
many more the log has.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.files.quoting import printable, printable_path
from torchmemlint.findings import Finding, Severity
from torchmemlint.reporters import Context, concise

SHOWN = 10
_COMMAND = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(findings: Sequence[Finding], context: Context) -> str:
    lines: list[str] = []
    for severity in sorted(Severity, key=lambda one: -one.weight):
        of_kind = [finding for finding in findings if finding.severity is severity]
        fits = len(of_kind) if len(of_kind) <= SHOWN else SHOWN - 1
        lines.extend(annotation(finding, context) for finding in of_kind[:fits])
        if more := of_kind[fits:]:
            lines.append(f"::{_COMMAND[severity]} title=torchmemlint::{len(more)} more, see the log of this step")
            lines.extend(concise.line(finding) for finding in more)
    return "".join(f"{line}\n" for line in lines)


def annotation(finding: Finding, context: Context) -> str:
    """One finding as a workflow command; one in a notebook points at the row of the cell in the file."""
    span = context.in_file(finding).span
    start, end = span.start, span.end
    properties = {
        "title": f"torchmemlint ({finding.code})",
        "file": printable_path(context.path(finding.path)),
        "line": str(start.row),
        "col": str(start.column),
        "endLine": str(end.row),
        "endColumn": str(end.column),
    }
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    details = [f"  {word}: {printable(text)}" for word, text in finding.details]
    message = "\n".join([concise.line(finding), *details])
    return f"::{_COMMAND[finding.severity]} {listed}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
