"""Regions and their lowering: grammar by examples; spans, names and scopes against CPython's own ``ast`` and ``symtable``."""

import ast
import dataclasses
import importlib.util
import re
import symtable
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from torchmemlint.errors import SourceError
from torchmemlint.findings import Position, Span
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.walk import MAX_DEPTH
from torchmemlint.lower import ir, quick
from torchmemlint.lower.lowered import Lowered
from torchmemlint.lower.lowered import from_libcst as lower
from torchmemlint.lower.regions import MODULE, Region, cut_function, cut_module
from torchmemlint.lower.spans import NotedPlaces

NEWLINE = re.compile(r"\r\n?|\n")


def lower_text(text: str) -> tuple[Lowered, ir.Function]:
    """A whole text as one module region, read by libcst, which knows syntax newer than the running Python's."""
    lowered = lower(Region("x.py", MODULE, text, range(1, text.count("\n") + 2)))
    return lowered, lowered.functions[MODULE]


def show(value: object) -> str:
    """IR as short text: class names, and fields that differ from their defaults; numbers, names and locals left out."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, str):
        return value
    if not dataclasses.is_dataclass(value):
        return repr(value)
    if isinstance(value, ir.Const):
        return repr(value.value)
    if isinstance(value, ir.Name):
        return value.id
    shown = []
    for item in dataclasses.fields(value):
        part = getattr(value, item.name)
        if item.name not in ("node", "locals", "qualname") and part != item.default:
            shown.append(show(part))
    return f"{type(value).__name__}({', '.join(shown)})"


def walk(value: object) -> Iterator[object]:
    if dataclasses.is_dataclass(value):
        yield value
        for item in dataclasses.fields(value):
            yield from walk(getattr(value, item.name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from walk(item)


def only(lowered: Lowered, kind: type[Any], source: str | None = None) -> int:
    """The number of the one node of a kind (whose source is ``source``)."""
    (function,) = lowered.functions.values()
    found: list[int] = [n.node for n in walk(function) if isinstance(n, kind) and source in (None, lowered.source(n.node))]
    assert len(found) == 1, (kind, source, found)
    return found[0]


def place(span: Span) -> tuple[int, int, int, int]:
    return span.start.row, span.start.column, span.end.row, span.end.column


# --- grammar ----------------------------------------------------------------------------------------------------------

GRAMMAR = {
    "total += loss.item()": "AugAssign(total, +, Call(Attr(loss, item), []))",
    "a = b = f(x, *y, k=1, **z)": "Assign([a, b], Call(f, [Arg(x), Arg(y, *), Arg(1, k), Arg(z, **)]))",
    "x: 'int' = 3": "Assign([x], 3, 'int')",
    "self.x: T": "Declare(Attr(self, x), T)",
    "a, *b = c": "Assign([Sequence(tuple, [a, Star(b)])], c)",
    "a[1:, ..., ::2, *i] @= m": "AugAssign(Subscript(a, [Slice([1]), Ellipsis, Slice([2]), Star(i)]), @, m)",
    "a < b is not c not in d": "ExprStmt(Compare(a, [<, is not, not in], [b, c, d]))",
    "not -a ** ~b": "ExprStmt(Unary(not, Unary(-, Binary(**, a, Unary(~, b)))))",
    "a and b or c": "ExprStmt(BoolOp(or, BoolOp(and, a, b), c))",
    "x = a if b else c": "Assign([x], IfExp(b, a, c))",
    "[1, (2,), {3}, {4: 5, **d}, ()]": (
        "ExprStmt(Sequence(list, [1, Sequence(tuple, [2]), Sequence(set, [3]), DictDisplay([[4, 5], [None, d]]),"
        " Sequence(tuple, [])]))"
    ),
    "0x_ff + 1_0.5e1 + 2j + True": "ExprStmt(Binary(+, Binary(+, Binary(+, 255, 105.0), 2j), True))",
    r"""x = 'a' "b\n" r'\n' '''c''' """: "Assign([x], 'ab\\n\\\\nc')",
    "x = b'a' b'b', '', \"\"\"q'\"\"\", u'u'": "Assign([x], Sequence(tuple, [b'ab', '', \"q'\", 'u']))",
    "x = 'a' f'{b!r:>{w}}' f'{f\"{c}\"}'": "Assign([x], FormattedString([b, w, FormattedString([c])]))",
    "[f(x) async for x in y if z if w for v in x]": (
        "ExprStmt(Comprehension(list, Call(f, [Arg(x)]), None, [CompClause(x, y, [z, w]), CompClause(v, x, [])]))"
    ),
    "sum(x for x in y)": "ExprStmt(Call(sum, [Arg(Comprehension(generator, x, None, [CompClause(x, y, [])]))]))",
    "{k: v for k, v in d}": "ExprStmt(Comprehension(dict, v, k, [CompClause(Sequence(tuple, [k, v]), d, [])]))",
    "g = lambda a, /, b=1, *c, d, **e: (yield a)": (
        "Assign([g], Lambda(Function(<lambda>, [Param(a, None, None), Param(b, None, 1), Param(c, None, None, *),"
        " Param(d, None, None, keyword), Param(e, None, None, **)], [],"
        " [Return(Yield(a))], True)))"
    ),
    "if (n := f()): pass\nelif b: x\nelse: y": "If(Walrus(n, Call(f, [])), [], [If(b, [ExprStmt(x)], [ExprStmt(y)])])",
    "for i, (j, k) in it:\n  continue\nelse:\n  break": (
        "For(Sequence(tuple, [i, Sequence(tuple, [j, k])]), it, [Continue()], [Break()])"
    ),
    "while a: b; c;": "While(a, [ExprStmt(b), ExprStmt(c)], [])",
    "try: a\nexcept (B, C) as e: b\nexcept: c\nelse: d\nfinally: f": (
        "Try([ExprStmt(a)], [Handler(Sequence(tuple, [B, C]), e, [ExprStmt(b)]), Handler(None, None, [ExprStmt(c)])],"
        " [ExprStmt(d)], [ExprStmt(f)])"
    ),
    "try: a\nexcept* B: b": "Try([ExprStmt(a)], [Handler(B, None, [ExprStmt(b)])], [], [])",
    "with (a() as b, c): d": "With([WithItem(Call(a, []), b), WithItem(c, None)], [ExprStmt(d)])",
    "raise A from B": "Raise(A, B)",
    "assert a, b": "Assert(a, b)",
    "del (a), b.c, d[0]": "Delete([a, Attr(b, c), Subscript(d, [0])])",
    "global a, b": "OuterNames()",
    "import a.b.c, d.e as f": "ImportStmt([[a, a], [f, d.e]])",
    "from ..m import n as k, o": "ImportStmt([[k, ..m.n], [o, ..m.o]])",
    "from . import x": "ImportStmt([[x, .x]])",
    "from a.b import *": "ImportStmt([[*a.b, a.b]])",
    "type X[T: int] = list[T]": "Assign([X], Subscript(list, [T]))",
    "@d\n@e(1)\nasync def f[T](x: int = 2, *a: *T) -> int:\n  async with x: await y\n  async for i in x: yield i": (
        "FunctionDef(Function(f, [Param(x, int, 2), Param(a, Star(T), None, *)], [d, Call(e, [Arg(1)])],"
        " [With([WithItem(x, None)], [ExprStmt(Await(y))]), For(i, x, [ExprStmt(Yield(i))], [])],"
        " True, True, int))"
    ),
    "def f():\n  x = yield\n  return (yield from x)": (
        "FunctionDef(Function(f, [], [], [Assign([x], Yield(None)), Return(Yield(x, True))], True))"
    ),
    "@d\nclass A(B, metaclass=M):\n  x = 1\n  def f(self): return": (
        "ClassDef(A, [Arg(B), Arg(M, metaclass)], [d],"
        " [Assign([x], 1), FunctionDef(Function(f, [Param(self, None, None)], [], [Return(None)]))])"
    ),
    "match x, y:\n  case 'train' | None: a\n  case -1: b\n  case None: c\n  case 'p' 'q' if d: e\n  case _: f": (
        "Match(Sequence(tuple, [x, y]), [MatchCase(None, [], None, [ExprStmt(a)]), MatchCase(-1, [], None, [ExprStmt(b)]),"
        " MatchCase(None, [], None, [ExprStmt(c)]), MatchCase('pq', [], d, [ExprStmt(e)]),"
        " MatchCase(None, [], None, [ExprStmt(f)], True)])"
    ),
    "match x:\n  case [a, (b, *c), *_] | {'k': a, **b} | C(c, d=D() as e): pass": (
        "Match(x, [MatchCase(None, [a, b, c, e], None, [])])"
    ),
}


@pytest.mark.parametrize("source", GRAMMAR)
def test_construct(source: str) -> None:
    if "except*" in source and sys.version_info < (3, 11):
        pytest.skip("this Python's ast has no word for it")
    _, module = lower_text(source + "\n")
    assert show(module.body) == f"[{GRAMMAR[source]}]"


OPEN = ("x = f'{a[1, 2]}'", "x = f'{f(k=1, *a)}'")
"""What ``ast`` does not distinguish from something else before Python 3.12, whose f-strings have odd positions."""
AGREED = (
    "a[1, 2]; a[(1, 2)]; a[(1), (2)]; a[((1), 2)]; a[(1, 2), 3]; a[1,]; a[()]; a[(1, 2)[0], (3)]; a[(')', '('), '(']; a[é, (é)]",
    "a[(1 # )\n), (2)]; a[( # (\n1, 2)]; a[(1, 2), 3:4]; a[\n(\n1), 2\n]",
    "f(k=1, *a, j=2, *b, **c); f(*a, k=1); f(*a, *b)",
    "class A(B, *b, k=1, **c): pass",
    "a and b and c or (d or e) or f and g",
    "f'{a=}' f'{b:{c}{d}}' 'x' ''; f''; f'a' 'b'; u'a'; f'{f(1, *a)}'",
    "del a; del (a); del (a, b); del a, b; del [a, b]; del (a, b), c; del ()",
    "del a,; del (a),; del (a,); del (a,),; del [a],; del [a]; del a.b, # c\ndel (a  # ,\n)\ndel (a  # (\n  ,  # )\n)\ndel a\\\n,",
    "try: a\nexcept B: b\nelse: c\nfinally: d",
    "if a: b\nelse:\n  if c: d",
    "(lambda *, a=1, **k: a); (lambda *a: a); (lambda a, /, b, *, c: a)",
    "ｗｉｄｔｈ.ｘ = f(ｋ=1)\ndef ｆ(ｐ): global ｇ; import ａ.ｂ; from ｃ import ｄ",
    "match x:\n  case {'a': ｍ, **ｒ}: pass\n  case a.b | -1j: pass\n  case (1): pass\n  case [1, *_]: pass\n  case y: pass",
    "x = yield 1, 2\n{**a, 'b': 1, **c}; [*a, *b]; {*a}; (*a,)",
    "for a.b, [c, *d] in e: pass",
    "x: (int) = (1)\nx[0]: int = 1",
    "@(a.b)\n@c\nasync def f(): return [i async for i in x if await i]",
)


@pytest.mark.parametrize("source", [*GRAMMAR, *OPEN, *AGREED])
def test_the_quick_way_gives_the_same(source: str) -> None:
    region = Region("x.py", MODULE, source + "\n", range(1, source.count("\n") + 2))
    try:
        ast.parse(source)
    except SyntaxError:
        assert source in GRAMMAR
        pytest.skip("syntax of a newer Python")
    one, other = quick.lower(region), lower(region)
    assert repr(one.functions) == repr(other.functions)
    assert (one._places is not None) == (source in OPEN and sys.version_info < (3, 12))
    assert_same_places(one, other, one.functions[MODULE])


EXPRESSIONS = get_args(ir.Expr)


def assert_same_places(one: Lowered, other: Lowered, function: ir.Function) -> None:
    """What stands in an expression's parentheses is asked of expressions alone: a statement's white space is libcst's affair."""
    nodes = {node.node: node for node in walk(function) if hasattr(node, "node")}
    assert max(nodes) > 0
    numbers = range(max(nodes) + 1)
    expressions = [number for number in numbers if isinstance(nodes.get(number), EXPRESSIONS)]
    mine, theirs = one.places, other.places
    assert [*map(mine.enclosing, numbers)] == [*map(theirs.enclosing, numbers)]
    assert [*map(mine.exact, numbers)] == [*map(theirs.exact, numbers)]
    assert [*map(mine.header, numbers)] == [*map(theirs.header, numbers)]
    assert [*map(mine.inclusive, expressions)] == [*map(theirs.inclusive, expressions)]


AROUND = (
    "x = ( # why\n (a) + (b))\nf((a)); f((a),); f( (a) for a in (b)); f(*(a)); f(k=(a)); f(((a)))",
    "(a, b); (a), (b); x = (a, b,); x = ( a , b ); x = a, ; x[(a, b)]; return_((a, (b)), *(c)); x[a:(b): ]; x[ : ]",
    "with (a): pass\nwith (a) as (b): pass\nwith (a as b, (c)): pass\nwith ((a), b,): pass\nwith (\n  a as b,  # :\n): pass",
    "@(a)\n@ ( b.c ) # :\ndef f(\n  a: int = (lambda: 1), # :\n  *, b: 'x:y' = {1: 2}, # :\n) -> ( # :\n  {1: 2}\n): return",
    "class A ( (B) , metaclass = (C) ) : pass\nclass D: pass\nclass E(): pass\nclass F((B)): x = 1;",
    "if (a) : b ;\nelif ( # :\n c): d; e ;\nwhile lambda: (a): pass\nfor (a) in (b), (c) : pass;\ntry : a\nexcept (B) as e : c ;",
    "match (a) : # :\n  case (1) : b\n  case [x] if (y): (c);\n  case _: pass;",
    "a and (b) and c; (a and b) or ((c) and d and (e)); not (a); -(a); (a) if (b) else (c); (yield (a)); [(a)]; {(a): (b)}",
    "x = (\n  'a' # (\n  'b' (1)\n)\ny = '#(' (\n  (a)\n)\nz = 'é', (ö)\n(a)\\\n.b (\\\n c)\nf'{(a)}' f'{b!r:{(c)}}'",
)


@pytest.mark.parametrize("source", AROUND)
def test_parentheses_and_colons_are_found_without_libcst(source: str) -> None:
    region = Region("x.py", MODULE, source + "\n", range(1, source.count("\n") + 2))
    one, other = quick.lower(region), lower(region)
    assert_same_places(one, other, one.functions[MODULE])


def test_a_call_and_its_statement_need_no_libcst() -> None:
    lowered = quick.lower(Region("x.py", MODULE, "with a() as b:\n    total += (loss( b))\n", range(1, 3)))
    (with_,) = lowered.functions[MODULE].body
    assert isinstance(with_, ir.With)
    (added,) = with_.body
    assert isinstance(added, ir.AugAssign)
    assert place(lowered.outer_span(added.value.node)) == (2, 14, 2, 24)
    assert lowered.statement(added.value.node)[1] == "total += (loss( b))"
    assert place(lowered.header_span(with_.node)) == (1, 1, 1, 15)
    assert isinstance(lowered.places, NotedPlaces)
    assert lowered.places._exact is None


def test_a_finding_is_refused_where_libcst_reads_something_else() -> None:
    lowered = quick.lower(Region("x.py", MODULE, "f(a, b)\n", range(1, 2)))
    lowered.functions[MODULE].body.clear()
    with pytest.raises(SourceError, match="something else"):
        lowered.span(0)
    with pytest.raises(SourceError, match="something else"):
        lowered.span(0)


def test_a_literal_none_case_differs_from_a_pattern_without_literal() -> None:
    _, module = lower_text("match x:\n  case None: a\n  case C(): b\n")
    (match,) = module.body
    assert isinstance(match, ir.Match)
    assert [case.literal and case.literal.value for case in match.cases] == [None, None]
    assert [case.literal is None for case in match.cases] == [False, True]


def test_odd_escapes_lower_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    _, module = lower_text(r"x = '\d', r'\d', b'\d'" + "\n")
    assert show(module.body) == r"[Assign([x], Sequence(tuple, ['\\d', '\\d', b'\\d']))]"
    assert not recwarn.list


def test_template_strings_lower_as_formatted_strings() -> None:
    cst = pytest.importorskip("libcst")
    if not hasattr(cst, "TemplatedString"):
        pytest.skip("this libcst knows no template strings")
    assert show(lower_text("x = t'{a} {b}'\n")[1].body) == "[Assign([x], FormattedString([a, b]))]"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("[y := x for x in z]", "y"),
        ("a.b = c[d] = 1", ""),
        ("a += 1; b: int; del c", "a b c"),
        ("for a, [b, *c] in d: pass", "a b c"),
        ("with x as (a, b): pass", "a b"),
        ("try: pass\n  except E as a: pass", "a"),
        ("import a.b, c.d as e; from f import g as h, i", "a e h i"),
        ("global a; nonlocal b; a = b = c = 1", "c"),
        ("def a(x): y = 1\n  class b: z = 1", "a b"),
        ("lambda x: (y := x)", ""),
        ("match x:\n    case {'k': [a, *b], **c} as d: pass", "a b c d"),
        ("(lambda p=(q := 1): p)", "q"),
    ],
)
def test_locals(body: str, names: str) -> None:
    _, module = lower_text(f"def f(p0, /, *p1, **p2):\n  {body}\n")
    (definition,) = module.body
    assert isinstance(definition, ir.FunctionDef)
    assert definition.function.locals == {"p0", "p1", "p2", *names.split()}


def test_nested_functions_are_named_by_their_path() -> None:
    text = "class A:\n    def f(self):\n        class B:\n            def g(self):\n                return lambda: 1\n"
    facts = module_facts("x.py", text)
    lowered = lower(cut_function(text.splitlines(), facts.functions[1], "x.py"))
    names = [n.qualname for n in walk(lowered.functions["A.f"]) if isinstance(n, ir.Function)]
    assert names == ["A.f", "A.f.B.g", "A.f.B.g.<lambda>"]


# --- regions ----------------------------------------------------------------------------------------------------------

MODULE_SOURCE = '''\
"""Doc
string."""
import a
if a:
    def b(): return 1
    @deco(
        1)
    def c(x=(
            2)):  # why
        """Two
  lines"""
        return x
else:
    async def d(): z = """
        text"""; return z
    class E(F[1:2], g={"k": "v:"}): x = [
        1]
    class G:

        def h(self): pass

        # the end
        y = 2
try:
    v = a.f("""
\tkept: def q():""")
except X: pass
'''


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_module_region_leaves_out_bodies_and_keeps_rows(newline: str) -> None:
    text = MODULE_SOURCE.replace("\n", newline)
    region = cut_module(text.splitlines(keepends=True), module_facts("x.py", text))
    assert region.text == (
        '"""Doc\nstring."""\nimport a\nif a:\n    def b(): pass\n    @deco(\n        1)\n'
        "    def c(x=(\n            2)): pass\n"
        'else:\n    async def d(): pass\n    class E(F[1:2], g={"k": "v:"}): pass\n    class G: pass\n'
        'try:\n    v = a.f("""\n\tkept: def q():""")\nexcept X: pass\n'
    )
    lowered = lower(region)
    assert place(lowered.span(only(lowered, ir.Call, 'a.f("""\n\tkept: def q():""")'))) == (25, 9, 26, 20)
    assert place(lowered.span(only(lowered, ir.Call, "deco(\n        1)"))) == (6, 6, 7, 11)


def test_function_region_keeps_indentation_and_rows() -> None:
    text = 'class A:\n    @(\n      d)\n    def f(self):\n        return """\nx""" + g(é, "é")\n    y = 1\n'
    facts = module_facts("x.py", text)
    region = cut_function(text.splitlines(), facts.functions[1], "x.py")
    assert region.text.splitlines()[:2] == ["if 1:", "    @("]
    assert (region.first_row, region.indented, region.qualname) == (2, True, "A.f")
    lowered = lower(region)
    assert place(lowered.span(only(lowered, ir.Call))) == (6, 8, 6, 17)


def test_form_feed_before_code() -> None:
    text = "class A:\n    pass\n\f\n\f    def f(self):\n        g()\f\n \f        h()\n\n\fdef k(): pass\n\fl()\n"
    facts = module_facts("x.py", text)
    lines = NEWLINE.split(text)
    lowered = lower(cut_function(lines, facts.functions[1], "x.py"))
    assert [place(lowered.span(only(lowered, ir.Call, name)))[:2] for name in ("g()", "h()")] == [(5, 9), (6, 11)]
    lowered = lower(cut_module(lines, facts))
    assert place(lowered.span(only(lowered, ir.Call, "l()"))) == (9, 2, 9, 5)


def test_margins_that_mix_tabs_and_spaces() -> None:
    """libcst does not read the dedent behind ``g()``, which Python does."""
    text = 'def f(self):\n\t  if self:\n\t\t    """a\n\t\tb"""; g(é,\n\t1)\n\t# why\n\t  h()\n\n\nif 1:\n\tk()\n'
    facts = module_facts("x.py", text)
    lines = text.splitlines()
    lowered = lower(cut_function(lines, facts.functions[1], "x.py"))
    assert place(lowered.span(only(lowered, ir.Call, "g(é,\n\t1)"))) == (4, 9, 5, 4)
    assert place(lowered.span(only(lowered, ir.Call, "h()"))) == (7, 4, 7, 7)
    lowered = lower(cut_module(lines, facts))
    assert place(lowered.span(only(lowered, ir.Call, "k()"))) == (11, 2, 11, 5)


def test_empty_module() -> None:
    assert lower(cut_module([""], module_facts("x.py", ""))).functions[MODULE].body == []


# --- places -----------------------------------------------------------------------------------------------------------

PLACES = """\
for step, (x, y) in enumerate(
        loader):
    total = ((a + b))  ;  seen.append( (
        loss) )
    if x: pass
    elif y(1): pass
try:
    a
except E(2): pass
with m(3) as n: k(4)
@d(5)
def f(p=q(6)): return
match r(7):  # why
    case 1 if g(8): pass
z = lambda: h(9)
"""


@pytest.mark.parametrize(
    ("call", "row_columns", "text"),
    [
        ("enumerate(\n        loader)", (1, 1, 2, 17), "for step, (x, y) in enumerate( loader):"),
        ("seen.append( (\n        loss) )", (3, 27, 4, 16), "seen.append( ( loss) )"),
        ("y(1)", (6, 5, 6, 15), "elif y(1):"),
        ("E(2)", (9, 1, 9, 13), "except E(2):"),
        ("m(3)", (10, 1, 10, 16), "with m(3) as n:"),
        ("k(4)", (10, 17, 10, 21), "k(4)"),
        ("d(5)", (11, 1, 11, 6), "@d(5)"),
        ("q(6)", (12, 1, 12, 15), "def f(p=q(6)):"),
        ("r(7)", (13, 1, 13, 12), "match r(7):"),
        ("g(8)", (14, 5, 14, 20), "case 1 if g(8):"),
        ("h(9)", (15, 1, 15, 17), "z = lambda: h(9)"),
    ],
)
def test_statement_of_a_call(call: str, row_columns: tuple[int, int, int, int], text: str) -> None:
    lowered, _ = lower_text(PLACES)
    node = only(lowered, ir.Call, call)
    span, source = lowered.statement(node)
    assert (place(span), source) == (row_columns, text)
    assert lowered.header_span(lowered.enclosing(node)) == span


def test_parentheses_are_outside_the_span_and_inside_the_outer_span() -> None:
    lowered, _ = lower_text(PLACES)
    node = only(lowered, ir.Binary)
    assert place(lowered.span(node)) == (3, 15, 3, 20)
    assert place(lowered.outer_span(node)) == (3, 13, 3, 22)
    assert lowered.source(node) == "a + b"


def test_spans_are_right_where_libcst_loses_white_space() -> None:
    lowered, _ = lower_text("x = f'{a!s  }' + g( b)\ny = h()\n")
    assert place(lowered.span(only(lowered, ir.Call, "g( b)"))) == (1, 18, 1, 23)
    assert place(lowered.span(only(lowered, ir.Call, "h()"))) == (2, 5, 2, 8)


def test_every_node_belongs_to_a_statement_around_it() -> None:
    lowered, module = lower_text(PLACES + "class A(B, metaclass=M):\n    x: int = lambda *, p=(0): [i for i in p if i]\n")
    around = {module.node}
    for node in range(max(n.node for n in walk(module) if hasattr(n, "node")) + 1):
        statement = lowered.enclosing(node)
        assert lowered.enclosing(statement) == statement
        assert place(lowered.span(statement))[:2] <= place(lowered.span(node))[:2] or statement == module.node
        around.add(statement)
    assert [lowered.statement(node)[1] for node in sorted(around)][1:4] == [
        "for step, (x, y) in enumerate( loader):",
        "total = ((a + b))",
        "seen.append( ( loss) )",
    ]


def test_the_whole_region_ends_on_its_last_row() -> None:
    lowered, module = lower_text("a\nb\n")
    assert lowered.span(module.node).start == Position(1, 1)
    assert lowered.span(module.node).end.row in (2, 3)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_unreadable_source_says_where() -> None:
    region = Region("x.py", "f", "if 1:\n  def f():\n    a <> b\n", range(6, 10), indented=True)
    with pytest.raises(SourceError) as caught:
        lower(region)
    assert caught.value.row == 8


@pytest.mark.parametrize("way", [lower, quick.lower])
def test_a_long_chain_of_operators_is_refused_before_it_ends_the_process(way: Callable[[Region], Lowered]) -> None:
    with pytest.raises(SourceError, match="1000") as caught:
        way(Region("x.py", MODULE, "pass\nx = " + " and ".join(["a"] * 20_000) + "\n", range(1, 3)))
    assert caught.value.row == 2


@pytest.mark.slow
def test_words_that_hold_and_or_are_no_chain() -> None:
    _, module = lower_text("for_android = [" + "land or 1, " * 1500 + "]\n")
    assert show(module.body).count("BoolOp") == 1500


def test_implicit_concatenation_is_flat_in_the_ir_and_refused_when_endless() -> None:
    """``ast`` sees one constant here, libcst a nest."""
    _, module = lower_text("x = " + "'a' " * 150 + "\n")
    assert show(module.body) == f"[Assign([x], '{'a' * 150}')]"
    with pytest.raises(SourceError):
        lower_text("x = " + "'a' " * 50_000 + "\n")


@pytest.mark.parametrize(
    ("begin", "end"), [("f(", ")"), ("f(k=", ")"), ("not ", ""), ("a + ", ""), ("lambda: ", ""), ("a if b else ", "")]
)
def test_what_the_index_lets_pass_is_not_nested_too_deeply(begin: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchmemlint.lower.limits.MAX_WEIGHT", 10**6)
    lowered, module = lower_text(begin * MAX_DEPTH + "0" + end * MAX_DEPTH + "\n")
    assert place(lowered.span(module.body[0].node))[:2] == (1, 1)


# --- against CPython --------------------------------------------------------------------------------------------------


def corpus() -> list[Path]:
    """Real files with much grammar in them: parts of the standard library, its own grammar tests where they are
    installed, and parts of torch (found, not imported)."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    names = ["typing", "dataclasses", "asyncio/tasks", "contextlib", "tarfile", "json/decoder", "logging/__init__"]
    names += [f"test/test_{name}" for name in ("patma", "fstring", "named_expressions", "coroutines", "except_star", "with")]
    files = [stdlib / f"{name}.py" for name in names]
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        package = Path(torch.origin).parent
        files += [package / f"{name}.py" for name in ("nn/modules/module", "optim/adam", "nn/functional", "utils/checkpoint")]
    return [file for file in files if file.exists()]


def regions(text: str, facts: ModuleFacts) -> Iterator[Region]:
    lines = NEWLINE.split(text)
    for function in facts.functions:
        if function.qualname == MODULE:
            yield cut_module(lines, facts)
        elif not function.parent:
            yield cut_function(lines, function, facts.path)


def scopes(table: symtable.SymbolTable, prefix: str) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Qualified name, row and locals of every function that CPython's compiler sees; comprehensions are not functions."""
    for child in table.get_children():
        if child.get_name() in ("listcomp", "setcomp", "dictcomp", "genexpr"):
            yield from scopes(child, prefix)
            continue
        path = prefix + {"lambda": "<lambda>"}.get(child.get_name(), child.get_name())
        if isinstance(child, symtable.Function):
            names = {n for n in child.get_locals() if n not in ("__class__", ".0", ".type_params")}
            yield path, child.get_lineno(), tuple(sorted(names))
        yield from scopes(child, path + ".")


LARGE = 60_000
"""Bytes of a file that takes more than half a second."""


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=[pytest.mark.slow] * (file.stat().st_size > LARGE)) for file in corpus()],
    ids=lambda file: file.name,
)
def test_places_names_and_scopes_agree_with_cpython(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    lines = NEWLINE.split(text)
    tree = ast.parse(text)
    facts = module_facts(str(file), text)
    covered = {row for f in facts.functions[1:] if not f.parent for row in range(f.first_row, f.end_row + 1)}

    ours: dict[str, Counter[tuple[object, ...]]] = {"call": Counter(), "name": Counter(), "attribute": Counter()}
    our_scopes: set[tuple[str, int, tuple[str, ...]]] = set()
    for region in regions(text, facts):
        lowered, quickly = lower(region), quick.lower(region)
        assert repr(quickly.functions) == repr(lowered.functions)
        assert_same_places(quickly, lowered, quickly.functions[region.qualname])
        if region.qualname == MODULE:
            continue
        for node in walk(lowered.functions[region.qualname]):
            if isinstance(node, ir.Call):
                ours["call"][place(lowered.span(node.node))] += 1
            elif isinstance(node, ir.Name):
                ours["name"][(node.id, *place(lowered.span(node.node)))] += 1
            elif isinstance(node, ir.Attr):
                ours["attribute"][(node.name, *place(lowered.span(node.node)))] += 1
            elif isinstance(node, ir.Function):
                row = lowered.span(node.node).start.row
                our_scopes.add((node.qualname, row, tuple(sorted(node.locals))))

    def where(node: ast.expr) -> tuple[int, int, int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode()) + 1
        end = len(lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode()) + 1
        return node.lineno, start, node.end_lineno, end

    # Patterns and type parameters leave no expressions in the IR.
    unseen = [n for n in ast.walk(tree) if isinstance(n, ast.pattern)]
    unseen += [p for n in ast.walk(tree) for p in getattr(n, "type_params", ())]
    skipped = {id(inner) for node in unseen for inner in ast.walk(node)}
    theirs: dict[str, Counter[tuple[object, ...]]] = {"call": Counter(), "name": Counter(), "attribute": Counter()}
    for node in ast.walk(tree):
        if id(node) in skipped or getattr(node, "lineno", 0) not in covered:
            continue
        if isinstance(node, ast.Call):
            theirs["call"][where(node)] += 1
        elif isinstance(node, ast.Name):
            theirs["name"][(node.id, *where(node))] += 1
        elif isinstance(node, ast.Attribute):
            theirs["attribute"][(node.attr, *where(node))] += 1
    assert ours == theirs
    assert all(theirs.values())

    # 3.10 gives a lambda the row of its statement; from 3.12 on comprehensions share the scope of their function (PEP 709).
    if sys.version_info[:2] == (3, 11):
        known = set(scopes(symtable.symtable(text, str(file), "exec"), ""))
        mangled = {s for s in our_scopes if any(n.startswith("__") and not n.endswith("__") for n in s[2])}
        assert not our_scopes - mangled - known
