"""``no_grad()`` and its kin, home-made ones too, used as a value: what a ``with`` or a decorator makes of it."""

from __future__ import annotations

from torchmemlint.index.facts import ArgFact, CallableUse
from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.semantics.call import Call
from torchmemlint.semantics.dispatch import evaluate
from torchmemlint.semantics.machine import Machine
from torchmemlint.semantics.phases import assumed, decide
from torchmemlint.semantics.state import State
from torchmemlint.semantics.text import dotted, text_of
from torchmemlint.semantics.values import Func, Obj, Value, only_const, truth


def grad_manager(m: Machine, name: str, effect: str, call: Call, state: State) -> Value:
    """``no_grad()`` and its kin used as a value: what a ``with`` or a decorator makes of it. ``set_grad_enabled`` acts at
    once, as torch's does."""
    if effect == "grad-off" and call.positional and type(next(iter(call.positional[0]), None)) is Func:
        return call.positional[0]
    if effect == "grad-set" or name.endswith("inference_mode"):
        value = call.get(0, "mode")
        if value is None:
            known: bool | None = effect == "grad-set"
        else:
            known = truth(value)
            if known is None and call.exprs:
                known = assumed(m, call.exprs[0])
        if effect == "grad-off":  # `inference_mode(mode)`: without an argument, it switches grad mode off
            known = False if value is None else None if known is None else not known
        mode = "unknown" if known is None else "on" if known else "off"
        if effect == "grad-set":
            m.mode_before = state.mode
            state.mode = mode
        return make_manager(m, mode, call)
    return make_manager(m, "off" if effect == "grad-off" else "on", call)


def make_manager(m: Machine, mode: str, call: Call) -> Value:
    return frozenset((Obj(m.allocate("manager", call.node, text_of(call.func), mode, tag=mode)),))


def project_manager_mode(m: Machine, expr: ir.Expr, state: State) -> str | None:
    """Grad mode inside ``with expr:`` when a function or class of the project makes the manager; None for none."""
    call = expr if isinstance(expr, ir.Call) else None
    text = dotted(call.func if call is not None else expr)
    if not text:
        return None
    facts: list[ArgFact] = []
    exprs: dict[str, ir.Expr] = {}
    if call is not None:
        for position, arg in enumerate(call.args):
            single = only_const(evaluate(m, arg.value, state)) if type(arg.value) in (ir.Const, ir.Name, ir.Attr) else None
            facts.append(ArgFact(arg.keyword or arg.star, dotted(arg.value), repr(single.value) if single is not None else ""))
            exprs[arg.keyword or str(position)] = arg.value
    closure = m.frame_closure[m.frame]
    effect = m.world.project.manager_effect(
        closure.ref.path, closure.ref.qualname, CallableUse(text, tuple(facts), call is not None)
    )
    if effect is None:
        return None
    if effect.startswith("param:"):
        value = exprs.get(effect[6:]) or (next(iter(exprs.values())) if exprs else None)
        known = decide(m, value, state) if value is not None else None
        return "unknown" if known is None else "on" if known else "off"
    return {"off": "off", "on": "on"}.get(effect, "unknown")


def decorated_mode(m: Machine, ref: FunctionRef) -> str | None:
    """Grad mode that a function's own decorators set, None when they set none."""
    facts = m.world.facts(ref)
    if facts.is_async or not facts.decorators or facts.qualname != ref.qualname:
        return None
    for use in facts.decorators:
        effect = m.world.project.decorator_effect(ref.path, facts.parent, use)
        if effect in ("off", "on"):
            return effect
    return None
