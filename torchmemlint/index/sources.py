"""Digests of the texts of functions that a finding followed a call into, in another file.

The rest of that file may change, and the function may move.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from torchmemlint.files.digest import digest
from torchmemlint.index.facts import FunctionFacts, ModuleFacts
from torchmemlint.index.views import by_qualname


def split_lines(text: str) -> list[str]:
    """Physical lines with their ends, split as Python's tokenizer does (``\\n``, ``\\r\\n``, ``\\r`` only)."""
    return list(io.StringIO(text, newline=""))


def rows_of(lines: Sequence[str] | Sequence[bytes], function: FunctionFacts) -> tuple[int, int]:
    """The first and the last row of a function, decorators included. ``lines`` are those of the whole file."""
    first = function.first_row
    while first > 1 and not _begins(lines[first - 1]):
        first -= 1  # "@(" and the decorator's name on different rows
    return first, function.end_row


def _begins(line: str | bytes) -> bool:
    text = line if isinstance(line, str) else line.decode(errors="replace")
    return text.lstrip().startswith(("@", "def", "async"))


def sources_of(facts: ModuleFacts, text: str) -> Mapping[str, str]:
    """The digest of each outermost function's text, by its name, as the project has it (see ``by_qualname``)."""
    lines = text.encode(errors="surrogatepass").splitlines(keepends=True)  # of bytes, at the ends of physical lines only
    found = {}
    for qualname, function in by_qualname(facts.functions).items():
        if not function.parent and qualname != "<module>":
            first, last = rows_of(lines, function)
            found[qualname] = digest(b"".join(lines[first - 1 : last]))
    return found
