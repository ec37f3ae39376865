"""The grad mode that functions and classes of the project set: by their decorators, as context managers of their own."""

from __future__ import annotations

from torchmemlint.index.facts import ArgFact, CallableUse
from torchmemlint.index.grad_effects import OFF, ON, Becomes
from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.written import dotted
from torchmemlint.semantics.mode.phases import decide
from torchmemlint.semantics.state import Machine, Mode, State, evaluate, only_const

SWITCHED = {OFF: Mode.OFF, ON: Mode.ON}
"""What the index says that a manager or decorator does → the grad mode inside; anything else is not known."""


def project_manager_mode(m: Machine, expr: ir.Expr, state: State) -> Mode | None:
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
    if effect.becomes is Becomes.TESTED:
        value = exprs.get(effect.test) or (next(iter(exprs.values())) if exprs else None)
        known = decide(m, value, state) if value is not None else None
        return Mode.UNKNOWN if known is None else Mode.ON if known else Mode.OFF
    return SWITCHED.get(effect, Mode.UNKNOWN)


def decorated_mode(m: Machine, ref: FunctionRef) -> Mode | None:
    """Grad mode that a function's own decorators set, None when they set none."""
    facts = m.world.facts(ref)
    if facts.is_async or not facts.decorators or facts.qualname != ref.qualname:
        return None
    for use in facts.decorators:
        effect = m.world.project.decorator_effect(ref.path, facts.parent, use)
        if effect is not None and effect in SWITCHED:
            return SWITCHED[effect]
    return None
