"""What a module keeps of its own forward in attributes, as code that knows the module reads or trains it."""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules import assumed
from torchmemlint.rules.api import Flow
from torchmemlint.rules.evidence.module_evidence import BACKWARD, is_trained_beside
from torchmemlint.rules.fact import Fact
from torchmemlint.semantics.state import CALLED_KINDS, Graph, GraphKind, RecordFlag, Store, World, memoized

CONTAINERS = frozenset({AttrKind.LIST, AttrKind.DICT, AttrKind.SET, AttrKind.CALL})
"""Forms of what a constructor gives an attribute that may be a container."""


def collecting_attribute(event: Store, flow: Flow) -> tuple[ClassRef, str] | None:
    """The attribute of the root's own object that collects what is stored, and the object's class; None where it is stored elsewhere."""
    cls = flow.runs.world.class_of_method(flow.record.root)
    holder, _, name = event.place.split("[")[0].rpartition(".")
    if cls is None or holder != "self" or not event.external or event.holder_frame >= 0:
        return None
    made = {fact.kind for fact, _ in flow.runs.world.project.attr(cls, name)}
    return (cls, name) if made & CONTAINERS else None


def kept_by_module(event: Graph, flow: Flow) -> tuple[Fact, ...] | None:
    """Facts about what the module itself keeps of its forward (``net.loss``); None where that is back-propagated, or may be."""
    record = flow.record
    inside = flow.made_inside(event.site)
    if any(graph.gid in record.backwarded for graph in inside if graph.kind in COMPUTES):
        return None  # by way of an attribute: the call's own result is not
    if any(graph.gid in record.backwarded and is_state(graph, event, flow) for graph in record.graphs.values()):
        return None
    if event.cls is None or (inside and RecordFlag.BACKWARD in record.flags) or not any(reads_of_kept(event, event.cls, flow)):
        return ()
    trains = trains_where_it_is_known(flow.runs.world, record.root, event.what)
    return None if trains else (assumed.KEPT_BY_MODULE,)


COMPUTES = CALLED_KINDS | {GraphKind.PARAM}
"""Kinds of what a forward may keep; a parameter that it reads is trained by others, too."""


def is_state(graph: Graph, event: Graph, flow: Flow) -> bool:
    """Whether a graph is that of an attribute of what is called, or of what a method of it gives of what is kept there (where nothing is
    known of it: for nothing), and may be of what this call left: where another call is trained, it is that one's."""
    if not graph.what.startswith(event.what + "."):
        return False
    if event.cls is not None:
        name = graph.what.removeprefix(event.what + ".").partition(".")[0]
        kept = is_kept(flow.runs.world, event.cls, name)
        return kept and (graph.kind is GraphKind.PARAM or not is_trained_beside(event, flow))
    of_nothing = graph.kind is GraphKind.PARAM or (graph.kind is GraphKind.OPAQUE and not graph.parents)
    return of_nothing and not is_trained_beside(event, flow)


def set_by_methods(world: World, cls: ClassRef) -> dict[str, set[str]]:
    """The attributes that a method other than ``__init__`` sets, of the class, one above or one below, by method: what a forward may keep
    of what it computes."""
    project = world.project
    bases = (base for each in (cls, *project.subclasses(cls)) for base in project.mro(each))
    held: dict[str, set[str]] = {}
    for fact in (fact for base in dict.fromkeys(bases) if isinstance(base, ClassRef) for fact in project.attrs(base)):
        if fact.kind is not AttrKind.CONST and fact.method and not fact.method.endswith(".__init__"):
            held.setdefault(fact.name, set()).add(fact.method.rpartition(".")[2])
    return held


def is_kept(world: World, cls: ClassRef, name: str) -> bool:
    """Whether an attribute is one that methods set, or a method or property reads one that another method sets."""
    held, project = set_by_methods(world, cls), world.project
    methods = {method for each in (cls, *project.subclasses(cls)) if (method := project.method(each, name)) is not None}
    read = {each for method in methods for each in world.facts(method).names & held.keys()}
    return name in held or any(held[each] != {name} for each in read)


def may_be_left(world: World, name: str) -> bool:
    """Whether a forward may leave something in an attribute of that name, or in what a method of that name gives, of a module of which
    the class is not known: not where constructors alone set all that the project has of the name."""
    project = world.project
    holders, methods = project.classes_with_attribute(name), project.methods_named(name)
    if not (holders or methods) or project.is_stored_by_name(name):
        return not name.startswith("__")
    return any(name in set_by_methods(world, cls) for cls in holders) or any(
        is_kept(world, ClassRef(method.path, world.header(method).owner), name) for method in methods
    )


def reads_of_kept(event: Graph, cls: ClassRef, flow: Flow) -> Iterator[str]:
    """The attributes, properties and methods of what a module's forward may have set, as code reads them that knows the module by the same
    name."""
    world = flow.runs.world
    for name in _read_where_it_is_known(world, flow.record.root, event.what):
        if is_kept(world, cls, name):
            yield f"{event.what}.{name}"


def where_it_is_known(world: World, root: FunctionRef, what: str) -> tuple[FunctionFacts, ...]:
    """The functions in which what a root calls goes by the same name: the root, or for an attribute all of its class."""
    owner = world.header(root).owner
    return world.project.within(root.path, owner) if owner and what.startswith("self.") else (world.facts(root),)


@memoized
def trains_where_it_is_known(world: World, root: FunctionRef, what: str) -> bool:
    """Whether one of these back-propagates."""
    return any(facts.names & BACKWARD for facts in where_it_is_known(world, root, what))


@memoized
def _read_where_it_is_known(world: World, root: FunctionRef, what: str) -> list[str]:
    """The attributes of what is called that these read, and the methods of it that the root calls beside."""
    start = f"{what}."
    read = {text for facts in where_it_is_known(world, root, what) for text in facts.reads}
    read |= {call.callee for call in world.facts(root).calls}
    texts = {text for text in read if text.startswith(start)}
    return sorted({text.removeprefix(start).partition(".")[0] for text in texts})
