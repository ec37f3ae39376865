"""What is refused, whoever reads it, lest libcst end the process: it recurses on the C stack."""

from __future__ import annotations

import ast
from typing import Final

from torchmemlint.errors import SourceError
from torchmemlint.index.parse import parse
from torchmemlint.lower.regions import Region

LONGEST_CHAIN: Final = 1000
"""Operands of one ``and`` or ``or``. libcst 1.9 reads 3,000 with 8 MiB of stack and crashes at 10,000."""
TOO_DEEP: Final = "this source is nested too deeply to be analysed"


def refuse_long_chains(region: Region) -> None:
    """``index.module_facts`` refuses deep nesting. A chain of ``and`` or ``or`` is flat to ``ast`` but nested to libcst."""
    if region.text.count("and") + region.text.count("or") <= LONGEST_CHAIN:
        return
    for node in ast.walk(parse(region.text)):
        if isinstance(node, ast.BoolOp) and len(node.values) > LONGEST_CHAIN:
            message = f"a chain of more than {LONGEST_CHAIN} 'and' or 'or' cannot be analysed"
            raise SourceError(message, region.rows[node.lineno - 1])
