"""Options of constructors: what an attribute holds in every object of a class that visible code makes."""

from __future__ import annotations

from torchmemlint.index.arguments import argument_for
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.state import World, memoized


def is_never_chosen(world: World, cls: ClassRef, test: str) -> bool:
    """Whether a test of an attribute fails for every object that visible code makes: the constructor stores an option there, and all
    calls leave it at its default, or give the same literal."""
    name = test.removeprefix("not ").removeprefix("self.")
    if not name.isidentifier():
        return False
    return option_of(world, cls, name) == ("True" if test.startswith("not ") else "False")


@memoized
def option_of(world: World, cls: ClassRef, name: str) -> str:
    """The literal that an attribute holds in every object that is visibly made, as it is written; "" where that is not known."""
    held = [(fact, at) for fact, at in world.project.attr(cls, name) if not _is_never_called(world, at, fact.method)]
    init = FunctionRef(held[0][1].path, held[0][0].method) if len(held) == 1 else None
    if init is None or held[0][0].kind is not AttrKind.NAME or not init.qualname.endswith(".__init__"):
        return ""
    params = world.header(init).params[1:]
    callers = world.project.callers(init)
    if callers.escapes:
        return ""
    given = [argument_for(params, held[0][0].value, caller.call.args) for caller in callers.calls]
    literals = {arg.const if arg is not None else "" for arg in given}
    return literals.pop() if len(literals) == 1 else ""


def _is_never_called(world: World, cls: ClassRef, method: str) -> bool:
    """Whether nothing visible calls a method of a class, a setter for one, or hands it on."""
    if not method or method.endswith(".__init__"):
        return False
    callers = world.project.callers(FunctionRef(cls.path, method))
    return not callers.calls and not callers.escapes
