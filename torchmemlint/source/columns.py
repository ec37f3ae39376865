"""Columns in the units that others count in.

Ours are code points; all are 1-based and may point just after a row's end.

    é   1 code point, 2 bytes of UTF-8, 1 unit of UTF-16
    漢  1             3                 1
    👍  1             4                 2

SARIF (``columnKind: utf16CodeUnits``) and editors (LSP's default) count UTF-16, rdjson counts UTF-8.
"""

from __future__ import annotations


def utf8_column(row: str, column: int) -> int:
    """The column in bytes of UTF-8; ``row`` is the text of the row."""
    return column if row.isascii() else len(row[: column - 1].encode("utf-8", "surrogatepass")) + 1


def utf16_column(row: str, column: int) -> int:
    """The column in units of UTF-16; ``row`` is the text of the row."""
    return column if row.isascii() else column + sum(char > "\uffff" for char in row[: column - 1])


def from_utf16(row: str, column: int) -> int:
    """The column in code points of a column in units of UTF-16.

    One in the middle of a pair is that of its character; one after the row's end is the row's end, as LSP has it.
    """
    if row.isascii():
        return min(column, len(row) + 1)
    units = column - 1
    for index, char in enumerate(row):
        units -= 2 if char > "\uffff" else 1
        if units < 0:
            return index + 1
    return len(row) + 1
