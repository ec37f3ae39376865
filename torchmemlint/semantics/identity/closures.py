"""Closures that leave the function that makes them: code that is not visible may call them as well."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import everything, names_inside, nodes_of
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.state import World, memoized, memoized_with_code
from torchmemlint.torch_facts import TORCH

LAMBDA = "<lambda>"
BACK_PROPAGATES = TORCH.words["back-propagates"]


def handed_out(world: World, ref: FunctionRef) -> frozenset[str]:
    """The closures of the outermost function around one that it returns, keeps in an attribute or container, or gives to what is not
    known, and those that these call; ``LAMBDA`` stands for lambdas of it."""
    return _handed_out(world, world.outermost(ref))


@memoized
def _handed_out(world: World, root: FunctionRef) -> frozenset[str]:
    closures: dict[str, list[ir.Function]] = {}
    left: set[str] = set()
    for node in everything(world.body(root)):
        if isinstance(node, ir.FunctionDef):
            closures.setdefault(node.function.name, []).append(node.function)
        elif isinstance(node, ir.Assign) and isinstance(node.value, ir.Lambda):
            for target in node.targets:
                if isinstance(target, ir.Name):
                    closures.setdefault(target.id, []).append(node.value.function)
        left.update(leaving(node))
        if isinstance(node, ir.Call) and is_unseen(world, root, node):
            left.update(name for arg in node.args for name in held(arg.value))
    out: set[str] = set()
    while todo := (left & closures.keys()) - out:
        out |= todo
        inside = [each for name in todo for function in closures[name] for each in everything(function.body)]
        left.update(each.id for each in inside if isinstance(each, ir.Name))
    lambdas = {name for name in out if any(function.name == LAMBDA for function in closures[name])}
    return frozenset(out | ({LAMBDA} if lambdas or LAMBDA in left else set()))


def is_unseen(world: World, root: FunctionRef, call: ir.Call) -> bool:
    """Whether nothing says what is called: a parameter, an attribute of an object that is not known."""
    text = dotted(call.func)
    project = world.project
    return not (
        hasattr(builtins, text)
        or project.callees(root.path, root.qualname, text).refs
        or project.resolve(root.path, text, root.qualname)
    )


def leaving(node: object) -> Iterator[str]:
    """The names of which a statement returns the value, or puts it into an attribute or container."""
    stored = isinstance(node, ir.Assign) and any(isinstance(target, (ir.Attr, ir.Subscript)) for target in node.targets)
    if isinstance(node, (ir.Return, ir.Assign)) and node.value is not None and (stored or isinstance(node, ir.Return)):
        yield from held(node.value)


def held(value: ir.Expr) -> Iterator[str]:
    """The names that a value is, or that it holds."""
    if isinstance(value, ir.Name):
        yield value.id
    elif isinstance(value, ir.Lambda):
        yield LAMBDA
    elif isinstance(value, ir.Sequence):
        for item in value.items:
            yield from held(item)
    elif isinstance(value, ir.DictDisplay):
        for _, item in value.items:
            yield from held(item)
    elif isinstance(value, ir.IfExp):
        yield from held(value.then)
        yield from held(value.orelse)


def asks_only_its_arguments(function: ir.Function) -> bool:
    """Whether a lambda calls nothing but methods of its own parameters, none of which back-propagates, and gives other values to the
    methods of tensors alone: no graph is in its reach."""
    own = {param.name for param in function.params}
    if function.name != LAMBDA or any(param.default is not None for param in function.params):
        return False
    calls = [node for node in everything(function.body) if isinstance(node, ir.Call)]
    return all(
        isinstance(call.func, ir.Attr)
        and call.func.name not in BACK_PROPAGATES
        and first_name(call.func) in own
        and (call.func.name in TORCH.methods or names_inside([arg.value for arg in call.args]) <= own)
        for call in calls
    )


def first_name(expr: ir.Expr) -> str:
    """The name from which a chain of attributes, calls and subscripts starts (``x.to(device)["rows"].float``); "" for another start."""
    while isinstance(expr, (ir.Attr, ir.Subscript, ir.Call)):
        expr = expr.func if isinstance(expr, ir.Call) else expr.value
    return expr.id if isinstance(expr, ir.Name) else ""


def function_or_closure(world: World, ref: FunctionRef) -> ir.Function | None:
    """The IR of a function, or of one right inside another; None for what is neither (a lambda)."""
    return _with_closures(world, world.outermost(ref)).get(ref.qualname)


@memoized_with_code
def _with_closures(world: World, ref: FunctionRef) -> dict[str, ir.Function]:
    """An outermost function and those right inside of it, by their qualified names; of several of one name, the first."""
    found = world.ir_of(ref)
    if found is None:
        return {}
    inside = [node.function for node in nodes_of(found.body) if isinstance(node, ir.FunctionDef)]
    return {each.qualname: each for each in reversed([found, *inside])}
