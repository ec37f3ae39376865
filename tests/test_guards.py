"""A fix that puts a statement below ``no_grad`` leaves each backward something to go through."""

from __future__ import annotations

import pytest
from gaps import Case, alarms, cases, forget

from torchmemlint.findings import Fix
from torchmemlint.rules.api import Flow
from torchmemlint.semantics.events import Backward
from torchmemlint.semantics.graphs import Site

CASES = [case for case in cases() if case.name.startswith("TML2")]


def starved(flow: Flow, site: Site) -> list[Backward]:
    """The backwards of a run whose values have no graph any more once the statement at a site makes none."""
    record = flow.record

    def statement(where: Site) -> object:
        own = flow.own_site(where)
        return flow.lowered(own).statement(own.node)[0]

    guarded = statement(site)
    gone = {graph.gid for graph in record.graphs.values() if graph.site.node >= 0 and statement(graph.site) == guarded}
    backwards = [event for event in record.events.values() if isinstance(event, Backward)]
    return [
        event
        for event in backwards
        if (real := {graph.gid for graph in flow.real(event.graphs)}) and (real <= gone or statement(event.site) == guarded)
    ]


def guards_of(texts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[tuple[Fix, list[Backward]]]:
    """Every fix of these files that puts a statement below ``no_grad``, and what it would starve."""
    found: list[tuple[Fix, list[Backward]]] = []
    put_below = Flow.under_no_grad

    def noted(self: Flow, site: Site, message: str, *call: str) -> Fix | None:
        fix = put_below(self, site, message, *call)
        if fix is not None and call != ("set_grad_enabled",):
            found.append((fix, starved(self, site)))
        return fix

    forget()
    monkeypatch.setattr(Flow, "under_no_grad", noted)
    alarms(texts, "TML2", "low")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_guard_starves_a_backward(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [(fix.edits, lost) for fix, lost in guards_of(dict(case.texts), monkeypatch) if lost] == []


TRAINS = """
import torch
from torch import nn
from torchvision.models import vgg16

class Perceptual(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = vgg16(weights="DEFAULT").features[:16].eval()

    def forward(self, restored, sharp):
        return nn.functional.mse_loss(self.net(restored), self.net(sharp))

def train(generator, loader):
    perceptual = Perceptual().cuda()
    optimizer = torch.optim.Adam(generator.parameters())
    for blurred, sharp in loader:
        restored = generator(blurred.cuda())
        loss = perceptual(restored, sharp.cuda())
        {step}
"""


@pytest.mark.parametrize(
    "step",
    [
        "optimizer.zero_grad(); loss.backward(); optimizer.step()",
        "optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()",
        "loss.backward(); optimizer.step(); optimizer.zero_grad()",
        "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(); optimizer.zero_grad()",
    ],
)
def test_a_loss_that_trains_is_not_guarded(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = alarms({"script.py": TRAINS.format(step=step)}, "TML203", "low")
    assert [one for one in found if one.statement.startswith("loss =")] == []


def test_a_teacher_beside_a_student_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import torch
from torch import nn

def distill(student: nn.Module, teacher: nn.Module, loader):
    optimizer = torch.optim.Adam(student.parameters())
    for x in loader:
        soft = teacher(x)
        loss = nn.functional.mse_loss(student(x), soft.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    assert [lost for _, lost in guards_of({"script.py": text}, monkeypatch)] == [[]]


def test_the_target_of_a_perceptual_loss_needs_no_graph() -> None:
    """Nothing holds the parameters of the features, and the sharp picture wants no gradient: its forward alone can be guarded."""
    text = TRAINS.format(step="optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()")
    row = 1 + text.splitlines().index("        return nn.functional.mse_loss(self.net(restored), self.net(sharp))")
    assert [one.code for one in alarms({"script.py": text}, "TML2", "medium") if one.span.start.row == row]
