"""A GAN under autocast; its totals are detached, so nothing is wrong."""

import torch
from torch import nn

generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
critic = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters())
opt_c = torch.optim.Adam(critic.parameters())
scaler = torch.amp.GradScaler("cpu", enabled=False)
total_g = torch.zeros(())
kept = []
for _ in range(20):
    real = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fake = generator(torch.randn(16, 4))
        loss_c = critic(fake.detach()).mean() - critic(real).mean()
    opt_c.zero_grad()
    scaler.scale(loss_c).backward()
    scaler.step(opt_c)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss_g = -critic(fake).mean()
    opt_g.zero_grad()
    scaler.scale(loss_g).backward()
    scaler.step(opt_g)
    scaler.update()
    total_g += loss_g.detach()  # flagged: TML101 refuted
    kept.append(loss_c.item())  # flagged: TML102 refuted
print("total", float(total_g))
