"""Stand-ins of one job share a stage, and nothing else; what a program calls its own attributes is up to it."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

from torchmemlint.confirm.worker.standins import Bench, Record, Stage, StandIn, StandInTensor, data  # noqa: E402


@pytest.mark.parametrize("name", ["_name", "_parts", "_klass", "_value", "_called", "_origin", "_part", "_forward", "_guess"])
def test_an_attribute_of_the_program_is_its_own(name: str) -> None:
    thing = StandIn(Stage(), "self")
    setattr(thing, name, 3)
    assert getattr(thing, name) == 3
    assert getattr(StandIn(Stage(), "self"), name).tml_name == f"self.{name}"


def test_a_method_of_the_program_is_its_own() -> None:
    class Net:
        def _forward(self, x: int) -> int:
            return x + 1

    assert StandIn(Stage(), "self", Net)._forward(1) == 2


def test_stages_share_nothing() -> None:
    first, second = Stage(steps=5), Stage()
    for stage in (first, second):
        with Bench(stage, "cpu"):
            model = StandIn(stage, "model", origin="unseen")
            out = model(data(stage)) if stage is first else data(stage)
            assert isinstance(out, StandInTensor)
    assert (len(StandIn(first)), len(StandIn(second))) == (5, 8)
    assert (first.roles, second.roles) == ({"model": "model"}, {})
    assert (first.record.graph_forwards, second.record.graph_forwards) == (1, 0)
    assert first.weight() is not second.weight()


def test_a_run_begins_with_a_record_of_its_own_and_the_parts_of_the_first() -> None:
    stage = Stage()
    with Bench(stage, "cpu"):
        StandIn(stage, "model")(data(stage))
    weight = stage.weight()
    stage.begin(Record())
    assert stage.record.graph_forwards == 0
    assert stage.roles == {"model": "model"}
    assert stage.weight() is not weight


def test_a_copy_of_a_stand_in_stands_on_the_same_stage() -> None:
    stage = Stage()
    thing = StandIn(stage, "model")
    thing.encoder.depth = 3
    for other in (copy.copy(thing), copy.deepcopy(thing)):
        assert other.tml_stage is stage
        assert other.encoder.depth == 3
    assert pickle.loads(pickle.dumps(thing)).encoder.depth == 3
