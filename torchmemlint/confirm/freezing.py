"""Where code around a flagged function switches parameters' ``requires_grad`` off: the run of that function does not show it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchmemlint.confirm.syntax import FunctionNode, functions_in, is_definition, last_name, names_in

_PARAMETERS = frozenset({"parameters", "named_parameters"})
_OF_ALL = frozenset({"list", "tuple", "iter", "enumerate"})
"""Calls around ``parameters()`` that leave none of them out."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """A statement that freezes parameters.

    row     of the statement, or of the call of a function that has it
    owner   the module, as the code names it; "" where that is not known
    part    only some of its parameters are meant
    """

    row: int
    owner: str
    part: bool = False


def frozen_near(tree: ast.Module, function: str, forward: str, modules: Mapping[str, ast.Module]) -> str:
    """Which line may freeze all that a flagged forward trains, "" for none. ``forward`` is what is called there, as the code names it
    ("" where that is not known); ``modules`` are those of the project that the file imports."""
    near = _near(tree, function, modules)
    freezing = {
        scope.name: scope for module in [*modules.values(), tree] for scope in functions_in(module) if any(freezes_in(scope))
    }
    found = [freeze for top in near for freeze in freezes_in(top)]
    for top in near:
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and (scope := freezing.get(last_name(node.func))) is not None:
                found += _at_call(node, scope)
    names = _Names(tree, function)
    for freeze in sorted(found, key=lambda freeze: freeze.row):
        if not freeze.part and names.may_be(forward, freeze.owner):
            return f"line {freeze.row} freezes " + (f"parameters of `{freeze.owner}`" if freeze.owner else "parameters")
    return ""


def freezes_in(scope: ast.AST) -> Iterator[Freeze]:
    """The freezing statements of a scope, those of functions inside included."""
    yield from _freezes(scope, ())


def _freezes(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[Freeze]:
    owner: ast.expr | None = None
    single = False  # an assignment freezes a tensor; of a module it would do nothing
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False:
        owner = next(
            (item.value for item in node.targets if isinstance(item, ast.Attribute) and item.attr == "requires_grad"), None
        )
        single = True
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value is False:
            owner = node.func.value
    if owner is not None and isinstance(node, (ast.Assign, ast.Call)):
        yield _freeze(node.lineno, owner, single, around)
    for child in ast.iter_child_nodes(node):
        yield from _freezes(child, (*around, node))


def _freeze(row: int, owner: ast.expr, single: bool, around: Sequence[ast.AST]) -> Freeze:
    """``for p in net.parameters(): p.requires_grad = False`` is about the net; with a condition on ``p``, about a part of it."""
    for index in range(len(around) - 1, -1, -1):
        loop = around[index]
        if not isinstance(loop, (ast.For, ast.AsyncFor)) or not isinstance(owner, ast.Name):
            continue
        counted = {item.id for item in ast.walk(loop.target) if isinstance(item, ast.Name)}
        if owner.id not in counted:
            continue
        asked = {
            item.id for node in around[index + 1 :] if isinstance(node, ast.If)
            for item in ast.walk(node.test) if isinstance(item, ast.Name)
        }  # fmt: skip
        part = bool(asked & counted)
        source = loop.iter
        while isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id in _OF_ALL and source.args:
            source = source.args[0]
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and source.func.attr in _PARAMETERS:
            return Freeze(row, ast.unparse(source.func.value), part)
        return Freeze(row, "", part or isinstance(source, ast.Subscript))
    return Freeze(row, ast.unparse(owner), single)


def _at_call(call: ast.Call, scope: FunctionNode) -> Iterator[Freeze]:
    """What a function of the project freezes, as its caller names it."""
    parameters = [item.arg for item in [*scope.args.posonlyargs, *scope.args.args]]
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_method = bool(parameters) and parameters[0] in {"self", "cls"}
    given: dict[str, ast.expr] = dict(zip(parameters[is_method:], call.args, strict=False))
    given |= {item.arg: item.value for item in call.keywords if item.arg}
    if is_method and receiver is not None:
        given[parameters[0]] = receiver
    for freeze in freezes_in(scope):
        root, dot, rest = freeze.owner.partition(".")
        if root in given:
            yield replace(freeze, row=call.lineno, owner=f"{ast.unparse(given[root])}{dot}{rest}")
        else:
            yield replace(freeze, row=call.lineno, owner="")


class _Names:
    """What the flagged function's names may stand for."""

    def __init__(self, tree: ast.Module, function: str) -> None:
        self._tree = tree
        own = function.rpartition(".")[2]
        scopes = [scope for scope in functions_in(tree) if scope.name == own]
        self._parameters = {item.arg for scope in scopes for item in ast.walk(scope.args) if isinstance(item, ast.arg)} - {
            "self"
        }
        self._own = own
        self._scopes = scopes
        self._methods = {
            node.name
            for klass in tree.body
            if isinstance(klass, ast.ClassDef) and klass.name == function.split(".", 1)[0]
            for node in functions_in(klass)
        }

    def may_be(self, forward: str, owner: str) -> bool:
        """Whether all parameters of ``forward`` may be among those of ``owner``."""
        if not forward or not owner:
            return True
        root, _, rest = forward.partition(".")
        if root in {"self", "super()"} and (not rest or rest.split(".")[0] in self._methods):
            return owner.split(".", 1)[0] == "self"
        if f"{forward}.".startswith(f"{owner}.") or _last(forward) == _last(owner):
            return True
        return any(_last(owner) in names_in(value) for value in self._values(root))

    def _values(self, name: str) -> Iterator[ast.expr]:
        """What a name of the flagged function is set to, or its callers in the file pass for it."""
        for scope in self._scopes:
            for node in ast.walk(scope):
                if isinstance(node, ast.Assign) and any(name in names_in(target) for target in node.targets):
                    yield node.value
                elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and name in names_in(node.target):
                    yield node.iter
        if name in self._parameters:
            for node in ast.walk(self._tree):
                if isinstance(node, ast.Call) and last_name(node.func) == self._own:
                    yield from [*node.args, *(item.value for item in node.keywords)]


def _near(tree: ast.Module, function: str, modules: Mapping[str, ast.Module]) -> list[ast.stmt]:
    """The function's class, the bases of it that are visible, and the module's own statements."""
    outermost = function.split(".", 1)[0]
    near = [node for node in tree.body if not is_definition(node) or getattr(node, "name", "") == outermost]
    classes: dict[str, ast.ClassDef] = {}
    for module in [tree, *modules.values()]:
        classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)} | classes
    waiting, seen = [outermost], set()
    while waiting:
        name = waiting.pop()
        if name not in classes or name in seen:
            continue
        seen.add(name)
        if classes[name] not in near:
            near.append(classes[name])
        waiting += [ast.unparse(base).rsplit(".", 1)[-1] for base in classes[name].bases]
    return near


def _last(name: str) -> str:
    return name.rpartition(".")[2]
