"""Who takes out again what an attribute of an object collects: how long that lives is said by other methods than the one that fills it."""

from __future__ import annotations

import re

from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.semantics.mode import callees
from torchmemlint.semantics.state import World, is_batch_hook, memoized
from torchmemlint.torch_facts import TORCH

TAKES_OUT = TORCH.words["empties"]
"""Methods of containers that take elements out."""
FILLS = TORCH.words["fills-lists"]
DELETES = re.compile(r"^\s*del\b|\[:\]\s*=[^=]")
"""Lines that may take elements out of a list."""
SETS_ANY = frozenset({"setattr", "__dict__"})
"""Words of a function that may set any attribute of its object."""
MAX_UP = 3
"""Calls over which it is looked for what runs a method that empties."""


@memoized
def emptied_by(world: World, cls: ClassRef, name: str) -> frozenset[FunctionRef]:
    """The functions, but constructors, that may empty the container that an attribute of a class's objects holds, or put another one
    there. Where a function is given the container, it is one if that function may."""
    family = _family(world, cls)
    found = {
        FunctionRef(each.path, fact.method)
        for each in family
        for fact in world.project.attrs(each)
        if fact.name == name and fact.method and not is_constructor(fact.method)
    }
    for ref in world.project.functions_saying(name):
        facts = world.facts(ref)
        if (
            ref not in found
            and not is_constructor(ref.qualname)
            and _may_empty(world, ref, facts, name, _holder(facts, ref, family))
        ):
            found.add(ref)
    for each in family:
        for method in world.project.saying(each.path, each.qualname, *sorted(SETS_ANY)):
            if not is_constructor(method):
                found.add(FunctionRef(each.path, method))
    return frozenset(found)


def _family(world: World, cls: ClassRef) -> frozenset[ClassRef]:
    """The classes of which an object of a class may be, as far as its attributes go."""
    return frozenset(each for each in (*world.project.mro(cls), *world.project.subclasses(cls)) if isinstance(each, ClassRef))


def _holder(facts: FunctionFacts, ref: FunctionRef, family: frozenset[ClassRef]) -> str:
    """What an object of these classes does not go by in a function: in a method of another class ``self`` is none."""
    return "self" if facts.owner and ClassRef(ref.path, facts.owner) not in family else ""


@memoized
def is_only_filled(world: World, cls: ClassRef, name: str) -> bool:
    """Whether the constructor makes what an attribute holds, methods of the class add to it, and nothing in the project reads it, sets it
    or takes anything out: it only grows."""
    facts = [fact for fact, _ in world.project.attr(cls, name)]
    if not facts or any(fact.kind is not AttrKind.LIST or not is_constructor(fact.method) for fact in facts):
        return False
    if world.project.is_looked_up(name) or emptied_by(world, cls, name):
        return False
    return all(_only_fills(world.facts(ref), name) for ref in world.project.functions_saying(name))


def _only_fills(facts: FunctionFacts, name: str) -> bool:
    """Whether a function that says the name of an attribute makes it for an object, or adds to it, and does nothing else with it."""
    taken = any(
        text.rpartition(".")[2] == name for text in (*facts.reads, *(text for _, text in (*facts.bound, *facts.rebound)))
    )
    called = [call.callee for call in facts.calls if name in call.callee.split(".")]
    fills = all(
        callee == f"self.{name}.{callee.rpartition('.')[2]}" and callee.rpartition(".")[2] in FILLS for callee in called
    )
    return not taken and fills and (bool(called) or is_constructor(facts.qualname))


def is_constructor(qualname: str) -> bool:
    return qualname.endswith("__init__")


def _may_empty(world: World, ref: FunctionRef, facts: FunctionFacts, name: str, other: str) -> bool:
    """Whether a function that says the name of an attribute takes elements out of what an object holds there, or out of what it has
    under a name of its own, or sets it. ``other`` is what no such object goes by there."""
    lines = world.lines_of(ref)
    if not any(f".{name}" in line for line in lines):
        return False  # it has a name of its own that is the same
    if any(_takes_out(call, name, other) for call in facts.calls):
        return True
    given = [
        call
        for call in facts.calls
        if any(arg.name.rpartition(".")[2] == name and arg.name.partition(".")[0] != other for arg in call.args)
    ]
    if any(
        any(_takes_out(inner, "", "") for inner in world.facts(callee).calls)
        or any(map(DELETES.search, world.lines_of(callee)))
        for call in given
        for callee in callees(world, ref, call).refs
    ):
        return True
    apart = rf"(?<!\b{other})" if other else ""
    sets = re.compile(rf"\bdel\b.*{apart}\.{name}\b|{apart}\.{name}(\[[^\]]*:[^\]]*\])?\s*=[^=]")
    return any(map(sets.search, lines))


def _takes_out(call: CallFact, name: str, other: str) -> bool:
    """Whether a call takes elements out of an attribute of that name, or of what a plain name stands for."""
    holder, _, method = call.callee.rpartition(".")
    if method not in TAKES_OUT or not holder or holder.partition(".")[0] == other:
        return False
    parts = holder.replace("[]", "").rpartition(".")
    return (not parts[1] and not other) or parts[2] == name


@memoized
def is_emptied_each_batch(world: World, cls: ClassRef, name: str) -> bool:
    """Whether what an attribute collects may be let go of again with each batch: what empties it is called for every one."""
    seen = set(emptied_by(world, cls, name))
    todo = list(seen)
    for _ in range(MAX_UP):
        if any(is_batch_hook(world, ref) or ref.qualname.rpartition(".")[2] in TORCH.words["forward"] for ref in todo):
            return True
        todo = sorted({caller.ref for ref in todo for caller in world.project.callers(ref).calls} - seen)
        seen.update(todo)
    return False
