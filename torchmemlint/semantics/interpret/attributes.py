"""Attributes: of a tensor, of an object of the project by what its class assigns, of anything else."""

from __future__ import annotations

from collections.abc import Sequence

from torchmemlint.index.decorators import is_property
from torchmemlint.index.fact_words import AttrKind
from torchmemlint.index.facts import AttrFact
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import everything
from torchmemlint.semantics.identity import (
    HOLDERS,
    callable_given,
    class_kind,
    made_bounded,
    made_constant,
    makes_bare,
    parametric_attributes,
)
from torchmemlint.semantics.interpret.names import annotated_container, classify, function_value, named, note_bare
from torchmemlint.semantics.interpret.operators import in_role, made_in_mode
from torchmemlint.semantics.interpret.stores import filled_with, makes_recorder
from torchmemlint.semantics.interpret.unknown_parts import MAX_PART_TEXT, leaf_tensor, part_of
from torchmemlint.semantics.state import (
    CONTAINERS,
    ELEMENTS,
    EMPTY,
    EXPRESSIONS,
    FREE_TENSOR,
    LOGITS,
    MODULE,
    NONE,
    PACKED,
    PLAIN,
    TRAINING,
    UNKNOWN,
    UNNAMED,
    Atom,
    Cls,
    Const,
    Ext,
    Func,
    GraphKind,
    Kind,
    Machine,
    Mode,
    Obj,
    Plain,
    SinkKind,
    State,
    Tensor,
    Tuple,
    Unknown,
    Value,
    add_marks,
    call_at,
    call_atom,
    detached,
    evaluate,
    handles,
    join,
    join_all,
    literal,
    sorted_atoms,
    unknown,
    with_flags,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

ABSTRACT_WORDS = TORCH.words["abstract-words"]
"""The words of a body that only says that subclasses have one."""
EVALUATES = TORCH.names["evaluates"]


@handles(EXPRESSIONS, ir.Attr)
def evaluate_attribute(m: Machine, expr: ir.Attr, state: State) -> Value:
    receiver = evaluate(m, expr.value, state)
    return attribute_of(m, receiver, expr.name, expr, state)


def attribute_of(m: Machine, receiver: Value, name: str, expr: ir.Attr, state: State) -> Value:
    return join_all(attribute_of_atom(m, atom, name, expr, state) for atom in sorted_atoms(receiver)) or UNKNOWN


def attribute_of_atom(m: Machine, atom: Atom, name: str, expr: ir.Attr, state: State) -> Value:
    match atom:
        case Ext():
            return named(m, f"{atom.name}.{name}", m.path, name)
        case Obj():
            if name == TORCH.names["matrix-transpose"] and m.heap[atom.oid].kind is Kind.THING:  # only tensors have it
                return tensor_attribute(m, Tensor(frozenset((m.thing_graph(atom.oid),))), name, expr, state)
            return object_attribute(m, atom.oid, name, expr, state)
        case Tensor() | Unknown() if name.startswith("__"):
            return UNKNOWN  # what Python keeps of an object: its class, its module
        case Tensor():
            return tensor_attribute(m, atom, name, expr, state)
        case Cls():
            return class_attribute(m, ClassRef(atom.path, atom.qualname), name)
        case Unknown():
            return unknown(atom.hints)
        case Plain() | Const():
            return PLAIN
        case Tuple() if (
            name in ("values", TORCH.names["positions"]) and len(atom.items) == 2
        ):  # what `max(dim)`, `sort` and `topk` return
            return atom.items[name == TORCH.names["positions"]]
        case _:
            return UNKNOWN


def tensor_attribute(m: Machine, atom: Tensor, name: str, expr: ir.Attr, state: State) -> Value:
    effect = TORCH.attributes.get(name)
    if atom.flags & PACKED:
        effect = Effect.KEEP if name == TORCH.names["data"] else None
        atom = atom._replace(flags=atom.flags & ~PACKED)
    if effect is not None:
        m.notice(atom.graphs, name)
    single = frozenset((atom,))
    if effect is Effect.CUT:
        m.sink(atom.graphs | atom.hints, SinkKind.CUT, f".{name}", expr.node)
        return detached(single)
    if effect in (Effect.NUMBER, Effect.SHAPE):
        return PLAIN
    if effect in (Effect.VIEW, Effect.KEEP):
        return in_role(m, name, made_in_mode(m, single, expr.node, state), [single], expr.node, state)
    part = part_of(m, atom, f".{name}", expr.node)
    return with_flags(part, LOGITS) if name == TORCH.names["logits"] else part


def class_attribute(m: Machine, cls: ClassRef, name: str) -> Value:
    method = m.world.project.method(cls, name)
    if method is not None:
        return function_value(m, method)
    found = [a for a, _ in m.world.project.attr(cls, name) if a.method == ""]
    if found and found[0].kind is AttrKind.CONST:
        return literal(found[0].const)
    return frozenset((Obj(m.outside(Kind.THING, f"{cls.qualname}.{name}", None)),))


def object_attribute(m: Machine, oid: int, name: str, expr: ir.Attr | None, state: State) -> Value:
    held = state.vars.get((oid, name))
    if held is None:
        held = known_attribute(m, oid, name, state)
    if held is not None:
        return held
    info = m.heap[oid]
    value = first_value(m, oid, name, expr, state)
    if (
        info.kind is Kind.INSTANCE
        and not info.external
        and any(type(a) is Obj and m.heap[a.oid].kind in CONTAINERS for a in value)
    ):
        m.set_attribute(oid, name, value, state)  # what is put into it leaves with the instance
    given = state.vars.get((oid, ELEMENTS), EMPTY) if info.kind is Kind.INSTANCE else EMPTY
    if (oid, UNNAMED) in state.vars:
        given = join(
            given, unknown(m.whole(state.vars[oid, UNNAMED], state)[0])
        )  # under which name each of it stands is not known
    if given and not any(type(a) in (Func, Plain, Const) for a in value):
        value = join(value, given)
    if info.kind in (Kind.MODULE, Kind.SELF, Kind.INSTANCE):
        for atom in value:
            if type(atom) is Obj and atom.oid != oid:
                m.holders.setdefault(atom.oid, oid)
    return value


def known_attribute(m: Machine, oid: int, name: str, state: State) -> Value | None:
    """What the kind of an object says of an attribute; None where it says nothing."""
    info = m.heap[oid]
    if info.kind in CONTAINERS or info.kind is Kind.GENERATOR:
        return UNKNOWN
    if info.kind is Kind.DISTRIBUTION:
        if name == "base_dist":
            return frozenset((Obj(oid),))
        if not name.endswith(("_shape", "_ndims", "_support", "support")):
            return state.vars.get((oid, ELEMENTS), UNKNOWN)  # `loc`, `logits`, `mean`: what it was made of
    if name == TORCH.names["mode-of-training"]:
        if info.kind is Kind.THING:
            m.retype(oid, Kind.MODULE)  # only modules have it
        return state.vars.get((oid, TRAINING), UNKNOWN)
    if name in TORCH.words["wrapped-module"] and info.kind is Kind.MODULE:
        return frozenset((Obj(oid),))
    if info.kind is Kind.PREDICTOR and f"{info.cls}.{name}" in TORCH.words["guarded-parts"]:
        return frozenset((Obj(oid),))
    return UNKNOWN if info.kind is Kind.PARAMS else None


def first_value(m: Machine, oid: int, name: str, expr: ir.Attr | None, state: State) -> Value:
    """What an attribute holds when the root function starts, by what the class assigns to it."""
    info = m.heap[oid]
    text = f"{info.name}.{name}" if info.name else name
    if len(text) > MAX_PART_TEXT and info.kind is Kind.THING:
        return frozenset((Obj(oid),))
    known = m.first_values.get((m.frame, oid, name))
    if known is not None and known[0] is info:
        return known[1]
    if isinstance(info.cls, ClassRef):
        project = m.world.project
        method = project.method(info.cls, name)
        if method is not None and is_property(m.world.header(method)):
            if expr is None:
                return UNKNOWN
            if not m.world.facts(method).names - ABSTRACT_WORDS:
                return frozenset((Obj(m.outside(Kind.THING, text, None, key=(oid, name))),))
            return inline_property(m, method, oid, expr.node, state)
    value = stored_value(m, oid, name, text, expr, state)
    if not any(type(atom) is Tensor for atom in value):
        m.first_values[m.frame, oid, name] = info, value
    return value


def stored_value(m: Machine, oid: int, name: str, text: str, expr: ir.Attr | None, state: State) -> Value:
    """What an attribute that is no property holds."""
    info = m.heap[oid]
    if isinstance(info.cls, ClassRef):
        project = m.world.project
        method = project.method(info.cls, name)
        if method is not None:
            return function_value(m, method, oid)
        found = [fact for fact, _ in project.attr(info.cls, name)]
        init = [a for a in found if a.method.endswith("__init__") or a.method == ""] or list(found)
        value = join_all(assigned_value(m, oid, name, text, fact, len(found) == 1, expr, state) for fact in init)
        if value:
            return add_marks(value, carried_calls(m, oid, name, text))
        if (plain := plain_callable(m, info.cls, name, init)) is not None:
            return plain
        if found:
            ref = FunctionRef(class_path(m, info.cls, name), found[0].method or MODULE)
            container = annotated_container(m, ref, f"self.{name}", text, (oid, name), state) if found[0].method else None
            if container is not None:
                return container
            cls = (
                project.attribute_class(info.cls, name)
                or project.class_by_methods(class_path(m, info.cls, name), found[0].method, f"self.{name}")
                or given_callable(m, info.cls, name)
            )
            inner = m.outside(Kind.THING, text, cls, key=(oid, name))
            classify(m, inner, cls, f"self.{name}")
            return frozenset((Obj(inner),))
    held = held_by_library(m, info.cls, name)
    inner = m.outside(Kind.THING if held is None else class_kind(held), text, held, key=(oid, name))
    classify(m, inner, held, text)
    of_torch = isinstance(info.cls, str) and info.cls.startswith("torch.nn.")
    if m.heap[inner].kind is Kind.THING and of_torch and name in TORCH.words["layer-parameters"]:
        if m.frozen(oid, state):
            return FREE_TENSOR
        return leaf_tensor(m, expr.node if expr is not None else 0, text, state)
    return frozenset((Obj(inner),))


HELD_ATTRIBUTES = frozenset(name for _, name in TORCH.held)


def held_by_library(m: Machine, cls: ClassRef | str | None, name: str) -> str | None:
    """The class of what objects of a library's class hold in an attribute, where theirs is that class, or one below."""
    if name not in HELD_ATTRIBUTES:
        return None
    above = m.world.project.mro(cls) if isinstance(cls, ClassRef) else (cls,)
    return next((TORCH.held[base, name] for base in above if isinstance(base, str) and (base, name) in TORCH.held), None)


def assigned_value(
    m: Machine, oid: int, name: str, text: str, fact: AttrFact, alone: bool, expr: ir.Attr | None, state: State
) -> Value:
    """What one assignment to an attribute puts there; nothing for what is not known. ``alone``: no other assigns to it."""
    info = m.heap[oid]
    assert isinstance(info.cls, ClassRef)
    container = CONTAINER_KINDS.get(fact.kind)
    if container is not None:
        return hold_first(m, oid, name, text, container, fact.method)
    if fact.kind is AttrKind.CONST:
        one = literal(fact.const)
        return one if alone and not is_field(fact) else join(one, UNKNOWN) if one != NONE else EMPTY
    maker = maker_of_closures(m, info.cls, fact)
    if maker is not None:
        return inline_property(m, maker, oid, expr.node if expr is not None else 0, state)
    return constructed_attribute(m, fact.value, oid, name, text, fact.method) if fact.kind is AttrKind.CALL else EMPTY


def plain_callable(m: Machine, cls: ClassRef, name: str, first: Sequence[AttrFact]) -> Value | None:
    """The functions of torch that an attribute stands for, or a ``partial`` of something, as what is assigned ``first`` says; None for what
    may be a module."""
    assigned = m.world.project.attr(cls, name)
    functions = [torch_function_of(m, fact, owner) for fact, owner in assigned]
    if functions and None not in functions:
        return frozenset(Ext(each) for each in functions if each is not None)
    return UNKNOWN if assigned and all(is_partial(m, fact, owner) for fact, owner in assigned if fact in first) else None


def torch_function_of(m: Machine, fact: AttrFact, cls: ClassRef) -> str | None:
    """The absolute name of the function of torch that is assigned to an attribute: ``self.activation = torch.relu``."""
    absolute = m.world.project.resolve(cls.path, fact.value, fact.method) if fact.kind is AttrKind.NAME else None
    return absolute if absolute is not None and TORCH.function_effect(absolute) in COMPUTES else None


COMPUTES = frozenset({Effect.KEEP, Effect.VIEW, Effect.CUT, Effect.LOSS})


def maker_of_closures(m: Machine, cls: ClassRef, fact: AttrFact) -> FunctionRef | None:
    """The method of the object's class that gives an attribute its value, and returns functions alone that it defines, and that run
    no part of the object with parameters: ``self.draw = self.make_draw("uniform")``."""
    holder, _, name = fact.value.removesuffix("()").partition(".")
    if fact.kind is not AttrKind.CALL or holder != "self" or not name.isidentifier():
        return None
    method = m.world.project.method(cls, name)
    if method is None or not m.world.facts(method).returned:
        return None
    given = m.result_of(method, Mode.ON)
    found = m.world.ir_of(method) if given and all(type(atom) is Func for atom in given) else None
    if found is None:
        return None
    inside = [node for node in everything(found.body) if isinstance(node, ir.Lambda | ir.FunctionDef)]
    parts = {node.name for each in inside for node in everything(each) if isinstance(node, ir.Attr)}
    return None if parts & parametric_attributes(m.world, cls) else method


def is_partial(m: Machine, fact: AttrFact, cls: ClassRef) -> bool:
    """Whether an attribute is given a function of the project with some of its arguments, or one of several such:
    ``self.score = partial(nearest, k=5) if probe else partial(linear, epochs=9)``."""
    callee = fact.value.removesuffix("()")
    if not fact.method or m.world.project.resolve(cls.path, callee, fact.method) != PARTIAL:
        return False
    calls = [call for call in m.world.facts(FunctionRef(cls.path, fact.method)).calls if call.callee == callee]
    return bool(calls) and all(
        bool(call.args) and m.world.project.is_function(cls.path, fact.method, call.args[0].name) for call in calls
    )


PARTIAL = "functools.partial"


def given_callable(m: Machine, cls: ClassRef, name: str) -> ClassRef | None:
    """The class of what an attribute's constructor is given for it, where objects of it are called: a criterion."""
    given = [
        callable_given(m.world, FunctionRef(base.path, fact.method), fact.value)
        for fact, base in m.world.project.attr(cls, name)
        if fact.kind is AttrKind.NAME and fact.method.endswith("__init__")
    ]
    return given[0] if len(given) == 1 else None


def is_field(fact: AttrFact) -> bool:
    """Whether a class only says what an attribute is unless its constructor is given something else: ``fp16: bool = True`` of a dataclass."""
    return fact.method == "" and fact.annotation.rpartition(".")[2] not in ("", "Final")


def class_path(m: Machine, cls: ClassRef, name: str) -> str:
    """Path of the class in the MRO that assigns the attribute."""
    found = m.world.project.attr(cls, name)
    return found[0][1].path if found else cls.path


def carried_calls(m: Machine, oid: int, name: str, text: str) -> frozenset[int]:
    """The mark of what an attribute of an outside object held when the root function was called."""
    return frozenset((m.number_mark(GraphKind.CARRIED, text, (oid, name)),))


CONTAINER_KINDS = {AttrKind.LIST: Kind.LIST, AttrKind.DICT: Kind.DICT, AttrKind.SET: Kind.SET}


def constructed_attribute(m: Machine, callee: str, oid: int, name: str, text: str, method: str) -> Value:
    """The object that ``self.name = callee`` made in another method; ``callee`` is dotted text ending in "()"."""
    info = m.heap[oid]
    assert isinstance(info.cls, ClassRef)
    path = class_path(m, info.cls, name)
    bare = callee.removesuffix("()")
    absolute = m.world.project.resolve(path, bare, method) if "(" not in bare else None
    if absolute is not None:
        cls = m.world.project.klass(absolute)
        if cls is not None:
            inner = m.outside(Kind.THING, text, cls, key=(oid, name, absolute))
            classify(m, inner, cls, f"self.{name}")
            note_bare(m, inner, cls, FunctionRef(path, method or MODULE), bare)
            return frozenset((Obj(inner),))
        maker = FunctionRef(path, method)
        bare_maker = bool(method) and (
            makes_bare(m.world, maker, bare, absolute) or made_constant(m.world, maker, bare, absolute)
        )
        made = made_by_library(m, absolute, oid, name, text, bare_maker, method)
        if made is not None and class_kind(absolute) is Kind.LIST and method and made_bounded(m.world, maker, bare):
            m.record.cleared.update(atom.oid for atom in made if type(atom) is Obj)
        if made is not None:
            return made
    found = m.world.project.class_of(path, method, f"self.{name}")
    made_by, _, last = bare.rpartition("().")
    # One of several classes: `nn.L1Loss().to(device)`.
    if found is None and made_by and last in TORCH.words["gives-itself"] - {EVALUATES}:
        return constructed_attribute(m, f"{made_by}()", oid, name, text, method)
    if found is None:
        found = m.world.project.class_by_methods(path, method, f"self.{name}")
    inner = m.outside(Kind.THING, text, found, key=(oid, name))
    classify(m, inner, found, f"self.{name}")
    if m.heap[inner].kind is Kind.THING and callee.endswith(".eval()"):  # modules alone have an `eval()` so
        m.retype(inner, Kind.MODULE, found)
    return frozenset((Obj(inner),))


def hold_first(m: Machine, oid: int, name: str, text: str, kind: Kind, method: str) -> Value:
    """The container that ``method`` puts into an attribute. Of modules in it is not known whether they learn, so that only of other
    objects the class counts."""
    info = m.heap[oid]
    assert isinstance(info.cls, ClassRef)
    made = m.first_held(kind, text, info, (oid, name, kind))
    known = m.world.project.class_of(class_path(m, info.cls, name), method, f"self.{name}[]")
    cls = known or filled_with(m.world, info.cls, name)
    if isinstance(cls, ClassRef) and m.world.is_module_class(cls) is False:
        m.element_classes[made] = cls
    return frozenset((Obj(made),))


def made_by_library(m: Machine, absolute: str, oid: int, name: str, text: str, bare_maker: bool, method: str) -> Value | None:
    """What a known function or class of a library made for the attribute; None where nothing is known of it."""
    info = m.heap[oid]
    assert isinstance(info.cls, ClassRef)
    kind = Kind.MODULE if absolute in TORCH.given_weights else class_kind(absolute)
    if kind is Kind.MODULE and bare_maker:
        kind = Kind.FUNCTION_MODULE
    if kind is Kind.PARAMETER:
        return FREE_TENSOR if bare_maker else leaf_tensor(m, 0, text, None)
    if kind in (Kind.LIST, Kind.DICT, Kind.SET):
        return hold_first(m, oid, name, text, kind, method)
    if kind is not Kind.THING:
        inner = m.outside(kind, text, absolute, key=(oid, name, absolute))
        if absolute in HOLDERS and name not in parametric_attributes(m.world, info.cls):
            m.bare.add(inner)
        return frozenset((Obj(inner),))
    if makes_recorder(absolute, m):
        return frozenset((Obj(m.outside(Kind.THING, text, absolute, key=(oid, name, absolute))),))
    effect = TORCH.function_effect(absolute)
    if effect in (Effect.SOURCE, Effect.CUT):
        return FREE_TENSOR
    if effect is Effect.NUMBER:
        return PLAIN
    if effect is Effect.MODULE:
        return frozenset((Obj(m.outside(Kind.MODULE, text, absolute, key=(oid, name, absolute))),))
    return None


def inline_property(m: Machine, ref: FunctionRef, oid: int, node: int, state: State) -> Value:
    (function,) = function_value(m, ref, oid)
    return call_atom(m, function, call_at(node, ir.Name(node, ref.qualname), [], []), state)
