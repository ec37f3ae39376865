"""Who handles what: one table for each question that the parts of the engine ask each other.

The handlers are registered by the modules that define them, when ``root_run`` imports these. So a part that evaluates, assigns or
calls imports this module alone, and no cycle of imports has to be closed inside a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torchmemlint.lower import ir
from torchmemlint.semantics.state.call import Call
from torchmemlint.semantics.state.flow_state import STATEMENT, Kind, Mode, RunLimit, State
from torchmemlint.semantics.state.machine import HARD_LIMIT, Machine
from torchmemlint.semantics.state.values import NONE, Atom, Obj, Value

Evaluate = Callable[[Machine, Any, State], Value]
Run = Callable[[Machine, Any, State], "State | None"]
Assign = Callable[[Machine, Any, Value, State, int, "ir.Expr | None"], None]
CallAtom = Callable[[Machine, Any, Call, State], Value]
CallMethod = Callable[[Machine, Any, str, Call, State], Value]

EXPRESSIONS: dict[type, Evaluate] = {}
"""Type of an expression → its value in a state; walrus targets, calls and comprehensions change the state."""
STATEMENTS: dict[type, Run] = {}
"""Type of a statement → the state after it; None where what follows is not reached."""
TARGETS: dict[type, Assign] = {}
"""Type of an assignment's target → binds it."""
CALLEES: dict[type, CallAtom] = {}
"""Type of an atom → what calling it gives."""
METHODS: dict[type, CallMethod] = {}
"""Type of an atom → what calling a method of it gives."""

Handler = TypeVar("Handler", bound=Callable[..., object])


def handles(table: dict[type, Any], *types: type) -> Callable[[Handler], Handler]:
    """Registers a handler for some types of nodes or atoms. Raises ValueError where one is registered already."""

    def register(handler: Handler) -> Handler:
        for one in types:
            if one in table:
                raise ValueError(f"{one.__name__} has two handlers: {table[one].__qualname__} and {handler.__qualname__}")
            table[one] = handler
        return handler

    return register


def evaluate(m: Machine, expr: ir.Expr | None, state: State) -> Value:
    if expr is None:
        return NONE
    return EXPRESSIONS[type(expr)](m, expr, state)


def assign(m: Machine, target: ir.Expr, value: Value, state: State, node: int, source: ir.Expr | None = None) -> None:
    """Binds a target. ``source`` is the expression that the value comes from, where it is one term of the statement at ``node``."""
    handler = TARGETS.get(type(target))
    if handler is None:
        evaluate(m, target, state)
    else:
        handler(m, target, value, state, node, source)


def call_atom(m: Machine, atom: Atom, call: Call, state: State) -> Value:
    return CALLEES[type(atom)](m, atom, call, state)


def call_method(m: Machine, atom: Atom, name: str, call: Call, state: State) -> Value:
    if name == "enter_context" and call.positional:
        for entered in call.positional[0]:
            mode = m.heap[entered.oid].cls if type(entered) is Obj and m.heap[entered.oid].kind is Kind.MANAGER else None
            if isinstance(mode, Mode) and mode is not Mode.NONE:
                state.mode = mode
        return call.positional[0]
    return METHODS[type(atom)](m, atom, name, call, state)


def run_block(m: Machine, body: list[ir.Stmt], state: State | None) -> State | None:
    passed, once = len(m.passed), len(m.once)
    for position, statement in enumerate(body):
        if state is None:
            break
        m.following = body[position + 1] if position + 1 < len(body) else None
        m.statements += 1
        if m.statements > HARD_LIMIT:
            raise RunLimit
        m.meter.take(STATEMENT)
        m.world.go_on()
        if m.watch is not None:
            m.watch(m, statement, state)
        state = STATEMENTS[type(statement)](m, statement, state)
    del m.passed[passed:], m.once[once:]
    return state
