"""A heading for each file, with one line per finding below it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from torchmemlint.files.quoting import printable, quoted
from torchmemlint.findings import Finding
from torchmemlint.reporters import Context
from torchmemlint.reporters.style import Style, paint, place_in_file


def render(findings: Sequence[Finding], context: Context) -> str:
    blocks = []
    for path, group in groupby(findings, key=lambda one: one.path):
        inside = list(group)
        places = [place_in_file(finding) for finding in inside]
        width = max(len(text) for text in places)
        rows = [f"{paint(quoted(path), Style.BOLD, context.color)}:"]
        rows += [f"  {at:{width}}  {one.code} {printable(one.message)}" for at, one in zip(places, inside, strict=True)]
        blocks.append("".join(f"{row}\n" for row in rows))
    return "\n".join(blocks)
