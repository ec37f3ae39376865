"""A trainer class whose evaluation runs with grad mode on and keeps its outputs."""

import argparse

import torch
from torch import nn


class Trainer:
    def __init__(self, width):
        self.model = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 2))
        self.opt = torch.optim.Adam(self.model.parameters())
        self.outputs = []

    def fit(self, batches):
        for x, y in batches:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()

    def evaluate(self, batches):
        self.model.eval()
        self.outputs = []
        for x, _ in batches:
            out = self.model(x)  # flagged: TML201 confirmed a graph at each call
            self.outputs.append(out)  # flagged: TML102 confirmed whole graph per step
        return torch.cat(self.outputs).argmax(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    batches = [(torch.randn(16, 8), torch.randint(0, 2, (16,))) for _ in range(8)]
    trainer = Trainer(args.width)
    for _ in range(args.epochs):
        trainer.fit(batches)
        trainer.evaluate(batches)
    print("width", args.width)


if __name__ == "__main__":
    main()
