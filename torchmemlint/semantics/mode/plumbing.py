"""Which functions of the project cannot touch a tensor: they handle names, files, settings.

A run does not follow calls of them, which in a large package would take up a fifth of it, and much of what it may look at.

A run does not follow calls of them, which in a large package would take up a fifth of it, and much of what it may look at.
"""

from __future__ import annotations

import builtins
import sys

from torchmemlint.index.facts import CallFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.mode import root_choice
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH

WORDS = TORCH.words["of-tensors"]
"""A function with one of these words works on tensors or modules, or changes what others see."""
PACKAGES = sys.stdlib_module_names | TORCH.words["plain-packages"]
"""Packages outside whose functions give no tensors or modules."""
BUILTINS = frozenset(dir(builtins))
MOST_FUNCTIONS = 100
"""Functions that are looked at for one answer."""
SMALL = 6
"""Rows of a function that is followed in any case: what a constant or an attribute it returns decides more than it costs."""


def plumbing_names(world: World, ref: FunctionRef) -> frozenset[str] | None:
    """The words of a function that cannot touch a tensor unless it is given one, or finds one in an attribute, and of all that it
    calls; None for any other function, as for one that defines functions, which may be given tensors later. To be memoized."""
    if world.header(ref).is_generator or _is_small(world, ref):
        return None
    words: set[str] = set()
    seen = {ref}
    waiting = [ref]
    while waiting:
        own = _look(world, waiting.pop())
        if own is None or len(seen) > MOST_FUNCTIONS:
            return None
        words |= own[0]
        waiting += own[1] - seen
        seen |= own[1]
    return frozenset(words)


@memoized
def _is_small(world: World, ref: FunctionRef) -> bool:
    return world.length(ref) < SMALL


@memoized
def _look(world: World, ref: FunctionRef) -> tuple[frozenset[str], frozenset[FunctionRef]] | None:
    """A function's own words, and the functions that it calls; None where these words or calls may have to do with tensors."""
    cls = world.class_of_method(ref)
    words: set[str] = set()
    called: set[FunctionRef] = set()
    for each, facts in root_choice.family(world, ref):
        if facts.names & WORDS or each != ref:
            return None
        words |= facts.names
        kept = {use.callee for use in facts.returned} | {text.removesuffix("()") for _, text in (*facts.bound, *facts.rebound)}
        for callee, keywords, given in {(call.callee, call.keywords, _given(call)) for call in facts.calls}:
            # Nothing runs on nothing; what such a call gives may be a module.
            matters = given is not None or callee in kept
            found = _mapped(world, each, given) if callee == "map" else _reached(world, each, cls, callee, keywords, matters)
            if found is None:
                return None
            called.update(found)
    return frozenset(words), frozenset(called)


def _mapped(world: World, ref: FunctionRef, given: str | None) -> tuple[FunctionRef, ...] | None:
    """The functions that a ``map`` in ``ref`` runs; None where they are not known."""
    if not given or given in BUILTINS:
        return ()  # a lambda's calls are those of the function around it
    return world.project.callees(ref.path, ref.qualname, given).refs or None


def _reached(
    world: World, ref: FunctionRef, cls: ClassRef | None, callee: str, keywords: tuple[str, ...], matters: bool
) -> tuple[FunctionRef, ...] | None:
    """The functions that a call in ``ref``, of the class ``cls``, reaches; None where the call may run a module. ``matters``: the
    call is given something, or its result is kept."""
    project = world.project
    if callee == "cls" and cls is not None and world.is_module_class(cls) is False:
        return ()
    absolute = project.resolve(ref.path, callee, ref.qualname)
    if absolute is not None:
        symbol = world.symbol(absolute)
        if symbol is None and absolute.partition(".")[0] not in PACKAGES:
            return None
        if isinstance(symbol, ClassRef) and world.is_module_class(symbol) is not False:
            return None
    found = project.callees(ref.path, ref.qualname, callee, *keywords).refs
    unknown = not found and absolute is None and matters
    return None if unknown and root_choice.may_be_module(world, ref, cls, callee) else found


def _given(call: CallFact) -> str | None:
    """Text of the first argument of a call, None where it has none but literals."""
    return call.args[0].name if any(not arg.const for arg in call.args) else None
