"""The way to a place of the IR: what was surely evaluated before, and which tests came out how.

A statement is on the way if it stands before the place in the same block, or in a block around that: it was executed, and did not raise.
Of what only some runs evaluate (a branch, the right side of ``and``, a body that a ``try`` or a ``with`` may end early) nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torchmemlint.lower import ir
from torchmemlint.semantics.syntax import target_names
from torchmemlint.semantics.walk import FIELDS, everything, walk

Scopes = tuple[ir.Function, ...]
"""The functions around an expression, the outermost first; of a module's own statements the module."""


@dataclass(slots=True)
class Way:
    """``tests`` are those that hold at the place (or do not), ``ran`` the expressions and imports that were evaluated."""

    tests: list[tuple[Scopes, ir.Expr, bool]] = field(default_factory=list)
    ran: list[tuple[Scopes, ir.Expr | ir.ImportStmt]] = field(default_factory=list)

    def pass_by(self, statement: ir.Stmt, scopes: Scopes) -> None:
        """Goes past a statement."""
        ran = [(scopes, each) for each in evaluated_by(statement)]
        self.ran += ran
        match statement:
            case ir.If():
                for block, value in ((statement.then, False), (statement.orelse, True)):
                    if block and isinstance(block[-1], ir.Return | ir.Raise | ir.Continue | ir.Break):
                        self.tests.append((scopes, statement.test, value))
            case ir.Try():
                for last in statement.final:
                    self.pass_by(last, scopes)

    def enter(self, block: list[ir.Stmt], node: int, scopes: Scopes) -> None:
        """Goes to a node of a block."""
        at = max((i for i, statement in enumerate(block) if statement.node <= node), default=0)
        for statement in block[:at]:
            self.pass_by(statement, scopes)
        if block:
            self._into(block[at], node, scopes)

    def _into(self, statement: ir.Stmt, node: int, scopes: Scopes) -> None:
        if isinstance(statement, ir.FunctionDef):
            function = statement.function
            if function.body and node >= function.body[0].node:
                self.enter(function.body, node, (*scopes, function))
            return
        if isinstance(statement, ir.ClassDef):  # whose names are no variables of its methods
            inner = [each for each in statement.body if isinstance(each, ir.FunctionDef) and each.node <= node]
            if inner:
                self._into(inner[-1], node, scopes)
            return
        blocks = [each for each in blocks_of(statement) if each[0] and each[0][0].node <= node]
        if not blocks or isinstance(statement, ir.Match):
            self._in_header(statement, node, scopes)
            return
        block, tests = max(blocks, key=lambda each: each[0][0].node)
        handler = isinstance(statement, ir.Try) and any(block is each.body for each in statement.handlers)
        if isinstance(statement, ir.Try) and block is statement.orelse:
            for before in statement.body:
                self.pass_by(before, scopes)
        elif not handler:
            self.ran += [(scopes, each) for each in evaluated_by(statement)]
        self.tests += [(scopes, test, value) for test, value in tests]
        self.enter(block, node, scopes)

    def _in_header(self, statement: ir.Stmt, node: int, scopes: Scopes) -> None:
        for each in evaluated_by(statement):
            self.ran.append((scopes, each))
            if not isinstance(each, ir.ImportStmt):
                self.tests += [(scopes, test, value) for test, value in tests_inside(each, node)]


def way_to(function: ir.Function, node: int) -> Way:
    """The way to a node of a function."""
    way = Way()
    way.enter(function.body, node, (function,))
    return way


def way_through(function: ir.Function) -> Way:
    """The way through all of a function, or of a module's own statements."""
    way = Way()
    for statement in function.body:
        way.pass_by(statement, (function,))
    return way


def blocks_of(statement: ir.Stmt) -> list[tuple[list[ir.Stmt], list[tuple[ir.Expr, bool]]]]:
    """The blocks of a statement, each with what holds in it."""
    match statement:
        case ir.If():
            return [(statement.then, [(statement.test, True)]), (statement.orelse, [(statement.test, False)])]
        case ir.While():
            return [(statement.body, [(statement.test, True)]), (statement.orelse, [])]
        case ir.For() | ir.With():
            return [(statement.body, []), *([(statement.orelse, [])] if isinstance(statement, ir.For) else [])]
        case ir.Try():
            inner = [statement.body, *(each.body for each in statement.handlers), statement.orelse, statement.final]
            return [(each, []) for each in inner]
        case ir.Match():
            return [(each.body, []) for each in statement.cases]
    return []


def evaluated_by(statement: ir.Stmt) -> Iterator[ir.Expr | ir.ImportStmt]:
    """The expressions that a statement evaluates whatever happens inside its blocks. Decorators are left out: tools put some among
    the builtins."""
    match statement:
        case ir.ExprStmt() | ir.Return() | ir.Raise() if statement.value is not None:
            yield statement.value
        case ir.Assign():
            yield statement.value
            for target in statement.targets:
                yield from _stored(target)
        case ir.AugAssign():
            yield statement.target
            yield statement.value
        case ir.If() | ir.While():
            yield statement.test
        case ir.For():
            yield statement.iterable
        case ir.With():
            yield from (item.manager for item in statement.items)
        case ir.FunctionDef():
            yield from (param.default for param in statement.function.params if param.default is not None)
        case ir.ClassDef():
            yield from (arg.value for arg in statement.bases)
        case ir.Match():
            yield statement.subject
        case ir.ImportStmt():
            yield statement


def _stored(target: ir.Expr) -> Iterator[ir.Expr]:
    match target:
        case ir.Attr():
            yield target.value
        case ir.Subscript():
            yield target.value
            yield from target.index
        case ir.Sequence():
            for item in target.items:
                yield from _stored(item)
        case ir.Star():
            yield from _stored(target.value)


def parts_of(expr: ir.Expr) -> Iterator[ir.Expr]:
    """An expression and all parts of it that are evaluated with it, whatever they give."""
    yield expr
    match expr:
        case ir.Lambda():
            return
        case ir.Comprehension():
            inner: list[object] = [expr.clauses[0].iterable]
        case ir.BoolOp():
            inner = [expr.left]
        case ir.IfExp():
            inner = [expr.test]
        case ir.Compare():
            inner = [expr.left, expr.comparators[0]]
        case ir.Call():
            inner = [expr.func, *(arg.value for arg in expr.args)]
        case ir.DictDisplay():
            inner = [part for item in expr.items for part in item]
        case _:
            values = [getattr(expr, name) for name in FIELDS[type(expr)]]
            inner = [part for value in values for part in (value if isinstance(value, list) else [value])]
    for part in inner:
        if type(part) in FIELDS:
            yield from parts_of(part)  # type: ignore[arg-type]


def tests_inside(expr: ir.Expr, node: int) -> list[tuple[ir.Expr, bool]]:
    """What holds, in an expression, where a node of it is evaluated."""
    found: list[tuple[ir.Expr, bool]] = []
    for each in everything(expr):
        match each:
            case ir.BoolOp() if holds_node(each.right, node):
                found.append((each.left, each.op == "and"))
            case ir.IfExp() if holds_node(each.then, node):
                found.append((each.test, True))
            case ir.IfExp() if holds_node(each.orelse, node):
                found.append((each.test, False))
    return found


def holds_node(expr: ir.Expr, node: int) -> bool:
    return any(getattr(each, "node", -1) == node for each in everything(expr))


def binders(function: ir.Function, name: str) -> list[object]:
    """Whatever binds a name in a function's own scope, or in a module's."""
    return list(_binders(function.body, name)) if name in function.locals else []


def _binders(body: object, name: str) -> Iterator[object]:
    for each in walk(body):
        match each:
            case ir.Assign() | ir.Delete() if any(name in target_names(target) for target in each.targets):
                yield each
            case ir.AugAssign() | ir.For() | ir.CompClause() if name in target_names(each.target):
                yield each
            case ir.WithItem() if each.target is not None and name in target_names(each.target):
                yield each
            case ir.Handler() | ir.ClassDef() if each.name == name:
                yield each
            case ir.ImportStmt() if any(bound == name for bound, _ in each.bindings):
                yield each
            case ir.Walrus() if each.target.id == name:
                yield each
            case ir.MatchCase() if name in each.binds:
                yield each
            case ir.FunctionDef() | ir.Lambda():
                if isinstance(each, ir.FunctionDef) and each.function.name == name:
                    yield each
                if name not in each.function.locals:
                    yield from _binders(each.function.body, name)
