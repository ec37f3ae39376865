"""Findings → text, one file per format. A format is a module with ``render(findings, context) -> str``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from torchmemlint.findings import Finding

FORMATS = ("full", "concise", "json", "github")
"""Every format, by the name that ``--output-format`` takes; ``-`` is ``_`` in the module's name."""


def _no_text(path: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Context:
    """What a report needs beside the findings.

    text    the text of a file by the path that findings have, None where it is not at hand (then no code is shown)
    color   write terminal colours; whoever writes to a terminal decides
    docs    where the rule pages are published, without a slash at the end; None while they are nowhere
    """

    text: Callable[[str], str | None] = _no_text
    color: bool = False
    docs: str | None = None

    def url(self, code: str) -> str | None:
        """The address of a rule's page."""
        return f"{self.docs}/{code}" if self.docs else None


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
