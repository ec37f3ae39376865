"""All that one module says, by the keys under which it is read (``index.keys``): where two states of a module differ."""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter

from torchmemlint.index import keys
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.plain import saying
from torchmemlint.index.references import ClassRef
from torchmemlint.index.tables import of_one
from torchmemlint.index.trail import Read
from torchmemlint.index.views import bound_names, by_qualname, calls_backward, has_tests, star_imports

_HEAD = attrgetter("owner", "parent", "params", "decorators", "is_async", "is_generator", "returns")
_LOCALS = attrgetter("locals", "bound", "rebound")
_FLOW = attrgetter("returned", "wraps", "yields", "leaves")


def changed(before: ModuleFacts, now: ModuleFacts) -> set[Read]:
    """The keys under which a module says something else than before; a file that is no module has ``nothing``."""
    one, other = said(before), said(now)
    found = {key for key in one.keys() | other.keys() if key not in one or key not in other or one[key] != other[key]}
    if not before.functions or not now.functions:
        found |= {(kind, now.path, "") for kind in (keys.STARS, keys.IMPORTS, keys.TESTS)}
    return found | {(keys.MODULE, now.path, "")}


def nothing(path: str) -> ModuleFacts:
    """The facts of a file that is no module: it is not there, cannot be parsed, or has nothing to do with torch. (A module has a
    function at least, "<module>".)"""
    return ModuleFacts(path, (), (), (), (), 0)


def said(module: ModuleFacts) -> dict[Read, object]:
    """What a module says, by key; what can be compared, but nothing to keep."""
    path = module.path
    functions = by_qualname(module.functions)
    classes = {facts.qualname: facts for facts in module.classes}
    names: dict[str, list[object]] = defaultdict(list)
    members: dict[tuple[ClassRef, str], list[object]] = defaultdict(list)
    found: dict[Read, object] = {}
    inside: dict[str, list[object]] = defaultdict(list)
    own: dict[str, list[str]] = defaultdict(list)
    right_inside: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for kind, there in (("function", functions), ("class", classes)):
        for name in there:
            around, _, last = name.rpartition(".")
            right_inside[around].append((kind, last))
    for name, facts in functions.items():
        head = _HEAD(facts)
        all_of_it = saying(facts)
        names[name].append("function")
        owner, _, last = name.rpartition(".")
        members[ClassRef(path, owner), last].append("method")
        found[keys.HEAD, path, name] = head
        found[keys.SCOPE, path, name] = head, _LOCALS(facts), right_inside[name]
        found[keys.FLOW, path, name] = head, _FLOW(facts)
        found[keys.WHOLE, path, name] = all_of_it
        found[keys.BACKWARD, path, name] = calls_backward(facts)
    for facts in module.functions:
        around = facts.qualname
        while around:
            inside[around].append((facts.qualname, saying(facts)))
            around = around.rpartition(".")[0]
        own[facts.owner].append(facts.qualname)
    for name, klass in classes.items():
        names[name].append("class")
        for attr in klass.attrs:
            members[ClassRef(path, name), attr.name].append(attr)
        found[keys.WHOLE, path, name] = found.get((keys.WHOLE, path, name)), saying(klass)
        found[keys.BASES, path, name] = klass.bases
        found[keys.ATTRS, path, name] = klass.attrs
    for name, target in module.imports:
        names[name].append(("import", target))
    for name, text in module.assigned:
        names[name].append(("assigned", text))
    found |= {(keys.NAME, path, name): value for name, value in names.items()}
    found |= {(keys.MEMBER, owner, name): value for (owner, name), value in members.items()}
    found |= {(keys.INSIDE, path, name): value for name, value in inside.items()}
    found |= {(keys.OWN, path, name): value for name, value in own.items()}
    found |= {(keys.BINDERS, name, ""): True for name in bound_names(module)}
    found |= {(kind, word, ""): value for kind, word, value in of_one(module).contents()}
    found[keys.STARS, path, ""] = star_imports(module)
    found[keys.IMPORTS, path, ""] = module.imports
    found[keys.TESTS, path, ""] = has_tests(module)
    return found
