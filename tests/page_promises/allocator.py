"""TML301 to TML309."""

from page_promises import ERROR, NET, NOTE, SILENT, START, WARNING, Promise

LOOP = (
    NET
    + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    @1
    for x, y in loader:
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        @2
    @3
"""
    + START
)
EMPTY = "torch.cuda.empty_cache()"
EVERY = ("pass", EMPTY, "pass")
GENERATE = (
    NET.replace("import torch\n", "import torch, torchvision, time\n", 1)
    + """
@torch.no_grad()
def generate(loader):
    net = Net().cuda()
    net.eval()
    for number, (x, y) in enumerate(loader):
        @1
        torch.cuda.empty_cache()
"""
    + START.replace("train", "generate")
)
HANDLED = (
    NET
    + """
def fits(net: Net, x, optimizer):
    @1
    try:
        @2
    except @3:
        @4
    @5
"""
)
STEP = "net(x.cuda()).sum().backward()\noptimizer.step()"
OOM = "torch.OutOfMemoryError"
FREED = """
import gc
import torch

def free(model):
    @1
    del model
    gc.collect()
    torch.cuda.empty_cache()

def compare(load, batch@2):
    @3
    with torch.no_grad():
        first = model(batch).mean().item()
    @4
    other = load("other").cuda()
    with torch.no_grad():
        return first - other(batch).mean().item()
"""
HELD = ("pass", "", 'model = load("one").cuda()', "free(model)")
MATCHED = """
import torch
@1

def fits(model, batch, optimizer):
    try:
        model(batch.cuda()).sum().backward()
    except @2:
        if @3:
            optimizer.zero_grad()
            return False
        raise
    return True
"""
ON_MPS = 'DEVICE = "mps" if torch.backends.mps.is_available() else "cuda"'
SAYS = ("RuntimeError as error", '"CUDA out of memory" in str(error)')
DECIDES = """
import torch
DEVICE = "mps" if torch.backends.mps.is_available() else "cuda"

def is_oom(error@1) -> bool:
    return @2"CUDA out of memory" in str(error)
"""
FRACTION = """
import torch

def main(run, loader):
    @1
    for x in loader:
        @2
"""
LATE = """
@1
import torch
from torch import nn

def main():
    model = nn.Linear(9, 9)
    @2
    model = model.to("cuda")
    @3
    return model

main()
"""
SETS = 'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"'

STAGES = (
    NET
    + """
def compare(loader, names):
    net = Net().cuda()
    for name in names:
        @1
        for x, y in loader:
            print(net(x.cuda()).argmax(1))
        @2
        torch.cuda.empty_cache()

compare(DataLoader(torch.load("data.pt", map_location="cpu"), batch_size=64), range(90))
"""
)

PROMISES = [
    Promise(
        "a loop of epochs",
        "TML301",
        SILENT,
        NET
        + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(90):
        for x, y in loader:
            loss = F.cross_entropy(net(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            @1
        @2
"""
        + START,
        ("pass", EMPTY),
        (EMPTY, "pass"),
    ),
    Promise(
        "each iteration makes its own model",
        "TML301",
        SILENT,
        STAGES,
        ("net = Net().cuda()", "pass"),
        ("pass", "F.mse_loss(net(x.cuda()), y).backward()"),
    ),
    Promise(
        "each iteration deletes its own model",
        "TML301",
        SILENT,
        STAGES,
        ("net = torch.load(name, weights_only=False)", "del net"),
        ("pass", "F.mse_loss(net(x.cuda()), y).backward()"),
    ),
    Promise(
        "the components of a model",
        "TML301",
        SILENT,
        NET
        + """
def offload(net: Net, loader):
    for @1:
        @2
        torch.cuda.empty_cache()
""",
        ("part in net.children()", "part.cpu()"),
        ("x in loader", "print(net(x.cuda()).argmax(1))"),
    ),
    Promise(
        "the end of a forward over frames",
        "TML301",
        SILENT,
        """
import torch
from torch import nn

class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 512, 3)

    def forward(self, frames):
        @1
        torch.cuda.empty_cache()
        return out
""",
        ("out = []\nfor frame in frames:\n    out.append(self.body(frame))",),
        ("out = self.body(frames)",),
    ),
    Promise(
        "attempts until the first success",
        "TML301",
        SILENT,
        NET
        + """
def run(net: Net, x, sizes):
    for size in sizes:
        torch.cuda.empty_cache()
        try:
            @1 net(x[:size].cuda())
        except RuntimeError:
            continue
""",
        ("return",),
        ("out =",),
    ),
    Promise(
        "rate-limited",
        "TML301",
        SILENT,
        LOOP,
        ("step = 0", "step += 1\nif step % 100 == 0:\n    torch.cuda.empty_cache()", "pass"),
        EVERY,
    ),
    Promise(
        "by a measurement",
        "TML301",
        SILENT,
        LOOP,
        ("pass", "if torch.cuda.memory_reserved() > 8e9:\n    torch.cuda.empty_cache()", "pass"),
        EVERY,
    ),
    Promise(
        "rate-limited, unless a step has the same condition",
        "TML301",
        SILENT,
        LOOP.replace("        optimizer.step()\n", ""),
        ("step = 0", "step += 1\noptimizer.step()\nif step % 4 == 0:\n    torch.cuda.empty_cache()", "pass"),
        ("step = 0", "step += 1\nif step % 4 == 0:\n    optimizer.step()\n    torch.cuda.empty_cache()", "pass"),
    ),
    Promise(
        "a method of that name on another object", "TML301", SILENT, LOOP, ("store = {}", "store.empty_cache()", "pass"), EVERY
    ),
    Promise(
        "in a module that no eval() reaches",
        "TML301",
        SILENT,
        """
import torch
from torch import nn

class Loss(nn.Module):
    def forward(self, x, y):
        @1
        return (x - y).square().mean()
""",
        ("if not self.training:\n    torch.cuda.empty_cache()",),
        ("if self.training:\n    torch.cuda.empty_cache()",),
    ),
    Promise(
        "unit tests",
        "TML301",
        SILENT,
        NET
        + """
import unittest

class Some(@1):
    def test_it(self):
        net = Net().cuda()
        for x in range(900):
            print(net(torch.rand(9, 3, 9, 9).cuda()).argmax(1))
            torch.cuda.empty_cache()
""",
        ("unittest.TestCase",),
        ("object",),
    ),
    Promise(
        "each iteration runs a loop of forwards",
        "TML301",
        NOTE,
        GENERATE,
        ("for _ in range(50):\n    x = net(x.cuda())",),
        ("print(net(x.cuda()).mean())",),
    ),
    Promise(
        "each iteration writes a picture",
        "TML301",
        NOTE,
        GENERATE,
        ("torchvision.utils.save_image(net(x.cuda()), f'{number}.png')",),
        ("print(net(x.cuda()).mean())",),
    ),
    Promise(
        "a handler that continues",
        "TML302",
        SILENT,
        HANDLED,
        ("pass", STEP, OOM, f"{EMPTY}\nx = None", "pass"),
        ("pass", STEP, OOM, f"{EMPTY}\nraise", "pass"),
    ),
    Promise(
        "a retry",
        "TML303",
        ERROR,
        HANDLED,
        ("pass", STEP, OOM, "net(x[:4].cuda()).sum().backward()", "pass"),
        ("pass", STEP, OOM, EMPTY, "pass"),
    ),
    Promise(
        "a fallback that only gives a default",
        "TML303",
        SILENT,
        HANDLED.replace("def fits", "def halves(net: Net, x):\n    return @6\n\ndef fits"),
        ("out = None", "out = net(x.cuda())", OOM, "out = halves(net, x)", "return out", "torch.zeros(len(x))"),
        (
            "out = None",
            "out = net(x.cuda())",
            OOM,
            "out = halves(net, x)",
            "return out",
            "torch.cat([net(half.cuda()) for half in x.chunk(2)])",
        ),
    ),
    Promise(
        "a stored exception",
        "TML303",
        ERROR,
        HANDLED.replace("def fits", "seen = []\n\ndef fits"),
        ("pass", STEP, OOM + " as error", "seen.append(error)", "pass"),
        ("pass", STEP, OOM, EMPTY, "pass"),
    ),
    Promise(
        "only a move to the device failed",
        "TML303",
        WARNING,
        HANDLED,
        ("pass", "net.cuda()", OOM, f"{EMPTY}\nnet.cuda()", "pass"),
        ("pass", STEP, OOM, "net(x[:4].cuda()).sum().backward()", "pass"),
    ),
    Promise(
        "a cleanup without a retry",
        "TML303",
        NOTE,
        HANDLED,
        ("pass", STEP, OOM, EMPTY, "pass"),
        ("pass", STEP, OOM, f"{EMPTY}\nnet(x[:4].cuda()).sum().backward()", "pass"),
    ),
    Promise(
        "a retry on the host",
        "TML303",
        NOTE,
        HANDLED,
        ("pass", STEP, OOM, "net.cpu()(x.cpu()).sum().backward()", "pass"),
        ("pass", STEP, OOM, "net(x[:4].cuda()).sum().backward()", "pass"),
    ),
    Promise(
        "setting a flag",
        "TML303",
        SILENT,
        HANDLED,
        ("failed = False", STEP, OOM, "failed = True", "return failed"),
        ("pass", STEP, OOM, EMPTY, "pass"),
    ),
    Promise(
        "logging and raising again",
        "TML303",
        SILENT,
        HANDLED,
        ("pass", STEP, OOM, "print('too large')\nraise", "pass"),
        ("pass", STEP, OOM, EMPTY, "pass"),
    ),
    Promise(
        "a cleanup repeated directly after the try",
        "TML303",
        SILENT,
        HANDLED,
        ("pass", STEP, OOM, EMPTY, EMPTY),
        ("pass", STEP, OOM, EMPTY, "pass"),
    ),
    Promise(
        "a cleanup repeated in the finally",
        "TML303",
        SILENT,
        HANDLED.replace("    @5", "    finally:\n        @5"),
        ("pass", STEP, OOM, EMPTY, EMPTY),
        ("pass", STEP, OOM, EMPTY, "pass"),
    ),
    Promise(
        "a cleanup at the start of the next attempt",
        "TML303",
        SILENT,
        NET
        + """
def run(net: Net, x, optimizer):
    for size in (64, 32, 16):
        @1
        try:
            net(x[:size].cuda()).sum().backward()
            optimizer.step()
            return
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
""",
        (EMPTY,),
        ("pass",),
    ),
    Promise(
        "a cleanup, if only a move to the device failed",
        "TML303",
        SILENT,
        HANDLED,
        ("pass", "net.to('cuda')", OOM, EMPTY, "pass"),
        ("pass", STEP, OOM, EMPTY, "pass"),
    ),
    Promise(
        "only torch's own operations, and nothing that they bind",
        "TML303",
        SILENT,
        HANDLED,
        ("y = None", "y = torch.matmul(x, x.T)", OOM, "y = None\ny = torch.matmul(x[:9], x.T)", "return y"),
        ("y = None", "z = torch.matmul(x, x.T)\ny = z.exp()", OOM, "y = torch.matmul(x[:9], x.T)", "return y"),
    ),
    Promise(
        "a recovery that TML303 reports",
        "TML304",
        SILENT,
        MATCHED.replace("optimizer.zero_grad()", "@4"),
        (ON_MPS, *SAYS, "model(batch[:4].cuda()).sum().backward()"),
        (ON_MPS, *SAYS, "optimizer.zero_grad()"),
    ),
    Promise(
        "a function that tests the class as well",
        "TML304",
        SILENT,
        DECIDES,
        (": BaseException", "isinstance(error, torch.OutOfMemoryError) or "),
        (": BaseException", ""),
    ),
    Promise("nothing says that it is an exception", "TML304", SILENT, DECIDES, ("", ""), (": BaseException", "")),
    Promise(
        "after a handler that catches the class",
        "TML304",
        SILENT,
        MATCHED.replace("    except @2", "    @4\n    except @2"),
        (ON_MPS, *SAYS, "except torch.OutOfMemoryError:\n    return False"),
        (ON_MPS, *SAYS, "except ValueError:\n    return False"),
    ),
    Promise(
        "messages of other failures",
        "TML304",
        SILENT,
        MATCHED,
        (ON_MPS, SAYS[0], '"CUBLAS_STATUS_NOT_SUPPORTED" in str(error)'),
        (ON_MPS, *SAYS),
    ),
    Promise("a torch without the class", "TML304", SILENT, MATCHED, (ON_MPS, *SAYS), (ON_MPS, *SAYS), target=("1.12", "1.13")),
    Promise(
        "out of memory alone", "TML304", NOTE, MATCHED, (ON_MPS, SAYS[0], '"out of memory" in str(error)'), (ON_MPS, *SAYS)
    ),
    Promise("nothing says that it runs on another device", "TML304", NOTE, MATCHED, ("pass", *SAYS), (ON_MPS, *SAYS)),
    Promise(
        "a share that is set once",
        "TML305",
        SILENT,
        FRACTION,
        ("torch.cuda.set_per_process_memory_fraction(0.5)", "run(x)"),
        ("pass", "torch.cuda.set_per_process_memory_fraction(0.5)\nrun(x)"),
    ),
    Promise(
        "a share that is set once for each device",
        "TML305",
        SILENT,
        FRACTION.replace("in loader", "in @3"),
        ("pass", "torch.cuda.set_per_process_memory_fraction(0.5, x)", "range(torch.cuda.device_count())"),
        ("pass", "torch.cuda.set_per_process_memory_fraction(0.5)\nrun(x)", "loader"),
    ),
    Promise(
        "an int",
        "TML306",
        ERROR,
        FRACTION,
        ("torch.cuda.set_per_process_memory_fraction(1)", "run(x)"),
        ("torch.nn.Linear(9, 9).cuda()(torch.rand(9, 9).cuda())\ntorch.cuda.set_per_process_memory_fraction(0.5)", "run(x)"),
    ),
    Promise(
        "a number above 1",
        "TML306",
        ERROR,
        FRACTION,
        ("torch.cuda.set_per_process_memory_fraction(1.5)", "run(x)"),
        ("torch.nn.Linear(9, 9).cuda()(torch.rand(9, 9).cuda())\ntorch.cuda.set_per_process_memory_fraction(0.5)", "run(x)"),
    ),
    Promise(
        "1.5 for MPS",
        "TML306",
        SILENT,
        FRACTION,
        ("torch.mps.set_per_process_memory_fraction(1.5)", "run(x)"),
        ("torch.mps.set_per_process_memory_fraction(2.5)", "run(x)"),
    ),
    Promise(
        "after a model has run",
        "TML306",
        WARNING,
        FRACTION,
        ("torch.nn.Linear(9, 9).cuda()(torch.rand(9, 9).cuda())\ntorch.cuda.set_per_process_memory_fraction(0.5)", "run(x)"),
        ("torch.cuda.set_per_process_memory_fraction(1.5)", "run(x)"),
    ),
    Promise(
        "between the import and the first use of the device",
        "TML307",
        SILENT,
        LATE,
        ("import os", SETS, "pass"),
        ("import os", "pass", SETS),
    ),
    Promise(
        "a backend before the import",
        "TML307",
        SILENT,
        LATE,
        ("import os\n" + SETS.replace("expandable_segments:True", "backend:cudaMallocAsync"), "pass", "pass"),
        ("import os", SETS.replace("expandable_segments:True", "backend:cudaMallocAsync"), "pass"),
    ),
    Promise(
        "valid options",
        "TML307",
        SILENT,
        LATE,
        ("import os", SETS, "pass"),
        ("import os", SETS.replace(":True", ":true"), "pass"),
    ),
    Promise(
        "the environment of a child process",
        "TML307",
        SILENT,
        LATE,
        (
            "import os, subprocess",
            "pass",
            "subprocess.run(['true'], env={**os.environ, 'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'})",
        ),
        ("import os, subprocess", "pass", SETS),
    ),
    Promise(
        "PYTORCH_ALLOC_CONF, from torch 2.10 on",
        "TML307",
        SILENT,
        LATE,
        ("import os", SETS.replace("CUDA_ALLOC", "ALLOC"), "pass"),
        ("import os", SETS.replace("CUDA_ALLOC", "ALLOC"), "pass"),
        target=("2.10", "2.9"),
    ),
    Promise(
        "a use that another rule reports",
        "TML308",
        SILENT,
        FRACTION,
        ("pass", "torch.cuda.set_per_process_memory_fraction(0.5)\nrun(x)"),
        ("torch.cuda.set_per_process_memory_fraction(0.5)", "run(x)"),
    ),
    Promise("helpers that move the object to the host", "TML309", SILENT, FREED, ("model.cpu()", *HELD[1:]), HELD),
    Promise("helpers that shut the object down", "TML309", SILENT, FREED, ("model.shutdown()", *HELD[1:]), HELD),
    Promise("callers that delete the name", "TML309", SILENT, FREED, (*HELD[:3], "free(model)\ndel model"), HELD),
    Promise("callers that bind the name to None", "TML309", SILENT, FREED, (*HELD[:3], "free(model)\nmodel = None"), HELD),
    Promise("callers that use the object again", "TML309", SILENT, FREED, (*HELD[:3], "free(model)\nprint(model)"), HELD),
    Promise("callers that end there", "TML309", SILENT, FREED, (*HELD[:3], "free(model)\nreturn first"), HELD),
    Promise("callers that hand over what no name holds", "TML309", SILENT, FREED, (*HELD[:3], 'free(load("one"))'), HELD),
    Promise("callers that were handed the object", "TML309", SILENT, FREED, ("pass", ", model", "pass", "free(model)"), HELD),
    Promise("helpers that nothing visible calls", "TML309", SILENT, FREED, (*HELD[:3], "pass"), HELD),
]
