"""What stands around a forward and is not visible: a decorator of another library may switch grad mode off."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.decorators import INERT
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.index.quiet import is_quiet
from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow, short
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.mode import purpose
from torchmemlint.semantics.state import MODULE, Graph, RecordFlag, World, memoized
from torchmemlint.torch_facts import TORCH


def unseen_wrapper(event: Graph, flow: Flow) -> Fact | None:
    """The doubt of a forward in a function that something wraps of which nothing is visible; it weighs more where the wrapper's name
    says that it evaluates."""
    wrapped = {ref: wrappers for ref in around(event, flow) if (wrappers := _unseen_wrappers(flow.runs.world, ref))}
    found = [wrapper for ref, wrappers in wrapped.items() if not trains(ref, flow) for wrapper in wrappers]
    if not found:
        return None
    by_name = [name for name in found if purpose.uses(name)]
    return assumed.wrapped(short((by_name or found)[0]), bool(by_name))


def trains(ref: FunctionRef, flow: Flow) -> bool:
    """Whether a function back-propagates in its own run: with grad mode off that would raise, so nothing around it disables it."""
    runs = flow.runs
    return any(RecordFlag.BACKWARD in record.flags for record in runs.records(runs.root_of(ref)))


def around(event: Graph, flow: Flow) -> Iterator[FunctionRef]:
    """The functions in which a forward runs, from its own to the root, and the callers from which the root has its grad mode."""
    number = event.site.frame
    while number >= 0:
        frame = flow.record.frames[number]
        yield frame.ref
        number = frame.parent
    for caller in flow.runs.world.project.grad_mode(flow.record.root).path:
        yield caller.ref


@memoized
def _unseen_wrappers(world: World, ref: FunctionRef) -> tuple[str, ...]:
    """The decorators above a function, or one around it, that are not visible and in no table, as written."""
    found: list[str] = []
    while ref.qualname != MODULE:
        facts = world.facts(ref)
        if facts.qualname != ref.qualname:
            ref = FunctionRef(ref.path, facts.qualname or MODULE)  # a lambda has the facts of the function around it
            continue
        found += [use.callee for use in facts.decorators if is_unseen(world, ref.path, facts.parent, use.callee)]
        ref = FunctionRef(ref.path, facts.parent or MODULE)
    return tuple(found)


def is_unseen(world: World, path: str, scope: str, name: str) -> bool:
    """Whether a decorator is of a library that may do anything, or made by a call whose result is unknown."""
    receiver, _, last = name.rpartition(".")
    project = world.project
    resolved = project.resolve(path, name, scope)
    if resolved is None or (receiver and world.symbol(resolved) is None and project.is_inside(resolved)):
        made = project.class_of(path, scope, receiver) if receiver else None
        if isinstance(made, ClassRef):
            return False
        return not (is_quiet(made) if made else last in INERT or last in ACCESSORS)
    if project.is_inside(resolved):
        return world.symbol(resolved) is None and last not in INERT
    return not (is_quiet(resolved) or last in INERT or TORCH.function_effect(resolved) is not None)


ACCESSORS = frozenset({"setter", "getter", "deleter"})
"""What a property gives: decorators of its other functions."""
