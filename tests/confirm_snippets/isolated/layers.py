"""What a graph saves of a module's own storages is there without the graph: growth is counted in graphs of what each step adds."""

import torch
from torch import nn


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3)
        self.norm = nn.BatchNorm2d(64)
        self.second = nn.Conv2d(64, 512, 3)
        self.norm2 = nn.BatchNorm2d(512)

    def forward(self, x):
        return self.norm2(self.second(self.norm(self.first(x)))).mean((2, 3))


def evaluated(loader):
    model = Features()
    model.eval()
    outputs = []
    for x in loader:
        outputs.append(model(x))  # verdict: TML102 confirmed whole graph per step
    return outputs


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
        self.register_buffer("scale", torch.ones(256, 4))

    def forward(self, x):
        return self.body(x) @ self.scale.t()


def distances(loader):
    model = Teacher()
    kept = []
    for x in loader:
        kept.append(model(x))  # verdict: TML102 confirmed whole graph per step
    return kept
