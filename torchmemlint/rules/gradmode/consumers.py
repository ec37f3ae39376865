"""Who goes through a generator's items, training something meanwhile or not."""

from __future__ import annotations

import re

from torchmemlint.index.fact_words import ResultUse
from torchmemlint.index.facts import CallFact, FunctionFacts
from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import everything
from torchmemlint.semantics.mode import reaches
from torchmemlint.semantics.state import MODULE, World
from torchmemlint.torch_facts import TORCH

TRAINS = TORCH.words["back-propagates"] | TORCH.words["trains-something"] | TORCH.words["takes-gradients"]
LOOPS = re.compile(r"\bfor\b.*\bin\b")
COLLECTS = re.compile(r"\b(list|tuple|sum|max|min|sorted)\s*\(")
HANDS_ON = re.compile(r"\byield\s+from\b")
MAX_WRAPPERS = 3
"""How many functions that hand a generator on are followed."""
MAX_CONSUMERS = 24


def only_consumed(world: World, ref: FunctionRef, depth: int = 0) -> bool:
    """Whether every call of a generator is visible, each in a loop or in what collects its items, in a function that trains nothing:
    there nothing is lost while grad mode is off. One that hands it on is judged by its own callers. Nor is anything
    lost where nothing in the project trains."""
    if not any(world.project.says(word) for word in sorted(TRAINS)):
        return True
    callers = world.project.callers(ref)
    name = ref.qualname.rpartition(".")[2]
    consumers = [(caller.ref, caller.call) for caller in callers.calls]
    known = {caller for caller, _ in consumers}
    for caller, receiver, _ in world.project.calls_by_name(name) if world.header(ref).owner else ():
        if caller not in known:
            consumers += [(caller, call) for call in world.facts(caller).calls if call.callee == f"{receiver}.{name}"]
    if callers.escapes or not consumers or depth > MAX_WRAPPERS or len(consumers) > MAX_CONSUMERS:
        return False
    return all(caller != ref and is_harmless(world, caller, call, depth) for caller, call in consumers)


def is_harmless(world: World, ref: FunctionRef, call: CallFact, depth: int) -> bool:
    """Whether a function that goes through the items, or hands them on, trains nothing meanwhile."""
    facts = world.facts(ref)
    statement = statement_of(world, ref, facts, call)
    if exhausts(statement, call):
        return True
    if reaches(world, FunctionRef(ref.path, facts.qualname), TRAINS):
        return False
    handed_on = call.used is ResultUse.RETURNED or bool(HANDS_ON.search(statement))
    if handed_on or (facts.is_generator and facts.qualname != MODULE):
        return only_consumed(world, ref, depth + 1)
    return bool(LOOPS.search(statement) or COLLECTS.search(statement)) or is_gone_through(world, ref, facts, call)


def exhausts(statement: str, call: CallFact) -> bool:
    """Whether a container is made of all items at once (``list(items(net))``): nothing of the function runs between two of them."""
    return bool(re.search(rf"{COLLECTS.pattern}\s*{re.escape(call.callee)}\s*\(", statement))


def is_gone_through(world: World, ref: FunctionRef, facts: FunctionFacts, call: CallFact) -> bool:
    """Whether a generator is bound to a name of which nothing is done but that loops go over it: it leaves the function nowhere."""
    names = [name for name, text in (*facts.bound, *facts.rebound) if text == f"{call.callee}()"]
    if len(names) != 1:
        return False
    parts = list(everything(world.body(world.outermost(ref))))
    bound = [target for part in parts if isinstance(part, ir.Assign) for target in part.targets]
    looped = [part.iterable for part in parts if isinstance(part, ir.For)]
    known = {id(each) for each in (*bound, *looped)}
    uses = [part for part in parts if isinstance(part, ir.Name) and part.id == names[0]]
    return any(each is loop for each in uses for loop in looped) and all(id(each) in known for each in uses)


def statement_of(world: World, ref: FunctionRef, facts: FunctionFacts, call: CallFact) -> str:
    """The text from the start of a call's statement to the row of the call, as one line."""
    place = facts.call_places[call.place]
    start = place.statement
    first, *others = world.lines_around(ref)[start.row - 1 : place.row]
    return " ".join((first[start.column - 1 :], *others))
