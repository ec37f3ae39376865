"""What a name stands for: a local, a variable of the module, a function or class of the project, or something outside it."""

from __future__ import annotations

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.identity import (
    class_kind,
    looks_like_module,
    made_frozen,
    made_without_parameters,
    may_freeze_variable,
    methods_called_on_variable,
    trains_in,
)
from torchmemlint.semantics.state import (
    ANY_PART,
    ELEMENTS,
    EXPRESSIONS,
    MODULE,
    NONE,
    TRAINING,
    UNKNOWN,
    Closure,
    Cls,
    Ext,
    Func,
    Kind,
    Machine,
    Method,
    Obj,
    State,
    Value,
    const,
    handles,
)
from torchmemlint.torch_facts import TORCH

EXTERNAL = {"builtins.True": const(True), "builtins.False": const(False), "builtins.None": NONE}
"""Names outside the project that stand for literals."""


@handles(EXPRESSIONS, ir.Name)
def evaluate_name(m: Machine, expr: ir.Name, state: State) -> Value:
    frame = m.frame
    ident = expr.id
    while frame >= 0:
        value = state.vars.get((frame, ident))
        if value is not None:
            return value
        closure = m.frame_closure[frame]
        if ident in closure.function.locals and closure.function.name != MODULE:
            return UNKNOWN
        frame = closure.parent
    return global_name(m, ident, state)


def global_name(m: Machine, ident: str, state: State) -> Value:
    closure = m.frame_closure[m.frame]
    path = closure.ref.path
    held = state.vars.get((-2, f"{path}:{ident}"))
    if held is not None:
        return held
    absolute = m.world.resolved(path, ident)
    if absolute is None:
        return module_variable(m, path, ident)
    variable = m.world.variable(path, ident)
    return known_variable(m, *variable, ident, state) if variable else named(m, absolute, path, ident)


def known_variable(m: Machine, path: str, name: str, ident: str, state: State) -> Value:
    """What a module-level variable holds that is read as ``ident``, elsewhere than in the module's own statements: any object
    where the module does not show what it is, a name that is not visible where it may leave it frozen."""
    text = m.world.project.assigned(path, name)
    if taken := taken_method(m, path, text):
        return taken
    found = m.world.project.class_of(path, MODULE, name)
    words = methods_called_on_variable(m.world, path, name)
    is_module = looks_like_module(words) or (text is not None and text.endswith(".eval()"))  # only modules have an `eval()` so
    if may_freeze_variable(m.world, path, name):
        return frozenset((Ext(f"{m.world.project.module_name(path)}.{name}"),))
    if found is None and not is_module:
        return frozenset((Obj(m.outside(Kind.THING, ident, None, key=(path, name))),))
    oid = m.outside(Kind.THING, ident, found, key=(path, name))
    if m.heap[oid].kind is Kind.THING:
        classify(m, oid, found, ident)
        if m.heap[oid].kind is Kind.THING:
            m.retype(oid, Kind.MODULE if is_module else Kind.THING, found)
        if isinstance(found, ClassRef) and text is not None and text.endswith("()"):
            note_bare(m, oid, found, FunctionRef(path, MODULE), text.removesuffix("()"))
    if TORCH.names["evaluates"] in words and TORCH.names["trains"] not in words and not trains_in(m.world, path):
        state.vars.setdefault((oid, TRAINING), const(False))
    return frozenset((Obj(oid),))


def named(m: Machine, absolute: str, path: str, text: str) -> Value:
    found = m.absolutes.get(absolute)
    if found is None:
        known = m.world.symbol(absolute)
        if known is None:
            found = EXTERNAL.get(absolute) or frozenset((Ext(absolute),))
        elif isinstance(known, FunctionRef):
            found = function_value(m, known)
        else:
            found = frozenset((Cls(known.path, known.qualname),))
        m.absolutes[absolute] = found
    return found


def function_value(m: Machine, ref: FunctionRef, receiver: int = -1) -> Value:
    """A function of the project; it is lowered only when it is called."""
    key = m.closure_keys.get(("ref", ref))
    if key is None:
        placeholder = ir.Function(-1, ref.qualname.rpartition(".")[2], ref.qualname, [], [], [])
        key = len(m.closures)
        m.closure_keys["ref", ref] = key
        m.closures.append(Closure(placeholder, None, ref, -1, m.world.class_of_method(ref)))
    return frozenset((Func(key, receiver),))


def module_variable(m: Machine, path: str, ident: str) -> Value:
    """A module-level variable read inside a function: an object by what the module assigns to it."""
    text = m.world.project.assigned(path, ident)
    if taken := taken_method(m, path, text):
        return taken
    if text is not None:
        found = m.world.project.class_of(path, MODULE, ident)
        oid = m.outside(Kind.THING, ident, found, key=(path, ident))
        classify(m, oid, found, ident)
        if isinstance(found, ClassRef) and text.endswith("()"):
            note_bare(m, oid, found, FunctionRef(path, MODULE), text.removesuffix("()"))
        return frozenset((Obj(oid),))
    if ident == "torch":  # bound by an import that is not visible (``from common import *``), or forgotten
        return named(m, ident, path, ident)
    return frozenset((Obj(m.outside(Kind.THING, ident, None, key=(path, ident))),))


def taken_method(m: Machine, path: str, text: str | None) -> Value | None:
    """What a module's variable holds that is a method of one of the project's classes (``nearest = Nearest.apply``); None for any other."""
    owner, _, method = (text or "").rpartition(".")
    absolute = m.world.project.resolve(path, owner, MODULE) if owner and method.isidentifier() else None
    cls = m.world.symbol(absolute) if absolute else None
    return frozenset((Method(frozenset((Cls(cls.path, cls.qualname),)), method),)) if isinstance(cls, ClassRef) else None


def annotated_container(m: Machine, ref: FunctionRef, text: str, name: str, key: object, state: State) -> Value | None:
    """The container that a parameter or an attribute, which stands as ``text`` in a function, is by its annotation, where that says of
    what class its elements are: ``models: list[nn.Module]``; None for anything else."""
    found = m.world.project.class_of(ref.path, ref.qualname, f"{text}[]")
    if found is None:
        return None
    mapping = m.world.project.class_of(ref.path, ref.qualname, f"{text}.values()[]") is not None
    inner = m.outside(Kind.THING, f"{name}{ANY_PART}", found, key=(key, ELEMENTS))
    classify(m, inner, found, name)
    if m.heap[inner].kind is Kind.THING:
        return None
    oid = m.outside(Kind.DICT if mapping else Kind.LIST, name, None, key=(key, "annotated"))
    state.vars.setdefault((oid, ELEMENTS), frozenset((Obj(inner),)))
    m.holders.setdefault(inner, oid)
    return frozenset((Obj(oid),))


def classify(m: Machine, oid: int, cls: ClassRef | str | None, text: str) -> None:
    """Give an object from outside the kind that its class, or what the code calls on it, shows."""
    if m.heap[oid].kind is not Kind.THING:
        return
    kind = Kind.THING
    if isinstance(cls, ClassRef):
        kind = Kind.MODULE if m.world.is_module_class(cls) else Kind.INSTANCE
    elif isinstance(cls, str):
        kind = class_kind(cls)
    if kind is Kind.THING:
        evidence = m.evidence if m.frame >= 0 else m.world.evidence(m.record.root)
        if looks_like_module(evidence.get(text, frozenset())):
            kind = Kind.MODULE
    m.retype(oid, kind, cls)


def note_bare(m: Machine, oid: int, cls: ClassRef, ref: FunctionRef, callee: str) -> None:
    """Record of an object that is constructed by calls of ``callee`` in a function that it is a module without parameters that learn."""
    if m.heap[oid].kind is not Kind.MODULE:
        return
    if made_without_parameters(m.world, ref, callee, cls) or made_frozen(m.world, ref, callee, cls):
        m.bare.add(oid)
