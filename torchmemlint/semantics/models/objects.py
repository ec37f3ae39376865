"""Objects that are called, and methods of objects, by their kind."""

from __future__ import annotations

from torchmemlint.index.project import ClassRef
from torchmemlint.lower import ir
from torchmemlint.semantics import purpose
from torchmemlint.semantics.arithmetic import arithmetic, in_role, whole_logits
from torchmemlint.semantics.attributes import object_attribute
from torchmemlint.semantics.backward import back_propagate
from torchmemlint.semantics.call import Call
from torchmemlint.semantics.call_effects import cut_all, tell_call
from torchmemlint.semantics.dispatch import call_atom
from torchmemlint.semantics.elements import iterate
from torchmemlint.semantics.forward import run_forward
from torchmemlint.semantics.kinds import is_property, looks_like_module
from torchmemlint.semantics.machine import CONTAINERS, Machine
from torchmemlint.semantics.models.containers import container_method
from torchmemlint.semantics.models.libraries import call_external
from torchmemlint.semantics.models.modules import (
    DICT_METHODS,
    DRAWING,
    PARAMETERS,
    gives_data,
    gives_indices,
    gives_no_graph,
    guards_itself,
    me_or_plain,
)
from torchmemlint.semantics.models.unknown_objects import call_opaque, thing_method
from torchmemlint.semantics.names import function_value
from torchmemlint.semantics.state import State
from torchmemlint.semantics.text import dotted, text_of
from torchmemlint.semantics.values import (
    EMPTY,
    FREE_TENSOR,
    INTEGER,
    NONE,
    NOTHING,
    PLAIN,
    SCALAR,
    UNKNOWN,
    Cls,
    Ext,
    Func,
    Obj,
    Tuple,
    Value,
    const,
    hints_of,
    is_text,
    join,
    join_all,
    sorted_atoms,
    tensor,
    truth,
    with_flags_set,
)
from torchmemlint.torch_facts import TORCH


def call_object(m: Machine, oid: int, call: Call, state: State) -> Value:
    info = m.heap[oid]
    if isinstance(info.cls, ClassRef) and info.kind == "module":
        own = m.world.project.method(info.cls, "__call__")
        if own is not None:
            (function,) = function_value(m, own, oid)
            return call_atom(m, function, call, state)
    match info.kind:
        case "module":
            return run_forward(m, oid, call, state, text_of(call.func))
        case "wrapper" | "ema" | "lightning-module" | "hf-model":
            return run_forward(m, oid, call, state, text_of(call.func))
        case "metric" | "predictor":
            cut_all(m, call, state, text_of(call.func))
            return FREE_TENSOR
        case "backward-callable":
            back_propagate(m, [join_all(call.positional[:1])], call, state)
            return NONE
        case "self" if isinstance(info.cls, ClassRef) and m.world.is_module_class(info.cls):
            return run_forward(m, oid, call, state, text_of(call.func))
        case "loss":
            whole_logits(m, call.all(), state)
            for value in call.positional[:1]:
                m.operation(hints_of(value), "loss")
            return with_flags_set(arithmetic(m, call.all(), call.node, state), SCALAR)
        case "function-module":
            result = arithmetic(m, call.all(), call.node, state)
            name = info.cls.rpartition(".")[2] if isinstance(info.cls, str) else ""
            return in_role(m, name, result, call.all(), call.node, state)
    if isinstance(info.cls, ClassRef):
        for name in ("__call__", "forward"):
            method = m.world.project.method(info.cls, name)
            if method is not None:
                (atom,) = function_value(m, method, oid)
                return call_atom(m, atom, call, state)
    text = dotted(call.func)
    if info.kind == "thing" and text:
        if looks_like_module(m.evidence.get(text, frozenset())):
            m.retype(oid, "module")
            return run_forward(m, oid, call, state, text)
    return call_opaque(m, text_of(call.func), call, state, oid=oid, direct=info.kind == "thing")


def call_object_method(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    info = m.heap[oid]
    if info.kind in CONTAINERS:
        return container_method(m, oid, name, call, state)
    held = state.vars.get((oid, name))
    if held is not None:
        out = EMPTY
        for atom in sorted_atoms(held):
            out = join(out, call_atom(m, atom, call, state))
        return out
    if isinstance(info.cls, ClassRef):
        method = m.world.project.method(info.cls, name)
        if method is not None and type(call.func) is ir.Attr and is_property(m.world.facts(method)):
            # What the property gives is called, and not the property.
            held = object_attribute(m, oid, name, call.func, state)
            return join_all([call_atom(m, atom, call, state) for atom in sorted_atoms(held)]) or UNKNOWN
        if method is not None:
            (atom,) = function_value(m, method, oid)
            return call_atom(m, atom, call, state)
        for base in m.world.project.mro(info.cls):
            if isinstance(base, str) and f"{base}.{name}" in TORCH.functions:
                return call_external(m, f"{base}.{name}", call, state)
    if info.kind == "distribution":
        return distribution_method(m, oid, name, call, state)
    generic = method_by_name(m, oid, name, call, state)
    if generic is not None:
        return generic
    kind = info.kind
    if kind == "self" and name in TORCH.module_methods and name not in ("forward", "__call__"):
        # A method that every module has: it runs nothing.
        return me_or_plain(oid, TORCH.module_methods[name])
    if isinstance(info.cls, ClassRef) and kind in ("self", "module", "instance"):
        value = object_attribute(m, oid, name, None, state)
        callable_atoms = [a for a in value if type(a) in (Func, Cls, Ext) or (type(a) is Obj and m.heap[a.oid].kind != "thing")]
        if callable_atoms:
            out = EMPTY
            for atom in sorted_atoms(value):
                out = join(out, call_atom(m, atom, call, state))
            return out
        inner = next((a for a in value if type(a) is Obj), None)
        if inner is not None and kind == "self":
            return call_object(m, inner.oid, call, state)
    if (kind in ("module", "self", "thing") and guards_itself(m, name, call)) or kind == "predictor":
        m.sink(NOTHING.union(*(m.whole(v, state)[0] for v in call.all())), "cut", name, call.node)
        return FREE_TENSOR
    if kind == "module" or (
        kind == "self" and isinstance(info.cls, ClassRef) and m.world.is_module_class(info.cls) and name in ("forward",)
    ):
        effect = TORCH.module_methods.get(name)
        if name in TORCH.part_methods:
            return frozenset((Obj(oid),))
        if name in ("forward", "__call__") or (
            effect is None
            and name not in DICT_METHODS
            and (call.all() or name in DRAWING)  # what is given nothing has nothing to run on
            and (purpose.RUNS_MODEL.match(name) or m.world.is_attribute_only(name))
        ):
            if m.world.guards_itself(name):
                return FREE_TENSOR
            if name not in ("forward", "__call__"):
                if is_text(next(iter(call.all()), EMPTY)):
                    return UNKNOWN  # a tokenizer, or a pipeline with its own grad mode: a network is given tensors
                if gives_data(m, name, call):
                    cut_all(m, call, state, text_of(call.func))
                    return PLAIN
                if state.mode == "off" and gives_indices(m, name, call):
                    return tensor(flags=INTEGER)
                if state.mode != "off" and gives_no_graph(m, name, call):
                    return FREE_TENSOR
            return run_forward(m, oid, call, state, text_of(call.func))
        if effect is None:
            return call_opaque(m, text_of(call.func), call, state, oid=oid)
        return PLAIN
    if kind == "params":
        if name == "requires_grad_" and oid in m.owner_of_params:
            known = truth(call.positional[0]) if call.positional else True
            state.vars[m.owner_of_params[oid], "$frozen"] = const(True) if known is False else UNKNOWN
        return frozenset((Obj(oid),))
    if kind == "thing":
        return thing_method(m, oid, name, call, state)
    if kind == "generator" and name in ("send", "__next__"):
        return iterate(m, frozenset((Obj(oid),)), call.node, state)
    return call_opaque(m, text_of(call.func), call, state, oid=oid)


def method_by_name(m: Machine, oid: int, name: str, call: Call, state: State) -> Value | None:
    """Methods that mean the same on a module and on an unknown object; None for the others."""
    info = m.heap[oid]
    me = frozenset((Obj(oid),))
    if name in ("train", "eval") and info.kind in ("module", "thing", "self"):
        on = name == "train"
        if on and call.positional:
            known = truth(call.positional[0])
            state.vars[oid, "$training"] = UNKNOWN if known is None else const(known)
            m.record.flags.add("train()" if known is not False else "eval()")
        elif not call.all():
            state.vars[oid, "$training"] = const(on)
            m.record.flags.add("train()" if on else "eval()")
        return me
    if name in ("freeze", "unfreeze") and not call.all() and freezes_all(m, oid):
        state.vars[oid, "$frozen"] = const(True) if name == "freeze" else UNKNOWN
        return PLAIN
    if info.kind not in ("module", "thing") and not (info.kind == "self" and name in PARAMETERS):
        held = TORCH.kind_methods.get((info.kind, name))
        return kind_method(m, held, info.kind, name, call, state) if held is not None else None
    if name == "requires_grad_":
        known = truth(call.positional[0]) if call.positional else True
        if known is False:
            state.vars[oid, "$frozen"] = const(True)
        elif known is True and info.kind == "thing":
            m.record.flags.add("input-grad")
        else:
            state.vars[oid, "$frozen"] = UNKNOWN
        return me
    if name in ("parameters", "named_parameters"):
        params = m.outside("params", f"{info.name}.{name}()", None, key=(oid, "params"))
        m.owner_of_params[params] = oid
        return frozenset((Obj(params),))
    effect = TORCH.module_methods.get(name)
    if effect == "self":
        if name in ("cuda", "to") and info.kind == "module":
            m.record.flags.add("moved")
        return me
    if effect == "plain" and info.kind == "module":
        return PLAIN
    return None


def freezes_all(m: Machine, oid: int) -> bool:
    """Whether ``freeze()`` of an object is no method of the project, which may freeze a part, but Lightning's or the like."""
    kind = m.heap[oid].kind
    return kind in ("self", "module", "lightning-module") or (kind == "thing" and not m.world.methods_named("freeze"))


def kind_method(m: Machine, effect: str, kind: str, name: str, call: Call, state: State) -> Value:
    """A method of an optimizer, a scaler, a writer and the like, by its row in the facts."""
    values = call.all()
    match effect:
        case "backpropagates" if values:
            back_propagate(m, [join_all(call.positional[:1] or values)], call, state)
            return NONE
        case "keep":
            return arithmetic(m, call.positional[:1], call.node, state)
        case "wraps":
            if len(call.positional) == 1:
                return call.positional[0]
            return frozenset((Tuple(tuple(call.positional)),)) if len(call.positional) <= 12 else UNKNOWN
        case "cut":
            cut_all(m, call, state, name)
            return FREE_TENSOR
    gids = [m.whole(v, state)[0] for v in values]
    m.sink(NOTHING.union(*gids) if gids else NOTHING, "shown", name, call.node)
    if name == "step" and kind in ("optimizer", "scaler"):
        tell_call(m, "optimizer-step", text_of(call.func), call)
    return PLAIN


def distribution_method(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    """Everything that a distribution gives hangs on what it was made of, but for its samples."""
    held = state.vars.get((oid, "[]"), UNKNOWN)
    match TORCH.kind_methods.get(("distribution", name)):
        case "cut":
            m.sink(*m.whole(held, state), "cut", f".{name}()", call.node)
            return FREE_TENSOR
        case "keep":
            m.notice(hints_of(held), name)
            return arithmetic(m, [held, *call.all()], call.node, state)
    return arithmetic(m, [held], call.node, state)
