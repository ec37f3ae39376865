"""The state of one walk over a module's syntax tree: what is being read, what was found."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from torchmemlint.index.dotted import annotation_text
from torchmemlint.index.facts import (
    ArgFact,
    AttrFact,
    CallableUse,
    CallFact,
    ClassFacts,
    FunctionFacts,
    ParamFact,
)
from torchmemlint.index.shared import same
from torchmemlint.index.signatures import header_end, params_of
from torchmemlint.torch_facts import TORCH

CUDA = TORCH.names["cuda"]

MAX_DEPTH = 200
"""Deeper trees are refused: they are generated code, and deep recursion over them ends the process."""

# Calls of these say nothing about the project (a function that is passed to one of them is noted as read).
_PLAIN_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_")) - {
    "getattr", "setattr", "map", "filter", "type",
}  # fmt: skip


class Frame:
    """A function while it is being read."""

    __slots__ = (
        "at_once", "bound", "calls", "calls_at", "constants", "deferred", "generator", "globals", "loads", "locals", "names", "owner",
        "qualname", "receiver", "returned", "row", "stores", "tested", "unsure", "wraps", "yields",
    )  # fmt: skip

    def __init__(self, qualname: str, owner: str, receiver: str, row: int) -> None:
        self.qualname = qualname
        self.row = row
        self.owner = owner  # class whose attributes `receiver` has
        self.receiver = receiver  # name of the first parameter of the method around, "" outside methods
        self.names: set[str] = set()
        self.loads: set[str] = set()
        self.tested: set[str] = set()
        self.locals: set[str] = set()
        self.globals: set[str] = set()
        self.unsure: set[str] = set()
        self.stores: set[str] = set()
        self.constants: list[tuple[str, str]] = []
        self.bound: dict[str, list[str]] = {}
        self.calls: list[CallFact] = []
        self.calls_at: list[int] = []
        self.returned: list[CallableUse] = []
        self.wraps: list[CallableUse] = []
        self.yields: list[tuple[CallableUse, ...]] = []
        self.generator = False
        self.deferred = 0
        self.at_once: set[int] = set()

    def own(self, name: str, unsure: bool = False, const: str = "") -> None:
        """A statement binds ``name``."""
        if const:
            self.constants.append((name, const))
        if const[1:5] == CUDA:  # `device = "cuda:0"` says it as `.cuda()` does
            self.names.add(CUDA)
        if unsure or name in self.locals:
            self.unsure.add(name)
        self.locals.add(name)

    def bind(self, name: str, text: str) -> None:
        """``name`` is assigned ``text`` ("" for what has no text)."""
        self.own(name)
        values = self.bound.setdefault(name, [])
        if text not in values:
            values.append(text)

    def known(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """The names with one known value, and those with a few; what any other name stands for counts as read.

        (What a known name stands for is no read, because calls through the name are followed.)
        """
        once: list[tuple[str, str]] = []
        several: list[tuple[str, str]] = []
        for name, values in self.bound.items():
            if name in self.globals or "" in values or len(values) > 4:
                self.loads.update(text for text in values if text and text[-1] not in ")]")
            elif len(values) == 1:
                once.append((name, values[0]))
            else:
                several += [(name, text) for text in values]
        return tuple(once), tuple(several)


class ClassBody:
    """A class while it is being read."""

    __slots__ = ("attrs", "methods", "qualname")

    def __init__(self, qualname: str) -> None:
        self.qualname = qualname
        self.methods: dict[str, str] = {}
        self.attrs: list[AttrFact] = []


class Walk:
    """The state of one walk: where it is, and what it has found."""

    def __init__(self, tree: ast.Module, lines: Sequence[str]) -> None:
        self.lines = lines
        self.imports: dict[tuple[str, str], None] = {}
        self.needs: list[str] = []
        self.declared: set[str] = set()  # global or nonlocal in some function
        self.functions: list[FunctionFacts] = []
        self.classes: dict[str, ClassBody] = {}
        self.order: list[ClassFacts] = []
        self.arg_cache: dict[tuple[str, str, str, str], ArgFact] = {}
        self.frame = self.top = Frame("<module>", "", "", 1)
        self.scope: ClassBody | None = None  # the class whose body is being read
        self.managers: tuple[CallableUse, ...] = ()
        self.loops = 0
        self.branch: tuple[str, ...] = ()
        self.statement: ast.stmt | ast.excepthandler = ast.Pass(lineno=0, col_offset=0)  # the innermost that is being read
        self.plain = _PLAIN_BUILTINS - top_level_names(tree)

    def column(self, row: int, offset: int) -> int:
        """The column, from 1 and in code points, of what ``ast`` finds a number of bytes behind the start of a row."""
        line = self.lines[row - 1]
        return 1 + (offset if line.isascii() else len(line.encode()[:offset].decode()))


def finished(
    walk: Walk,
    frame: Frame,
    node: ast.FunctionDef | ast.AsyncFunctionDef | None,
    decorators: tuple[CallableUse, ...],
    owner: str,
    parent: str,
    rows: int = 0,
) -> FunctionFacts:
    local_names = frozenset(frame.locals - frame.globals)
    unsure = frame.unsure | (walk.declared if frame is walk.top else walk.declared & local_names)
    bound, rebound = frame.known()
    loads = frame.loads | frame.tested
    reads = frozenset(text for text in loads if text not in walk.plain and (frame is walk.top or text not in local_names))
    if node is None:
        params: tuple[ParamFact, ...] = ()
        first_row, row, header_end_row, end_row, returns, is_async = 1, 1, 1, rows, "", False
    else:
        params = tuple(params_of(node.args))
        row, end_row = node.lineno, node.end_lineno or node.lineno
        first_row = min([decorator.lineno for decorator in node.decorator_list] + [row])
        header_end_row = header_end(node, walk.lines)
        returns, is_async = annotation_text(node.returns), isinstance(node, ast.AsyncFunctionDef)
    return FunctionFacts(
        qualname=frame.qualname,
        first_row=first_row,
        row=row,
        header_end_row=header_end_row,
        end_row=end_row,
        owner=owner,
        parent=parent,
        params=same(ParamFact, params),
        decorators=decorators,
        is_async=is_async,
        is_generator=frame.generator,
        calls=tuple(frame.calls),
        calls_at=tuple(frame.calls_at),
        names=same(str, frozenset(frame.names)),
        bound=same(str, bound),
        returns=returns,
        rebound=rebound,
        locals=same(str, local_names),
        reads=same(str, reads),
        tested=same(str, reads & frame.tested - frame.loads),
        returned=tuple(frame.returned),
        wraps=tuple(frame.wraps),
        yields=tuple(frame.yields),
        leaves=tuple(use for use in walk.managers if use.called),
        taken=same(str, frozenset(param.name for param in params) & frame.loads & {call.callee for call in frame.calls}),
        unsure=frozenset(unsure),
        constants=tuple([pair for pair in frame.constants if pair[0] not in unsure]) if frame is walk.top else (),
        stores=frozenset(frame.stores),
    )


def top_level_names(tree: ast.Module) -> set[str]:
    """Names that the module binds itself, so that a function called ``print`` is not taken for the builtin."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in statement.names)
    return found
