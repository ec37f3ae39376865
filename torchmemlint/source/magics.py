"""What only IPython reads in a cell, masked by Python of the same width."""

from __future__ import annotations

import ast
import re
import warnings

from torchmemlint.errors import SourceError
from torchmemlint.source.lines import Lines

TAIL = "  # magic "
"""Ends a masked row, before the number of the row as it was."""

_RUNS_ITS_LINE = re.compile(r"%(?:time|timeit|memit)\b(?:[ \t]+-[a-z]+[ \t]?\d*)*[ \t]+(?=[^\s-])")
_ESCAPE = re.compile(r"[ \t]*(?:[!%?]|[,;/](?=\S))|[ \t]*[\w.*\[\]]+\?{1,2}[ \t]*;?[ \t]*(?:#.*)?$")
"""What IPython takes for its own at the beginning of a statement: ``%magic``, ``!command``, ``?help``, ``/call``, ``help??``.
https://ipython.readthedocs.io/en/stable/interactive/reference.html"""
_AUTOMAGIC = re.compile(r"(?:pip|conda|mamba|uv|cd|ls|ll|pwd|cat|cp|mv|rm|mkdir|rmdir|who|whos|env|history)[ \t]+[\w./~*$-]")
"""Magics that IPython takes without their percent sign, where the row is no Python."""
_ASSIGNED_ESCAPE = re.compile(r"([ \t]*[^=#'\"]*[\w\])][ \t]*=[ \t]*)([!%].*)", re.DOTALL)
_WORD = re.compile(
    r"#.*|(?P<quote>'''|\"\"\")|'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<end>\\$)|."
)


def syntax_error(code: str) -> SourceError | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except SyntaxError as error:
        lines = Lines.of(code)
        row = min(max(error.lineno or 1, 1), len(lines))
        return SourceError(f"cannot be parsed: {error.msg}", row, max(min(error.offset or 1, len(lines.row(row))), 1))
    except ValueError as error:
        return SourceError(f"cannot be parsed: {error}")
    except (RecursionError, MemoryError):
        return None  # the module's reader has words for it
    return None


def without_escapes(source: str, originals: list[str], nonce: str) -> str:
    """A cell with Python in the place of what only IPython reads; the masked rows go to ``originals``."""
    lines = Lines.of(source)
    out = []
    begins, continued = True, False  # a statement begins at this row; the masked row above goes on in it
    cell_magic = True  # nothing stands above this row, so it may be one
    scanner = _Scanner()
    for row in range(1, len(lines) + 1):
        text = lines.row(row)
        masked: str | None = None
        if continued:
            masked = ""
        elif begins and (cell_magic or not text.lstrip().startswith("%%")):
            masked = _masked_row(text)
        cell_magic = cell_magic and not text.strip()
        if masked is None:
            begins = scanner.ends_statement(text)
        else:
            continued = text.endswith("\\")
            masked += f"{TAIL}{len(originals)}{nonce}"
            originals.append(text)
        out.append((text if masked is None else masked) + lines.newline_of(row))
    return "".join(out)


def _masked_row(text: str) -> str | None:
    """Python of the same width for a row that IPython takes for its own; None for other rows."""
    assigned = _ASSIGNED_ESCAPE.match(text)
    if assigned is not None:
        runs = _RUNS_ITS_LINE.match(assigned[2])
        if runs is not None:
            kept = assigned[1] + " " * runs.end() + assigned[2][runs.end() :]
            if syntax_error(kept.strip()) is None:
                return kept
        return assigned[1] + "_".ljust(len(assigned[2]))  # in IPython the name of the last result: nothing is known of it
    if _ESCAPE.match(text) is None and not (_AUTOMAGIC.match(text) and syntax_error(text) is not None):
        return None
    margin = text[: len(text) - len(text.lstrip())]
    runs = _RUNS_ITS_LINE.match(text, len(margin))
    if runs is not None:
        kept = "if 1:".ljust(runs.end() - len(margin)) + text[runs.end() :]
        if syntax_error(kept) is None:
            return margin + kept
    return margin + "pass".ljust(len(text) - len(margin))


class _Scanner:
    """Whether a statement goes on in the next row, for a text that does not parse because of some of its rows."""

    def __init__(self) -> None:
        self._quote = ""
        self._depth = 0

    def ends_statement(self, row: str) -> bool:
        """Reads the next row."""
        at = 0
        escaped = False
        while at < len(row):
            if self._quote:
                end = row.find(self._quote, at)
                while end > 0 and (len(row[:end]) - len(row[:end].rstrip("\\"))) % 2:
                    end = row.find(self._quote, end + 1)
                if end < 0:
                    return False
                at, self._quote = end + 3, ""
                continue
            word = _WORD.match(row, at)
            assert word is not None  # its last alternative takes any character of a row
            self._quote = word["quote"] or ""
            self._depth += bool(word["open"]) - bool(word["close"])
            escaped = bool(word["end"])
            at = word.end()
        return not (self._quote or self._depth > 0 or escaped)
