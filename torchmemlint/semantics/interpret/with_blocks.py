"""``with`` blocks, by the grad mode inside them."""

from __future__ import annotations

from torchmemlint.lower import ir
from torchmemlint.lower.walk import nodes_of, walk
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.mode import assumed, project_manager_mode
from torchmemlint.semantics.state import (
    STATEMENTS,
    UNKNOWN,
    Ext,
    GradModeMisuse,
    Kind,
    LoopEnds,
    Machine,
    Misuse,
    Mode,
    Obj,
    State,
    Tensor,
    Value,
    assign,
    evaluate,
    handles,
    join_states,
    run_block,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import GRAD_EFFECTS, Effect


def hands_out(block: list[ir.Stmt], body: list[ir.Stmt]) -> bool:
    """Whether a function's block returns a value, or binds a name that a return of the function gives as it is."""
    returns = [node.value for node in nodes_of(block) if isinstance(node, ir.Return)]
    if any(value is not None and not isinstance(value, ir.Const) for value in returns):
        return True
    targets = [t for node in nodes_of(block) if isinstance(node, ir.Assign) for t in node.targets]
    bound = {t.id for target in targets for t in walk(target) if isinstance(t, ir.Name)}
    given = [node.value for node in nodes_of(body) if isinstance(node, ir.Return)]
    parts = [part for value in given if isinstance(value, ir.Sequence) for part in value.items]
    return any(isinstance(part, ir.Name) and part.id in bound for part in [*given, *parts])


@handles(STATEMENTS, ir.With)
def run_with(m: Machine, statement: ir.With, state: State) -> State | None:
    before = state.mode
    frame, around = m.ends[-1], m.loop_ends[-1] if m.loop_ends else LoopEnds()
    ways = frame.state, around.breaks, around.continues
    frame.state = around.breaks = around.continues = None
    held = len(m.offs)
    for item in statement.items:
        mode = state.mode
        enter_manager(m, item, state, statement)
        if state.mode is Mode.OFF and mode is not Mode.OFF:
            m.offs.append((item.node, text_of(item.manager)))
    after = run_block(m, statement.body, state)
    del m.offs[held:]
    # Whichever way the block is left, the managers restore what was before.
    for left in (after, frame.state, around.breaks, around.continues):
        if left is not None:
            left.mode = before
    frame.state = join_states(ways[0], frame.state)
    around.breaks, around.continues = join_states(ways[1], around.breaks), join_states(ways[2], around.continues)
    return after


def enter_manager(m: Machine, item: ir.WithItem, state: State, statement: ir.With) -> None:
    current = state.mode
    m.mode_before = None
    value = evaluate(m, item.manager, state)
    acted = mode_before_call(m)
    if acted is not None:
        # ``set_grad_enabled`` acts when it is called; as a manager it restores at the end what was before.
        current = acted
        state.mode = current
    ready = any(type(a) is Obj and m.heap[a.oid].kind is Kind.MANAGER for a in value)
    home_made = None if ready else project_manager_mode(m, item.manager, state)
    modes: set[Mode] = set()
    for atom in value:
        if type(atom) is Obj and m.heap[atom.oid].kind is Kind.MANAGER:
            mode = m.heap[atom.oid].cls
            modes.add(mode if isinstance(mode, Mode) and mode is not Mode.NONE else current)
        elif type(atom) is Ext and TORCH.function_effect(atom.name) in GRAD_EFFECTS:
            name, gives = text_of(item.manager), hands_out(statement.body, m.frame_closure[m.frame].function.body)
            m.emit(GradModeMisuse(m.site(item.node), Misuse.WITH_UNCALLED, name, gives))
        elif home_made is None:
            modes.add(current)
    if home_made is not None:
        modes = {home_made}
    if len(modes) == 1:
        state.mode = modes.pop()
    elif modes:
        known = {assumed(m, item.manager.test)} if isinstance(item.manager, ir.IfExp) else {None}
        state.mode = Mode.UNKNOWN if known == {None} else state.mode
    if item.target is not None:
        assign(m, item.target, given_by(m, item.manager, value, state), state, item.node)


def given_by(m: Machine, manager: ir.Expr, value: Value, state: State) -> Value:
    """What ``with manager as x`` binds: a progress bar itself, and what a tensor of a graph was made into (a scaled loss)."""
    if not isinstance(manager, ir.Call):
        return UNKNOWN
    if dotted(manager.func).rpartition(".")[2] in TORCH.words["progress-bars"]:
        return value
    if manager.args and not manager.args[0].star and type(manager.args[0].value) in (ir.Name, ir.Attr, ir.Subscript):
        first = evaluate(m, manager.args[0].value, state)
        if any(type(atom) is Tensor and atom.graphs for atom in first):
            return first
    return UNKNOWN


def check_bare_manager(m: Machine, value: ir.Expr, statement: ir.ExprStmt, state: State) -> None:
    """``torch.no_grad()`` as a statement switches nothing off."""
    if not isinstance(value, ir.Call) or value.args:
        return
    name = dotted(value.func)
    if not name or "(" in name:
        return  # evaluating a callee that itself calls would run that call twice
    for atom in evaluate(m, value.func, state):
        effect = TORCH.function_effect(atom.name) if type(atom) is Ext else None
        if effect is Effect.GRAD_OFF:
            m.emit(GradModeMisuse(m.site(statement.node), Misuse.STATEMENT, text_of(value)))
        elif effect is Effect.GRAD_ON:
            kind = Misuse.ENABLE_STATEMENT_OFF if state.mode is Mode.OFF else Misuse.ENABLE_STATEMENT
            m.emit(GradModeMisuse(m.site(statement.node), kind, text_of(value)))


def mode_before_call(m: Machine) -> Mode | None:
    """The grad mode before the ``set_grad_enabled`` that the last evaluation called, None when it called none."""
    return m.mode_before
