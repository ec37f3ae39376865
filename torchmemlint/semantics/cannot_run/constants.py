"""Tests that nothing in the project makes true: of a name, parameter or attribute that is only ever bound to one constant that is false."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchmemlint.index.arguments import argument_given
from torchmemlint.index.fact_words import AttrKind, ParamKind
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.cannot_run.reach import MAIN
from torchmemlint.semantics.cannot_run.reasons import KnownBy
from torchmemlint.semantics.cannot_run.stores import file_meant, is_declared_global, may_be_set, may_bind_unseen
from torchmemlint.semantics.cannot_run.ways import Scopes, binders
from torchmemlint.semantics.world import MODULE, World
from torchmemlint.torch_facts import TORCH

FALSE = {"None": None, "False": False, "0": 0, "0.0": 0.0, "''": ""}
"""The constants, as facts write them."""
MAX_IMPORTS = 4
"""Modules from which a name is imported by another in turn."""
BARE = TORCH.words["bare-bases"]


@dataclass(frozen=True, slots=True)
class Known:
    """A constant, and the text of what it is bound to, for messages."""

    value: object
    text: str
    known_by: KnownBy = KnownBy.RESOLVED


def decided(world: World, path: str, scopes: Scopes, test: ir.Expr) -> tuple[bool, Known] | None:
    """How a test comes out in every run, and what decides it; None where that is not known, or no name decides it."""
    match test:
        case ir.Unary(op="not"):
            found = decided(world, path, scopes, test.value)
            return None if found is None else (not found[0], found[1])
        case ir.BoolOp():
            sides = [decided(world, path, scopes, side) for side in (test.left, test.right)]
            ends = test.op == "or"
            return next((side for side in sides if side is not None and side[0] is ends), None)
        case ir.Compare(ops=["is" | "is not" | "==" | "!=" as op], comparators=[ir.Const(value=other)]):
            known = constant(world, path, scopes, test.left)
            if known is None or (op in ("is", "is not") and other is not None):
                return None
            same = known.value is None if other is None else known.value == other
            return same is (op in ("is", "==")), known
    known = constant(world, path, scopes, test)
    return None if known is None else (False, known)


def constant(world: World, path: str, scopes: Scopes, expr: ir.Expr) -> Known | None:
    """The constant that an expression is in every run."""
    match expr:
        case ir.Name():
            return _of_name(world, path, scopes, expr.id)
        case ir.Attr(value=ir.Name(id=owner)):
            return _of_attribute(world, path, scopes, owner, expr.name)
    return None


def _of_name(world: World, path: str, scopes: Scopes, name: str) -> Known | None:
    for function in reversed(scopes):
        if function.qualname != MODULE and name in function.locals:
            found = world.memoize(_parameter, (FunctionRef(path, function.qualname), name))
            if found is not None or any(param.name == name for param in function.params):
                return found if found is None or not binders(function, name) else None
            return _bound_once(binders(function, name), name)
    return world.memoize(of_module, (path, name, 0))


def _bound_once(places: list[object], name: str) -> Known | None:
    match places:
        case [ir.Assign(targets=[ir.Name()], value=ir.Const(value=value))] if value is None or repr(value) in FALSE:
            return Known(value, name)
    return None


def of_module(world: World, key: tuple[str, str, int]) -> Known | None:
    """The constant that a name of a module is, imports followed."""
    path, name, depth = key
    found = world.function(FunctionRef(path, MODULE))
    if found is None or may_bind_unseen(world, path) or is_declared_global(world, path, name):
        return None
    match places := binders(found[0], name):
        case [ir.ImportStmt(bindings=bindings)] if depth < MAX_IMPORTS:
            target = dict(bindings)[name]
            module, _, there = target.rpartition(".")
            file = file_meant(world, path, name, module or ".") if there else ""
            return world.memoize(of_module, (file, there, depth + 1)) if file else None
    known = _bound_once(places, name)
    if known is None or not world.project.is_part_of_program(path) or may_be_set(world, name):
        return None
    return known


def _parameter(world: World, key: tuple[FunctionRef, str]) -> Known | None:
    """The constant that a parameter is because no call gives it, and its default is one."""
    ref, name = key
    header = world.header(ref)
    param = next((each for each in header.params if each.name == name), None)
    if param is None or param.kind in (ParamKind.VAR_POSITIONAL, ParamKind.VAR_KEYWORD) or param.default not in FALSE:
        return None
    if ref.qualname == MAIN or not world.project.has_visible_users_alone(ref):
        return None  # a command's entry point gives what it likes
    calls = world.project.callers(ref).calls
    bound = header.owner and all(use.callee != "staticmethod" for use in header.decorators)
    params = header.params[1:] if bound else header.params
    for caller in calls:
        args = caller.call.args
        if any(arg.keyword in ("*", "**") for arg in args):
            return None
        for each in (args, args[1:]) if bound and not _is_method_call(caller.call.callee) else (args,):
            given = argument_given(params, name, each)
            if given is not None and given.const != param.default:
                return None
    return Known(FALSE[param.default], name, KnownBy.ALL_CALLERS) if calls else None


def _is_method_call(callee: str) -> bool:
    """Whether what is called is bound to its object for sure: a class's method may be given that as an argument."""
    return callee.startswith(("self.", "super()"))


def _of_attribute(world: World, path: str, scopes: Scopes, owner: str, name: str) -> Known | None:
    method = next((function for function in scopes if any(param.name == owner for param in function.params)), None)
    if method is None:
        return _of_imported_module(world, path, scopes, owner, name)
    header = world.header(FunctionRef(path, method.qualname))
    if not header.owner or header.params[0].name != owner or header.decorators or binders(method, owner):
        return None
    return world.memoize(_of_class, (ClassRef(path, header.owner), name))


def _of_imported_module(world: World, path: str, scopes: Scopes, module: str, name: str) -> Known | None:
    """``config.DEBUG``, where ``config`` is a module of the project that the file imports."""
    if any(module in function.locals for function in scopes if function.qualname != MODULE):
        return None
    target = dict(world.project.imports(path)).get(module, "")
    found = world.function(FunctionRef(path, MODULE))
    if not target or found is None or len(binders(found[0], module)) != 1:
        return None
    file = file_meant(world, path, module, target)
    return world.memoize(of_module, (file, name, 0)) if file else None


def _of_class(world: World, key: tuple[ClassRef, str]) -> Known | None:
    """The constant that an attribute of a class's objects is: wherever it is assigned, it is that, or a parameter of the constructor
    that no call gives."""
    cls, name = key
    project = world.project
    init = project.method(cls, "__init__")
    if init is None or not project.has_visible_users_alone(init):
        return None
    family = [*project.mro(cls), *project.subclasses(cls)]
    above = {base for each in family if isinstance(each, ClassRef) for base in project.mro(each)}
    if any(isinstance(base, str) and base not in BARE for base in above):
        return None
    values: dict[str, Known] = {}
    for each in sorted(base for base in above if isinstance(base, ClassRef)):
        if project.facts(each).decorators or project.method(each, name) or any(project.method(each, hook) for hook in BINDING):
            return None
        for fact in project.attrs(each):
            if fact.name != name:
                continue
            known = None
            if fact.kind is AttrKind.CONST and fact.const in FALSE:
                known = Known(FALSE[fact.const], name)
            elif fact.kind is AttrKind.NAME and fact.method.endswith(".__init__") and "." not in fact.value:
                known = _of_parameter_alone(world, FunctionRef(each.path, fact.method), fact.value)
            if known is None:
                return None
            values[repr(known.value)] = known
    if len(values) != 1 or may_be_set(world, name, [each for each in above if isinstance(each, ClassRef)]):
        return None
    return replace(next(iter(values.values())), text=f"self.{name}")


BINDING = ("__getattr__", "__getattribute__", "__setattr__", "__setstate__", "__init_subclass__", "__new__")
"""Methods by which an object may have other attributes than those that are assigned."""


def _of_parameter_alone(world: World, ref: FunctionRef, name: str) -> Known | None:
    found = world.function(ref)
    if found is None or binders(found[0], name):
        return None
    return world.memoize(_parameter, (ref, name))
