"""``torchmemlint merge``: the reports of several runs as one."""

from __future__ import annotations

import argparse
import json
import sys

from torchmemlint.commands.check import colored, counted, listed, not_printed, status, text_on_disk
from torchmemlint.commands.output_files import output_files, write_report
from torchmemlint.errors import UsageError
from torchmemlint.files.checkout import repository_root
from torchmemlint.files.quoting import quoted
from torchmemlint.files.reading import MAX_REPORT_BYTES, read_given, reason
from torchmemlint.findings import Confidence, Finding, Severity
from torchmemlint.project.settings import Settings
from torchmemlint.reporters import Context, render
from torchmemlint.reporters.json import findings_in
from torchmemlint.run import Outcome


def run(arguments: argparse.Namespace) -> int:
    found: dict[Finding, None] = {}
    for path in arguments.reports:
        try:
            found.update(dict.fromkeys(findings_in(read_given(path, MAX_REPORT_BYTES).decode())))
        except OSError as error:
            raise UsageError(f"{quoted(path) or repr(path)}: {reason(error)}") from None
        except json.JSONDecodeError as error:
            raise UsageError(f"{quoted(path)}: not valid JSON: {error}") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{quoted(path)}: not a report of --output-format json: {error}") from None
    findings = sorted(found, key=lambda finding: finding.sort_key)
    context = Context(text_on_disk, root=repository_root())
    files = output_files(arguments.output_file)
    settings = Settings(
        fail_on=Severity(arguments.fail_on),
        min_confidence=Confidence(arguments.min_confidence or "medium"),
        notes=bool(arguments.notes),
    )
    outcome = Outcome(tuple(findings), {finding.path: settings for finding in findings})
    for output in files:
        write_report(output.path, render(output.output_format, listed(outcome, output.output_format), context))
    if arguments.output_format is not None or not files:
        in_color = Context(text_on_disk, colored(arguments.color, sys.stdout), root=repository_root())
        output_format = arguments.output_format or "full"
        sys.stdout.write(render(output_format, listed(outcome, output_format), in_color))
    print(f"{len(arguments.reports)} reports: {counted(outcome.findings) or 'no findings'}", file=sys.stderr)
    for line in not_printed(outcome):
        print(line, file=sys.stderr)
    return status(outcome, arguments.exit_zero)
