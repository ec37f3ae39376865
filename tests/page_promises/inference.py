"""TML201."""

from page_promises import ERROR, NET, NOTE, SILENT, START, WARNING, Promise

RUN = START.replace("train(", "evaluate(")

EVALUATE = (
    NET
    + """
def evaluate(loader):
    net = Net().cuda()
    net.eval()
    @1
    for x, y in loader:
        @2
    @3
"""
    + RUN
)

SHOWN = "print(net(x.cuda()).argmax(1))"

PLAIN = ("pass", SHOWN, "pass")

LAYERS = (
    """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        @1

    def forward(self, x):
        return @2

def evaluate(loader):
    net = Net().cuda()
    net.eval()
    for x, y in loader:
        print(net(x.cuda()).argmax(1))
"""
    + RUN
)

LARGE = ("self.body = nn.Conv2d(3, 512, 3); self.head = nn.Linear(512, 1000)", "self.head(self.body(x).mean((2, 3)))")

CALLED = (
    NET
    + """
def evaluate(net, loader):
    net.eval()
    for x, y in loader:
        print(net(x.cuda()).argmax(1))

def main(loader):
    net = Net().cuda()
    @1

main(DataLoader(torch.load("data.pt", map_location="cpu"), batch_size=64))
"""
)

INSIDE = (
    """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 512, 3)
        self.head = nn.Linear(512, 1000)

    def forward(self, x):
        @1

def evaluate(loader):
    net = Net().cuda()
    net.eval()
    for x, y in loader:
        print(net(x.cuda())@2)
"""
    + RUN
)

EPOCHS = (
    NET
    + """
def evaluate(net, x):
    net.eval()
    print(net(x.cuda()).argmax(1))

def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(90):
        net.train()
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(x.cuda()), y.cuda()).backward()
            optimizer.step()
            @1
        @2
"""
    + START
)

ACTING = (
    NET.replace("import torch\n", "import torch, gym\n", 1)
    + """
def play(loader):
    net = Net().cuda()
    net.eval()
    env = gym.make("Breakout")
    state = env.reset()
    @1
        action = net(torch.as_tensor(state, device="cuda")).argmax(1)
        @2

play(DataLoader(torch.load("data.pt", map_location="cpu"), batch_size=64))
"""
)

MISUSED = (
    NET
    + """
@1
def evaluate(loader):
    net = Net().cuda()
    net.eval()
    @2
    for x, y in loader:
        print(net(x.cuda()).argmax(1))
"""
    + RUN
)

TRIED = (
    NET
    + """
if __name__ == "__main__":
    net = Net().cuda()
    @1
    net.eval()
    for _ in range(1000):
        print(net(torch.rand(64, 3, 224, 224).cuda()).shape)
"""
)


PROMISES = [
    Promise("grad mode off", "TML201", SILENT, MISUSED, ("@torch.no_grad()", "pass"), ("# plain", "pass")),
    Promise(
        "callers decide by a flag",
        "TML201",
        SILENT,
        NET
        + """
def evaluate(net: Net, loader, training):
    with torch.set_grad_enabled(@1):
        for x, y in loader:
            print(net(x.cuda()).argmax(1))
""",
        ("training",),
        ("True",),
    ),
    Promise(
        "a module without parameters",
        "TML201",
        SILENT,
        EVALUATE.replace("net = Net().cuda()", "net = @4"),
        (*PLAIN, "nn.Sequential(nn.ReLU(), nn.Flatten())"),
        (*PLAIN, "Net().cuda()"),
    ),
    Promise("frozen by requires_grad_(False)", "TML201", SILENT, EVALUATE, ("net.requires_grad_(False)", SHOWN, "pass"), PLAIN),
    Promise(
        "frozen in a caller",
        "TML201",
        SILENT,
        CALLED,
        ("net.requires_grad_(False)\nfor _ in range(9): evaluate(net, loader)",),
        ("for _ in range(9): evaluate(net, loader)",),
    ),
    Promise(
        "frozen by Lightning's freeze()",
        "TML201",
        SILENT,
        EVALUATE.replace("class Net(nn.Module)", "class Net(pl.LightningModule)").replace(
            "import torch\n", "import torch\nimport lightning.pytorch as pl\n", 1
        ),
        ("net.freeze()", SHOWN, "pass"),
        PLAIN,
    ),
    Promise(
        "results that the module keeps, and the function back-propagates",
        "TML201",
        SILENT,
        INSIDE.replace("@2)\n", "@2)\n        @3\n"),
        ("self.hidden = self.body(x)\nreturn self.head(self.hidden.mean((2, 3)))", ".argmax(1)", "net.hidden.sum().backward()"),
        ("self.hidden = self.body(x)\nreturn self.head(self.hidden.mean((2, 3)))", ".argmax(1)", "pass"),
    ),
    Promise("graphs whose nodes are read", "TML201", SILENT, EVALUATE, ("pass", "print(net(x.cuda()).grad_fn)", "pass"), PLAIN),
    Promise(
        "a forward that computes gradients",
        "TML201",
        SILENT,
        INSIDE,
        ("x = x.requires_grad_()\nreturn torch.autograd.grad(self.head(self.body(x).mean((2, 3))).sum(), x)[0]", ".argmax(1)"),
        ("return self.head(self.body(x).mean((2, 3)))", ".argmax(1)"),
    ),
    Promise(
        "a forward that disables grad mode",
        "TML201",
        SILENT,
        INSIDE,
        ("with torch.no_grad():\n    return self.head(self.body(x).mean((2, 3)))", ".argmax(1)"),
        ("return self.head(self.body(x).mean((2, 3)))", ".argmax(1)"),
    ),
    Promise(
        "numpy() would raise with grad mode on",
        "TML201",
        SILENT,
        EVALUATE,
        ("pass", "print(net(x.cuda()).cpu().numpy())", "pass"),
        ("pass", "print(net(x.cuda()).detach().cpu().numpy())", "pass"),
    ),
    Promise(
        "networks of other frameworks",
        "TML201",
        SILENT,
        """
@1

def evaluate(net: nn.Module, loader):
    net.eval()
    for x in loader:
        print(net(x).argmax(1))
""",
        ("import mindspore.nn as nn",),
        ("import torch.nn as nn",),
    ),
    Promise(
        "unit tests",
        "TML201",
        SILENT,
        NET
        + """
import unittest

class Some(@1):
    def test_it(self):
        net = Net().cuda()
        net.eval()
        for x in torch.load("data.pt", map_location="cpu"):
            print(net(x.cuda()).argmax(1))
""",
        ("unittest.TestCase",),
        ("object",),
    ),
    Promise(
        "functions that only test cases call",
        "TML201",
        SILENT,
        NET
        + """
import unittest

def run(loader):
    net = Net().cuda()
    net.eval()
    for x in loader:
        print(net(x.cuda()).argmax(1))

class Some(@1):
    def test_it(self):
        for _ in range(3):
            run(torch.load("data.pt", map_location="cpu"))
""",
        ("unittest.TestCase",),
        ("object",),
    ),
    Promise(
        "results are kept",
        "TML201",
        ERROR,
        EVALUATE,
        ("kept = []", "kept.append(net(x.cuda()))", "print(len(kept))"),
        ("kept = []", SHOWN, "print(len(kept))"),
    ),
    Promise(
        "a method that gathers results in an attribute, however small",
        "TML201",
        WARNING,
        NET
        + """
class Player:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
        self.seen = []

    def act(self, x):
        out = self.net(x.cuda())
        @1
        return out.argmax(1)

    def play(self, loader):
        self.net.eval()
        for x in loader:
            print(self.act(x))
        self.seen.clear()

    def run(self, loader):
        for _ in range(9):
            self.play(loader)

Player().run(DataLoader(torch.load("data.pt", map_location="cpu"), batch_size=64))
""",
        ("self.seen.append(out)",),
        ("pass",),
    ),
    Promise(
        "results are kept, moved to the host",
        "TML201|TML204",
        ERROR,
        EVALUATE,
        ("kept = []", "kept.append(net(x.cuda()).cpu())", "print(len(kept))"),
        ("kept = []", SHOWN, "print(len(kept))"),
    ),
    Promise(
        "a total of a criterion",
        "TML201|TML101",
        ERROR,
        EVALUATE,
        ("total, criterion = 0, nn.CrossEntropyLoss()", "total += criterion(net(x.cuda()), y.cuda())", "print(total)"),
        ("total, criterion = 0, nn.CrossEntropyLoss()", "total += criterion(net(x.cuda()), y.cuda()).item()", "print(total)"),
    ),
    Promise(
        "a state from one forward into the next",
        "TML201",
        ERROR,
        EVALUATE,
        ("state = torch.zeros(64, 3, 8, 8, device='cuda')", "state = net(state)\nprint(state.argmax(1))", "pass"),
        ("state = torch.zeros(64, 3, 8, 8, device='cuda')", "out = net(state)\nprint(out.argmax(1))", "pass"),
    ),
    Promise(
        "results are dropped",
        "TML201",
        WARNING,
        EVALUATE,
        PLAIN,
        ("kept = []", "kept.append(net(x.cuda()))", "print(len(kept))"),
    ),
    Promise(
        "results are detached",
        "TML201",
        WARNING,
        EVALUATE,
        ("kept = []", "kept.append(net(x.cuda()).detach().cpu())", "print(len(kept))"),
        ("kept = []", "kept.append(net(x.cuda()))", "print(len(kept))"),
    ),
    Promise(
        "once per program",
        "TML201",
        NOTE,
        NET
        + """
net = Net().cuda()
net.load_state_dict(torch.load("net.pt", map_location="cpu"))
net.eval()
@1
    print(net(torch.load("one.pt", map_location="cuda")).argmax(1))
""",
        ("if True:",),
        ("for _ in range(1000):",),
    ),
    Promise(
        "in a function that no loop calls",
        "TML201",
        NOTE,
        CALLED.replace("    for x, y in loader:\n        print(", "    x, y = next(iter(loader))\n    print(").replace(
            "            print", "    print"
        ),
        ("evaluate(net, loader)",),
        ("for _ in range(1000): evaluate(net, loader)",),
    ),
    Promise(
        "at most 10 iterations",
        "TML201",
        NOTE,
        EVALUATE.replace("for x, y in loader", "for _ in range(@4)"),
        ("data = iter(loader)", "x, y = next(data)\n" + SHOWN, "pass", "10"),
        ("data = iter(loader)", "x, y = next(data)\n" + SHOWN, "pass", "11"),
    ),
    Promise(
        "once per epoch, in a function of its own",
        "TML201",
        NOTE,
        EPOCHS,
        ("pass", "evaluate(net, x)"),
        ("evaluate(net, x)", "pass"),
    ),
    Promise(
        "an environment's next action",
        "TML201",
        NOTE,
        ACTING,
        ("while True:", "state, reward, done, _ = env.step(action.cpu())"),
        ("for state, _ in loader:", "print(action)"),
    ),
    Promise(
        "narrow linear layers",
        "TML201",
        NOTE,
        LAYERS,
        ("self.a = nn.Linear(64, 4096); self.b = nn.Linear(4096, 10)", "self.b(torch.relu(self.a(x)))"),
        ("self.a = nn.Linear(64, 4097); self.b = nn.Linear(4097, 10)", "self.b(torch.relu(self.a(x)))"),
    ),
    Promise(
        "a linear layer alone",
        "TML201",
        NOTE,
        EVALUATE.replace("net = Net().cuda()", "net = @4"),
        (*PLAIN, "nn.Linear(9000, 9000); net.cuda()"),
        (*PLAIN, "Net().cuda()"),
    ),
    Promise(
        "an embedding layer alone",
        "TML201",
        NOTE,
        EVALUATE.replace("net = Net().cuda()", "net = @4"),
        (*PLAIN, "nn.Embedding(100000, 4096); net.cuda()"),
        (*PLAIN, "Net().cuda()"),
    ),
    Promise(
        "a network of one embedding layer",
        "TML201",
        NOTE,
        LAYERS,
        ("self.table = nn.Embedding(100000, 4096)", "self.table(x)"),
        LARGE,
    ),
    Promise(
        "a network of one linear layer",
        "TML201",
        NOTE,
        LAYERS,
        ("self.a = nn.Linear(9000, 9000)", "self.a(x)"),
        LARGE,
    ),
    Promise(
        "at most 250,000 parameters",
        "TML201",
        NOTE,
        LAYERS,
        ("self.a = nn.LSTM(32, 64); self.b = nn.Linear(64, 10)", "self.b(self.a(x)[0])"),
        ("self.a = nn.LSTM(512, 1024); self.b = nn.Linear(1024, 10)", "self.b(self.a(x)[0])"),
    ),
    Promise(
        "few parameters, but convolutions",
        "TML201",
        WARNING,
        LAYERS,
        ("self.a = nn.Conv2d(3, 8, 3); self.b = nn.Linear(8, 10)", "self.b(self.a(x).mean((2, 3)))"),
        ("self.a = nn.LSTM(32, 64); self.b = nn.Linear(64, 10)", "self.b(self.a(x)[0])"),
    ),
    Promise(
        "few parameters, but attention",
        "TML201",
        WARNING,
        LAYERS,
        ("self.a = nn.MultiheadAttention(64, 4); self.b = nn.Linear(64, 10)", "self.b(self.a(x, x, x)[0])"),
        ("self.a = nn.LSTM(32, 64); self.b = nn.Linear(64, 10)", "self.b(self.a(x)[0])"),
    ),
    Promise(
        "a file tries its network out",
        "TML201",
        NOTE,
        TRIED,
        ("pass",),
        ("net.load_state_dict(torch.load('net.pt', map_location='cpu'))",),
    ),
    Promise(
        "a function that nothing calls, in a file that scripts use",
        "TML201",
        NOTE,
        """
from models import Net, evaluate@1

for x in range(9):
    evaluate(Net().cuda(), range(90))
    @2
""",
        ("", "pass"),
        (", left", "left(Net().cuda(), range(90))"),
        {
            "models.py": NET
            + """
def evaluate(net: Net, loader):
    print(len(loader))

def left(net: Net, loader):
    net.eval()
    for x in loader:
        print(net(x.cuda()).argmax(1))
"""
        },
    ),
    Promise(
        "a function that nothing calls, in a script",
        "TML201",
        NOTE,
        NET
        + """
def left(net: Net, loader):
    net.eval()
    for x in loader:
        print(net(x.cuda()).argmax(1))

def run(net: Net, loader):
    print(len(loader))

net = Net().cuda()
for x in range(9):
    run(net, range(90))
    @1
""",
        ("pass",),
        ("left(net, range(90))",),
    ),
    Promise(
        "a method that nothing calls, in a class that scripts use",
        "TML201",
        NOTE,
        """
from models import Net, Runner

runner = Runner(Net().cuda())
for x in range(9):
    runner.evaluate(range(90))
    @1
""",
        ("pass",),
        ("runner.left(range(90))",),
        {
            "models.py": NET
            + """
class Runner:
    def __init__(self, net: Net):
        self.net = net

    def evaluate(self, loader):
        print(len(loader))

    def left(self, loader):
        self.net.eval()
        for x in loader:
            print(self.net(x.cuda()).argmax(1))
"""
        },
    ),
    Promise(
        "a program that moves nothing to a device",
        "TML201",
        NOTE,
        EVALUATE.replace("Net().cuda()", "Net()@4").replace(
            "    net.eval()", "    net.load_state_dict(torch.load('net.pt', map_location='cpu'))\n    net.eval()"
        ),
        ("pass", SHOWN.replace(".cuda()", ""), "pass", ""),
        (*PLAIN, ".cuda()"),
    ),
    Promise(
        "an input that is made on the host",
        "TML201",
        NOTE,
        EVALUATE.replace("net = Net().cuda()", "net = torch.load('net.pt', weights_only=False)"),
        ("pass", "print(net(torch.rand(64, 3, 224, 224)).argmax(1))", "pass"),
        ("pass", "print(net(torch.rand(64, 3, 224, 224).cuda()).argmax(1))", "pass"),
    ),
    Promise(
        "numpy() would raise for a tensor on a GPU",
        "TML201",
        NOTE,
        EVALUATE.replace("net = Net().cuda()", "net = torch.load('net.pt', weights_only=False)"),
        ("net.cuda()", "print(net(x.cuda()).detach().numpy())", "pass"),
        ("net.cuda()", "print(net(x.cuda()).detach().cpu().numpy())", "pass"),
    ),
    Promise(
        "all parameters frozen, and no input requires grad",
        "TML201",
        SILENT,
        EVALUATE,
        ("for p in net.parameters(): p.requires_grad = False", SHOWN, "pass"),
        PLAIN,
    ),
]
