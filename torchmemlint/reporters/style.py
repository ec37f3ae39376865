"""What reports for people share: places in words, safe characters, display width, colour."""

from __future__ import annotations

import os
import re
from enum import Enum

from torchmemlint.files.quoting import printable, quoted, uri_path
from torchmemlint.findings import Finding, FlowStep, Position, Severity

TAB = 4
"""Columns that a tab advances to a multiple of."""


class Style(Enum):
    """Terminal styles, as SGR parameters."""

    ERROR = "1;31"
    WARNING = "1;33"
    NOTE = "1;36"
    BOLD = "1"
    FRAME = "1;34"
    REMOVED = "31"
    ADDED = "32"


SEVERITY_STYLE = {Severity.ERROR: Style.ERROR, Severity.WARNING: Style.WARNING, Severity.NOTE: Style.NOTE}


def paint(text: str, style: Style, color: bool) -> str:
    return f"\x1b[{style.value}m{text}\x1b[0m" if color and text else text


def painted_diff(diff: str) -> str:
    """A unified diff as git colours one."""
    styles = (("---", Style.BOLD), ("+++", Style.BOLD), ("@@", Style.FRAME), ("-", Style.REMOVED), ("+", Style.ADDED))
    rows = []
    for row in diff.splitlines(keepends=True):
        text = row.rstrip("\r\n")
        style = next((style for mark, style in styles if text.startswith(mark)), None)
        rows.append(row if style is None else f"{paint(text, style, True)}{row[len(text) :]}")
    return "".join(rows)


def link(text: str, target: str | None) -> str:
    """Text that leads to an address in terminals that know OSC 8; the text alone for None.

    https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda
    """
    return f"\x1b]8;;{target}\x1b\\{text}\x1b]8;;\x1b\\" if target else text


def file_address(path: str) -> str:
    """The address of a file on this machine."""
    return f"file://{uri_path(os.path.abspath(path))}"


def place(at: Finding | FlowStep) -> str:
    """``path:row:column``, for a notebook ``path:cell N:row:column``."""
    return f"{quoted(at.path)}:{place_in_file(at)}"


def place_in_file(at: Finding | FlowStep) -> str:
    """``row:column``, for a notebook ``cell N:row:column``."""
    start: Position = at.span.start
    cell = f"cell {at.cell}:" if at.cell is not None else ""
    return f"{cell}{start.row}:{start.column}"


def in_cell(finding: Finding) -> str:
    """``cell N:row:column: ``, for messages of formats that can only point into the file; "" for other files."""
    at = finding.span.start
    return "" if finding.cell is None else f"cell {finding.cell}:{at.row}:{at.column}: "


def expanded(line: str, column: int = 0) -> str:
    """A source line as it is shown: printable, tabs as spaces. ``column`` is the display column at which it begins."""
    out = []
    for char in printable(line):
        if char == "\t":
            char = " " * (TAB - column % TAB)
        out.append(char)
        column += len(char) if char.isascii() else width(char)
    return "".join(out)


def wrapped(text: str, columns: int) -> list[str]:
    """Text in rows of at most so many columns where its words allow it; code between backticks, and what stands in brackets at the
    end, is kept together."""
    rows = [""]
    for word in re.findall(r"(?:`[^`]*`|\[[^\]]*\]$|\S)+", text):
        if rows[-1] and width(rows[-1]) + 1 + width(word) > columns:
            rows.append(word)
        else:
            rows[-1] = f"{rows[-1]} {word}" if rows[-1] else word
    return rows


def width(text: str) -> int:
    """Terminal columns of text without tabs: East Asian wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(char) in ("Mn", "Me", "Cf") else 2 if east_asian_width(char) in "WF" else 1 for char in text)
