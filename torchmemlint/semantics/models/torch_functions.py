"""Functions of torch that no tensor has as a method: grad mode, autograd, checkpointing, loading, the allocator."""

from __future__ import annotations

from torchmemlint.lower.written import text_of
from torchmemlint.semantics.identity import INPUT_GRAD, want
from torchmemlint.semantics.interpret import arithmetic, record_call
from torchmemlint.semantics.models.backward import back_propagate
from torchmemlint.semantics.models.grad_managers import grad_manager, make_manager
from torchmemlint.semantics.models.operations import Operation, has_effect, keep
from torchmemlint.semantics.models.unknown_objects import call_opaque
from torchmemlint.semantics.state import (
    FREE_TENSOR,
    NONE,
    NOTHING,
    PLAIN,
    SCALAR,
    UNKNOWN,
    Call,
    Cls,
    Func,
    Kind,
    Machine,
    Mode,
    Obj,
    RecordFlag,
    SinkKind,
    State,
    Value,
    call_atom,
    const,
    join_all,
    sorted_atoms,
    tensor,
    truth,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

CREATES_GRAPH = TORCH.names["creates-graph"]
GRADIENT_FLAG = TORCH.names["gradient-flag"]


@has_effect(Effect.CHECKPOINT)
def checkpoint(m: Machine, op: Operation, call: Call, state: State) -> Value:
    """Runs the function that is its first argument on the others."""
    record_call(m, op.effect, op.name, call, state)
    if not call.positional:
        return keep(m, op, call, state)
    rest = call.without_first()
    called = [atom for atom in sorted_atoms(call.positional[0]) if type(atom) in (Func, Obj, Cls)]
    return join_all(call_atom(m, atom, rest, state) for atom in called) or call_opaque(m, op.name, call, state)


@has_effect(Effect.LEAF)
def make_trained_leaf(m: Machine, op: Operation, call: Call, state: State) -> Value:
    if truth(call.get(1, GRADIENT_FLAG) or const(True)) is False:
        return FREE_TENSOR
    return want(m, FREE_TENSOR, call.node)


@has_effect(Effect.AUTOCAST)
def autocast(m: Machine, op: Operation, call: Call, state: State) -> Value:
    return make_manager(m, Mode.NONE, call)


@has_effect(Effect.GRAD_OFF, Effect.GRAD_ON, Effect.GRAD_SET)
def set_grad_mode(m: Machine, op: Operation, call: Call, state: State) -> Value:
    return grad_manager(m, op.name, op.effect, call, state)


@has_effect(Effect.RNG_STATE)
def rng_state(m: Machine, op: Operation, call: Call, state: State) -> Value:
    return tensor(flags=SCALAR)


@has_effect(Effect.CLIP_GRAD)
def clip_grad(m: Machine, op: Operation, call: Call, state: State) -> Value:
    if truth(call.keywords.get(GRADIENT_FLAG, const(False))) is True:
        m.record.flags |= INPUT_GRAD
    return FREE_TENSOR


@has_effect(Effect.AUTOGRAD_GRAD)
def differentiate(m: Machine, op: Operation, call: Call, state: State) -> Value:
    m.record.flags.add(RecordFlag.AUTOGRAD_GRAD)
    outputs = call.positional[:1] or [call.keywords[name] for name in ("outputs",) if name in call.keywords]
    graphs = [m.whole(v, state)[0] for v in outputs]
    m.sink(NOTHING.union(*graphs) if graphs else NOTHING, SinkKind.BACKWARD, op.name, call.node)
    back_propagate(m, [join_all(outputs)], call, state, partial=True, retain_at=3)
    if truth(call.keywords.get(CREATES_GRAPH, const(False))) is not False:
        return arithmetic(m, outputs, call.node, state)
    return FREE_TENSOR


@has_effect(Effect.MODULE)
def build_module(m: Machine, op: Operation, call: Call, state: State) -> Value:
    return frozenset((Obj(m.allocate(Kind.MODULE, call.node, text_of(call.func), op.name)),))


@has_effect(Effect.COMPILE)
def compiled(m: Machine, op: Operation, call: Call, state: State) -> Value:
    return call.positional[0] if call.positional else UNKNOWN


@has_effect(Effect.LOAD)
def load(m: Machine, op: Operation, call: Call, state: State) -> Value:
    made = m.allocate(Kind.THING, call.node, text_of(call.func))
    m.loaded[made] = made
    record_call(m, op.effect, op.name, call, state, made)
    return frozenset((Obj(made),))


@has_effect(Effect.EMPTY_CACHE, Effect.MEMORY_FRACTION)
def record_allocator_call(m: Machine, op: Operation, call: Call, state: State) -> Value:
    record_call(m, op.effect, op.name, call)
    return NONE


@has_effect(Effect.NO_EFFECT)
def no_effect(m: Machine, op: Operation, call: Call, state: State) -> Value:
    # What it is given is read there, and ends there: a picture is saved, a value is printed.
    given = [m.whole(value, state)[0] for value in call.all()]
    m.sink(NOTHING.union(*given) if given else NOTHING, SinkKind.SHOWN, op.shown, call.node)
    return PLAIN
