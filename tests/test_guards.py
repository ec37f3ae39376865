"""A fix that puts a statement below ``no_grad`` leaves each backward something to go through, as it does in every fixture
(``test_rules.py``)."""

from __future__ import annotations

import pytest
from gaps import alarms, guards

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
def test_a_loss_that_trains_is_not_guarded(step: str) -> None:
    found = alarms({"script.py": TRAINS.format(step=step)}, "TML203", "low")
    assert [one for one in found if one.statement.startswith("loss =")] == []


def test_a_teacher_beside_a_student_is_guarded() -> None:
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
    assert [guard.starved for guard in guards({"script.py": text})] == [[]]


def test_the_target_of_a_perceptual_loss_needs_no_graph() -> None:
    """Nothing holds the parameters of the features, and the sharp picture wants no gradient: its forward alone can be guarded."""
    text = TRAINS.format(step="optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()")
    row = 1 + text.splitlines().index("        return nn.functional.mse_loss(self.net(restored), self.net(sharp))")
    assert [one.code for one in alarms({"script.py": text}, "TML2", "medium") if one.span.start.row == row]
