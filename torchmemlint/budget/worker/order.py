"""Which layer of a module a tensor goes to first: by the code of its ``forward``, as the order of registration is another."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch

DEEPEST = 6
"""So many modules within each other are looked into."""


def first_layer(module: Any, names: set[str], wants: Callable[[Any], bool], depth: int = 0) -> Any:
    """The first layer of which ``wants`` holds that a tensor of these names in the forward is given to; None where none is found."""
    if depth > DEEPEST:
        return None
    if isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList)):
        found = (_within(item, 0, "", wants, depth) for item in module)
        return next((item for item in found if item is not None), None)
    return _in_function(module, type(module).forward, names, wants, depth)


def _within(module: Any, place: int, keyword: str, wants: Callable[[Any], bool], depth: int) -> Any:
    """The layer itself, or the first within it that its argument goes to."""
    if wants(module):
        return module
    if isinstance(module, torch.nn.Sequential):
        return first_layer(module, set(), wants, depth + 1)
    if type(module).__module__.startswith("torch."):
        return None
    name = keyword or _parameter(type(module).forward, place)
    return first_layer(module, {name}, wants, depth + 1) if name else None


def _in_function(module: Any, function: Any, names: set[str], wants: Callable[[Any], bool], depth: int) -> Any:
    tree = _tree(function)
    names = set(names)
    loops: dict[str, Any] = {}
    for node in _in_order(tree) if tree is not None else ():
        if isinstance(node, ast.For):
            loops |= _looped(module, node)
        elif isinstance(node, ast.Assign):
            if names & _named(node.value):
                names |= {item.id for target in node.targets for item in ast.walk(target) if isinstance(item, ast.Name)}
        elif isinstance(node, ast.Call):
            given = [(at, "") for at, item in enumerate(node.args) if names & _named(item)]
            given += [(0, item.arg) for item in node.keywords if item.arg and names & _named(item.value)]
            if not given:
                continue
            found = _called(module, node.func, given[0], loops, wants, depth)
            if found is not None:
                return found
    return None


def _called(
    module: Any, node: ast.expr, given: tuple[int, str], loops: Mapping[str, Any], wants: Callable[[Any], bool], depth: int
) -> Any:
    callee = loops.get(node.id) if isinstance(node, ast.Name) else _of_self(module, node)
    if isinstance(callee, torch.nn.Module):
        return _within(callee, *given, wants, depth)
    if inspect.ismethod(callee) and callee.__self__ is module and depth < DEEPEST:
        name = given[1] or _parameter(callee.__func__, given[0])
        return _in_function(module, callee.__func__, {name}, wants, depth + 1) if name else None
    return None


def _of_self(module: Any, node: ast.expr) -> Any:
    """``self.a``, ``self.a.b`` or ``self.layers[0]``."""
    if isinstance(node, ast.Name):
        return module if node.id == "self" else None
    if isinstance(node, ast.Attribute):
        owner = _of_self(module, node.value)
        return getattr(owner, node.attr, None) if isinstance(owner, torch.nn.Module) else None
    owner = _of_self(module, node.value) if isinstance(node, ast.Subscript) else None
    return owner[0] if isinstance(owner, torch.nn.ModuleList) and len(owner) else None


def _looped(module: Any, node: ast.For) -> dict[str, Any]:
    """The variable of a loop over layers is the first of them."""
    for item in ast.walk(node.iter):
        layers = _of_self(module, item) if isinstance(item, (ast.Attribute, ast.Subscript)) else None
        if isinstance(layers, (torch.nn.ModuleList, torch.nn.Sequential)) and len(layers):
            return {part.id: layers[0] for part in ast.walk(node.target) if isinstance(part, ast.Name)}
    return {}


def _named(node: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}


def _parameter(function: Any, place: int) -> str:
    names = list(inspect.signature(function).parameters)[1:]
    return names[place] if place < len(names) else ""


def _in_order(tree: ast.AST) -> Iterable[ast.AST]:
    """Calls and assignments as they are run, the argument of a call before the call; a loop before what is in it."""
    nodes = [item for item in ast.walk(tree) if isinstance(item, (ast.Call, ast.Assign, ast.For))]

    def place(node: Any) -> tuple[int, int]:
        last: Any = node.iter if isinstance(node, ast.For) else node
        return int(last.end_lineno), int(last.end_col_offset)

    return sorted(nodes, key=place)


@lru_cache(256)
def _tree(function: Any) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
