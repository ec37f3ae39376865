"""How deeply a source may be nested before the lossless parser is kept away from it. Without libcst: the index asks."""

from __future__ import annotations

import ast
from typing import Final

MAX_DEPTH: Final = 200
"""Levels of syntax tree. libcst 1.9 recurses on the C stack and ends the process with a segmentation fault on a sum of
10,000 terms (8 MiB of stack); the threads of an editor's server have as little as 512 KiB. Written code stays below 40."""


def too_deep(tree: ast.AST, limit: int = MAX_DEPTH) -> bool:
    """Whether some node lies more than ``limit`` levels below ``tree``. Never recurses."""
    level: list[ast.AST] = [tree]
    for _ in range(limit + 1):
        below: list[ast.AST] = []
        for node in level:
            for value in node.__dict__.values():
                if isinstance(value, list):
                    below += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST):
                    below.append(value)
        if not below:
            return False
        level = below
    return True
