"""Checkpoints that are loaded onto the device: what is told is whether their weights are held when the model runs."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--resume", default=None)
parser.add_argument("--batch-size", type=int, default=32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3)
        self.last = nn.Linear(1500, 1500)

    def forward(self, x):
        return self.last(self.first(x).mean((2, 3)).repeat(1, 24)[:, :1500])


def held(loader, path, lr=0.1):
    model = Net().cuda()
    checkpoint = torch.load(path)  # verdict: TML506 confirmed second copy of the weights
    model.load_state_dict(checkpoint["state_dict"])
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()


def dropped(loader, path):
    model = Net().cuda()
    checkpoint = torch.load(path)  # verdict: TML506 inconclusive
    model.load_state_dict(checkpoint["state_dict"])
    del checkpoint
    for x in loader:
        model(x).sum().backward()


def only_a_part(net, loader, path):
    net.cuda()
    weights = torch.load(path)["model"]  # verdict: TML506 confirmed second copy of the weights
    net.load_state_dict(weights)
    with torch.no_grad():
        for x in loader:
            print(net(x))


def only_a_number(net, loader, path):
    net.cuda()
    checkpoint = torch.load(path)  # verdict: TML506 inconclusive
    net.load_state_dict(checkpoint["model"])
    first = checkpoint["epoch"] + 1
    best = checkpoint.get("best", 0.0)
    del checkpoint
    for epoch in range(first, 10):
        for x in loader:
            best = max(best, net(x).mean().item())


def taken_out(net, loader, path):
    checkpoint = torch.load(path)  # verdict: TML506 inconclusive
    net.load_state_dict(checkpoint.pop("model"))
    for x in loader:
        net(x)


def renamed(net, loader, path):
    state = torch.load(path)  # verdict: TML506 confirmed second copy of the weights
    net.load_state_dict({key.replace("module.", ""): value for key, value in state.items()})
    for x in loader:
        net(x)


def of_a_flag(loader):
    args = parser.parse_args()
    net = Net().to("cuda")
    if args.resume is not None:
        state = torch.load(args.resume)  # verdict: TML506 confirmed second copy of the weights
        net.load_state_dict(state["model"])
    for epoch in range(3):
        for x in torch.utils.data.DataLoader(loader, batch_size=args.batch_size):
            net(x)


def restore(net, path):
    state = torch.load(path)  # verdict: TML506 confirmed until they are dropped
    net.load_state_dict(state["model"])
    return state["epoch"]


class Trainer:
    def __init__(self, model, path):
        self.model = model
        self.path = path
        self.checkpoint = None

    def restore(self):
        self.checkpoint = torch.load(self.path)  # verdict: TML506 confirmed second copy of the weights
        self.model.load_state_dict(self.checkpoint["net"])
        self.model.eval()
        for x in self.loader:
            self.model(x)


if __name__ == "__main__":
    args = parser.parse_args()
    net = Net().cuda()
    state = torch.load(args.resume)  # verdict: TML506 confirmed second copy of the weights
    net.load_state_dict(state)
    for step in range(5):
        net(torch.rand(2, 3, 32, 32).cuda())
