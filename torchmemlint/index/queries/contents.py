"""Questions about what single modules say."""

from __future__ import annotations

import re

from torchmemlint.index import keys
from torchmemlint.index.facts import FunctionFacts, ModuleFacts
from torchmemlint.index.linked import Linked
from torchmemlint.index.references import TOP
from torchmemlint.torch_facts import TORCH

FIRST_NAME = re.compile(r"\w+")
BACKWARD_ALONE = "backward()"
"""What ``receivers`` says of ``x.backward()`` without a gradient."""


def module(linked: Linked, path: str) -> ModuleFacts:
    """The facts of the module at ``path``; KeyError when it is not in the project."""
    linked.note(keys.MODULE, path)
    return linked.reader.whole(path)


def imports(linked: Linked, path: str) -> tuple[tuple[str, str], ...]:
    """What the module at ``path`` imports (see ``ModuleFacts.imports``): ask for this alone where no more is wanted, so that
    findings do not rest on all that the module says."""
    linked.note(keys.IMPORTS, path)
    return linked.reader.whole(path).imports


def assigned(linked: Linked, path: str, name: str) -> str | None:
    """What the module at ``path`` assigns to a name, as ``ModuleFacts.assigned`` has it; None where it does not."""
    linked.note(keys.NAME, path, name)
    return next((text for assigned, text in linked.reader.whole(path).assigned if name == assigned), None)


def within(linked: Linked, path: str, qualname: str) -> tuple[FunctionFacts, ...]:
    """The function of that name in the module at ``path`` and all that are inside it, or inside the class of that name; in the
    order of the file, every definition of each."""
    linked.note(keys.INSIDE, path, qualname)
    known = linked.within.get(path)
    if known is None:
        inside: dict[str, list[FunctionFacts]] = {}
        for facts in linked.reader.whole(path).functions:
            around = facts.qualname
            while around:
                inside.setdefault(around, []).append(facts)
                around = around.rpartition(".")[0]
        known = linked.within[path] = {around: tuple(each) for around, each in inside.items()}
    return known.get(qualname, ())


MAX_INSIDE = 400
"""Functions inside a class that are looked at for what they tell of its attributes. Each method asks for it, of all others."""


def receivers(linked: Linked, path: str, around: str, qualname: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """On what the function of that name calls which methods, sorted; of the others in the class or function ``around``, on
    what of ``self``. "()" is the method of what is called itself with arguments, ``BACKWARD_ALONE`` that of a plain
    ``backward()``. Of all that ``within`` gives, what others mostly want to know."""
    gathered: dict[str, set[str]] = {}
    inside = within(linked, path, around)
    for other in inside if len(inside) <= MAX_INSIDE else within(linked, path, qualname):
        same = other.qualname == qualname or other.qualname.startswith(f"{qualname}.")
        if not same and other.qualname == around:
            continue
        for call in other.calls:
            if call.args and "(" not in call.callee and (same or call.callee.startswith("self.")):
                gathered.setdefault(call.callee, set()).add("()")
            receiver, _, method = call.callee.rpartition(".")
            if receiver and (same or receiver.startswith("self.")):
                gathered.setdefault(receiver, set()).add(method)
                if method == "backward" and all(a.keyword in TORCH.words["keeps-graph-arguments"] for a in call.args):
                    gathered[receiver].add(BACKWARD_ALONE)
    return tuple((receiver, tuple(sorted(methods))) for receiver, methods in sorted(gathered.items()))


def saying(linked: Linked, path: str, qualname: str, *words: str) -> tuple[str, ...]:
    """The functions inside a class that say one of the words (see ``FunctionFacts.names``), by name, in the order of the file."""
    inside = within(linked, path, qualname)
    return tuple(f.qualname for f in inside if f.qualname.startswith(f"{qualname}.") and not f.names.isdisjoint(words))


def knowing(linked: Linked, path: str, text: str) -> tuple[str, ...]:
    """The functions of the module at ``path`` that may say dotted text which is no local of theirs, and its own statements, in the
    order of the file: those that read or bind its first name."""
    linked.note(keys.MODULE, path)
    first = FIRST_NAME.match(text)
    said = (f for f in linked.reader.whole(path).functions if f.qualname == TOP or text not in f.locals)
    if first is None:
        return tuple(f.qualname for f in said)
    return tuple(
        f.qualname for f in said if f.qualname == TOP or first[0] in f.names or first[0] in dict((*f.bound, *f.rebound))
    )


def module_name(linked: Linked, path: str) -> str:
    """The module's absolute dotted name, unique in the project."""
    return linked.names.layout.names[path]
