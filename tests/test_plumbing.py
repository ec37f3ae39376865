"""Functions that cannot touch a tensor are not followed, and nothing is lost by that."""

from __future__ import annotations

from textwrap import dedent

import pytest

from torchmemlint.api import check_source
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.project import FunctionRef, Project
from torchmemlint.project.settings import Settings
from torchmemlint.semantics.mode.plumbing import plumbing_names
from torchmemlint.semantics.state.world import World

pytestmark = pytest.mark.usefixtures("nothing_around")

TEXT = '''
import json
import os
import timm
import torch
from torch import nn


class Net(nn.Module):
    pass


def settings_of(path):
    """Reads settings."""
    path = os.path.expanduser(path)
    with open(path) as file:
        found = json.load(file)
    for key in list(found):
        found[key.lower()] = found.pop(key)
    return check(found)


def check(found):
    for key, value in found.items():
        if not key:
            raise ValueError(value)
    if len(found) > 3:
        print(found)
    print("checked")
    return dict(map(str, found))


def made(path):
    """Makes a module."""
    found = settings_of(path)
    if not found:
        raise ValueError(path)
    print(found)
    return Net()


def made_outside(path):
    """Makes what may be a module."""
    found = settings_of(path)
    if not found:
        raise ValueError(path)
    print(found)
    return timm.create_model(path)


def runs_what_it_gets(function, path):
    """Runs what may be a module."""
    found = settings_of(path)
    if not found:
        raise ValueError(path)
    print(found)
    return function(found)


def reaches_tensors(path):
    """Calls a function that works on tensors."""
    found = settings_of(path)
    if not found:
        raise ValueError(path)
    print(found)
    return loaded(path)


def loaded(path):
    return torch.load(path)


def collecting(path):
    """Makes a function that may be given tensors."""
    kept = settings_of(path)
    kept["seen"] = []

    def collect(value):
        kept["seen"].append(value)

    return collect
'''


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("settings_of", True),
        ("check", True),
        ("made", False),
        ("made_outside", False),
        ("runs_what_it_gets", False),
        ("reaches_tensors", False),
        ("loaded", False),
        ("collecting", False),
    ],
)
def test_which_functions_cannot_touch_a_tensor(name: str, answer: bool) -> None:
    world = World(Project.build([module_facts("m.py", TEXT)]), Settings(), lambda path: TEXT)
    assert (plumbing_names(world, FunctionRef("m.py", name)) is not None) == answer


HANDED_ON = """
import torch
from torch import nn

class Meter:
    def __init__(self):
        self.held = 0.0
        self.name = "loss"

    def set(self, value):
        self.held = value

    def shown(self, digits):
        found = self.held
        if digits is None:
            digits = 3
        if digits < 0:
            raise ValueError(digits)
        print(self.name)
        return {call}

def through(value):
    found = value
    if found is None:
        raise ValueError(value)
    if not found:
        print("zero")
    print("handed on")
    return found

def train(model: nn.Module, loader, optimizer):
    kept = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        meter = Meter()
        meter.held = loss
        kept.append({given})
    return kept
"""


@pytest.mark.parametrize("given", ["loss", "through(loss)", "meter.shown(3)"])
def test_a_tensor_that_passes_through_is_not_lost(given: str) -> None:
    text = dedent(HANDED_ON).replace("{call}", "found").replace("{given}", given)
    assert [finding.code for finding in check_source(text, "m.py")] == ["TML102"]
