"""Whether a run can come to a place: by its function's own statements, by those of its file, by its callers'."""

from __future__ import annotations

from typing import NamedTuple

from torchmemlint.index.edges import Caller
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.cannot_run.attributes import undefined
from torchmemlint.semantics.cannot_run.binding import does_not_fit
from torchmemlint.semantics.cannot_run.constants import decided
from torchmemlint.semantics.cannot_run.definitions import INIT
from torchmemlint.semantics.cannot_run.names import not_there, removed, unbound
from torchmemlint.semantics.cannot_run.reasons import KnownBy, Reason, Why
from torchmemlint.semantics.cannot_run.stores import file_meant
from torchmemlint.semantics.cannot_run.ways import Scopes, Way, parts_of, way_through, way_to
from torchmemlint.semantics.text import dotted, short
from torchmemlint.semantics.walk import everything
from torchmemlint.semantics.world import MODULE, World

MAX_UP = 4
"""Calls over which it is looked for one that a run can come to."""
MAX_CALLERS = 6
MAX_IMPORTS = 2
"""Files that import each other and of which the last cannot be imported."""


class Place(NamedTuple):
    """A node of the IR of an outermost function, or of a module."""

    ref: FunctionRef
    node: int


def why_not_come_to(world: World, place: Place) -> Reason | None:
    """Why no run comes to a place of a function once it has been called, or why its definition is never reached."""
    return world.memoize(_blocked, place) or world.memoize(_not_defined, place.ref)


def _blocked(world: World, place: Place) -> Reason | None:
    found = world.function(place.ref)
    if found is None or _is_read_in_part(world, place.ref.path):
        return None
    return _of_way(world, place.ref.path, way_to(found[0], place.node))


def _is_read_in_part(world: World, path: str) -> bool:
    """Whether statements of a file may be missing, or may run in another order."""
    return path.endswith(".ipynb") or world.project.module(path).recovered


def _of_way(world: World, path: str, way: Way) -> Reason | None:
    for scopes, test, value in way.tests:
        known = decided(world, path, scopes, test)
        if known is not None and known[0] is not value:
            words = f"it is never reached: `{short(known[1].text)}` is always {known[1].value!r}"
            return Reason(Why.CONSTANT, known[1].known_by, words)
    for scopes, each in way.ran:
        reason = raises(world, path, scopes, each)
        if reason is not None:
            return reason
    return None


def raises(world: World, path: str, scopes: Scopes, expr: ir.Expr | ir.ImportStmt) -> Reason | None:
    """Why an expression, or an import, raises whatever its names hold."""
    if isinstance(expr, ir.ImportStmt):
        return not_there(world, path, expr)
    for part in parts_of(expr):
        reason = None
        match part:
            case ir.Name():
                reason = unbound(world, path, scopes, part)
            case ir.Attr():
                reason = removed(world, path, scopes, part) or undefined(world, path, scopes, part)
            case ir.Call() if does_not_fit(world, path, scopes, part):
                words = f"it cannot run: the call of `{short(dotted(part.func))}(…)` before does not fit its parameters"
                reason = Reason(Why.CALL, KnownBy.RESOLVED, words)
        if reason is not None:
            return reason
    return None


def _not_defined(world: World, ref: FunctionRef) -> Reason | None:
    """Why the ``def`` of an outermost function is never reached: its file raises before."""
    found = world.function(FunctionRef(ref.path, MODULE)) if ref.qualname != MODULE else None
    if found is None or _is_read_in_part(world, ref.path):
        return None
    name = ref.qualname.partition(".")[0]
    places = [
        each.node
        for each in everything(found[0].body)
        if (isinstance(each, ir.FunctionDef) and each.function.name == name)
        or (isinstance(each, ir.ClassDef) and each.name == name)
    ]
    way = way_to(found[0], places[0]) if len(places) == 1 else Way()
    return _of_way(world, ref.path, way) or _imports(world, ref.path, way, 0)


def _imports(world: World, path: str, way: Way, depth: int) -> Reason | None:
    """Why a file that is imported on the way cannot be imported itself."""
    for _, statement in way.ran:
        for name, target in statement.bindings if isinstance(statement, ir.ImportStmt) else ():
            module = target.rpartition(".")[0]
            for each in (target, module):
                file = file_meant(world, path, name, each) if each.strip(".") else ""
                if file and file != path and depth < MAX_IMPORTS:
                    reason = world.memoize(_unimportable, (file, depth + 1))
                    if reason is not None:
                        return reason
    return None


def _unimportable(world: World, key: tuple[str, int]) -> Reason | None:
    path, depth = key
    found = world.function(FunctionRef(path, MODULE))
    if found is None or _is_read_in_part(world, path):
        return None
    way = way_through(found[0])
    for scopes, each in way.ran:
        reason = raises(world, path, scopes, each)
        if reason is not None:
            words = f"it cannot run: the import of {short(world.project.module_name(path))} fails"
            return Reason(reason.why, reason.known_by, words)
    return _imports(world, path, way, depth)


def why_not_entered(world: World, ref: FunctionRef) -> Reason | None:
    """Why no run comes to a call of a function: there are calls, all are visible, and each is at a place that no run comes to."""
    return world.memoize(_not_entered, (ref, 0))


def _not_entered(world: World, key: tuple[FunctionRef, int]) -> Reason | None:
    ref, depth = key
    if depth == MAX_UP or ref.qualname == MODULE:
        return None
    header = world.header(ref)
    if header.owner and not header.decorators and world.memoize(_is_never_made, ClassRef(ref.path, header.owner)):
        words = f"nothing in the project makes an object of `{short(header.owner)}`"
        return Reason(Why.UNUSED_CLASS, KnownBy.ALL_CALLERS, words)
    if not world.project.has_visible_users_alone(ref):
        return None
    calls = [caller for caller in world.project.callers(ref).calls if caller.ref != ref]
    if not calls or len(calls) > MAX_CALLERS:
        return None
    reason = None
    for caller in calls:
        reason = _call_is_blocked(world, caller, depth)
        if reason is None:
            return None
    return reason


def _is_never_made(world: World, cls: ClassRef) -> bool:
    """Whether nothing calls a class, or one below it, each of which has a constructor of its own."""
    classes = [cls, *world.project.subclasses(cls)]
    for each in classes:
        init = FunctionRef(each.path, f"{each.qualname}.{INIT}")
        if world.project.method(each, INIT) != init or not world.project.has_visible_users_alone(init):
            return False
        for caller in world.project.callers(init).calls:
            owner = world.header(caller.ref).owner
            if not caller.call.callee.endswith(f".{INIT}") or ClassRef(caller.ref.path, owner) not in classes:
                return False
    return True


def _call_is_blocked(world: World, caller: Caller, depth: int) -> Reason | None:
    outermost = world.outermost(caller.ref)
    found = world.function(outermost)
    if found is None or caller.call.deferred:
        return None
    nodes = [
        each.node
        for each in everything(found[0].body)
        if isinstance(each, ir.Call) and dotted(each.func) == caller.call.callee and len(each.args) == len(caller.call.args)
    ]
    reasons = [why_not_come_to(world, Place(outermost, node)) for node in nodes]
    if reasons and all(reasons):
        return reasons[0]
    return world.memoize(_not_entered, (outermost, depth + 1))
