"""Functions of the project are followed where they are called: arguments to parameters, the body, what it returns."""

from __future__ import annotations

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import is_abstract
from torchmemlint.lower.written import text_of
from torchmemlint.semantics.identity import asks_only_its_arguments
from torchmemlint.semantics.interpret import evaluate_constant, forget, hold_loaded, iterate, note_kept, put
from torchmemlint.semantics.mode import decorated_mode, runs_steps
from torchmemlint.semantics.models.backward import back_propagate
from torchmemlint.semantics.models.operations import JOINS, note_joined
from torchmemlint.semantics.models.unknown_objects import call_opaque
from torchmemlint.semantics.state import (
    CONTAINERS,
    ELEMENTS,
    EMPTY,
    EXPRESSIONS,
    MODULE,
    NONE,
    NOTHING,
    STATEMENTS,
    UNKNOWN,
    Atom,
    Call,
    CallFate,
    Closure,
    Cls,
    FrameEnds,
    Func,
    GradModeMisuse,
    GraphKind,
    Kind,
    Machine,
    Method,
    Misuse,
    Mode,
    Obj,
    RecordFlag,
    SinkKind,
    State,
    Tuple,
    Value,
    call_at,
    const,
    evaluate,
    handles,
    join,
    join_all,
    join_states,
    mark_attached,
    run_block,
    shallow,
    unknown,
    without,
)
from torchmemlint.torch_facts.words import HookEffect

MAX_DEPTH = 5
MAX_RECURSION = 2
"""Times that a function is followed inside itself: a helper that flattens or detaches a container of containers."""

OF_INPUTS = frozenset({RecordFlag.INPUT_GRAD, RecordFlag.UNMARKED_INPUT_GRAD, RecordFlag.AUTOGRAD_GRAD})
"""Flags of a run that say of some input, whichever, that its gradient is taken."""
CALL = 100
"""Steps that are counted for a call of a visible function, beside its statements."""


def call_function(m: Machine, atom: Func, call: Call, state: State) -> Value:
    m.meter.take(CALL)
    closure = m.closures[atom.key]
    if closure.ref.qualname.rpartition(".")[2] in JOINS:
        note_joined(m, call, state)
    if closure.lowered is None:
        found = None if m.is_tired() else m.world.function(closure.ref)
        if found is None:
            return call_opaque(m, text_of(call.func), call, state)
        closure.function, closure.lowered = found
    closure.called = True
    if is_abstract(closure.function) and not take_body(m, closure):
        return call_bodiless(m, closure, call, state, atom.receiver)
    record = m.record
    depth = record.frames[m.frame].depth
    if runs_within(m, closure) >= MAX_RECURSION:
        # A function that calls itself returns what its other branches do: here nothing is added to them.
        return not_followed(m, call, state)
    if depth >= MAX_DEPTH or m.is_tired():
        return call_too_deep(m, closure, call, state)
    if is_plumbing(m, closure, atom.receiver, call, state):
        return handed_back(m, closure, atom.receiver, call) or not_followed(m, call, state)
    bound = bind(m, closure.function, call, atom.receiver, closure)
    mode = state.mode
    own = decorated_mode(m, closure.ref)
    if own is not None:
        state.mode = own
    ran_in = state.mode
    flags = record.flags & OF_INPUTS
    result = run_function(m, closure, bound, call.node, state)
    if closure.apart:
        record.flags -= OF_INPUTS - flags  # of its own: the module's statements have other inputs
    if own is not None:
        state.mode = mode
    graphs, hints, _, _ = m.deep(result, state)
    mark = m.graph(GraphKind.RESULT, call.node, text_of(call.func), key=("result", closure.ref), callee=closure.ref)
    record.fates.append(CallFate(closure.ref, m.site(call.node), ran_in, mark, graphs | hints))
    if depth > 0 or not (graphs or hints):
        return result
    mark_contents(m, result, frozenset((mark,)), state)
    return mark_attached(result, frozenset((mark,)))


def take_body(m: Machine, closure: Closure) -> bool:
    """Whether a function of the module whose statements run has a body after all: these are cut without it. Of a name that is defined
    again, it is not known which definition runs."""
    if closure.parent < 0 or m.frame_closure[closure.parent].ref.qualname != MODULE or m.is_tired():
        return False
    defined = [each for each in m.world.project.module(closure.ref.path).functions if each.qualname == closure.ref.qualname]
    found = m.world.function(closure.ref) if len(defined) == 1 else None
    if found is None or is_abstract(found[0]):
        return False
    closure.function, closure.lowered = found
    closure.parent, closure.apart = -1, True
    return True


def call_bodiless(m: Machine, closure: Closure, call: Call, state: State, receiver: int) -> Value:
    """A call of a function that does nothing by itself; or of a module's own, by the module's statements: these are cut without the bodies
    of its functions."""
    if closure.parent >= 0 and m.frame_closure[closure.parent].ref.qualname == MODULE:
        steps = bool(m.loaded) and runs_steps(m.world, closure.ref)
        if steps:
            hold_loaded(m, state, call.node)
        if m.plumbing(closure.ref) is not None:
            return not_followed(m, call, state)
    return call_opaque(m, text_of(call.func), call, state, oid=receiver)


def runs_within(m: Machine, closure: Closure) -> int:
    """How many of the open frames are those of one function."""
    chain, within = m.frame, 0
    while chain >= 0:
        within += m.frame_closure[chain].function is closure.function
        chain = m.record.frames[chain].parent
    return within


def call_too_deep(m: Machine, closure: Closure, call: Call, state: State) -> Value:
    """A function that is not run, because it is called too deep or the run is too long: what it is may matter later."""
    if not asks_only_its_arguments(closure.function):
        m.record.unfollowed.setdefault(m.site(call.node).key, set()).add(closure.ref)
    return call_opaque(m, text_of(call.func), call, state)


def not_followed(m: Machine, call: Call, state: State) -> Value:
    """What a function gives that is not followed: anything of what it is given."""
    values = call.all()
    return unknown(NOTHING.union(*(m.whole(v, state)[0] for v in values)) if values else NOTHING)


def handed_back(m: Machine, closure: Closure, receiver: int, call: Call) -> Value:
    """What a function that is not followed returns, where that is nothing but what it is given; empty where it may be more."""
    facts = m.world.facts(closure.ref)
    names = {use.callee for use in facts.returned if not use.called and use.alternative is None}
    rebound = {name for name, _ in (*facts.bound, *facts.rebound)}
    if len(facts.returned) != 1 or not names or names & rebound or not names <= {param.name for param in facts.params}:
        return EMPTY
    return bind(m, closure.function, call, receiver, closure)[names.pop()]


def is_plumbing(m: Machine, closure: Closure, receiver: int, call: Call, state: State) -> bool:
    """Whether nothing can happen to a tensor in a call: the function has to do with none, is given none, and finds none in
    the attributes of what it is given."""
    if closure.parent >= 0:
        return False
    names = m.plumbing(closure.ref)
    if names is None:
        return False
    oids: set[int] = set()
    for value in [*call.all(), frozenset((Obj(receiver),))] if receiver >= 0 else call.all():
        graphs, hints, outputs, _ = m.deep(value, state)
        if outputs or any(m.record.graphs[gid].kind is not GraphKind.PARAM for gid in graphs | hints):
            return False
        for atom in value:
            if type(atom) in (Func, Method, Cls):
                return False
            if type(atom) is Obj:
                oids.add(atom.oid)
    if not all(m.heap[oid].kind in (Kind.THING, Kind.INSTANCE, Kind.SELF, Kind.DICT, Kind.LIST, Kind.SET) for oid in oids):
        return False
    for oid in oids:
        for name in names:
            held = state.vars.get((oid, name))
            if held and any(m.deep(held, state)):
                return False
    return True


def mark_contents(m: Machine, result: Value, marks: frozenset[int], state: State) -> None:
    """What a callee returns in containers and objects that it has made: their tensors are results of the call as well."""
    for atom in result:
        if type(atom) is not Obj or m.heap[atom.oid].external or m.heap[atom.oid].frame == m.frame:
            continue
        if m.heap[atom.oid].kind in CONTAINERS or m.heap[atom.oid].kind is Kind.INSTANCE:
            for place in m.places(atom.oid, state):
                state.vars[place] = mark_attached(state.vars[place], marks)


def bind(m: Machine, function: ir.Function, call: Call, receiver: int, closure: Closure) -> dict[str, Value]:
    """Arguments to parameters; what is missing takes its default when that is a literal."""
    bound: dict[str, Value] = {}
    positional = list(call.positional)
    params = [p for p in function.params if p.kind is ParamKind.POSITIONAL]
    first = bound_first(function, receiver, closure) if params else None
    if first is not None:
        bound[params.pop(0).name] = first
    rest = join_all(call.more)
    for param in params:
        if positional:
            bound[param.name] = positional.pop(0)
        elif param.name in call.keywords:
            bound[param.name] = call.keywords[param.name]
    for param in function.params:
        if param.name in bound:
            continue
        if param.kind is ParamKind.VAR_POSITIONAL:
            bound[param.name] = frozenset((Tuple(tuple(positional[:12])),)) if not rest else join_all([*positional, rest])
            positional = []
        elif param.kind is ParamKind.VAR_KEYWORD:
            names = {p.name for p in function.params}
            extra = {k: v for k, v in call.keywords.items() if k not in names}
            oid = m.allocate(Kind.DICT, function.node, "kwargs", tag=(m.frame, param.name))
            bound[param.name] = frozenset((Obj(oid),))
            m.pending_kwargs = (oid, extra, rest)
        elif param.name in call.keywords:
            bound[param.name] = call.keywords[param.name]
        elif not rest and type(param.default) is ir.Const:
            bound[param.name] = evaluate_constant(m, param.default, State({}, Mode.ON, m.meter))
        else:
            bound[param.name] = rest or UNKNOWN
    return bound


def bound_first(function: ir.Function, receiver: int, closure: Closure) -> Value | None:
    """What a method's first parameter is bound to, the object or the class; None for any other function."""
    if receiver >= 0 and not any(text_of(d) == "staticmethod" for d in function.decorators):
        return frozenset((Obj(receiver),))
    if closure.owner is not None and any(text_of(d) == "classmethod" for d in function.decorators):
        return frozenset((Cls(closure.owner.path, closure.owner.qualname),))
    return None


def run_function(m: Machine, closure: Closure, bound: dict[str, Value], call: int, state: State) -> Value:
    """Run a function's body in the caller's state; its locals are gone afterwards unless a closure keeps them."""
    outer_frame = m.frame
    number = m.open_frame(closure, call)
    m.frame = number
    for name, value in bound.items():
        state.vars[number, name] = shallow(value)
    if m.pending_kwargs is not None:
        oid, extra, rest = m.pending_kwargs
        m.pending_kwargs = None
        forget(m, oid, state)
        for name, value in extra.items():
            put(m, oid, const(name), value, state)
        if rest:
            state.vars[oid, ELEMENTS] = rest
    ends = FrameEnds()
    m.ends.append(ends)
    outer_loop_ends, m.loop_ends = m.loop_ends, []
    mode = state.mode
    end = run_block(m, closure.function.body, state.copy())
    m.loop_ends = outer_loop_ends
    m.ends.pop()
    m.frame = outer_frame
    final = join_states(end, ends.state)
    if final is not None:
        state.vars = places = final.vars
        if not closure.function.is_generator:
            m.meter.take(len(places))
            for place in [place for place in places if place[0] == number]:
                del places[place]
        state.mode = final.mode if not closure.function.is_generator else mode
    if closure.function.is_generator:
        oid = m.allocate(Kind.GENERATOR, call, text_of(ir.Name(call, closure.function.name)), tag=number)
        state.vars[oid, ELEMENTS] = ends.yields or UNKNOWN
        return frozenset((Obj(oid),))
    result = ends.returns
    if end is not None:
        result = join(result, NONE) if result else NONE
    return result or NONE


@handles(STATEMENTS, ir.Return)
def run_return(m: Machine, statement: ir.Return, state: State) -> State | None:
    value = evaluate(m, statement.value, state) if statement.value is not None else NONE
    note_kept(m, m.deep(value, state)[3])
    ends = m.ends[-1]
    ends.returns = join(ends.returns, shallow(value))
    ends.state = join_states(ends.state, state)
    if len(m.ends) == 1:
        graphs, hints, _, _ = m.deep(value, state)
        if m.world.hook(m.record.root) is HookEffect.BACKWARD_RETURN:
            framework = call_at(statement.node, ir.Name(statement.node, "framework.backward"), [], [])
            back_propagate(m, [apart_from_holders(m, value, state)], framework, state)
        m.sink(graphs | hints, SinkKind.RETURNED, "", statement.node)
        m.record.returned |= graphs | hints
    return None


def apart_from_holders(m: Machine, value: Value, state: State) -> Value:
    """What a hook returns, by itself: a framework back-propagates a dict at once, which says nothing of what becomes of it in a list
    that the hook has put it into as well."""
    out: set[Atom] = set()
    for atom in value:
        marks = m.held_whole.get(atom.oid) if type(atom) is Obj else None
        out.add(atom if marks is None else Tuple(tuple(without(item, marks) for item in m.inside(atom, state))))
    return frozenset(out)


@handles(EXPRESSIONS, ir.Yield)
def evaluate_yield(m: Machine, expr: ir.Yield, state: State) -> Value:
    value = evaluate(m, expr.value, state) if expr.value is not None else NONE
    if expr.is_from:
        value = iterate(m, value, expr.node, state)
    ends = m.ends[-1]
    ends.yields = join(ends.yields, shallow(value))
    if len(m.ends) == 1:
        graphs, hints, _, _ = m.deep(value, state)
        m.sink(graphs | hints, SinkKind.YIELDED, "", expr.node)
        m.record.returned |= graphs | hints
        if state.mode is Mode.OFF and m.record.mode is not Mode.OFF and not is_manager(m):
            # One for a block, at its first yield.
            block, manager = m.offs[-1] if m.offs else (-1, "")
            if m.leaks.setdefault(block, expr.node) == expr.node:
                m.emit(GradModeMisuse(m.site(expr.node), Misuse.GENERATOR_LEAK, manager))
    return UNKNOWN


def is_manager(m: Machine) -> bool:
    """Whether the root is a context manager's generator, a fixture or the like: one that is meant to change its consumer."""
    return bool(m.frame_closure[m.frame].function.decorators)
