"""What Python's parser leaves to the text, found there: parentheses around an index, the order of arguments, a comma."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Final

from torchmemlint.lower.regions import Region


class Open(Exception):
    """``ast`` does not distinguish two sources that libcst does."""


class Text:
    """The ``Source`` behind the tree that Python's parser makes: its nodes say where in the text they stand."""

    __slots__ = ("_lines", "_region", "number")

    def __init__(self, region: Region, number: Callable[[ast.AST], int] | None = None) -> None:
        self._region = region
        self._lines: list[bytes] = []
        self.number = number or partial(next, count())
        """Which node it is does not matter here: ``next`` takes it for its default. Nothing in Python itself is as fast."""

    def has_parentheses(self, index: ast.Tuple, in_string: bool) -> bool:
        if not index.elts:
            return True
        if any(type(element) is ast.Slice for element in index.elts):
            return False
        text = self._between(_start(index, in_string), _end(index))
        if not (text.startswith("(") and text.endswith(")")):
            return False
        # "(a), (b)" or "(a, b)": whether the first parenthesis is closed by the last.
        depth = 0
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(f"({text})").readline) if t.type == tokenize.OP]
        for token in tokens[1:-2]:
            depth += (token.string in "([{") - (token.string in ")]}")
            if depth == 0:
                return False
        return True

    def arguments(self, call: ast.Call, in_string: bool) -> Sequence[ast.expr | ast.keyword]:
        return sorted([*call.args, *call.keywords], key=lambda one: _start(one, in_string))

    def ends_in_comma(self, node: ast.Delete) -> bool:
        behind = self._between(_end(node.targets[0]), _end(node))
        return "," in behind and "," in _COMMENT.sub("", behind)

    def _between(self, start: tuple[int, int], end: tuple[int, int]) -> str:
        """The source between two places as ``ast`` counts them: rows of the region from 1, columns in bytes."""
        if not self._lines:
            self._lines = [line.encode() for line in self._region.text.split("\n")]
        lines = self._lines[start[0] - 1 : end[0]]
        lines[-1] = lines[-1][: end[1]]
        lines[0] = lines[0][start[1] :]
        return b"\n".join(lines).decode()


def _start(node: ast.expr | ast.keyword, in_string: bool) -> tuple[int, int]:
    if in_string and sys.version_info < (3, 12):
        raise Open  # positions are odd there
    return node.lineno, node.col_offset


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


_COMMENT: Final = re.compile("#.*")
