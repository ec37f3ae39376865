"""Methods of tensors, or of what may be one."""

from __future__ import annotations

from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.identity import INPUT_GRAD, option_of, want, want_in_place
from torchmemlint.semantics.interpret import STORING, arithmetic, cut_all, part_of, record_call, store_in
from torchmemlint.semantics.models.backward import back_propagate
from torchmemlint.semantics.models.forward import has_graph
from torchmemlint.semantics.models.modules import method_guards_itself
from torchmemlint.semantics.models.operations import EFFECTS, Operation, has_effect
from torchmemlint.semantics.models.unknown_objects import (
    BACKWARD,
    CLEARS,
    PASS_THROUGH,
    STEPS,
    call_methods,
    call_opaque,
    give_plain_values,
    hands_out_a_number,
    is_method_of_text,
    may_be_attached,
    methods_meant_by,
    plain_result,
)
from torchmemlint.semantics.state import (
    ANY_PART,
    CERTAIN_KINDS,
    EACH_PART,
    FREE_TENSOR,
    HOST,
    INTEGER,
    METHODS,
    MOVED,
    NONE,
    NOTHING,
    PLACED,
    PLAIN,
    TRAINING,
    UNKNOWN,
    VIEW,
    Atom,
    Call,
    Const,
    Ext,
    GraphKind,
    Kind,
    Machine,
    Obj,
    State,
    Tensor,
    Tuple,
    Unknown,
    Value,
    const,
    handles,
    join,
    join_all,
    only_const,
    tensor,
    truth,
    unknown,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName, Effect

TO_HOST = TORCH.names["to-host"]
TO_PLACE = TORCH.names["to-place"]
PLACE = TORCH.names["place"]
ON_HOST = TORCH.names["host"]
CONTAINER_METHODS = TORCH.words["takes-parts"]
FILLS_HOLDERS = TORCH.words["fills-holders"]
"""Methods of a mapping that a model's output is: what they give is a part of it."""


@handles(METHODS, Tensor)
def tensor_method(m: Machine, atom: Tensor, name: str, call: Call, state: State, sure: bool = True) -> Value:
    me: Value = frozenset((atom,)) if sure else unknown(atom.hints)
    m.notice_done(atom, name)
    effect = TORCH.methods.get(name)
    real = is_real(m, atom)
    run_engine(m, "" if real else name, call, state)
    if effect is not None:
        return EFFECTS[effect](m, Operation(name, name, effect, atom, sure, me), call, state)
    if give_plain_values(m.world, name):  # of an object that only looked like a tensor
        return plain_result(m, me, name, call, state)
    if name == "eval" and not real and not call.all():
        return evaluated_module(m, atom, call, state)
    if name in TORCH.module_methods and not sure:
        return me
    if TORCH.backward_methods.get(name) is Effect.BACKPROPAGATES and call.all():
        back_propagate(m, [join_all(call.all())], call, state)
        return NONE
    if name in PASS_THROUGH and call.positional:
        return arithmetic(m, [call.positional[0]], call.node, state)
    if name in FILLS_HOLDERS and call.positional and not real:
        store_in_unknown(m, atom, name, call, state)
        return NONE
    if name in CONTAINER_METHODS and (held := part_of_mapping(m, atom, name, call)) is not None:
        return held
    if not real:
        if name == STEPS and CLEARS in m.evidence.get(receiver_text(call), ()):
            record_call(m, CallByName.POSSIBLE_STEP, text_of(call.func), call)
        if method_guards_itself(m, name, call):  # of a model that a call which is not visible gave
            cut_all(m, call, state, name)
            return FREE_TENSOR
        return PLAIN if is_method_of_text(m, name, call) else method_of_opaque(m, atom, me, name, call, state)
    return arithmetic(m, [me, *call.all()], call.node, state)


def run_engine(m: Machine, name: str, call: Call, state: State) -> None:
    """What is not known may be an engine, of which ``backward`` is given a loss: a tensor's is given a gradient, which has no graph."""
    if name == BACKWARD and call.positional and may_be_attached(m, call, state):
        back_propagate(m, call.positional[:1], call, state)


@handles(METHODS, Unknown)
def method_of_unknown(m: Machine, atom: Unknown, name: str, call: Call, state: State) -> Value:
    return tensor_method(m, Tensor(NOTHING, atom.hints), name, call, state, sure=False)


def evaluated_module(m: Machine, atom: Tensor | Unknown, call: Call, state: State) -> Value:
    """``build(config).eval()``: of what such a call may return, only modules have this method."""
    oid = m.outside(Kind.MODULE, receiver_text(call), None, key=("evaluated", m.frame, call.node))
    graphs = atom.graphs | atom.hints if type(atom) is Tensor else atom.hints
    made = [g for g in graphs if m.record.graphs[g].kind is GraphKind.OPAQUE]
    if made:  # as old as that call
        m.heap[oid] = m.heap[oid]._replace(loops=m.record.graphs[min(made)].site.loops)
    if isinstance(call.func, ir.Attr) and call.func.name == "eval":
        state.vars[oid, TRAINING] = const(False)
    return frozenset((Obj(oid),))


def receiver_text(call: Call) -> str:
    return text_of(call.func.value) if isinstance(call.func, ir.Attr) else "?"


def known_as_module(m: Machine, receiver: Value, call: Call, state: State) -> Value:
    """What a variable holds whose parameters are asked for, say: a module in the place of what is not known."""
    doubtful = [a for a in receiver if type(a) is Unknown or (type(a) is Tensor and not is_real(m, a))]
    if not doubtful or any(type(a) is Tensor and a not in doubtful for a in receiver):
        return receiver
    out = frozenset(receiver.difference(doubtful))
    for atom in doubtful:
        out = join(out, evaluated_module(m, atom, call, state))
    return out


def is_real(m: Machine, atom: Tensor) -> bool:
    """Whether it is a tensor that is attached to a graph which surely exists."""
    return any(m.record.graphs[g].kind in CERTAIN_KINDS for g in atom.graphs)


def store_in_unknown(m: Machine, atom: Tensor, name: str, call: Call, state: State) -> None:
    """``out.append(x)`` on what a call that is not visible gave: a list."""
    same = tuple(sorted(atom.graphs)) or text_of(call.func)
    oid = m.outside(Kind.THING, receiver_text(call), None, key=("list", same))
    store_in(m, oid, m.heap[oid].name, STORING[name], call.positional[-1], call.node, call.exprs[-1], state)


def part_of_mapping(m: Machine, atom: Tensor, name: str, call: Call) -> Value | None:
    """What a mapping's method gives; None where the value is no mapping that holds tensors."""
    if name == "items":
        pair = frozenset((Tuple((PLAIN, part_of(m, atom, EACH_PART, call.node))),))
        return frozenset((Tuple((pair,)),)) if atom.graphs else unknown(atom.hints)
    if name == "keys":
        return PLAIN
    if not atom.graphs:
        return None
    if hands_out_a_number(name, call):
        return PLAIN
    key = only_const(call.positional[0]) if call.positional else None
    return part_of(m, atom, f"[{key.value!r}]" if key is not None else EACH_PART if name == "values" else ANY_PART, call.node)


def method_of_opaque(m: Machine, atom: Tensor, me: Value, name: str, call: Call, state: State) -> Value:
    """A method of what a call that is not visible gave: the project's only one of that name, or unknown."""
    methods = methods_meant_by(m, name, call)
    if not methods:
        return call_opaque(m, text_of(call.func), call, state, atom.graphs | atom.hints)
    result = call_methods(m, methods, text_of(call.func), ("as", tuple(sorted(atom.graphs))), call, state)
    # What the object holds came with it: what is made of that is attached to the same graph.
    return join(result, arithmetic(m, [me], call.node, state)) if has_graph(m, result, state) else result


CONVERTING = TORCH.words["converts"]


def cannot_carry_graph(atom: Atom) -> bool:
    """Whether an argument is a type whose tensors carry no graph: ``torch.long``, ``int``, ``"torch.LongTensor"``."""
    name = atom.name if type(atom) is Ext else atom.value if type(atom) is Const else None
    return name in TORCH.cut_dtypes


def is_for_the_host(m: Machine, call: Call) -> bool:
    """Whether the place that a tensor is moved to is an attribute that is the CPU in every object that visible code makes."""
    place = call.exprs[0] if call.exprs else None
    cls = m.world.class_of_method(m.ref)
    if cls is None or not isinstance(place, ir.Attr) or dotted(place) != f"self.{place.name}":
        return False
    return option_of(m.world, cls, place.name) == repr(ON_HOST)


@has_effect(Effect.DEVICE)
def move(m: Machine, op: Operation, call: Call, state: State) -> Value:
    """``.cpu()``, ``.cuda()``, ``.to(…)``, ``.type(…)``: the graph comes along, unless the new type carries none; on the CPU the
    device's storage is let go."""
    assert op.receiver is not None
    atom = op.receiver
    to_cpu = op.name == TO_HOST
    if op.name in CONVERTING and any(cannot_carry_graph(a) for value in call.all() for a in value):
        return tensor(flags=INTEGER)
    if op.name == TO_PLACE:
        target = call.get(0, PLACE)
        single = only_const(target) if target is not None else None
        to_cpu = single.value == ON_HOST if single is not None else is_for_the_host(m, call)
    if to_cpu:
        m.operation(atom.graphs | atom.hints, TO_HOST)
    if to_cpu and op.me != unknown(atom.hints):
        return frozenset((Tensor(atom.graphs, atom.hints, NOTHING, atom.flags & ~VIEW | MOVED | PLACED | HOST),))
    return frozenset(
        Tensor(a.graphs, a.hints, a.outputs, a.flags & ~HOST | (PLACED if op.name in CONVERTING else 0))
        if type(a) is Tensor
        else a
        for a in op.me
    )


@has_effect(Effect.REQUIRES_GRAD)
def require_grad(m: Machine, op: Operation, call: Call, state: State) -> Value:
    on = truth(call.positional[0]) if call.positional else True
    if on is False:
        return op.me
    if isinstance(call.func, ir.Attr):
        return want_in_place(m, call.func.value, op.me, state, call.node)
    return want(m, op.me, call.node)


@has_effect(Effect.HOOK)
def register_hook(m: Machine, op: Operation, call: Call, state: State) -> Value:
    m.record.flags |= INPUT_GRAD
    return UNKNOWN
