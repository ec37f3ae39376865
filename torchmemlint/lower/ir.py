"""The flow IR: what a candidate region says, without its spelling.

Small dataclasses, one per construct that moves values or control. Every statement and expression carries ``node``: the
number of the node that it stands for in its ``Region``, which is looked at again only when a finding needs the span.
Parentheses, comments and white space are gone; operators that the analysis does not distinguish are kept as their text.

The engine (``semantics``) runs it; questions about the text alone are in ``walk``, ``syntax``, ``written`` and ``ways`` beside this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.str_enum import StrEnum


class Stars(StrEnum):
    """What stands before an argument."""

    NONE = ""
    ONE = "*"
    TWO = "**"


class Display(StrEnum):
    """What a display or a comprehension makes."""

    LIST = "list"
    TUPLE = "tuple"
    SET = "set"
    DICT = "dict"
    GENERATOR = "generator"


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Const:
    """A literal: None, bool, int, float, complex, str, bytes or Ellipsis."""

    node: int
    value: object


@dataclass(slots=True)
class Name:
    node: int
    id: str


@dataclass(slots=True)
class Attr:
    """``value.name``"""

    node: int
    value: Expr
    name: str


@dataclass(slots=True)
class Arg:
    """One argument of a call. ``keyword`` is None for positional."""

    value: Expr
    keyword: str | None = None
    star: Stars = Stars.NONE


@dataclass(slots=True)
class Call:
    node: int
    func: Expr
    args: list[Arg]


@dataclass(slots=True)
class Subscript:
    """``value[index]``; several comma-separated indices are several items; slices are ``Slice``."""

    node: int
    value: Expr
    index: list[Expr]


@dataclass(slots=True)
class Slice:
    node: int
    parts: list[Expr]
    """Lower, upper and step, those that are written."""


@dataclass(slots=True)
class Binary:
    """Arithmetic, shift, matrix and bit operators; ``op`` is the operator's text, e.g. ``"+"``, ``"@"``."""

    node: int
    op: str
    left: Expr
    right: Expr


@dataclass(slots=True)
class Unary:
    """``op`` is ``"-"``, ``"+"``, ``"~"`` or ``"not"``."""

    node: int
    op: str
    value: Expr


@dataclass(slots=True)
class BoolOp:
    """``op`` is ``"and"`` or ``"or"``; two operands (chains nest to the left)."""

    node: int
    op: str
    left: Expr
    right: Expr


@dataclass(slots=True)
class Compare:
    """``left op1 c1 op2 c2 …``; operators by their text: ``"=="``, ``"is not"``, ``"not in"`` …"""

    node: int
    left: Expr
    ops: list[str]
    comparators: list[Expr]


@dataclass(slots=True)
class IfExp:
    node: int
    test: Expr
    then: Expr
    orelse: Expr


@dataclass(slots=True)
class Sequence:
    """A list, tuple or set display. Elements may be ``Star``."""

    node: int
    kind: Display
    items: list[Expr]


@dataclass(slots=True)
class DictDisplay:
    """Pairs of key and value; the key is None for ``**mapping``."""

    node: int
    items: list[tuple[Expr | None, Expr]]


@dataclass(slots=True)
class Star:
    """``*value`` in a display or an assignment target."""

    node: int
    value: Expr


@dataclass(slots=True)
class CompClause:
    """``for target in iterable if …`` of a comprehension; ``node`` numbers the clause (it is a loop)."""

    node: int
    target: Expr
    iterable: Expr
    conditions: list[Expr]


@dataclass(slots=True)
class Comprehension:
    """``key`` only for a dict. Outermost clause first."""

    node: int
    kind: Display
    element: Expr
    key: Expr | None
    clauses: list[CompClause]


@dataclass(slots=True)
class Lambda:
    """An anonymous function; its body is one ``Return``."""

    node: int
    function: Function


@dataclass(slots=True)
class Walrus:
    node: int
    target: Name
    value: Expr


@dataclass(slots=True)
class FormattedString:
    """An f-string (or implicit concatenation with one): the expressions inside, in order."""

    node: int
    values: list[Expr]


@dataclass(slots=True)
class Await:
    node: int
    value: Expr


@dataclass(slots=True)
class Yield:
    """``yield value`` (value may be None); ``is_from`` for ``yield from``."""

    node: int
    value: Expr | None
    is_from: bool = False


Expr = Union[
    Const, Name, Attr, Call, Subscript, Slice, Binary, Unary, BoolOp, Compare, IfExp, Sequence, DictDisplay, Star,
    Comprehension, Lambda, Walrus, FormattedString, Await, Yield,
]  # fmt: skip

# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ExprStmt:
    node: int
    value: Expr


@dataclass(slots=True)
class Assign:
    """``t1 = t2 = value``; an annotated assignment has one target and its annotation."""

    node: int
    targets: list[Expr]
    value: Expr
    annotation: Expr | None = None


@dataclass(slots=True)
class Declare:
    """``name: annotation`` without a value."""

    node: int
    target: Expr
    annotation: Expr


@dataclass(slots=True)
class AugAssign:
    """``target op= value``; ``op`` without the equals sign."""

    node: int
    target: Expr
    op: str
    value: Expr


@dataclass(slots=True)
class If:
    """An ``elif`` is an ``If`` alone in ``orelse``. ``node`` is the whole statement; the test carries its own."""

    node: int
    test: Expr
    then: list[Stmt]
    orelse: list[Stmt]


@dataclass(slots=True)
class For:
    node: int
    target: Expr
    iterable: Expr
    body: list[Stmt]
    orelse: list[Stmt]


@dataclass(slots=True)
class While:
    node: int
    test: Expr
    body: list[Stmt]
    orelse: list[Stmt]


@dataclass(slots=True)
class Handler:
    """``except type as name:``; ``type`` is None for a bare except; ``except*`` is the same."""

    node: int
    type: Expr | None
    name: str | None
    body: list[Stmt]


@dataclass(slots=True)
class Try:
    node: int
    body: list[Stmt]
    handlers: list[Handler]
    orelse: list[Stmt]
    final: list[Stmt]


@dataclass(slots=True)
class WithItem:
    """One context manager of a ``with``; ``node`` numbers the item."""

    node: int
    manager: Expr
    target: Expr | None


@dataclass(slots=True)
class With:
    node: int
    items: list[WithItem]
    body: list[Stmt]


@dataclass(slots=True)
class Return:
    node: int
    value: Expr | None


@dataclass(slots=True)
class Raise:
    node: int
    value: Expr | None
    cause: Expr | None


@dataclass(slots=True)
class Break:
    node: int


@dataclass(slots=True)
class Continue:
    node: int


@dataclass(slots=True)
class Delete:
    node: int
    targets: list[Expr]


@dataclass(slots=True)
class Assert:
    node: int
    test: Expr
    message: Expr | None


@dataclass(slots=True)
class OuterNames:
    """``global`` or ``nonlocal``: the names are in no scope's ``locals``."""

    node: int


@dataclass(slots=True)
class ImportStmt:
    """``import a.b as c`` binds ("c", "a.b"); ``import a.b`` binds ("a", "a"); ``from m import n as k`` binds
    ("k", "m.n"), relative imports keep their leading dots ("..m.n")."""

    node: int
    bindings: list[tuple[str, str]]


@dataclass(slots=True)
class FunctionDef:
    """A nested function; binds ``function.name``."""

    node: int
    function: Function


@dataclass(slots=True)
class ClassDef:
    """A nested class: its name, bases, keyword arguments and body (methods are ``FunctionDef``)."""

    node: int
    name: str
    bases: list[Arg]
    decorators: list[Expr]
    body: list[Stmt]


@dataclass(slots=True)
class MatchCase:
    """One ``case``: the names that its pattern binds, a literal to compare with when the pattern is only that, the guard."""

    node: int
    literal: Const | None
    binds: list[str]
    guard: Expr | None
    body: list[Stmt]
    matches_all: bool = False
    """The pattern matches every subject (``_``, a bare name): without a guard, later cases are never reached."""


@dataclass(slots=True)
class Match:
    node: int
    subject: Expr
    cases: list[MatchCase]


Stmt = Union[
    ExprStmt, Assign, Declare, AugAssign, If, For, While, Try, With, Return, Raise, Break, Continue, Delete, Assert, OuterNames,
    ImportStmt, FunctionDef, ClassDef, Match,
]  # fmt: skip

# --- functions --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Param:
    name: str
    annotation: Expr | None
    default: Expr | None
    kind: ParamKind = ParamKind.POSITIONAL


@dataclass(slots=True)
class Function:
    """A function's body in flow IR.

    ``qualname`` is the dotted path inside its module ("Trainer.fit", "train.step"; a lambda's last part is "<lambda>").
    """

    node: int
    name: str
    qualname: str
    params: list[Param]
    decorators: list[Expr]
    body: list[Stmt]
    is_async: bool = False
    is_generator: bool = False
    returns: Expr | None = None
    locals: frozenset[str] = field(default_factory=frozenset)
    """Names that the body binds (parameters included), less those declared global or nonlocal."""
