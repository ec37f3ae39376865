"""Calls, by what is called: each kind of callee has its own model."""

from __future__ import annotations

from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import first_parameter
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.identity import METHOD, looks_like_module, want_in_place
from torchmemlint.semantics.interpret import (
    arithmetic,
    attribute_of,
    function_value,
    items_of,
    iterate,
    named,
    reaches_device,
    record_by_name,
)
from torchmemlint.semantics.models.containers import make_container
from torchmemlint.semantics.models.forward import run_forward
from torchmemlint.semantics.models.functions import call_function
from torchmemlint.semantics.models.libraries import call_external
from torchmemlint.semantics.models.modules import construct_instance
from torchmemlint.semantics.models.objects import call_object, call_object_method
from torchmemlint.semantics.models.tensors import known_as_module
from torchmemlint.semantics.models.unknown_objects import call_opaque
from torchmemlint.semantics.state import (
    CALLEES,
    EMPTY,
    EXPRESSIONS,
    FREE_TENSOR,
    KEYS,
    METHODS,
    NONE,
    NOTHING,
    PLAIN,
    UNKNOWN,
    UNNAMED,
    Atom,
    Call,
    Cls,
    Const,
    Ext,
    Func,
    GraphKind,
    Handed,
    HookAdded,
    Kind,
    Machine,
    Method,
    Obj,
    ObjInfo,
    Plain,
    RecordFlag,
    Seen,
    SinkKind,
    State,
    Tensor,
    Tuple,
    Unknown,
    Value,
    World,
    assign,
    call_atom,
    call_method,
    evaluate,
    handles,
    hints_of,
    is_none,
    join_all,
    sorted_atoms,
    truth,
    unknown,
)
from torchmemlint.torch_facts import TORCH

FORWARD = TORCH.words["forward"]
HOOKS = TORCH.words["forward-hooks"]
SAYS_MODULE = TORCH.words["sure-module-evidence"] | {"eval"}
"""Methods that say, called without arguments, that a variable holds a module."""
TO_DEVICE = TORCH.words["to-device"]
RECORDED_BY_NAME = TORCH.words["recorded-by-name"]
"""Methods of a module (or functions of torch) that keep a function and call it with inputs, outputs or gradients."""


@handles(EXPRESSIONS, ir.Call)
def evaluate_call(m: Machine, expr: ir.Call, state: State) -> Value:
    func = expr.func
    special = special_form(m, expr, state)
    if special is not None:
        return special
    if type(func) is ir.Attr:
        return call_of_method(m, expr, func, state)
    if type(func) is ir.Call and type(func.func) is ir.Name and func.func.id == "type" and len(func.args) == 1:
        # `type(batch)(moved(item) for item in batch)`: a container like the one that it was made from.
        like = evaluate(m, func.args[0].value, state)
        kinds = {m.heap[a.oid].kind for a in like if type(a) is Obj} | {Kind.LIST for a in like if type(a) is Tuple}
        for kind in (Kind.DICT, Kind.SET, Kind.LIST):
            if kind in kinds:
                return make_container(m, kind, evaluate_arguments(m, expr, state), state)
    callee = evaluate(m, func, state)
    call = evaluate_arguments(m, expr, state)
    hand_over(m, callee, "", call, state)
    return join_all(call_atom(m, atom, call, state) for atom in sorted_atoms(callee)) or UNKNOWN


def call_of_method(m: Machine, expr: ir.Call, func: ir.Attr, state: State) -> Value:
    if type(func.value) is ir.Call and type(func.value.func) is ir.Name and func.value.func.id == "super":
        return super_call(m, func.name, expr, state)
    receiver = evaluate(m, func.value, state)
    call = evaluate_arguments(m, expr, state)
    if func.name in SAYS_MODULE and type(func.value) is ir.Name and not expr.args:
        known = known_as_module(m, receiver, call, state)
        if known is not receiver:
            receiver = known
            assign(m, func.value, known, state, expr.node)
    if func.name in HOOKS and call.positional:
        m.hooked |= {a for a in call.positional[0] if type(a) is Func}
        m.emit(HookAdded(m.site(expr.node), func.name))
    hand_over(m, receiver, func.name, call, state)
    if func.name in TO_DEVICE and reaches_device(func.name, call):
        m.record.flags.add(RecordFlag.DEVICE)
    if func.name in RECORDED_BY_NAME:
        record_by_name(m, func, receiver, call, state)
    return join_all(call_method(m, atom, func.name, call, state) for atom in sorted_atoms(receiver)) or UNKNOWN


def hand_over(m: Machine, receiver: Value, method: str, call: Call, state: State) -> None:
    """Note which closures a call of ``method`` on the receiver, or of the receiver itself, is given and runs."""
    given = [a for value in call.all() for a in value if type(a) is Func and a.key not in m.handed]
    if given and any(runs_functions(atom, method, m) for atom in receiver):
        for atom in given:
            m.handed[atom.key] = Handed(call.node, text_of(call.func), m.snapshots.keep(state))
            m.record.handed.add(m.closures[atom.key].ref)


def evaluate_arguments(m: Machine, expr: ir.Call, state: State) -> Call:
    positional: list[Value] = []
    keywords: dict[str, Value] = {}
    exprs: list[ir.Expr] = []
    keyword_exprs: dict[str, ir.Expr] = {}
    more: list[Value] = []
    stars: set[str] = set()
    for arg in expr.args:
        value = evaluate(m, arg.value, state)
        if arg.star:
            stars.add(arg.star)
        if arg.star is ir.Stars.ONE:
            items = items_of(m, value, state) if not more else None
            if items is not None:
                positional.extend(items)
                exprs.extend([arg.value] * len(items))
            else:
                more.append(iterate(m, value, arg.value.node, state))
        elif arg.star is ir.Stars.TWO:
            held = [a for a in value if type(a) is Obj and m.heap[a.oid].kind is Kind.DICT]
            named = False
            for atom in held:
                for key in state.vars.get((atom.oid, KEYS), EMPTY):
                    name = str(getattr(key, "value", ""))
                    if name.startswith("['"):
                        keywords[name[2:-2]] = state.vars.get((atom.oid, name), UNKNOWN)
                        named = True
            if not named:
                more.append(value)
        elif arg.keyword is not None:
            keywords[arg.keyword] = value
            keyword_exprs[arg.keyword] = arg.value
        else:
            positional.append(value)
            exprs.append(arg.value)
    return Call(expr.func, expr.node, positional, keywords, exprs, keyword_exprs, more, "".join(sorted(stars)) if stars else "")


def special_form(m: Machine, expr: ir.Call, state: State) -> Value | None:
    func = expr.func
    if type(func) is not ir.Name:
        return None
    if func.id == "getattr" and len(expr.args) >= 2 and type(expr.args[1].value) is ir.Const:
        name = expr.args[1].value.value
        if isinstance(name, str):
            return attribute_of(
                m, evaluate(m, expr.args[0].value, state), name, ir.Attr(expr.node, expr.args[0].value, name), state
            )
    if func.id == "setattr" and len(expr.args) == 3:
        target = expr.args[1].value
        if type(target) is ir.Const and isinstance(target.value, str):
            value = evaluate(m, expr.args[2].value, state)
            assign(m, ir.Attr(expr.node, expr.args[0].value, target.value), value, state, expr.node, expr.args[2].value)
            return NONE
    return unnamed_attribute(m, expr, func.id, state)


def unnamed_attribute(m: Machine, expr: ir.Call, function: str, state: State) -> Value | None:
    """``setattr(self, key, [])`` and ``getattr(self, key).append(x)`` with a name that the code does not show, of an object that the run
    makes: one list stands for all that its class sets so."""
    if (function, len(expr.args)) not in (("getattr", 2), ("setattr", 3)):
        return None
    objects = [
        atom.oid
        for atom in evaluate(m, expr.args[0].value, state)
        if type(atom) is Obj and not m.heap[atom.oid].external and sets_unnamed(m.world, m.heap[atom.oid])
    ]
    if not objects:
        return None
    value = evaluate(m, expr.args[2].value, state) if function == "setattr" else EMPTY
    for oid in objects:
        held = frozenset((Obj(m.first_held(Kind.LIST, m.heap[oid].name, m.heap[oid], (oid, UNNAMED))),))
        m.set_attribute(oid, UNNAMED, join_all([state.vars.get((oid, UNNAMED), EMPTY), held, value]), state)
    if function == "setattr":
        return NONE
    found = join_all([state.vars[oid, UNNAMED] for oid in objects])
    containers = frozenset(a for a in found if type(a) is Obj)
    return containers | unknown(m.whole(found - containers, state)[0]) if found - containers else containers


def sets_unnamed(world: World, info: ObjInfo) -> bool:
    """Whether a plain object's class sets attributes by names that it computes."""
    if info.kind is not Kind.INSTANCE or not isinstance(info.cls, ClassRef):
        return False
    bases = [base for base in world.project.mro(info.cls) if isinstance(base, ClassRef)]
    return any("setattr" in facts.names for base in bases for facts in world.project.within(base.path, base.qualname))


def super_call(m: Machine, name: str, expr: ir.Call, state: State) -> Value:
    call = evaluate_arguments(m, expr, state)
    closure = m.frame_closure[m.frame]
    receiver = state.vars.get((m.frame, first_parameter(closure.function)), EMPTY)
    oids = [a.oid for a in receiver if type(a) is Obj]
    if closure.owner is None:
        return call_opaque(m, f"super().{name}", call, state)
    mro = [base for base in m.world.project.mro(closure.owner)]
    for base in mro[1:]:
        if isinstance(base, ClassRef):
            method = own_method(m, base, name)
            if method is not None and oids:
                (key_atom,) = function_value(m, method, oids[0])
                return call_atom(m, key_atom, call, state)
    if name in FORWARD and oids and m.heap[oids[0]].kind in (Kind.MODULE, Kind.SELF):
        return run_forward(m, oids[0], call, state, "super().forward")
    if name in TORCH.words["super-gives-nothing"]:
        return NONE
    return call_opaque(m, f"super().{name}", call, state)


def own_method(m: Machine, cls: ClassRef, name: str) -> FunctionRef | None:
    found = m.world.project.method(cls, name)
    return found if found is not None and m.world.header(found).owner == cls.qualname and found.path == cls.path else None


@handles(CALLEES, Func)
def call_project_function(m: Machine, atom: Func, call: Call, state: State) -> Value:
    return call_function(m, atom, call, state)


@handles(CALLEES, Cls)
def call_class(m: Machine, atom: Cls, call: Call, state: State) -> Value:
    return construct_instance(m, ClassRef(atom.path, atom.qualname), call, state)


@handles(CALLEES, Ext)
def call_outside(m: Machine, atom: Ext, call: Call, state: State) -> Value:
    return call_external(m, atom.name, call, state)


@handles(CALLEES, Obj)
def call_known_object(m: Machine, atom: Obj, call: Call, state: State) -> Value:
    return call_object(m, atom.oid, call, state)


@handles(CALLEES, Method)
def call_taken_method(m: Machine, atom: Method, call: Call, state: State) -> Value:
    return join_all(call_method(m, receiver, atom.name, call, state) for receiver in sorted_atoms(atom.receiver))


@handles(CALLEES, Tensor, Unknown)
def call_unknown(m: Machine, atom: Tensor | Unknown, call: Call, state: State) -> Value:
    if type(atom) is Tensor:
        m.notice(atom.graphs, Seen.CALLED)
    text = dotted(call.func)
    if text and looks_like_module(m.evidence.get(text, frozenset())):
        oid = m.outside(Kind.MODULE, text, None, key=("called", text))
        made = [g for g in hints_of(frozenset((atom,))) if m.record.graphs[g].kind is GraphKind.OPAQUE]
        if made:  # what a call that is not visible returned: as old as that call
            m.heap[oid] = m.heap[oid]._replace(loops=m.record.graphs[min(made)].site.loops)
        return run_forward(m, oid, call, state, text)
    return call_opaque(m, text_of(call.func), call, state, hints_of(frozenset((atom,))))


@handles(CALLEES, Plain, Const)
def call_data(m: Machine, atom: Plain | Const, call: Call, state: State) -> Value:
    return PLAIN


@handles(CALLEES, Tuple)
def call_tuple(m: Machine, atom: Tuple, call: Call, state: State) -> Value:
    return UNKNOWN


@handles(METHODS, Ext)
def method_outside(m: Machine, atom: Ext, name: str, call: Call, state: State) -> Value:
    value = named(m, f"{atom.name}.{name}", m.path, name)
    return join_all(call_atom(m, inner, call, state) for inner in sorted_atoms(value))


@handles(METHODS, Obj)
def method_of_object(m: Machine, atom: Obj, name: str, call: Call, state: State) -> Value:
    return call_object_method(m, atom.oid, name, call, state)


@handles(METHODS, Cls)
def method_of_class(m: Machine, atom: Cls, name: str, call: Call, state: State) -> Value:
    return class_method(m, ClassRef(atom.path, atom.qualname), name, call, state)


@handles(METHODS, Tuple)
def method_of_tuple(m: Machine, atom: Tuple, name: str, call: Call, state: State) -> Value:
    return PLAIN if name in ("index", "count") else UNKNOWN


@handles(METHODS, Const, Plain)
def method_of_data(m: Machine, atom: Const | Plain, name: str, call: Call, state: State) -> Value:
    gids = [m.whole(v, state)[0] for v in call.all()]
    m.sink(NOTHING.union(*gids) if gids else NOTHING, SinkKind.SHOWN, f".{name}", call.node)
    if name == METHOD and (truth(call.positional[0]) if call.positional else True) is not False:  # a tensor after all
        holder = call.func.value if isinstance(call.func, ir.Attr) else call.func
        return want_in_place(m, holder, FREE_TENSOR, state, call.node)
    return PLAIN if not is_none(frozenset((atom,))) else EMPTY


@handles(METHODS, Func, Method)
def method_of_function(m: Machine, atom: Func | Method, name: str, call: Call, state: State) -> Value:
    return UNKNOWN


def class_method(m: Machine, cls: ClassRef, name: str, call: Call, state: State) -> Value:
    method = m.world.project.method(cls, name)
    if method is not None:
        (atom,) = function_value(m, method)
        return call_atom(m, atom, call, state)
    if name == "apply" and m.world.project.is_subclass(cls, TORCH.names["autograd-function"]):
        return arithmetic(m, call.all(), call.node, state)
    if name in TORCH.words["makes-model"] and m.world.is_module_class(cls):
        return frozenset((Obj(m.allocate(Kind.MODULE, call.node, text_of(call.func), cls)),))
    return call_opaque(m, text_of(call.func), call, state)


def runs_functions(atom: Atom, method: str, m: Machine) -> bool:
    """Whether what is called, a method of an atom or the atom itself, runs a function that it is given."""
    if type(atom) is Ext:
        return (f"{atom.name}.{method}" if method else atom.name) in TORCH.runners
    if type(atom) is Obj:
        info = m.heap[atom.oid]
        if info.kind is not Kind.THING or isinstance(info.cls, ClassRef):
            return False
        return f"{info.cls}.{method}" in TORCH.runners or (not info.cls and method in TORCH.runner_methods)
    return type(atom) in (Tensor, Unknown) and method in TORCH.runner_methods
