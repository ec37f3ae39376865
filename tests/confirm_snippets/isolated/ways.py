"""Lines that options, later steps, other methods and subclasses lead to."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

KNOWN = ["first", "second"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x):
        return self.layer(x).tanh()


def freeze(network):
    for parameter in network.parameters():
        parameter.requires_grad = False
    return network


def with_an_option(model, images, flip=False):
    kept = []
    for image in images:
        if flip:
            image = image.flip(0)
            kept.append(model(image))  # verdict: TML102 confirmed whole graph per step
    return torch.cat(kept).argmax(1)


def in_later_steps(model, loader, epochs=10):
    kept = []
    for epoch in range(epochs):
        for x in loader:
            if epoch > 5:
                kept.append(model(x))  # verdict: TML102 confirmed whole graph per step
    print(len(kept))


def checked_first(model, loader, names):
    for name in names.split(","):
        if name not in KNOWN:
            raise ValueError(f"unknown: {name}")
    kept = []
    for x in loader:
        kept.append(model(x))  # verdict: TML102 confirmed whole graph per step
    print(len(kept))


def never(model, loader):
    kept = []
    debug = False
    for x in loader:
        if debug:
            kept.append(model(x))  # verdict: TML102 inconclusive
    print(len(kept))


def where_there_is_a_gpu(model, loader):
    kept = []
    for x in loader:
        if torch.cuda.is_available():
            moved = x.cuda()
        kept.append(model(moved))  # verdict: TML102 confirmed whole graph per step
    print(len(kept))


def one_epoch(model, loader, optimizer, validation=False):
    total = 0.0
    for x in loader:
        loss = model(x).square().mean()  # verdict: TML201 confirmed
        if not validation:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total


def now_and_then(model, loader, optimizer):
    summed = 0
    for i, x in enumerate(loader):
        summed = summed + model(x).square().mean()  # verdict: TML201 refuted
        if (i + 1) % 4 == 0:
            optimizer.zero_grad()
            summed.backward()
            optimizer.step()
            summed = 0


class Learner:
    def __init__(self):
        self.net = Net()
        self.old = None
        self.still = None
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def end_of_task(self):
        self.old = copy.deepcopy(self.net)

    def distil(self, loader):
        for x in loader:
            logits = self.net(x)
            loss = F.mse_loss(logits, torch.zeros_like(logits))
            if self.old is not None:
                wanted = self.old(x)  # verdict: TML203 confirmed
                loss = loss + F.mse_loss(logits, wanted.detach())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


class Frozen:
    def __init__(self):
        self.net = Net()
        self.old = None
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def end_of_task(self):
        self.old = freeze(copy.deepcopy(self.net))

    def distil(self, loader):
        for x in loader:
            logits = self.net(x)
            loss = F.mse_loss(logits, torch.zeros_like(logits))
            if self.old is not None:
                wanted = self.old(x)  # verdict: TML203 refuted
                loss = loss + F.mse_loss(logits, wanted.detach())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


class Task:
    def loss_of(self, x):
        """What subclasses compute."""
        raise NotImplementedError

    def evaluate(self, loader):
        total = 0.0
        for x in loader:
            total += self.loss_of(x)  # verdict: TML101 inconclusive
        return total / len(loader)


class Module(nn.Module):
    def scores(self, loader):
        kept = []
        for x in loader:
            kept.append(self(x))  # verdict: TML102 confirmed whole graph per step
        return torch.cat(kept).argmax(1)


network = Net().cuda()
shown = torch.rand(4, 32).cuda()
torch.no_grad()  # verdict: TML202 confirmed extra graph
scores = network(shown)
print(scores.argmax(1))
