"""Findings → text, one file per format.

A format is a module with ``render(findings, context) -> str``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from torchmemlint.errors import SourceError
from torchmemlint.findings import Edit, Finding, Position, Span
from torchmemlint.source.lines import Lines

if TYPE_CHECKING:
    from torchmemlint.source.notebook import Notebook

FORMATS = (
    *(
        "full",
        "concise",
        "grouped",
        "json",
        "json-lines",
        "github",
        "gitlab",
        "sarif",
        "junit",
        "rdjson",
        "azure",
        "lintrunner",
    ),
)
"""Every format, by the name that ``--output-format`` takes; ``-`` is ``_`` in the module's name."""


def _no_text(path: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of an experiment for a finding: "confirmed", "refuted" or "inconclusive", the figures in words, and the whole record
    as ``torchmemlint confirm`` wrote it."""

    verdict: str
    words: str
    record: Mapping[str, object]


def _not_measured(finding: Finding) -> Measurement | None:
    return None


@dataclass(frozen=True, slots=True)
class Context:
    """What a report needs beside the findings.

    text    the text of a file by the path that findings have (of a notebook, its JSON), None where it is not at hand (then no
            code is shown)
    color   write terminal colors; the caller decides
    docs    the address of the folder with the rules' pages, without a slash at the end; None while they are nowhere
    link    write hyperlinks that a terminal opens
    root    the absolute folder that paths are shown from in formats for other programs, "" where they stay as they are
    skipped  files and functions that were left out for what they are, in words
    partial  files around those that were named were left out
    measured  the result of an experiment for a finding, None if there was none
    """

    text: Callable[[str], str | None] = _no_text
    color: bool = False
    docs: str | None = None
    root: str = ""
    measured: Callable[[Finding], Measurement | None] = _not_measured
    link: bool = False
    skipped: Sequence[str] = ()
    partial: bool = False
    _lines: dict[tuple[str, int | None], Lines | None] = field(default_factory=dict, repr=False, compare=False)
    _notebooks: dict[str, Notebook | None] = field(default_factory=dict, repr=False, compare=False)

    def url(self, code: str) -> str | None:
        """The address of a rule's page."""
        return f"{self.docs}/{code}.html" if self.docs else None

    def path(self, path: str) -> str:
        """A path as other programs want it: from the root where it is below that, else absolute."""
        if not self.root or path == "-":
            return path
        absolute = os.path.abspath(path)
        below = os.path.relpath(absolute, self.root)
        return (absolute if below.split(os.sep)[0] == os.pardir else below).replace(os.sep, "/")

    def row(self, path: str, row: int) -> str:
        """The text of a row of a file, "" where it is not at hand."""
        lines = self.lines(path)
        return lines.row(row) if lines is not None and 1 <= row <= len(lines) else ""

    def lines(self, path: str, cell: int | None = None) -> Lines | None:
        """The rows that findings count, of a file or of a notebook's cell; None where they are not at hand."""
        key = (path, cell)
        if key not in self._lines:
            text = self.text(path) if cell is None else self._source(path, cell)
            self._lines[key] = None if text is None else Lines.of(text)
        return self._lines[key]

    def in_file(self, finding: Finding) -> Finding:
        """A finding with every place in a notebook's cell as a place in the text of the file, for formats that know no cells.

        What is not there (the file has changed since) becomes the beginning of the file. Fixes are left out: see
        ``edit_in_file``.
        """
        flow = tuple(replace(step, span=self._span(step.path, step.cell, step.span), cell=None) for step in finding.flow)
        if finding.cell is None:
            return replace(finding, flow=flow)
        return replace(finding, span=self._span(finding.path, finding.cell, finding.span), cell=None, flow=flow, fix=None)

    def edit_in_file(self, finding: Finding) -> Edit | None:
        """The fix of a finding in a notebook as an edit of the file's text, which replaces the cell's whole ``source``."""
        notebook = self._notebook(finding.path)
        lines = self.lines(finding.path, finding.cell)
        if notebook is None or lines is None or finding.cell is None or finding.fix is None:
            return None
        try:
            return Edit(*notebook.replaced(finding.cell, lines.edited(finding.fix.edits)))
        except LookupError:  # the file has changed since
            return None

    def _source(self, path: str, cell: int) -> str | None:
        notebook = self._notebook(path)
        return None if notebook is None else notebook.source_of(cell)

    def _span(self, path: str, cell: int | None, span: Span) -> Span:
        if cell is None:
            return span
        notebook = self._notebook(path)
        try:
            if notebook is not None:
                return Span(notebook.in_file(cell, span.start), notebook.in_file(cell, span.end))
        except LookupError:
            pass
        return Span(Position(1, 1), Position(1, 1))

    def _notebook(self, path: str) -> Notebook | None:
        if path not in self._notebooks:
            from torchmemlint.source.notebook import read_notebook

            text = self.text(path)
            try:
                self._notebooks[path] = None if text is None else read_notebook(text)
            except SourceError:
                self._notebooks[path] = None
        return self._notebooks[path]


def as_json(value: object, indent: int | None = None) -> str:
    """JSON in ASCII that every program reads: a half of a character, which JSON can spell but Unicode has not, is a U+FFFD."""
    import json

    text = json.dumps(value, indent=indent)
    if "\\ud" not in text or not _HALF.search(json.dumps(value, ensure_ascii=False)):
        return text
    whole = json.dumps(value, ensure_ascii=False)
    return json.dumps(json.loads(_HALF.sub("\ufffd", whole)), indent=indent)


_HALF = re.compile("[\ud800-\udfff]")


class _Format(Protocol):
    def render(self, findings: Sequence[Finding], context: Context) -> str: ...


def render(output_format: str, findings: Sequence[Finding], context: Context) -> str:
    """The report of findings in output order, "" or with a newline at its end. Raises KeyError for an unknown format.

    Only the asked-for format is imported.
    """
    if output_format not in FORMATS:
        raise KeyError(output_format)
    module = cast(_Format, import_module(f"torchmemlint.reporters.{output_format.replace('-', '_')}"))
    return module.render(findings, context)
