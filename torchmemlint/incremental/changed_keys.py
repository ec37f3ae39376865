"""Which keys (``index.keys``) an edit changed.

The state of each edited module before and after is compared key by key; others depend on which files there are.

Which file an import means is looked up by paths alone (``index.layout``), and nothing is logged of that but the import. Where a
word is read is in the tables only if some function has that name.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter

from torchmemlint.index import keys
from torchmemlint.index.dependency_log import Key
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.layout import Layout
from torchmemlint.index.modules import Modules
from torchmemlint.index.plain import saying
from torchmemlint.index.references import ClassRef
from torchmemlint.index.tables import of_one
from torchmemlint.index.views import bound_names, by_qualname, calls_backward, has_tests, star_imports

Edit = tuple[ModuleFacts, ModuleFacts]
"""The facts of a module before and after; ``empty_module`` where the file was, or is, no module."""

_LOCALS = attrgetter("locals", "bound", "rebound", "unsure", "constants")
_FLOW = attrgetter("returned", "wraps", "yields", "leaves")


def changed_keys(before: Iterable[str], edits: Sequence[Edit], modules: Modules, logged: Iterable[str]) -> set[Key]:
    """The keys whose values ``edits`` may have changed, where the modules were those at the paths ``before`` and are ``modules``
    now. ``logged`` are all names in the dependency log. Raises ValueError where packages come or go, or other modules have another
    name now: then anything may have changed."""
    found = {key for one, other in edits for key in changed_in(one, other)}
    found |= _function_names(found, {other.path for _, other in edits}, modules)
    return found | _of_files({*before}, modules, logged)


def changed_in(before: ModuleFacts, now: ModuleFacts) -> set[Key]:
    """The keys whose values differ between two states of a module."""
    one, other = values_by_key(before), values_by_key(now)
    found = {key for key in one.keys() | other.keys() if key not in one or key not in other or one[key] != other[key]}
    if not before.functions or not now.functions:
        found |= {(kind, now.path, "") for kind in (keys.STARS, keys.IMPORTS, keys.TESTS)}
    return found | {(keys.MODULE, now.path, "")}


def empty_module(path: str) -> ModuleFacts:
    """The facts of a file that is no module: it is not there, cannot be parsed, or has nothing to do with torch. (A module has a
    function at least, "<module>".)"""
    return ModuleFacts(path, (), (), (), (), 0)


def values_by_key(module: ModuleFacts) -> dict[Key, object]:
    """The value of each key of a module: good for comparison, not for storing."""
    path = module.path
    functions = by_qualname(module.functions)
    classes = {facts.qualname: facts for facts in module.classes}
    names: dict[str, list[object]] = defaultdict(list)
    members: dict[tuple[ClassRef, str], list[object]] = defaultdict(list)
    found: dict[Key, object] = {}
    inside: dict[str, list[object]] = defaultdict(list)
    own: dict[str, list[str]] = defaultdict(list)
    right_inside: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for kind, there in (("function", functions), ("class", classes)):
        for name in there:
            around, _, last = name.rpartition(".")
            right_inside[around].append((kind, last))
    for name, facts in functions.items():
        head = facts.header
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
    for top in module.functions[:1]:
        for name in top.locals | top.unsure:
            names[name].append((name in top.unsure, dict(top.constants).get(name)))
    found |= {(keys.NAME, path, name): value for name, value in names.items()}
    found |= {(keys.MEMBER, owner, name): value for (owner, name), value in members.items()}
    found |= {(keys.INSIDE, path, name): value for name, value in inside.items()}
    found |= {(keys.OWN, path, name): value for name, value in own.items()}
    found |= {(keys.BINDERS, name, ""): True for name in bound_names(module)}
    found |= {(kind, word, ""): value for kind, word, value in of_one(module).contents()}
    found[keys.STARS, path, ""] = star_imports(module)
    found[keys.IMPORTS, path, ""] = module.imports, module.needs
    found[keys.TESTS, path, ""] = has_tests(module)
    return found


def _of_files(paths: set[str], modules: Modules, logged: Iterable[str]) -> set[Key]:
    """The keys that depend on which files there are, where some came or went."""
    different = sorted(paths ^ {*modules})
    if not different:
        return set()
    then, now = Layout(paths), Layout(modules)
    stay = paths.intersection(modules)
    if any(path.endswith("__init__.py") for path in different) or any(then.names[path] != now.names[path] for path in stay):
        raise ValueError("packages changed")
    # The modules themselves, and the folders that hold none but these.
    places = {posixpath.normpath(path).removesuffix(".py") for path in different} | then.directories ^ now.directories
    found: set[Key] = set()
    for folder, name in map(posixpath.split, sorted(places)):
        package = now.given(posixpath.join(folder, "__init__.py"))
        found |= {(keys.NAME, package, name), (keys.NAME, folder, name)}
    parts = {posixpath.basename(place) for place in places}
    for path in sorted(_that_import(modules, parts)):
        for name, target in modules[path].imports:
            if not parts.isdisjoint(target.split(".")):
                found.add((keys.STARS, path, "") if name[0] == "*" else (keys.NAME, path, name))
    names = tuple({layout.names[path] for path in different for layout in (then, now) if path in layout.names})
    below = tuple(f"{name}." for name in names)
    return found | {(keys.ABSOLUTE, name, "") for name in logged if name in names or name.startswith(below)}


def _that_import(modules: Modules, parts: Iterable[str]) -> set[str]:
    """The modules in which the name of something imported has one of these parts."""
    if modules.words is None:
        return {*modules}
    return {path for part in parts for path in modules.words.modules(keys.TARGETS, part)}


def _function_names(keys_changed: Iterable[Key], edited: Collection[str], modules: Modules) -> set[Key]:
    """READS of words that are names of functions now and were not, or the other way round, where these keys of the ``edited`` modules
    changed: the tables had no rows for them."""
    found: set[Key] = set()
    for kind, word, _ in keys_changed:
        if kind == keys.FUNCTIONS:
            elsewhere = modules.words.modules(kind, str(word)) if modules.words is not None else ()
            if all(path in edited for path in elsewhere):
                found.add((keys.READS, word, ""))
    return found
