"""What the text of the flagged function, or of its class, says of names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchmemlint.confirm.syntax import FunctionNode, last_name
from torchmemlint.confirm.worker.program.site import Site

OF_PARAMETERS = frozenset({"parameters", "named_parameters", "param_groups", "params"})


def over_parameters(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a loop runs over parameters: it is no loop of steps."""
    return not isinstance(loop, ast.While) and any(
        last_name(node) in OF_PARAMETERS for node in ast.walk(loop.iter) if isinstance(node, (ast.Name, ast.Attribute))
    )


def store_names(node: ast.AST) -> list[str]:
    """The names that a piece of code binds by assignment."""
    return [item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)]


def is_own(node: ast.Attribute) -> bool:
    """Whether it is an attribute of ``self``."""
    return isinstance(node.value, ast.Name) and node.value.id == "self"


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
    names |= options_of(site.function)
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
        if isinstance(target, ast.Attribute) and is_own(target)
    )


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
        own = {item.arg for item in ast.walk(method) if isinstance(item, ast.arg)} - {"self"} | set(store_names(method))
        for node in ast.walk(method):
            if not isinstance(node, ast.Assign) or isinstance(node.value, (ast.Constant, ast.Await, ast.Yield)):
                continue
            aimed = any(ast.unparse(target) == f"self.{attribute}" for target in node.targets)
            if aimed and not any(isinstance(item, ast.Name) and item.id in own for item in ast.walk(node.value)):
                yield ast.fix_missing_locations(ast.Expression(node.value))
