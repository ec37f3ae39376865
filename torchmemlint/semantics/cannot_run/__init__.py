"""Does it run? Why a place of the code is never reached, or raises before it is: certain, or no answer at all.

reasons    the answer
reach      functions that a visible program does not reach
places     whether a run can come to a place; ways: what happens before; constants, definitions, binding, names: what decides it
"""

from __future__ import annotations

from collections.abc import Iterable

from torchmemlint.index.project import FunctionRef
from torchmemlint.semantics.cannot_run.places import Place, why_not_come_to, why_not_entered
from torchmemlint.semantics.cannot_run.reach import is_left_over, is_unreached
from torchmemlint.semantics.cannot_run.reasons import KnownBy, Reason, Why
from torchmemlint.semantics.legacy import why_dead
from torchmemlint.semantics.text import short
from torchmemlint.semantics.world import World

__all__ = ["KnownBy", "Place", "Reason", "Why", "why_left", "why_not_run"]

UNUSED_FILE = Reason(Why.UNUSED_FILE, KnownBy.ALL_CALLERS, "nothing in the project imports or runs this file")
UNUSED_FUNCTION = Reason(Why.UNUSED_FUNCTION, KnownBy.ALL_CALLERS, "nothing in the project calls this function")
IN_TESTS = Reason(Why.TEST, KnownBy.NAME, "it is part of a unit test")


def why_not_run(world: World, root: FunctionRef, places: Iterable[Place]) -> Reason | None:
    """Why nothing but tests runs a function, or no run of it comes to the last of these places, each of which is a call that leads to the next;
    None where one may."""
    if world.project.is_unused_file(root.path):
        return UNUSED_FILE
    if not world.is_hook(root) and world.project.is_unused_function(world.outermost(root)):
        return UNUSED_FUNCTION
    if world.project.is_test(root):
        return IN_TESTS
    words = why_dead(world, root)
    if words:
        return Reason(Why.OLD_TORCH, KnownBy.RESOLVED, words)
    for place in places:
        reason = why_not_come_to(world, place)
        if reason is not None:
            return reason
    return why_not_entered(world, world.outermost(root))


def why_left(world: World, ref: FunctionRef, asked: Why) -> Reason | None:
    """Whether a function is ``UNREACHED``, or ``LEFT_OVER``, which weigh less: a rule asks where its mistake costs nothing in code that
    a library's users alone may call."""
    if is_unreached(world, ref) if asked is Why.UNREACHED else is_left_over(world, ref):
        return Reason(asked, KnownBy.ALL_CALLERS, f"nothing in the project calls `{short(ref.qualname)}`")
    return None
