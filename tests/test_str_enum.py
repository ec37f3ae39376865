"""Words that are enums behave as the plain strings do: as keys, in order, in text and in JSON."""

from __future__ import annotations

import json
import pickle

from torchmemlint.semantics.state.flow_state import Kind
from torchmemlint.semantics.state.values import Flag
from torchmemlint.torch_facts.words import ClassKind, Effect


def test_members_are_the_same_keys_as_strings() -> None:
    keyed: dict[str, int] = {Kind.LIST: 1}
    assert keyed["list"] == 1
    assert "list" in {Kind.LIST}
    assert hash(Kind.MODULE) == hash("module")
    assert {Effect.CUT, "cut"} == {"cut"}


def test_members_look_like_strings() -> None:
    assert f"{Kind.THING} {Kind.THING:>6}" == "thing  thing"
    assert str(Effect.MIXED_MAX) == "mixed-max"
    assert json.dumps({Kind.DICT: ClassKind.LOSS}) == '{"dict": "loss"}'
    assert sorted([Kind.THING, Kind.DICT]) == ["dict", "thing"]


def test_members_stay_the_same_objects() -> None:
    assert pickle.loads(pickle.dumps(Kind.SELF)) is Kind.SELF
    assert Kind("self") is Kind.SELF


def test_each_flag_is_a_bit_of_its_own() -> None:
    assert sum(Flag) == 2 ** len(Flag) - 1
