"""What findings tell beside their place: how bad it is, and the steps that lead to it."""

from __future__ import annotations

from pathlib import Path

from torchmemlint import Finding, check_source

FIXTURES = Path(__file__).parent.parent / "fixtures"

NESTED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.layers[0](x) + 1


def train(loader, optimizer):
    net = Net()
    criterion = nn.MSELoss()
    history = []
    for x, y in loader:
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss)
    return [float(value) for value in history]
"""


def found(text: str, code: str) -> list[Finding]:
    return [finding for finding in check_source(text, "told.py", isolated=True) if finding.code == code]


def test_graphs_that_a_callers_list_keeps_are_an_error() -> None:
    text = (FIXTURES / "TML201" / "kept_by_the_caller.py").read_text(encoding="utf-8")
    kept, dropped = found(text, "TML201")
    assert kept.severity.value == "error"
    assert [step.message for step in kept.flow] == ["kept with its graph in `outputs`"]
    row = kept.flow[0].span.start.row
    assert "outputs.append" in text.splitlines()[row - 1]
    assert (dropped.severity.value, dropped.flow) == ("warning", ())


def test_a_step_names_the_call_that_the_function_makes_not_one_inside_the_module() -> None:
    (finding,) = found(NESTED, "TML102")
    (step,) = finding.flow
    assert step.message.startswith("`net(…)` runs here")
    assert NESTED.splitlines()[step.span.start.row - 1].strip() == "loss = criterion(net(x), y)"
