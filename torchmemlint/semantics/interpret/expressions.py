"""Expressions that are neither calls, attributes, subscripts nor names: operators, displays, conditionals."""

from __future__ import annotations

from torchmemlint.index.project import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import changes_nothing, names_tested
from torchmemlint.lower.written import text_of
from torchmemlint.semantics.interpret.elements import forget, iterate, put, put_all
from torchmemlint.semantics.interpret.narrowing import chosen_value, narrow
from torchmemlint.semantics.interpret.operators import arithmetic, operate
from torchmemlint.semantics.mode import assumed, decide
from torchmemlint.semantics.state import (
    ELEMENTS,
    EMPTY,
    EXPRESSIONS,
    FREE_TENSOR,
    ITEMS,
    PLAIN,
    Const,
    Func,
    Kind,
    Machine,
    Obj,
    Plain,
    Seen,
    SinkKind,
    State,
    Tuple,
    Value,
    assign,
    compare_consts,
    const,
    evaluate,
    graphs_of,
    handles,
    is_text,
    join,
    join_all,
    join_states,
    only_const,
    shallow,
    truth,
)


@handles(EXPRESSIONS, ir.Const)
def evaluate_constant(m: Machine, expr: ir.Const, state: State) -> Value:
    return const(expr.value) if isinstance(expr.value, (int, float, str, bool, type(None))) else PLAIN


@handles(EXPRESSIONS, ir.FormattedString)
def evaluate_formatted(m: Machine, expr: ir.FormattedString, state: State) -> Value:
    for part in expr.values:
        m.sink(*m.whole(evaluate(m, part, state), state), SinkKind.SHOWN, "f-string", expr.node)
    return PLAIN


@handles(EXPRESSIONS, ir.Walrus)
def evaluate_walrus(m: Machine, expr: ir.Walrus, state: State) -> Value:
    value = evaluate(m, expr.value, state)
    assign(m, expr.target, value, state, expr.node, expr.value)
    return value


@handles(EXPRESSIONS, ir.Star)
def evaluate_star(m: Machine, expr: ir.Star, state: State) -> Value:
    return iterate(m, evaluate(m, expr.value, state), expr.node, state)


@handles(EXPRESSIONS, ir.Slice)
def evaluate_slice(m: Machine, expr: ir.Slice, state: State) -> Value:
    for part in expr.parts:
        evaluate(m, part, state)
    return PLAIN


@handles(EXPRESSIONS, ir.Await)
def evaluate_await(m: Machine, expr: ir.Await, state: State) -> Value:
    return evaluate(m, expr.value, state)


@handles(EXPRESSIONS, ir.Lambda)
def evaluate_lambda(m: Machine, expr: ir.Lambda, state: State) -> Value:
    closure = m.frame_closure[m.frame]
    ref = FunctionRef(closure.ref.path, expr.function.qualname)
    key = m.closure(expr.function, closure.lowered, ref, m.frame, closure.owner)
    return frozenset((Func(key),))


@handles(EXPRESSIONS, ir.Binary)
def evaluate_binary(m: Machine, expr: ir.Binary, state: State) -> Value:
    left = evaluate(m, expr.left, state)
    right = evaluate(m, expr.right, state)
    if expr.op == "+" and is_text(left) is not is_text(right):
        m.notice(graphs_of(join(left, right)), Seen.NO_TENSOR)
    return operate(m, expr.op, left, right, expr.node, state)


@handles(EXPRESSIONS, ir.Unary)
def evaluate_unary(m: Machine, expr: ir.Unary, state: State) -> Value:
    value = evaluate(m, expr.value, state)
    if expr.op == "not":
        m.sink(*m.whole(value, state), SinkKind.CUT, "not", expr.node)
        known = truth(value)
        return PLAIN if known is None else const(not known)
    single = only_const(value)
    if single is not None:
        if expr.op == "-" and isinstance(single.value, (int, float)):
            return const(-single.value)
        return PLAIN
    return arithmetic(m, [value], expr.node, state)


@handles(EXPRESSIONS, ir.BoolOp)
def evaluate_boolean(m: Machine, expr: ir.BoolOp, state: State) -> Value:
    left = evaluate(m, expr.left, state)
    known = truth(left)
    if known is not None and known == (expr.op == "or"):
        return left
    if known is None and expr.op == "and" and assumed(m, expr.left) is False:
        return const(False)  # what a phase's name stands for: ``train_backbone = is_train and optimizer is not None``
    if known is not None:
        return evaluate(m, expr.right, state)
    if expr.op == "or" and any(type(a) is Obj and m.frozen(a.oid, state) for a in left):
        return left  # the copy with averaged weights, where there is one
    if changes_nothing(expr.right):
        right = evaluate(m, expr.right, state)
    else:
        branch = state.copy()
        right = evaluate(m, expr.right, branch)
        merged = join_states(state, branch)
        assert merged is not None
        state.vars, state.mode = merged.vars, merged.mode
    other = truth(right)
    if other is not None and other == (expr.op == "or") and all(type(a) in (Plain, Const) for a in right):
        return right if known is None and expr.op == "or" and other else join(left, right)
    return join(left, right)


@handles(EXPRESSIONS, ir.Compare)
def evaluate_comparison(m: Machine, expr: ir.Compare, state: State) -> Value:
    values = [evaluate(m, expr.left, state), *(evaluate(m, c, state) for c in expr.comparators)]
    for value in values:
        m.sink(*m.whole(value, state), SinkKind.CUT, expr.ops[0], expr.node)
    if any(map(is_text, values)):
        m.notice(graphs_of(join_all(values)), Seen.SEARCHED if expr.ops[0] in ("in", "not in") else Seen.NO_TENSOR)
    if len(values) == 2:
        return compare_consts(expr.ops[0], values[0], values[1])
    return FREE_TENSOR


@handles(EXPRESSIONS, ir.IfExp)
def evaluate_conditional(m: Machine, expr: ir.IfExp, state: State) -> Value:
    answer = decide(m, expr.test, state)
    if answer is True:
        return evaluate(m, expr.then, state)
    if answer is False:
        return evaluate(m, expr.orelse, state)
    branch = state.copy()
    tested = [(m.frame, name) for name in names_tested(expr.test)]
    kept = {place: state.vars[place] for place in tested if place in state.vars}
    text = m.texts.get(id(expr))
    if text is None:
        text = m.texts[id(expr)] = text_of(expr.test)
    depth = len(m.loops)
    m.guards.append((depth, text))
    then = evaluate(m, expr.then, state) if narrow(m, expr.test, True, state) else EMPTY
    then = chosen_value(m, expr.test, True, expr.then, then, state)
    m.guards[-1] = (depth, f"not {text}")
    orelse = evaluate(m, expr.orelse, branch) if narrow(m, expr.test, False, branch) else EMPTY
    orelse = chosen_value(m, expr.test, False, expr.orelse, orelse, branch)
    m.guards.pop()
    for place, value in kept.items():
        # What the test showed about a name holds inside the expression only.
        state.vars[place] = branch.vars[place] = value
    merged = join_states(state, branch)
    assert merged is not None
    state.vars, state.mode = merged.vars, merged.mode
    return join(then, orelse)


@handles(EXPRESSIONS, ir.Sequence)
def evaluate_display(m: Machine, expr: ir.Sequence, state: State) -> Value:
    if expr.kind is ir.Display.TUPLE:
        items: list[Value] = []
        for item in expr.items:
            if type(item) is ir.Star:
                value = iterate(m, evaluate(m, item.value, state), item.node, state)
                return join_all([*items, value])
            items.append(shallow(evaluate(m, item, state)))
        return frozenset((Tuple(tuple(items)),)) if len(items) <= 12 else join_all(items)
    oid = m.allocate(Kind(expr.kind), expr.node)
    forget(m, oid, state)
    held = EMPTY
    apart: list[Value] = []
    for item in expr.items:
        if type(item) is ir.Star:
            held = join(held, iterate(m, evaluate(m, item.value, state), item.node, state))
        else:
            apart.append(shallow(evaluate(m, item, state)))
            held = join(held, apart[-1])
    state.vars[oid, ELEMENTS] = shallow(held)
    if 1 < len(apart) == len(expr.items) <= 12 and expr.kind is ir.Display.LIST:
        state.vars[oid, ITEMS] = frozenset((Tuple(tuple(apart)),))
    return frozenset((Obj(oid),))


@handles(EXPRESSIONS, ir.DictDisplay)
def evaluate_dict(m: Machine, expr: ir.DictDisplay, state: State) -> Value:
    oid = m.allocate(Kind.DICT, expr.node)
    forget(m, oid, state)
    for key, item in expr.items:
        value = shallow(evaluate(m, item, state))
        if key is None:
            for atom in value:
                put_all(m, oid, atom, expr.node, state)
            continue
        put(m, oid, evaluate(m, key, state), value, state)
    return frozenset((Obj(oid),))
