"""Where a report goes, in which format."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from torchmemlint.confirm.settle import Settled
from torchmemlint.errors import SourceError, UsageError
from torchmemlint.files.checkout import leads_out
from torchmemlint.files.quoting import printable_lines, quoted
from torchmemlint.files.writing import write_whole


def render(settled: Sequence[Settled], output_format: str) -> str:
    """The report in a format."""
    from torchmemlint.confirm import report

    if output_format == "json":
        return report.as_json(settled)
    if output_format == "html":
        from torchmemlint.confirm import html

        return html.render(settled, text_of, datetime.datetime.now(datetime.timezone.utc))
    if output_format == "fixes":
        return printable_lines(report.fixes(settled))
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return printable_lines(report.full(settled, ascii_only=not encoding.startswith("utf")))


def write(text: str, file: str | None) -> None:
    """Print the report, or write it to ``file``."""
    if file is None:
        sys.stdout.write(text)
        return
    if leads_out(file):
        raise UsageError(f"{file}: is a link that leads elsewhere; name its target instead")
    try:
        write_whole(file, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(f"{quoted(file)}: {error.strerror or error}") from error


def write_snapshots(settled: Sequence[Settled], folder: str) -> list[Settled]:
    """Write the memory snapshots into ``folder``, each with a note in its verdict of where it is."""
    with_notes = []
    for number, item in enumerate(settled, 1):
        if item.snapshot:
            finding = item.plan.finding
            path = Path(folder) / f"{number:03}-{finding.code}-{Path(finding.path).stem}-{finding.span.start.row}.pickle"
            if leads_out(str(path)):
                raise UsageError(f"{path}: a link there leads elsewhere; name the place itself")
            try:
                write_whole(str(path), item.snapshot)
            except OSError as error:
                raise UsageError(f"{path}: {error.strerror or error}") from error
            notes = (*item.verdict.notes, f"memory snapshot, for pytorch.org/memory_viz: {path}")
            item = replace(item, snapshot=b"", verdict=replace(item.verdict, notes=notes))
        with_notes.append(item)
    return with_notes


@lru_cache(maxsize=256)
def text_of(path: str) -> str | None:
    """A file's text, None where it cannot be read."""
    from torchmemlint.source.file import read_source

    try:
        return read_source(Path(path), path).text
    except (OSError, SourceError):
        return None
