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
    """Whether a graph is that of an attribute of what is called, or of what a method of it gives for nothing, and may be of what
    this call left there: where another call is trained, it is that one's."""
    if not graph.what.startswith(event.what + "."):
        return False
    if event.cls is not None:
        name = graph.what.removeprefix(event.what + ".").partition(".")[0]
        return graph.kind is GraphKind.PARAM and name in set_by_methods(flow.runs.world, event.cls)
    of_nothing = graph.kind is GraphKind.PARAM or (graph.kind is GraphKind.OPAQUE and not graph.parents)
    return of_nothing and not is_trained_beside(event, flow)


def set_by_methods(world: World, cls: ClassRef) -> set[str]:
    """The attributes that a method other than ``__init__`` sets: what a forward may keep of what it computes."""
    project = world.project
    held = [fact for base in project.mro(cls) if isinstance(base, ClassRef) for fact in project.attrs(base)]
    return {
        fact.name for fact in held if fact.kind is not AttrKind.CONST and fact.method and not fact.method.endswith(".__init__")
    }


def may_be_left(world: World, name: str) -> bool:
    """Whether a forward may leave something in an attribute of that name, or in what a method of that name gives, of a module of which
    the class is not known: not where constructors alone set all that the project has of the name."""
    project = world.project
    holders, methods = project.classes_with_attribute(name), project.methods_named(name)
    if not (holders or methods) or project.is_stored_by_name(name):
        return not name.startswith("__")
    return any(name in set_by_methods(world, cls) for cls in holders) or any(
        world.facts(method).names & set_by_methods(world, ClassRef(method.path, world.header(method).owner))
        for method in methods
    )


def reads_of_kept(event: Graph, cls: ClassRef, flow: Flow) -> Iterator[str]:
    """The attributes that a module's forward may have set, or properties made of one, as code reads them that knows the module by the
    same name."""
    kept, start = set_by_methods(flow.runs.world, cls), event.what + "."
    for name in _read_where_it_is_known(flow.runs.world, flow.record.root, event.what) if kept else ():
        method = flow.runs.world.project.method(cls, name)
        if name in kept or (method is not None and flow.runs.world.facts(method).names & kept):
            yield start + name


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
    """The attributes of what is called that these read."""
    start = f"{what}."
    texts = {text for facts in where_it_is_known(world, root, what) for text in facts.reads if text.startswith(start)}
    return sorted({text.removeprefix(start).partition(".")[0] for text in texts})
