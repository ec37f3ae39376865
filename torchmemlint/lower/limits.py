"""What is refused lest libcst end the process, which recurses on the C stack, or fill the memory."""

from __future__ import annotations

import ast
import re
from typing import Final

from torchmemlint.errors import SourceError, TooLargeError
from torchmemlint.index.parse import parse
from torchmemlint.lower.regions import MODULE, Region

LONGEST_CHAIN: Final = 1000
"""Operands of one ``and`` or ``or``. libcst 1.9 reads 3,000 with 8 MiB of stack and crashes at 10,000."""
LONGEST: Final = 300_000
"""Characters of a function. Python's tree of it takes up to 350 bytes for each; the longest in 51 packages has 56,000."""
TOO_DEEP: Final = "this source is nested too deeply to be analysed"


def refuse_long(region: Region) -> None:
    """Raises ``TooLargeError`` for a function that is longer than any that somebody wrote: its tree would fill the memory, and its
    run would be given up."""
    if region.qualname != MODULE and len(region.text) > LONGEST:
        raise TooLargeError("function too large", region.first_row)


def refuse_long_chains(region: Region) -> None:
    """``index.module_facts`` refuses deep nesting. A chain of ``and`` or ``or`` is flat to ``ast`` but nested to libcst."""
    if region.text.count("and") + region.text.count("or") <= LONGEST_CHAIN:
        return
    for node in ast.walk(parse(region.text)):
        if isinstance(node, ast.BoolOp) and len(node.values) > LONGEST_CHAIN:
            message = f"a chain of more than {LONGEST_CHAIN} 'and' or 'or' cannot be analysed"
            raise SourceError(message, region.rows[node.lineno - 1])


MAX_WEIGHT: Final = 40_200
"""What libcst may read at once. Each unit takes 0.5 to 1.4 kB while libcst 1.9 parses, and where its nodes stand some more: the
generated programs of ``benchmarks.bounds`` that weigh so much keep to 100 MB and 150 times their size, on Python 3.13 too. The
heaviest function of 51 packages that is no table, ultralytics' ``Exporter.__call__``, has 17,036; a script of 138 repositories has
39,821."""
_SIGNS: Final = frozenset({"+", "-", "~", "not"})
_TOKEN: Final = re.compile(
    r"""
    (?P<comment> \#[^\n]* )
  | (?P<prefix> [A-Za-z]{0,2} ) (?P<string> \"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3} | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
  | (?P<line> \n\s* )
  | (?P<open> [(\[{] ) | (?P<close> [)\]}] ) | (?P<word> \w+ ) | (?P<other> [^\w\s] )
    """,
    re.DOTALL | re.VERBOSE,
)


def refuse_heavy(region: Region) -> None:
    """Raises ``TooLargeError`` where libcst would take more memory than it may."""
    if weight(region.text) > MAX_WEIGHT:
        raise TooLargeError("function too large", region.first_row)


def weight(text: str) -> int:
    """What source asks of libcst's memory: for each token, line ends outside brackets among them, two units, and one for each
    bracket that is open around it, as the parser looks at what stands in brackets again and again; something for each sign in a row
    of signs (``--x``). Of an f-string each character counts as a token."""
    depth = signs = total = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "comment" or (kind == "line" and depth):
            continue
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        signs = signs + 1 if token[0] in _SIGNS else 0
        formatted = kind == "string" and "f" in token["prefix"].lower()
        total += (2 + depth) * (len(token["string"]) if formatted else 1) + signs // 10
    return total
