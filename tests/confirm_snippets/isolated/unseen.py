"""Callees that are not in sight, backwards that need the graph, and graphs that leave the function."""

import torch
from elsewhere import compute, masked, train_with


class Agent:
    def __init__(self, policy, optimizer):
        self.policy, self.optimizer = policy, optimizer

    def ratios(self, batches):
        """`evaluate` is out of sight, but backward() would fail if it gave no graph."""
        info = {"ratio": 0}
        for batch in batches:
            ratio = self.policy.evaluate(batch).exp()
            loss = ratio.mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            info["ratio"] += ratio.mean()  # verdict: TML101 confirmed nodes
        return {"ratio": float(info["ratio"])}


def figures(batches):
    """Of what `compute` gives, the loss hangs on a graph; nobody can tell about the other."""
    total = 0
    for batch in batches:
        loss, figure = compute(batch)
        loss.backward()
        total += figure  # verdict: TML101 inconclusive
    return float(total)


def prepared(model, batches):
    """Data from out of sight goes into a model that is in sight."""
    kept = []
    for batch in batches:
        out = model(masked(batch))
        kept.append(out)  # verdict: TML102 confirmed whole graph
    return [out.detach() for out in kept]


def handed_on(model, batches):
    """`train_with` may run a backward."""
    kept = []
    for batch in batches:
        loss = model(batch).mean()
        train_with(loss)
        kept.append(loss)  # verdict: TML102 inconclusive
    return [float(loss) for loss in kept]


def scaled(model, batches, amp, optimizer):
    """apex: the backward runs on what the with-block gives."""
    kept = []
    for batch in batches:
        loss = model(batch).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        kept.append(loss)  # verdict: TML102 confirmed nodes
    return [float(loss) for loss in kept]


def accelerated(model, batches, accelerator):
    """accelerate: the backward is the accelerator's."""
    kept = []
    for batch in batches:
        loss = model(batch).mean()
        accelerator.backward(loss)
        kept.append(loss)  # verdict: TML102 confirmed nodes
    return [float(loss) for loss in kept]


def summed(model, batches):
    """What is added up is back-propagated: detached it would fail."""
    total = torch.zeros(())
    for batch in batches:
        total = total + model(batch).mean()  # verdict: TML101 refuted
    total.backward()
    return total.item()


def wanted(model, batches):
    """The graph of this forward is used."""
    for batch in batches:
        image = batch
        self = type("Holder", (), {"model": model})()
        out = self.model(image[None])  # verdict: TML201 refuted
        out.mean().backward()
