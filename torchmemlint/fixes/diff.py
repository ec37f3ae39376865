"""What fixing would change, as a unified diff that ``patch`` and ``git apply -p0`` take."""

from __future__ import annotations

import difflib

from torchmemlint.files.quoting import quoted
from torchmemlint.source.file import SourceFile


def unified_diff(source: SourceFile, text: str) -> str:
    """The diff of the file when its code becomes ``text``, "" where nothing changed."""
    if source.text == text:
        return ""
    mark = "\ufeff" if source.bom else ""
    before, after = (_rows(mark + source.file_text(code)) for code in (source.text, text))
    out = []
    for line in difflib.unified_diff(before, after, quoted(source.path), quoted(source.path)):
        out.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(out)


def _rows(text: str) -> list[str]:
    """Rows as ``patch`` has them: ``\\n`` ends one, a carriage return is part of it."""
    rows = [f"{row}\n" for row in text.split("\n")]
    rows[-1] = rows[-1][:-1]
    return rows if rows[-1] else rows[:-1]
