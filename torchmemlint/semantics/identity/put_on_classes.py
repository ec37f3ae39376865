"""Methods that a file puts on a class or a module from outside: ``Model.sample = sample``, ``model.forward = f.__get__(model)``."""

from __future__ import annotations

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import everything, nodes_of
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.state import MODULE, World, memoized
from torchmemlint.torch_facts import TORCH


def put_on_class(world: World, path: str, name: str) -> FunctionRef | None:
    """The function that a file's own statements put on a class as a method of that name: one whose first parameter is ``self``."""
    if not world.project.is_stored_in(path, name):
        return None
    return _put_on_classes(world, path).get(name)


@memoized
def _put_on_classes(world: World, path: str) -> dict[str, FunctionRef]:
    out: dict[str, FunctionRef] = {}
    for node in nodes_of(world.body(FunctionRef(path, MODULE))):
        match node:
            case ir.Assign(targets=[ir.Attr(name=name)], value=ir.Name() | ir.Attr() as value):
                absolute = world.project.resolve(path, dotted(value), MODULE)
                method = world.project.function(absolute) if absolute is not None else None
                params = world.header(method).params if method is not None else ()
                if method is not None and params and params[0].name == "self":
                    out[name] = method
    return out


def is_put_as_forward(world: World, ref: FunctionRef) -> bool:
    """Whether a function of a file stands in the place of some module's forward there: as it is, or bound to the module."""
    if ref.qualname == MODULE or not world.project.is_stored_in(ref.path, FORWARD):
        return False
    return ref in _put_as_forward(world, ref.path)


@memoized
def _put_as_forward(world: World, path: str) -> frozenset[FunctionRef]:
    found: set[FunctionRef] = set()
    saying = {world.outermost(ref) for ref in world.project.functions_saying(FORWARD) if ref.path == path}
    for ref in sorted(saying):
        for node in everything(world.body(ref)):
            if isinstance(node, ir.Assign) and any(
                isinstance(target, ir.Attr) and target.name == FORWARD for target in node.targets
            ):
                absolute = world.project.resolve(path, dotted(unbound(node.value)), ref.qualname)
                function = world.project.function(absolute) if absolute is not None else None
                found |= {function} if function is not None else set()
    return frozenset(found)


def unbound(value: ir.Expr) -> ir.Expr:
    """The function in ``f.__get__(model)``, ``types.MethodType(f, model)`` or ``functools.partial(f, model)``; else the value itself."""
    match value:
        case ir.Call(func=ir.Attr(value=function, name="__get__")):
            return function
        case ir.Call(func=maker, args=[ir.Arg(value=function), *_]) if dotted(maker).rpartition(".")[2] in BINDS:
            return function
        case _:
            return value


FORWARD = TORCH.names["forward"]
BINDS = TORCH.words["binds-methods"]
