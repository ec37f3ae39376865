"""Calls on objects, of themselves or of a method, by their kind."""

from __future__ import annotations

from collections.abc import Callable

from torchmemlint.index.decorators import is_property
from torchmemlint.index.project import ClassRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.identity import INPUT_GRAD, callable_with, class_kind, looks_like_module, want_object
from torchmemlint.semantics.interpret import (
    arithmetic,
    cut_all,
    function_value,
    in_role,
    iterate,
    object_attribute,
    record,
    record_call,
    whole_logits,
)
from torchmemlint.semantics.mode import guards_itself, purpose
from torchmemlint.semantics.models.backward import back_propagate
from torchmemlint.semantics.models.containers import container_method
from torchmemlint.semantics.models.forward import run_forward
from torchmemlint.semantics.models.grad_managers import switch_by_hand
from torchmemlint.semantics.models.libraries import call_external, plain_result
from torchmemlint.semantics.models.modules import (
    DICT_METHODS,
    DRAWING,
    PARAMETER_ITERATORS,
    PARAMETERS,
    construct_instance,
    gives_data,
    gives_indices,
    gives_no_graph,
    me_or_plain,
    method_guards_itself,
    trains_itself,
)
from torchmemlint.semantics.models.unknown_objects import (
    BACKWARD,
    call_methods,
    call_opaque,
    guarded_result,
    is_given_text,
    may_be_attached,
    methods_meant_by,
    thing_method,
)
from torchmemlint.semantics.state import (
    CONTAINERS,
    ELEMENTS,
    FREE_TENSOR,
    INTEGER,
    NONE,
    NOTHING,
    PLAIN,
    SCALAR,
    TRAINING,
    UNKNOWN,
    Call,
    Cls,
    Ext,
    Func,
    Kind,
    Machine,
    Mode,
    Obj,
    RecordFlag,
    SinkKind,
    State,
    Tuple,
    Value,
    World,
    call_atom,
    const,
    does_nothing,
    hints_of,
    join_all,
    sorted_atoms,
    tensor,
    truth,
    with_flags_set,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName, Effect, ModuleEffect

FORWARD_METHOD = TORCH.names["forward"]
SETS_FLAG = TORCH.names["sets-gradient-flag"]
STEPS = TORCH.names["steps"]
FORWARD = TORCH.words["forward"]
TO_DEVICE = TORCH.words["to-device"]


def call_object(m: Machine, oid: int, call: Call, state: State) -> Value:
    info = m.heap[oid]
    if isinstance(info.cls, ClassRef) and info.kind is Kind.MODULE:
        own = m.world.project.method(info.cls, "__call__")
        if own is not None:
            (function,) = function_value(m, own, oid)
            return call_atom(m, function, call, state)
    if info.kind is Kind.MODULE and isinstance(info.cls, ClassRef) and info.external and has_no_forward(m.world, info.cls):
        return construct_instance(
            m, info.cls, call, state
        )  # none of its objects can be called: this is the class, or a part of one
    handler = CALLED.get(info.kind)
    if info.kind is Kind.SELF and isinstance(info.cls, ClassRef) and m.world.is_module_class(info.cls):
        handler = call_module
    if handler is not None:
        return handler(m, oid, call, state)
    if isinstance(info.cls, ClassRef):
        for name in sorted(FORWARD):
            method = m.world.project.method(info.cls, name)
            if method is not None:
                (atom,) = function_value(m, method, oid)
                return call_atom(m, atom, call, state)
    text = dotted(call.func)
    if info.kind is Kind.THING and text and looks_like_module(m.evidence.get(text, frozenset())):
        m.retype(oid, Kind.MODULE)
        return run_forward(m, oid, call, state, text)
    if info.kind is Kind.THING and info.cls is None and (cls := called_by_its_arguments(m, call)) is not None:
        m.retype(oid, Kind.THING, cls)
        return call_object(m, oid, call, state)
    return call_opaque(m, text_of(call.func), call, state, oid=oid, direct=info.kind is Kind.THING)


def has_no_forward(world: World, cls: ClassRef) -> bool:
    """Whether neither a class nor those below it have a forward, and all above it are visible: ``make_solver: Solver``, of what
    ``functools.partial`` gave, makes a solver where it is called."""
    project = world.project
    if any(isinstance(base, str) and base != TORCH.names["module"] for base in project.mro(cls)):
        return False
    names = (FORWARD_METHOD, "__call__")
    return not any(
        project.method(each, name) is not None or project.attr(each, name)
        for each in (cls, *project.subclasses(cls))
        for name in names
    )


def called_by_its_arguments(m: Machine, call: Call) -> ClassRef | None:
    """The class of what is called, of which nothing else is known: of the only one of the project whose ``__call__`` takes arguments
    by these names."""
    names = tuple(expr.id for expr in call.exprs if isinstance(expr, ir.Name))
    if len(names) < LEAST_NAMES or len(names) != len(call.exprs) or call.keywords or call.more:
        return None
    return callable_with(m.world, names)


LEAST_NAMES = 2
"""Arguments by whose names alone what is called may be known."""


def call_module(m: Machine, oid: int, call: Call, state: State) -> Value:
    return run_forward(m, oid, call, state, text_of(call.func))


def call_metric(m: Machine, oid: int, call: Call, state: State) -> Value:
    cut_all(m, call, state, text_of(call.func))
    return FREE_TENSOR


def call_backward(m: Machine, oid: int, call: Call, state: State) -> Value:
    back_propagate(m, [join_all(call.positional[:1])], call, state)
    return NONE


def call_loss(m: Machine, oid: int, call: Call, state: State) -> Value:
    whole_logits(m, call.all(), state)
    for value in call.positional[:1]:
        m.operation(hints_of(value), "loss")
    return with_flags_set(arithmetic(m, call.all(), call.node, state), SCALAR)


def call_function_module(m: Machine, oid: int, call: Call, state: State) -> Value:
    """A module without parameters: its result depends on what it is given."""
    result = arithmetic(m, call.all(), call.node, state)
    cls = m.heap[oid].cls
    name = cls.rpartition(".")[2] if isinstance(cls, str) else ""
    return in_role(m, name, result, call.all(), call.node, state)


CALLED: dict[Kind, Callable[[Machine, int, Call, State], Value]] = {
    Kind.MODULE: call_module,
    Kind.METRIC: call_metric,
    Kind.PREDICTOR: call_metric,
    Kind.BACKWARD_CALLABLE: call_backward,
    Kind.LOSS: call_loss,
    Kind.FUNCTION_MODULE: call_function_module,
}
"""Kind of an object → what calling it gives."""


def call_object_method(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    info = m.heap[oid]
    if info.kind in CONTAINERS:
        return container_method(m, oid, name, call, state)
    if info.kind is Kind.MANAGER:
        return switch_by_hand(m, oid, name, state)
    held = state.vars.get((oid, name))
    if held is not None:
        return call_each(m, held, call, state)
    if isinstance(info.cls, ClassRef):
        found = method_of_class(m, oid, info.cls, name, call, state)
        if found is not None:
            return found
    if info.kind is Kind.DISTRIBUTION:
        return distribution_method(m, oid, name, call, state)
    if f"{info.cls}.{name}" in m.world.settings.recorders:
        return record(m, f"{info.cls}.{name}", call, state)
    generic = method_in_facts(m, oid, name, call, state)
    if generic is not None:
        return generic
    kind = info.kind
    if kind in (Kind.SELF, Kind.LOSS, Kind.FUNCTION_MODULE) and name in TORCH.module_methods and name not in FORWARD:
        # A method that every module has: it runs nothing.
        return me_or_plain(oid, TORCH.module_methods[name])
    if isinstance(info.cls, ClassRef) and kind in (Kind.SELF, Kind.MODULE, Kind.INSTANCE):
        found = call_attribute(m, oid, name, call, state)
        if found is not None:
            return found
    return method_of_kind(m, oid, name, call, state)


def method_of_kind(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    """A method of which the object's class says nothing."""
    info = m.heap[oid]
    kind = info.kind
    may_guard = kind in (Kind.MODULE, Kind.SELF, Kind.THING)
    if kind is Kind.PREDICTOR or (may_guard and method_guards_itself(m, name, call)):
        m.sink(NOTHING.union(*(m.whole(v, state)[0] for v in call.all())), SinkKind.CUT, name, call.node)
        return FREE_TENSOR
    if kind is Kind.SELF and name == FORWARD_METHOD and isinstance(info.cls, ClassRef) and m.world.is_module_class(info.cls):
        kind = Kind.MODULE
    found = plain_result(m, f"{info.cls}.{name}", call, state) if isinstance(info.cls, str) else None
    if found is None and (handler := METHOD_OF_KIND.get(kind)) is not None:
        found = handler(m, oid, name, call, state)
    return found if found is not None else call_opaque(m, text_of(call.func), call, state, oid=oid)


def call_each(m: Machine, callee: Value, call: Call, state: State) -> Value:
    return join_all(call_atom(m, atom, call, state) for atom in sorted_atoms(callee))


def method_of_class(m: Machine, oid: int, cls: ClassRef, name: str, call: Call, state: State) -> Value | None:
    """A method, or what a property gives, of an object's class and the library classes that it has for bases; None where
    they have none of that name."""
    method = m.world.project.method(cls, name)
    if method is not None and type(call.func) is ir.Attr and is_property(m.world.header(method)):
        # What the property gives is called, and not the property.
        held = object_attribute(m, oid, name, call.func, state)
        return join_all([call_atom(m, atom, call, state) for atom in sorted_atoms(held)]) or UNKNOWN
    bases = m.world.project.mro(cls)
    if name == STEPS and any(isinstance(base, str) and class_kind(base) is Kind.OPTIMIZER for base in bases):
        record_call(m, CallByName.OPTIMIZER_STEP, text_of(call.func), call)
    if method is not None:
        if m.heap[oid].external and m.heap[oid].kind is not Kind.SELF and does_nothing(m.world, method):
            below = m.world.project.subclasses(cls)
            overrides = methods_meant_by(m, name, call)
            if overrides and all(ClassRef(each.path, m.world.header(each).owner) in below for each in overrides):
                return call_methods(m, overrides, m.heap[oid].name, (oid, "as"), call, state)
        (atom,) = function_value(m, method, oid)
        return call_atom(m, atom, call, state)
    for base in bases:
        if isinstance(base, str) and f"{base}.{name}" in TORCH.functions:
            return call_external(m, f"{base}.{name}", call, state)
    return None


def method_in_facts(m: Machine, oid: int, name: str, call: Call, state: State) -> Value | None:
    """A method that means the same whatever the object, or that the facts have of a library's class; None for the others."""
    found = method_by_name(m, oid, name, call, state)
    return found if found is not None else method_of_library(m, oid, name, call, state)


def method_of_library(m: Machine, oid: int, name: str, call: Call, state: State) -> Value | None:
    """A method that the facts have of the kind of a library's class below which an object's class stands (``self.log`` of a
    LightningModule); None where they have none."""
    cls = m.heap[oid].cls
    if not isinstance(cls, ClassRef) or m.world.project.attr(cls, name):
        return None
    for base in m.world.project.mro(cls):
        kind = TORCH.class_kind(base) if isinstance(base, str) else None
        effect = TORCH.kind_methods.get((kind, name)) if kind is not None else None
        if effect is not None:
            return kind_method(m, effect, m.heap[oid].kind, name, call, state)
    return None


def call_attribute(m: Machine, oid: int, name: str, call: Call, state: State) -> Value | None:
    """What an attribute holds is called; None where nothing is known of it."""
    value = object_attribute(m, oid, name, None, state)
    if any(type(a) in (Func, Cls, Ext) or (type(a) is Obj and m.heap[a.oid].kind is not Kind.THING) for a in value):
        return call_each(m, value, call, state)
    inner = next((a for a in value if type(a) is Obj), None)
    return call_object(m, inner.oid, call, state) if inner is not None and m.heap[oid].kind is Kind.SELF else None


def method_of_module(m: Machine, oid: int, name: str, call: Call, state: State) -> Value | None:
    effect = TORCH.module_methods.get(name)
    if name in TORCH.part_methods:
        return frozenset((Obj(oid),))
    if name in FORWARD or runs_it(m, name, effect, call):
        if guards_itself(m.world, name, call.shape):
            return guarded_result(m, name, call)
        other = None if name in FORWARD else gives_no_forward(m, name, call, state)
        if other is not None:
            return other
        return run_forward(m, oid, call, state, text_of(call.func), by_method=name not in FORWARD)
    return None if effect is None else PLAIN


def runs_it(m: Machine, name: str, effect: ModuleEffect | None, call: Call) -> bool:
    """Whether a method of a module of unknown class is taken to run it."""
    return (
        effect is None
        and name not in DICT_METHODS
        and bool(call.all() or name in DRAWING)  # what is given nothing has nothing to run on
        and bool(purpose.RUNS_MODEL.match(name) or m.world.project.is_attribute_only(name))
    )


def gives_no_forward(m: Machine, name: str, call: Call, state: State) -> Value | None:
    """What a method of a module of unknown class gives, where that is not a forward's result; None where it may be."""
    if is_given_text(m, call):
        return UNKNOWN  # a tokenizer, or a pipeline with its own grad mode: a network is given tensors
    if trains_itself(m, name, call):
        return UNKNOWN
    if gives_data(m, name, call):
        cut_all(m, call, state, text_of(call.func))
        return PLAIN
    if state.mode is Mode.OFF and gives_indices(m, name, call):
        return tensor(flags=INTEGER)
    if state.mode is not Mode.OFF and gives_no_graph(m, name, call):
        return FREE_TENSOR
    return None


def method_of_parameters(m: Machine, oid: int, name: str, call: Call, state: State) -> Value | None:
    if name == SETS_FLAG and oid in m.owner_of_params:
        known = truth(call.positional[0]) if call.positional else True
        m.set_frozen(m.owner_of_params[oid], known is False, state)
    if oid in m.owner_of_params and TORCH.methods.get(name) is Effect.DETACH_INPLACE:
        m.set_frozen(m.owner_of_params[oid], True, state)  # a leaf that is detached requires no grad any more
    return frozenset((Obj(oid),))


def method_of_generator(m: Machine, oid: int, name: str, call: Call, state: State) -> Value | None:
    return iterate(m, frozenset((Obj(oid),)), call.node, state) if name in ("send", "__next__") else None


METHOD_OF_KIND: dict[Kind, Callable[[Machine, int, str, Call, State], Value | None]] = {
    Kind.MODULE: method_of_module,
    Kind.PARAMS: method_of_parameters,
    Kind.THING: thing_method,
    Kind.GENERATOR: method_of_generator,
}
"""Kind of an object → what calling a method of it gives; None for a method that is not known."""


def method_by_name(m: Machine, oid: int, name: str, call: Call, state: State) -> Value | None:
    """Methods that mean the same on a module and on an unknown object; None for the others."""
    info = m.heap[oid]
    me = frozenset((Obj(oid),))
    if name in (TORCH.names["trains"], TORCH.names["evaluates"]) and info.kind in (Kind.MODULE, Kind.THING, Kind.SELF):
        set_training(m, oid, name == TORCH.names["trains"], call, state)
        return me
    if name in ("freeze", "unfreeze") and not call.all() and freezes_all(m, oid):
        m.set_frozen(oid, name == "freeze", state)
        return PLAIN
    if info.cls is None and info.kind in (Kind.MODULE, Kind.THING) and not call.all() and m.freezes_itself(name):
        m.set_frozen(oid, True, state)
        return PLAIN
    if info.kind not in (Kind.MODULE, Kind.THING) and not (info.kind is Kind.SELF and name in PARAMETERS):
        held = TORCH.kind_methods.get((info.kind, name))
        return kind_method(m, held, info.kind, name, call, state) if held is not None else None
    if name == BACKWARD and may_be_attached(m, call, state):
        # An accelerator or an engine: what it is given is back-propagated. (A tensor's gradient has no graph.)
        back_propagate(m, call.positional[:1], call, state)
        return NONE
    if name == SETS_FLAG:
        require_parameters_grad(m, oid, call, state)
        return me
    if name in PARAMETER_ITERATORS:
        params = m.outside(Kind.PARAMS, f"{info.name}.{name}()", None, key=(oid, "params"))
        m.owner_of_params[params] = oid
        return frozenset((Obj(params),))
    effect = TORCH.module_methods.get(name)
    if effect is ModuleEffect.SELF:
        if name in TO_DEVICE and info.kind is Kind.MODULE:
            m.record.flags.add(RecordFlag.MOVED)
        return me
    return PLAIN if effect is ModuleEffect.PLAIN and info.kind is Kind.MODULE else None


def set_training(m: Machine, oid: int, on: bool, call: Call, state: State) -> None:
    """``train()``, ``train(mode)``, ``eval()``."""
    if on and call.positional:
        known = truth(call.positional[0])
        state.vars[oid, TRAINING] = UNKNOWN if known is None else const(known)
        m.record.flags.add(RecordFlag.TRAIN if known is not False else RecordFlag.EVAL)
    elif not call.all():
        state.vars[oid, TRAINING] = const(on)
        m.record.flags.add(RecordFlag.TRAIN if on else RecordFlag.EVAL)


def require_parameters_grad(m: Machine, oid: int, call: Call, state: State) -> None:
    """``requires_grad_()`` of a module, or of an unknown object that may be a tensor."""
    known = truth(call.positional[0]) if call.positional else True
    holder = m.holders.get(oid, oid)
    if known is True and m.heap[oid].kind is Kind.THING and not m.frozen(holder, state):
        m.record.flags |= INPUT_GRAD
        want_object(m, oid, call.node)
    else:
        m.set_frozen(oid, known is False, state)


def freezes_all(m: Machine, oid: int) -> bool:
    """Whether ``freeze()`` of an object is no method of the project, which may freeze a part, but Lightning's or the like."""
    kind = m.heap[oid].kind
    return kind in (Kind.SELF, Kind.MODULE) or (kind is Kind.THING and not m.world.project.methods_named("freeze"))


def kind_method(m: Machine, effect: Effect, kind: Kind, name: str, call: Call, state: State) -> Value:
    """A method of an optimizer, a scaler, a writer and the like, by its row in the facts."""
    values = call.all()
    match effect:
        case Effect.BACKPROPAGATES if values:
            back_propagate(m, [join_all(call.positional[:1] or values)], call, state)
            return NONE
        case Effect.KEEP:
            return arithmetic(m, call.positional[:1], call.node, state)
        case Effect.WRAPS:
            if len(call.positional) == 1:
                return call.positional[0]
            return frozenset((Tuple(tuple(call.positional)),)) if len(call.positional) <= 12 else UNKNOWN
        case Effect.CUT:
            cut_all(m, call, state, name)
            return FREE_TENSOR
    gids = [m.whole(v, state)[0] for v in values]
    m.sink(NOTHING.union(*gids) if gids else NOTHING, SinkKind.SHOWN, name, call.node)
    if name == STEPS and kind in (Kind.OPTIMIZER, Kind.SCALER):
        record_call(m, CallByName.OPTIMIZER_STEP, text_of(call.func), call)
    return PLAIN


def distribution_method(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    """Everything that a distribution gives depends on what it was made of, but for its samples."""
    held = state.vars.get((oid, ELEMENTS), UNKNOWN)
    match TORCH.kind_methods.get((Kind.DISTRIBUTION, name)):
        case Effect.CUT:
            m.sink(*m.whole(held, state), SinkKind.CUT, f".{name}()", call.node)
            return FREE_TENSOR
        case Effect.KEEP:
            m.notice(hints_of(held), name)
            return arithmetic(m, [held, *call.all()], call.node, state)
    return arithmetic(m, [held], call.node, state)
