"""Candidate regions: the stretches of a file that are worth a run, cut so that they parse alone.

A function is cut by its rows and keeps its indentation under an ``if 1:`` (dedenting would change multi-line strings).
The module's own statements are cut by leaving out the bodies of its functions and classes.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from torchmemlint.index.facts import FunctionFacts, ModuleFacts
from torchmemlint.index.sources import rows_of

MODULE = "<module>"
"""The qualified name of a module's own statements."""


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of one file as text that parses by itself.

    path        the file as it was named to the linter
    qualname    the function's dotted path in its module, or ``<module>``
    text        the source, every line ended by ``\\n``
    rows        for each line of ``text`` its row in the file (1-based); the row before the first for a line that we added
    indented    the text stands under an ``if 1:`` that we added
    cut_columns row in the file → code points cut from its start (form feeds, which end an indentation; tabs among spaces)
    """

    path: str
    qualname: str
    text: str
    rows: Sequence[int]
    indented: bool = False
    cut_columns: dict[int, int] = field(default_factory=dict)

    @property
    def first_row(self) -> int:
        """The file's row of the first line that is the file's own."""
        return self.rows[1 if self.indented else 0]


def cut_function(lines: Sequence[str], function: FunctionFacts, path: str = "") -> Region:
    """The rows of one outermost function, from its first decorator, closures included.

    ``lines`` are those of the whole file, with or without their line ends.
    """
    first, last = rows_of(lines, function)
    kept, cut_columns = _clean(lines[first - 1 : last], first)
    indented = kept[0][:1] in (" ", "\t")
    if indented:
        kept.insert(0, "if 1:")
    rows = range(first - 1 if indented else first, last + 1)
    return Region(path, function.qualname, "\n".join(kept) + "\n", rows, indented, cut_columns)


def cut_module(lines: Sequence[str], facts: ModuleFacts) -> Region:
    """The module's own statements: every outermost ``def`` and ``class`` keeps its header, its body becomes ``pass``."""
    cleaned, cut_columns = _clean(lines, 1)
    kept: list[str] = []
    rows: list[int] = []
    row = 1
    for def_row, end_row in _outermost(facts):
        colon = _end_of_header(cleaned, def_row, end_row)
        if colon is None:
            continue  # it does not read as a definition
        header_end, column = colon
        kept += cleaned[row - 1 : header_end - 1]
        kept.append(cleaned[header_end - 1][:column] + " pass")
        rows += range(row, header_end + 1)
        row = end_row + 1
    kept += cleaned[row - 1 :]
    rows += range(row, len(cleaned) + 1)
    return Region(facts.path, MODULE, "\n".join(kept) + "\n", rows or [1], cut_columns=cut_columns)


def _clean(lines: Iterable[str], first_row: int) -> tuple[list[str], dict[int, int]]:
    """The lines without their ends, and without a form feed in front of code, at which Python counts indentation afresh
    but libcst does not."""
    kept: list[str] = []
    cut_columns: dict[int, int] = {}
    for row, line in enumerate(lines, first_row):
        text = line.rstrip("\r\n")
        if "\f" in text:
            margin = len(text) - len(text.lstrip(" \t\f"))
            cut = text.rfind("\f", 0, margin) + 1
            if cut:
                cut_columns[row] = cut
                text = text[cut:]
        kept.append(text)
    return kept, cut_columns


def with_plain_margins(region: Region) -> Region | None:
    """The region with a space for each level of indentation, where its margins mix tabs and spaces: Python reads some mixtures
    that libcst does not. None where there is no tab."""
    lines = region.text.split("\n")
    if not any("\t" in line[: len(line) - len(line.lstrip())] for line in lines):
        return None
    cut_columns = dict(region.cut_columns)
    level, begins = 0, True
    for token in tokenize.generate_tokens(io.StringIO(region.text).readline):
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            level += 1 if token.type == tokenize.INDENT else -1
        elif token.type == tokenize.NEWLINE:
            begins = True
        elif begins and token.type not in (tokenize.NL, tokenize.COMMENT):
            line, column = token.start[0] - 1, token.start[1]
            lines[line] = " " * level + lines[line][column:]
            row = region.rows[min(line, len(region.rows) - 1)]
            cut_columns[row] = cut_columns.get(row, 0) + column - level
            begins = False
    return replace(region, text="\n".join(lines), cut_columns=cut_columns)


def _outermost(facts: ModuleFacts) -> list[tuple[int, int]]:
    """First row (of ``def`` or ``class``) and last row of every function and class that lies in no other, in order."""
    spans = [(f.row, f.end_row) for f in facts.functions if f.qualname != MODULE]
    spans += [(c.row, c.end_row) for c in facts.classes]
    outermost: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if not outermost or first > outermost[-1][1]:
            outermost.append((first, last))
    return outermost


_ONE_ROW_HEADER = re.compile(r"""\s*(?:async\s+def|def|class)\b([^#'"\\]*):\s*(?:#.*)?$""")


def _end_of_header(lines: Sequence[str], first: int, last: int) -> tuple[int, int] | None:
    """Row and column just after the colon that ends the header of the definition in rows ``first`` to ``last``; None where there is
    none."""
    line = lines[first - 1]
    plain = _ONE_ROW_HEADER.match(line)
    if plain and sum(map(plain[1].count, "([{")) == sum(map(plain[1].count, ")]}")):
        return first, plain.end(1) + 1
    depth = 0
    source = io.StringIO(
        "\n".join(line.lstrip() if at == 0 else line for at, line in enumerate(lines[first - 1 : last])) + "\n"
    )
    for token in tokenize.generate_tokens(source.readline):
        if token.type != tokenize.OP:
            continue
        if token.string in "([{":
            depth += 1
        elif token.string in ")]}":
            depth -= 1
        elif token.string == ":" and depth == 0:
            row, column = token.end
            if row == 1:
                column += len(line) - len(line.lstrip())
            return first + row - 1, column
    return None
