"""Which functions are run only because of their name: those in which a model may build a graph, and no others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from torchmemlint.analysis import WITHOUT_GRAPH
from torchmemlint.findings import Finding
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import FunctionRef, Project
from torchmemlint.project.settings import Settings
from torchmemlint.semantics.mode import root_choice
from torchmemlint.semantics.state.world import World

TEXT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

shared = nn.Linear(2, 2)

def helper(x):
    return x + 1

def train(loss):
    loss.backward()

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 2)

    def encode(self, x):
        return helper(x)

    def get_own_method(self, x):
        return self.encode(x)

    def get_held(self, x):
        return self.net(x)

    def get_self(self, x):
        return self(x)

def get_function(x):
    return helper(F.relu(torch.stack(x)))

def get_class():
    return Model()

def get_parameter(model, x):
    return model(x)

def get_of_item(models, x):
    return models[0](x)

def get_made(x):
    return Model()(x)

def get_global(x):
    return shared(x)

def get_method(model, x):
    return model.predict(x)

def get_other_method(model, x):
    return model.parameters(), x.reshape(2)

def get_attribute(model, x):
    return model.net(x)

def get_mapped(model, xs):
    return list(map(model, xs))

def get_checkpointed(x):
    return checkpoint(shared, x)

def get_inner(x):
    def inner(f):
        return f(x)
    return inner

@torch.no_grad()
def get_decorated(model, x):
    return model(x)

def get_trained(loss):
    return fit(loss)

def fit(loss):
    for _ in range(3):
        train(loss)
"""


@pytest.fixture(scope="module")
def world() -> World:
    return World(Project.build([module_facts("m.py", TEXT)]), Settings(), lambda path: TEXT)


YES = {
    *(
        "get_parameter",
        "get_of_item",
        "get_made",
        "get_global",
        "get_method",
        "get_attribute",
        "get_mapped",
        "get_checkpointed",
    ),
    *("get_inner", "Model.get_held", "Model.get_self"),
}


@pytest.mark.parametrize("name", [f.name for f in ast.parse(TEXT).body if isinstance(f, ast.FunctionDef) and "get" in f.name])
def test_a_function_is_run_where_it_may_run_a_model(world: World, name: str) -> None:
    assert root_choice.may_build_graphs(world, FunctionRef("m.py", name)) == (name in YES)


@pytest.mark.parametrize("name", ["get_own_method", "get_held", "get_self"])
def test_a_method_is_run_where_it_may_run_a_model(world: World, name: str) -> None:
    assert root_choice.may_build_graphs(world, FunctionRef("m.py", f"Model.{name}")) == (f"Model.{name}" in YES)


GUARDED = """
import torch

@torch.no_grad()
def off(model, x):
    return model(x)

@torch.no_grad
def bare(model, x):
    return model(x)

@torch.no_grad()
async def late(model, x):
    return model(x)

@torch.no_grad()
def again(model, x):
    with torch.enable_grad():
        return model(x)

@torch.no_grad()
def inside(model, x):
    @torch.no_grad()
    def inner(): return model(x)
    return inner

def plain(model, x):
    return model(x)
"""


@pytest.mark.parametrize(
    ("name", "off"), [("off", True), ("bare", False), ("late", False), ("again", False), ("inside", False), ("plain", False)]
)
def test_under_an_effective_decorator_nothing_else_says_grad_mode(name: str, off: bool) -> None:
    world = World(Project.build([module_facts("m.py", GUARDED)]), Settings(), lambda path: GUARDED)
    assert root_choice.is_off_by_decorator(world, FunctionRef("m.py", name), WITHOUT_GRAPH) == off


def test_an_error_recognized_by_its_message_is_found_under_a_decorator(tmp_path: Path) -> None:
    text = (
        "import torch\n\n@torch.no_grad()\ndef assign(model, x):\n    try:\n        return model(x)\n"
        "    except RuntimeError as error:\n        if 'CUDA out of memory' not in str(error):\n            raise\n        return None\n\n"
        "DEVICE = torch.backends.mps.is_available()\n"
    )
    assert "TML304" in [one.code for one in found(tmp_path, text)]


COLLECTS = """
class Plain:
    def extract(self, loader):
        return [self.net(x) for x in loader]

class OnDevice:
    def __init__(self, net):
        self.net = net.cuda()
    def extract(self, loader):
        return [self.net(x) for x in loader]
    def extract_once(self, x):
        return self.net(x)
    def forward(self, xs):
        return [self.net(x) for x in xs]
    def train_epoch(self, loader):
        return [self.net(x) for x in loader]
"""


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("Plain.extract", False),
        ("OnDevice.extract", True),
        ("OnDevice.extract_once", False),
        ("OnDevice.forward", False),
        ("OnDevice.train_epoch", False),
    ],
)
def test_a_data_set_is_collected_on_a_device_in_a_loop_of_no_training_step(name: str, may: bool) -> None:
    world = World(Project.build([module_facts("m.py", COLLECTS)]), Settings(), lambda path: COLLECTS)
    assert root_choice.may_collect_on_device(world, FunctionRef("m.py", name)) == may


def test_tests_are_not_run_for_their_names(world: World) -> None:
    project = Project.build([module_facts("tests/m.py", TEXT)])
    inside = World(project, Settings(), lambda path: TEXT)
    assert not root_choice.may_build_graphs(inside, FunctionRef("tests/m.py", "get_parameter"))


def test_a_backward_is_seen_over_calls(world: World) -> None:
    assert root_choice.reaches(world, FunctionRef("m.py", "get_trained"), root_choice.BACKWARD)
    assert not root_choice.reaches(world, FunctionRef("m.py", "get_trained"), root_choice.BACKWARD, 1)
    assert not root_choice.reaches(world, FunctionRef("m.py", "get_parameter"), root_choice.BACKWARD)


def found(tmp_path: Path, text: str) -> list[Finding]:
    from torchmemlint import check_paths

    (tmp_path / "m.py").write_text(text)
    return check_paths([tmp_path / "m.py"], isolated=True)


def test_a_step_in_a_function_that_is_called_still_counts(tmp_path: Path) -> None:
    """A name that suggests use, no word of a backward in the function itself: the total is found all the same."""
    text = """
import torch

def step(model, batch, optimizer):
    optimizer.zero_grad()
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    return loss

def get_best(model, loader, optimizer):
    total = 0
    for batch in loader:
        total += step(model, batch, optimizer)
    return float(total)
"""
    assert [f.code for f in found(tmp_path, text)] == ["TML101"]


WASTES = """
import parts
import torch
from torch import nn
from torchvision import models

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
    def forward(self, x):
        return self.layer(x)
    def features(self, x):
        return self.layer(x)
    @classmethod
    def of(cls, x):
        return cls()

def build_model(args):
    return args.kind

def of_class(x):
    net = Net()
    return net(x)

def of_method(x):
    net = Net()
    return net.features(x)

def drops_what_a_method_gives(x):
    net = Net()
    net.features(x)

def by_name(model, x):
    return model(x)

def of_method_by_name(model, x):
    return model.embed(x)

def only_asks_it_for_something(model, path):
    model.store_at(path)

def made_outside(x):
    vgg = models.vgg16()
    return vgg(x)

def of_a_class_outside(x):
    net = parts.Mixer(2)
    return net(x)

def of_known_methods(thing, x):
    return thing.features(x)

def of_a_function_named_for_it(args):
    return build_model(args)

def makes_a_layer(x):
    return nn.Linear(x, x)

def makes_an_object(x):
    return Net()

def calls_the_class(x):
    return Net.of(x)

def over_a_call(x):
    return of_class(x)
"""


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("of_class", True),
        ("of_method", True),
        ("drops_what_a_method_gives", False),
        ("by_name", True),
        ("of_method_by_name", True),
        ("only_asks_it_for_something", False),
        ("made_outside", True),
        ("of_a_class_outside", True),
        ("of_known_methods", True),
        ("of_a_function_named_for_it", False),
        ("makes_a_layer", False),
        ("makes_an_object", False),
        ("calls_the_class", False),
    ],
)
def test_a_network_is_run_by_a_call_of_it_or_by_a_method_whose_result_is_used(name: str, may: bool) -> None:
    world = World(Project.build([module_facts("m.py", WASTES)]), Settings(), lambda path: WASTES)
    assert root_choice.may_waste_graphs(world, FunctionRef("m.py", name)) == may


def test_what_a_function_runs_is_cut_by_its_callers() -> None:
    text = f"{WASTES}\ndef asks(xs):\n    return [over_a_call(x).item() for x in xs]\n"
    world = World(Project.build([module_facts("m.py", text)]), Settings(), lambda path: text)
    assert root_choice.may_waste_graphs(world, FunctionRef("m.py", "over_a_call"))
    assert root_choice.may_waste_graphs(world, FunctionRef("m.py", "asks"))


@pytest.mark.parametrize(
    ("added", "alone"),
    [
        ("", True),
        ("with torch.no_grad():\n    print(plain)\n", False),
        ("@torch.no_grad\ndef uncalled(x):\n    return x\n", False),
        ("class Holder:\n    guard = torch.no_grad()\n", False),
    ],
)
def test_words_in_decorators_alone_are_no_matter_of_a_files_own_statements(added: str, alone: bool) -> None:
    text = (
        "import torch\n\n@torch.no_grad()\ndef plain(model, x):\n    with torch.no_grad():\n        return model(x)\n\n" + added
    )
    world = World(Project.build([module_facts("m.py", text)]), Settings(), lambda path: text)
    assert root_choice.stands_above_functions(world, "m.py", frozenset({"no_grad"})) == alone
