"""Python's builtins, beside a few functions of libraries, by what they do to values.

Python's own semantics, so it is code and not a table of torch facts.
"""

from __future__ import annotations

from collections.abc import Callable

from torchmemlint.lower import ir
from torchmemlint.lower.written import text_of
from torchmemlint.semantics.interpret import arithmetic, cut_all, iterate
from torchmemlint.semantics.models.containers import make_container
from torchmemlint.semantics.models.grad_managers import make_manager
from torchmemlint.semantics.state import (
    ELEMENTS,
    EMPTY,
    MODULE,
    NONE,
    PLAIN,
    UNKNOWN,
    Call,
    Const,
    Ext,
    Kind,
    Machine,
    Mode,
    Obj,
    Plain,
    SinkKind,
    State,
    Tuple,
    Value,
    call_atom,
    hints_of,
    join,
    join_all,
    shallow,
    sorted_atoms,
)
from torchmemlint.torch_facts import TORCH
from torchmemlint.torch_facts.words import Effect

Builtin = Callable[[Machine, Call, State], Value]


def container(kind: Kind) -> Builtin:
    return lambda m, call, state: make_container(m, kind, call, state)


def as_tuple(m: Machine, call: Call, state: State) -> Value:
    if call.positional and all(type(a) is Tuple for a in call.positional[0]):
        return call.positional[0]
    return make_container(m, Kind.LIST, call, state)


def generator_of(m: Machine, element: Value, call: Call, state: State, name: str) -> Value:
    oid = m.allocate(Kind.GENERATOR, call.node, name)
    if any(type(a) is Obj and m.goes_over_batches(a.oid) for value in call.positional for a in value):
        m.batches.add(oid)
    state.vars[oid, ELEMENTS] = shallow(element)
    return frozenset((Obj(oid),))


def enumerate_(m: Machine, call: Call, state: State) -> Value:
    inner = iterate(m, call.positional[0], call.node, state) if call.positional else UNKNOWN
    return generator_of(m, frozenset((Tuple((PLAIN, inner)),)), call, state, "enumerate")


def zip_(m: Machine, call: Call, state: State) -> Value:
    if call.more:
        return generator_of(m, join_all(call.more), call, state, "zip")
    items = tuple(iterate(m, v, call.node, state) for v in call.positional)
    return generator_of(m, frozenset((Tuple(items),)), call, state, "zip")


def same_elements(m: Machine, call: Call, state: State) -> Value:
    values = call.positional or list(call.keywords.values())[:1]
    if not values:
        return UNKNOWN
    if all(type(a) is Obj and m.heap[a.oid].kind in (Kind.LOADER, Kind.PARAMS, Kind.GENERATOR) for a in values[0]):
        return values[0]
    return generator_of(m, iterate(m, values[0], call.node, state), call, state, "iterator")


def one_of(m: Machine, call: Call, state: State) -> Value:
    return iterate(m, call.positional[0], call.node, state) if call.positional else UNKNOWN


def range_(m: Machine, call: Call, state: State) -> Value:
    return generator_of(m, PLAIN, call, state, "range")


def next_(m: Machine, call: Call, state: State) -> Value:
    # `next(iter(loader))`, `next(net.parameters())`: the first of them, each time.
    held = call.exprs and not isinstance(call.exprs[0], ir.Call)
    for atom in call.positional[0] if call.positional and held else EMPTY:
        loop = m.outlived_loop(atom.oid) if type(atom) is Obj else None
        if loop is not None:
            m.record.drawing.add(loop)
    return iterate(m, call.positional[0], call.node, state) if call.positional else UNKNOWN


def sum_(m: Machine, call: Call, state: State) -> Value:
    if not call.positional:
        return PLAIN
    element = iterate(m, call.positional[0], call.node, state)
    if all(type(a) in (Plain, Const) for a in element):
        return PLAIN
    start = [element, *call.positional[1:2]]
    return arithmetic(m, start, call.node, state)


def extreme(m: Machine, call: Call, state: State) -> Value:
    """``max``/``min``: one of the arguments, or one of the elements; their comparison needs no graph."""
    out = iterate(m, call.positional[0], call.node, state) if len(call.positional) == 1 else join_all(call.positional)
    m.operation(hints_of(out), text_of(call.func))
    return out


def number(m: Machine, call: Call, state: State) -> Value:
    cut_all(m, call, state, text_of(call.func))
    return PLAIN


def shown(m: Machine, call: Call, state: State) -> Value:
    for value in call.all():
        m.sink(*m.whole(value, state), SinkKind.SHOWN, text_of(call.func), call.node)
    return PLAIN


def gives_plain(m: Machine, call: Call, state: State) -> Value:
    return PLAIN


def abs_(m: Machine, call: Call, state: State) -> Value:
    return arithmetic(m, call.positional[:1], call.node, state)


def map_(m: Machine, call: Call, state: State) -> Value:
    if len(call.positional) < 2:
        return UNKNOWN
    items = [iterate(m, v, call.node, state) for v in call.positional[1:]]
    given = call.given(items, call.exprs[1:])
    out = join_all(call_atom(m, atom, given, state) for atom in sorted_atoms(call.positional[0]))
    return generator_of(m, out or UNKNOWN, call, state, "map")


def filter_(m: Machine, call: Call, state: State) -> Value:
    if len(call.positional) < 2:
        return UNKNOWN
    return generator_of(m, iterate(m, call.positional[1], call.node, state), call, state, "filter")


def partial(m: Machine, call: Call, state: State) -> Value:
    if call.positional and any(
        type(a) is Ext and TORCH.function_effect(a.name) in (Effect.CHECKPOINT, Effect.LOAD) for a in call.positional[0]
    ):
        return UNKNOWN  # what is known of these calls depends on arguments that were bound here
    return call.positional[0] if call.positional else UNKNOWN


def deepcopy(m: Machine, call: Call, state: State) -> Value:
    if not call.positional:
        return UNKNOWN
    out = EMPTY
    for atom in sorted_atoms(call.positional[0]):
        if type(atom) is Obj and m.heap[atom.oid].kind in (Kind.MODULE, Kind.THING):
            info = m.heap[atom.oid]
            copy = m.allocate(info.kind, call.node, text_of(call.func), info.cls, tag=atom.oid)
            out = join(out, frozenset((Obj(copy),)))
        else:
            out = join(out, frozenset((atom,)))
    return out


def null_context(m: Machine, call: Call, state: State) -> Value:
    return make_manager(m, Mode.NONE, call)


def add(m: Machine, call: Call, state: State) -> Value:
    return arithmetic(m, call.positional[:2], call.node, state)


def run_text(m: Machine, call: Call, state: State) -> Value:
    """``exec(open("config.py").read())`` at module level: it may give any variable of the module another value than a constant that stands
    in the file."""
    if m.ref.qualname == MODULE:
        for place, value in [*state.vars.items()]:
            if place[0] == m.frame and all(type(atom) is Const for atom in value):
                state.vars[place] = join(value, UNKNOWN)
    return NONE


BUILTINS: dict[str, Builtin] = {
    "builtins.list": container(Kind.LIST),
    "builtins.dict": container(Kind.DICT),
    "builtins.set": container(Kind.SET),
    "collections.deque": container(Kind.LIST),
    "collections.defaultdict": container(Kind.DICT),
    "collections.OrderedDict": container(Kind.DICT),
    "builtins.tuple": as_tuple,
    "builtins.enumerate": enumerate_,
    "builtins.zip": zip_,
    "itertools.zip_longest": zip_,
    "itertools.product": zip_,
    "builtins.range": range_,
    **dict.fromkeys(sorted(TORCH.words["counts-with-progress"]), range_),
    "builtins.iter": same_elements,
    "builtins.reversed": same_elements,
    "builtins.sorted": same_elements,
    "itertools.cycle": same_elements,
    "itertools.islice": same_elements,
    "itertools.chain": same_elements,
    **dict.fromkeys(sorted(TORCH.words["shows-progress"]), same_elements),
    "random.sample": same_elements,
    "random.choices": same_elements,
    "random.choice": one_of,
    "builtins.next": next_,
    "builtins.sum": sum_,
    "builtins.max": extreme,
    "builtins.min": extreme,
    "builtins.float": number,
    "builtins.int": number,
    "builtins.bool": number,
    "builtins.exec": run_text,
    "builtins.len": gives_plain,
    "builtins.str": shown,
    "builtins.repr": shown,
    "builtins.format": shown,
    "builtins.print": shown,
    "builtins.isinstance": gives_plain,
    "builtins.hasattr": gives_plain,
    "builtins.callable": gives_plain,
    "builtins.type": gives_plain,
    "builtins.id": gives_plain,
    "builtins.abs": abs_,
    "builtins.round": gives_plain,  # a tensor has no `__round__`: what is rounded so is a number
    "builtins.map": map_,
    "builtins.filter": filter_,
    "functools.partial": partial,
    "copy.deepcopy": deepcopy,
    "copy.copy": deepcopy,
    "typing.cast": lambda m, call, state: call.positional[-1] if call.positional else UNKNOWN,
    "contextlib.nullcontext": null_context,
    "contextlib.suppress": null_context,
    "operator.iadd": add,
    "operator.add": add,
}
"""Absolute name → what it does to values. Python's own semantics, so it is code and not a table of torch facts."""
