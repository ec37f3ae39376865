"""Syntax tree → flow IR: statements, definitions, whole regions.

The expressions in them: ``lower.expressions``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, Final

from torchmemlint.lower import ir
from torchmemlint.lower.expressions import OPERATORS, Expressions, Source
from torchmemlint.lower.regions import MODULE, Region


class Builder:
    """One walk over the statements of a region; ``expressions`` has the numbers given so far, and the scope."""

    __slots__ = ("expr", "expressions", "maybe", "number", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.expressions = Expressions(source)
        self.number = source.number
        self.expr = self.expressions.expr
        self.maybe = self.expressions.maybe

    def region(self, tree: ast.Module, region: Region) -> ir.Function:
        top = self.number(tree)
        if region.qualname == MODULE:
            body = self.body(tree.body)
            return ir.Function(top, MODULE, MODULE, [], [], body, locals=self.expressions.scope.locals)
        self.expressions.scope.prefix = region.qualname.rpartition(".")[0]
        first = tree.body[0]
        if region.indented:
            assert isinstance(first, ast.If)
            first = first.body[0]
        assert isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef)
        return self.function(first)

    def body(self, statements: Iterable[ast.stmt]) -> list[ir.Stmt]:
        """``pass`` leaves nothing."""
        return [_STATEMENTS[type(node)](self, node) for node in statements if type(node) is not ast.Pass]

    # --- simple statements --------------------------------------------------------------------------------------------

    def expression(self, node: ast.Expr) -> ir.Stmt:
        number, value = self.number(node), node.value
        return ir.ExprStmt(number, self.expr(value))

    def assign(self, node: ast.Assign) -> ir.Stmt:
        number = self.number(node)
        value = self.expr(node.value)
        bind = self.expressions.scope.bind
        return ir.Assign(number, [bind(self.expr(target)) for target in node.targets], value)

    def annotated(self, node: ast.AnnAssign) -> ir.Stmt:
        number = self.number(node)
        target = self.expressions.scope.bind(self.expr(node.target))
        annotation = self.expr(node.annotation)
        if node.value is None:
            return ir.Declare(number, target, annotation)
        return ir.Assign(number, [target], self.expr(node.value), annotation)

    def augmented(self, node: ast.AugAssign) -> ir.Stmt:
        number = self.number(node)
        target = self.expressions.scope.bind(self.expr(node.target))
        return ir.AugAssign(number, target, OPERATORS[type(node.op)], self.expr(node.value))

    def type_alias(self, node: Any) -> ir.Stmt:  # Python 3.12
        number = self.number(node)
        value = self.expr(node.value)
        return ir.Assign(number, [self.expressions.scope.bind(self.expr(node.name))], value)

    def return_(self, node: ast.Return) -> ir.Stmt:
        return ir.Return(self.number(node), self.maybe(node.value))

    def raise_(self, node: ast.Raise) -> ir.Stmt:
        return ir.Raise(self.number(node), self.maybe(node.exc), self.maybe(node.cause))

    def break_(self, node: ast.Break) -> ir.Stmt:
        return ir.Break(self.number(node))

    def continue_(self, node: ast.Continue) -> ir.Stmt:
        return ir.Continue(self.number(node))

    def delete(self, node: ast.Delete) -> ir.Stmt:
        """libcst's statement has one target: ``del a, b`` deletes a tuple."""
        number = self.number(node)
        if len(node.targets) > 1 or self.source.ends_in_comma(node):
            self.number(node)
            return ir.Delete(number, [self.expressions.scope.bind(self.expr(target)) for target in node.targets])
        target = self.expressions.scope.bind(self.expr(node.targets[0]))
        return ir.Delete(number, target.items if isinstance(target, ir.Sequence) else [target])

    def assert_(self, node: ast.Assert) -> ir.Stmt:
        return ir.Assert(self.number(node), self.expr(node.test), self.maybe(node.msg))

    def outside(self, node: ast.Global | ast.Nonlocal) -> ir.Stmt:
        self.expressions.scope.outside.update(node.names)
        return ir.OuterNames(self.number(node))

    def import_(self, node: ast.Import) -> ir.Stmt:
        bindings: list[tuple[str, str]] = []
        for alias in node.names:
            first = alias.name.partition(".")[0]
            bindings.append((alias.asname, alias.name) if alias.asname else (first, first))
        self.expressions.scope.bound.update(local for local, _ in bindings)
        return ir.ImportStmt(self.number(node), bindings)

    def import_from(self, node: ast.ImportFrom) -> ir.Stmt:
        number = self.number(node)
        module = "." * node.level + (node.module or "")
        if node.names[0].name == "*":
            return ir.ImportStmt(number, [("*" + module, module)])
        prefix = module + "." if node.module else module
        bindings = [(alias.asname or alias.name, prefix + alias.name) for alias in node.names]
        self.expressions.scope.bound.update(local for local, _ in bindings)
        return ir.ImportStmt(number, bindings)

    # --- compound statements ------------------------------------------------------------------------------------------

    def if_(self, node: ast.If) -> ir.Stmt:
        number, test = self.number(node), self.expr(node.test)
        return ir.If(number, test, self.body(node.body), self.body(node.orelse))

    def for_(self, node: ast.For | ast.AsyncFor) -> ir.Stmt:
        number = self.number(node)
        iterable, target = self.expr(node.iter), self.expressions.scope.bind(self.expr(node.target))
        body, orelse = self.body(node.body), self.body(node.orelse)
        return ir.For(number, target, iterable, body, orelse)

    def while_(self, node: ast.While) -> ir.Stmt:
        number, test = self.number(node), self.expr(node.test)
        return ir.While(number, test, self.body(node.body), self.body(node.orelse))

    def try_(self, node: Any) -> ir.Stmt:  # ast.TryStar since Python 3.11
        number = self.number(node)
        body = self.body(node.body)
        handlers = [self.handler(handler) for handler in node.handlers]
        final = self.body(node.finalbody)
        return ir.Try(number, body, handlers, self.body(node.orelse), final)

    def handler(self, node: ast.ExceptHandler) -> ir.Handler:
        number = self.number(node)
        kind = self.maybe(node.type)
        if node.name is not None:
            self.expressions.scope.bound.add(node.name)
        return ir.Handler(number, kind, node.name, self.body(node.body))

    def with_(self, node: ast.With | ast.AsyncWith) -> ir.Stmt:
        number = self.number(node)
        items: list[ir.WithItem] = []
        for item in node.items:
            at, target = self.number(item), item.optional_vars
            manager = self.expr(item.context_expr)
            items.append(ir.WithItem(at, manager, None if target is None else self.expressions.scope.bind(self.expr(target))))
        return ir.With(number, items, self.body(node.body))

    def match(self, node: ast.Match) -> ir.Stmt:
        number = self.number(node)
        return ir.Match(number, self.expr(node.subject), [self.case(case) for case in node.cases])

    def case(self, node: ast.match_case) -> ir.MatchCase:
        number, pattern = self.number(node), node.pattern
        literal: ir.Const | None = None
        if isinstance(pattern, ast.MatchValue):
            literal = _literal(self.expr(pattern.value))
        elif isinstance(pattern, ast.MatchSingleton):
            literal = ir.Const(self.number(pattern), pattern.value)
        binds = list(dict.fromkeys(_captures(pattern)))
        self.expressions.scope.bound.update(binds)
        guard = self.maybe(node.guard)
        return ir.MatchCase(number, literal, binds, guard, self.body(node.body), _matches_all(pattern))

    # --- definitions --------------------------------------------------------------------------------------------------

    def decorators(self, decorators: Iterable[ast.expr]) -> list[ir.Expr]:
        lowered: list[ir.Expr] = []
        for node in decorators:
            self.number(node)  # libcst has a node for the line
            lowered.append(self.expr(node))
        return lowered

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ir.Function:
        number, name = self.number(node), node.name
        decorators = self.decorators(node.decorator_list)
        params = self.expressions.params(node.args)
        returns = self.maybe(node.returns)
        self.expressions.scope.bound.add(name)
        outer, self.expressions.scope = self.expressions.scope, self.expressions.scope.inner(name, params)
        body = self.body(node.body)
        scope, self.expressions.scope = self.expressions.scope, outer
        is_async = isinstance(node, ast.AsyncFunctionDef)
        return ir.Function(
            number, name, scope.prefix, params, decorators, body, is_async, scope.is_generator, returns, scope.locals
        )  # fmt: skip

    def function_def(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ir.Stmt:
        function = self.function(node)
        return ir.FunctionDef(function.node, function)

    def class_def(self, node: ast.ClassDef) -> ir.Stmt:
        number = self.number(node)
        decorators = self.decorators(node.decorator_list)
        bases = self.expressions.arguments([*node.bases, *node.keywords])  # libcst, too, has keywords apart here
        self.expressions.scope.bound.add(node.name)
        outer, self.expressions.scope = self.expressions.scope, self.expressions.scope.inner(node.name)
        body = self.body(node.body)
        self.expressions.scope = outer
        return ir.ClassDef(number, node.name, bases, decorators, body)


def _literal(value: ir.Expr) -> ir.Const | None:
    """The literal that a ``case`` compares with, a negative number included."""
    if isinstance(value, ir.Unary) and isinstance(value.value, ir.Const):
        amount = value.value.value
        return ir.Const(value.node, -amount) if isinstance(amount, int | float | complex) else None
    return value if isinstance(value, ir.Const) else None


def _captures(pattern: ast.pattern) -> Iterable[str]:
    """The names that a pattern binds, in text order; those of alternatives come once for each."""
    match pattern:
        case ast.MatchAs():
            if pattern.pattern is not None:
                yield from _captures(pattern.pattern)
            if pattern.name is not None:
                yield pattern.name
        case ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchSequence(patterns=patterns) | ast.MatchOr(patterns=patterns):
            for inner in patterns:
                yield from _captures(inner)
        case ast.MatchMapping():
            for inner in pattern.patterns:
                yield from _captures(inner)
            if pattern.rest is not None:
                yield pattern.rest
        case ast.MatchClass():
            for inner in (*pattern.patterns, *pattern.kwd_patterns):
                yield from _captures(inner)


def _matches_all(pattern: ast.pattern) -> bool:
    """Whether a pattern matches every subject: ``_``, a bare name, or one of these as an alternative."""
    if isinstance(pattern, ast.MatchAs):
        return pattern.pattern is None or _matches_all(pattern.pattern)
    return isinstance(pattern, ast.MatchOr) and any(map(_matches_all, pattern.patterns))


_STATEMENTS: Final[dict[type[ast.AST], Callable[[Builder, Any], ir.Stmt]]] = {
    ast.Expr: Builder.expression,
    ast.Assign: Builder.assign,
    ast.AnnAssign: Builder.annotated,
    ast.AugAssign: Builder.augmented,
    ast.Return: Builder.return_,
    ast.Raise: Builder.raise_,
    ast.Break: Builder.break_,
    ast.Continue: Builder.continue_,
    ast.Delete: Builder.delete,
    ast.Assert: Builder.assert_,
    ast.Global: Builder.outside,
    ast.Nonlocal: Builder.outside,
    ast.Import: Builder.import_,
    ast.ImportFrom: Builder.import_from,
    ast.If: Builder.if_,
    ast.For: Builder.for_,
    ast.AsyncFor: Builder.for_,
    ast.While: Builder.while_,
    ast.Try: Builder.try_,
    ast.With: Builder.with_,
    ast.AsyncWith: Builder.with_,
    ast.Match: Builder.match,
    ast.FunctionDef: Builder.function_def,
    ast.AsyncFunctionDef: Builder.function_def,
    ast.ClassDef: Builder.class_def,
}

if hasattr(ast, "TryStar"):  # Python 3.11
    _STATEMENTS[ast.TryStar] = Builder.try_
if hasattr(ast, "TypeAlias"):  # Python 3.12
    _STATEMENTS[ast.TypeAlias] = Builder.type_alias
