"""A program of several files, run with -m; the meter is imported."""

import torch
from torch import nn

from several_files.meters import AverageMeter


def main():
    net = nn.Linear(6, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    meter, exact = AverageMeter(), AverageMeter()
    for _ in range(30):
        x, y = torch.randn(12, 6), torch.randint(0, 3, (12,))
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        meter.update(loss, len(x))  # flagged: TML103 confirmed nodes per step
    for _ in range(5):
        exact.count += 1
    print("meter", meter.count)


main()
