"""Which layer of a module a tensor goes to first, and what changes its layout on the way (``self.conv(x.permute(0, 2, 1))``): by the
code of its ``forward``, as the order of registration is another."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch

from torchmemlint.budget.worker.putoff import Layout

DEEPEST = 6
"""So many modules within each other are looked into."""
LAYOUTS = frozenset({"permute", "transpose", "swapaxes", "unsqueeze", "squeeze"})
"""Calls that change where the sizes stand, and none of them."""
_DIMENSIONS = frozenset({"dim", "dim0", "dim1", "axis0", "axis1", "dims"})

Wants = Callable[[Any, Layout], bool]
Found = tuple[Any, Layout]


def first_layer(module: Any, names: Mapping[str, Layout], wants: Wants, depth: int = 0) -> Found | None:
    """The first layer of which ``wants`` holds that a tensor of these names in the forward is given to, and the changes of layout
    between the tensor and the layer, in order; None where none is found. ``names`` has for each name the changes that were made before."""
    if depth > DEEPEST:
        return None
    if isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList)):
        before = next(iter(names.values()), ())
        found = (_within(item, 0, "", before, wants, depth) for item in module)
        return next((item for item in found if item is not None), None)
    return _in_function(module, type(module).forward, names, wants, depth)


def _within(module: Any, place: int, keyword: str, before: Layout, wants: Wants, depth: int) -> Found | None:
    """The layer itself, or the first within it that its argument goes to."""
    if wants(module, before):
        return module, before
    if isinstance(module, torch.nn.Sequential):
        return first_layer(module, {"": before}, wants, depth + 1)
    if type(module).__module__.startswith("torch."):
        return None
    name = keyword or _parameter(type(module).forward, place)
    return first_layer(module, {name: before}, wants, depth + 1) if name else None


def _in_function(module: Any, function: Any, names: Mapping[str, Layout], wants: Wants, depth: int) -> Found | None:
    tree = _tree(function)
    names = dict(names)
    loops: dict[str, Any] = {}
    for node in _in_order(tree) if tree is not None else ():
        if isinstance(node, ast.For):
            loops |= _looped(module, node)
        elif isinstance(node, ast.Assign):
            before = _way(node.value, names)
            if before is not None:
                names |= {item.id: before for target in node.targets for item in ast.walk(target) if isinstance(item, ast.Name)}
        elif isinstance(node, ast.Call):
            given = [(at, "", before) for at, item in enumerate(node.args) if (before := _way(item, names)) is not None]
            given += [
                (0, item.arg, before) for item in node.keywords if item.arg and (before := _way(item.value, names)) is not None
            ]
            if not given:
                continue
            found = _called(module, node.func, given[0], loops, wants, depth)
            if found is not None:
                return found
    return None


def _called(
    module: Any, node: ast.expr, given: tuple[int, str, Layout], loops: Mapping[str, Any], wants: Wants, depth: int
) -> Found | None:
    callee = loops.get(node.id) if isinstance(node, ast.Name) else _of_self(module, node)
    if isinstance(callee, torch.nn.Module):
        return _within(callee, *given, wants, depth)
    if inspect.ismethod(callee) and callee.__self__ is module and depth < DEEPEST:
        name = given[1] or _parameter(callee.__func__, given[0])
        return _in_function(module, callee.__func__, {name: given[2]}, wants, depth + 1) if name else None
    return None


def _way(node: ast.AST, names: Mapping[str, Layout]) -> Layout | None:
    """The changes of layout between a tensor of these names and an expression that it is in; None where it is not."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    inner = next((way for item in ast.iter_child_nodes(node) if (way := _way(item, names)) is not None), None)
    if inner is None:
        return None
    if isinstance(node, ast.Subscript) and _way(node.value, names) is not None:
        return (*inner, *_index(node.slice))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in LAYOUTS:
        return inner
    function = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    given = [*node.args[function:], *(item.value for item in node.keywords if item.arg in _DIMENSIONS)]
    numbers = [number for item in given for number in _numbers(item)]
    return inner if None in numbers else (*inner, (node.func.attr, tuple(number for number in numbers if number is not None)))


def _index(key: ast.expr) -> Layout:
    """``x[:, :, t]`` takes one element of the last dimension: 1 for each dimension that is kept, 0 for others."""
    parts = key.elts if isinstance(key, ast.Tuple) else []
    if not any(isinstance(part, ast.Slice) for part in parts) or any(_is_other(part) for part in parts):
        return ()
    return (("index", tuple(int(isinstance(part, ast.Slice)) for part in parts)),)


def _is_other(part: ast.expr) -> bool:
    """Whether a part of an index is no slice and no number of an element."""
    return isinstance(part, (ast.List, ast.Tuple, ast.Compare, ast.Starred)) or (
        isinstance(part, ast.Constant) and type(part.value) is not int
    )


def _numbers(node: ast.expr) -> list[int | None]:
    """The literal integers of an argument; None for what is none."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return [number for item in node.elts for number in _numbers(item)]
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return [None]
    return [value if type(value) is int else None]


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
