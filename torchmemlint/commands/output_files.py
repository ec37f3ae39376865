"""``--output-file [FORMAT=]PATH``: reports beside the one on standard output."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchmemlint.errors import UsageError
from torchmemlint.files.checkout import leads_out
from torchmemlint.reporters import FORMATS

_BY_ENDING = (
    ("gl-code-quality-report.json", "gitlab"),
    (".sarif", "sarif"),
    (".sarif.json", "sarif"),
    (".rdjson", "rdjson"),
    (".rdjson.json", "rdjson"),
    (".jsonl", "json-lines"),
    (".ndjson", "json-lines"),
    (".json", "json"),
    (".xml", "junit"),
    (".txt", "full"),
)
"""What a file's name says about its format; the first that fits counts."""

_FORMAT = re.compile(r"[a-z][a-z-]*\Z")


@dataclass(frozen=True, slots=True)
class OutputFile:
    """Where a report goes, and in which format."""

    output_format: str
    path: str


def output_files(given: Sequence[str]) -> list[OutputFile]:
    """The values of ``--output-file``. Raises UsageError for one that says no format, or two for one file."""
    files = [_parsed(text) for text in given]
    seen: set[str] = set()
    for file in files:
        real = os.path.realpath(file.path)
        if real in seen:
            raise UsageError(f"--output-file: {file.path} is given twice")
        seen.add(real)
    return files


def _parsed(text: str) -> OutputFile:
    before, equals, path = text.partition("=")
    if equals and before in FORMATS and path:
        return OutputFile(before, path)
    if equals and _FORMAT.match(before):
        raise UsageError(f"--output-file {text}: unknown format `{before}`; choose from {', '.join(FORMATS)}")
    for ending, output_format in _BY_ENDING:
        if text.endswith(ending):
            return OutputFile(output_format, text)
    raise UsageError(f"--output-file {text}: unknown format; write FORMAT=PATH, as in sarif={text}")


def write_report(path: str, text: str) -> None:
    """Replaces a file's content in one step, and makes the folders above it. Raises UsageError where that cannot be done."""
    from torchmemlint.files.writing import write_whole

    if leads_out(path):
        raise UsageError(f"--output-file {path}: is a link that leads elsewhere; name its target instead")
    try:
        write_whole(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(f"--output-file {path}: cannot be written: {error.strerror or error}") from error
