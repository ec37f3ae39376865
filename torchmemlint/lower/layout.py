"""Where the nodes of a lowered region stand in the file: spans, statements, source text.

Asked for only by findings, so positions are computed at the first question, once per region, for all nodes together. The
lossless tree is written out again, and the number of tokens written before and after each node is noted; what comes out is
the text that was parsed, so token counts turn into offsets of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import libcst as cst
from libcst._nodes.internal import CodegenState

from torchmemlint.errors import SourceError
from torchmemlint.findings import Position, Span
from torchmemlint.lower.limits import TOO_DEEP
from torchmemlint.lower.regions import Region

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


@dataclass(slots=True)
class Places:
    """What ``Lowered`` answers about one region, from libcst's nodes by their numbers. The first question for a position
    raises ``SourceError`` where the region is nested too deeply."""

    region: Region
    _tree: cst.Module
    _nodes: list[cst.CSTNode]
    _enclosing: list[int]
    _layout: _Layout | None = field(default=None, init=False)

    def enclosing(self, node: int) -> int:
        return self._enclosing[node]

    def span(self, node: int) -> Span:
        return self._span(*self._text_layout().exact(self._nodes[node]))

    def outer_span(self, node: int) -> Span:
        return self._span(*self._text_layout().inclusive(self._nodes[node]))

    def header_span(self, node: int) -> Span:
        return self._span(*self._header(node))

    def statement(self, node: int) -> tuple[Span, str]:
        start, end = self._header(self.enclosing(node))
        return self._span(start, end), " ".join(self.region.text[start:end].split())

    def source(self, node: int) -> str:
        start, end = self._text_layout().exact(self._nodes[node])
        return self.region.text[start:end]

    def _header(self, node: int) -> tuple[int, int]:
        layout, at = self._text_layout(), self._nodes[node]
        start, end = layout.exact(at)
        after = _after_header(at)
        return start, end if after is None else layout.inclusive(after)[0]

    def _span(self, start: int, end: int) -> Span:
        return Span(self._position(start), self._position(end))

    def _position(self, offset: int) -> Position:
        starts = self._text_layout().line_starts
        line = min(bisect_right(starts, offset), len(self.region.rows)) - 1
        row = self.region.rows[line]
        return Position(row, offset - starts[line] + 1 + self.region.cut_columns.get(row, 0))

    def _text_layout(self) -> _Layout:
        if self._layout is None:
            try:
                self._layout = _Layout(self._tree, self._nodes, self.region.text)
            except RecursionError as error:
                raise SourceError(TOO_DEEP, self.region.first_row) from error
        return self._layout


def _after_header(node: cst.CSTNode) -> cst.CSTNode | None:
    """What stands behind the header of a compound statement, handler or case."""
    after = node.whitespace_after_colon if isinstance(node, cst.Match) else getattr(node, "body", None)
    return after if isinstance(after, cst.BaseSuite | cst.TrailingWhitespace | cst.SimpleWhitespace) else None


class _Layout:
    """Offsets of the numbered nodes in the text of one region."""

    __slots__ = ("_offsets", "_recorder", "line_starts")

    def __init__(self, tree: cst.Module, nodes: list[cst.CSTNode], text: str) -> None:
        self._recorder = _Recorder(tree, nodes)
        tree._codegen(self._recorder)
        tokens = self._recorder.tokens
        written = "".join(tokens)
        same = written == text or written + "\n" == text
        self._offsets = list(accumulate(map(len, tokens), initial=0)) if same else _aligned(tokens, text)
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def inclusive(self, node: cst.CSTNode) -> tuple[int, int]:
        """With the parentheses around an expression, and the white space that a statement's node owns."""
        return self._between(self._recorder.outer[id(node)])

    def exact(self, node: cst.CSTNode) -> tuple[int, int]:
        return self._between(self._recorder.place(node))

    def _between(self, tokens: tuple[int, int]) -> tuple[int, int]:
        last = len(self._offsets) - 1  # the file's last line end is written and taken back
        return self._offsets[min(tokens[0], last)], self._offsets[min(tokens[1], last)]


def _aligned(tokens: Iterable[str], text: str) -> list[int]:
    """The offsets of tokens in a text that has white space which they lack: libcst 1.9 loses that of ``f"{x!s  }"``."""
    offsets: list[int] = []
    at = 0
    for token in tokens:
        while not text.startswith(token, at):
            if not text[at : at + 1].isspace():
                raise SourceError("this source is not written out by libcst as it was read")
            at += 1
        offsets.append(at)
        at += len(token)
    return [*offsets, at]


class _Recorder(CodegenState):
    """Writes a tree out and notes how many tokens stood before and after each of some nodes.

    libcst's ``PositionProvider`` does this too, but counts rows and columns at every token and builds a position for every
    node, asked for or not: five times the time (143 µs a line against 29). Most nodes are white space and commas, which no number
    names: to note these too would take as much memory as the tree.
    """

    def __init__(self, tree: cst.Module, nodes: list[cst.CSTNode]) -> None:
        super().__init__(default_indent=tree.default_indent, default_newline=tree.default_newline)
        self.outer: dict[int, tuple[int, int]] = {}
        self.inner: dict[int, tuple[int, int]] = {}
        self.asked = set(map(id, nodes))
        self.asked.update(id(after) for after in map(_after_header, nodes) if after is not None)
        self._open: list[int] = []

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._open.append(len(self.tokens))

    def after_codegen(self, node: cst.CSTNode) -> None:
        start = self._open.pop()
        if id(node) in self.asked:
            self.outer[id(node)] = (start, len(self.tokens))

    def place(self, node: cst.CSTNode) -> tuple[int, int]:
        """Tokens before and after the node proper, or with all that it owns where libcst makes no difference."""
        return self.inner.get(id(node)) or self.outer[id(node)]

    def record_syntactic_position(  # type: ignore[override]  # libcst only enters what it gets
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> AbstractContextManager[None]:
        self.asked.update(id(end) for end in (start_node, end_node) if end is not None)
        return _Stretch(self, node, start_node, end_node)


class _Stretch:
    """The part of a node's writing that is the node proper; its ends may be those of nodes inside it."""

    __slots__ = ("end_node", "node", "recorder", "start", "start_node")

    def __init__(
        self, recorder: _Recorder, node: cst.CSTNode, start_node: cst.CSTNode | None, end_node: cst.CSTNode | None
    ) -> None:
        self.recorder, self.node, self.start_node, self.end_node = recorder, node, start_node, end_node

    def __enter__(self) -> None:
        self.start = len(self.recorder.tokens)

    def __exit__(self, *error: object) -> None:
        recorder = self.recorder
        start, end = self.start, len(recorder.tokens)
        if self.start_node is not None:
            start = recorder.place(self.start_node)[0]
        if self.end_node is not None:
            end = recorder.place(self.end_node)[1]
        if id(self.node) in recorder.asked:
            recorder.inner[id(self.node)] = (start, end)
