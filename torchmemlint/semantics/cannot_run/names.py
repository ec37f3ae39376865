"""Names that nothing binds, and imports of what is not there: by mistake, or since Python 2 and the first releases of torch."""

from __future__ import annotations

import builtins

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.cannot_run.reasons import KnownBy, Reason, Why
from torchmemlint.semantics.cannot_run.stores import file_meant, given_by_stars, is_declared_global, is_stored, may_bind_unseen
from torchmemlint.semantics.cannot_run.ways import Scopes, binders
from torchmemlint.semantics.text import dotted, short
from torchmemlint.semantics.world import MODULE, World
from torchmemlint.torch_facts import TORCH

BUILTINS = frozenset(dir(builtins)) | TORCH.words["names-of-ipython"]
OLD_BUILTINS = TORCH.words["builtins-of-python-2"]
OLD_NAMES = TORCH.words["removed-from-python"]
OLD_DICTS = TORCH.words["dict-methods-of-python-2"]
OLD_TORCH = TORCH.words["removed-from-torch"]
DICTS = TORCH.words["makes-dicts"]
STATE = TORCH.names["state"]
ANY_ATTRIBUTE = "__getattr__"
PACKAGE = "__init__.py"


def unbound(world: World, path: str, scopes: Scopes, name: ir.Name) -> Reason | None:
    """The reason, where reading a name raises NameError."""
    if name.id in BUILTINS or name.id.startswith("_") or any(name.id in function.locals for function in scopes):
        return None
    if not world.memoize(_is_unbound, (path, name.id)):
        return None
    if name.id in OLD_BUILTINS:
        return Reason(Why.OLD_PYTHON, KnownBy.RESOLVED, f"written for Python 2: `{name.id}` is no name of Python 3")
    return Reason(Why.NAME, KnownBy.RESOLVED, f"it cannot run: nothing binds the name `{short(name.id)}`, which is read before")


def _is_unbound(world: World, key: tuple[str, str]) -> bool:
    path, name = key
    for file in (path, *(world.memoize(given_by_stars, path) or ())):
        found = world.function(FunctionRef(file, MODULE))
        if found is None or name in found[0].locals or may_bind_unseen(world, file, False):
            return False
        if is_declared_global(world, file, name):
            return False
    return world.memoize(given_by_stars, path) is not None and not is_stored(world, name)


def removed(world: World, path: str, scopes: Scopes, expr: ir.Attr) -> Reason | None:
    """The reason, where an attribute is one that Python 3 does not have."""
    if expr.name in OLD_DICTS and is_dict(world, path, scopes, expr.value):
        return Reason(Why.OLD_PYTHON, KnownBy.RESOLVED, f"written for Python 2: a dict of Python 3 has no `{expr.name}`")
    text = dotted(expr)
    if text.count(".") != 1 or not any(name.rpartition(".")[2] == expr.name for name in OLD_NAMES):
        return None
    absolute = world.project.resolve(path, text, scopes[-1].qualname)
    if absolute in OLD_NAMES and world.project.imported(path, text.partition(".")[0]) == absolute.partition(".")[0]:
        return Reason(Why.OLD_PYTHON, KnownBy.RESOLVED, f"written for Python 2: Python 3 has no `{absolute}`")
    return None


def is_dict(world: World, path: str, scopes: Scopes, expr: ir.Expr) -> bool:
    """Whether an expression is a dict, and of no class of the project's."""
    match expr:
        case ir.DictDisplay():
            return True
        case ir.Call(func=ir.Attr(name=name)) if name == STATE and not expr.args:
            return not world.methods_named(STATE)
        case ir.Call():
            return world.project.outside(path, scopes[-1].qualname, dotted(expr.func)) in DICTS
        case ir.Name():
            within = next((each for each in reversed(scopes) if expr.id in each.locals), None)
            bound = binders(within, expr.id) if within is not None and within.qualname != MODULE else []
            if len(bound) == 1 and isinstance(bound[0], ir.Assign) and isinstance(bound[0].targets[0], ir.Name):
                given = any(param.name == expr.id for each in scopes for param in each.params)
                return not given and not isinstance(bound[0].value, ir.Name) and is_dict(world, path, scopes, bound[0].value)
    return False


def not_there(world: World, path: str, statement: ir.ImportStmt) -> Reason | None:
    """The reason, where an import raises ImportError."""
    for name, target in statement.bindings:
        if name.startswith("*"):
            continue
        old = next((each for each in (target, *_above(target)) if each in OLD_NAMES or each in OLD_TORCH), None)
        if old is not None and not world.project.is_inside(target) and not _is_beside(world, path, name, old):
            why, words = (
                (Why.OLD_TORCH, f"written for torch before 1.0, which had `{old}`")
                if old in OLD_TORCH
                else (Why.OLD_PYTHON, f"written for Python 2, which had `{old}`")
            )
            return Reason(why, KnownBy.RESOLVED, words)
        module, _, member = target.rpartition(".")
        if module and world.memoize(_lacks, (path, name, module, member)):
            return Reason(
                Why.IMPORT, KnownBy.RESOLVED, f"it cannot run: its file imports `{short(member)}`, which is not there"
            )
    return None


def _above(target: str) -> list[str]:
    parts = target.split(".")
    return [".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


def _is_beside(world: World, path: str, name: str, module: str) -> bool:
    """Whether a file of the project has the name of the module."""
    return bool(world.project.imported_file(path, name, module))


def _lacks(world: World, key: tuple[str, str, str, str]) -> bool:
    """Whether the file that a module surely is has nothing of a name."""
    path, name, module, member = key
    file = file_meant(world, path, name, module)
    if not file or file == path or file.endswith(PACKAGE):
        return False  # a package may have parts that are no Python files
    found = world.function(FunctionRef(file, MODULE))
    if found is None or member in found[0].locals or ANY_ATTRIBUTE in found[0].locals or may_bind_unseen(world, file):
        return False
    if is_declared_global(world, file, member) or is_stored(world, member):
        return False
    return not any("sys.modules" in line for line in world.lines(file))
