"""Whether a module's name is bound where a fix uses it, or where its import would go."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from torchmemlint.findings import Position
from torchmemlint.source.lines import Lines

_Def = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OWN_SCOPE = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)


class Refused(Exception):
    """The module's name is bound to something else, so an import would change what the file means."""


def is_bound(tree: ast.Module, module: str, at: Position) -> bool:
    """Whether code written at ``at`` can use ``module`` by its name. Raises Refused.

    Code inside a function runs later, so any import at module level serves it, and one of its own above it does too; code
    outside functions (a decorator is outside) needs an import above it.
    """
    inside = list(_functions_around(tree, at))
    for function in inside:
        if any(row < at.row for row in _imports(function.body, module)):
            return True
    rows = list(_imports(tree.body, module))
    if any(row < at.row or inside for row in rows):
        return True
    if not rows and any(_binds_otherwise(node, module) for node in _own_nodes(tree.body)):
        raise Refused
    return False


def insertion_row(lines: Lines, tree: ast.Module, module: str, before: Position) -> int:
    """The row before which ``import MODULE`` goes, at most one past the last.

    Before the first import from that module where that is early enough for the code at ``before``; else after the imports
    at the top of the file, or its docstring and ``__future__`` imports, or the comments that it begins with.
    """
    groups = list(_shared_rows(tree.body))
    for first, _, statements in groups:
        if first <= before.row and all(_is_import(one) for one in statements) and _is_import_of(statements[0], module):
            return first
    preamble = _leading(groups, lambda one: _is_future(one) or (one is tree.body[0] and _is_docstring(one)))
    imports = _leading(groups[preamble:], _is_import)
    if imports:
        return groups[preamble + imports - 1][1] + 1
    if preamble:
        row = groups[preamble - 1][1] + 1
        return row + 1 if row < len(lines) and not lines.row(row).strip() else row
    row = 1
    while row < len(lines) and lines.row(row).lstrip().startswith("#"):
        row += 1
    return row


def _functions_around(tree: ast.AST, at: Position) -> Iterator[_Def]:
    """Functions whose body holds a position: decorators and defaults run where the function is made, not in it."""
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            first = node.body[0]
            within = _first_row(first) <= at.row <= _last_row(node)
            if within and (at.row > node.lineno or at.column > first.col_offset):
                yield node


def _own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes that run in the scope of ``body`` at run time: not inside functions and classes, nor under TYPE_CHECKING."""
    for node in body:
        yield node
        if isinstance(node, _OWN_SCOPE):
            continue
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            yield from _own_nodes(node.orelse)
        else:
            yield from _own_nodes(ast.iter_child_nodes(node))


def _imports(body: Iterable[ast.AST], module: str) -> Iterator[int]:
    """Rows where ``import module``, ``import module.part`` or ``import module as module`` binds the name."""
    for node in _own_nodes(body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                if bound == module and (alias.asname is None or alias.name == module):
                    yield node.lineno


def _binds_otherwise(node: ast.AST, module: str) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any((alias.asname or alias.name) == module for alias in node.names)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node.name == module
    return isinstance(node, ast.Name) and node.id == module and isinstance(node.ctx, ast.Store)


def _shared_rows(body: Sequence[ast.stmt]) -> Iterator[tuple[int, int, list[ast.stmt]]]:
    """First row, last row and statements of each stretch in which statements share rows (``import os; import sys``)."""
    group: list[ast.stmt] = []
    for statement in body:
        if group and _first_row(statement) > _last_row(group[-1]):
            yield _first_row(group[0]), _last_row(group[-1]), group
            group = []
        group.append(statement)
    if group:
        yield _first_row(group[0]), _last_row(group[-1]), group


def _leading(groups: Sequence[tuple[int, int, list[ast.stmt]]], wanted: Callable[[ast.stmt], bool]) -> int:
    """How many of the first groups hold a wanted statement and lie in one run."""
    count = 0
    for _, _, statements in groups:
        if not any(wanted(statement) for statement in statements):
            break
        count += 1
    return count


def _first_row(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _last_row(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Import, ast.ImportFrom))


def _is_import_of(statement: ast.stmt, module: str) -> bool:
    if isinstance(statement, ast.ImportFrom):
        names = [statement.module or ""] if statement.level == 0 else []
    else:
        names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
    return any(name.partition(".")[0] == module for name in names)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    )


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"
