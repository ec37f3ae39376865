"""What is known of a fix, that it changes no result. Here are programs in which that is shown, and others of the same look in which
`no_grad` would change one, or may: nothing is said of those. Only a detach is safe by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from torchmemlint import check_paths
from torchmemlint.findings import Finding, Safety
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.run import fix_source
from torchmemlint.source.file import source_from_text

PROGRAM = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 640, 3)
        self.head = nn.Linear(640, 10)

    def forward(self, x):
        h = self.conv(x).mean((2, 3))
        return self.head(h)


class Meter:
    def __init__(self):
        self.sum = 0

    def update(self, value):
        self.sum += value


def evaluate(model, loader, device):
    model.eval()
    meter = Meter()
    for x, y in loader:
        out = model(x.to(device))
        meter.update((out.argmax(1) == y.to(device)).sum().item())
    return meter.sum


def train(model, loader, optimizer, device):
    model.train()
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    device = torch.device("cuda")
    model = Net().to(device)
    loader = DataLoader(torch.load("data.pt"), batch_size=64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        train(model, loader, optimizer, device)
        print(evaluate(model, loader, device))


if __name__ == "__main__":
    main()
"""
FORWARD = "        h = self.conv(x).mean((2, 3))\n"
METER = "        meter.update((out.argmax(1) == y.to(device)).sum().item())\n"
CALL = "        out = model(x.to(device))\n"
TRAINED = "        loss = F.cross_entropy(model(x.to(device)), y.to(device))\n"
MADE = "    model = Net().to(device)\n"


def findings(tmp_path: Path, text: str, code: str, others: dict[str, str] | None = None) -> list[Finding]:
    for name, more in {"program.py": text, **(others or {})}.items():
        (tmp_path / name).write_text(more)
    found = check_paths([tmp_path], isolated=True, options={"min-confidence": "low", "notes": True})
    return [one for one in found if one.code == code]


def changed(*pairs: tuple[str, str], text: str = PROGRAM) -> str:
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


TRAINS = PROGRAM[PROGRAM.index("def train(") : PROGRAM.index("def main(")]
EVALUATION = PROGRAM.replace(TRAINS, "").replace("        train(model, loader, optimizer, device)\n", "")
EVALUATION = EVALUATION.replace("    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")
"""The same program without its training: nothing in it takes a gradient."""


SAFE = {
    "a function of a program": EVALUATION,
    "a loss that is only added up": changed(
        (METER, "        meter.update(F.cross_entropy(out, y.to(device)).item())\n"), text=EVALUATION
    ),
    "a helper that computes a number": changed(
        (METER, "        meter.update(score(out, y.to(device)))\n"),
        ("def evaluate", "def score(out, y):\n    return (out.argmax(1) == y).float().mean().item()\n\n\ndef evaluate"),
        text=EVALUATION,
    ),
    "a network of a library": changed(
        (MADE, "    model = resnet18().to(device)\n"),
        ("from torch import nn\n", "from torch import nn\nfrom torchvision.models import resnet18\n"),
        text=EVALUATION,
    ),
    "one of two networks": changed(
        (
            MADE,
            "    model = Net()\n    if device.type == 'cpu':\n        model = nn.Linear(3, 4)\n    model = model.to(device)\n",
        ),
        text=EVALUATION,
    ),
    "results on the host": changed(
        (METER, "        meter.update(out.detach().cpu().numpy().argmax(1).sum())\n"),
        text=EVALUATION,
    ),
}
"""Each has one TML201 at least, and its fix is proved."""


@pytest.mark.parametrize("name", SAFE)
def test_a_fix_of_which_enough_is_known_says_so(tmp_path: Path, name: str) -> None:
    found = findings(tmp_path, SAFE[name], "TML201")
    assert found
    for one in found:
        assert one.fix is not None
        assert one.fix.safety is Safety.UNSAFE
        assert one.fix.proof
        assert {known_by for _, known_by in one.fix.proof} <= {"resolved", "all callers"}
        assert len(one.fix.proof) == 3


UNPROVED = {
    "the program trains": PROGRAM,
    "the function trains": changed(
        ("    return meter.sum\n", "    tune(model)\n    return meter.sum\n"),
        (
            "def evaluate",
            "def tune(model):\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "    model(torch.ones(1, 3, 9, 9)).sum().backward()\n    optimizer.step()\n\n\ndef evaluate",
        ),
    ),
    "a statement of a training step": changed(
        (
            "        optimizer.zero_grad()\n",
            "        print(model(x.to(device)).argmax(1).tolist())\n        optimizer.zero_grad()\n",
        ),
    ),
    "the result is returned, and trained by a caller": changed(
        ("    return meter.sum\n", "    return meter.sum, out\n"),
        (
            "        print(evaluate(model, loader, device))\n",
            "        _, out = evaluate(model, loader, device)\n        out.mean().backward()\n",
        ),
    ),
    "the result is kept in a global": changed(
        (METER, METER + "        LAST.append(out)\n"), ("def evaluate", "LAST = []\n\n\ndef evaluate")
    ),
    "the result is kept in the meter": changed(
        (METER, METER + "        meter.last = out\n"),
        ("    return meter.sum\n", "    return meter\n"),
        ("        print(evaluate(model, loader, device))\n", "        evaluate(model, loader, device).last.sum().backward()\n"),
    ),
    "the forward keeps what it computes": changed((FORWARD, FORWARD + "        self.features = h\n")),
    "the forward keeps it in a list": changed(
        (FORWARD, FORWARD + "        self.cache.append(h)\n"),
        ("        self.head = nn.Linear(640, 10)\n", "        self.head = nn.Linear(640, 10)\n        self.cache = []\n"),
    ),
    "the forward keeps it in a dict": changed(
        (FORWARD, FORWARD + '        self.cache["h"] = h\n'),
        ("        self.head = nn.Linear(640, 10)\n", "        self.head = nn.Linear(640, 10)\n        self.cache = {}\n"),
    ),
    "the forward keeps it in a global": changed(
        (FORWARD, FORWARD + "        FEATURES.append(h)\n"), ("class Net", "FEATURES = []\n\n\nclass Net")
    ),
    "the forward computes a gradient": changed(
        (FORWARD, FORWARD + "        h = h - torch.autograd.grad(h.sum(), self.conv.weight)[0].sum()\n")
    ),
    "a helper of the forward computes a gradient": changed(
        (FORWARD, FORWARD + "        h = corrected(h, self.conv.weight)\n"),
        ("class Net", "def corrected(h, weight):\n    return h - torch.autograd.grad(h.sum(), weight)[0].sum()\n\n\nclass Net"),
    ),
    "the forward goes by grad mode": changed(
        (FORWARD, FORWARD + "        if torch.is_grad_enabled():\n            h = h * 2\n")
    ),
    "the forward goes by a flag": changed((FORWARD, FORWARD + "        if h.requires_grad:\n            h = h * 2\n")),
    "the forward enables grad mode": changed(
        (FORWARD, "        with torch.enable_grad():\n            h = self.conv(x).mean((2, 3))\n")
    ),
    "a part of the network computes a gradient": changed(
        ("        self.head = nn.Linear(640, 10)\n", "        self.head = Head()\n"),
        (
            "class Net",
            "class Head(nn.Linear):\n    def __init__(self):\n        super().__init__(640, 10)\n\n    def forward(self, h):\n"
            "        out = super().forward(h)\n        return out - torch.autograd.grad(out.sum(), h)[0].sum()\n\n\nclass Net",
        ),
    ),
    "a hook asks for gradients": changed(
        (MADE, MADE + "    model.conv.register_forward_hook(watch)\n"),
        ("def main", "def watch(module, args, out):\n    out.register_hook(print)\n\n\ndef main"),
    ),
    "a network that computes otherwise without a graph": changed(
        (
            "        self.head = nn.Linear(640, 10)\n",
            "        self.head = nn.TransformerEncoderLayer(640, 8, batch_first=True)\n",
        )
    ),
    "a network of which nothing is known": changed(
        (MADE, "    model = load(device)\n"), ("from torch import nn\n", "from torch import nn\nfrom ourzoo import load\n")
    ),
    "a network that another package trains": changed(
        ("    return meter.sum\n", "    finetune(model)\n    return meter.sum\n"),
        ("from torch import nn\n", "from torch import nn\nfrom ourzoo import finetune\n"),
    ),
    "a callback that is given": changed(
        ("def evaluate(model, loader, device):", "def evaluate(model, loader, device, callback=None):"),
        ("    return meter.sum\n", "    if callback is not None:\n        callback(model)\n    return meter.sum\n"),
        ("        print(evaluate(model, loader, device))\n", "        print(evaluate(model, loader, device, load()))\n"),
        ("from torch import nn\n", "from torch import nn\nfrom ourzoo import load\n"),
    ),
    "an adversary attacks the input": changed(
        (CALL, "        x = attack(model, x.to(device))\n        out = model(x)\n"),
        ("from torch import nn\n", "from torch import nn\nfrom torchattacks import attack\n"),
    ),
    "autocast keeps weights for what is trained": changed(
        (
            TRAINED,
            "        with torch.autocast('cuda'):\n            print(model(x.to(device)).argmax(1).tolist())\n"
            "            loss = F.cross_entropy(model(x.to(device)), y.to(device))\n",
        ),
        ("        print(evaluate(model, loader, device))\n", ""),
    ),
    "autocast around the evaluation, and a step": changed(
        ("        print(evaluate(model, loader, device))\n", "        both(model, loader, device)\n"),
        (
            "def main",
            "def both(model, loader, device):\n    with torch.autocast('cuda'):\n        print(evaluate(model, loader, device))\n"
            "        model(torch.ones(1, 3, 9, 9)).sum().backward()\n\n\ndef main",
        ),
    ),
    "a file that others import": changed(('\n\nif __name__ == "__main__":\n    main()\n', "\n"), ("def main", "def run")),
    "another phase trains it": changed(
        ("def evaluate(model, loader, device):", "def evaluate(model, loader, device, optimizer=None):"),
        (METER, METER + "        if optimizer is not None:\n            out.sum().backward()\n            optimizer.step()\n"),
    ),
    "the function is given to what is not visible": changed(
        ("        print(evaluate(model, loader, device))\n", "        run(evaluate)\n"),
        ("from torch import nn\n", "from torch import nn\nfrom ourzoo import run\n"),
    ),
    "an input that is optimized": changed(
        (CALL, "        x = x.to(device).requires_grad_()\n        out = model(x)\n"),
        (METER, METER + "        F.cross_entropy(out, y.to(device)).backward()\n"),
    ),
    "a penalty of gradients": changed(
        (METER, METER + "        meter.update(torch.autograd.grad(out.sum(), model.head.weight)[0].norm().item())\n")
    ),
    "the class is chosen by a text": changed(
        (MADE, "    model = getattr(zoo, input())().to(device)\n"),
        ("from torch import nn\n", "from torch import nn\nimport zoo\n"),
    ),
    "a network that is set from outside": changed(
        ("        self.head = nn.Linear(640, 10)\n", "        self.head = None\n"),
        (MADE, MADE + "    model.head = load()\n"),
        ("from torch import nn\n", "from torch import nn\nfrom ourzoo import load\n"),
    ),
    "a forward that is put in the class's place": changed(
        (MADE, MADE + "    model.forward = lambda x: model.head(model.conv(x))\n")
    ),
    "data that is made with gradients": changed(
        (
            "def evaluate",
            "class Attacked:\n    def __getitem__(self, at):\n        return attack(self.model, self.data[at])\n\n\n"
            "def attack(model, x):\n    x.requires_grad_()\n    model(x).sum().backward()\n    return x + x.grad\n\n\ndef evaluate",
        ),
        (CALL, "        x = loader.dataset[0]\n        out = model(x.to(device))\n"),
    ),
    "a class below the network that computes a gradient": changed(
        (
            "class Meter",
            "class Sharp(Net):\n    def forward(self, x):\n        out = super().forward(x)\n"
            "        return out - torch.autograd.grad(out.sum(), self.conv.weight)[0].sum()\n\n\nclass Meter",
        ),
        (MADE, "    model = (Sharp if input() else Net)().to(device)\n"),
    ),
    "a network of a library that is not known": changed(
        (MADE, "    model = forces.Net().to(device)\n"), ("from torch import nn\n", "from torch import nn\nimport forces\n")
    ),
    "a network that is imported": changed(
        (CALL, "        out = net(x.to(device))\n"), ("from torch import nn\n", "from torch import nn\nfrom zoo import net\n")
    ),
    "a method of an object of a library that is not known": changed(
        (CALL, "        out = model.encode(x.to(device))\n"),
        (MADE, "    model = forces.Net().to(device)\n"),
        ("from torch import nn\n", "from torch import nn\nimport forces\n"),
    ),
    "parts of a library that is not known": changed(
        ("        self.head = nn.Linear(640, 10)\n", "        self.head = ForceHead(640)\n"),
        ("from torch import nn\n", "from torch import nn\nfrom forces import ForceHead\n"),
    ),
}
"""Each looks like the program above. In some of them `no_grad` would change nothing: but that is not shown."""


@pytest.mark.parametrize("name", UNPROVED)
def test_of_what_is_not_shown_nothing_is_said(tmp_path: Path, name: str) -> None:
    for one in findings(tmp_path, UNPROVED[name], "TML201"):
        assert one.fix is None or not one.fix.proof


def test_a_hook_in_a_program_beside_it_is_none_of_this_one(tmp_path: Path) -> None:
    hooked = UNPROVED["a hook asks for gradients"]
    (one,) = [
        each for each in findings(tmp_path, EVALUATION, "TML201", {"hooked.py": hooked}) if each.path.endswith("program.py")
    ]
    assert one.fix is not None
    assert one.fix.safety is Safety.UNSAFE
    assert one.fix.proof


def test_the_program_that_uses_the_file_may_hook_its_network(tmp_path: Path) -> None:
    library = changed(('\n\nif __name__ == "__main__":\n    main()\n', "\n"))
    user = """
from program import Net, evaluate


def main():
    net = Net()
    net.conv.register_forward_hook(lambda module, args, out: out.register_hook(print))
    print(evaluate(net, [], "cpu"))


if __name__ == "__main__":
    main()
"""
    for one in findings(tmp_path, library, "TML201", {"user.py": user}):
        assert one.fix is None or not one.fix.proof


# --- checkpoints ------------------------------------------------------------------------------------------------------

RESUMED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(640, 10)

    def forward(self, x):
        return self.head(x)


def resume(path):
    model = Net().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    start = int(checkpoint["epoch"])
    for epoch in range(start, 10):
        loss = model(torch.ones(4, 640).cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    resume("last.pt")
"""
LOADED = '    model.load_state_dict(checkpoint["model"])\n'
COPIED = {
    "a checkpoint": RESUMED,
    "weights alone": changed(
        (LOADED, "    model.load_state_dict(checkpoint)\n"),
        ('    optimizer.load_state_dict(checkpoint["optimizer"])\n    start = int(checkpoint["epoch"])\n', "    start = 0\n"),
        text=RESUMED,
    ),
    "names that are changed": changed(
        (
            LOADED,
            '    state = {k.removeprefix("module."): v for k, v in checkpoint["model"].items()}\n    model.load_state_dict(state)\n',
        ),
        text=RESUMED,
    ),
    "a number that is printed": changed(
        ("    start = int", "    print(f\"epoch {checkpoint['epoch']}\")\n    start = int"), text=RESUMED
    ),
}


@pytest.mark.parametrize("name", COPIED)
def test_a_checkpoint_that_is_only_copied_may_be_loaded_on_the_host(tmp_path: Path, name: str) -> None:
    (one,) = findings(tmp_path, COPIED[name], "TML506")
    assert one.fix is not None
    assert one.fix.safety is Safety.UNSAFE
    assert one.fix.proof
    assert len(one.fix.proof) == 2


TAKEN = {
    "a part is kept": changed(("    start = int", '    model.mean = checkpoint["mean"]\n    start = int'), text=RESUMED),
    "a part is returned": changed(
        ("        optimizer.step()\n", '        optimizer.step()\n    return checkpoint["mean"]\n'), text=RESUMED
    ),
    "a part is computed with": changed(
        ("    start = int", '    scale = checkpoint["mean"] * 2\n    start = int'), text=RESUMED
    ),
    "a part is given to a function": changed(
        ("    start = int", '    use(checkpoint["mean"])\n    start = int'),
        ("from torch import nn\n", "from torch import nn\nfrom ours import use\n"),
        text=RESUMED,
    ),
    "a closure reads it": changed(
        ("    start = int", "    print((lambda: checkpoint['mean'].sum())())\n    start = int"), text=RESUMED
    ),
    "its parameters are assigned": changed(
        (LOADED, '    model.load_state_dict(checkpoint["model"], assign=True)\n'), text=RESUMED
    ),
    "a class of its own restores": changed(
        ("    def forward", "    def load_state_dict(self, state):\n        self.state = state\n\n    def forward"),
        text=RESUMED,
    ),
    "extra state": changed(
        ("    def forward", "    def set_extra_state(self, state):\n        self.state = state\n\n    def forward"),
        text=RESUMED,
    ),
    "what restores is not known": changed(
        (LOADED, '    shadow.load_state_dict(checkpoint["model"])\n' + LOADED),
        ("from torch import nn\n", "from torch import nn\nfrom ours import shadow\n"),
        text=RESUMED,
    ),
    "it is kept by a global": changed(
        ("    checkpoint = torch", "    global checkpoint\n    checkpoint = torch"), text=RESUMED
    ),
    "it is the network itself": changed(
        (
            LOADED,
            '    model.load_state_dict(checkpoint["model"])\n    teacher = checkpoint["teacher"]\n    print(teacher(torch.ones(2).cuda()))\n',
        ),
        text=RESUMED,
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_checkpoint_of_which_something_is_taken_stays_where_it_is(tmp_path: Path, name: str) -> None:
    for one in findings(tmp_path, TAKEN[name], "TML506"):
        assert one.fix is None or not one.fix.proof


PLACED = changed(
    ("def resume(path):", "def resume(path, device):"),
    ("torch.load(path)", "torch.load(path, map_location=device)"),
    ("Net().cuda()", "Net().to(device)"),
    ('    resume("last.pt")', '    resume("last.pt", torch.device("cuda"))'),
    text=RESUMED,
)


def test_a_place_that_is_given_is_replaced(tmp_path: Path) -> None:
    (one,) = findings(tmp_path, PLACED, "TML506")
    assert one.fix is not None
    assert one.fix.safety is Safety.UNSAFE
    assert one.fix.proof
    assert [edit.content for edit in one.fix.edits] == ['"cpu"']


# --- stored values ----------------------------------------------------------------------------------------------------

STORED = """
import torch
import torch.nn.functional as F
from torch import nn


def train(loader):
    model = nn.Linear(640, 10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, y in loader:
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    print(torch.stack(losses).mean().item())


if __name__ == "__main__":
    train([])
"""
PRINTED = "    print(torch.stack(losses).mean().item())\n"
READ = {
    "a mean": STORED,
    "a sum that is formatted": changed((PRINTED, '    print(f"{sum(losses) / len(losses):.3f}")\n'), text=STORED),
    "an array": changed((PRINTED, "    print(torch.stack(losses).detach().cpu().numpy().mean())\n"), text=STORED),
}


@pytest.mark.parametrize("name", READ)
def test_a_stored_value_of_which_every_read_is_a_number_is_detached_safely(tmp_path: Path, name: str) -> None:
    (one,) = findings(tmp_path, READ[name], "TML102")
    assert one.fix is not None
    assert one.fix.safety is Safety.SAFE
    assert one.fix.proof == (("every read of `losses` is visible, and ends in a number or a text", "resolved"),)


KEPT = {
    "it is returned": changed((PRINTED, "    return losses\n"), text=STORED),
    "it is back-propagated on a branch": changed(
        (PRINTED, PRINTED + "    if loader:\n        torch.stack(losses).sum().backward()\n"), text=STORED
    ),
    "one of it is back-propagated": changed((PRINTED, PRINTED + "    losses[-1].backward()\n"), text=STORED),
    "it is given to what is not visible": changed(
        (PRINTED, PRINTED + "    plot(losses)\n"),
        ("from torch import nn\n", "from torch import nn\nfrom ours import plot\n"),
        text=STORED,
    ),
    "an attribute keeps it": changed((PRINTED, PRINTED + "    model.losses = losses\n"), text=STORED),
    "a closure keeps it": changed((PRINTED, PRINTED + "    return lambda: losses\n"), text=STORED),
    "its graph is read": changed((PRINTED, PRINTED + "    print(losses[0].grad_fn)\n"), text=STORED),
    "a flag is read": changed((PRINTED, PRINTED + "    print(losses[0].requires_grad)\n"), text=STORED),
    "a gradient is taken of it": changed(
        (PRINTED, PRINTED + "    print(torch.autograd.grad(losses[0], model.weight))\n"), text=STORED
    ),
    "it goes into another list": changed(
        (PRINTED, PRINTED + "    both = [losses, losses]\n    both[0][0].backward()\n"), text=STORED
    ),
    "it goes into the next loss": changed(
        ("model(x.cuda()), y.cuda())\n", "model(x.cuda()), y.cuda()) + sum(losses[-1:])\n"), text=STORED
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_stored_value_that_may_be_needed_is_not(tmp_path: Path, name: str) -> None:
    for one in findings(tmp_path, KEPT[name], "TML102"):
        assert one.fix is None or one.fix.safety is not Safety.SAFE


TOTAL = changed(
    ("    losses = []\n", "    total = 0.0\n"),
    ("        losses.append(loss)\n", "        total += loss\n"),
    (PRINTED, '    print(f"{total / len(loader):.3f}")\n'),
    text=STORED,
)
SUMMED = '    print(f"{total / len(loader):.3f}")\n'


def test_a_total_that_is_only_read_is_detached_safely(tmp_path: Path) -> None:
    (one,) = findings(tmp_path, TOTAL, "TML101")
    assert one.fix is not None
    assert one.fix.safety is Safety.SAFE
    assert one.fix.proof


WANTED = {
    "it is returned": changed((SUMMED, "    return total\n"), text=TOTAL),
    "it is back-propagated on a branch": changed((SUMMED, SUMMED + "    if loader:\n        total.backward()\n"), text=TOTAL),
    "it goes into a list that others have": changed(
        (SUMMED, SUMMED + "    history.append(total)\n"), ("def train(loader)", "def train(loader, history)"), text=TOTAL
    ),
    "an attribute keeps it": changed((SUMMED, SUMMED + "    model.total = total\n"), text=TOTAL),
    "it is given": changed(("    total = 0.0\n", ""), ("def train(loader)", "def train(loader, total)"), text=TOTAL),
}


@pytest.mark.parametrize("name", WANTED)
def test_a_total_that_may_be_needed_is_not(tmp_path: Path, name: str) -> None:
    for one in findings(tmp_path, WANTED[name], "TML101"):
        assert one.fix is None or one.fix.safety is not Safety.SAFE


# --- why there is no fix, and fixes for what had none -------------------------------------------------------------------

TEACHER = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(3, 640, 3)

    def forward(self, x):
        return self.head(x)


def report(values, guess, loss):
    values.append(guess.detach())
    loss.sum().backward()


def train(net, teacher, loader, optimizer):
    teacher.eval()
    values = []
    for x in loader:
        guess = teacher(x.cuda()).mean()
        report(values, guess, net(x.cuda()))
        optimizer.step()
        optimizer.zero_grad()


def main():
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters())
    train(net, Net().cuda(), [], optimizer)


if __name__ == "__main__":
    main()
"""


def test_a_helper_that_back_propagates_something_else_is_no_reason(tmp_path: Path) -> None:
    (one,) = findings(tmp_path, TEACHER, "TML203")
    assert one.fix is not None
    assert "may go through it" not in one.help


def test_a_helper_that_back_propagates_it_is(tmp_path: Path) -> None:
    text = changed(
        ("    loss.sum().backward()\n", "    if values:\n        guess.backward()\n    loss.sum().backward()\n"), text=TEACHER
    )
    for one in findings(tmp_path, text, "TML203"):
        assert one.fix is None


def test_a_statement_of_several_rows_is_guarded(tmp_path: Path) -> None:
    text = changed(
        (
            "        guess = teacher(x.cuda()).mean()\n",
            "        guess = teacher(\n            x.cuda(),  # an image\n        ).mean()\n",
        ),
        text=TEACHER,
    )
    (one,) = findings(tmp_path, text, "TML203")
    assert one.fix is not None
    assert (
        fixed(tmp_path, text).count(
            "            guess = teacher(\n                x.cuda(),  # an image\n            ).mean()\n"
        )
        == 1
    )


@pytest.mark.parametrize("string", ['"""\\na"""', '"a\\\\\\n"'])
def test_rows_inside_a_string_stay_where_they_are(tmp_path: Path, string: str) -> None:
    text = changed(
        (
            "        guess = teacher(x.cuda()).mean()\n",
            f"        guess = teacher(x.cuda(), {string}).mean()\n".replace("\\n", "\n"),
        ),
        ("def forward(self, x)", "def forward(self, x, name)"),
        text=TEACHER,
    )
    for one in findings(tmp_path, text, "TML203"):
        assert one.fix is None


def fixed(tmp_path: Path, text: str) -> str:
    """The program after all fixes."""
    outcome = fix_source(
        source_from_text("program.py", text),
        replace(Configuration(CommandLine(isolated=True)).default, unsafe_fixes=True, notes=True),
    )
    return outcome.after["program.py"]
