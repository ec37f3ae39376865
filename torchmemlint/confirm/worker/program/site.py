"""Where a finding stands in its file: the statement, in what is around it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchmemlint.confirm.syntax import FunctionNode, target_of
from torchmemlint.confirm.worker.program.ask import HARNESS
from torchmemlint.rules.card import Correction

LoopNode = ast.For | ast.AsyncFor | ast.While
EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


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
    def outermost(self) -> FunctionNode | None:
        """The outermost function around the line, None at module level."""
        return next((node for node in self.around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))), None)

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
    target = target_of(statement)
    if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and ast.unparse(target.func.value) == HARNESS:
        target = target.args[0]  # the probe around it
    while isinstance(target, ast.Starred) or (isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant)):
        target = target.value
    return target if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) else None


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
            if isinstance(node, EXITS):
                return int(node.lineno)
    return 0
