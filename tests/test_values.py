"""Joining values: the laws that a fixpoint over loops rests on, on any values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchmemlint.semantics.state.flow_state import Meter, Mode, State, join_states
from torchmemlint.semantics.state.snapshots import Snapshots
from torchmemlint.semantics.state.values import (
    BATCH,
    DETACHED,
    EMPTY,
    INTEGER,
    MAX_ATOMS,
    PLAIN,
    SCALAR,
    UNKNOWN,
    VIEW,
    Cls,
    Const,
    Ext,
    Func,
    Method,
    Obj,
    Plain,
    Tensor,
    Tuple,
    Unknown,
    Value,
    detached,
    graphs_of,
    hints_of,
    join,
    join_all,
    normal,
    outputs_of,
    shallow,
    truth,
    union,
)

numbers = st.frozensets(st.integers(1, 4), max_size=2)
flags = st.sets(st.sampled_from((SCALAR, VIEW, INTEGER, BATCH, DETACHED))).map(sum)
consts = st.sampled_from([0, 1, 1.0, "a", True, None]).map(lambda value: Const(value, type(value).__name__))
simple = st.one_of(
    st.builds(Tensor, numbers, numbers, numbers, flags),
    st.builds(Unknown, numbers),
    consts,
    st.just(Plain()),
    st.sampled_from((Obj(1), Obj(2), Func(0), Ext("torch.relu"))),
)
"""So few kinds that no join of them reaches the widening: there the laws hold to the letter."""


def valued(atoms: st.SearchStrategy) -> st.SearchStrategy[Value]:
    return st.lists(atoms, max_size=4).map(normal)


def tuples(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Tuple]:
    return st.lists(inner, min_size=1, max_size=2).map(lambda items: Tuple(tuple(items)))


values: st.SearchStrategy[Value] = valued(st.one_of(simple, tuples(valued(st.one_of(simple, tuples(valued(simple)))))))
many: st.SearchStrategy[Value] = st.lists(
    st.one_of(
        simple,
        st.builds(Obj, st.integers(3, 20)),
        st.integers(2, 20).map(lambda value: Const(value, "int")),
        st.builds(Method, valued(simple), st.just("append")),
        st.builds(Cls, st.just("a.py"), st.sampled_from("AB")),
        st.integers(0, 9).map(lambda size: Tuple((EMPTY,) * size)),
    ),
    max_size=25,
).map(normal)
"""Values of many kinds, where joining must forget."""


@given(values, values)
def test_join_is_commutative(a: Value, b: Value) -> None:
    assert join(a, b) == join(b, a)


@given(values)
def test_join_is_idempotent_and_empty_is_neutral(a: Value) -> None:
    assert join(a, a) == a
    assert join(a, EMPTY) == join(EMPTY, a) == a


@given(values, values)
def test_a_joined_value_takes_in_nothing_new_from_its_parts(a: Value, b: Value) -> None:
    both = join(a, b)
    assert join(both, a) == join(both, b) == both


@given(values, values, values)
def test_join_is_associative(a: Value, b: Value, c: Value) -> None:
    assert join(join(a, b), c) == join(a, join(b, c))


@given(values, values)
def test_join_forgets_no_graph(a: Value, b: Value) -> None:
    both = join(a, b)
    assert hints_of(a) | hints_of(b) <= hints_of(both)
    assert graphs_of(both) <= graphs_of(a) | graphs_of(b)


@given(st.lists(many, max_size=6))
def test_a_value_stays_small(parts: list[Value]) -> None:
    joined = join_all(parts)
    kinds = [type(atom) for atom in joined]
    assert all(kinds.count(kind) <= 1 for kind in (Tensor, Unknown, Plain))
    assert len(joined) <= 2 * MAX_ATOMS + 4


@given(many, many)
def test_what_is_forgotten_leaves_its_graphs(a: Value, b: Value) -> None:
    both = join(a, b)
    assert both == join(b, a)
    assert hints_of(a) | hints_of(b) <= hints_of(both)


@given(values, values, values)
def test_growing_a_value_ends(start: Value, one: Value, other: Value) -> None:
    """What a loop does: it joins what it computed, wrapped in a tuple, until nothing changes."""
    value = start
    for _ in range(20):
        grown = shallow(join(value, frozenset((Tuple((join(value, one), other)),))))
        if grown == value:
            return
        value = grown
    raise AssertionError("still growing")


@given(values)
def test_cutting_leaves_no_graph(value: Value) -> None:
    cut = detached(value)
    assert not hints_of(cut)
    assert outputs_of(cut) == outputs_of(value)
    assert detached(cut) == cut


@given(values, values)
def test_truth_of_a_join_is_that_of_both_or_none(a: Value, b: Value) -> None:
    if a and b:
        assert truth(join(a, b)) in (None, truth(a))
        assert truth(join(a, b)) in (None, truth(b))


states = st.builds(
    State,
    st.dictionaries(st.tuples(st.integers(0, 2), st.sampled_from("xy")), values),
    st.sampled_from(("on", "off", "unknown")),
    st.builds(Meter),
)


@pytest.mark.slow
@given(states, states)
def test_states_join_both_ways_alike(a: State, b: State) -> None:
    one, two = join_states(a, b), join_states(b, a)
    assert one is not None
    assert two is not None
    assert (one.vars, one.mode) == (two.vars, two.mode)
    again = join_states(one, a)
    assert again is not None
    assert (again.vars, again.mode) == (one.vars, one.mode)


def test_a_union_is_the_largest_set_where_that_has_all() -> None:
    large = frozenset({1, 2, 3})
    assert union([frozenset({1}), large, frozenset({2, 3})]) is large
    assert union([frozenset({1, 2}), frozenset({2, 3})]) == large
    assert union([frozenset()]) == frozenset()


def test_snapshots_hold_what_was_there_in_any_order() -> None:
    meter = Meter()
    snapshots = Snapshots()
    states = [
        {(0, "a"): PLAIN},
        {(0, "a"): PLAIN, (0, "b"): UNKNOWN},
        {(0, "b"): PLAIN},
        {(0, "b"): PLAIN, (0, "a"): UNKNOWN},
        {},
    ]
    kept = [snapshots.keep(State(dict(places), Mode.ON, meter)) for places in states]
    for number in (0, 1, 2, 3, 4, 1, 4, 0, 3, 2):
        assert snapshots.places(kept[number]) == states[number]
        assert kept[number].places == len(states[number])
