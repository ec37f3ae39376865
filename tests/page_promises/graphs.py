"""TML105 to TML109."""

from page_promises import NET, NOTE, SILENT, START, WARNING, Promise

RECURRENT = (
    NET
    + """
def train(loader):
    cell, head = nn.GRUCell(512, 512).cuda(), nn.Linear(512, 10).cuda()
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], 0.1)
    for chunks, targets in loader:
        state = torch.zeros(64, 512, device="cuda")
        total = 0
        for x, y in zip(chunks.cuda(), targets.cuda()):
            state = cell(x, state)
            loss = F.cross_entropy(head(state), y)
            @1
        @2
"""
    + START
)

AGAIN = (
    NET
    + """
def train(loader):
    net, other = Net().cuda(), Net().cuda()
    optimizer = torch.optim.SGD([*net.parameters(), *other.parameters()], 0.1)
    for x, y in loader:
        out = net(x.cuda())
        loss = F.cross_entropy(out, y.cuda())
        second = F.cross_entropy(@1, y.cuda())
        optimizer.zero_grad()
        @2
        optimizer.step()
"""
    + START
)

SIZED = (
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

def train(loader):
    net = Net()@3
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        loss = F.cross_entropy(net(x@3), y@3)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
"""
    + START
)

LARGE = (
    "self.body = nn.Conv2d(3, 512, 3); self.head = nn.Linear(512, 1000)",
    "self.head(self.body(x).mean((2, 3)))",
    ".cuda()",
)

CREATES = (
    NET
    + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        @1
        penalty = sum(p.grad.square().sum() for p in net.parameters())
        print(penalty.item())
        optimizer.step()
        @2
"""
    + START
)

LEAF = (
    NET
    + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        mixed = (0.5 * x.cuda() + 0.5 * torch.rand_like(x.cuda())).requires_grad_()
        net(mixed).square().mean().backward(create_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        @1
"""
    + START
)

FUNCTION = """
import torch
import extension

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, factor: float):
        result = x.exp() * factor
        @1
        return result

    @staticmethod
    def backward(ctx, grad):
        return grad, None
"""

HOOKED = (
    NET
    + """
def train(loader):
    net = Net().cuda()
    net.eval()
    outputs = @1

    def keep(module, inputs, output):
        @2

    handle = net.body.register_forward_hook(keep)
    for x in loader:
        print(net(x.cuda()).argmax(1))
        @3
    @4
"""
    + START
)

CACHED = """
import torch
from functools import lru_cache, cache, cached_property
from torch import nn

class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    @1
    def table(@2):
        return torch.arange(@3).float()

def use():
    rotary = Rotary()
    return rotary.table

use()
"""


PROMISES = [
    Promise(
        "a later backward goes through the graph",
        "TML105",
        SILENT,
        AGAIN,
        ("other(x.cuda()) + out", "loss.backward(retain_graph=True)\nsecond.backward()"),
        ("other(x.cuda())", "loss.backward(retain_graph=True)\nsecond.backward()"),
    ),
    Promise(
        "a graph from before the loop",
        "TML105",
        SILENT,
        AGAIN,
        ("out", "for row in range(5):\n    out[0, row].backward(retain_graph=True)"),
        ("out", "for row in range(5):\n    net(x.cuda())[0, row].backward(retain_graph=True)"),
    ),
    Promise(
        "state of an earlier step",
        "TML105",
        SILENT,
        RECURRENT,
        ("optimizer.zero_grad()\nloss.backward(retain_graph=True)\noptimizer.step()", "pass"),
        ("optimizer.zero_grad()\nloss.backward(retain_graph=True)\noptimizer.step()\nstate = state.detach()", "pass"),
    ),
    Promise(
        "what another method left in an attribute",
        "TML105",
        SILENT,
        NET
        + """
class Trainer:
    def __init__(self):
        self.net = Net().cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)

    def prepare(self, x):
        self.seen = self.net(x.cuda())

    def step(self, loader):
        for x, y in loader:
            out = self.net(x.cuda())
            loss = F.cross_entropy(out, y.cuda()) + @1
            loss.backward(retain_graph=True)
            self.optimizer.step()
""",
        ("self.seen.mean()",),
        ("out.mean()",),
    ),
    Promise(
        "a loss from callers that are not visible",
        "TML105",
        SILENT,
        NET
        + """
def step(loss, net: Net, optimizer, x, y):
    @1
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
""",
        ("pass",),
        ("loss = F.cross_entropy(net(x.cuda()), y.cuda())",),
    ),
    Promise(
        "passed to code that is not visible before the step",
        "TML105",
        SILENT,
        NET.replace("import torch\n", "import torch, ourlib\n", 1)
        + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        loss.backward(retain_graph=True)
        @1
        optimizer.step()
        optimizer.zero_grad()
"""
        + START,
        ("ourlib.more(loss)",),
        ("ourlib.more(y)",),
    ),
    Promise(
        "linear layers of small width",
        "TML105",
        NOTE,
        SIZED,
        ("self.a = nn.Linear(64, 256); self.b = nn.Linear(256, 10)", "self.b(torch.relu(self.a(x)))", ".cuda()"),
        LARGE,
    ),
    Promise(
        "linear layers of unknown width",
        "TML105",
        NOTE,
        SIZED.replace("def __init__(self)", "def __init__(self, width)").replace("Net()", "Net(int(input()))"),
        ("self.a = nn.Linear(64, width); self.b = nn.Linear(width, 10)", "self.b(torch.relu(self.a(x)))", ".cuda()"),
        LARGE,
    ),
    Promise(
        "a single layer",
        "TML105",
        NOTE,
        SIZED.replace("net = Net()@3", "net = @4\n    net@3"),
        (*LARGE, "nn.Linear(9000, 9000)"),
        (*LARGE, "Net()"),
    ),
    Promise(
        "a network of a single layer",
        "TML105",
        NOTE,
        SIZED,
        ("self.a = nn.Linear(9000, 9000)", "self.a(x)", ".cuda()"),
        LARGE,
    ),
    Promise("nothing is moved to a device", "TML105", NOTE, SIZED, (*LARGE[:2], ""), LARGE),
    Promise(
        "the function returns after one step",
        "TML105",
        NOTE,
        NET
        + """
def step(net, optimizer, x, y):
    loss = F.cross_entropy(net(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    return @1

def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        loss = step(net, optimizer, x, y)
        print(loss)
"""
        + START,
        ("loss.item()",),
        ("loss",),
    ),
    Promise(
        "autograd.grad, which returns the gradients",
        "TML106",
        SILENT,
        CREATES,
        ("torch.autograd.grad(loss, list(net.parameters()), create_graph=True)", "pass"),
        ("loss.backward(create_graph=True)", "pass"),
    ),
    Promise(
        "an argument that is no literal True",
        "TML106",
        SILENT,
        CREATES,
        ("loss.backward(create_graph=len(x) > 3)", "pass"),
        ("loss.backward(create_graph=True)", "pass"),
    ),
    Promise(
        ".grad is reset later in the step",
        "TML106",
        SILENT,
        CREATES,
        ("loss.backward(create_graph=True)", "for p in net.parameters():\n    p.grad = None"),
        ("loss.backward(create_graph=True)", "pass"),
    ),
    Promise(
        ".grad is deleted later in the step",
        "TML106",
        SILENT,
        CREATES,
        ("loss.backward(create_graph=True)", "for p in net.parameters():\n    del p.grad"),
        ("loss.backward(create_graph=True)", "pass"),
    ),
    Promise(
        "zero_grad without set_to_none=False",
        "TML106",
        SILENT,
        CREATES,
        ("loss.backward(create_graph=True)", "optimizer.zero_grad()"),
        ("loss.backward(create_graph=True)", "optimizer.zero_grad(set_to_none=False)"),
    ),
    Promise("an input's own .grad is reset", "TML106", SILENT, LEAF, ("mixed.grad = None",), ("pass",)),
    Promise("sizes", "TML107", SILENT, FUNCTION, ("ctx.size = x.shape",), ("ctx.result = result",)),
    Promise("dtypes", "TML107", SILENT, FUNCTION, ("ctx.kind = x.dtype",), ("ctx.result = result",)),
    Promise("numbers and options", "TML107", SILENT, FUNCTION, ("ctx.factor = factor",), ("ctx.result = result",)),
    Promise(
        "the state of a generator", "TML107", SILENT, FUNCTION, ("ctx.state = torch.get_rng_state()",), ("ctx.result = result",)
    ),
    Promise("tensors without elements", "TML107", SILENT, FUNCTION, ("ctx.empty = torch.empty(0)",), ("ctx.result = result",)),
    Promise("scalars", "TML107", SILENT, FUNCTION, ("ctx.one = torch.tensor(1.0)",), ("ctx.result = result",)),
    Promise(
        "results of an extension",
        "TML107",
        SILENT,
        FUNCTION,
        ("ctx.other = extension.run(x)",),
        ("ctx.other = torch.rand_like(x)",),
    ),
    Promise("an input", "TML107", NOTE, FUNCTION, ("ctx.x = x",), ("ctx.result = result",)),
    Promise("another tensor", "TML107", NOTE, FUNCTION, ("ctx.other = torch.rand_like(x)",), ("ctx.result = result",)),
    Promise("an output", "TML107", WARNING, FUNCTION, ("ctx.result = result",), ("ctx.x = x",)),
    Promise(
        "detached values",
        "TML108",
        SILENT,
        HOOKED,
        ("[]", "outputs.append(output.detach())", "pass", "pass"),
        ("[]", "outputs.append(output)", "pass", "pass"),
    ),
    Promise(
        "numbers",
        "TML108",
        SILENT,
        HOOKED,
        ("[]", "outputs.append(output.mean().item())", "pass", "pass"),
        ("[]", "outputs.append(output)", "pass", "pass"),
    ),
    Promise(
        "one entry per layer",
        "TML108",
        SILENT,
        HOOKED,
        ("{}", "outputs['body'] = output", "pass", "pass"),
        ("[]", "outputs.append(output)", "pass", "pass"),
    ),
    Promise(
        "a hook that is removed",
        "TML108",
        SILENT,
        HOOKED,
        ("[]", "outputs.append(output)", "pass", "handle.remove()"),
        ("[]", "outputs.append(output)", "pass", "pass"),
    ),
    Promise(
        "a container that is emptied",
        "TML108",
        SILENT,
        HOOKED,
        ("[]", "outputs.append(output)", "outputs.clear()", "pass"),
        ("[]", "outputs.append(output)", "pass", "pass"),
    ),
    Promise(
        "a container that is popped",
        "TML108",
        SILENT,
        HOOKED,
        ("[]", "outputs.append(output)", "outputs.pop()", "pass"),
        ("[]", "outputs.append(output)", "pass", "pass"),
    ),
    Promise(
        "a function with numbers",
        "TML109",
        SILENT,
        "from functools import lru_cache\nimport torch\n\n@lru_cache(maxsize=32)\ndef table(@1):\n    return torch.zeros(8) + length\n",
        ("length: int",),
        ("length: torch.Tensor",),
    ),
    Promise(
        "a static method",
        "TML109",
        SILENT,
        CACHED,
        ("@staticmethod\n@lru_cache", "length", "length"),
        ("@lru_cache", "self, length", "length"),
    ),
    Promise(
        "a class method",
        "TML109",
        SILENT,
        CACHED,
        ("@classmethod\n@lru_cache", "cls, length", "length"),
        ("@lru_cache", "self, length", "length"),
    ),
    Promise("cached_property", "TML109", SILENT, CACHED, ("@cached_property", "self", "8"), ("@cache", "self", "8")),
    Promise(
        "maxsize=0",
        "TML109",
        SILENT,
        CACHED,
        ("@lru_cache(maxsize=0)", "self, length", "length"),
        ("@lru_cache(maxsize=2)", "self, length", "length"),
    ),
]
