"""A plain training loop; the losses are kept with their graphs."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
batches = [(torch.randn(32, 16), torch.randint(0, 4, (32,))) for _ in range(10)]
losses = []
for epoch in range(3):
    for x, y in batches:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss)  # flagged: TML102 confirmed nodes per step
print(f"last loss {float(losses[-1].detach()):.3f}")
