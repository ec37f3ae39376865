"""Sites where what ran does not settle it."""

import torch
from somewhere import Base, helper, maybe_no_grad


class Agent:
    def __init__(self, policy):
        self.policy = policy
        self.log_probs = []

    def act(self, states):
        for state in states:
            self.log_probs.append(self.policy(state))  # verdict: TML102 inconclusive

    def learn(self):
        loss = -torch.stack(self.log_probs).sum()
        loss.backward()
        self.log_probs = []


@maybe_no_grad
def decorated(model, loader):
    kept = []
    for x in loader:
        kept.append(model(x))  # verdict: TML102 inconclusive
    return kept


def context(model, loader):
    kept = []
    for x in loader:
        with helper.inference_context():
            kept.append(model(x))  # verdict: TML102 inconclusive
    return kept


def absorbed(loader):
    kept = []
    for x in loader:
        kept.append(helper.compute_loss(x))  # verdict: TML102 inconclusive
    return kept


def parameter(values, into):
    for value in values:
        into.append(value)  # verdict: TML102 inconclusive


def frozen(model, loader):
    for p in model.parameters():
        p.requires_grad_(False)
    kept = []
    for x in loader:
        kept.append(model(x))  # verdict: TML102 inconclusive
    return kept


def called_under_no_grad(model, loader):
    kept = []
    for x in loader:
        kept.append(model(x))  # verdict: TML102 refuted
    return kept


def crashes(model):
    raise RuntimeError("nothing here runs")
    kept = []
    for x in missing_loader:
        kept.append(model(x))


def main(model, loader):
    agent = Agent(model)
    agent.act(loader)
    agent.learn()
    decorated(model, loader)
    context(model, loader)
    absorbed(loader)
    parameter([], [])
    frozen(model, loader)
    with torch.no_grad():
        called_under_no_grad(model, loader)


main(None, [])
