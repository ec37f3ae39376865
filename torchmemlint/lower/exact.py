"""Lowering from libcst, whose lossless tree has all positions.

Done for the regions that have a finding.

libcst's tree is translated to the words of ``ast`` first, so that one builder makes the IR of both. Most of that is a table: which
class is which, and what its parts are called. libcst's own visitors and metadata providers are not used here: they cost ten to
a hundred times this walk. The builder asks for a number wherever an IR node stands for a node of libcst's; spans are found from
the numbers when a finding asks (``lower.layout``).
"""

from __future__ import annotations

import ast
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import libcst as cst

from torchmemlint.errors import SourceError
from torchmemlint.lower import ir
from torchmemlint.lower.builder import Builder
from torchmemlint.lower.layout import TreePlaces
from torchmemlint.lower.limits import TOO_DEEP, refuse_heavy, refuse_long_chains
from torchmemlint.lower.regions import Region, with_plain_margins


def read(region: Region) -> tuple[ir.Function, TreePlaces]:
    """Parse a region and lower it. Raises ``SourceError`` where libcst cannot read it, or it is nested too deeply or too large.

    Python's own parser must have read the region, and ``index.module_facts`` the file: it refuses deep nesting. libcst recurses
    on the C stack, and a sum of 10,000 terms ends the process. What is flat to ``ast`` but nested to libcst is refused here.
    """
    try:
        refuse_long_chains(region)
        refuse_heavy(region)
        tree, region = _parse(region)
        source = _Translation(tree)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in the literals that are read
            module: ast.Module = source.part(tree)
        function = Builder(source).region(module, region)
    except cst.ParserSyntaxError as error:
        row = region.rows[min(error.raw_line, len(region.rows)) - 1]
        column = error.raw_column + 1 + region.cut_columns.get(row, 0)
        raise SourceError("this source cannot be parsed by libcst; a newer libcst may know its syntax", row, column) from error
    except RecursionError as error:
        raise SourceError(TOO_DEEP, region.first_row) from error
    return function, TreePlaces(region, tree, source.nodes, source.enclosing)


def _parse(region: Region) -> tuple[cst.Module, Region]:
    """libcst's tree, and the region that it is of. Raises ``libcst.ParserSyntaxError``."""
    try:
        return cst.parse_module(region.text), region
    except cst.ParserSyntaxError:
        plain = with_plain_margins(region)
        if plain is None:
            raise
        return cst.parse_module(plain.text), plain


class _Translation:
    """The ``Source`` behind libcst's tree: nodes of ``ast``, and what each of them stands for there."""

    __slots__ = ("_arguments", "_origins", "_statement", "_statements", "enclosing", "nodes")

    def __init__(self, tree: cst.Module) -> None:
        self.nodes: list[cst.CSTNode] = []
        """libcst's nodes by number."""
        self.enclosing: list[int] = []
        """By number, that of the statement, handler, case or decorator around a node."""
        self._statement: cst.CSTNode = tree
        self._statements: dict[int, int] = {}
        self._origins: dict[ast.AST, list[tuple[cst.CSTNode, cst.CSTNode]]] = {}
        """libcst's nodes for one of ``ast``, outermost first, each with the statement around it."""
        self._arguments: dict[ast.Call, list[ast.expr | ast.keyword]] = {}

    # --- what the builder asks ----------------------------------------------------------------------------------------

    def number(self, node: ast.AST, /) -> int:
        origin, statement = self._origins[node].pop(0)
        number = len(self.nodes)
        if origin is statement:
            self._statements[id(origin)] = number
        self.nodes.append(origin)
        self.enclosing.append(self._statements[id(statement)])
        return number

    def has_parentheses(self, index: ast.Tuple, in_string: bool) -> bool:
        return index in self._origins

    def arguments(self, call: ast.Call, in_string: bool) -> Sequence[ast.expr | ast.keyword]:
        return self._arguments[call]

    def ends_in_comma(self, node: ast.Delete) -> bool:
        return False  # the tuple is there itself

    # --- the translation ----------------------------------------------------------------------------------------------

    def part(self, value: Any) -> Any:
        """A part of one of libcst's nodes as it would be a part of the node in ``ast``: a node, several, or None."""
        kind = type(value)
        while kind in _WRAPPERS:
            value = getattr(value, _WRAPPERS[kind])
            kind = type(value)
        if kind is list or kind is tuple:
            made: list[Any] = []
            for one in value:
                inside = self.part(one)
                made += inside if type(inside) is list else [inside]
            return made
        if value is None or kind is cst.MaybeSentinel:
            return None
        around = self._statement
        if kind in _STATEMENTS:
            self._statement = value
        node = _SPECIAL[kind](self, value) if kind in _SPECIAL else self.plain(value)
        if node not in self._origins:
            self._origins[node] = [(value, self._statement)]
        self._statement = around
        return node

    def plain(self, node: cst.CSTNode) -> ast.AST:
        kind, *names = _PLAIN[type(node)]
        if getattr(node, "asynchronous", None):
            kind = _ASYNCHRONOUS[kind]
        fields: list[Any] = []
        for name in names:
            value = getattr(node, name.lstrip("=*")) if name else None
            if name[:1] == "=":
                fields.append(_word(value))
                continue
            part = self.part(value)
            fields.append(part if name[:1] != "*" or type(part) is list else [] if part is None else [part])
        made: ast.AST = kind(*fields)
        return made

    def name(self, node: cst.Name) -> ast.expr:
        word = _word(node)
        return ast.Constant(_KEYWORDS[word]) if word in _KEYWORDS else ast.Name(word)

    def string(self, node: cst.SimpleString) -> ast.expr:
        return ast.Constant(_string_value(node.value))

    def formatted(self, node: Any) -> ast.expr:
        return self.joined(node.parts)

    def joined(self, parts: Iterable[Any]) -> ast.JoinedStr:
        fields = [part for part in parts if hasattr(part, "expression")]
        return ast.JoinedStr(
            [ast.FormattedValue(self.part(one.expression), -1, self.joined(one.format_spec or ())) for one in fields]
        )

    def concatenated(self, node: cst.ConcatenatedString) -> ast.expr:
        parts = list(_concatenated(node))
        literals = [_string_value(part.value) for part in parts if isinstance(part, cst.SimpleString)]
        if len(literals) < len(parts):
            return self.joined([inside for part in parts for inside in getattr(part, "parts", ())])
        joined = b"" if isinstance(literals[0], bytes) else ""
        return ast.Constant(joined.join(literals))  # type: ignore[arg-type]  # str and bytes never mix in one literal

    def call(self, node: cst.Call) -> ast.expr:
        made = ast.Call(self.part(node.func), [], [])
        in_order = self._arguments[made] = []
        for arg in node.args:
            one = self.argument(arg)
            in_order.append(one)
            if isinstance(one, ast.keyword):
                made.keywords.append(one)
            else:
                made.args.append(one)
        return made

    def argument(self, node: cst.Arg) -> ast.expr | ast.keyword:
        value: ast.expr = self.part(node.value)
        if node.keyword is not None or node.star == "**":
            return ast.keyword(_word(node.keyword), value)
        return ast.Starred(value) if node.star else value

    def subscript(self, node: cst.Subscript) -> ast.expr:
        """The index is a tuple that is no node of libcst's."""
        return ast.Subscript(self.part(node.value), ast.Tuple(self.part(node.slice)))

    def index(self, node: cst.Index) -> ast.expr:
        value: ast.expr = self.part(node.value)
        return ast.Starred(value) if node.star else value

    def boolean(self, node: cst.BooleanOperation) -> ast.expr:
        """A chain nests to the left, as deep as it is long."""
        chain: list[tuple[cst.CSTNode, cst.CSTNode]] = []
        rest: list[ast.expr] = []
        first: cst.BaseExpression = node
        while isinstance(first, cst.BooleanOperation) and type(first.operator) is type(node.operator):
            chain.append((first, self._statement))
            rest.append(self.part(first.right))
            first = first.left
        made = ast.BoolOp(self.part(node.operator), [self.part(first), *reversed(rest)])
        self._origins[made] = chain
        return made

    def comparison(self, node: cst.Comparison) -> ast.expr:
        ops = [self.part(target.operator) for target in node.comparisons]
        return ast.Compare(self.part(node.left), ops, [self.part(target.comparator) for target in node.comparisons])

    def dict_(self, node: cst.Dict) -> ast.expr:
        keys = [self.part(getattr(element, "key", None)) for element in node.elements]
        return ast.Dict(keys, [self.part(element.value) for element in node.elements])

    def comprehension(self, node: cst.ListComp | cst.SetComp | cst.GeneratorExp) -> ast.expr:
        return _COMPREHENSIONS[type(node)](self.part(node.elt), self.clauses(node.for_in))

    def dict_comprehension(self, node: Any) -> ast.expr:
        key = self.part(getattr(node, "key", None))  # none in ``{**m for m in maps}``
        return ast.DictComp(key, self.part(node.value), self.clauses(node.for_in))

    def clauses(self, first: cst.CompFor) -> list[ast.comprehension]:
        made: list[ast.comprehension] = []
        clause: cst.CompFor | None = first
        while clause is not None:
            made.append(self.part(clause))
            clause = clause.inner_for_in
        return made

    def clause(self, node: cst.CompFor) -> ast.AST:
        return ast.comprehension(self.part(node.target), self.part(node.iter), self.part(node.ifs), 0)  # async or not

    def parameters(self, node: cst.Parameters) -> ast.AST:
        positional = (*node.posonly_params, *node.params)
        return ast.arguments(
            self.part(node.posonly_params),
            self.part(node.params),
            self.part(node.star_arg) if isinstance(node.star_arg, cst.Param) else None,
            self.part(node.kwonly_params),
            [self.part(param.default) for param in node.kwonly_params],
            self.part(node.star_kwarg),
            [self.part(param.default) for param in positional if param.default is not None],
        )

    def yield_(self, node: cst.Yield) -> ast.expr:
        return (ast.YieldFrom if isinstance(node.value, cst.From) else ast.Yield)(self.part(node.value))

    def decorator(self, node: cst.Decorator) -> ast.AST:
        made: ast.AST = self.part(node.decorator)
        self._origins[made].insert(0, (node, node))
        return made

    def outside(self, node: cst.Global | cst.Nonlocal) -> ast.stmt:
        return (ast.Global if isinstance(node, cst.Global) else ast.Nonlocal)([_word(item.name) for item in node.names])

    def import_(self, node: cst.Import) -> ast.stmt:
        return ast.Import([_alias(alias) for alias in node.names])

    def import_from(self, node: cst.ImportFrom) -> ast.stmt:
        names = [ast.alias("*")] if isinstance(node.names, cst.ImportStar) else [_alias(alias) for alias in node.names]
        return ast.ImportFrom(_dotted(node.module) if node.module else None, names, len(node.relative))

    def singleton(self, node: cst.MatchSingleton) -> ast.pattern:
        return ast.MatchSingleton(_KEYWORDS[_word(node.value)])


def _word(node: Any) -> Any:
    """A name as Python knows it, which is not always as it is written (PEP 3131); None if there is none."""
    if isinstance(node, cst.AsName):
        node = node.name
    if node is None:
        return None
    text = cst.ensure_type(node, cst.Name).value
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _dotted(node: cst.CSTNode) -> str:
    """The text of a module's name."""
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{_word(node.attr)}"
    return str(_word(node))


def _alias(alias: cst.ImportAlias) -> ast.alias:
    return ast.alias(_dotted(alias.name), _word(alias.asname))


def _concatenated(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The strings of an implicit concatenation, which nests to the right."""
    while isinstance(node, cst.ConcatenatedString):
        yield node.left
        node = node.right
    yield node


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


_KEYWORDS: Final[dict[str, None | bool]] = {"None": None, "True": True, "False": False}

_WRAPPERS: Final[dict[type[cst.CSTNode], str]] = {
    cst.IndentedBlock: "body", cst.SimpleStatementSuite: "body", cst.SimpleStatementLine: "body", cst.Else: "body",
    cst.Finally: "body", cst.AssignTarget: "target", cst.Annotation: "annotation", cst.From: "item", cst.AsName: "name",
    cst.Element: "value", cst.SubscriptElement: "slice", cst.CompIf: "test", cst.MatchSequenceElement: "value",
    cst.MatchOrElement: "pattern", cst.MatchMappingElement: "pattern", cst.MatchKeywordElement: "pattern",
}  # fmt: skip
"""Nodes that ``ast`` does not have, and the part of each that stands there instead."""

_ASYNCHRONOUS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.For: ast.AsyncFor, ast.With: ast.AsyncWith, ast.FunctionDef: ast.AsyncFunctionDef,
}  # fmt: skip

_COMPREHENSIONS: Final[dict[type[cst.CSTNode], Callable[..., ast.expr]]] = {
    cst.ListComp: ast.ListComp, cst.SetComp: ast.SetComp, cst.GeneratorExp: ast.GeneratorExp,
}  # fmt: skip

_PLAIN: Final[dict[type[cst.CSTNode], tuple[Any, ...]]] = {
    cst.Module: (ast.Module, "*body", ""),
    # expressions
    cst.Attribute: (ast.Attribute, "value", "=attr"),
    cst.Slice: (ast.Slice, "lower", "upper", "step"),
    cst.BinaryOperation: (ast.BinOp, "left", "operator", "right"),
    cst.UnaryOperation: (ast.UnaryOp, "operator", "expression"),
    cst.IfExp: (ast.IfExp, "test", "body", "orelse"),
    cst.List: (ast.List, "elements"),
    cst.Tuple: (ast.Tuple, "elements"),
    cst.Set: (ast.Set, "elements"),
    cst.StarredElement: (ast.Starred, "value"),
    cst.Lambda: (ast.Lambda, "params", "body"),
    cst.NamedExpr: (ast.NamedExpr, "target", "value"),
    cst.Await: (ast.Await, "expression"),
    cst.Param: (ast.arg, "=name", "annotation"),
    # simple statements
    cst.Expr: (ast.Expr, "value"),
    cst.Assign: (ast.Assign, "targets", "value"),
    cst.AnnAssign: (ast.AnnAssign, "target", "annotation", "value", ""),
    cst.AugAssign: (ast.AugAssign, "target", "operator", "value"),
    cst.TypeAlias: (ast.Assign, "*name", "value"),
    cst.Return: (ast.Return, "value"),
    cst.Raise: (ast.Raise, "exc", "cause"),
    cst.Break: (ast.Break,),
    cst.Continue: (ast.Continue,),
    cst.Pass: (ast.Pass,),
    cst.Del: (ast.Delete, "*target"),
    cst.Assert: (ast.Assert, "test", "msg"),
    # compound statements
    cst.If: (ast.If, "test", "body", "*orelse"),
    cst.For: (ast.For, "target", "iter", "body", "*orelse"),
    cst.While: (ast.While, "test", "body", "*orelse"),
    cst.Try: (ast.Try, "body", "handlers", "*orelse", "*finalbody"),
    cst.ExceptHandler: (ast.ExceptHandler, "type", "=name", "body"),
    cst.ExceptStarHandler: (ast.ExceptHandler, "type", "=name", "body"),
    cst.With: (ast.With, "items", "body"),
    cst.WithItem: (ast.withitem, "item", "asname"),
    cst.FunctionDef: (ast.FunctionDef, "=name", "params", "body", "decorators", "returns"),
    cst.ClassDef: (ast.ClassDef, "=name", "bases", "keywords", "body", "decorators"),
    # patterns: only what they bind and whether they match all is asked of them
    cst.Match: (ast.Match, "subject", "cases"),
    cst.MatchCase: (ast.match_case, "pattern", "guard", "body"),
    cst.MatchValue: (ast.MatchValue, "value"),
    cst.MatchList: (ast.MatchSequence, "patterns"),
    cst.MatchTuple: (ast.MatchSequence, "patterns"),
    cst.MatchStar: (ast.MatchStar, "=name"),
    cst.MatchMapping: (ast.MatchMapping, "", "elements", "=rest"),
    cst.MatchClass: (ast.MatchClass, "", "patterns", "", "kwds"),
    cst.MatchAs: (ast.MatchAs, "pattern", "=name"),
    cst.MatchOr: (ast.MatchOr, "patterns"),
}
"""For each of libcst's classes that of ``ast``, and the parts that become its fields, in the order of the fields: ``=`` marks a
name that is kept as a string, ``*`` what is a list there whatever it is here, "" what the builder does not ask for."""

_OPERATORS: Final[dict[type[cst.CSTNode], type[ast.AST]]] = {
    cst.Add: ast.Add, cst.Subtract: ast.Sub, cst.Multiply: ast.Mult, cst.Divide: ast.Div, cst.FloorDivide: ast.FloorDiv,
    cst.Modulo: ast.Mod, cst.Power: ast.Pow, cst.LeftShift: ast.LShift, cst.RightShift: ast.RShift, cst.BitOr: ast.BitOr,
    cst.BitAnd: ast.BitAnd, cst.BitXor: ast.BitXor, cst.MatrixMultiply: ast.MatMult,
    cst.AddAssign: ast.Add, cst.SubtractAssign: ast.Sub, cst.MultiplyAssign: ast.Mult, cst.DivideAssign: ast.Div,
    cst.FloorDivideAssign: ast.FloorDiv, cst.ModuloAssign: ast.Mod, cst.PowerAssign: ast.Pow,
    cst.LeftShiftAssign: ast.LShift, cst.RightShiftAssign: ast.RShift, cst.BitOrAssign: ast.BitOr,
    cst.BitAndAssign: ast.BitAnd, cst.BitXorAssign: ast.BitXor, cst.MatrixMultiplyAssign: ast.MatMult,
    cst.Plus: ast.UAdd, cst.Minus: ast.USub, cst.BitInvert: ast.Invert, cst.Not: ast.Not, cst.And: ast.And, cst.Or: ast.Or,
    cst.LessThan: ast.Lt, cst.GreaterThan: ast.Gt, cst.LessThanEqual: ast.LtE, cst.GreaterThanEqual: ast.GtE,
    cst.Equal: ast.Eq, cst.NotEqual: ast.NotEq, cst.In: ast.In, cst.NotIn: ast.NotIn, cst.Is: ast.Is, cst.IsNot: ast.IsNot,
}  # fmt: skip
_PLAIN.update({operator: (kind,) for operator, kind in _OPERATORS.items()})
if hasattr(ast, "TryStar"):  # Python 3.11
    _PLAIN[cst.TryStar] = (ast.TryStar, "body", "handlers", "*orelse", "*finalbody")

_SPECIAL: Final[dict[type[cst.CSTNode], Callable[[_Translation, Any], ast.AST]]] = {
    cst.Name: _Translation.name,
    cst.Integer: lambda _, node: ast.Constant(int(node.value, 0)),
    cst.Float: lambda _, node: ast.Constant(float(node.value)),
    cst.Imaginary: lambda _, node: ast.Constant(complex(node.value)),
    cst.Ellipsis: lambda _, node: ast.Constant(...),
    cst.SimpleString: _Translation.string,
    cst.FormattedString: _Translation.formatted,
    cst.ConcatenatedString: _Translation.concatenated,
    cst.Call: _Translation.call,
    cst.Arg: _Translation.argument,
    cst.Subscript: _Translation.subscript,
    cst.Index: _Translation.index,
    cst.BooleanOperation: _Translation.boolean,
    cst.Comparison: _Translation.comparison,
    cst.Dict: _Translation.dict_,
    cst.ListComp: _Translation.comprehension,
    cst.SetComp: _Translation.comprehension,
    cst.GeneratorExp: _Translation.comprehension,
    cst.DictComp: _Translation.dict_comprehension,
    cst.CompFor: _Translation.clause,
    cst.Parameters: _Translation.parameters,
    cst.Yield: _Translation.yield_,
    cst.Decorator: _Translation.decorator,
    cst.Global: _Translation.outside,
    cst.Nonlocal: _Translation.outside,
    cst.Import: _Translation.import_,
    cst.ImportFrom: _Translation.import_from,
    cst.MatchSingleton: _Translation.singleton,
}

for _name, _method in (
    ("TemplatedString", _Translation.formatted),  # libcst 1.8.3
    ("StarredDictComp", _Translation.dict_comprehension),  # libcst 1.9
    ("LazyImport", _Translation.import_),  # libcst 1.9
    ("LazyImportFrom", _Translation.import_from),  # libcst 1.9
):
    if hasattr(cst, _name):
        _SPECIAL[getattr(cst, _name)] = _method

_STATEMENTS: Final = frozenset(
    kind
    for kind in (*_PLAIN, *_SPECIAL)
    if issubclass(kind, cst.BaseSmallStatement | cst.BaseCompoundStatement)
    or kind in (cst.ExceptHandler, cst.ExceptStarHandler, cst.MatchCase, cst.Decorator)
)
"""Nodes that have a simple statement's text or a header of their own."""
