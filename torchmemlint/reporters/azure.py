"""Azure Pipelines' logging commands: issues in the summary of a run.

https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands#logissue-log-an-error-or-warning, and for the
characters that are replaced CommandStringConvertor in microsoft/azure-pipelines-agent.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.files.quoting import printable, printable_path
from torchmemlint.findings import Finding, Severity
from torchmemlint.reporters import Context
from torchmemlint.reporters.style import in_cell

_TYPE = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "warning"}
"""There is no third type."""


def render(findings: Sequence[Finding], context: Context) -> str:
    return "".join(f"{_command(finding, context)}\n" for finding in findings)


def _command(finding: Finding, context: Context) -> str:
    at = context.in_file(finding).span.start
    properties = {
        "type": _TYPE[finding.severity],
        "sourcepath": printable_path(context.path(finding.path)),
        "linenumber": str(at.row),
        "columnnumber": str(at.column),
        "code": finding.code,
    }
    listed = "".join(f"{key}={_property(value)};" for key, value in properties.items())
    help_ = f" Help: {finding.help}" if finding.help else ""
    return f"##vso[task.logissue {listed}]{_data(in_cell(finding) + printable(finding.message + help_))}"


def _data(text: str) -> str:
    return text.replace("%", "%AZP25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace("]", "%5D").replace(";", "%3B")
