"""Syntax tree → flow IR: the expressions.

One method per construct, chosen by the node's type from a table. The nodes are those of ``ast``, whoever made the tree: Python's
parser (``lower.quick``), or ``lower.exact`` of libcst's. A node gets its number when the walk comes to it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.lower import ir
from torchmemlint.lower.ir import Display, Stars
from torchmemlint.lower.scope import Scope


class Source(Protocol):
    """What a front end knows of its tree beyond the nodes: their numbers, and what ``ast`` leaves to the text.

    ``in_string``: the node stands inside an f-string.
    """

    def number(self, node: ast.AST, /) -> int:
        """The next number, which shall stand for the node. A node for which libcst has several nodes is asked for several
        times, the outermost first."""

    def has_parentheses(self, index: ast.Tuple, in_string: bool) -> bool:
        """Whether the tuple in ``a[…]`` has parentheses of its own: ``a[(1, 2)]`` has one index, ``a[1, 2]`` two."""

    def arguments(self, call: ast.Call, in_string: bool) -> Sequence[ast.expr | ast.keyword]:
        """The arguments in the order of the text: a starred one may stand behind a keyword."""

    def ends_in_comma(self, node: ast.Delete) -> bool:
        """Whether the one target of the statement is in truth a tuple of one: ``del a,``."""


class Expressions:
    """One walk: the numbers given so far, and the scope it is in."""

    __slots__ = ("in_string", "number", "scope", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.number = source.number
        self.scope = Scope("")
        self.in_string = False

    def expr(self, node: ast.expr) -> ir.Expr:
        return EXPRESSIONS[type(node)](self, node)

    def maybe(self, node: ast.expr | None) -> ir.Expr | None:
        return None if node is None else EXPRESSIONS[type(node)](self, node)

    def all(self, nodes: Iterable[ast.expr]) -> list[ir.Expr]:
        return [EXPRESSIONS[type(node)](self, node) for node in nodes]

    def name(self, node: ast.Name) -> ir.Expr:
        return ir.Name(self.number(node), node.id)

    def constant(self, node: ast.Constant) -> ir.Expr:
        return ir.Const(self.number(node), node.value)

    def attribute(self, node: ast.Attribute) -> ir.Expr:
        number, value = self.number(node), node.value
        return ir.Attr(number, EXPRESSIONS[type(value)](self, value), node.attr)

    def call(self, node: ast.Call) -> ir.Expr:
        number, func = self.number(node), node.func
        args: Sequence[ast.expr | ast.keyword] = node.args
        if node.keywords:
            starred = ast.Starred in map(type, args)
            args = self.source.arguments(node, self.in_string) if starred else [*args, *node.keywords]
        return ir.Call(number, EXPRESSIONS[type(func)](self, func), self.arguments(args))

    def arguments(self, args: Iterable[ast.expr | ast.keyword]) -> list[ir.Arg]:
        lowered: list[ir.Arg] = []
        for arg in args:
            if type(arg) is ast.keyword:
                lowered.append(ir.Arg(self.expr(arg.value), arg.arg, Stars.NONE if arg.arg else Stars.TWO))
            elif type(arg) is ast.Starred:
                lowered.append(ir.Arg(self.expr(arg.value), None, Stars.ONE))
            else:
                lowered.append(ir.Arg(EXPRESSIONS[type(arg)](self, arg)))
        return lowered

    def subscript(self, node: ast.Subscript) -> ir.Expr:
        number, index = self.number(node), node.slice
        value = self.expr(node.value)
        if type(index) is ast.Tuple and not self.source.has_parentheses(index, self.in_string):
            return ir.Subscript(number, value, self.all(index.elts))
        return ir.Subscript(number, value, [EXPRESSIONS[type(index)](self, index)])

    def slice_(self, node: ast.Slice) -> ir.Expr:
        number = self.number(node)
        return ir.Slice(number, [self.expr(part) for part in (node.lower, node.upper, node.step) if part is not None])

    def binary(self, node: ast.BinOp) -> ir.Expr:
        number, left, right = self.number(node), node.left, node.right
        op = OPERATORS[type(node.op)]
        return ir.Binary(number, op, EXPRESSIONS[type(left)](self, left), EXPRESSIONS[type(right)](self, right))

    def unary(self, node: ast.UnaryOp) -> ir.Expr:
        return ir.Unary(self.number(node), OPERATORS[type(node.op)], self.expr(node.operand))

    def boolean(self, node: ast.BoolOp) -> ir.Expr:
        """libcst's chain nests to the left: the outer operators are met, and numbered, first."""
        op, rest = OPERATORS[type(node.op)], node.values[1:]
        numbers = [self.number(node) for _ in rest]
        lowered = self.expr(node.values[0])
        for number, value in zip(reversed(numbers), rest, strict=True):
            lowered = ir.BoolOp(number, op, lowered, self.expr(value))
        return lowered

    def comparison(self, node: ast.Compare) -> ir.Expr:
        number = self.number(node)
        left = self.expr(node.left)
        return ir.Compare(number, left, [OPERATORS[type(op)] for op in node.ops], self.all(node.comparators))

    def conditional(self, node: ast.IfExp) -> ir.Expr:
        number = self.number(node)
        then, test = self.expr(node.body), self.expr(node.test)
        return ir.IfExp(number, test, then, self.expr(node.orelse))

    def sequence(self, node: ast.List | ast.Tuple | ast.Set) -> ir.Expr:
        return ir.Sequence(self.number(node), _DISPLAYS[type(node)], self.all(node.elts))

    def star(self, node: ast.Starred) -> ir.Expr:
        return ir.Star(self.number(node), self.expr(node.value))

    def dict_(self, node: ast.Dict) -> ir.Expr:
        number = self.number(node)
        pairs = zip(node.keys, node.values, strict=True)
        return ir.DictDisplay(number, [(self.maybe(key), self.expr(value)) for key, value in pairs])

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> ir.Expr:
        number = self.number(node)
        clauses = self.clauses(node.generators)
        return ir.Comprehension(number, _DISPLAYS[type(node)], self.expr(node.elt), None, clauses)

    def dict_comprehension(self, node: ast.DictComp) -> ir.Expr:
        number = self.number(node)
        clauses = self.clauses(node.generators)
        key = self.maybe(node.key)
        return ir.Comprehension(number, Display.DICT, self.expr(node.value), key, clauses)

    def clauses(self, generators: Iterable[ast.comprehension]) -> list[ir.CompClause]:
        """The targets are the comprehension's own: they bind nothing in the scope around it."""
        clauses: list[ir.CompClause] = []
        for clause in generators:
            number = self.number(clause)
            iterable, target = self.expr(clause.iter), self.expr(clause.target)
            clauses.append(ir.CompClause(number, target, iterable, self.all(clause.ifs)))
        return clauses

    def params(self, node: ast.arguments) -> list[ir.Param]:
        positional = [*node.posonlyargs, *node.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(node.defaults)) + list(node.defaults)
        params = [self.param(arg, ParamKind.POSITIONAL, default) for arg, default in zip(positional, defaults, strict=True)]
        if node.vararg is not None:
            params.append(self.param(node.vararg, ParamKind.VAR_POSITIONAL))
        params += [
            self.param(arg, ParamKind.KEYWORD, default) for arg, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)
        ]
        if node.kwarg is not None:
            params.append(self.param(node.kwarg, ParamKind.VAR_KEYWORD))
        return params

    def param(self, node: ast.arg, kind: ParamKind, default: ast.expr | None = None) -> ir.Param:
        return ir.Param(node.arg, self.maybe(node.annotation), self.maybe(default), kind)

    def lambda_(self, node: ast.Lambda) -> ir.Expr:
        number = self.number(node)
        params = self.params(node.args)
        outer, self.scope = self.scope, self.scope.inner("<lambda>", params)
        body = self.expr(node.body)
        scope, self.scope = self.scope, outer
        function = ir.Function(number, "<lambda>", scope.prefix, params, [], [ir.Return(body.node, body)])
        function.is_generator, function.locals = scope.is_generator, scope.locals
        return ir.Lambda(number, function)

    def walrus(self, node: ast.NamedExpr) -> ir.Expr:
        number, target = self.number(node), node.target
        self.scope.bound.add(target.id)
        return ir.Walrus(number, ir.Name(self.number(target), target.id), self.expr(node.value))

    def formatted(self, node: ast.expr) -> ir.Expr:
        """An f-string, or a template string, with its neighbours in an implicit concatenation."""
        number = self.number(node)
        outside, self.in_string = self.in_string, True
        values = [self.expr(value) for value in _replacements(node)]
        self.in_string = outside
        return ir.FormattedString(number, values)

    def await_(self, node: ast.Await) -> ir.Expr:
        return ir.Await(self.number(node), self.expr(node.value))

    def yield_(self, node: ast.Yield) -> ir.Expr:
        self.scope.is_generator = True
        return ir.Yield(self.number(node), self.maybe(node.value))

    def yield_from(self, node: ast.YieldFrom) -> ir.Expr:
        self.scope.is_generator = True
        return ir.Yield(self.number(node), self.expr(node.value), is_from=True)


def _replacements(node: Any) -> Iterator[ast.expr]:
    """The expressions in the braces of an f-string, those of format specifications included, in text order."""
    for part in node.values:
        if type(part) is not ast.Constant:  # FormattedValue, or Interpolation since Python 3.14
            yield part.value
            if part.format_spec is not None:
                yield from _replacements(part.format_spec)


OPERATORS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^", ast.MatMult: "@",
    ast.UAdd: "+", ast.USub: "-", ast.Invert: "~", ast.Not: "not", ast.And: "and", ast.Or: "or",
    ast.Lt: "<", ast.Gt: ">", ast.LtE: "<=", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip

_DISPLAYS: Final[dict[type[ast.AST], Display]] = {
    ast.List: Display.LIST, ast.Tuple: Display.TUPLE, ast.Set: Display.SET,
    ast.ListComp: Display.LIST, ast.SetComp: Display.SET, ast.GeneratorExp: Display.GENERATOR,
}  # fmt: skip

EXPRESSIONS: Final[dict[type[ast.AST], Callable[[Expressions, Any], ir.Expr]]] = {
    ast.Name: Expressions.name,
    ast.Attribute: Expressions.attribute,
    ast.Call: Expressions.call,
    ast.Constant: Expressions.constant,
    ast.JoinedStr: Expressions.formatted,
    ast.Subscript: Expressions.subscript,
    ast.Slice: Expressions.slice_,
    ast.BinOp: Expressions.binary,
    ast.UnaryOp: Expressions.unary,
    ast.BoolOp: Expressions.boolean,
    ast.Compare: Expressions.comparison,
    ast.IfExp: Expressions.conditional,
    ast.List: Expressions.sequence,
    ast.Tuple: Expressions.sequence,
    ast.Set: Expressions.sequence,
    ast.Starred: Expressions.star,
    ast.Dict: Expressions.dict_,
    ast.ListComp: Expressions.comprehension,
    ast.SetComp: Expressions.comprehension,
    ast.GeneratorExp: Expressions.comprehension,
    ast.DictComp: Expressions.dict_comprehension,
    ast.Lambda: Expressions.lambda_,
    ast.NamedExpr: Expressions.walrus,
    ast.Await: Expressions.await_,
    ast.Yield: Expressions.yield_,
    ast.YieldFrom: Expressions.yield_from,
}

if hasattr(ast, "TemplateStr"):  # Python 3.14
    EXPRESSIONS[ast.TemplateStr] = Expressions.formatted
