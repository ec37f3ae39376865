"""Loops, comprehensions too: passes over a body until its head settles, and what a place carries round."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torchmemlint.index.references import FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import leaves, names_in, replaced_items, target_names
from torchmemlint.lower.walk import nodes_of
from torchmemlint.lower.written import text_of
from torchmemlint.semantics.interpret.elements import forget, iterate
from torchmemlint.semantics.interpret.iterations import bound, counter_of, iterations_until_break
from torchmemlint.semantics.mode import decide
from torchmemlint.semantics.state import (
    ELEMENTS,
    EMPTY,
    EXPRESSIONS,
    FIRST_NUMBER,
    FROZEN,
    MODULE,
    STATEMENTS,
    GraphKind,
    Key,
    Kind,
    LoopEnds,
    LoopInfo,
    Machine,
    Obj,
    Plain,
    State,
    Tensor,
    Tuple,
    Unknown,
    Value,
    World,
    add_marks,
    assign,
    changed,
    const,
    evaluate,
    handles,
    join,
    join_states,
    memoized,
    only_const,
    place_of,
    run_block,
    shallow,
)
from torchmemlint.torch_facts import TORCH

FILLS = TORCH.words["fills-lists"]
MAX_PASSES = 3
"""Passes over a loop's body; the lattice of a place is low, and what has not settled by then is joined as it stands."""

MANY_TURNS = 1_000_000
"""Beyond that a number of iterations is as good as unknown."""


def note_loop(
    m: Machine,
    loop: tuple[int, int],
    iterable: ir.Expr,
    value: Value,
    targets: set[str] | frozenset[str] = frozenset(),
    attempts: bool = False,
    listed: bool = False,
    turns: int = -1,
) -> None:
    kinds = {Kind.LOADER if m.goes_over_batches(a.oid) else m.heap[a.oid].kind for a in value if type(a) is Obj}
    kind = Kind.LOADER if Kind.LOADER in kinds else next(iter(sorted(kinds)), None)
    m.record.loops[loop] = LoopInfo(text_of(iterable), kind, frozenset(targets), attempts, listed, turns=turns)


@handles(STATEMENTS, ir.For)
def run_for(m: Machine, statement: ir.For, state: State) -> State | None:
    iterable = evaluate(m, statement.iterable, state)
    literals = literal_turns(statement.iterable)
    if literals is not None:
        return unrolled(m, statement, literals, state)
    loop = (m.frame, statement.node)
    m.loop_statements[loop] = statement
    m.counters[loop] = counter_of(m, statement.target, iterable)
    turns = turns_of(m, statement, state)
    note_loop(m, loop, statement.iterable, iterable, names_in(statement.target), leaves(statement.body), turns=turns)
    m.loop_names |= names_in(statement.target)

    free: set[Key] = set()

    def body(inner: State) -> State | None:
        item = iterate(m, iterable, statement.node, inner)
        for key in walked_modules(m, item):
            if key not in inner.vars:
                inner.vars[key] = const(False)
                free.add(key)
        assign(m, statement.target, item, inner, statement.node)
        return run_block(m, statement.body, inner)

    after = loop_passes(m, loop, state, body)
    if after is not None:
        for key in free & after.vars.keys():
            if after.vars[key] == const(False):
                del after.vars[key]  # no test showed anything of it
        replace_items(m, statement, after)
    if statement.orelse and after is not None:
        after = run_block(m, statement.orelse, after)
    return after


def walked_modules(m: Machine, item: Value) -> Iterator[Key]:
    """The places that say whether the modules are frozen of which an item is a parameter, or holds one: an iteration that
    freezes its parameter on a condition leaves others as they were, so the module is not frozen as a whole."""
    for atom in item:
        if type(atom) is Obj and atom.oid in m.owner_of_params:
            yield m.owner_of_params[atom.oid], FROZEN
        elif type(atom) is Tuple:
            for each in atom.items:
                yield from walked_modules(m, each)


def replace_items(m: Machine, statement: ir.For, state: State) -> None:
    """After ``for k, v in d.items(): d[k] = v.detach()`` nothing is left of what the dict held before."""
    found = replaced_items(statement)
    if found is None:
        return
    target = found
    new = shallow(m.stored_items.get((m.frame, m.turn, target.node), EMPTY))
    if not new:
        return
    held = evaluate(m, target.value, state)
    for atom in held:
        if type(atom) is Obj and m.heap[atom.oid].kind is Kind.DICT:
            forget(m, atom.oid, state)
            state.vars[atom.oid, ELEMENTS] = new
    if isinstance(target.value, ir.Name) and any(type(a) is Tensor for a in held):
        rest = frozenset(a for a in held if type(a) is not Tensor)
        state.vars[place_of(m, target.value.id)] = join(rest, frozenset(a for a in new if type(a) in (Tensor, Plain)))


def unrolled(m: Machine, statement: ir.For, turns: list[Value], state: State) -> State | None:
    """``for phase in ["train", "val"]``: each literal is an iteration of its own."""
    outer = m.turn
    out: State | None = state
    for value in turns:
        if out is None:
            break
        m.turn = m.number("turn", outer, statement.node, repr(value))
        assign(m, statement.target, value, out, statement.node)
        ends = LoopEnds()
        m.loop_ends.append(ends)
        out = join_states(run_block(m, statement.body, out), ends.continues)
        m.loop_ends.pop()
        out = join_states(out, ends.breaks)
    m.turn = outer
    if out is not None and statement.orelse:
        out = run_block(m, statement.orelse, out)
    return out


@handles(STATEMENTS, ir.While)
def run_while(m: Machine, statement: ir.While, state: State) -> State | None:
    loop = (m.frame, statement.node)
    m.loop_statements[loop] = statement
    m.record.loops[loop] = LoopInfo(text_of(statement.test), None, attempts=leaves(statement.body), is_while=True)

    def is_endless(head: State) -> bool:
        test = only_const(evaluate(m, statement.test, head))
        return test is not None and bool(test.value)

    def body(inner: State) -> State | None:
        if decide(m, statement.test, inner) is False:
            return inner
        return run_block(m, statement.body, inner)

    evaluate(m, statement.test, state)
    after = loop_passes(m, loop, state, body, is_endless)
    if statement.orelse and after is not None:
        after = run_block(m, statement.orelse, after)
    return after


def loop_passes(
    m: Machine,
    loop: tuple[int, int],
    state: State,
    body: Callable[[State], State | None],
    is_endless: Callable[[State], bool] = lambda head: False,
    own: frozenset[Key] = frozenset(),
) -> State | None:
    """Run a loop's body until its head state settles. From the second pass on, places that were bound before the loop and
    changed in it are marked as carried round it.

    ``is_endless`` finds from the settled head state whether the loop ends by ``break`` alone. ``own`` are places that the body binds
    before it reads them, whatever they held. A pass that would start where the one before it did would give the same again, and
    is left out.
    """
    m.loops.append(loop)
    head = state
    last: State | None = None
    retyped = 0
    exits: State | None = None
    marks: dict[tuple[int, str], frozenset[int]] = {}
    for number in range(MAX_PASSES):
        inner = head.copy()
        for place, mark in marks.items():
            held = inner.vars.get(place)
            if held is not None:
                inner.vars[place] = add_marks(held, mark)
        if last is not None and retyped == m.retyped and starts_alike(m, inner, last, loop, own):
            break
        last, retyped = inner.copy(), m.retyped
        ends = LoopEnds()
        m.loop_ends.append(ends)
        end = join_states(body(inner), ends.continues)
        m.loop_ends.pop()
        exits = join_states(exits, ends.breaks)
        if end is None:
            break
        marked = False
        for place in changed(head.vars, end.vars):
            value = end.vars[place]
            if head.vars.get(place) == value:
                continue
            if place not in marks and carries(place, value, state, m):
                marks[place] = frozenset((m.number_mark(GraphKind.CARRIED, place[1], place, loop[1], loop),))
                marked = True
            if place in marks:
                brought = m.record.carried.setdefault((place, loop), set())
                brought |= m.whole(value, end)[0]
        merged = join_states(head, end)
        assert merged is not None
        if number and not marked and merged.vars == head.vars and merged.mode == head.mode:
            head = merged
            break
        head = merged
    m.loops.pop()
    return exits if is_endless(head) else join_states(head, exits)


def starts_alike(m: Machine, now: State, last: State, loop: tuple[int, int], own: frozenset[Key]) -> bool:
    """Whether two passes of a loop start alike: in all that the body can read before it binds it."""
    if now.mode != last.mode:
        return False
    if not own:
        return now.vars == last.vars
    for place in changed(last.vars, now.vars):
        if place in own or last.vars.get(place) == now.vars[place]:
            continue
        if place[0] < FIRST_NUMBER or loop not in m.heap[place[0]].loops:
            return False  # neither the body's own name nor inside an object that the body makes
    return True


@handles(STATEMENTS, ir.Break)
def run_break(m: Machine, statement: ir.Break, state: State) -> State | None:
    if m.loop_ends:
        m.loop_ends[-1].breaks = join_states(m.loop_ends[-1].breaks, state)
    return None


@handles(STATEMENTS, ir.Continue)
def run_continue(m: Machine, statement: ir.Continue, state: State) -> State | None:
    if m.loop_ends:
        m.loop_ends[-1].continues = join_states(m.loop_ends[-1].continues, state)
    return None


def carries(place: tuple[int, str], value: Value, before: State, m: Machine) -> bool:
    """Whether a place that changed in a loop's pass was there before the loop, and may hold a tensor that brings something of
    this pass along: one that was detached in place (``total.detach_()``) brings nothing."""
    if place[1].startswith("$") or place not in before.vars:
        return False
    if not any(type(a) in (Unknown, Tuple) or (type(a) is Tensor and (a.graphs or a.hints or a.outputs)) for a in value):
        return False
    return place[0] < len(m.record.frames) or not place[1].startswith("[")


def turns_of(m: Machine, statement: ir.For, state: State) -> int:
    """How many turns a loop has at most, by what it goes over or by where its body leaves it; -1 where that is not known."""

    def known(expr: ir.Expr) -> object:
        constant = only_const(evaluate(m, expr, state)) if type(expr) in (ir.Const, ir.Name) else None
        return constant.value if constant is not None else None

    counts = m.counters[m.frame, statement.node]
    ends = [turns_over(m, statement.iterable, state), iterations_until_break(statement, counts, known)]
    return min((end for end in ends if end >= 0), default=-1)


def turns_over(m: Machine, iterable: ir.Expr, state: State) -> int:
    """How many iterations a loop over an expression has at most, where that is a display, by itself or by its name, or a ``range`` of
    numbers that are known; else -1."""
    match iterable:
        case ir.Sequence(items=items) if not any(type(item) is ir.Star for item in items):
            return len(items)
        case ir.Name():
            return _length(m.world, m.ref, iterable.id)
        case ir.Call(func=ir.Name(id="enumerate"), args=args) if args:
            return turns_over(m, args[0].value, state)
        case ir.Call(func=ir.Name(id="range"), args=args):
            numbers = [end for a in args if (end := _number(m, a.value, state)) is not None and abs(end) < MANY_TURNS]
            if args and len(numbers) == len(args) and 0 not in numbers[2:]:
                return len(range(*numbers))
    return -1


def _number(m: Machine, expr: ir.Expr, state: State) -> int | None:
    """An integer that a literal, a name or the length of a display is known to be; None where it is not."""
    match expr:
        case ir.Const() | ir.Name():
            known = only_const(evaluate(m, expr, state))
            return known.value if known is not None and type(known.value) is int else None
        case ir.Call(func=ir.Name(id="len"), args=[ir.Arg(value=ir.Name() as name)]):
            return length if (length := _length(m.world, m.ref, name.id)) >= 0 else None
        case _:
            return None


@memoized
def _length(world: World, ref: FunctionRef, name: str) -> int:
    """The length of the longest display that the function binds a name to, where it binds it to these alone, and nothing can add to
    them; -1 where there is none."""
    facts = world.facts(ref)
    if name in {param.name for param in facts.params} or any(name == each for each, _ in facts.bound):
        return -1  # what is bound to a display has no text
    body = world.body(ref)
    made = bound(body, name)
    displays = [each.items for each in made if isinstance(each, ir.Sequence) and each.items]
    if len(displays) < len(made) or any(type(item) is ir.Star for items in displays for item in items):
        return -1
    if not displays or _is_bound_again(body, name) or _may_grow(world, ref, name):
        return -1
    return max(map(len, displays))


def _is_bound_again(body: list[ir.Stmt], name: str) -> bool:
    """Whether a block gives a name something else, or adds to it, otherwise than by an assignment to the name alone."""
    return any(
        isinstance(node, ir.AugAssign | ir.For | ir.Walrus) and name in target_names(node.target) for node in nodes_of(body)
    )


def _may_grow(world: World, ref: FunctionRef, name: str) -> bool:
    """Whether a function that knows a list by its name fills it, or hands it to what may: anything but a builtin."""
    within = world.project.within(ref.path, ref.qualname)
    others = (world.facts(FunctionRef(ref.path, each)) for each in world.project.knowing(ref.path, name))
    return any(
        (call.callee.rpartition(".")[0] == name and call.callee.rpartition(".")[2] in FILLS)
        or (
            any(arg.name == name for arg in call.args)
            and not f"{world.project.resolve(ref.path, call.callee, each.qualname)}".startswith("builtins.")
        )
        for each in (*within, *(others if ref.qualname == MODULE else ()))
        for call in each.calls
    )


def literal_turns(expr: ir.Expr) -> list[Value] | None:
    """The turns of a loop over a short display of strings or truth values; None for any other loop."""
    if isinstance(expr, ir.Sequence) and 1 <= len(expr.items) <= 4:
        turns = []
        for item in expr.items:
            if not isinstance(item, ir.Const) or not isinstance(item.value, (str, bool)):
                return None
            turns.append(const(item.value))
        return turns
    return None


@handles(EXPRESSIONS, ir.Comprehension)
def evaluate_comprehension(m: Machine, expr: ir.Comprehension, state: State) -> Value:
    oid = m.allocate(Kind(expr.kind), expr.node)
    forget(m, oid, state)
    comprehension_clause(m, expr, 0, oid, state)
    return frozenset((Obj(oid),))


def comprehension_clause(m: Machine, expr: ir.Comprehension, index: int, oid: int, state: State) -> None:
    if index == len(expr.clauses):
        value = shallow(evaluate(m, expr.element, state))
        if expr.key is not None:
            evaluate(m, expr.key, state)
        state.vars[oid, ELEMENTS] = join(state.vars.get((oid, ELEMENTS), EMPTY), value)
        return
    clause = expr.clauses[index]
    iterable = evaluate(m, clause.iterable, state)

    def body(inner: State) -> State | None:
        names = target_names(clause.target)
        m.comprehension_names.append(names)
        assign(m, clause.target, iterate(m, iterable, clause.node, inner), inner, clause.node)
        m.comprehension_names.pop()
        for condition in clause.conditions:
            if decide(m, condition, inner) is False:
                return None
        comprehension_clause(m, expr, index + 1, oid, inner)
        return inner

    loop, listed = (m.frame, clause.node), expr.kind is ir.Display.LIST
    turns = turns_over(m, clause.iterable, state)
    note_loop(m, loop, clause.iterable, iterable, target_names(clause.target), listed=listed, turns=turns)
    # The clause's names are a scope of their own: what they held before, they hold again afterwards.
    places = [(m.frame, name) for name in target_names(clause.target)]
    before = {place: state.vars.pop(place, None) for place in places}
    # What the comprehension has collected so far is in nobody's reach yet, and its names are bound by each iteration.
    own = frozenset((*places, (oid, ELEMENTS)))
    after = loop_passes(m, (m.frame, clause.node), state, body, own=own)
    if after is not None:
        state.vars, state.mode = after.vars, after.mode
    for place, held in before.items():
        state.vars.pop(place, None)
        if held is not None:
            state.vars[place] = held
