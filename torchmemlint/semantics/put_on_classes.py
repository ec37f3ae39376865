"""Methods that a file puts on a class from outside: ``Model.sample = sample``."""

from __future__ import annotations

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.text import dotted
from torchmemlint.semantics.walk import nodes_of
from torchmemlint.semantics.world import MODULE, World


def put_on_class(world: World, path: str, name: str) -> FunctionRef | None:
    """The function that a file's own statements put on a class as a method of that name: one whose first parameter is ``self``."""
    if not world.project.is_stored_in(path, name):
        return None
    return world.memoize(_put_on_classes, path).get(name)


def _put_on_classes(world: World, path: str) -> dict[str, FunctionRef]:
    found = world.function(FunctionRef(path, MODULE))
    out: dict[str, FunctionRef] = {}
    for node in nodes_of(found[0].body) if found is not None else ():
        match node:
            case ir.Assign(targets=[ir.Attr(name=name)], value=ir.Name() | ir.Attr() as value):
                absolute = world.project.resolve(path, dotted(value), MODULE)
                method = world.project.function(absolute) if absolute is not None else None
                params = world.header(method).params if method is not None else ()
                if method is not None and params and params[0].name == "self":
                    out[name] = method
    return out
