"""Networks that callers froze before they gave them: who may have done it, by the facts of functions."""

from __future__ import annotations

import re

from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.semantics.state import World, memoized
from torchmemlint.torch_facts import TORCH


def given_frozen(world: World, ref: FunctionRef, text: str) -> tuple[tuple[FunctionRef, str], ...]:
    """The callers that may have frozen the module of which a parameter, or a part of one, is called, each with its name for it: they go
    through its parameters or children, and mention freezing. ``text`` may name an element of a loop over parts, too, or a part of
    the object whose method the function is."""
    facts = world.facts(ref)
    params = {param.name for param in facts.params[bool(facts.owner) :]}
    root = text.partition(".")[0]
    if facts.owner and facts.params and root == facts.params[0].name:
        return _called_frozen(world, ref)
    if root not in params:
        root = dict(facts.bound).get(root, "").partition(".")[0].removesuffix("[]")
    return _given_frozen(world, ref, root, MAX_GIVERS) if root in params else ()


MAX_GIVERS = 2
"""Calls above the caller of a function to which a module is handed on from where it may be frozen."""


@memoized
def _given_frozen(world: World, ref: FunctionRef, parameter: str, above: int) -> tuple[tuple[FunctionRef, str], ...]:
    found: list[tuple[FunctionRef, str]] = []
    for caller, text in world.project.objects_given(ref, parameter):
        if _may_have_frozen(world, caller, text):
            found.append((caller, text))
        elif above and any(param.name == text for param in world.header(caller).params):
            found += _given_frozen(world, caller, text, above - 1)
    return tuple(found)


@memoized
def _called_frozen(world: World, ref: FunctionRef) -> tuple[tuple[FunctionRef, str], ...]:
    """The callers of a method, each with its name for the object, where all of them may have frozen that."""
    found = [(caller.ref, caller.call.callee.rpartition(".")[0]) for caller in world.project.callers(ref).calls]
    return tuple(found) if all(_may_have_frozen(world, *each) for each in found) else ()


def _may_have_frozen(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether a function, or the one around it whose variable it is, may have frozen what it calls by a text."""
    facts = world.facts(ref)
    if facts.parent and text.isidentifier() and text not in facts.locals:
        return _may_have_frozen(world, FunctionRef(ref.path, facts.parent), text)
    methods = world.evidence(ref).get(text, frozenset())
    return any(may_freeze(facts, text, methods) for facts in functions_that_know(world, ref, text))


def functions_that_know(world: World, ref: FunctionRef, text: str) -> tuple[FunctionFacts, ...]:
    """The functions in which what a function calls by a text goes by it: of an attribute all of its class."""
    facts = world.facts(ref)
    if facts.owner and text.partition(".")[0] == "self":
        return world.project.within(ref.path, facts.owner)
    return (facts,)


def may_freeze(facts: FunctionFacts, text: str, methods: frozenset[str]) -> bool:
    """Whether a function may leave the module frozen that it calls ``text`` and of which it calls the ``methods``: all of
    its parameters, as none is thawed."""
    if TORCH.words["freezing-methods"] & methods or any(
        "freeze" in call.callee and any(arg.name == text for arg in call.args) for call in facts.calls
    ):
        return True
    stored = facts.names & STORED_FLAGS
    if THAWED in facts.names or not (stored or TORCH.names["sets-gradient-flag"] in facts.names):
        return False
    if stored and NAMED & methods:
        return True  # `for name, p in net.named_parameters()`
    return any(
        value.startswith(f"{text}.") and value.endswith("[]") and not OF_SIZES.search(value)
        for _, value in (*facts.bound, *facts.rebound)
    )


NAMED = frozenset(name for name in TORCH.words["parameter-iterators"] if name.startswith("named_"))
"""Of what they give, loops take the names as well: facts do not say what such a pair is bound to."""
OF_SIZES = re.compile(rf"\.({'|'.join(sorted(TORCH.words['sizes']))})(\(\))?\[\]$")
"""Takes one of a tensor's sizes, and goes through no parameters."""
THAWED = "requires_grad=True"
STORED_FLAGS = frozenset({"requires_grad=False", "requires_grad="})
