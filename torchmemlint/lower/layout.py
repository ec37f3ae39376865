"""Where the nodes of a region stand by libcst's tree, where Python's own positions do not say it (``lower.spans``).

Positions are computed at the first question, once per region, for all nodes together. The lossless tree is written out again, and the
number of tokens written before and after each node is noted; what comes out is the text that was parsed, so token counts turn into
offsets of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

import libcst as cst
from libcst._nodes.internal import CodegenState

from torchmemlint.errors import SourceError
from torchmemlint.lower.limits import TOO_DEEP
from torchmemlint.lower.places import Offsets, Places
from torchmemlint.lower.regions import Region

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class TreePlaces(Places):
    """By libcst's nodes. The first question for a position raises ``SourceError`` where the region is nested too deeply."""

    __slots__ = ("_enclosing", "_layout", "_nodes", "_tree")

    def __init__(self, region: Region, tree: cst.Module, nodes: list[cst.CSTNode], enclosing: list[int]) -> None:
        """``nodes`` are libcst's by their numbers, ``enclosing`` the numbers of the statements around them."""
        super().__init__(region)
        self._tree = tree
        self._nodes = nodes
        self._enclosing = enclosing
        self._layout: _Layout | None = None

    def enclosing(self, node: int) -> int:
        return self._enclosing[node]

    def exact(self, node: int) -> Offsets:
        return self._text_layout().exact(self._nodes[node])

    def inclusive(self, node: int) -> Offsets:
        """With the parentheses around an expression, and the white space that a statement's node owns."""
        return self._text_layout().inclusive(self._nodes[node])

    def header(self, node: int) -> Offsets:
        layout, at = self._text_layout(), self._nodes[node]
        start, end = layout.exact(at)
        after = _after_header(at)
        return start, end if after is None else layout.inclusive(after)[0]

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

    __slots__ = ("_offsets", "_recorder")

    def __init__(self, tree: cst.Module, nodes: list[cst.CSTNode], text: str) -> None:
        self._recorder = _Recorder(tree, nodes)
        tree._codegen(self._recorder)
        tokens = self._recorder.tokens
        written = "".join(tokens)
        same = written == text or written + "\n" == text
        self._offsets = list(accumulate(map(len, tokens), initial=0)) if same else _aligned(tokens, text)

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
