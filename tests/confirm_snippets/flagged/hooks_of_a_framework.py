"""Steps called by a small framework, which back-propagates what a training step returns."""

import torch
from torch import nn


class Loop:
    def run(self, module, steps):
        module.on_start()
        opt = module.configure_optimizers()
        for step in range(steps):
            loss = module.training_step((torch.randn(8, 4), torch.randn(8, 1)), step)
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                module.validation_step((torch.randn(8, 4), torch.randn(8, 1)), step)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        self.history = {"train": 0.0, "val": []}

    def on_start(self):
        self.history["train"] = 0.0

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.body(x), y)
        self.history["train"] += loss  # flagged: TML101 confirmed nodes per step
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        out = self.body(x)  # flagged: TML201 refuted
        self.history["val"].append(nn.functional.mse_loss(out, y))  # flagged: TML102 refuted


Loop().run(Regressor(), 15)
print("done")
