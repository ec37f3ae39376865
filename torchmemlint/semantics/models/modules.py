"""Modules: how they are constructed, frozen, run by their methods."""

from __future__ import annotations

from collections import Counter

from torchmemlint.index.fact_words import AttrKind, ParamKind
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import text_of
from torchmemlint.semantics.identity import (
    class_kind,
    frozen_by_arguments,
    is_torch_function,
    parametric,
    parametric_attributes,
    put_on_class,
)
from torchmemlint.semantics.mode import back_propagates, guards
from torchmemlint.semantics.models.trainers import record_trainer
from torchmemlint.semantics.state import (
    ELEMENTS,
    EMPTY,
    EVERYTHING,
    FROZEN,
    NOTHING,
    PLAIN,
    Call,
    Const,
    Ext,
    Func,
    Kind,
    Machine,
    Mode,
    Obj,
    Plain,
    SinkKind,
    State,
    Value,
    World,
    const,
    join_all,
    memoized,
    only_free,
    only_indices,
    truth,
    unknown,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.loader import GuardedMethod
from torchmemlint.torch_facts.words import ModuleEffect

FREEZING = {
    **dict.fromkeys(sorted(TORCH.words["frozen-if-false"]), False),
    **dict.fromkeys(sorted(TORCH.words["frozen-if-true"]), True),
}
"""Constructor arguments of modules, and the value with which no parameter requires grad."""
PARAMETER_ITERATORS = TORCH.words["parameter-iterators"]
PARAMETERS = PARAMETER_ITERATORS | {TORCH.names["sets-gradient-flag"]}
DRAWING = TORCH.words["draws"]
"""Methods of a model that may run it without an argument."""
DICT_METHODS = TORCH.words["container-methods"]
"""Methods of containers of modules: none of them runs a module."""
MAX_METHODS = 8
"""Methods of one name that are run to see what they return."""
MAKES_NEW = TORCH.words["makes-new"]
"""Words of a method that may return a tensor without a history: no other is run to see."""


def construct_instance(m: Machine, cls: ClassRef, call: Call, state: State) -> Value:
    """``Class(...)``: a module or an instance; ``__init__`` is not run (attributes come from the class's facts)."""
    module = m.world.is_module_class(cls)
    text = text_of(call.func)
    mro = m.world.project.mro(cls)
    if any(isinstance(b, str) and class_kind(b) is Kind.LOADER for b in mro):
        return frozenset((Obj(m.allocate(Kind.LOADER, call.node, text, cls)),))
    kind = Kind.MODULE if module else Kind.INSTANCE
    oid = m.allocate(kind, call.node, text, cls)
    if any(isinstance(b, str) and class_kind(b) is Kind.HF_TRAINER for b in mro):
        record_trainer(m, cls, call)
    if module and (built_frozen(m, cls, call) or given_frozen(m, cls, call) or EVERYTHING in m.frozen_in(cls)):
        state.vars[oid, FROZEN] = const(True)
    if module and built_bare(m, cls, call):
        m.bare.add(oid)
    elif module and built_bare(m, cls, call, state):
        state.vars[oid, FROZEN] = const(True)  # around modules that are
    else:
        m.bare.discard(oid)  # made here in another iteration, with other arguments
    freeze_what_is_given(m, cls, call, state)
    if kind is Kind.INSTANCE:
        # What the constructor is given it may keep.
        gids = [m.whole(v, state)[0] for v in handed_in(m, oid, cls, call, state)]
        kept = NOTHING.union(*gids) if gids else NOTHING
        state.vars[oid, ELEMENTS] = unknown(kept) if kept else EMPTY
        if not keep_fields(m, oid, cls, call, state):
            m.sink(kept, SinkKind.PASSED, text, call.node)
    return frozenset((Obj(oid),))


def freeze_what_is_given(m: Machine, cls: ClassRef, call: Call, state: State) -> None:
    """A constructor that freezes an attribute freezes the module that it was given for it."""
    frozen = m.frozen_in(cls)
    init = m.world.project.method(cls, "__init__") if frozen else None
    if init is None:
        return
    params = [param.name for param in m.world.header(init).params[1:] if param.kind is ParamKind.POSITIONAL]
    for fact in m.world.project.attrs(ClassRef(init.path, m.world.header(init).owner)):
        if fact.name not in frozen or fact.kind is not AttrKind.NAME or fact.method != init.qualname:
            continue
        given = call.get(params.index(fact.value) if fact.value in params else -1, fact.value)
        for atom in given or ():
            if type(atom) is Obj and m.heap[atom.oid].kind in (Kind.MODULE, Kind.THING):
                m.set_frozen(atom.oid, True, state)


def handed_in(m: Machine, oid: int, cls: ClassRef, call: Call, state: State) -> list[Value]:
    """The arguments of a constructor, less those that it does nothing with but put them into an attribute: these are kept there."""
    init = m.world.project.method(cls, "__init__")
    stored = stored_parameters(m.world, init) if init is not None and not call.more else {}
    if init is None or not stored:
        return call.all()
    params = [param.name for param in m.world.header(init).params[1:] if param.kind is ParamKind.POSITIONAL]
    given = [*zip(params, call.positional, strict=False), *call.keywords.items()]
    for name, value in given:
        if name in stored:
            m.set_attribute(oid, stored[name], value, state)
    return [value for name, value in given if name not in stored] + call.positional[len(params) :]


@memoized
def stored_parameters(world: World, init: FunctionRef) -> dict[str, str]:
    """The parameters of a constructor that it does nothing with but put them into an attribute, each with that."""
    found = world.ir_of(init)
    if found is None or not found.params:
        return {}
    uses = Counter(part.id for part in nodes_of(found.body) if isinstance(part, ir.Name))
    own, names = found.params[0].name, {param.name for param in found.params[1:]}
    stored: dict[str, str] = {}
    for statement in found.body:
        match statement:
            case ir.Assign(targets=[ir.Attr(value=ir.Name(id=holder), name=attr)], value=ir.Name(id=name)) if holder == own:
                if name in names and uses[name] == 1:
                    stored[name] = attr
    return stored


def keep_fields(m: Machine, oid: int, cls: ClassRef, call: Call, state: State) -> bool:
    """A dataclass or named tuple keeps what it is given as it is: by name, else in the order in which it says its fields. Whether
    it does nothing else with it."""
    project = m.world.project
    if project.method(cls, "__init__") is not None:
        return False
    given = dict(call.keywords)
    mro = project.mro(cls)
    plain = all(isinstance(base, ClassRef) or base.partition(".")[0] in TORCH.words["plain-bases"] for base in mro)
    if plain:
        own = [base for base in reversed(mro) if isinstance(base, ClassRef)]
        facts = [fact for base in own for fact in project.attrs(base)]
        names = [*dict.fromkeys(fact.name for fact in facts if not fact.method and fact.annotation)]
        given |= dict(zip(names, call.positional, strict=False))
        if call.more:
            given |= {name: join_all(call.more) for name in names[len(call.positional) :] if name not in call.keywords}
    for name, value in given.items():
        m.set_attribute(oid, name, value, state)
    return plain and project.method(cls, "__post_init__") is None


def built_bare(m: Machine, cls: ClassRef, call: Call, frozen_in: State | None = None) -> bool:
    """Whether a module of this class is built without parameters: its class makes none, and none comes in with what it is
    given. With a state ``frozen_in``, those that come in may be frozen there."""
    needed = parametric(m.world, cls, True)
    init = m.world.project.method(cls, "__init__") if needed else None
    if not needed or init is None or call.more:
        return needed == frozenset()
    places = [param.name for param in m.world.header(init).params[1:] if param.kind is ParamKind.POSITIONAL]
    given = [call.get(places.index(word) if word in places else -1, word) for word in needed]
    return all(
        type(a) in (Const, Plain, Func)
        or (type(a) is Ext and is_torch_function(a.name))
        or (type(a) is Obj and is_plain_callable(m, a.oid))
        or (type(a) is Obj and (a.oid in m.bare or (frozen_in is not None and m.frozen(a.oid, frozen_in))))
        for v in given
        for a in v or ()
    )


def is_plain_callable(m: Machine, oid: int) -> bool:
    """Whether an object is of a class that is no module, and holds none: it has no parameters."""
    info = m.heap[oid]
    return (
        info.kind is Kind.INSTANCE
        and isinstance(info.cls, ClassRef)
        and m.world.is_module_class(info.cls) is False
        and not parametric_attributes(m.world, info.cls)
        and not m.world.project.subclasses(info.cls)
    )


def built_frozen(m: Machine, cls: ClassRef, call: Call) -> bool:
    """Whether a module is built without anything that requires grad: by an argument that says so, or by the default of a
    parameter of that name."""
    for word, frozen in FREEZING.items():
        if word in call.keywords:
            return truth(call.keywords[word]) is frozen
        init = m.world.project.method(cls, "__init__")
        if init is not None and not call.more:
            params = [p for p in m.world.header(init).params if p.name == word]
            if params and params[0].default == str(frozen):
                return len(call.positional) < len([p for p in m.world.header(init).params if p.kind is ParamKind.POSITIONAL])
    return False


def given_frozen(m: Machine, cls: ClassRef, call: Call) -> bool:
    """Whether a module is built so that none of its own parameters wants a gradient, by the flags that its constructor is given."""
    init = m.world.project.method(cls, "__init__")
    if init is None or call.more:
        return False
    params = m.world.header(init).params[1:]
    places = [param.name for param in params if param.kind is ParamKind.POSITIONAL]
    known: dict[str, bool] = {}
    for param in params:
        value = call.get(places.index(param.name) if param.name in places else -1, param.name)
        flag = truth(value) if value is not None else {"True": True, "False": False}.get(param.default)
        if flag is not None:
            known[param.name] = flag
    return frozen_by_arguments(m.world, cls, known)


def gives_indices(m: Machine, name: str, call: Call) -> bool:
    """Whether every method of the project that a call on a module of unknown class may mean returns indices alone (a
    decoder's ``argmax``)."""
    found = methods_meant(m, name, call)
    return bool(found) and all(only_indices(m.result_of(ref, Mode.OFF)) for ref in found)


def trains_itself(m: Machine, name: str, call: Call) -> bool:
    """Whether every method of the project that a call on a module of unknown class may mean back-propagates by itself."""
    found = methods_meant(m, name, call)
    return bool(found) and all(back_propagates(m.world, ref) for ref in found)


def gives_data(m: Machine, name: str, call: Call) -> bool:
    """Whether every method of the project that a call on a module of unknown class may mean ends in arrays, lists or text (a
    decoder's)."""
    found = methods_meant(m, name, call)
    return bool(found) and all(m.world.ends_as_data(ref) for ref in found)


def gives_no_graph(m: Machine, name: str, call: Call) -> bool:
    """Whether every method of the project that a call on a module of unknown class may mean returns tensors that it has made
    again (of an array, of indices), and so runs nothing whose graph could be kept."""
    found = methods_meant(m, name, call)
    if not found or not all(m.world.facts(ref).names & MAKES_NEW for ref in found):
        return False
    return all(only_free(m.result_of(ref, Mode.ON)) for ref in found)


def methods_meant(m: Machine, name: str, call: Call) -> list[FunctionRef]:
    """The methods of the project that a call on a module of unknown class may mean; none where they are too many."""
    shape = call.shape
    found = [ref for ref in m.world.project.methods_named(name) if shape.fits(m.world.header(ref).params)]
    return found if len(found) <= MAX_METHODS and not call.more else []


def method_guards_itself(m: Machine, name: str, call: Call) -> bool:
    """Whether a method of an object that is not visible is one that switches grad mode off by itself (``generate``), or was put on its
    class by the file and does."""
    put = put_on_class(m.world, m.path, name)
    if put is not None:
        return guards(m.world, put)
    return any(is_guarded(m, known, call) for known in TORCH.guarded_methods.get(name, ()))


def is_guarded(m: Machine, known: GuardedMethod, call: Call) -> bool:
    """Whether a call of a method of that name is one of a row's."""
    if known.asks in call.keywords and truth(call.keywords[known.asks]) is not False:
        return False
    if not known.keywords and not known.package:
        return True
    imported = (target.partition(".")[0] for _, target in m.world.project.imports(m.path))
    return bool(known.keywords & call.keywords.keys()) or known.package in imported


def me_or_plain(oid: int, effect: ModuleEffect) -> Value:
    """What a method of every ``nn.Module`` returns: the module itself, or plain data."""
    return (
        frozenset((Obj(oid),))
        if effect in (ModuleEffect.SELF, ModuleEffect.EVAL, ModuleEffect.TRAIN, ModuleEffect.FREEZE)
        else PLAIN
    )
