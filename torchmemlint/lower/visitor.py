"""libcst → flow IR: a direct walk over a candidate region's lossless tree.

Done for the regions that have a finding; ``lower.quick`` makes the same IR for all of them. One method per construct, chosen by the node's type from a table. libcst's own visitors and metadata providers are not used
here: they cost ten to a hundred times this walk. Every libcst node that an IR node stands for gets a number, its parent's
number beside it; spans are found from the numbers when a finding asks (``lower.layout``).
"""

from __future__ import annotations

import ast
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import libcst as cst

from torchmemlint.errors import SourceError
from torchmemlint.index.parse import parse
from torchmemlint.lower import ir
from torchmemlint.lower.layout import Places
from torchmemlint.lower.regions import MODULE, Region
from torchmemlint.lower.scope import LONGEST_CHAIN, TOO_DEEP, TOO_LONG, Scope, case_literal


def read(region: Region) -> tuple[ir.Function, Places]:
    """Parse a region and lower it. Raises ``SourceError`` where libcst cannot read it, or it is nested too deeply.

    The file must have passed ``index.module_facts``, which refuses deep nesting: libcst recurses on the C stack, and a sum of
    10,000 terms ends the process. What is flat to ``ast`` but nested to libcst is refused here.
    """
    walk = _Lowering()
    try:
        _refuse_long_chains(region)
        tree = cst.parse_module(region.text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in the literals that are read
            function = walk.region(tree, region)
    except cst.ParserSyntaxError as error:
        row = region.rows[min(error.raw_line, len(region.rows)) - 1]
        column = error.raw_column + 1 + region.cut_columns.get(row, 0)
        raise SourceError("this source cannot be parsed by libcst; a newer libcst may know its syntax", row, column) from error
    except RecursionError as error:
        raise SourceError(TOO_DEEP, region.first_row) from error
    return function, Places(region, tree, walk.nodes, walk.parents, _STATEMENT_TYPES)


def _refuse_long_chains(region: Region) -> None:
    if region.text.count("and") + region.text.count("or") <= LONGEST_CHAIN:
        return
    for node in ast.walk(parse(region.text)):
        if isinstance(node, ast.BoolOp) and len(node.values) > LONGEST_CHAIN:
            raise SourceError(TOO_LONG, region.rows[node.lineno - 1])


class _Lowering:
    """One walk: the numbers given so far, and the scope it is in."""

    __slots__ = ("nodes", "parents", "scope")

    def __init__(self) -> None:
        self.nodes: list[cst.CSTNode] = []
        self.parents: list[int] = []
        self.scope = Scope("")

    def region(self, tree: cst.Module, region: Region) -> ir.Function:
        top = self.number(tree, -1)
        if region.qualname == MODULE:
            body = self.body(tree.body, top)
            return ir.Function(top, MODULE, MODULE, [], [], body, locals=self.scope.locals)
        self.scope.prefix = region.qualname.rpartition(".")[0]
        statements: Sequence[cst.CSTNode] = tree.body
        if region.indented:
            shell = cst.ensure_type(tree.body[0], cst.If)
            statements = shell.body.body
        return self.function(cst.ensure_type(statements[0], cst.FunctionDef), top)

    def number(self, node: cst.CSTNode, parent: int) -> int:
        self.nodes.append(node)
        self.parents.append(parent)
        return len(self.nodes) - 1

    def expr(self, node: cst.CSTNode, parent: int) -> ir.Expr:
        lowered: ir.Expr = _EXPRESSIONS[type(node)](self, node, parent)
        return lowered

    def maybe(self, node: cst.CSTNode | None, parent: int) -> ir.Expr | None:
        return None if node is None else self.expr(node, parent)

    def body(self, statements: Iterable[cst.CSTNode], parent: int) -> list[ir.Stmt]:
        """``pass`` leaves nothing."""
        lowered: list[ir.Stmt] = []
        for node in statements:
            if isinstance(node, cst.SimpleStatementLine):
                lowered += [_STATEMENTS[type(small)](self, small, parent) for small in node.body if type(small) is not cst.Pass]
            elif type(node) is not cst.Pass:
                lowered.append(_STATEMENTS[type(node)](self, node, parent))
        return lowered

    # --- expressions --------------------------------------------------------------------------------------------------

    def name(self, node: cst.Name, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        word = _ident(node.value)
        return ir.Const(number, _KEYWORDS[word]) if word in _KEYWORDS else ir.Name(number, word)

    def attribute(self, node: cst.Attribute, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        return ir.Attr(number, self.expr(node.value, number), _ident(node.attr.value))

    def integer(self, node: cst.Integer, parent: int) -> ir.Expr:
        return ir.Const(self.number(node, parent), int(node.value, 0))

    def float_(self, node: cst.Float, parent: int) -> ir.Expr:
        return ir.Const(self.number(node, parent), float(node.value))

    def imaginary(self, node: cst.Imaginary, parent: int) -> ir.Expr:
        return ir.Const(self.number(node, parent), complex(node.value))

    def ellipsis(self, node: cst.Ellipsis, parent: int) -> ir.Expr:
        return ir.Const(self.number(node, parent), ...)

    def string(self, node: cst.SimpleString, parent: int) -> ir.Expr:
        return ir.Const(self.number(node, parent), _string_value(node.value))

    def formatted(self, node: cst.FormattedString, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        return ir.FormattedString(number, self.replacements(node.parts, number))

    def replacements(self, parts: Iterable[cst.CSTNode], parent: int) -> list[ir.Expr]:
        """The expressions in the braces of an f-string, those of format specifications included, in text order."""
        values: list[ir.Expr] = []
        for part in parts:
            expression = getattr(part, "expression", None)
            if expression is not None:
                values.append(self.expr(expression, parent))
                values += self.replacements(getattr(part, "format_spec", None) or (), parent)
        return values

    def concatenated(self, node: cst.ConcatenatedString, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        parts: list[cst.CSTNode] = [node.left]
        rest: cst.CSTNode = node.right
        while isinstance(rest, cst.ConcatenatedString):
            parts.append(rest.left)
            rest = rest.right
        parts.append(rest)
        literals = [_string_value(part.value) for part in parts if isinstance(part, cst.SimpleString)]
        if len(literals) < len(parts):
            return ir.FormattedString(
                number, [v for part in parts for v in self.replacements(getattr(part, "parts", ()), number)]
            )
        joined = b"" if isinstance(literals[0], bytes) else ""
        return ir.Const(number, joined.join(literals))  # type: ignore[arg-type]  # str and bytes never mix in one literal

    def call(self, node: cst.Call, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        return ir.Call(number, self.expr(node.func, number), self.arguments(node.args, number))

    def arguments(self, args: Iterable[cst.Arg], parent: int) -> list[ir.Arg]:
        return [ir.Arg(self.expr(a.value, parent), _ident(a.keyword.value) if a.keyword else None, a.star) for a in args]

    def subscript(self, node: cst.Subscript, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        value = self.expr(node.value, number)
        return ir.Subscript(number, value, [self.expr(element.slice, number) for element in node.slice])

    def index(self, node: cst.Index, parent: int) -> ir.Expr:
        if not node.star:
            return self.expr(node.value, parent)
        number = self.number(node, parent)
        return ir.Star(number, self.expr(node.value, number))

    def slice_(self, node: cst.Slice, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        parts = (node.lower, node.upper, node.step)
        return ir.Slice(number, [self.expr(part, number) for part in parts if part is not None])

    def binary(self, node: cst.BinaryOperation, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        op = _OPERATORS[type(node.operator)]
        return ir.Binary(number, op, self.expr(node.left, number), self.expr(node.right, number))

    def unary(self, node: cst.UnaryOperation, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        return ir.Unary(number, _OPERATORS[type(node.operator)], self.expr(node.expression, number))

    def boolean(self, node: cst.BooleanOperation, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        op = _OPERATORS[type(node.operator)]
        return ir.BoolOp(number, op, self.expr(node.left, number), self.expr(node.right, number))

    def comparison(self, node: cst.Comparison, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        left = self.expr(node.left, number)
        ops = [_OPERATORS[type(target.operator)] for target in node.comparisons]
        return ir.Compare(number, left, ops, [self.expr(target.comparator, number) for target in node.comparisons])

    def conditional(self, node: cst.IfExp, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        then, test = self.expr(node.body, number), self.expr(node.test, number)
        return ir.IfExp(number, test, then, self.expr(node.orelse, number))

    def sequence(self, node: cst.List | cst.Tuple | cst.Set, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        items: list[ir.Expr] = []
        for element in node.elements:
            items.append(self.expr(element.value if isinstance(element, cst.Element) else element, number))
        return ir.Sequence(number, _DISPLAYS[type(node)], items)

    def star(self, node: cst.StarredElement, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        return ir.Star(number, self.expr(node.value, number))

    def dict_(self, node: cst.Dict, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        items: list[tuple[ir.Expr | None, ir.Expr]] = []
        for element in node.elements:
            key = self.expr(element.key, number) if isinstance(element, cst.DictElement) else None
            items.append((key, self.expr(element.value, number)))
        return ir.DictDisplay(number, items)

    def comprehension(self, node: cst.ListComp | cst.SetComp | cst.GeneratorExp, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        clauses = self.clauses(node.for_in, number)
        return ir.Comprehension(number, _DISPLAYS[type(node)], self.expr(node.elt, number), None, clauses)

    def dict_comprehension(self, node: cst.DictComp, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        clauses = self.clauses(node.for_in, number)
        key = self.maybe(getattr(node, "key", None), number)  # none in ``{**m for m in maps}``
        return ir.Comprehension(number, "dict", self.expr(node.value, number), key, clauses)

    def clauses(self, first: cst.CompFor, parent: int) -> list[ir.CompClause]:
        """The targets are the comprehension's own: they bind nothing in the scope around it."""
        clauses: list[ir.CompClause] = []
        clause: cst.CompFor | None = first
        while clause is not None:
            number = self.number(clause, parent)
            iterable, target = self.expr(clause.iter, number), self.expr(clause.target, number)
            conditions = [self.expr(condition.test, number) for condition in clause.ifs]
            clauses.append(ir.CompClause(number, target, iterable, conditions, clause.asynchronous is not None))
            clause = clause.inner_for_in
        return clauses

    def lambda_(self, node: cst.Lambda, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        params = self.params(node.params, number)
        outer, self.scope = self.scope, self.scope.inner("<lambda>", params)
        body = self.expr(node.body, number)
        scope, self.scope = self.scope, outer
        function = ir.Function(number, "<lambda>", scope.prefix, params, [], [ir.Return(body.node, body)])
        function.is_generator, function.locals = scope.is_generator, scope.locals
        return ir.Lambda(number, function)

    def walrus(self, node: cst.NamedExpr, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        target = cst.ensure_type(node.target, cst.Name)
        name = _ident(target.value)
        self.scope.bound.add(name)
        return ir.Walrus(number, ir.Name(self.number(target, number), name), self.expr(node.value, number))

    def await_(self, node: cst.Await, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        return ir.Await(number, self.expr(node.expression, number))

    def yield_(self, node: cst.Yield, parent: int) -> ir.Expr:
        number = self.number(node, parent)
        self.scope.is_generator = True
        if isinstance(node.value, cst.From):
            return ir.Yield(number, self.expr(node.value.item, number), is_from=True)
        return ir.Yield(number, self.maybe(node.value, number))

    # --- simple statements --------------------------------------------------------------------------------------------

    def expression(self, node: cst.Expr, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        return ir.ExprStmt(number, self.expr(node.value, number))

    def assign(self, node: cst.Assign, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        value = self.expr(node.value, number)
        return ir.Assign(number, [self.scope.bind(self.expr(t.target, number)) for t in node.targets], value)

    def annotated(self, node: cst.AnnAssign, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        target = self.scope.bind(self.expr(node.target, number))
        annotation = self.expr(node.annotation.annotation, number)
        if node.value is None:
            return ir.Declare(number, target, annotation)
        return ir.Assign(number, [target], self.expr(node.value, number), annotation)

    def augmented(self, node: cst.AugAssign, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        target = self.scope.bind(self.expr(node.target, number))
        return ir.AugAssign(number, target, _OPERATORS[type(node.operator)], self.expr(node.value, number))

    def type_alias(self, node: cst.TypeAlias, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        return ir.Assign(number, [self.scope.bind(self.expr(node.name, number))], self.expr(node.value, number))

    def return_(self, node: cst.Return, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        return ir.Return(number, self.maybe(node.value, number))

    def raise_(self, node: cst.Raise, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        cause = node.cause.item if node.cause else None
        return ir.Raise(number, self.maybe(node.exc, number), self.maybe(cause, number))

    def break_(self, node: cst.Break, parent: int) -> ir.Stmt:
        return ir.Break(self.number(node, parent))

    def continue_(self, node: cst.Continue, parent: int) -> ir.Stmt:
        return ir.Continue(self.number(node, parent))

    def delete(self, node: cst.Del, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        target = self.scope.bind(self.expr(node.target, number))
        return ir.Delete(number, target.items if isinstance(target, ir.Sequence) else [target])

    def assert_(self, node: cst.Assert, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        return ir.Assert(number, self.expr(node.test, number), self.maybe(node.msg, number))

    def outside(self, node: cst.Global | cst.Nonlocal, parent: int) -> ir.Stmt:
        names = [_ident(item.name.value) for item in node.names]
        self.scope.outside.update(names)
        return ir.Scope(self.number(node, parent), "global" if isinstance(node, cst.Global) else "nonlocal", names)

    def import_(self, node: cst.Import, parent: int) -> ir.Stmt:
        bindings: list[tuple[str, str]] = []
        for alias in node.names:
            dotted = _dotted(alias.name)
            first = dotted.partition(".")[0]
            bindings.append((_alias(alias), dotted) if alias.asname else (first, first))
        self.scope.bound.update(local for local, _ in bindings)
        return ir.ImportStmt(self.number(node, parent), bindings)

    def import_from(self, node: cst.ImportFrom, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        module = "." * len(node.relative) + (_dotted(node.module) if node.module else "")
        if isinstance(node.names, cst.ImportStar):
            return ir.ImportStmt(number, [("*" + module, module)])
        prefix = module + "." if node.module else module
        bindings = [(_alias(alias), prefix + _dotted(alias.name)) for alias in node.names]
        self.scope.bound.update(local for local, _ in bindings)
        return ir.ImportStmt(number, bindings)

    # --- compound statements ------------------------------------------------------------------------------------------

    def orelse(self, node: cst.If | cst.Else | None, parent: int) -> list[ir.Stmt]:
        if node is None:
            return []
        return self.body(node.body.body, parent) if isinstance(node, cst.Else) else [self.if_(node, parent)]

    def if_(self, node: cst.If, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        test = self.expr(node.test, number)
        return ir.If(number, test, self.body(node.body.body, number), self.orelse(node.orelse, number))

    def for_(self, node: cst.For, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        iterable, target = self.expr(node.iter, number), self.scope.bind(self.expr(node.target, number))
        body, orelse = self.body(node.body.body, number), self.orelse(node.orelse, number)
        return ir.For(number, target, iterable, body, orelse, node.asynchronous is not None)

    def while_(self, node: cst.While, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        test = self.expr(node.test, number)
        return ir.While(number, test, self.body(node.body.body, number), self.orelse(node.orelse, number))

    def try_(self, node: cst.Try | cst.TryStar, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        body = self.body(node.body.body, number)
        handlers = [self.handler(handler, number) for handler in node.handlers]
        final = self.body(node.finalbody.body.body, number) if node.finalbody else []
        return ir.Try(number, body, handlers, self.orelse(node.orelse, number), final)

    def handler(self, node: cst.ExceptHandler | cst.ExceptStarHandler, parent: int) -> ir.Handler:
        number = self.number(node, parent)
        kind = self.maybe(node.type, number)
        name = _ident(cst.ensure_type(node.name.name, cst.Name).value) if node.name else None
        if name is not None:
            self.scope.bound.add(name)
        return ir.Handler(number, kind, name, self.body(node.body.body, number), isinstance(node, cst.ExceptStarHandler))

    def with_(self, node: cst.With, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        items: list[ir.WithItem] = []
        for item in node.items:
            at = self.number(item, number)
            manager = self.expr(item.item, at)
            items.append(ir.WithItem(at, manager, self.scope.bind(self.expr(item.asname.name, at)) if item.asname else None))
        return ir.With(number, items, self.body(node.body.body, number), node.asynchronous is not None)

    def match(self, node: cst.Match, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        return ir.Match(number, self.expr(node.subject, number), [self.case(case, number) for case in node.cases])

    def case(self, node: cst.MatchCase, parent: int) -> ir.MatchCase:
        number = self.number(node, parent)
        literal: ir.Const | None = None
        if isinstance(node.pattern, cst.MatchValue | cst.MatchSingleton):
            literal = case_literal(self.expr(node.pattern.value, number))
        binds = list(dict.fromkeys(_captures(node.pattern)))
        self.scope.bound.update(binds)
        guard = self.maybe(node.guard, number)
        return ir.MatchCase(number, literal, binds, guard, self.body(node.body.body, number), _matches_all(node.pattern))

    # --- definitions --------------------------------------------------------------------------------------------------

    def params(self, node: cst.Parameters, parent: int) -> list[ir.Param]:
        params = [self.param(p, "positional", parent) for p in (*node.posonly_params, *node.params)]
        if isinstance(node.star_arg, cst.Param):
            params.append(self.param(node.star_arg, "*", parent))
        params += [self.param(p, "keyword", parent) for p in node.kwonly_params]
        if node.star_kwarg is not None:
            params.append(self.param(node.star_kwarg, "**", parent))
        return params

    def param(self, node: cst.Param, kind: str, parent: int) -> ir.Param:
        annotation = self.expr(node.annotation.annotation, parent) if node.annotation else None
        return ir.Param(_ident(node.name.value), annotation, self.maybe(node.default, parent), kind)

    def decorators(self, decorators: Iterable[cst.Decorator], parent: int) -> list[ir.Expr]:
        return [self.expr(node.decorator, self.number(node, parent)) for node in decorators]

    def function(self, node: cst.FunctionDef, parent: int) -> ir.Function:
        number = self.number(node, parent)
        name = _ident(node.name.value)
        decorators = self.decorators(node.decorators, number)
        params = self.params(node.params, number)
        returns = self.expr(node.returns.annotation, number) if node.returns else None
        self.scope.bound.add(name)
        outer, self.scope = self.scope, self.scope.inner(name, params)
        body = self.body(node.body.body, number)
        scope, self.scope = self.scope, outer
        is_async = node.asynchronous is not None
        return ir.Function(
            number, name, scope.prefix, params, decorators, body, is_async, scope.is_generator, returns, scope.locals
        )  # fmt: skip

    def function_def(self, node: cst.FunctionDef, parent: int) -> ir.Stmt:
        function = self.function(node, parent)
        return ir.FunctionDef(function.node, function)

    def class_def(self, node: cst.ClassDef, parent: int) -> ir.Stmt:
        number = self.number(node, parent)
        name = _ident(node.name.value)
        decorators = self.decorators(node.decorators, number)
        bases = self.arguments((*node.bases, *node.keywords), number)
        self.scope.bound.add(name)
        outer, self.scope = self.scope, self.scope.inner(name)
        body = self.body(node.body.body, number)
        self.scope = outer
        return ir.ClassDef(number, name, bases, decorators, body)


def _ident(text: str) -> str:
    """A name as Python knows it, which is not always as it is written (PEP 3131)."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _dotted(node: cst.CSTNode) -> str:
    """The text of a module's name."""
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{_ident(node.attr.value)}"
    return _ident(cst.ensure_type(node, cst.Name).value)


def _alias(alias: cst.ImportAlias) -> str:
    """The name that an import binds."""
    return _dotted(alias.asname.name if alias.asname else alias.name)


def _string_value(text: str) -> str | bytes:
    """The value of one string literal without replacement fields, given as it is written."""
    quote = min(at for at in (text.find('"'), text.find("'")) if at >= 0)
    prefix = text[:quote].lower()
    if "b" not in prefix and ("\\" not in text or "r" in prefix):
        width = 3 if text[quote : quote + 3] in ('"""', "'''") and len(text) >= quote + 6 else 1
        return text[quote + width : -width]
    value = ast.literal_eval(text)
    assert isinstance(value, str | bytes)
    return value


def _captures(pattern: cst.CSTNode) -> Iterable[str]:
    """The names that a pattern binds, in text order; those of alternatives come once for each."""
    if isinstance(pattern, cst.MatchAs | cst.MatchStar):
        if isinstance(pattern, cst.MatchAs) and pattern.pattern is not None:
            yield from _captures(pattern.pattern)
        if pattern.name is not None:
            yield _ident(pattern.name.value)
    elif isinstance(pattern, cst.MatchSequence):
        for element in pattern.patterns:
            yield from _captures(element if isinstance(element, cst.MatchStar) else element.value)
    elif isinstance(pattern, cst.MatchOr):
        for alternative in pattern.patterns:
            yield from _captures(alternative.pattern)
    elif isinstance(pattern, cst.MatchMapping):
        for item in pattern.elements:
            yield from _captures(item.pattern)
        if pattern.rest is not None:
            yield _ident(pattern.rest.value)
    elif isinstance(pattern, cst.MatchClass):
        for positional in pattern.patterns:
            yield from _captures(positional.value)
        for keyword in pattern.kwds:
            yield from _captures(keyword.pattern)


def _matches_all(pattern: cst.MatchPattern) -> bool:
    """Whether a pattern matches every subject: ``_``, a bare name, or one of these as an alternative."""
    if isinstance(pattern, cst.MatchAs):
        return pattern.pattern is None or _matches_all(pattern.pattern)
    return isinstance(pattern, cst.MatchOr) and any(_matches_all(element.pattern) for element in pattern.patterns)


_KEYWORDS: Final[dict[str, object]] = {"None": None, "True": True, "False": False}

_OPERATORS: Final[dict[type[cst.CSTNode], str]] = {
    cst.Add: "+", cst.Subtract: "-", cst.Multiply: "*", cst.Divide: "/", cst.FloorDivide: "//", cst.Modulo: "%",
    cst.Power: "**", cst.LeftShift: "<<", cst.RightShift: ">>", cst.BitOr: "|", cst.BitAnd: "&", cst.BitXor: "^",
    cst.MatrixMultiply: "@",
    cst.AddAssign: "+", cst.SubtractAssign: "-", cst.MultiplyAssign: "*", cst.DivideAssign: "/",
    cst.FloorDivideAssign: "//", cst.ModuloAssign: "%", cst.PowerAssign: "**", cst.LeftShiftAssign: "<<",
    cst.RightShiftAssign: ">>", cst.BitOrAssign: "|", cst.BitAndAssign: "&", cst.BitXorAssign: "^",
    cst.MatrixMultiplyAssign: "@",
    cst.Plus: "+", cst.Minus: "-", cst.BitInvert: "~", cst.Not: "not", cst.And: "and", cst.Or: "or",
    cst.LessThan: "<", cst.GreaterThan: ">", cst.LessThanEqual: "<=", cst.GreaterThanEqual: ">=", cst.Equal: "==",
    cst.NotEqual: "!=", cst.In: "in", cst.NotIn: "not in", cst.Is: "is", cst.IsNot: "is not",
}  # fmt: skip

_DISPLAYS: Final[dict[type[cst.CSTNode], str]] = {
    cst.List: "list", cst.Tuple: "tuple", cst.Set: "set",
    cst.ListComp: "list", cst.SetComp: "set", cst.GeneratorExp: "generator",
}  # fmt: skip

_EXPRESSIONS: Final[dict[type[cst.CSTNode], Callable[[_Lowering, Any, int], ir.Expr]]] = {
    cst.Name: _Lowering.name,
    cst.Attribute: _Lowering.attribute,
    cst.Call: _Lowering.call,
    cst.Integer: _Lowering.integer,
    cst.Float: _Lowering.float_,
    cst.Imaginary: _Lowering.imaginary,
    cst.Ellipsis: _Lowering.ellipsis,
    cst.SimpleString: _Lowering.string,
    cst.FormattedString: _Lowering.formatted,
    cst.ConcatenatedString: _Lowering.concatenated,
    cst.Subscript: _Lowering.subscript,
    cst.Index: _Lowering.index,
    cst.Slice: _Lowering.slice_,
    cst.BinaryOperation: _Lowering.binary,
    cst.UnaryOperation: _Lowering.unary,
    cst.BooleanOperation: _Lowering.boolean,
    cst.Comparison: _Lowering.comparison,
    cst.IfExp: _Lowering.conditional,
    cst.List: _Lowering.sequence,
    cst.Tuple: _Lowering.sequence,
    cst.Set: _Lowering.sequence,
    cst.StarredElement: _Lowering.star,
    cst.Dict: _Lowering.dict_,
    cst.ListComp: _Lowering.comprehension,
    cst.SetComp: _Lowering.comprehension,
    cst.GeneratorExp: _Lowering.comprehension,
    cst.DictComp: _Lowering.dict_comprehension,
    cst.Lambda: _Lowering.lambda_,
    cst.NamedExpr: _Lowering.walrus,
    cst.Await: _Lowering.await_,
    cst.Yield: _Lowering.yield_,
}

_STATEMENTS: Final[dict[type[cst.CSTNode], Callable[[_Lowering, Any, int], ir.Stmt]]] = {
    cst.Expr: _Lowering.expression,
    cst.Assign: _Lowering.assign,
    cst.AnnAssign: _Lowering.annotated,
    cst.AugAssign: _Lowering.augmented,
    cst.TypeAlias: _Lowering.type_alias,
    cst.Return: _Lowering.return_,
    cst.Raise: _Lowering.raise_,
    cst.Break: _Lowering.break_,
    cst.Continue: _Lowering.continue_,
    cst.Del: _Lowering.delete,
    cst.Assert: _Lowering.assert_,
    cst.Global: _Lowering.outside,
    cst.Nonlocal: _Lowering.outside,
    cst.Import: _Lowering.import_,
    cst.ImportFrom: _Lowering.import_from,
    cst.If: _Lowering.if_,
    cst.For: _Lowering.for_,
    cst.While: _Lowering.while_,
    cst.Try: _Lowering.try_,
    cst.TryStar: _Lowering.try_,
    cst.With: _Lowering.with_,
    cst.Match: _Lowering.match,
    cst.FunctionDef: _Lowering.function_def,
    cst.ClassDef: _Lowering.class_def,
}

for _name, _method in (
    ("TemplatedString", _Lowering.formatted),  # libcst 1.8.3
    ("StarredDictComp", _Lowering.dict_comprehension),  # libcst 1.9
):
    if hasattr(cst, _name):
        _EXPRESSIONS[getattr(cst, _name)] = _method
for _name, _small in (("LazyImport", _Lowering.import_), ("LazyImportFrom", _Lowering.import_from)):  # libcst 1.9
    if hasattr(cst, _name):
        _STATEMENTS[getattr(cst, _name)] = _small

_STATEMENT_TYPES: Final[frozenset[type[cst.CSTNode]]] = frozenset(
    {*_STATEMENTS, cst.ExceptHandler, cst.ExceptStarHandler, cst.MatchCase, cst.Decorator}
)
"""Nodes that have a simple statement's text or a header of their own."""
