"""The keys (``index.keys``) that edits change over all modules: what the edited ones say, and what depends on which files there are.

Which file an import means is looked up by paths alone (``index.layout``), and nothing is noted of that but the import. Where a
word is read is told only if it is the name of a function somewhere.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Sequence

from torchmemlint.index import keys
from torchmemlint.index.facts import ModuleFacts
from torchmemlint.index.layout import Layout
from torchmemlint.index.modules import Modules
from torchmemlint.index.said import changed
from torchmemlint.index.trail import Read


def said_otherwise(
    before: Iterable[str], edits: Sequence[tuple[ModuleFacts, ModuleFacts]], modules: Modules, asked: Iterable[str]
) -> set[Read]:
    """The keys that may say something else after ``edits`` of modules (see ``index.said.changed``), where they were those at the
    paths ``before`` and are ``modules`` now. ``asked`` are all texts that the trails know of. Raises ValueError where other modules
    have another name now, or stand in another package: then any answer may be another."""
    found = {key for one, other in edits for key in changed(one, other)}
    found |= _named_at_all(found, {other.path for _, other in edits}, modules)
    return found | _came_or_went({*before}, modules, asked)


def _came_or_went(paths: set[str], modules: Modules, asked: Iterable[str]) -> set[Read]:
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
    found: set[Read] = set()
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
    return found | {(keys.ABSOLUTE, name, "") for name in asked if name in names or name.startswith(below)}


def _that_import(modules: Modules, parts: Iterable[str]) -> set[str]:
    """The modules in which the name of something imported has one of these parts."""
    if modules.words is None:
        return {*modules}
    return {path for part in parts for path in modules.words.modules(keys.TARGETS, part)}


def _named_at_all(keys_changed: Iterable[Read], edited: Collection[str], modules: Modules) -> set[Read]:
    """READS of words that are names of functions now and were not, or the other way round, where these keys of the ``edited`` modules
    changed: of others it was nowhere told where they are read."""
    found: set[Read] = set()
    for kind, word, _ in keys_changed:
        if kind == keys.FUNCTIONS:
            elsewhere = modules.words.modules(kind, str(word)) if modules.words is not None else ()
            if all(path in edited for path in elsewhere):
                found.add((keys.READS, word, ""))
    return found
