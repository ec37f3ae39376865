"""Sites that need copied or peak bytes, and no model: checkpoints, sums of losses, contexts, grad mode that stays on."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def resume(model, optimizer, path, loader):
    model.cuda()
    state = torch.load(path)  # verdict: TML506 confirmed second copy of the weights
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    for x in loader:
        model(x).sum().backward()


def resumed_on_the_host(model, path):
    state = torch.load(path, map_location="cpu")  # verdict: TML506 inconclusive
    model.load_state_dict(state["model"])


def summed(model, batch, labels, optimizer, parts=4):
    optimizer.zero_grad()
    total = 0.0
    for x, y in zip(batch.chunk(parts), labels.chunk(parts)):
        total = total + F.cross_entropy(model(x), y) / parts  # verdict: TML507 confirmed graph of each part at peak
    total.backward()
    optimizer.step()


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.result = result  # verdict: TML107 confirmed until the cyclic collector runs
        return result

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.result


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale=2.0):
        ctx.scale = torch.tensor(scale)  # verdict: TML107 inconclusive
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


def accuracy(model, inputs, labels):
    model.eval()
    torch.no_grad()  # verdict: TML202 confirmed graph
    return (model(inputs).argmax(1) == labels).float().mean()


class Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(args.p)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = self.drop(F.relu(self.norm(self.conv(x))))
        return self.fc(x.mean((2, 3)))


def of_a_shape_that_the_first_layer_tells(args, loader):
    model = Net(args)
    torch.optim.SGD(model.parameters(), lr=args.lr)
    torch.cuda.synchronize()
    total = 0
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        total += loss  # verdict: TML101 confirmed whole graph per step
    print(float(total))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    of_a_shape_that_the_first_layer_tells(args, None)
    resume(None, None, "", None)
    resumed_on_the_host(None, "")
    summed(None, None, None, None)
    accuracy(None, None, None)
