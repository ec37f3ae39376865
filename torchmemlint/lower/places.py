"""Where the nodes of a lowered region stand in the file: what offsets in the region's text say of rows, columns and source."""

from __future__ import annotations

import re
from bisect import bisect_right

from torchmemlint.findings import Position, Span
from torchmemlint.lower.regions import Region

Offsets = tuple[int, int]
"""The first character in the region's text, and the one behind the last."""


class Places:
    """What ``Lowered`` answers about one region. Where each node stands: ``lower.spans`` and ``lower.layout``."""

    __slots__ = ("_starts", "region")

    def __init__(self, region: Region) -> None:
        self.region = region
        self._starts: list[int] | None = None

    def enclosing(self, node: int) -> int:
        raise NotImplementedError

    def exact(self, node: int) -> Offsets:
        """From the node's first to its last character, without parentheses around it."""
        raise NotImplementedError

    def inclusive(self, node: int) -> Offsets:
        """With the parentheses around an expression."""
        raise NotImplementedError

    def header(self, node: int) -> Offsets:
        """Of what has a block, up to its colon."""
        raise NotImplementedError

    def span(self, node: int) -> Span:
        return self._span(*self.exact(node))

    def outer_span(self, node: int) -> Span:
        return self._span(*self.inclusive(node))

    def header_span(self, node: int) -> Span:
        return self._span(*self.header(node))

    def statement(self, node: int) -> tuple[Span, str]:
        start, end = self.header(self.enclosing(node))
        return self._span(start, end), " ".join(self.region.text[start:end].split())

    def source(self, node: int) -> str:
        start, end = self.exact(node)
        return self.region.text[start:end]

    @property
    def line_starts(self) -> list[int]:
        if self._starts is None:
            self._starts = [0, *(match.end() for match in re.finditer("\n", self.region.text))]
        return self._starts

    def _span(self, start: int, end: int) -> Span:
        return Span(self._position(start), self._position(end))

    def _position(self, offset: int) -> Position:
        starts = self.line_starts
        line = min(bisect_right(starts, offset), len(self.region.rows)) - 1
        row = self.region.rows[line]
        return Position(row, offset - starts[line] + 1 + self.region.cut_columns.get(row, 0))
