"""Functions whose arguments a cache of functools keeps: it is their decorator, or one of the project hands them to it."""

from __future__ import annotations

import ast

from torchmemlint.index.facts import CallableUse, FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH

CACHES = TORCH.words["caches"]
DEFAULT_SIZE = 128
"""Calls that ``lru_cache`` keeps."""


@memoized
def cache_of(world: World, ref: FunctionRef, decorator: str) -> CallableUse | None:
    """The cache, with its arguments, that a decorator of the function, by its text, is or hands the function to."""
    use = next((each for each in world.header(ref).decorators if each.callee == decorator), None)
    if use is None or is_cache(world, ref, decorator):
        return use
    for maker in world.project.callees(ref.path, ref.qualname, decorator).refs:
        for facts in world.project.within(maker.path, maker.qualname):
            found = handed_to(world, FunctionRef(maker.path, facts.qualname), facts)
            if found is not None:  # the maker's own `*args` are what the decorator is given
                return CallableUse(found.callee, use.args, True) if gives_all_on(found) else found
    return None


def is_cache(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a text in a function names a cache of functools."""
    if text.rpartition(".")[2] not in CACHES:
        return False
    found = world.project.outside(ref.path, ref.qualname, text)
    return found is not None and found.removeprefix("functools.") in CACHES


def handed_to(world: World, ref: FunctionRef, facts: FunctionFacts) -> CallableUse | None:
    """The cache that a function hands its own parameter to (``lru_cache(maxsize=8)(function)``), for as long as what it returns lives."""
    params = {param.name for param in facts.params}
    for call in facts.calls:
        made = call.callee.removesuffix("()")
        if not call.args or call.args[0].keyword or call.args[0].name not in params or not is_cache(world, ref, made):
            continue
        if made == call.callee:
            return CallableUse(made, (), False)
        return next((CallableUse(made, each.args, True) for each in facts.calls if each.callee == made), None)
    return None


def gives_all_on(use: CallableUse) -> bool:
    """Whether a cache is given the arguments of the function around it, whatever they are."""
    return any(arg.keyword in ("*", "**") for arg in use.args)


def entries_of(use: CallableUse) -> int | None:
    """How many calls a cache keeps; None for all."""
    if use.callee.rpartition(".")[2] == "cache":
        return None
    given = next((arg for arg in use.args if arg.keyword in ("", "maxsize")), None)
    if given is None or not given.const:
        return DEFAULT_SIZE
    size = ast.literal_eval(given.const)
    return size if isinstance(size, int) else None
