"""What Python's parser says of syntax that it does not know."""

from __future__ import annotations

import re
import sys

# Syntax that a newer Python brought: what CPython's message or the source line looks like on an older one.
_NEWER_SYNTAX: tuple[tuple[tuple[int, int], str], ...] = (
    ((3, 14), r"""(?<![\w'"\\])t['"]"""),
    ((3, 14), r"^\s*except\s+[\w.]+\s*,\s*[\w.]+[\w.,\s]*:"),
    ((3, 13), r"^\s*(?:class|def|async\s+def|type)\s+\w+\[[^\]]*="),
    ((3, 12), r"^\s*(?:class|def|async\s+def)\s+\w+\[|^\s*type\s+\w+(?:\[.*\])?\s*="),
    ((3, 12), r"""[fF]["'].*\{.*["']"""),
    ((3, 11), r"^\s*except\s*\*|\[\s*\*\w+\s*\]|:\s*\*\w+"),
)


_NEEDS = " (this syntax needs Python "


def is_newer(message: str) -> bool:
    """Whether a newer Python reads what ``syntax_message`` describes."""
    return _NEEDS in message


def syntax_message(error: SyntaxError, text: str) -> str:
    """What the parser says of a text; of syntax that a newer Python brought, which one."""
    message = error.msg or "invalid syntax"
    lines = text.splitlines()
    row = error.lineno or 1
    line = error.text or (lines[row - 1] if 0 < row <= len(lines) else "")
    for version, pattern in _NEWER_SYNTAX:
        if sys.version_info[:2] < version and re.search(pattern, line):
            wanted, running = ".".join(map(str, version)), ".".join(map(str, sys.version_info[:2]))
            return f"{message}{_NEEDS}{wanted}; torchmemlint runs on Python {running})"
    return message
