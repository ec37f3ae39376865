"""``torchmemlint merge``: the reports of several runs as one."""

from __future__ import annotations

import argparse
import sys

from torchmemlint.commands.check import colored, counted, text_on_disk
from torchmemlint.commands.output_files import output_files, write_report
from torchmemlint.errors import UsageError
from torchmemlint.files.checkout import repository_root
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_REPORT_BYTES, read_given
from torchmemlint.findings import Finding, Severity
from torchmemlint.reporters import Context, render
from torchmemlint.reporters.json import findings_in


def run(arguments: argparse.Namespace) -> int:
    found: dict[Finding, None] = {}
    for path in arguments.reports:
        try:
            found.update(dict.fromkeys(findings_in(read_given(path, MAX_REPORT_BYTES).decode())))
        except OSError as error:
            raise UsageError(f"{quoted(path)}: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{quoted(path)}: {error}") from None
    findings = sorted(found, key=lambda finding: finding.sort_key)
    context = Context(text_on_disk, root=repository_root())
    files = output_files(arguments.output_file)
    for output in files:
        write_report(output.path, render(output.output_format, findings, context))
    if arguments.output_format is not None or not files:
        in_color = Context(text_on_disk, colored(arguments.color, sys.stdout), root=repository_root())
        sys.stdout.write(render(arguments.output_format or "full", findings, in_color))
    print(f"{len(arguments.reports)} reports: {counted(findings) or 'no findings'}", file=sys.stderr)
    if any(finding.code == "TML001" for finding in findings):
        return 2
    least = Severity(arguments.fail_on).weight
    failing = any(finding.code == "TML000" or finding.severity.weight >= least for finding in findings)
    return 1 if failing and not arguments.exit_zero else 0
