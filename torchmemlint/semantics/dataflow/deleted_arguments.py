"""Helpers that delete their own name of an object that was handed to them, while a name of a caller keeps it alive.

``del`` removes one name. As in ``released``, names are followed by the text of the functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import changes_nothing, names_bound
from torchmemlint.lower.walk import names_inside, nodes_of, walk
from torchmemlint.lower.ways import header
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.dataflow.released_names import Placed, excludes, text_of_function
from torchmemlint.semantics.mode import DEVICE_WORDS, reaches
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH

MAX_NAMES = 3
NEEDS = DEVICE_WORDS | TORCH.words["back-propagates"] | TORCH.words["makes-model"] | TORCH.words["loop-of-forwards"]
"""Words of calls that take memory on a device."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """``del name`` of a parameter, or of what a loop takes out of one."""

    node: int
    name: str
    param: str


@dataclass(frozen=True, slots=True)
class Held:
    """A call after which names of the caller still refer to what the helper was given, while the program goes on."""

    caller: FunctionRef
    node: int
    names: tuple[str, ...]


@memoized
def deleted(world: World, ref: FunctionRef) -> Deleted | None:
    """The first ``del`` of a function by which it means to free what it was given; None where it does more with that than to ask
    about it: it may move it, or shut it down."""
    function = world.ir_of(ref)
    if function is None:
        return None
    statements = [one.statement for one in text_of_function(world, ref)[0]]
    params = {param.name for param in function.params}.difference(*map(names_bound, function.body))
    of = {name: name for name in params}
    for one in statements:
        if (
            isinstance(one, ir.For)
            and isinstance(one.target, ir.Name)
            and isinstance(one.iterable, ir.Name)
            and one.iterable.id in params
        ):
            of[one.target.id] = one.iterable.id
    for one in statements:
        if isinstance(one, ir.Delete):
            for target in one.targets:
                if isinstance(target, ir.Name) and target.id in of and not is_used(world, ref, {target.id, of[target.id]}):
                    return Deleted(one.node, target.id, of[target.id])
    return None


def is_used(world: World, ref: FunctionRef, names: set[str]) -> bool:
    """Whether something is done with one of the names: it is called, handed on to what is not known to keep nothing, stored or given
    back."""
    for node in nodes_of(world.body(ref)):
        match node:
            case ir.Call() if names_inside(node) & names:
                if world.project.resolve(ref.path, dotted(node.func), ref.qualname) not in TORCH.inert_calls:
                    return True
            case ir.Assign() | ir.Return() | ir.Yield() | ir.Comprehension() if names_inside(node) & names:
                return True
            case ir.Delete() if any(not isinstance(each, ir.Name) and names_inside(each) & names for each in node.targets):
                return True  # a part of it goes
            case _:
                pass
    return False


def held(world: World, ref: FunctionRef, gone: Deleted) -> Held | None:
    """The first call, of those that are visible, after which the caller still holds the object and the program goes on to need
    memory."""
    found = world.ir_of(ref)
    assert found is not None
    params = found.params
    calls = world.project.callers(ref).calls
    for caller in sorted({each.ref for each in calls if world.outermost(each.ref) == each.ref}):
        named = {each.call.callee for each in calls if each.ref == caller}
        statements, _ = text_of_function(world, caller)
        for place, one in enumerate(statements):
            for call in calls_in(one.statement):
                if dotted(call.func) in named:
                    given = argument(params, gone.param, call, bool(world.header(ref).owner))
                    names = [name for name in given if is_held(world, caller, statements, place, name)]
                    if names:
                        return Held(caller, call.node, tuple(names[:MAX_NAMES]))
    return None


def calls_in(statement: ir.Stmt) -> Iterator[ir.Call]:
    """The calls that a statement itself makes, without those of its blocks."""
    return (node for expr, _ in header(statement) for node in walk(expr) if isinstance(node, ir.Call))


def argument(params: list[ir.Param], name: str, call: ir.Call, is_method: bool) -> list[str]:
    """The names and attributes that a call hands over for a parameter: by itself, in a display, or as one of several."""
    if any(arg.star for arg in call.args):
        return []
    position = [param.name for param in params].index(name) - is_method
    given = [arg.value for arg in call.args if arg.keyword == name]
    positional = [arg.value for arg in call.args if arg.keyword is None]
    if not given:
        several = params[position + is_method].kind is ParamKind.VAR_POSITIONAL
        given = positional[position:] if several else positional[position : position + 1]
    items = [item for each in given for item in (each.items if isinstance(each, ir.Sequence) else [each])]
    return [text for item in items if isinstance(item, ir.Name | ir.Attr) and (text := dotted(item))]


def is_held(world: World, caller: FunctionRef, statements: list[Placed], place: int, name: str) -> bool:
    """Whether a name of the caller outlives the call while the program goes on to need memory: nothing uses the name any more, and
    nothing deletes it, or binds it to nothing, before the device is needed again."""
    call = statements[place]
    root = name.partition(".")[0]
    if root != "self" and root in {param.name for param in world.header(caller).params}:
        return False  # who handed it over holds it as well
    again = [
        one
        for one in statements[:place]
        if binds(one.statement, name) and one.loops and one.loops == call.loops[: len(one.loops)]
    ]
    if root != "self" and not any(binds(one.statement, name) for one in statements):
        return False
    needed = False
    for one in statements[place + 1 :]:
        if excludes(one.tests, call.tests):
            continue
        statement = one.statement
        if isinstance(statement, ir.Delete) and name in map(dotted, statement.targets):
            return False
        if binds(statement, name):
            assert isinstance(statement, ir.Assign)
            return not changes_nothing(statement.value) and needs_memory(world, caller, statement)
        if root in names_inside(statement) and any(
            isinstance(node, ir.Name | ir.Attr) and dotted(node) == name for node in walk(statement)
        ):
            return False
        needed = needed or needs_memory(world, caller, statement)
        if isinstance(statement, ir.Return | ir.Raise) and one.tests <= call.tests and one.loops == call.loops:
            return needed
    return needed or any(needs_memory(world, caller, one.statement) for one in again)


def binds(statement: ir.Stmt, name: str) -> bool:
    """Whether a statement binds a name or attribute, alone or as one of several."""
    return isinstance(statement, ir.Assign) and any(
        dotted(part) == name
        for target in statement.targets
        for part in (target.items if isinstance(target, ir.Sequence) else [target])
    )


def needs_memory(world: World, caller: FunctionRef, statement: ir.Stmt) -> bool:
    """Whether a statement puts something on a device, loads or trains a model, or calls a function of the project that does."""
    for call in calls_in(statement):
        text = dotted(call.func)
        if text.rpartition(".")[2] in NEEDS:
            return True
        called = world.project.callees(caller.path, caller.qualname, text).refs if text else ()
        if any(reaches(world, each, NEEDS) for each in called):
            return True
    return False
