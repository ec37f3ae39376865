"""What a test stands for that is written as a name: what the name is bound to, again and again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.lower import ir
from torchmemlint.semantics.text import text_of
from torchmemlint.semantics.walk import names_inside, nodes_of

NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*")


def bound_to(tests: list[str], body: list[ir.Stmt]) -> Iterator[str]:
    """The texts of what a block binds the names of some tests to; a name that is only one of several results has the call's."""
    names = {name for test in tests for name in NAME.findall(test)}
    for node in nodes_of(body):
        targets = node.targets if isinstance(node, ir.Assign) else [node.target] if isinstance(node, ir.Walrus) else []
        if isinstance(node, (ir.Assign, ir.Walrus)) and names & names_inside(targets) and not isinstance(node.value, ir.Const):
            yield text_of(node.value)
