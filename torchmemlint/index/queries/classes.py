"""Questions about classes, their methods and attributes."""

from __future__ import annotations

from torchmemlint.index import keys
from torchmemlint.index.facts import AttrFact, ClassFacts
from torchmemlint.index.linked import Linked
from torchmemlint.index.points_to import Instance, Method
from torchmemlint.index.references import ClassRef, FunctionRef


def mro(linked: Linked, ref: ClassRef) -> tuple[ClassRef | str, ...]:
    """The method resolution order, ``ref`` first; outside bases by absolute name, "?" for what cannot be resolved."""
    return linked.classes.mro(ref)


def method(linked: Linked, ref: ClassRef, name: str) -> FunctionRef | None:
    """The function that the method ``name`` is, in the class or its bases."""
    return linked.classes.method(ref, name)


def subclasses(linked: Linked, ref: ClassRef) -> tuple[ClassRef, ...]:
    """All classes of the project below ``ref``, sorted."""
    return linked.classes.subclasses(ref)


def attr(linked: Linked, ref: ClassRef, name: str) -> tuple[tuple[AttrFact, ClassRef], ...]:
    """Every assignment to an attribute, with the class that makes it, the nearest class first."""
    return linked.classes.attr(ref, name)


def attrs(linked: Linked, ref: ClassRef) -> tuple[AttrFact, ...]:
    """The assignments to attributes that a class makes itself; KeyError when there is no such class."""
    linked.note(keys.ATTRS, ref.path, ref.qualname)
    facts = linked.reader.facts_of(ref)
    assert isinstance(facts, ClassFacts)
    return facts.attrs


def is_subclass(linked: Linked, ref: ClassRef, absolute_name: str) -> bool | None:
    """Whether the class is (below) ``absolute_name``; None when that is not seen, and a base is not visible."""
    return linked.classes.is_subclass(ref, absolute_name)


def attribute_class(linked: Linked, ref: ClassRef, name: str) -> ClassRef | str | None:
    """The class of what an attribute holds on an object of ``ref``, by assignments and annotations, those in the class body
    included; None when there is no evidence, or evidence of several."""
    classes = {value.klass for value in linked.points_to.attribute(ref, name) if isinstance(value, Instance)}
    return classes.pop() if len(classes) == 1 else None


def methods_named(linked: Linked, name: str) -> tuple[FunctionRef, ...]:
    """Every method of that name in the project, sorted."""
    return linked.calls.tables.named(name)


def is_attribute_only(linked: Linked, name: str) -> bool:
    """Whether classes of the project assign an attribute of that name, none of them a function alone, and none defines a method of it:
    ``x.name(…)`` calls an object that is held there."""
    tables = linked.calls.tables
    return (
        tables.is_held(name)
        and not tables.named(name)
        and not any(_holds_function(linked, holder, name) for holder in tables.holders(name))
    )


def _holds_function(linked: Linked, ref: ClassRef, name: str) -> bool:
    values = linked.points_to.attribute(ref, name)
    return bool(values) and all(isinstance(value, FunctionRef | Method) for value in values)


def is_attribute(linked: Linked, name: str) -> bool:
    """Whether a method of some class of the project assigns an attribute of that name."""
    return linked.calls.tables.is_held(name)


def classes_with_attribute(linked: Linked, name: str) -> tuple[ClassRef, ...]:
    """Every class of which a method assigns an attribute of that name, sorted."""
    return linked.calls.tables.holders(name)
