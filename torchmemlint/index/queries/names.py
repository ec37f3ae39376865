"""Questions about what names mean, alone or in expressions."""

from __future__ import annotations

import re

from torchmemlint.index import keys
from torchmemlint.index.linked import Linked
from torchmemlint.index.points_to import Method
from torchmemlint.index.references import TOP, ClassRef, FunctionRef, Outside, Variable

_DOTTED = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")


def resolve(linked: Linked, path: str, dotted: str, function_qualname: str = "") -> str | None:
    """The absolute name of dotted text in the function ``function_qualname`` ("": module level) of ``path``.

    None for locals of the function and of the functions around it, for names that nothing binds, and for text that is
    more than names and dots. Names of outside packages are given as the imports spell them.
    """
    if not _DOTTED.match(dotted):
        return None
    head, *rest = dotted.split(".")
    facts = linked.reader.scope(path, function_qualname) if function_qualname != TOP else None
    while facts is not None:
        symbol = linked.reader.inner(facts, path, head)
        if symbol is not None:
            found = linked.names.member(symbol, rest[0]) if len(rest) == 1 else None if rest else symbol
            return linked.names.absolute(found) if found is not None else None
        if head in facts.locals:
            return None
        facts = linked.reader.scope(path, facts.parent) if facts.parent else None
    found = linked.names.dotted(path, dotted)
    if found is None:
        return None
    if isinstance(found, Variable) and rest:
        return None
    return linked.names.absolute(found)


def variable(linked: Linked, path: str, name: str) -> tuple[str, str] | None:
    """The file and name of the variable that a module-level name stands for, imports followed; None for anything else."""
    found = linked.names.lookup(path, name)
    return (found.path, found.name) if isinstance(found, Variable) else None


def imported(linked: Linked, path: str, name: str) -> str | None:
    """The absolute name of what an import binds ``name`` to in the module at ``path``, whatever is assigned to it later."""
    linked.note(keys.NAME, path, name)
    found = linked.names.by_import(path, name)
    return linked.names.absolute(found) if found is not None else None


def function(linked: Linked, absolute: str) -> FunctionRef | None:
    """The function of an absolute name, re-exports and inheritance followed."""
    found = linked.names.by_absolute(absolute)
    if isinstance(found, FunctionRef):
        return found
    return _nested_function(linked, absolute) if found is None else None


def _nested_function(linked: Linked, absolute: str) -> FunctionRef | None:
    parts = absolute.split(".")
    for count in range(len(parts) - 1, 0, -1):
        path = linked.names.layout.path_of.get(".".join(parts[:count]))
        if path is not None and linked.reader.has_function(path, ".".join(parts[count:])):
            return FunctionRef(path, ".".join(parts[count:]))
    return None


def klass(linked: Linked, absolute: str) -> ClassRef | None:
    """The class of an absolute name, re-exports followed."""
    found = linked.names.by_absolute(absolute)
    return found if isinstance(found, ClassRef) else None


def is_inside(linked: Linked, absolute: str) -> bool:
    """Whether an absolute name is that of something in a module of the project, or of such a module."""
    linked.names.note_absolute(absolute)
    parts = absolute.split(".")
    return any(".".join(parts[:count]) in linked.names.layout.path_of for count in range(len(parts), 0, -1))


def is_function(linked: Linked, path: str, function_qualname: str, dotted: str) -> bool:
    """Whether dotted text is a function or method of the project, whatever it is of what is possible."""
    values = linked.points_to.values(path, function_qualname or TOP, dotted)
    return bool(values) and all(isinstance(value, FunctionRef | Method) for value in values)


def class_of(linked: Linked, path: str, function_qualname: str, dotted: str) -> ClassRef | str | None:
    """The class that an expression's text is an instance of, by evidence; a str for a class outside; None: not known."""
    return linked.points_to.class_of(path, function_qualname or TOP, dotted)


def class_by_methods(linked: Linked, path: str, function_qualname: str, dotted: str) -> ClassRef | None:
    """The class of the project that an object, of which nothing else is known, is shown for by the methods called on it."""
    return linked.calls.resolver.shown_by_methods(path, function_qualname or TOP, dotted)


def outside(linked: Linked, path: str, function_qualname: str, dotted: str) -> str | None:
    """The absolute outside name of a callee, also through objects of known classes ("torch.nn.Linear.forward")."""
    values = linked.points_to.values(path, function_qualname or TOP, dotted)
    names = {value.name for value in values if isinstance(value, Outside)}
    return names.pop() if len(values) == 1 and names else None
