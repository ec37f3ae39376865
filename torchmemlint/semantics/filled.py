"""What the methods of a class put into a list or dict that an attribute of its objects holds."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.event_words import StoreKind
from torchmemlint.semantics.stores import STORING
from torchmemlint.semantics.text import dotted, text_of
from torchmemlint.semantics.walk import nodes_of
from torchmemlint.semantics.world import World

PUTS_ONE = frozenset(name for name, how in STORING.items() if how is not StoreKind.EXTEND) | {"setdefault"}
"""Methods of containers that keep their last argument."""


def filled_with(world: World, attribute: tuple[ClassRef, str]) -> ClassRef | None:
    """The class of all that the methods of a class put there one by one (``self.meters[name] = Meter()``); None where it is not known of
    any of it."""
    cls, name = attribute
    found: set[ClassRef | str | None] = set()
    for facts in world.within(cls.path, cls.qualname):
        ref = FunctionRef(cls.path, facts.qualname)
        function = world.function(ref) if name in facts.names and not facts.parent else None
        for value in put_into(function[0].body, f"self.{name}") if function is not None else ():
            if isinstance(value, ir.Const) and value.value is None:
                continue
            text = f"{dotted(value.func)}()" if isinstance(value, ir.Call) else dotted(value)
            found.add(world.project.class_of(ref.path, ref.qualname, text) if text.strip("()") else None)
    only = found.pop() if len(found) == 1 else None
    return only if isinstance(only, ClassRef) else None


def put_into(body: list[ir.Stmt], holder: str) -> Iterator[ir.Expr]:
    """What the statements of a block put into the container of that text."""
    for each in nodes_of(body):
        if isinstance(each, ir.Assign):
            if any(isinstance(target, ir.Subscript) and text_of(target.value) == holder for target in each.targets):
                yield each.value
        elif isinstance(each, ir.Call) and isinstance(each.func, ir.Attr) and text_of(each.func.value) == holder:
            if each.func.name in PUTS_ONE and each.args:
                yield each.args[-1].value
