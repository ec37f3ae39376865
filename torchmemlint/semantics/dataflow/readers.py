"""Who reads what an attribute of an object keeps: by the facts of the functions that say its name."""

from __future__ import annotations

import re

from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of, walk
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.interpret import STORING
from torchmemlint.semantics.state import World, memoized

OWN = re.compile(r"self\.\w+")
FILLING = frozenset(STORING) | {"clear"}
"""Methods of a container that hand out nothing of it."""
MAX_READERS = 4


@memoized
def readers_of_attribute(world: World, root: FunctionRef, place: str) -> list[FunctionRef] | None:
    """The methods of the root's class that read an attribute of their object (``self.values``), as far as they do more than to put
    something into it; None where others may read it, or it is no such attribute."""
    owner = world.header(root).owner
    if not owner or not OWN.fullmatch(place):
        return None
    project, cls = world.project, ClassRef(root.path, owner)
    if project.subclasses(cls) or any(isinstance(base, ClassRef) and base != cls for base in project.mro(cls)):
        return None  # of a family of classes each may read it
    name = place.partition(".")[2]
    readers: list[FunctionRef] = []
    for facts in project.module(root.path).functions:
        texts = {".".join(text.split(".")[:2]) for text in texts_with(facts, name)}
        if texts - {place}:
            return None  # it may be an object of this class that another function has in hand
        if texts and facts.qualname.startswith(f"{owner}."):
            readers.append(FunctionRef(root.path, facts.qualname))
    return readers if 0 < len(readers) <= MAX_READERS else None


@memoized
def goes_only_into(world: World, ref: FunctionRef, place: str, node: int) -> bool:
    """Whether a method gives an attribute of its object to one call, by its node, and else only sets it or compares it, and no function of
    the project reads one of that name of another object."""
    name = place.rpartition(".")[2]
    texts = [text for each in world.project.functions_saying(name) for text in texts_with(world.facts(each), name)]
    if any(text.split(".")[1:2] != [name] or not text.startswith("self.") for text in texts):
        return False
    body = world.body(ref)
    given = [each.args for each in nodes_of(body) if isinstance(each, ir.Call) and each.node == node]
    set_or_compared = [
        each.targets if isinstance(each, ir.Assign) else each
        for each in nodes_of(body)
        if isinstance(each, (ir.Assign, ir.Compare))
    ]
    into = places_in(given, place)
    return bool(into) and places_in(body, place) == into | places_in(set_or_compared, place)


def places_in(part: object, place: str) -> set[int]:
    """Where an attribute is named in some code, by its nodes."""
    return {each.node for each in walk(part) if isinstance(each, ir.Attr) and dotted(each) == place}


def texts_with(facts: FunctionFacts, name: str) -> list[str]:
    """The texts by which a function reads an attribute of that name of anything."""
    found = [text for text in facts.reads if name in text.split(".")[1:]]
    found += [arg.name for call in facts.calls for arg in call.args if name in arg.name.split(".")[1:]]
    for call in facts.calls:
        *before, last = call.callee.split(".")
        if name in before[1:] and last not in FILLING:
            found.append(call.callee)
    return found
