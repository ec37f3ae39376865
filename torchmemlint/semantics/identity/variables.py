"""What a file's own functions and statements do with its module-level variables."""

from __future__ import annotations

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.identity.frozen_by_callers import may_freeze
from torchmemlint.semantics.state import MODULE, World, memoized
from torchmemlint.torch_facts import TORCH


def is_free(world: World, ref: FunctionRef, text: str) -> bool:
    """Whether nothing in a function's file binds the name that a text begins with: the code is a part of something larger, which does."""
    return _is_free(world, ref, text.partition(".")[0].partition("[")[0])


@memoized
def _is_free(world: World, ref: FunctionRef, name: str) -> bool:
    module = world.project.module(ref.path)
    if any(local == name or local[0] == "*" for local, _ in module.imports):
        return False
    return not any(name in facts.locals for facts in module.functions) and not any(
        each.qualname == name for each in module.classes
    )


@memoized
def methods_called_on_variable(world: World, path: str, name: str) -> frozenset[str]:
    """The methods that a file calls on one of its module-level variables; "()" where it is called itself."""
    words = set()
    for facts in world.project.module(path).functions:
        if name in facts.locals and facts.qualname != MODULE:
            continue
        for call in facts.calls:
            receiver, _, method = call.callee.rpartition(".")
            if receiver == name:
                words.add(method)
            elif call.callee == name and call.args:
                words.add("()")
    return frozenset(words)


@memoized
def may_freeze_variable(world: World, path: str, name: str) -> bool:
    """Whether a file's own statements may leave a module frozen that one of its variables holds."""
    return may_freeze(world.facts(FunctionRef(path, MODULE)), name, methods_called_on_variable(world, path, name))


def trains_in(world: World, path: str) -> bool:
    """Whether any function of a file back-propagates."""
    return says_any(world, path, TORCH.words["backward-words"])


@memoized
def says_any(world: World, path: str, words: frozenset[str]) -> bool:
    """Whether any function of a file says one of these words (see ``FunctionFacts.names``)."""
    return any(facts.names & words for facts in world.project.module(path).functions)


@memoized
def texts_of_module(world: World, path: str) -> frozenset[str]:
    """The names that a module's own statements bind once, to a string."""
    lowered = world.lowered(path, MODULE)
    body = [] if lowered is None else lowered.functions[MODULE].body
    bound = [
        (target.id, each.value)
        for each in body
        if isinstance(each, ir.Assign)
        for target in each.targets
        if isinstance(target, ir.Name)
    ]
    names = [name for name, _ in bound]
    return frozenset(
        name for name, value in bound if names.count(name) == 1 and isinstance(value, ir.Const) and isinstance(value.value, str)
    )
