"""Statements that are no loops, assignments, definitions or ``with`` blocks."""

from __future__ import annotations

from torchmemlint.lower import ir
from torchmemlint.lower.written import conditions, dotted, text_of
from torchmemlint.semantics.identity import note_conditions
from torchmemlint.semantics.interpret.call_effects import gradients_freed
from torchmemlint.semantics.interpret.elements import iterate
from torchmemlint.semantics.interpret.handlers import describe
from torchmemlint.semantics.interpret.iterations import loops_passed_once
from torchmemlint.semantics.interpret.names import known_variable, named
from torchmemlint.semantics.interpret.narrowing import narrow
from torchmemlint.semantics.interpret.with_blocks import check_bare_manager
from torchmemlint.semantics.mode import EXITS, decide, is_exit, note_phase
from torchmemlint.semantics.state import (
    STATEMENTS,
    UNKNOWN,
    DeprecatedImport,
    Machine,
    RecordFlag,
    SinkKind,
    State,
    Value,
    evaluate,
    handles,
    join_states,
    place_of,
    run_block,
)
from torchmemlint.torch_facts import TORCH


@handles(STATEMENTS, ir.ExprStmt)
def run_expression(m: Machine, statement: ir.ExprStmt, state: State) -> State | None:
    value = statement.value
    check_bare_manager(m, value, statement, state)
    m.mode_before = None
    result = evaluate(m, value, state)
    graphs, _, _, _ = m.deep(result, state)
    if graphs:
        m.sink(graphs, SinkKind.DROPPED, "", statement.node)
    if isinstance(value, ir.Call) and (text := dotted(value.func)) in EXITS and is_exit(m.world, m.ref, text):
        return None
    return state


@handles(STATEMENTS, ir.Declare, ir.OuterNames)
def run_nothing(m: Machine, statement: ir.Stmt, state: State) -> State | None:
    """``global`` and ``nonlocal``, and a class's body where the region is a module: names are known from elsewhere."""
    return state


@handles(STATEMENTS, ir.If)
def run_if(m: Machine, statement: ir.If, state: State) -> State | None:
    answer = decide(m, statement.test, state)
    text = m.texts.get(id(statement))
    if text is None:
        text = m.texts[id(statement)] = text_of(statement.test)
    if answer is None:
        note_phase(m, statement)
    then_state: State | None = None
    else_state: State | None = None
    left = False
    depth = len(m.loops)
    once, otherwise = (loops_passed_once(m, statement.test, holds) for holds in (True, False))
    if answer is not False:
        branch = state.copy() if answer is None else state
        if narrow(m, statement.test, True, branch):
            then_state = run_branch(m, statement.then, (depth, text), once, branch)
            if then_state is None:
                m.record.leaving.add((m.frame, m.site(statement.node).loops, text))
                left = ends_turn(m, statement.then)
    if answer is not True:
        if narrow(m, statement.test, False, state):
            else_state = run_branch(m, statement.orelse, (depth, f"not {text}"), otherwise, state)
            if else_state is None and then_state is not None and ends_turn(m, statement.orelse):
                m.passed += [(depth, each, m.frame) for each in conditions(statement.test, True)]
    if left and else_state is not None:
        m.passed += [(depth, each, m.frame) for each in conditions(statement.test, False)]
    if answer is None and (then_state is None or else_state is None):
        m.once += otherwise if then_state is None else once
    joined = join_states(then_state, else_state)
    if m.freezes and then_state is not None and else_state is not None and joined is not None:
        note_conditions(m, statement, then_state, else_state, joined)
    return joined


def run_branch(
    m: Machine, block: list[ir.Stmt], guard: tuple[int, str], once: list[tuple[int, int]], state: State
) -> State | None:
    """Run a branch under its test, and say meanwhile of which loops one iteration at most comes to it."""
    m.guards.append(guard)
    m.once += once
    end = run_block(m, block, state)
    del m.once[len(m.once) - len(once) :]
    m.guards.pop()
    return end


def ends_turn(m: Machine, block: list[ir.Stmt]) -> bool:
    """Whether a block ends the turn of its loop, or the call of its function where no loop is around, so that what follows it runs in
    other turns and calls alone. One that ends the loop limits no turn: what follows runs in all that there are."""
    if not block or not isinstance(block[-1], ir.Continue | ir.Return):
        return False
    return isinstance(block[-1], ir.Continue) or not m.loops or m.loops[-1][0] != m.frame


@handles(STATEMENTS, ir.Match)
def run_match(m: Machine, statement: ir.Match, state: State) -> State | None:
    subject = evaluate(m, statement.subject, state)
    out: State | None = None
    rest: State | None = state
    for case in statement.cases:
        if rest is None:
            break
        branch = rest.copy()
        for name in case.binds:
            branch.vars[place_of(m, name)] = (
                subject
                if len(case.binds) == 1
                else iterate(m, subject, case.body[0].node if case.body else statement.node, branch)
            )
        if case.guard is not None:
            evaluate(m, case.guard, branch)
        out = join_states(out, run_block(m, case.body, branch))
        if case.matches_all and case.guard is None:
            rest = None
    return join_states(out, rest)


@handles(STATEMENTS, ir.Try)
def run_try(m: Machine, statement: ir.Try, state: State) -> State | None:
    entry = state.copy()
    following = m.following
    # A handler can start after any statement of the body; statements inside nested blocks are joined at their ends. Joined as the
    # body runs: a state for each statement would take the square of the body's length.
    failing: State | None = entry
    end: State | None = state
    for inner in statement.body:
        end = run_block(m, [inner], end)
        if end is None:
            break
        failing = join_states(failing, end)
    if statement.orelse:
        end = run_block(m, statement.orelse, end)
    out = end
    for handler in statement.handlers:
        if failing is None:
            continue
        branch = failing.copy()
        branch.mode = entry.mode
        if handler.name is not None:
            branch.vars[place_of(m, handler.name)] = UNKNOWN
        note_handler(m, handler, statement, branch, following)
        m.handlers.append(handler.node)
        out = join_states(out, run_block(m, handler.body, branch))
        m.handlers.pop()
    if statement.final:
        if out is None or not statement.handlers:
            # An exception or a return passes through the final block on its way out.
            leaving = failing.copy() if failing is not None else entry
            leaving.mode = entry.mode
            run_block(m, statement.final, leaving)
        return None if out is None else run_block(m, statement.final, out)
    return out


def note_handler(m: Machine, handler: ir.Handler, statement: ir.Try, state: State, following: ir.Stmt | None) -> None:
    described = describe(m, handler, statement, state, following)
    if described is not None:
        m.emit(described)


@handles(STATEMENTS, ir.Raise)
def run_raise(m: Machine, statement: ir.Raise, state: State) -> State | None:
    if statement.value is not None:
        evaluate(m, statement.value, state)
    return None


@handles(STATEMENTS, ir.Delete)
def run_delete(m: Machine, statement: ir.Delete, state: State) -> State | None:
    for target in statement.targets:
        if m.record.frames[m.frame].depth == 0:
            m.deleted.append((text_of(target), tuple(m.loops)))
        if isinstance(target, ir.Attr) and target.name == TORCH.names["gradient"]:
            gradients_freed(m, statement.node, evaluate(m, target.value, state))
        if isinstance(target, ir.Name):
            state.vars.pop(place_of(m, target.id), None)
    return state


@handles(STATEMENTS, ir.Assert)
def run_assert(m: Machine, statement: ir.Assert, state: State) -> State | None:
    evaluate(m, statement.test, state)
    narrow(m, statement.test, True, state)
    return state


def imported(m: Machine, name: str, absolute: str, state: State) -> Value:
    """What an import binds ``name`` to: a variable of another module may be known for a network."""
    resolved = m.world.project.imported(m.path, name) or m.world.project.resolve(m.path, name)
    variable = m.world.variable(m.path, name)
    if variable is not None and variable[0] != m.path:
        return known_variable(m, *variable, name, state)
    return named(m, resolved if resolved is not None else absolute.lstrip("."), m.path, name)


@handles(STATEMENTS, ir.ImportStmt)
def run_import(m: Machine, statement: ir.ImportStmt, state: State) -> State | None:
    old = tuple((name, absolute) for name, absolute in statement.bindings if absolute in TORCH.renamed)
    if old:
        m.emit(DeprecatedImport(m.site(statement.node), old))
    for name, absolute in statement.bindings:
        if absolute.partition(".")[0] == "torch":
            m.record.flags.add(RecordFlag.TORCH)
        if not name.startswith("*"):
            state.vars[place_of(m, name)] = imported(m, name, absolute, state)
    return state
