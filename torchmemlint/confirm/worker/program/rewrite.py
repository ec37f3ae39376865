"""Rewrites the statements of a function, so that it runs on stand-ins under the harness."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchmemlint.confirm.syntax import FunctionNode
from torchmemlint.confirm.worker.program.ask import Transformer, ask, later
from torchmemlint.confirm.worker.program.probes import Probe
from torchmemlint.confirm.worker.program.site import EXITS, LoopNode, Site, place_of
from torchmemlint.confirm.worker.program.visible import changing, is_own, kept_options, options_of, over_parameters, store_names
from torchmemlint.rules.card import Correction


class Body(Transformer):
    """Rewrites the statements of the flagged function (or of any function of its class, then without a site).

    ``level`` numbers the loop that is sampled, the innermost is 0; ``correction`` is that of the flaw, where loops depend on it.
    """

    def __init__(
        self, site: Site | None = None, probe: Probe | None = None, level: int = 0, correction: Correction | None = None
    ) -> None:
        self.site, self._probe, self._correction = site, probe, correction
        self.loops = site.loops if site else ()
        self.level = min(level, len(self.loops))  # of the sampled loop, if there is one
        self.lenient = False  # an initialiser that checks its arguments would refuse stand-ins
        self.inside = False  # a function; nested ones are left alone unless they hold the line
        self.inside_sampled = False  # at any depth: a return or raise would end the experiment
        self.ends_here = False  # the innermost loop is the sampled one: so would a break
        self._changing: tuple[frozenset[str], frozenset[str]] | None = None

    def visit_FunctionDef(self, node: FunctionNode) -> ast.AST:
        if self.inside and not self._holds(node):
            return node
        before, self.inside = self.inside, True
        self.lenient = node.name == "__init__"
        node.body = self.block(node.body)
        self.inside = before
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def _holds(self, node: ast.AST) -> bool:
        return self.site is not None and any(node is item for item in self.site.around)

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
                part.context_expr = ask("context", later(part.context_expr), ast.Constant(ast.unparse(part.context_expr)[:80]))
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

    def _loop(self, node: LoopNode, flagged: bool) -> ast.stmt:
        number = next((index for index, loop in enumerate(self.loops) if loop is node), -1)
        sampled = number == self.level
        before = self.inside_sampled, self.ends_here
        self.inside_sampled, self.ends_here = sampled or self.inside_sampled, sampled
        role = "sample" if sampled else "around" if number > self.level else "within" if number >= 0 else "other"
        if flagged and self._probe is not None and not isinstance(node, ast.While):
            node.iter = self._probe.expression(node.iter)
        if self._correction is Correction.FREE and not sampled and over_parameters(node):
            node.body = self.block(node.body)  # all of them, as often as there are parameters
            self.inside_sampled, self.ends_here = before
            return node
        if isinstance(node, ast.While):
            node.test = ask("while_", ast.Constant(role), ast.Constant(node.lineno), later(node.test))
        elif isinstance(node, ast.For):
            node.iter = ask("loop", ast.Constant(role), later(node.iter))
        else:
            node.iter = ask("aloop", ast.Constant(role), later(node.iter))
        node.body = self.block(node.body)
        if sampled and self.site is not None:
            place = place_of(self.site.statement)
            if place is not None:
                watched = ast.parse(ast.unparse(place), mode="eval").body
                node.body.insert(0, ast.copy_location(ast.Expr(ask("look", later(watched))), node))
        self.inside_sampled, self.ends_here = before
        node.orelse = self.block(node.orelse) if node.orelse and not sampled else []
        return node

    def _if(self, node: ast.If, flagged: bool) -> ast.stmt:
        wanted: ast.expr = ast.Constant(None)
        if self._holds(node):
            inside = any(self.site is not None and item is self.site.statement for part in node.body for item in ast.walk(part))
            wanted = ast.Constant(inside)
        elif (
            self.site is not None and node.lineno < self.site.place.row and not node.orelse and isinstance(node.body[-1], EXITS)
        ):
            wanted = ast.Constant(False)  # a way out before the flagged line
        if flagged and self._probe is not None:
            node.test = self._probe.expression(node.test)
        varies = self._varies(node.test) or (not self._holds(node) and isinstance(node.body[-1], ast.Raise))
        options = options_of(self.site.function) if self.site is not None else frozenset()
        kept = kept_options(self.site.klass) if self.site is not None else frozenset()
        asks = any(
            (isinstance(item, ast.Name) and item.id in options)
            or (isinstance(item, ast.Attribute) and is_own(item) and item.attr in kept)
            for item in ast.walk(node.test)
        )
        node.test = _OfNone().visit(node.test)
        node.test = ask("branch", wanted, ast.Constant(varies), ast.Constant(asks), ast.Constant(node.lineno), later(node.test))
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
        value = self._probe.expression(node.value) if flagged and self._probe is not None else node.value
        if self.inside_sampled:
            return [guard(ast.copy_location(ast.Expr(value), node), [])]
        name = "__tml_result__"
        assign = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)
        return [guard(assign, [name]), ast.copy_location(ast.Return(ast.Name(name, ast.Load())), node)]

    def _simple(self, node: ast.stmt, flagged: bool) -> list[ast.stmt]:
        names = [] if isinstance(node, (ast.Import, ast.ImportFrom)) else store_names(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [(item.asname or item.name).split(".")[0] for item in node.names if item.name != "*"]
        if flagged and self._probe is not None:
            self._probe.statement(node)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List)):
            parts = node.targets[0].elts
            if not any(isinstance(part, ast.Starred) for part in parts) and not isinstance(
                node.value, (ast.Tuple, ast.Yield, ast.Await)
            ):
                node.value = ask("fit", node.value, ast.Constant(len(parts)))
        return [guard(node, names)]


def guard(node: ast.stmt, names: Sequence[str]) -> ast.stmt:
    """The statement in a ``try`` that notes what it raises, and binds stand-ins to these names."""
    bind: list[ast.stmt] = [
        ast.Assign([ast.Name(name, ast.Store())], ask("standin", ast.Constant(name))) for name in dict.fromkeys(names)
    ]
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
        made = node.targets[0]
        if isinstance(made, ast.Attribute) and isinstance(made.value, ast.Name):  # self.drop = nn.Dropout(p)
            place = ast.Attribute(ast.Name(made.value.id, ast.Load()), made.attr, ast.Store())
            bind.append(ast.Assign([place], ask("standin", ast.Constant(made.attr))))
    note = ast.Expr(ask("failed", ast.Constant(node.lineno), ast.Name("__tml_error__", ast.Load())))
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), "__tml_error__", [note, *bind])
    guarded = ast.Try(body=[node], handlers=[handler], orelse=[], finalbody=[])
    return ast.copy_location(guarded, node)


def _asks_for_none(node: ast.AST) -> bool:
    """Whether a node is a comparison with None."""
    return isinstance(node, ast.Compare) and any(
        isinstance(each, ast.Constant) and each.value is None for each in node.comparators
    )


class _OfNone(Transformer):
    """Passes each ``x is None`` to the harness: for a stand-in, the answer is unknown."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return node
        if not (isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None):
            return node
        node.left = ask("asked", node.left)
        return node
