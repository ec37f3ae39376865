"""Where the nodes of a region stand by the positions that Python's own parser notes: a finding then needs no libcst.

The region is lowered once more by ``lower.quick``'s way, which this time notes the node behind each number. The answers are those of
``lower.layout``, which has libcst's tree. What ``ast`` does not say is asked of that: the places of comprehension clauses and cases,
comments before an opening parenthesis, what stands in an f-string before Python 3.12.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from torchmemlint.errors import SourceError
from torchmemlint.index.parse import parse
from torchmemlint.lower.builder import Builder
from torchmemlint.lower.places import Offsets, Places
from torchmemlint.lower.regions import Region
from torchmemlint.lower.text import Text


class NotedPlaces(Places):
    """By the nodes of ``ast``; what ``read`` gives has the other answers, and is asked for it once."""

    __slots__ = (
        "_exact",
        "_first",
        "_lines",
        "_nodes",
        "_refused",
        "_source",
        "_statements",
        "_strings",
        "_turns",
        "_within",
        "read",
    )

    def __init__(self, region: Region, read: Callable[[], Places]) -> None:
        super().__init__(region)
        self.read = read
        self._exact: Places | None = None
        self._refused: SourceError | None = None
        self._nodes: list[ast.AST] = []
        self._turns: list[int] = []
        """How often the node of a number had one before."""
        self._first: dict[ast.AST, int] = {}
        """The first number of each node."""
        self._statements: dict[ast.AST, ast.AST] = {}
        """Expressions → the statement, handler, case or decorator around; these themselves too."""
        self._strings: set[ast.AST] = set()
        """What stands in an f-string whose positions are odd."""
        self._within: dict[ast.expr, ast.Call] = {}
        """The only argument of a call → the call, whose parentheses are not the argument's."""
        self._lines = [] if region.text.isascii() else [line.encode() for line in region.text.split("\n")]
        tree = parse(region.text)
        self._look(tree, tree, False)
        self._source = Text(region, self._number)
        Builder(self._source).region(tree, region)

    def _number(self, node: ast.AST) -> int:
        number = len(self._nodes)
        first = self._first.setdefault(node, number)
        turn = 0
        if first != number:
            turn = 1 + sum(each is node for each in self._nodes[first + 1 :])
        self._nodes.append(node)
        self._turns.append(turn)
        return number

    def _look(self, node: ast.AST, statement: ast.AST, in_string: bool) -> None:
        """Notes what is around each node. It nests no deeper than the lowering does."""
        self._statements[node] = statement
        if in_string:
            self._strings.add(node)
        if type(node) is ast.Call and len(node.args) + len(node.keywords) == 1 and node.args:
            self._within[node.args[0]] = node
        in_string = in_string or (_ODD_IN_STRINGS and type(node) is ast.JoinedStr)
        decorators = getattr(node, "decorator_list", ())
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _STATEMENTS) or child in decorators:
                self._look(child, child, in_string)
            elif not isinstance(child, _WITHOUT_PLACE):
                self._look(child, statement, in_string)

    # --- the answers --------------------------------------------------------------------------------------------------

    def enclosing(self, node: int) -> int:
        return self._first[self._statements[self._nodes[node]]]

    def exact(self, node: int) -> Offsets:
        return self._noted(node) or self._by_libcst().exact(node)

    def inclusive(self, node: int) -> Offsets:
        return self._inclusive(node) or self._by_libcst().inclusive(node)

    def header(self, node: int) -> Offsets:
        return self._header(node) or self._by_libcst().header(node)

    def _by_libcst(self) -> Places:
        if self._exact is None:
            if self._refused is not None:
                raise self._refused
            try:
                self._exact = self.read()
            except SourceError as error:
                self._refused = error
                raise
        return self._exact

    def _noted(self, number: int) -> Offsets | None:
        node, turn = self._nodes[number], self._turns[number]
        if node in self._strings or isinstance(node, _UNKNOWN):
            return None
        if self._statements[node] is node and isinstance(node, ast.expr) and not turn:
            return self._decorator(node)
        if turn and isinstance(node, ast.BoolOp | ast.Delete):
            return None
        match node:
            case ast.withitem():
                ends = [self._outer(node.context_expr)]
                ends.append(ends[0] if node.optional_vars is None else self._outer(node.optional_vars))
                return (ends[0][0], ends[1][1]) if ends[0] and ends[1] else None
            case ast.Tuple() | ast.GeneratorExp():
                return self._without_parentheses(node)
            case ast.stmt() | ast.ExceptHandler():
                start, end = self._offsets(node)
                return start, self._end_of_block(node, end)
            case ast.expr():
                return self._offsets(node)
        return None

    def _without_parentheses(self, node: ast.Tuple | ast.GeneratorExp) -> Offsets | None:
        """A tuple's parentheses are its own to ``ast``."""
        start, end = self._offsets(node)
        if isinstance(node, ast.Tuple) and not self._source.has_parentheses(node, False):
            return start, end
        inside = self.region.text[start + 1 : end - 1]
        bare = inside.strip()
        if "#" in inside or "\\" in inside or not bare or bare.endswith(","):
            return None
        start += 1 + inside.index(bare)
        return start, start + len(bare)

    def _end_of_block(self, node: Any, end: int) -> int:
        """Where the last simple statement in a statement ends: a compound one ends behind the semicolon there to ``ast``."""
        while blocks := [getattr(node, name, None) for name in _BLOCKS]:
            last = next((block[-1] for block in blocks if block), None)
            if last is None:
                break
            node = last
            if not isinstance(node, ast.match_case):
                end = self._offset(node.end_lineno, node.end_col_offset)
        return end

    def _decorator(self, node: ast.expr) -> Offsets | None:
        outer = self._outer(node)
        at = -1 if outer is None else self.region.text.rfind("@", 0, outer[0])
        return None if outer is None or at < 0 or self.region.text[at + 1 : outer[0]].strip(" \t") else (at, outer[1])

    def _inclusive(self, number: int) -> Offsets | None:
        node = self._nodes[number]
        if (
            not isinstance(node, ast.expr)
            or isinstance(node, ast.Starred | ast.Slice)
            or node in self._strings
            or self._turns[number]
        ):
            return None  # libcst's starred element owns the comma behind it
        return None if self._statements[node] is node else self._outer(node)

    def _outer(self, node: ast.expr) -> Offsets | None:
        """An expression with its parentheses; None where that takes more than a look at the characters around."""
        statement = self._statements[node]
        if isinstance(statement, ast.ClassDef | ast.match_case) or isinstance(node, ast.GeneratorExp):
            return None
        begin = 0 if statement is node else self._offset(*_start(statement))
        text = self.region.text
        start, end = self._offsets(node)
        call = self._within.get(node)
        last = -1 if call is None else self._offset(call.end_lineno, call.end_col_offset)
        while True:
            left = start - 1
            while left >= begin and text[left] in " \t\n\\":
                if text[left] == "\n" and "#" in text[text.rfind("\n", 0, left) + 1 : left]:
                    return None  # a comment, or a string that looks like one
                left -= 1
            if left < begin or text[left] != "(":
                return start, end
            right = _SPACE.match(text, end).end()  # type: ignore[union-attr]  # it matches nothing, too
            if text[right : right + 1] != ")" or right + 1 == last:
                return start, end
            if isinstance(statement, ast.With | ast.AsyncWith) and any(node is each.context_expr for each in statement.items):
                return None  # they may be the statement's own
            start, end = left, right + 1

    def _header(self, number: int) -> Offsets | None:
        node: Any = self._nodes[number]
        exact = self._noted(number)
        if exact is None or self._turns[number]:
            return None
        last: Any
        match node:
            case ast.If() | ast.While():
                last = node.test
            case ast.For() | ast.AsyncFor():
                last = node.iter
            case ast.With() | ast.AsyncWith():
                last = node.items[-1].optional_vars or node.items[-1].context_expr
            case ast.ExceptHandler():
                last = node.type
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                last = node.returns or _last_of(node.args) or next(iter(reversed(getattr(node, "type_params", ()))), None)
            case ast.ClassDef():
                bases = sorted([*node.bases, *node.keywords], key=_end)
                last = next(iter(reversed([*getattr(node, "type_params", ()), *bases])), None)
            case ast.Match():
                last = node.subject
            case _ if any(hasattr(node, name) for name in _BLOCKS) and isinstance(node, ast.stmt):
                last = None  # ``try:``
            case _:
                return exact
        at = exact[0] if last is None else self._offset(last.end_lineno, last.end_col_offset)
        found = _COLON.match(self.region.text, at)
        return None if found is None else (exact[0], found.end())

    # --- offsets ------------------------------------------------------------------------------------------------------

    def _offsets(self, node: Any) -> Offsets:
        return self._offset(*_start(node)), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, row: int | None, column: int | None) -> int:
        """An offset in the text; ``ast`` counts columns in bytes."""
        assert row is not None
        assert column is not None
        start = self.line_starts[row - 1]
        return start + (len(self._lines[row - 1][:column].decode()) if self._lines else column)


def _start(node: Any) -> tuple[int, int]:
    """Row and column, of a module the first."""
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0)


def _end(node: Any) -> tuple[int, int]:
    """Row and column of the end."""
    return node.end_lineno, node.end_col_offset


def _last_of(args: ast.arguments) -> Any:
    """The last that stands between the parentheses of a definition; None where nothing does."""
    found: list[Any] = [*args.posonlyargs, *args.args, *args.kwonlyargs, *args.defaults, *filter(None, args.kw_defaults)]
    found += [each for each in (args.vararg, args.kwarg) if each is not None]
    return max(found, key=_end, default=None)


_ODD_IN_STRINGS: Final = sys.version_info < (3, 12)
_STATEMENTS: Final = (ast.stmt, ast.ExceptHandler, ast.match_case)
_WITHOUT_PLACE: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
"""Nodes that stand for all of their kind."""
_UNKNOWN: Final = (ast.Module, ast.comprehension, ast.match_case, ast.pattern, ast.Slice)
"""Nodes that have no place, or another one than libcst's, whose slice owns the white space behind its last colon."""
_BLOCKS: Final = ("finalbody", "orelse", "handlers", "cases", "body")
"""The parts of a statement that are blocks, the last first."""
_SPACE: Final = re.compile(r"(?:[ \t\n\\]|#[^\n]*)*")
_COLON: Final = re.compile(r"(?:[^:#]|#[^\n]*)*:")
"""From the last word of a header to its colon stand parentheses, commas and comments."""
