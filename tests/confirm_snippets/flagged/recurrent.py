"""An evaluation that carries its hidden state from step to step without detaching it."""

import torch
from torch import nn

cell = nn.GRUCell(8, 16)
state = torch.zeros(4, 16)
for _ in range(12):
    state = cell(torch.randn(4, 8), state)  # flagged: TML104 confirmed whole graph per step
print(tuple(state.shape))
