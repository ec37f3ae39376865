"""Callees that are not visible, backwards that need the graph, and graphs that leave the function."""

import torch
from elsewhere import compute, masked, train_with


class Agent:
    def __init__(self, policy, optimizer):
        self.policy, self.optimizer = policy, optimizer

    def ratios(self, batches):
        """`evaluate` is not visible, but backward() would fail if it gave no graph."""
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
    """Data from code that is not visible goes into a model that is."""
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


def an_epoch(model, loader, criterion, optimizer):
    """One loop for both phases; the linter reports the one without a backward, and so does the experiment."""
    losses = []
    for x, y in loader:
        out = model(x)  # verdict: TML201 confirmed extra graph at peak
        loss = criterion(out, y)
        if model.training:
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses


def trained(model, loader, criterion, optimizer):
    """The same where every step trains."""
    losses = []
    for x, y in loader:
        out = model(x)  # verdict: TML201 refuted
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def embedded(model, batch):
    """No loop, and nothing grows: the graph is built for nothing all the same."""
    data = [[float(item) for item in row] for row in batch] if isinstance(batch, list) else batch
    hidden = model(data)  # verdict: TML201 confirmed
    return hidden.detach().cpu().numpy()


def guarded(model, batch):
    """Grad mode is off, whatever else is not known."""
    with torch.no_grad():
        hidden = model(batch["image"].permute(0, 3, 1, 2))  # verdict: TML201 refuted
    return hidden


def logged(accelerator_of, model, loader, config):
    """What logs is no tensor, though it was made by a call with arguments that are not there."""
    accelerator = accelerator_of(config)
    kept = []
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        kept.append(loss)  # verdict: TML102 confirmed nodes
        accelerator.log({"loss": float(loss)}, step=len(kept))
    return [float(loss) for loss in kept]


def everything(model, loader):
    """Another line keeps tensors on the device, too."""
    features, labels = [], []
    for x, y in loader:
        with torch.no_grad():
            out = model(x.cuda())
        features.append(out)  # verdict: TML401 confirmed tensors kept on the device
        labels.append(y.cuda())
    return features, labels
