"""Who goes through a generator's items, training something meanwhile or not."""

from __future__ import annotations

import re

from torchmemlint.index.fact_words import ResultUse
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.semantics.mode import reaches
from torchmemlint.semantics.state import MODULE, World
from torchmemlint.torch_facts import TORCH

TRAINS = TORCH.words["back-propagates"] | TORCH.words["trains-something"] | TORCH.words["takes-gradients"]
COLLECTS = re.compile(r"\b(list|tuple|sum|max|min|sorted)\s*\(")
HANDS_ON = re.compile(r"\byield\s+from\b")
MAX_WRAPPERS = 3
"""How many functions that hand a generator on are followed."""
MAX_CONSUMERS = 24


def may_train_between(world: World, ref: FunctionRef, depth: int = 0) -> bool:
    """Whether something may be trained between two items of a generator, where grad mode is off: a visible function that goes through them
    trains, or every loop over an object does, in a project that trains. One that hands it on is judged by its own callers."""
    if not any(world.project.says(word) for word in sorted(TRAINS)):
        return False
    name = ref.qualname.rpartition(".")[2]
    consumers = [(caller.ref, caller.call) for caller in world.project.callers(ref).calls]
    known = {caller for caller, _ in consumers}
    for caller, receiver, _ in world.project.calls_by_name(name) if world.header(ref).owner else ():
        if caller not in known:
            consumers += [(caller, call) for call in world.facts(caller).calls if call.callee == f"{receiver}.{name}"]
    consumers = [(caller, call) for caller, call in consumers if caller != ref][:MAX_CONSUMERS]
    return name == "__iter__" or any(trains_between(world, caller, call, depth) for caller, call in consumers)


def trains_between(world: World, ref: FunctionRef, call: CallFact, depth: int) -> bool:
    """Whether a function that goes through the items, or hands them on, may train something meanwhile."""
    facts = world.facts(ref)
    statement = statement_of(world, ref, facts, call)
    if exhausts(statement, call):
        return False
    if reaches(world, FunctionRef(ref.path, facts.qualname), TRAINS):
        return True
    handed_on = call.used is ResultUse.RETURNED or bool(HANDS_ON.search(statement))
    handed_on = handed_on or (facts.is_generator and facts.qualname != MODULE)
    return handed_on and depth < MAX_WRAPPERS and may_train_between(world, ref, depth + 1)


def exhausts(statement: str, call: CallFact) -> bool:
    """Whether a container is made of all items at once (``list(items(net))``): nothing of the function runs between two of them."""
    return bool(re.search(rf"{COLLECTS.pattern}\s*{re.escape(call.callee)}\s*\(", statement))


def statement_of(world: World, ref: FunctionRef, facts: FunctionFacts, call: CallFact) -> str:
    """The text from the start of a call's statement to the row of the call, as one line."""
    place = facts.call_places[call.place]
    start = place.statement
    first, *others = world.lines_around(ref)[start.row - 1 : place.row]
    return " ".join((first[start.column - 1 :], *others))
