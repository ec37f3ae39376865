"""``no_grad()`` and its kin used as a value: what a ``with`` or a decorator makes of it."""

from __future__ import annotations

from torchmemlint.lower.written import text_of
from torchmemlint.semantics.mode import assumed
from torchmemlint.semantics.state import Call, Func, Kind, Machine, Mode, Obj, State, Value, truth
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect


def grad_manager(m: Machine, name: str, effect: Effect, call: Call, state: State) -> Value:
    """``no_grad()`` and its kin used as a value: what a ``with`` or a decorator makes of it. ``set_grad_enabled`` acts at
    once, as torch's does."""
    if effect is Effect.GRAD_OFF and call.positional and type(next(iter(call.positional[0]), None)) is Func:
        return call.positional[0]
    if effect is Effect.GRAD_SET or name.endswith(TORCH.names["inference-mode"]):
        value = call.get(0, TORCH.names["grad-mode"])
        if value is None:
            known: bool | None = effect is Effect.GRAD_SET
        else:
            known = truth(value)
            if known is None and call.exprs:
                known = assumed(m, call.exprs[0])
        if effect is Effect.GRAD_OFF:  # `inference_mode(mode)`: without an argument, it switches grad mode off
            known = False if value is None else None if known is None else not known
        mode = Mode.UNKNOWN if known is None else Mode.ON if known else Mode.OFF
        if effect is Effect.GRAD_SET:
            m.mode_before = state.mode
            state.mode = mode
        return make_manager(m, mode, call)
    return make_manager(m, Mode.OFF if effect is Effect.GRAD_OFF else Mode.ON, call)


def make_manager(m: Machine, mode: Mode, call: Call) -> Value:
    return frozenset((Obj(m.allocate(Kind.MANAGER, call.node, text_of(call.func), mode, tag=mode)),))


def switch_by_hand(m: Machine, oid: int, name: str, state: State) -> Value:
    """``manager.__enter__()`` switches grad mode for all that follows, until its ``__exit__``."""
    mode = m.heap[oid].cls
    if name == ENTERS and isinstance(mode, Mode) and mode is not Mode.NONE:
        m.entered[oid] = state.mode
        state.mode = mode
    elif name == LEAVES:
        state.mode = m.entered.get(oid, state.mode)
    return frozenset((Obj(oid),))


ENTERS, LEAVES = "__enter__", "__exit__"
