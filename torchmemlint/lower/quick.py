"""``ast`` → flow IR: the quick way, for every candidate region.

Makes what ``lower.visitor`` makes of libcst's tree, at a tenth of the cost, with the same numbers: a node gets its number when
the walk comes to it, and both walk in the same order. So a finding's number leads to libcst's node, once it is read
(``lowered.Lowered``). Where ``ast`` leaves open what the source says, libcst lowers the region from the start.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, Final

from torchmemlint.errors import SourceError
from torchmemlint.index.parse import parse
from torchmemlint.lower import ir
from torchmemlint.lower.lowered import Lowered, from_libcst
from torchmemlint.lower.regions import MODULE, Region
from torchmemlint.lower.scope import LONGEST_CHAIN, TOO_DEEP, TOO_LONG, Scope, case_literal


class _Open(Exception):
    """``ast`` does not tell two sources apart that libcst does."""


def lower(region: Region) -> Lowered:
    """Lower a region. Raises ``SourceError`` where it cannot be parsed, or is nested too deeply."""
    try:
        function = _Lowering(region).region(parse(region.text))
    except _Open:
        return from_libcst(region)
    except RecursionError as error:
        raise SourceError(TOO_DEEP, region.first_row) from error
    return Lowered(region, {function.qualname: function})


class _Lowering:
    """One walk: the numbers given so far, and the scope it is in."""

    __slots__ = ("_lines", "_region", "in_string", "number", "scope")

    def __init__(self, region: Region) -> None:
        self._region = region
        self._lines: list[bytes] = []
        self.number: Callable[[], int] = count().__next__
        self.scope = Scope("")
        self.in_string = False
        """Inside an f-string, where Python before 3.12 gives nodes odd positions."""

    def region(self, tree: ast.Module) -> ir.Function:
        top = self.number()
        region = self._region
        if region.qualname == MODULE:
            body = self.body(tree.body)
            return ir.Function(top, MODULE, MODULE, [], [], body, locals=self.scope.locals)
        self.scope.prefix = region.qualname.rpartition(".")[0]
        first = tree.body[0]
        if region.indented:
            assert isinstance(first, ast.If)
            first = first.body[0]
        return self.function(first)

    def maybe(self, node: ast.expr | None) -> ir.Expr | None:
        return None if node is None else _EXPRESSIONS[type(node)](self, node)

    def all(self, nodes: Iterable[ast.expr]) -> list[ir.Expr]:
        return [_EXPRESSIONS[type(node)](self, node) for node in nodes]

    def body(self, statements: Iterable[ast.stmt]) -> list[ir.Stmt]:
        """``pass`` leaves nothing."""
        return [_STATEMENTS[type(node)](self, node) for node in statements if type(node) is not ast.Pass]

    def text(self, row: int, start: int, end_row: int, end: int) -> str:
        """The source between two places as ``ast`` counts them: rows of the region from 1, columns in bytes."""
        if not self._lines:
            self._lines = [line.encode() for line in self._region.text.split("\n")]
        if row == end_row:
            return self._lines[row - 1][start:end].decode()
        between = self._lines[row : end_row - 1]
        return b"\n".join([self._lines[row - 1][start:], *between, self._lines[end_row - 1][:end]]).decode()

    # --- expressions --------------------------------------------------------------------------------------------------

    def name(self, node: ast.Name) -> ir.Expr:
        return ir.Name(self.number(), node.id)

    def constant(self, node: ast.Constant) -> ir.Expr:
        return ir.Const(self.number(), node.value)

    def attribute(self, node: ast.Attribute) -> ir.Expr:
        number, value = self.number(), node.value
        return ir.Attr(number, _EXPRESSIONS[type(value)](self, value), node.attr)

    def call(self, node: ast.Call) -> ir.Expr:
        number, func = self.number(), node.func
        return ir.Call(number, _EXPRESSIONS[type(func)](self, func), self.arguments(node.args, node.keywords))

    def arguments(self, args: list[ast.expr], keywords: list[ast.keyword], in_order: bool = True) -> list[ir.Arg]:
        """``ast`` keeps keywords apart; a starred argument may stand behind one."""
        lowered: list[ir.Arg] = []
        if not keywords:
            for arg in args:
                if type(arg) is ast.Starred:
                    lowered.append(ir.Arg(self.expr(arg.value), None, "*"))
                else:
                    lowered.append(ir.Arg(_EXPRESSIONS[type(arg)](self, arg)))
            return lowered
        both: list[ast.expr | ast.keyword] = [*args, *keywords]
        if in_order and any(type(arg) is ast.Starred for arg in args):
            if self.in_string:
                raise _Open
            both.sort(key=lambda one: (one.lineno, one.col_offset))
        for one in both:
            if isinstance(one, ast.keyword):
                lowered.append(ir.Arg(self.expr(one.value), one.arg, "" if one.arg else "**"))
            elif isinstance(one, ast.Starred):
                lowered.append(ir.Arg(self.expr(one.value), None, "*"))
            else:
                lowered.append(ir.Arg(self.expr(one)))
        return lowered

    def expr(self, node: ast.expr) -> ir.Expr:
        return _EXPRESSIONS[type(node)](self, node)

    def subscript(self, node: ast.Subscript) -> ir.Expr:
        number, index = self.number(), node.slice
        value = self.expr(node.value)
        if type(index) is ast.Tuple and not self.is_parenthesized(index):
            return ir.Subscript(number, value, self.all(index.elts))
        return ir.Subscript(number, value, [_EXPRESSIONS[type(index)](self, index)])

    def is_parenthesized(self, node: ast.Tuple) -> bool:
        """Whether the tuple in ``a[…]`` has parentheses of its own: ``a[(1, 2)]`` has one index, ``a[1, 2]`` two."""
        if not node.elts:
            return True
        if any(type(element) is ast.Slice for element in node.elts):
            return False
        if self.in_string:
            raise _Open
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        text = self.text(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        if not (text.startswith("(") and text.endswith(")")):
            return False
        # "(a), (b)" or "(a, b)": whether the first parenthesis is closed by the last.
        depth = 0
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(f"({text})").readline) if t.type == tokenize.OP]
        for token in tokens[1:-2]:
            depth += (token.string in "([{") - (token.string in ")]}")
            if depth == 0:
                return False
        return True

    def slice_(self, node: ast.Slice) -> ir.Expr:
        number = self.number()
        return ir.Slice(number, [self.expr(part) for part in (node.lower, node.upper, node.step) if part is not None])

    def binary(self, node: ast.BinOp) -> ir.Expr:
        number, left, right = self.number(), node.left, node.right
        op = _OPERATORS[type(node.op)]
        return ir.Binary(number, op, _EXPRESSIONS[type(left)](self, left), _EXPRESSIONS[type(right)](self, right))

    def unary(self, node: ast.UnaryOp) -> ir.Expr:
        return ir.Unary(self.number(), _OPERATORS[type(node.op)], self.expr(node.operand))

    def boolean(self, node: ast.BoolOp) -> ir.Expr:
        """libcst's chain nests to the left: the outer operators are met, and numbered, first."""
        op = _OPERATORS[type(node.op)]
        if len(node.values) > LONGEST_CHAIN:
            raise SourceError(TOO_LONG, self._region.rows[node.lineno - 1])
        numbers = [self.number() for _ in node.values[1:]]
        lowered = self.expr(node.values[0])
        for number, value in zip(reversed(numbers), node.values[1:], strict=True):
            lowered = ir.BoolOp(number, op, lowered, self.expr(value))
        return lowered

    def comparison(self, node: ast.Compare) -> ir.Expr:
        number = self.number()
        left = self.expr(node.left)
        return ir.Compare(number, left, [_OPERATORS[type(op)] for op in node.ops], self.all(node.comparators))

    def conditional(self, node: ast.IfExp) -> ir.Expr:
        number = self.number()
        then, test = self.expr(node.body), self.expr(node.test)
        return ir.IfExp(number, test, then, self.expr(node.orelse))

    def sequence(self, node: ast.List | ast.Tuple | ast.Set) -> ir.Expr:
        return ir.Sequence(self.number(), _DISPLAYS[type(node)], self.all(node.elts))

    def star(self, node: ast.Starred) -> ir.Expr:
        return ir.Star(self.number(), self.expr(node.value))

    def dict_(self, node: ast.Dict) -> ir.Expr:
        number = self.number()
        pairs = zip(node.keys, node.values, strict=True)
        return ir.DictDisplay(number, [(self.maybe(key), self.expr(value)) for key, value in pairs])

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> ir.Expr:
        number = self.number()
        clauses = self.clauses(node.generators)
        return ir.Comprehension(number, _DISPLAYS[type(node)], self.expr(node.elt), None, clauses)

    def dict_comprehension(self, node: ast.DictComp) -> ir.Expr:
        number = self.number()
        clauses = self.clauses(node.generators)
        key = self.expr(node.key)
        return ir.Comprehension(number, "dict", self.expr(node.value), key, clauses)

    def clauses(self, generators: Iterable[ast.comprehension]) -> list[ir.CompClause]:
        """The targets are the comprehension's own: they bind nothing in the scope around it."""
        clauses: list[ir.CompClause] = []
        for clause in generators:
            number = self.number()
            iterable, target = self.expr(clause.iter), self.expr(clause.target)
            clauses.append(ir.CompClause(number, target, iterable, self.all(clause.ifs), bool(clause.is_async)))
        return clauses

    def lambda_(self, node: ast.Lambda) -> ir.Expr:
        number = self.number()
        params = self.params(node.args)
        outer, self.scope = self.scope, self.scope.inner("<lambda>", params)
        body = self.expr(node.body)
        scope, self.scope = self.scope, outer
        function = ir.Function(number, "<lambda>", scope.prefix, params, [], [ir.Return(body.node, body)])
        function.is_generator, function.locals = scope.is_generator, scope.locals
        return ir.Lambda(number, function)

    def walrus(self, node: ast.NamedExpr) -> ir.Expr:
        number = self.number()
        self.scope.bound.add(node.target.id)
        return ir.Walrus(number, ir.Name(self.number(), node.target.id), self.expr(node.value))

    def formatted(self, node: ast.expr) -> ir.Expr:
        """An f-string, or a template string, with its neighbours in an implicit concatenation."""
        number = self.number()
        outside, self.in_string = self.in_string, sys.version_info < (3, 12)
        values = [self.expr(value) for value in _replacements(node)]
        self.in_string = outside
        return ir.FormattedString(number, values)

    def await_(self, node: ast.Await) -> ir.Expr:
        return ir.Await(self.number(), self.expr(node.value))

    def yield_(self, node: ast.Yield) -> ir.Expr:
        self.scope.is_generator = True
        return ir.Yield(self.number(), self.maybe(node.value))

    def yield_from(self, node: ast.YieldFrom) -> ir.Expr:
        self.scope.is_generator = True
        return ir.Yield(self.number(), self.expr(node.value), is_from=True)

    # --- simple statements --------------------------------------------------------------------------------------------

    def expression(self, node: ast.Expr) -> ir.Stmt:
        number, value = self.number(), node.value
        return ir.ExprStmt(number, _EXPRESSIONS[type(value)](self, value))

    def assign(self, node: ast.Assign) -> ir.Stmt:
        number = self.number()
        value = self.expr(node.value)
        bind = self.scope.bind
        return ir.Assign(number, [bind(self.expr(target)) for target in node.targets], value)

    def annotated(self, node: ast.AnnAssign) -> ir.Stmt:
        number = self.number()
        target = self.scope.bind(self.expr(node.target))
        annotation = self.expr(node.annotation)
        if node.value is None:
            return ir.Declare(number, target, annotation)
        return ir.Assign(number, [target], self.expr(node.value), annotation)

    def augmented(self, node: ast.AugAssign) -> ir.Stmt:
        number = self.number()
        target = self.scope.bind(self.expr(node.target))
        return ir.AugAssign(number, target, _OPERATORS[type(node.op)], self.expr(node.value))

    def type_alias(self, node: Any) -> ir.Stmt:  # Python 3.12
        number = self.number()
        return ir.Assign(number, [self.scope.bind(self.expr(node.name))], self.expr(node.value))

    def return_(self, node: ast.Return) -> ir.Stmt:
        return ir.Return(self.number(), self.maybe(node.value))

    def raise_(self, node: ast.Raise) -> ir.Stmt:
        return ir.Raise(self.number(), self.maybe(node.exc), self.maybe(node.cause))

    def break_(self, node: ast.Break) -> ir.Stmt:
        return ir.Break(self.number())

    def continue_(self, node: ast.Continue) -> ir.Stmt:
        return ir.Continue(self.number())

    def delete(self, node: ast.Delete) -> ir.Stmt:
        """libcst's statement has one target: ``del a, b`` deletes a tuple."""
        number = self.number()
        if len(node.targets) > 1:
            self.number()
        elif self.ends_in_comma(node):
            raise _Open
        targets = [self.scope.bind(self.expr(target)) for target in node.targets]
        only = targets[0]
        return ir.Delete(number, only.items if len(targets) == 1 and isinstance(only, ir.Sequence) else targets)

    def ends_in_comma(self, node: ast.Delete) -> bool:
        """Whether ``del a,`` may be what stands here: the rest behind the target has a comma (also one in a comment)."""
        last = node.targets[0]
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        return "," in self.text(last.end_lineno, last.end_col_offset, node.end_lineno, node.end_col_offset)

    def assert_(self, node: ast.Assert) -> ir.Stmt:
        return ir.Assert(self.number(), self.expr(node.test), self.maybe(node.msg))

    def outside(self, node: ast.Global | ast.Nonlocal) -> ir.Stmt:
        self.scope.outside.update(node.names)
        return ir.Scope(self.number(), "global" if isinstance(node, ast.Global) else "nonlocal", list(node.names))

    def import_(self, node: ast.Import) -> ir.Stmt:
        bindings: list[tuple[str, str]] = []
        for alias in node.names:
            first = alias.name.partition(".")[0]
            bindings.append((alias.asname, alias.name) if alias.asname else (first, first))
        self.scope.bound.update(local for local, _ in bindings)
        return ir.ImportStmt(self.number(), bindings)

    def import_from(self, node: ast.ImportFrom) -> ir.Stmt:
        number = self.number()
        module = "." * node.level + (node.module or "")
        if node.names[0].name == "*":
            return ir.ImportStmt(number, [("*" + module, module)])
        prefix = module + "." if node.module else module
        bindings = [(alias.asname or alias.name, prefix + alias.name) for alias in node.names]
        self.scope.bound.update(local for local, _ in bindings)
        return ir.ImportStmt(number, bindings)

    # --- compound statements ------------------------------------------------------------------------------------------

    def if_(self, node: ast.If) -> ir.Stmt:
        number, test = self.number(), self.expr(node.test)
        return ir.If(number, test, self.body(node.body), self.body(node.orelse))

    def for_(self, node: ast.For | ast.AsyncFor) -> ir.Stmt:
        number = self.number()
        iterable, target = self.expr(node.iter), self.scope.bind(self.expr(node.target))
        body, orelse = self.body(node.body), self.body(node.orelse)
        return ir.For(number, target, iterable, body, orelse, isinstance(node, ast.AsyncFor))

    def while_(self, node: ast.While) -> ir.Stmt:
        number, test = self.number(), self.expr(node.test)
        return ir.While(number, test, self.body(node.body), self.body(node.orelse))

    def try_(self, node: Any) -> ir.Stmt:  # ast.TryStar since Python 3.11
        number = self.number()
        body = self.body(node.body)
        handlers = [self.handler(handler, type(node) is not ast.Try) for handler in node.handlers]
        final = self.body(node.finalbody)
        return ir.Try(number, body, handlers, self.body(node.orelse), final)

    def handler(self, node: ast.ExceptHandler, is_star: bool) -> ir.Handler:
        number = self.number()
        kind = self.maybe(node.type)
        if node.name is not None:
            self.scope.bound.add(node.name)
        return ir.Handler(number, kind, node.name, self.body(node.body), is_star)

    def with_(self, node: ast.With | ast.AsyncWith) -> ir.Stmt:
        number = self.number()
        items: list[ir.WithItem] = []
        for item in node.items:
            at, target = self.number(), item.optional_vars
            manager = self.expr(item.context_expr)
            items.append(ir.WithItem(at, manager, None if target is None else self.scope.bind(self.expr(target))))
        return ir.With(number, items, self.body(node.body), isinstance(node, ast.AsyncWith))

    def match(self, node: ast.Match) -> ir.Stmt:
        number = self.number()
        return ir.Match(number, self.expr(node.subject), [self.case(case) for case in node.cases])

    def case(self, node: ast.match_case) -> ir.MatchCase:
        number, pattern = self.number(), node.pattern
        literal: ir.Const | None = None
        if isinstance(pattern, ast.MatchValue):
            literal = case_literal(self.expr(pattern.value))
        elif isinstance(pattern, ast.MatchSingleton):
            literal = ir.Const(self.number(), pattern.value)
        binds = list(dict.fromkeys(_captures(pattern)))
        self.scope.bound.update(binds)
        guard = self.maybe(node.guard)
        return ir.MatchCase(number, literal, binds, guard, self.body(node.body), _matches_all(pattern))

    # --- definitions --------------------------------------------------------------------------------------------------

    def params(self, node: ast.arguments) -> list[ir.Param]:
        positional = [*node.posonlyargs, *node.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(node.defaults)) + list(node.defaults)
        params = [self.param(arg, "positional", default) for arg, default in zip(positional, defaults, strict=True)]
        if node.vararg is not None:
            params.append(self.param(node.vararg, "*"))
        params += [self.param(arg, "keyword", default) for arg, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        if node.kwarg is not None:
            params.append(self.param(node.kwarg, "**"))
        return params

    def param(self, node: ast.arg, kind: str, default: ast.expr | None = None) -> ir.Param:
        return ir.Param(node.arg, self.maybe(node.annotation), self.maybe(default), kind)

    def decorators(self, decorators: Iterable[ast.expr]) -> list[ir.Expr]:
        lowered: list[ir.Expr] = []
        for node in decorators:
            self.number()  # libcst has a node for the line
            lowered.append(self.expr(node))
        return lowered

    def function(self, node: ast.stmt) -> ir.Function:
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        number, name = self.number(), node.name
        decorators = self.decorators(node.decorator_list)
        params = self.params(node.args)
        returns = self.maybe(node.returns)
        self.scope.bound.add(name)
        outer, self.scope = self.scope, self.scope.inner(name, params)
        body = self.body(node.body)
        scope, self.scope = self.scope, outer
        is_async = isinstance(node, ast.AsyncFunctionDef)
        return ir.Function(
            number, name, scope.prefix, params, decorators, body, is_async, scope.is_generator, returns, scope.locals
        )  # fmt: skip

    def function_def(self, node: ast.stmt) -> ir.Stmt:
        function = self.function(node)
        return ir.FunctionDef(function.node, function)

    def class_def(self, node: ast.ClassDef) -> ir.Stmt:
        number = self.number()
        decorators = self.decorators(node.decorator_list)
        bases = self.arguments(node.bases, node.keywords, in_order=False)  # libcst, too, has keywords apart here
        self.scope.bound.add(node.name)
        outer, self.scope = self.scope, self.scope.inner(node.name)
        body = self.body(node.body)
        self.scope = outer
        return ir.ClassDef(number, node.name, bases, decorators, body)


def _replacements(node: Any) -> Iterator[ast.expr]:
    """The expressions in the braces of an f-string, those of format specifications included, in text order."""
    for part in node.values:
        if type(part) is not ast.Constant:  # FormattedValue, or Interpolation since Python 3.14
            yield part.value
            if part.format_spec is not None:
                yield from _replacements(part.format_spec)


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


_OPERATORS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^", ast.MatMult: "@",
    ast.UAdd: "+", ast.USub: "-", ast.Invert: "~", ast.Not: "not", ast.And: "and", ast.Or: "or",
    ast.Lt: "<", ast.Gt: ">", ast.LtE: "<=", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip

_DISPLAYS: Final[dict[type[ast.AST], str]] = {
    ast.List: "list", ast.Tuple: "tuple", ast.Set: "set",
    ast.ListComp: "list", ast.SetComp: "set", ast.GeneratorExp: "generator",
}  # fmt: skip

_EXPRESSIONS: Final[dict[type[ast.AST], Callable[[_Lowering, Any], ir.Expr]]] = {
    ast.Name: _Lowering.name,
    ast.Attribute: _Lowering.attribute,
    ast.Call: _Lowering.call,
    ast.Constant: _Lowering.constant,
    ast.JoinedStr: _Lowering.formatted,
    ast.Subscript: _Lowering.subscript,
    ast.Slice: _Lowering.slice_,
    ast.BinOp: _Lowering.binary,
    ast.UnaryOp: _Lowering.unary,
    ast.BoolOp: _Lowering.boolean,
    ast.Compare: _Lowering.comparison,
    ast.IfExp: _Lowering.conditional,
    ast.List: _Lowering.sequence,
    ast.Tuple: _Lowering.sequence,
    ast.Set: _Lowering.sequence,
    ast.Starred: _Lowering.star,
    ast.Dict: _Lowering.dict_,
    ast.ListComp: _Lowering.comprehension,
    ast.SetComp: _Lowering.comprehension,
    ast.GeneratorExp: _Lowering.comprehension,
    ast.DictComp: _Lowering.dict_comprehension,
    ast.Lambda: _Lowering.lambda_,
    ast.NamedExpr: _Lowering.walrus,
    ast.Await: _Lowering.await_,
    ast.Yield: _Lowering.yield_,
    ast.YieldFrom: _Lowering.yield_from,
}

_STATEMENTS: Final[dict[type[ast.AST], Callable[[_Lowering, Any], ir.Stmt]]] = {
    ast.Expr: _Lowering.expression,
    ast.Assign: _Lowering.assign,
    ast.AnnAssign: _Lowering.annotated,
    ast.AugAssign: _Lowering.augmented,
    ast.Return: _Lowering.return_,
    ast.Raise: _Lowering.raise_,
    ast.Break: _Lowering.break_,
    ast.Continue: _Lowering.continue_,
    ast.Delete: _Lowering.delete,
    ast.Assert: _Lowering.assert_,
    ast.Global: _Lowering.outside,
    ast.Nonlocal: _Lowering.outside,
    ast.Import: _Lowering.import_,
    ast.ImportFrom: _Lowering.import_from,
    ast.If: _Lowering.if_,
    ast.For: _Lowering.for_,
    ast.AsyncFor: _Lowering.for_,
    ast.While: _Lowering.while_,
    ast.Try: _Lowering.try_,
    ast.With: _Lowering.with_,
    ast.AsyncWith: _Lowering.with_,
    ast.Match: _Lowering.match,
    ast.FunctionDef: _Lowering.function_def,
    ast.AsyncFunctionDef: _Lowering.function_def,
    ast.ClassDef: _Lowering.class_def,
}

if hasattr(ast, "TryStar"):  # Python 3.11
    _STATEMENTS[ast.TryStar] = _Lowering.try_
if hasattr(ast, "TypeAlias"):  # Python 3.12
    _STATEMENTS[ast.TypeAlias] = _Lowering.type_alias
if hasattr(ast, "TemplateStr"):  # Python 3.14
    _EXPRESSIONS[ast.TemplateStr] = _Lowering.formatted
