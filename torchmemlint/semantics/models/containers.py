"""Lists, dictionaries, sets and windows."""

from __future__ import annotations

from collections.abc import Callable

from torchmemlint.lower.syntax import INSIDE, receiver_of
from torchmemlint.lower.written import text_of
from torchmemlint.semantics.interpret import (
    FILLS_LISTS,
    STORING,
    adopt,
    copy_contents,
    forget,
    iterate,
    put,
    put_all,
    store_in,
    thing_element,
)
from torchmemlint.semantics.state import (
    ELEMENTS,
    EMPTY,
    KEYS,
    NONE,
    PLAIN,
    UNKNOWN,
    Call,
    Cls,
    Ext,
    Func,
    Kind,
    Machine,
    Obj,
    State,
    StoreKind,
    Tuple,
    Value,
    call_atom,
    const,
    is_zero,
    join,
    join_all,
    only_const,
    shallow,
)

ContainerMethod = Callable[[Machine, int, str, Call, State], Value]


def container_method(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    handler = CONTAINER_METHODS.get(name)
    return handler(m, oid, name, call, state) if handler is not None else UNKNOWN


def holder_text(m: Machine, oid: int, call: Call) -> str:
    return m.heap[oid].name or text_of(receiver_of(call.func))


def add_element(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    """What ``STORING`` has, but for queues."""
    if not call.positional:
        return UNKNOWN
    value = call.positional[-1]
    if STORING[name] is StoreKind.EXTEND:
        value = iterate(m, value, call.node, state)
    store_in(m, oid, holder_text(m, oid, call), STORING[name], value, call.node, call.exprs[-1], state)
    return NONE


def update(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    info = m.heap[oid]
    text = holder_text(m, oid, call)
    if info.kind is Kind.SET:
        for value in call.positional:
            store_in(m, oid, text, StoreKind.EXTEND, iterate(m, value, call.node, state), call.node, INSIDE, state)
        return NONE
    if info.kind is not Kind.DICT:
        return UNKNOWN
    for value in call.positional:
        replaces = info.external
        for atom in value:
            if type(atom) is Obj and m.heap[atom.oid].kind is Kind.DICT:
                copy_contents(atom.oid, oid, state)
                replaces |= value == frozenset((atom,)) and has_names_alone(atom.oid, state)
                value = join_all(m.contents(atom.oid, state))
        store_in(m, oid, text, StoreKind.ITEM, value, call.node, INSIDE, state, keyed=True, constant_key=replaces)
    for word, value in call.keywords.items():
        put(m, oid, const(word), value, state)
        stored = call.keyword_exprs.get(word, INSIDE)
        store_in(m, oid, text, StoreKind.ITEM, value, call.node, stored, state, keyed=True, constant_key=True)
    return NONE


def has_names_alone(oid: int, state: State) -> bool:
    """Whether a dict holds what it holds under constant keys: put into another one again, it takes the same places."""
    return bool(state.vars.get((oid, KEYS))) and not state.vars.get((oid, ELEMENTS))


def set_default(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    if len(call.positional) != 2:
        return UNKNOWN
    index, value = call.positional
    single = only_const(index)
    held = state.vars.get((oid, f"[{single.value!r}]")) if single is not None else None
    if held is not None:
        return held
    put(m, oid, index, value, state)
    adopt(m, oid, value)
    return value


def clear(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    forget(m, oid, state)
    m.record.cleared.add(oid)
    return NONE


def items(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    held = join_all(m.contents(oid, state)) or (thing_element(m, oid, None) if m.heap[oid].external else UNKNOWN)
    result = m.allocate(Kind.GENERATOR, call.node, "items")
    state.vars[result, ELEMENTS] = frozenset((Tuple((PLAIN, held)),))
    return frozenset((Obj(result),))


def copied(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    """``values`` and ``copy``."""
    info = m.heap[oid]
    result = m.allocate(Kind.LIST if name == "values" else info.kind, call.node, info.name)
    copy_contents(oid, result, state)
    if oid in m.element_classes and not m.contents(oid, state):
        state.vars[result, ELEMENTS] = thing_element(m, oid, None)
    return frozenset((Obj(result),))


def take_element(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    """``get``, ``pop``, ``popleft``."""
    if name == "popleft" or (name == "pop" and is_zero(next(iter(call.positional), None))):
        m.record.trimmed.update((oid, loop) for loop in (*m.loops, None))
    key = only_const(call.positional[0]) if call.positional else None
    held = state.vars.get((oid, f"[{key.value!r}]")) if key is not None else None
    if held is None:
        held = join_all(m.contents(oid, state)) or (thing_element(m, oid, key) if oid in m.element_classes else EMPTY)
    if name == "get":
        held = join(held, call.positional[1] if len(call.positional) > 1 else NONE)
    return held or UNKNOWN


def take_item(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    """``popitem``: a key and its value, which the dict no longer holds."""
    if m.heap[oid].kind is not Kind.DICT:
        return UNKNOWN
    m.record.trimmed.update((oid, loop) for loop in (*m.loops, None))
    return frozenset((Tuple((PLAIN, join_all(m.contents(oid, state)) or UNKNOWN)),))


def gives_nothing(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    return NONE


def gives_data(m: Machine, oid: int, name: str, call: Call, state: State) -> Value:
    return PLAIN


CONTAINER_METHODS: dict[str, ContainerMethod] = {
    **dict.fromkeys((*FILLS_LISTS, "add"), add_element),
    "update": update,
    "setdefault": set_default,
    "clear": clear,
    "items": items,
    **dict.fromkeys(("keys", "index", "count"), gives_data),
    **dict.fromkeys(("values", "copy"), copied),
    **dict.fromkeys(("get", "pop", "popleft"), take_element),
    "popitem": take_item,
    **dict.fromkeys(("sort", "reverse", "remove", "discard"), gives_nothing),
}
"""Name of a method → what it does to a container, and gives; UNKNOWN for any other."""


def make_container(m: Machine, kind: Kind, call: Call, state: State) -> Value:
    bounded = kind is Kind.LIST and ("maxlen" in call.keywords or len(call.positional) > 1)
    oid = m.allocate(Kind.WINDOW if bounded else kind, call.node)
    forget(m, oid, state)
    for position, value in enumerate(call.positional):
        if kind is Kind.DICT:
            for atom in value:
                if type(atom) in (Func, Ext, Cls) and position == 0:
                    put(m, oid, UNKNOWN, call_atom(m, atom, call.given([], []), state), state)
                else:
                    put_all(m, oid, atom, call.node, state)
        elif position == 0:
            state.vars[oid, ELEMENTS] = shallow(iterate(m, value, call.node, state))
    for name, value in call.keywords.items():
        if kind is Kind.DICT:
            put(m, oid, const(name), value, state)
    for value in call.more:  # `dict(**given)`
        for atom in value:
            put_all(m, oid, atom, call.node, state)
    return frozenset((Obj(oid),))
