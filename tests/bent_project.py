"""A small training project whose files depend on each other, in many variants: each switch changes one thing that another
file's findings rest on. For tests that compare what is memoized with what is worked out afresh."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

SWITCHES = (
    "meter_detaches", "meter_renamed", "validate_guarded", "caller_guarded", "first_caller", "second_caller", "subclass",
    "subclass_calls_backward", "step_retains", "step_moved", "base_outside", "wrapper_works", "model_frozen", "export_renamed",
    "comment_on_top", "helper_deleted", "loss_is_number", "noqa", "broken", "extra_file", "local_copy", "escapes",
)  # fmt: skip
"""What can be different; all off is the plain project."""


def project(on: Iterable[str]) -> Mapping[str, str]:
    """The files of the variant with these switches on, by path."""
    on = frozenset(on)
    assert on <= frozenset(SWITCHES)

    def when(switch: str, yes: str, no: str = "") -> str:
        return yes if switch in on else no

    update = when("meter_renamed", "push", "update")
    files = {
        "pkg/__init__.py": f"from pkg.steps import {when('export_renamed', 'train_step as run_step', 'train_step')}\n",
        "pkg/meters.py": f"""{when("comment_on_top", "# Meters." + chr(10))}class Meter:
    def __init__(self):
        self.values = []
        self.total = 0.0

    def {update}(self, value):
        self.values.append(value{when("meter_detaches", ".detach()")})
        self.total = self.total + value.item()
""",
        "pkg/models.py": f"""import torch
from torch import nn
{when("base_outside", "from elsewhere import Backbone")}

class Base({when("base_outside", "Backbone", "nn.Module")}):
    def features(self, x):
        return x

    def loss(self, x):
        return self.forward(x).mean()


class Net(Base):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        {when("model_frozen", "self.layer.requires_grad_(False)", "pass")}

    def forward(self, x):
        return self.layer(self.features(x))
""",
        "pkg/guards.py": f"""import functools
import torch


def quiet(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        {when("wrapper_works", "with torch.no_grad():", "if True:")}
            return function(*args, **kwargs)
    return inner
""",
        "pkg/steps.py": f"""import torch
from pkg.guards import quiet
from pkg.models import Net


def train_step(model: Net, batch, optimizer):
    optimizer.zero_grad()
    return model(batch).mean(){when("loss_is_number", ".item()")}


{when("validate_guarded", "@torch.no_grad()")}
def validate(model: Net, loader):
    outputs = []
    for batch in loader:
        outputs.append(model(batch))
    return outputs


@quiet
def predict(model: Net, loader):
    kept = []
    for batch in loader:
        kept.append(model.loss(batch))
    return kept
""",
        "train.py": f"""import torch
from torch import optim
from pkg import {when("export_renamed", "run_step", "train_step")}
from pkg.meters import Meter
from pkg.models import Net


def main(loader):
    model = Net()
    optimizer = optim.SGD(model.parameters(), 0.1)
    meter = Meter()
    total = 0.0
    for batch in loader:
        loss = {when("export_renamed", "run_step", "train_step")}(model, batch, optimizer)
        loss.backward({when("step_retains", "retain_graph=True")})
        optimizer.step()
        meter.update(loss)
        total += loss{when("noqa", "  # noqa: TML101")}
    print("loss", float(total))
    return meter


def fit(loader, epochs):
    model = Net()
    optimizer = optim.SGD(model.parameters(), 0.1)
    history = []
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            history.append(loss)
        check(model, loader)
    return history


def check(model, loader):
    correct = 0
    for batch in loader:
        correct += (model(batch).argmax(-1) == 0).sum().item()
    return correct
""",
        "evaluate.py": f"""import torch
from pkg.steps import validate, predict
from pkg.models import Net


def evaluate(loader):
    model = Net()
    model.eval()
    {when("caller_guarded", "with torch.no_grad():", "if True:")}
        return torch.stack(validate(model, loader)).argmax(-1).tolist()


{when("first_caller", "def report(loader):" + chr(10) + "    with torch.inference_mode():" + chr(10) + "        return score(Net(), loader).tolist()")}


def score(model: Net, loader):
    scores = []
    for batch in loader:
        scores.append(model(batch).softmax(-1))
    return torch.cat(scores)


def measure(model: Net, loader):
    model.eval()
    total = 0
    for batch in loader:
        total += model.loss(batch)
    print("loss", total / len(loader))


def run(loader):
    model = Net()
    model.eval()
    predict(model, loader)
    measure(model, loader)


{when("escapes", "HOOKS = [score, validate]")}
""",
        "helper.py": f"""import torch
from evaluate import score
from pkg.models import Net
from train import check


{when("second_caller", "def main(loader):" + chr(10) + "    return score(Net(), loader).tolist()")}


def show(loader):
    with torch.no_grad():
        check(Net(), loader)
        return score(Net(), loader).tolist()
""",
    }
    if "subclass" in on:
        files["extra.py"] = f"""import torch
from pkg.models import Net, Base


class Wide(Net):
    def features(self, x):
        out = x * 2
        {when("subclass_calls_backward", "out.sum().backward()", "pass")}
        return out

    def loss(self, x):
        with torch.no_grad():
            return self.forward(x).sum()
"""
    if "helper_deleted" in on:
        del files["helper.py"]
    if "extra_file" in on:
        files["pkg/evaluate.py"] = "import torch\n\n\ndef score(model, loader):\n    return None\n"
    if "local_copy" in on:
        files["meters.py"] = files["pkg/meters.py"].replace("class Meter", "class Gauge")
    if "broken" in on:
        files["pkg/guards.py"] += "def (:\n"
    if "step_moved" in on:
        files["pkg/steps.py"] = "\n\n\n" + files["pkg/steps.py"]
    return files


def walk(seed: int, steps: int) -> Iterable[frozenset[str]]:
    """Variants, each some switches away from the one before."""
    chance = random.Random(seed)
    on: frozenset[str] = frozenset()
    for _ in range(steps):
        yield on
        on = on ^ frozenset(chance.sample(SWITCHES, chance.choice((1, 1, 1, 2, 4))))
