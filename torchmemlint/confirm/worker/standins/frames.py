"""What Python's frames say of the code that runs."""

from __future__ import annotations

import dis
import sys
from typing import Any

CODE = "<confirmed>"
"""The file name under which the flagged file is compiled."""


def row_of_the_code() -> int:
    """The row of the flagged file that is being executed, 0 for none."""
    return next(iter(rows_of_the_code()), 0)


def rows_of_the_code() -> tuple[int, ...]:
    """The rows of the flagged file that are being executed, the innermost first."""
    rows: list[int] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == CODE:
            rows.append(frame.f_lineno)
        frame = frame.f_back
    return tuple(rows)


def row_of(error: BaseException) -> int:
    """The row of the flagged file, outside the harness, that the exception came through last."""
    row = 0
    line = error.__traceback__
    while line is not None:
        if line.tb_frame.f_code.co_filename == CODE:
            row = line.tb_lineno
        line = line.tb_next
    return row


def unpack_count(frame: Any) -> int | None:
    """How many names the caller unpacks into, None when it does something else (a loop, ``list()``)."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if at < 0 or at + 1 >= len(code):
        return None
    name = dis.opname[code[at]]
    if name.startswith("UNPACK_SEQUENCE"):
        return int(code[at + 1])
    if name == "UNPACK_EX":
        return int(code[at + 1]) + 1
    return None


def discards(frame: Any) -> bool:
    """Whether the caller makes nothing of the result: the call is a statement of its own."""
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while 0 < at < len(code):
        name = dis.opname[code[at]]
        if name not in {"CACHE", "EXTENDED_ARG", "NOP"}:
            return bool(name == "POP_TOP")
        at += 2
    return False
