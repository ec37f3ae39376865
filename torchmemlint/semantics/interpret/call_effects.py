"""Calls that rules hear of by name: ``empty_cache``, ``zero_grad``, the allocator's environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmemlint.lower import ir
from torchmemlint.lower.syntax import gradient_owner, next_words
from torchmemlint.lower.walk import names_inside, nodes_of
from torchmemlint.lower.written import text_of
from torchmemlint.semantics.state import (
    EMPTY,
    MODULE,
    MOVED,
    NOTHING,
    PLACED,
    Call,
    CallEffect,
    EnvironmentSet,
    Ext,
    GradientsFreed,
    GraphKind,
    Kind,
    Machine,
    Obj,
    RecordFlag,
    SinkKind,
    State,
    Value,
    evaluate,
    hints_of,
    is_zero,
    names_device,
    only_const,
    truth,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import CallByName, Effect

NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*")


def bound_to(tests: list[str], body: list[ir.Stmt]) -> Iterator[str]:
    """The texts of what a block binds the names of some tests to; a name that is only one of several results has the call's."""
    names = {name for test in tests for name in NAME.findall(test)}
    for node in nodes_of(body):
        targets = node.targets if isinstance(node, ir.Assign) else [node.target] if isinstance(node, ir.Walrus) else []
        if isinstance(node, (ir.Assign, ir.Walrus)) and names & names_inside(targets) and not isinstance(node.value, ir.Const):
            yield text_of(node.value)


CLEARS = TORCH.names["clears-gradients"]
TO_NONE = TORCH.names["gradients-to-none"]
RESTORES = TORCH.names["restores"]
TO_CUDA = TORCH.names["to-cuda"]
CUDA = TORCH.names["cuda"]
TO_PLACE = TORCH.names["to-place"]
PLACE = TORCH.names["place"]
ZEROES = TORCH.names["zeroes"]
FILLS = TORCH.names["fills"]
ALLOCATOR_VARIABLES = TORCH.words["allocator-variables"]
"""Environment variables that the caching allocator reads: https://docs.pytorch.org/docs/stable/notes/cuda.html."""


def record_call(
    m: Machine,
    effect: Effect | CallByName,
    name: str,
    call: Call,
    state: State | None = None,
    result: int = -1,
    on: frozenset[Kind] = frozenset(),
) -> None:
    """Records a call; with ``state`` also the grad mode and what the arguments are attached to."""
    takes = NOTHING
    if state is not None:
        held = [m.whole(value, state)[0] for value in call.all()]
        known = m.record.ancestors(NOTHING.union(*held)) if held else NOTHING
        modules = {m.record.graphs[g].module for g in known if g in m.record.graphs} - {-1}
        takes = frozenset(modules | {m.loaded[oid] for oid in modules if oid in m.loaded})
    pairs = [(str(i), v) for i, v in enumerate(call.positional)] + sorted(call.keywords.items(), key=lambda p: p[0])
    m.emit(
        CallEffect(
            m.site(call.node),
            effect,
            name,
            tuple(pairs),
            True,
            bool({RecordFlag.FORWARD, RecordFlag.MOVED} & m.record.flags),
            tuple(text for text, loops in m.deleted if loops == tuple(m.loops)),
            next_words(m.following),
            (
                *((str(i), e.node) for i, e in enumerate(call.exprs)),
                *sorted((word, e.node) for word, e in call.keyword_exprs.items()),
            ),
            call.stars if call.more else "",
            state.mode if state is not None else None,
            result,
            takes,
            on,
            gates_of(m) if effect is Effect.EMPTY_CACHE else (),
        ),
        tag=effect,
    )


def gates_of(m: Machine) -> tuple[str, ...]:
    """What the names in the tests around are bound to, again and again (``CallEffect.gates``)."""
    tests = [text for text in m.site(-1).guards if not text.startswith("not ")]
    turn = m.loop_statements.get(m.loops[-1]) if m.loops and m.loops[-1][0] == m.frame else None
    if not tests or (m.loops and turn is None):
        return ()
    return tuple(bound_to(tests, turn.body if turn is not None else m.frame_closure[m.frame].function.body))


def record_by_name(m: Machine, func: ir.Attr, receiver: Value, call: Call, state: State) -> None:
    """Records calls whose method's name says enough: ``load_state_dict``; gradients that are filled with zeros, where the
    receiver is known to have parameters, or to be one's gradient."""
    kinds = {m.heap[a.oid].kind for a in receiver if type(a) is Obj}
    name = func.name
    if name == CLEARS:
        zeroed(m, call.get(0, TO_NONE), call.node)
        if TO_NONE in call.keywords or (kinds & {Kind.OPTIMIZER, Kind.MODULE} and call.positional):
            record_call(m, CallByName.ZERO_GRAD, text_of(func), call)
    elif name == RESTORES:
        if call.all() and not kinds & {Kind.SCHEDULER, Kind.SCALER}:
            record_call(m, CallByName.RESTORE, text_of(func), call, state, on=frozenset(kinds))
    elif name == TO_CUDA:
        m.record.flags.add(RecordFlag.ON_CUDA)
    elif name == TO_PLACE:
        record_place(m, call.get(0, PLACE))
    elif name in (ZEROES, FILLS):
        owner = gradient_owner(func.value)
        if owner is None or (name == FILLS and not is_zero(call.get(0, TORCH.names["fills-with"]))):
            return
        if any(type(a) is Obj and m.heap[a.oid].kind is Kind.PARAMS for a in evaluate(m, owner, state)):
            record_call(m, CallByName.GRADIENT_ZEROED, text_of(owner), call)


def record_place(m: Machine, place: Value | None) -> None:
    """``x.to(place)``"""
    single = only_const(place) if place is not None else None
    if single is not None and str(single.value).startswith(CUDA):
        m.record.flags.add(RecordFlag.ON_CUDA)
    elif place is not None and single is None and not any(type(a) is Ext for a in place):  # no dtype
        m.record.flags.add(RecordFlag.ON_SOME_DEVICE)


def reaches_device(name: str, call: Call) -> bool:
    """Whether ``x.cuda()`` or ``x.to(…)`` puts something on a device."""
    return name == TO_CUDA or names_device(call.get(0, PLACE))


def record_environment(m: Machine, key: Value, value: Value, node: int) -> None:
    """``os.environ[key] = value``, where the key is one of the allocator's."""
    name, held = only_const(key), only_const(value)
    if name is None or not isinstance(name.value, str) or name.value not in ALLOCATOR_VARIABLES:
        return
    text = held.value if held is not None and isinstance(held.value, str) else None
    m.emit(EnvironmentSet(m.site(node), name.value, text, RecordFlag.DEVICE in m.record.flags, torch_loaded(m)))


def torch_loaded(m: Machine) -> bool:
    """Whether torch is imported when the statement at hand runs: above it at module level, or by the module of this
    function (unless the function imports it itself)."""
    function = m.frame_closure[m.frame].function
    if function.name == MODULE:
        return RecordFlag.TORCH in m.record.flags
    imports = m.world.project.imports(m.path)
    names = {local for local, target in imports if target.partition(".")[0] == "torch"}
    return bool(names - function.locals)


def zeroed(m: Machine, to_none: Value | None, node: int) -> None:
    """``zero_grad()``, which sets gradients to None by default, from torch 2.0 on."""
    target = m.world.settings.target_torch
    free = truth(to_none) is not False if to_none is not None else target is None or target >= (2, 0)
    if free:
        gradients_freed(m, node)


def gradients_freed(m: Machine, node: int, owners: Value = EMPTY) -> None:
    """The gradients of parameters, or those of ``owners``, are let go."""
    if RecordFlag.CREATE_GRAPH in m.record.flags:
        things = [m.thing_graph(a.oid) for a in owners if type(a) is Obj and m.heap[a.oid].kind is Kind.THING]
        marks = hints_of(owners).union(*(m.record.graphs[gid].parents for gid in things))
        wanted = frozenset(gid for gid in marks if m.record.graphs[gid].kind is GraphKind.WANTED)
        m.emit(GradientsFreed(m.site(node), wanted))


def note_array(m: Machine, outputs: frozenset[int], flags: int, node: int) -> None:
    """An array is made of a network's output, which was moved nowhere: of a tensor on a GPU that raises, so the network is on the host.
    Not where an exception is handled: it may be that one."""
    if outputs and not flags & (PLACED | MOVED) and not m.handlers:
        site = m.site(node)
        for gid in outputs:
            m.record.arrays.setdefault(gid, set()).add(site)


def cut_all(m: Machine, call: Call, state: State, how: str) -> None:
    for value in call.all():
        m.sink(*m.whole(value, state), SinkKind.CUT, how, call.node)
