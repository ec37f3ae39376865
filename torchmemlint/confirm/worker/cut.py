"""Cuts the flagged function, or the flagged loop with what it needs, out of a file and makes it runnable and observable.

The standard library's ``ast`` is used, not libcst: the result is only executed, and a compiled ``ast`` keeps the file's own row
numbers, so that an exception names the user's line. Needs no torch.

What is done to the flagged function: each simple statement is guarded (an exception is noted, its targets become
stand-ins), loops
around the flagged line run a fixed number of steps and are sampled at their head, exits from the sampled loop are left out,
and the flagged value passes through a probe, which in the corrected variant also corrects it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torchmemlint.confirm.worker.calls import InPlace, over_parameters
from torchmemlint.rules.card import Correction

HARNESS = "__tml__"
OF_FORWARDS = frozenset({Correction.NO_GRAD, Correction.NO_GRAD_AROUND, Correction.OWN_FIX})
"""Corrections of findings that point at a forward call."""
OF_CALLS = frozenset({Correction.ROOM, Correction.NO_CHECKPOINT, Correction.FREE})
"""Corrections of which the harness takes the place of a call in the flagged statement."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LoopNode = ast.For | ast.AsyncFor | ast.While
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class Place:
    """A finding's span: 1-based rows and columns, the end exclusive; an end of 0 is not known."""

    row: int
    column: int = 1
    end_row: int = 0
    end_column: int = 0


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with the flagged value, named by what corrections it; ``keyword`` as on a rule's card."""

    correction: Correction
    keyword: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """Where the flagged line is: its statement, and what is around it from the outermost to the innermost."""

    statement: ast.stmt
    around: tuple[ast.AST, ...]
    place: Place

    @property
    def function(self) -> FunctionNode | None:
        """The innermost function around the line, None at module level."""
        return next((node for node in reversed(self.around) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))), None)

    @property
    def klass(self) -> ast.ClassDef | None:
        """The class whose method the function is, None for plain functions and closures."""
        function = self.function
        if function is None:
            return None
        above = self.around[self.around.index(function) - 1] if self.around.index(function) else None
        return above if isinstance(above, ast.ClassDef) else None

    @property
    def comprehends(self) -> bool:
        """Whether the line's only loop is a comprehension."""
        parts = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
        simple = isinstance(self.statement, (ast.Expr, ast.Assign, ast.Return, ast.AnnAssign, ast.AugAssign))
        return simple and not self.loops and any(isinstance(item, parts) for item in ast.walk(self.statement))

    @property
    def loops(self) -> tuple[LoopNode, ...]:
        """Loops around the line inside its function, the innermost first."""
        start = self.around.index(self.function) + 1 if self.function else 0
        found = [node for node in self.around[start:] if isinstance(node, (ast.For, ast.AsyncFor, ast.While))]
        if isinstance(self.statement, (ast.For, ast.AsyncFor, ast.While)):
            found.append(self.statement)
        return tuple(reversed(found))


def locate(tree: ast.Module, place: Place) -> Site | None:
    """The innermost statement that covers the place's first row, None when there is none."""
    row = place.row
    around: list[ast.AST] = []
    best: Site | None = None

    def visit(node: ast.AST) -> None:
        nonlocal best
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
            if isinstance(child, ast.stmt) and first is not None and last is not None:
                decorators = [item.lineno for item in getattr(child, "decorator_list", [])]
                if not min([first, *decorators]) <= row <= last:
                    continue
                best = Site(child, tuple(around), place)
            elif isinstance(child, ast.stmt):
                continue
            around.append(child)
            visit(child)
            around.pop()

    visit(tree)
    if best is not None and isinstance(best.statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        # the header of a function, or its decorator: what holds of it holds of its body
        return Site(best.statement.body[0], (*best.around, best.statement), place)
    return best


def place_of(statement: ast.stmt) -> ast.expr | None:
    """The expression that keeps the flagged value: ``total`` of ``total += x``, ``xs`` of ``xs.append(x)``, ``d`` of
    ``d[k] = x``."""
    target: ast.expr | None = None
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        target = statement.target
    elif isinstance(statement, ast.Assign):
        target = statement.targets[0]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        target = called.value if isinstance(called, ast.Attribute) else None
    if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and _is_harness(target.func.value):
        target = target.args[0]  # the probe around it
    while isinstance(target, ast.Starred) or (isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant)):
        target = target.value
    return target if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) else None


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_harness(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == HARNESS


def way_out(tree: ast.Module, row: int) -> bool:
    """Whether the statement in this row always runs when its function (or the module) does: no ``if``, loop, ``try`` or ``match``
    is around it."""
    site = locate(tree, Place(row))
    if site is None:
        return False
    start = site.around.index(site.function) + 1 if site.function else 0
    return not any(
        isinstance(node, ast.stmt) and not isinstance(node, (ast.With, ast.AsyncWith)) for node in site.around[start:]
    )


def left_before(site: Site) -> int:
    """The row of a ``return``, ``raise``, ``break`` or ``continue`` in front of the flagged statement that nothing goes around; 0
    where there is none."""
    start = site.around.index(site.function) if site.function else 0
    blocks = [getattr(node, name, []) for node in site.around[start:] for name in ("body", "orelse", "finalbody")]
    inside = {id(node) for node in [*site.around, site.statement]}
    for block in blocks:
        at = next((index for index, node in enumerate(block) if id(node) in inside), 0) if isinstance(block, list) else 0
        for node in block[:at] if at else ():
            if isinstance(node, _EXITS):
                return int(node.lineno)
    return 0


def _call(method: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(HARNESS, ast.Load()), method, ast.Load()), list(arguments), [])


def _later(expression: ast.expr) -> ast.expr:
    """``lambda: expression``; the expression itself where a lambda cannot hold it."""
    if any(isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) for node in ast.walk(expression)):
        return expression
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, expression)


def _store_names(statement: ast.stmt) -> list[str]:
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


class _Body(ast.NodeTransformer):
    """Rewrites the statements of the flagged function (or of any function of its class, then without a site)."""

    def __init__(self, site: Site | None = None, flaw: Flaw | None = None, level: int = 0) -> None:
        self.site = site
        self.correction = flaw.correction if flaw else None
        self.keyword = flaw.keyword if flaw else ""
        self.loops = site.loops if site else ()
        self.sampled = self.loops[level] if level < len(self.loops) else None
        self.lenient = False  # an initialiser that checks its arguments would refuse stand-ins
        self.inside = False  # a function; nested ones are left alone unless they hold the line
        self._changing: tuple[frozenset[str], frozenset[str]] | None = None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node if self.inside and not self._holds(node) else self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node if self.inside and not self._holds(node) else self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def _holds(self, node: ast.AST) -> bool:
        return self.site is not None and any(node is item for item in self.site.around)

    def _function(self, node: FunctionNode) -> ast.AST:
        before, self.inside = self.inside, True
        self.lenient = node.name == "__init__"
        node.body = self.block(node.body)
        self.inside = before
        return node

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements, each rewritten."""
        done: list[ast.stmt] = []
        for statement in statements:
            done.extend(self.statement(statement))
        return done or [ast.Pass()]

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """One statement's replacement; positions are those of the original."""
        flagged = self.site is not None and node is self.site.statement
        result: list[ast.stmt]
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            result = [self._loop(node, flagged)]
        elif isinstance(node, ast.If):
            result = [self._if(node, flagged)]
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for part in node.items:
                part.context_expr = _call(
                    "context", _later(part.context_expr), ast.Constant(ast.unparse(part.context_expr)[:80])
                )
            node.body = self.block(node.body)
            result = [node]
        elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            assert isinstance(node, ast.Try)
            node.body = self.block(node.body)
            node.orelse = self.block(node.orelse) if node.orelse else []
            node.finalbody = self.block(node.finalbody) if node.finalbody else []
            for handler in node.handlers:
                handler.body = self.block(handler.body)
            result = [node]
        elif isinstance(node, ast.Match):
            for case in node.cases:
                case.body = self.block(case.body)
            result = [node]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            visited = self.visit(node)
            assert isinstance(visited, (ast.FunctionDef, ast.AsyncFunctionDef))
            result = [visited]
        elif isinstance(node, (ast.ClassDef, ast.Global, ast.Nonlocal, ast.Pass, ast.Continue)):
            result = [node]
        elif isinstance(node, (ast.Break, ast.Raise, ast.Assert)):
            ends_sampling = self.ends_here if isinstance(node, ast.Break) else self.inside_sampled
            left_out = isinstance(node, ast.Assert) or ends_sampling or (self.lenient and isinstance(node, ast.Raise))
            result = [ast.Pass()] if left_out else [node]
        elif isinstance(node, ast.Return):
            result = self._return(node, flagged)
        else:
            result = self._simple(node, flagged)
        for item in result:
            ast.copy_location(item, node)
        return result

    inside_sampled = False
    """Within the sampled loop, at any depth: a return or raise would end the experiment."""
    ends_here = False
    """The innermost loop is the sampled one: so would a break."""

    def _loop(self, node: LoopNode, flagged: bool) -> ast.stmt:
        number = next((index for index, loop in enumerate(self.loops) if loop is node), -1)
        sampled = node is self.sampled
        before = self.inside_sampled, self.ends_here
        self.inside_sampled, self.ends_here = sampled or self.inside_sampled, sampled
        role = "sample" if sampled else "around" if number > self._level() else "within" if number >= 0 else "other"
        if flagged and not isinstance(node, ast.While):
            node.iter = self._probe_expression(node.iter)
        if self.correction is Correction.FREE and not sampled and over_parameters(node):
            node.body = self.block(node.body)  # all of them, as often as there are parameters
            self.inside_sampled, self.ends_here = before
            return node
        if isinstance(node, ast.While):
            node.test = _call("while_", ast.Constant(role), ast.Constant(node.lineno), _later(node.test))
        elif isinstance(node, ast.For):
            node.iter = _call("loop", ast.Constant(role), _later(node.iter))
        else:
            node.iter = _call("aloop", ast.Constant(role), _later(node.iter))
        node.body = self.block(node.body)
        if sampled and self.site is not None:
            place = place_of(self.site.statement)
            if place is not None:
                watched = ast.parse(ast.unparse(place), mode="eval").body
                node.body.insert(0, ast.copy_location(ast.Expr(_call("look", _later(watched))), node))
        self.inside_sampled, self.ends_here = before
        node.orelse = self.block(node.orelse) if node.orelse and not sampled else []
        return node

    def _level(self) -> int:
        return next((index for index, loop in enumerate(self.loops) if loop is self.sampled), len(self.loops))

    def _if(self, node: ast.If, flagged: bool) -> ast.stmt:
        wanted: ast.expr = ast.Constant(None)
        if self._holds(node):
            inside = any(self.site is not None and item is self.site.statement for part in node.body for item in ast.walk(part))
            wanted = ast.Constant(inside)
        elif (
            self.site is not None
            and node.lineno < self.site.place.row
            and not node.orelse
            and isinstance(node.body[-1], _EXITS)
        ):
            wanted = ast.Constant(False)  # a way out before the flagged line
        if flagged:
            node.test = self._probe_expression(node.test)
        varies = self._varies(node.test) or (not self._holds(node) and isinstance(node.body[-1], ast.Raise))
        options = options_of(self.site.function) if self.site is not None else frozenset()
        kept = kept_options(self.site.klass) if self.site is not None else frozenset()
        asks = any(
            (isinstance(item, ast.Name) and item.id in options)
            or (isinstance(item, ast.Attribute) and _is_own(item) and item.attr in kept)
            for item in ast.walk(node.test)
        )
        node.test = _OfNone().visit(node.test)
        node.test = _call(
            "branch", wanted, ast.Constant(varies), ast.Constant(asks), ast.Constant(node.lineno), _later(node.test)
        )
        node.body = self.block(node.body)
        node.orelse = self.block(node.orelse) if node.orelse else []
        return node

    def _varies(self, test: ast.expr) -> bool:
        """Whether the answer may be another one in another step or call: it is about what a loop around the line counts, an option of
        the function, or what other methods set in the receiver. (So it is where an ``if`` raises: what is run is a program that works.)"""
        if self.site is None:
            return False
        if self._changing is None:
            self._changing = changing(self.site)
        names, attributes = self._changing
        # `if p.grad is not None` guards what is behind it: to go past it would raise where there is none.
        guards = {id(item) for each in ast.walk(test) if _asks_for_none(each) for item in ast.walk(each)}
        return any(
            isinstance(item, ast.Mod)
            or (isinstance(item, ast.Name) and item.id in names and id(item) not in guards)
            or (isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.attr in attributes)
            for item in ast.walk(test)
        )

    def _return(self, node: ast.Return, flagged: bool) -> list[ast.stmt]:
        if node.value is None or isinstance(node.value, ast.Constant):
            return [ast.Pass()] if self.inside_sampled else [node]
        value = self._probe_expression(node.value) if flagged else node.value
        if self.inside_sampled:
            return [self._guard(ast.copy_location(ast.Expr(value), node), [])]
        name = "__tml_result__"
        assign = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)
        return [self._guard(assign, [name]), ast.copy_location(ast.Return(ast.Name(name, ast.Load())), node)]

    def _simple(self, node: ast.stmt, flagged: bool) -> list[ast.stmt]:
        names = [] if isinstance(node, (ast.Import, ast.ImportFrom)) else _store_names(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [(item.asname or item.name).split(".")[0] for item in node.names if item.name != "*"]
        if flagged:
            self._probe(node)
        if self.correction is Correction.SWITCH and flagged:
            _set_keyword(node, self.keyword)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List)):
            parts = node.targets[0].elts
            if not any(isinstance(part, ast.Starred) for part in parts) and not isinstance(
                node.value, (ast.Tuple, ast.Yield, ast.Await)
            ):
                node.value = _call("fit", node.value, ast.Constant(len(parts)))
        return [self._guard(node, names)]

    def _guard(self, node: ast.stmt, names: Sequence[str]) -> ast.stmt:
        bind: list[ast.stmt] = [
            ast.Assign([ast.Name(name, ast.Store())], _call("standin", ast.Constant(name))) for name in dict.fromkeys(names)
        ]
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
            made = node.targets[0]
            if isinstance(made, ast.Attribute) and isinstance(made.value, ast.Name):  # self.drop = nn.Dropout(p)
                place = ast.Attribute(ast.Name(made.value.id, ast.Load()), made.attr, ast.Store())
                bind.append(ast.Assign([place], _call("standin", ast.Constant(made.attr))))
        note = ast.Expr(_call("failed", ast.Constant(node.lineno), ast.Name("__tml_error__", ast.Load())))
        handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), "__tml_error__", [note, *bind])
        guarded = ast.Try(body=[node], handlers=[handler], orelse=[], finalbody=[])
        return ast.copy_location(guarded, node)

    def _probe(self, node: ast.stmt) -> None:
        """Send the flagged value through the probe: what is added, stored, passed on or called."""
        if self.correction is Correction.SWITCH:
            return
        if self.correction in OF_CALLS:
            self._in_place(node)
            return
        if self.correction is Correction.LOAD:
            self._probe_place(node)
            return
        if self.correction in OF_FORWARDS:
            if not self._wrap_call(node):
                for field, value in ast.iter_fields(node):
                    if field == "value" and isinstance(value, ast.expr):
                        setattr(node, field, _WrapCalls().visit(value))
            return
        if self.correction is Correction.DETACH_STATE:
            carried = set(_store_names(node))
            replaced = _Carried(carried)
            for field, value in ast.iter_fields(node):
                if field == "value" and isinstance(value, ast.expr):
                    setattr(node, field, replaced.visit(value))
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            call.args = [item if isinstance(item, ast.Starred) else _call("value", item) for item in call.args]
            for keyword in call.keywords:
                if keyword.arg is not None:
                    keyword.value = _call("value", keyword.value)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)) and node.value is not None:
            node.value = self._probe_expression(node.value)

    def _in_place(self, node: ast.AST) -> None:
        assert self.correction is not None
        InPlace(self.correction, HARNESS).generic_visit(node)

    def _probe_place(self, node: ast.stmt) -> None:
        """Send the flagged load's ``map_location`` through the probe: whether it names the host, and what it is."""
        assert self.site is not None
        calls = [item for item in ast.walk(node) if isinstance(item, ast.Call)]
        call = _WrapCall(self.site.place, calls).call or next((item for item in calls if _last(item.func) == "load"), None)
        if call is None or _last(call.func) != "load":
            return  # other loaders call the argument otherwise, and nothing here takes their place
        given = next((item for item in call.keywords if item.arg == "map_location"), None)
        if given is None:
            given = ast.keyword("map_location", call.args.pop(1) if len(call.args) > 1 else ast.Constant(None))
            call.keywords.append(given)
        text = ast.unparse(given.value)
        host = isinstance(given.value, ast.Lambda) or ("cpu" in text and "cuda" not in text)
        given.value = _call("mapped", ast.Constant(host), given.value)

    def _wrap_call(self, node: ast.AST) -> bool:
        """Send exactly the call that the finding points at through the probe; False where none starts in its column."""
        assert self.site is not None
        calls = [item for item in ast.walk(node) if isinstance(item, ast.Call)]
        wrap = _WrapCall(self.site.place, calls)
        wrap.visit(node)
        return wrap.call is not None

    def _probe_expression(self, value: ast.expr) -> ast.expr:
        if self.correction in OF_CALLS:
            holder = ast.Expr(value)
            self._in_place(holder)
            return holder.value
        if self.correction in OF_FORWARDS:
            holder = ast.Expr(value)
            if self._wrap_call(holder):
                return holder.value
            return _call("forward", _later(value))
        inner = next(
            (item for item in ast.walk(value) if isinstance(item, (ast.ListComp, ast.SetComp, ast.GeneratorExp))), None
        )
        if inner is not None and not self.loops:
            # a comprehension over the loader is the loop
            inner.generators[0].iter = _call("loop", ast.Constant("sample"), _later(inner.generators[0].iter))
            inner.elt = _call("value", inner.elt)
            return value
        if isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            value.elt = _call("value", value.elt)
            return value
        if isinstance(value, ast.DictComp):
            value.value = _call("value", value.value)
            return value
        if isinstance(value, (ast.Yield, ast.Await)) and value.value is not None:
            value.value = _call("value", value.value)
            return value
        return _call("value", value)


def _asks_for_none(node: ast.AST) -> bool:
    """Whether a node is a comparison with None."""
    return isinstance(node, ast.Compare) and any(
        isinstance(each, ast.Constant) and each.value is None for each in node.comparators
    )


class _OfNone(ast.NodeTransformer):
    """Passes each ``x is None`` to the harness: for a stand-in, the answer is unknown."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return node
        if not (isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None):
            return node
        node.left = _call("asked", node.left)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node


def changing(site: Site) -> tuple[frozenset[str], frozenset[str]]:
    """Names that loops around the flagged line count, or that are options of its function (they have a default); and attributes that
    methods of its class set, other than the initialiser."""
    names: set[str] = set()
    for loop in site.loops:
        if not isinstance(loop, ast.While):
            names |= {item.id for item in ast.walk(loop.target) if isinstance(item, ast.Name)}
        names |= {
            item.target.id for item in ast.walk(loop) if isinstance(item, ast.AugAssign) and isinstance(item.target, ast.Name)
        }
    if site.function is not None:
        arguments = site.function.args
        given = [*arguments.posonlyargs, *arguments.args]
        names |= {item.arg for item in given[len(given) - len(arguments.defaults) :]} if arguments.defaults else set()
        names |= {
            item.arg for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is not None
        }
    methods = site.klass.body if site.klass is not None else ()
    attributes = {
        item.attr
        for method in methods
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.name != "__init__"
        for item in ast.walk(method)
        if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store) and isinstance(item.value, ast.Name)
    }
    return frozenset(names), frozenset(attributes)


def options_of(function: FunctionNode | None) -> frozenset[str]:
    """Parameters with a default: callers may give another value."""
    if function is None:
        return frozenset()
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return frozenset(
        [*(item.arg for item in given[len(given) - len(arguments.defaults) :]), *(item.arg for item, value in pairs if value)]
    )


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def kept_options(klass: ast.ClassDef | None) -> frozenset[str]:
    """Attributes that the initialiser sets to a parameter with a default: who makes the object may give another value."""
    methods = klass.body if klass is not None else []
    init = next((node for node in methods if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None)
    options = options_of(init)
    return frozenset(
        target.attr
        for node in (ast.walk(init) if init is not None else ())
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in options
        for target in node.targets
        if isinstance(target, ast.Attribute) and _is_own(target)
    )


class _WrapCall(ast.NodeTransformer):
    """Wraps the call that a finding's span covers; where none ends with the span, the longest that starts there.

    Columns are in code points and 1-based in a finding, in UTF-8 bytes and 0-based in the tree: they agree where a line
    is ASCII, which is
    enough, because a call that is not found is only a probe less exact.
    """

    def __init__(self, place: Place, calls: Iterable[ast.Call]) -> None:
        starting = [call for call in calls if (call.lineno, call.col_offset + 1) == (place.row, place.column)]
        ending = [
            call for call in starting if (call.end_lineno, (call.end_col_offset or 0) + 1) == (place.end_row, place.end_column)
        ]
        self.exact = bool(ending)
        self.call = next(iter([*ending, *starting]), None)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if node is not self.call:
            return node
        return ast.copy_location(_call("forward", _later(node), ast.Constant(self.exact)), node)


class _WrapCalls(ast.NodeTransformer):
    """Wraps every call of a statement of which it is not known which one is the forward."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return ast.copy_location(_call("forward", _later(node)), node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node


class _Carried(ast.NodeTransformer):
    """Sends each argument that the statement assigns as well (a carried state) through the probe."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.names and isinstance(node.ctx, ast.Load):
            return ast.copy_location(_call("value", node), node)
        return node


def _set_keyword(node: ast.stmt, keyword: str) -> None:
    for call in [item for item in ast.walk(node) if isinstance(item, ast.Call)]:
        switched = [item for item in call.keywords if item.arg == keyword]
        for item in switched:
            item.value = _call("switch", item.value)
        if switched:  # the value that the backward starts from: `loss` of `loss.backward(…)`, of `autograd.grad(loss, …)`
            call.args = [argument if isinstance(argument, ast.Starred) else _call("root", argument) for argument in call.args]
            if isinstance(call.func, ast.Attribute):
                call.func.value = _call("root", call.func.value)


def _surroundings(tree: ast.Module) -> list[ast.stmt]:
    """Top-level statements that only define: imports, functions, classes, plain assignments; each guarded."""
    body = _Body()
    kept: list[ast.stmt] = []

    def keep(statements: Sequence[ast.stmt]) -> None:
        for node in statements:
            if _is_future(node):
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                kept.extend(body.statement(node))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                guarded = body._guard(node, [node.name])
                kept.append(guarded)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                kept.append(body._guard(node, _store_names(node)))
            elif isinstance(node, ast.Try):
                keep(node.body)
            elif isinstance(node, ast.If) and not _is_main(node):
                keep(node.body)
                keep(node.orelse)

    keep(tree.body)
    return kept


def _is_main(node: ast.If) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "__name__" for item in ast.walk(node.test))


def _soften(tree: ast.Module) -> None:
    """Class headers that stand-ins cannot serve: keywords other than those of the standard library go."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.keywords = []


def _guard_classes(tree: ast.Module, site: Site | None) -> None:
    """Guard every method of the file's classes: ``__init__`` and helpers are run with stand-ins too."""
    for klass in tree.body:
        if isinstance(klass, ast.ClassDef):
            klass.body = [node for node in klass.body if not _is_left_to_subclasses(node)] or [ast.Pass()]
            for node in klass.body:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (site is None or node not in site.around):
                    _Body().visit(node)


def _is_left_to_subclasses(node: ast.stmt) -> bool:
    """Whether a method says only that others implement it: it is not visible."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    last = node.body[-1]
    raised = last.exc if isinstance(last, ast.Raise) else None
    raised = raised.func if isinstance(raised, ast.Call) else raised
    words = all(isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) for item in node.body[:-1])
    return words and isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def modules_of(tree: ast.Module, klass: ast.ClassDef | None) -> frozenset[str]:
    """Names of attributes that a method of the class sets to a module: to an instance of a class of this file that has a
    ``forward``, or of ``torch.nn``'s."""
    if klass is None:
        return frozenset()
    with_forward = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in node.body)
    }
    found: set[str] = set()
    for node in ast.walk(klass):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        while (
            isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in {"to", "cuda", "eval"}
        ):
            value = value.func.value  # Encoder(…).to(device)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and isinstance(value, ast.Call):
            made = ast.unparse(value.func)
            if made in with_forward or re.fullmatch(r"(torch\.)?nn\.[A-Z]\w*", made):
                found.add(target.attr)
    return frozenset(found)


def set_later(klass: ast.ClassDef, attribute: str) -> Iterator[ast.Expression]:
    """What methods other than the initialiser set an attribute to, where it needs nothing but the receiver and the module."""
    for method in klass.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) or method.name == "__init__":
            continue
        own = {item.arg for item in ast.walk(method) if isinstance(item, ast.arg)} - {"self"} | set(_stored_in(method))
        for node in ast.walk(method):
            if not isinstance(node, ast.Assign) or isinstance(node.value, (ast.Constant, ast.Await, ast.Yield)):
                continue
            aimed = any(ast.unparse(target) == f"self.{attribute}" for target in node.targets)
            if aimed and not any(isinstance(item, ast.Name) and item.id in own for item in ast.walk(node.value)):
                yield ast.fix_missing_locations(ast.Expression(node.value))


def _stored_in(method: ast.AST) -> Iterator[str]:
    yield from (item.id for item in ast.walk(method) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store))


def definitions(tree: ast.Module) -> ast.Module:
    """Another module of the project: its definitions alone."""
    _soften(tree)
    _guard_classes(tree, None)
    return ast.fix_missing_locations(ast.Module(_surroundings(tree), []))


def whole(tree: ast.Module, site: Site, flaw: Flaw, level: int) -> ast.Module:
    """The file's definitions with the flagged function instrumented; at module level, the whole module."""
    rewrite = _Body(site, flaw, level)
    _soften(tree)
    _guard_classes(tree, site)
    if site.function is None:
        body = rewrite.block([node for node in tree.body if not _is_future(node)])
    else:
        outermost = next(node for node in site.around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
        rewrite.visit(outermost)
        body = _surroundings(tree)
    return ast.fix_missing_locations(ast.Module(body, []))


def plain(tree: ast.Module, site: Site, flaw: Flaw) -> ast.Module:
    """As ``whole``, with nothing sampled or corrected: loops and conditions are the harness's, each time that the flagged
    statement comes it is reported, and a flagged forward goes through the harness."""
    rewrite = _Plain(site, flaw)
    _soften(tree)
    _guard_classes(tree, site)
    if site.function is None:
        body = rewrite.block([node for node in tree.body if not _is_future(node)])
    else:
        rewrite.visit(next(node for node in site.around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))))
        body = _surroundings(tree)
    return ast.fix_missing_locations(ast.Module(body, []))


class _Plain(_Body):
    """Guards and conditions alone."""

    def __init__(self, site: Site, flaw: Flaw) -> None:
        super().__init__(site, None, len(site.loops))
        self._of_forward = flaw.correction in OF_FORWARDS

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        done = super().statement(node)
        if self.site is None or node is not self.site.statement:
            return done
        return [ast.copy_location(ast.Expr(_call("reached")), node), *done]

    def _probe(self, node: ast.stmt) -> None:
        if self._of_forward:
            self._wrap_call(node)

    def _probe_expression(self, value: ast.expr) -> ast.expr:
        holder = ast.Expr(value)
        if self._of_forward:
            self._wrap_call(holder)
        return holder.value


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def sliced(tree: ast.Module, site: Site, flaw: Flaw, level: int) -> ast.Module | None:
    """As ``whole``, with the flagged function's body cut down to the sampled loop, simple initialisers and the
    with-blocks around it."""
    if level >= len(site.loops):
        return None
    loop = site.loops[level]
    start = site.around.index(site.function) + 1 if site.function else 0
    position = next((index for index, node in enumerate(site.around) if node is loop), len(site.around))
    outside = site.around[start:position]
    block = site.function.body if site.function else tree.body
    closures = [node for node in block if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))] if site.function else []
    first: list[ast.stmt] = [*_initialisers(block, loop), *closures]
    names = {node.id for part in [loop, *closures] for node in ast.walk(part) if isinstance(node, ast.Name)}
    known = {name for node in first for name in _own_stores(node)}
    if site.function is not None:
        arguments = site.function.args
        known |= {item.arg for item in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
        known |= {item.arg for item in (arguments.vararg, arguments.kwarg) if item}
    local = {name for node in ast.walk(site.function or tree) if isinstance(node, ast.stmt) for name in _own_stores(node)}
    free = [
        ast.Assign([ast.Name(name, ast.Store())], _call("standin", ast.Constant(name)))
        for name in sorted((names & local) - known)
    ]  # fmt: skip
    kept: list[ast.stmt] = [loop]
    for node in reversed(outside):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            node.body = kept
            kept = [node]
    modes = [node for node in block if _is_mode_statement(node) and node.lineno < loop.lineno]
    body = [*free, *first, *modes, *kept]
    for node in body:
        if not hasattr(node, "lineno"):
            ast.copy_location(node, loop)
    if site.function is not None:
        site.function.body = body
        return whole(tree, site, flaw, level)
    definitions = _surroundings(tree)
    _soften(tree)
    return ast.fix_missing_locations(ast.Module([*definitions, *_Body(site, flaw, level).block(body)], []))


def _own_stores(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    return _store_names(statement)


def _is_mode_statement(node: ast.stmt) -> bool:
    """``torch.set_grad_enabled(False)`` and its like: a statement that decides what the loop's forward costs."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr in {"set_grad_enabled", "requires_grad_", "eval", "train"}
    )


def _initialisers(block: Sequence[ast.stmt], loop: ast.stmt) -> list[ast.stmt]:
    """Assignments before the loop whose value needs nothing else: literals, empty containers, tensors made of numbers."""
    plain: list[ast.stmt] = []
    for node in block:
        for item in [node, *(part for part in ast.walk(node) if isinstance(part, ast.stmt))]:
            if item.lineno >= loop.lineno or not isinstance(item, (ast.Assign, ast.AnnAssign)) or item.value is None:
                continue
            if item not in plain and _is_plain(item.value):
                plain.append(item)
    return plain


def _is_plain(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if isinstance(node, (ast.Lambda, ast.Await, ast.Yield, ast.Subscript, ast.comprehension)):
            return False
        if isinstance(node, ast.Name) and node.id not in {
            "torch",
            "list",
            "dict",
            "set",
            "defaultdict",
            "deque",
            "collections",
            "float",
            "int",
        }:
            parent_call = isinstance(value, ast.Call) and value.func is node
            if not parent_call:
                return False
    return True
