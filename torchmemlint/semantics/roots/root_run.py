"""One run over a root function, from its first statement to its record."""

from __future__ import annotations

import re

from torchmemlint.index.fact_words import ParamKind
from torchmemlint.index.facts import CallableUse
from torchmemlint.index.modes import StartMode
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.lower import ir
from torchmemlint.lower.syntax import is_abstract
from torchmemlint.lower.written import dotted, text_of
from torchmemlint.semantics.identity import cache_of, callable_given, entries_of, module_given, parametric
from torchmemlint.semantics.interpret import (
    annotated_container,
    classify,
    is_plain_type,
    note_given_away,
    object_attribute,
)
from torchmemlint.semantics.mode import decorated_mode, start_mode
from torchmemlint.semantics.models import check_decorator, handed_output, run_function, take_body
from torchmemlint.semantics.roots import assembly
from torchmemlint.semantics.roots.oom_helpers import record_helper
from torchmemlint.semantics.state import (
    EMPTY,
    EVERYTHING,
    FROZEN,
    MAYBE_FROZEN,
    NOTHING,
    UNKNOWN,
    Backward,
    CachedFunction,
    Closure,
    Cls,
    FrameEnds,
    Func,
    GraphKind,
    Kind,
    Machine,
    Mode,
    Obj,
    Record,
    Seen,
    Sink,
    SinkKind,
    State,
    Value,
    World,
    const,
    join_states,
    memoized,
    run_block,
    sorted_atoms,
)
from torchmemlint.torch_facts import TORCH

TENSOR = TORCH.names["tensor-class"]

assembly.check()  # whoever runs a root has all handlers

FREEZING_FLAG = re.compile(r"(^|_)(freez\w*|frozen|fix(ed)?|trainable|learnable|requires_grad|fine_?tune)(_|$)")
"""Parameters of a constructor that say whether what it builds learns."""


def run_root(m: Machine, function: ir.Function, lowered: object, owner: ClassRef | None) -> Record:
    """Run the root function with what is known of its parameters; returns its record."""
    record = m.record
    closure = Closure(function, lowered, record.root, -1, owner)
    m.frame = m.open_frame(closure, -1)
    assumed_on = record.mode in (Mode.ON, Mode.MIXED, Mode.NO_CALLERS)
    mode = Mode.ON if assumed_on else Mode.OFF if record.mode is Mode.OFF else Mode.UNKNOWN
    state = State({}, mode, m.meter)
    bind_root(m, function, owner, state)
    for decorator in function.decorators:
        check_decorator(m, decorator, function, state)
    cached = [(d, cache) for d in function.decorators if (cache := cache_at(m, d)) is not None]
    m.weighs_evidence = m.weighs_evidence or bool(cached)
    given = {p.name: state.vars.get((m.frame, p.name), EMPTY) for p in function.params} if cached else {}
    record_helper(m, function)
    ends = FrameEnds()
    m.ends.append(ends)
    end = run_block(m, function.body, state)
    for decorator, cache in cached:
        note_cache(m, decorator, cache, function, given)
    final = join_states(end, ends.state)
    run_hooks(m, final if final is not None else State({}, state.mode, m.meter))
    run_uncalled(m, final if final is not None else State({}, state.mode, m.meter))
    m.ends.pop()
    record.final = final
    record.result = ends.returns
    if final is not None:
        note_given_away(m, ends.returns | ends.yields, final)
    record.sinks = by_graph(m.sunk)
    finish(record)
    return record


def cache_at(m: Machine, decorator: ir.Expr) -> CallableUse | None:
    """The cache of functools that a decorator of the root is, or hands it to."""
    callee = dotted(decorator.func if isinstance(decorator, ir.Call) else decorator)
    return cache_of(m.world, m.record.root, callee)


def note_cache(m: Machine, decorator: ir.Expr, cache: CallableUse, function: ir.Function, given: dict[str, Value]) -> None:
    """What a cached function is called with: judged after its body has shown what its parameters are."""
    entries = entries_of(cache)
    if entries == 0:
        return
    modules: list[str] = []
    tensors: list[str] = []
    things: list[tuple[str, int]] = []
    ref = m.record.root
    for param in function.params:
        if param.annotation is not None and is_plain_type(param.annotation):
            continue
        for atom in given[param.name]:
            if type(atom) is not Obj:
                continue
            info = m.heap[atom.oid]
            own = info.kind is Kind.SELF and isinstance(info.cls, ClassRef) and m.world.is_module_class(info.cls)
            if own or info.kind is Kind.MODULE:
                modules.append(param.name)
            elif m.world.project.class_of(ref.path, ref.qualname, param.name) == TENSOR:
                tensors.append(param.name)
            elif info.kind is Kind.THING:
                things.append((param.name, m.thing_graph(atom.oid)))
    name = text_of(decorator.func if isinstance(decorator, ir.Call) else decorator)
    m.emit(CachedFunction(m.site(decorator.node), name, entries, tuple(modules), tuple(tensors), tuple(things)))


def bind_root(m: Machine, function: ir.Function, owner: ClassRef | None, state: State) -> None:
    params = function.params
    static = any(text_of(d) in ("staticmethod",) for d in function.decorators)
    start = 0
    if owner is not None and params and not static:
        first = params[0].name
        if any(text_of(d) == "classmethod" for d in function.decorators):
            state.vars[m.frame, first] = frozenset((Cls(owner.path, owner.qualname),))
        else:
            me = m.outside(Kind.SELF, first, owner, key="self")
            state.vars[m.frame, first] = frozenset((Obj(me),))
            if EVERYTHING in m.frozen_attributes:
                state.vars[me, FROZEN] = const(True)
            for name in sorted(m.frozen_attributes - {EVERYTHING}):
                for atom in object_attribute(m, me, name, None, state):
                    if type(atom) is Obj:
                        state.vars[atom.oid, FROZEN] = const(True)
            if not m.record.root.qualname.endswith("__init__"):
                bind_maybe_frozen(m, me, owner, state)
        start = 1
    network = m.world.as_overriding(m.record.root, TORCH.handed_networks)
    for position, param in enumerate(params):
        if position >= start:
            state.vars[m.frame, param.name] = root_parameter(m, param, position == network, state)
    handed = handed_output(m)
    if handed is not None and handed[0] < len(params):
        state.vars[m.frame, params[handed[0]].name] = handed[1]
    if owner is not None and function.name in TORCH.words["context-methods"] and m.world.is_autograd_function(owner):
        open_context(m, function, state)


def open_context(m: Machine, function: ir.Function, state: State) -> None:
    """In an ``autograd.Function``'s forward or setup_context: the first parameter is its context; without grad, nothing
    that it is given has a graph here."""
    state.mode = Mode.OFF
    m.weighs_evidence = True
    for number, param in enumerate(function.params):
        for atom in state.vars.get((m.frame, param.name), EMPTY):
            if type(atom) is not Obj:
                continue
            if number == 0:
                m.contexts.add(atom.oid)
            elif m.heap[atom.oid].kind is not Kind.THING:
                continue
            elif param.annotation is not None and text_of(param.annotation) in (TENSOR, TENSOR.rpartition(".")[2]):
                m.notice((m.thing_graph(atom.oid),), Seen.TENSOR)
            if number == 2 and function.name == TORCH.names["sets-context"]:
                m.record.returned.add(m.thing_graph(atom.oid))  # the output
                m.notice((m.thing_graph(atom.oid),), Seen.TENSOR)


def root_parameter(m: Machine, param: ir.Param, is_network: bool, state: State) -> Value:
    """What a parameter of the root is; ``is_network``: a framework hands it the network that it trains."""
    if param.kind is ParamKind.VAR_POSITIONAL:
        return UNKNOWN
    if param.kind is ParamKind.VAR_KEYWORD:
        return frozenset((Obj(m.outside(Kind.DICT, param.name, None, key=("param", m.frame, param.name))),))
    ref = m.ref
    if ref.qualname.endswith(".__init__") and FREEZING_FLAG.search(param.name):
        known = constructed_with(m, ref, param.name)
        if known is not None:
            return const(known)
    found = m.world.project.class_of(ref.path, ref.qualname, param.name) or (TORCH.names["module"] if is_network else None)
    oid = m.outside(Kind.THING, param.name, found, key=("param", m.frame, param.name))
    if found == TENSOR:
        found = None
    elif found is None and param.annotation is not None:
        held = annotated_container(m, ref, param.name, param.name, ("param", m.frame, param.name), state)
        if held is not None:
            return held
    if found is None and param.name in used_as_objects(m.world, ref):
        found = module_given(m.world, ref, param.name) or callable_given(m.world, ref, param.name)
    classify(m, oid, found, param.name)
    if isinstance(found, ClassRef) and m.heap[oid].kind is Kind.MODULE and parametric(m.world, found) == frozenset():
        m.bare.add(oid)
    return frozenset((Obj(oid),))


def bind_maybe_frozen(m: Machine, me: int, owner: ClassRef, state: State) -> None:
    """What the constructor of the root's object freezes under a condition."""
    for name, condition in m.frozen_maybe(owner):
        held = [me] if name == EVERYTHING else [a.oid for a in object_attribute(m, me, name, None, state) if type(a) is Obj]
        for oid in held:
            state.vars[oid, FROZEN] = MAYBE_FROZEN
            m.record.conditions[oid] = condition


@memoized
def used_as_objects(world: World, ref: FunctionRef) -> frozenset[str]:
    """The names under which a function calls something, or a method of it."""
    return frozenset(call.callee.partition(".")[0] for call in world.facts(ref).calls)


def constructed_with(m: Machine, init: FunctionRef, flag: str) -> bool | None:
    """What a flag of a constructor is wherever objects are visibly made, or by default where no code makes any."""
    params = m.world.header(init).params
    if not any(param.name == flag and param.default in ("True", "False") for param in params):
        return None
    return m.world.project.test_holds(init, flag)


def run_hooks(m: Machine, state: State) -> None:
    """Functions that the root registered as hooks: what they do with what a module gives them."""
    mode = Mode.OFF if hooks_only_without_grad(m) else Mode.ON
    for atom in sorted_atoms(frozenset(m.hooked)):
        assert type(atom) is Func
        closure = m.closures[atom.key]
        if closure.lowered is None:
            found = None if m.is_tired() else m.world.function(closure.ref)
            if found is None:
                continue
            closure.function, closure.lowered = found
        if is_abstract(closure.function) and not take_body(m, closure):
            continue
        params = list(closure.function.params)
        bound: dict[str, Value] = {}
        if atom.receiver >= 0 and params:
            bound[params.pop(0).name] = frozenset((Obj(atom.receiver),))
        for param in params:
            oid = m.outside(Kind.THING, param.name, None, key=("hook", atom.key, param.name))
            bound[param.name] = frozenset((Obj(oid),))
        given = [a.oid for p in params[1:] for a in bound[p.name] if type(a) is Obj]
        m.hook_arguments = frozenset(m.thing_graph(oid) for oid in given)
        m.record.hook_arguments |= m.hook_arguments
        at_definition = m.snapshots.places(m.defined[atom.key]) if atom.key in m.defined else {}
        inner = State({**at_definition, **state.vars}, mode, m.meter)
        m.ends.append(FrameEnds())
        run_function(m, closure, bound, closure.function.node, inner)
        m.ends.pop()
        m.hook_arguments = NOTHING


def hooks_only_without_grad(m: Machine) -> bool:
    """Whether the root takes its hooks away again, and all that it runs itself meanwhile runs with grad mode off."""
    record = m.record
    if not record.forwards or TORCH.names["removes-hook"] not in m.world.facts(record.root).names:
        return False
    return not any(
        graph.mode is not Mode.OFF and (graph.kind is GraphKind.FORWARD or graph.direct) for graph in record.graphs.values()
    )


AGREED = {StartMode.ON: Mode.ON, StartMode.OFF: Mode.OFF}
"""Grad modes of a closure's start on which all its callers agree."""


def run_uncalled(m: Machine, state: State) -> None:
    """Closures that the root never called itself (callbacks, hooks, what it returns): run once with unknown arguments, in the grad
    mode of the call that runs them, or of all their callers, else in an unknown one."""
    lambdas = {key: handed.state for key, handed in m.handed.items() if key not in m.defined}
    for key, at_definition in [*m.defined.items(), *sorted(lambdas.items())]:
        closure = m.closures[key]
        if closure.called or closure.parent != 0:
            continue
        handed = m.handed.get(key)
        mode = handed.state.mode if handed is not None else AGREED.get(start_mode(m.world, closure.ref), Mode.UNKNOWN)
        m.meter.take(len(state.vars) + at_definition.places)
        held = m.snapshots.places(at_definition)
        inner = State({**state.vars, **{k: v for k, v in held.items() if k not in state.vars}}, mode, m.meter)
        own = decorated_mode_or_none(m, closure.ref)
        if own is not None:
            inner.mode = own
        bound: dict[str, Value] = {}
        for param in closure.function.params:
            oid = m.outside(Kind.THING, param.name, None, key=("closure", key, param.name))
            bound[param.name] = frozenset((Obj(oid),))
        m.ends.append(FrameEnds())
        result = run_function(m, closure, bound, closure.function.node, inner)
        m.ends.pop()
        if handed is not None:
            m.sink(*m.whole(result, inner), SinkKind.PASSED, handed.text, handed.node)


def decorated_mode_or_none(m: Machine, ref: FunctionRef) -> Mode | None:
    try:
        return decorated_mode(m, ref)
    except KeyError:
        return None


def by_graph(sunk: dict[Sink, set[int]]) -> dict[int, tuple[Sink, ...]]:
    """Graphs → the sinks that they went to, in a fifth of the room that a set for each would take while the run goes on."""
    found: dict[int, list[Sink]] = {}
    for sink, gids in sunk.items():
        for gid in gids:
            found.setdefault(gid, []).append(sink)
    return {gid: tuple(sinks) for gid, sinks in found.items()}


def finish(record: Record) -> None:
    """Back-propagation, once all graphs know what they are attached to: judged at the end, because a backward frees a graph for
    every value that is attached to it, whether it was stored before or after."""
    for event in record.events.values():
        if isinstance(event, Backward):
            sure = record.ancestors(event.graphs)
            record.backwarded |= sure | record.ancestors(event.hints)
            record.trained |= sure
            if not event.retain and not event.partial:
                record.freed |= sure
    record.in_unknown_mode = frozenset(
        gid for gid, graph in record.graphs.items() if graph.kind is GraphKind.FORWARD and graph.mode is Mode.UNKNOWN
    )
