"""TML501 to TML508."""

from page_promises import ERROR, NET, NOTE, SILENT, START, WARNING, Promise

TRAIN = (
    NET
    + """
def train(loader):
    net = Net()@1
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    @2
    for x, y in loader:
        @3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    + START
)
LOSS = "loss = F.cross_entropy(net(x.cuda()), y.cuda())"
FULL = (".cuda()", "pass", LOSS)
CHECKPOINT = (
    NET.replace("nn.Conv2d(3, 512, 3)", "nn.Conv2d(3, 3, 3)")
    + """
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

def train(loader, **options):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        x = torch.rand(64, 3, 99, 99).cuda()
        @1
        F.cross_entropy(out, y.cuda()).backward()
        optimizer.step()
"""
    + START
)
REENTRANT = "out = net.head(checkpoint(net.body, x, use_reentrant=True).mean((2, 3)))"
ATTENTION = """
import torch
from torch import nn
from torch.nn import functional as F

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.rand(64, 32))
        self.q, self.k = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = self.q(x), @1, x
        weights = torch.softmax(q @ k.transpose(-2, -1), dim=@2)
        out = weights @ v
        return @3

    def other(self, q, k, v):
        return @4
"""
WRITTEN = ("self.k(x)", "-1", "out", "q + k")
ZEROED = """
import torch

def train(net, loader, criterion, optimizer, to_none):
    for x, y in loader:
        @1
        criterion(net(x), y).backward()
        optimizer.step()
        @2
"""
LOADED = (
    """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(@1, @1), nn.Linear(@1, 10)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

def train(loader, **options):
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters())
    @2
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(x.cuda()), y.cuda()).backward()
        optimizer.step()
    @3
"""
    + START
)
KEPT = ("8192", 'state = torch.load("net.pt", map_location="cuda")\nnet.load_state_dict(state)', "pass")
LOST = ("8192", 'net.load_state_dict(torch.load("net.pt"))', "pass")
SEVERAL = """
import os
import torch
from torch import nn

def main(loader):
    rank = int(os.environ.get("LOCAL_RANK", 0))
    @1
    net = nn.Linear(8192, 8192).cuda(rank)
    net.load_state_dict(torch.load("start.pt"))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
        optimizer.step()
    @2

main(torch.load("data.pt", map_location="cpu"))
"""
MICRO = (
    NET
    + """
def train(loader, views):
    net = Net()@1
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        optimizer.zero_grad()
        total, state = 0.0, torch.zeros(9)
        trunk = net(x@1)
        for @2:
            @3
        @4
        optimizer.step()

train(DataLoader(torch.load("data.pt", map_location="cpu"), batch_size=64), torch.load("views.pt", map_location="cpu"))
"""
)
PARTS = "part, wanted in zip(x.chunk(8), y.chunk(8))"
ADDED = "total = total + F.cross_entropy(net(part.cuda()), wanted.cuda())"
SUMMED = (".cuda()", PARTS, ADDED, "total.backward()")
LOGITS = """
import torch
from transformers import AutoModelForCausalLM

@torch.no_grad()
def generate(ids):
    model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
    outputs = model(input_ids=ids@1)
    @2
    return outputs.logits[:, -1].argmax(-1)
"""
AMP = """
@1
import torch
from torch import nn

def train(net: nn.Module, loader, optimizer):
    @2
    for x in loader:
        @3
        optimizer.step()
"""

OF_A_RANK = """
import os
import torch
import torch.distributed as dist
from torch import nn

def resume(net, optimizer, folder):
    path = os.path.join(folder, @1)
    state = torch.load(path)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])

def train(net: nn.Module, loader, folder):
    dist.init_process_group("nccl")
    net.cuda(int(os.environ["LOCAL_RANK"]))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    resume(net, optimizer, folder)
    for x, y in loader:
        nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
PROMISES = [
    Promise(
        "each process loads a file of its own",
        "TML506",
        NOTE,
        OF_A_RANK,
        ('f"model.{dist.get_rank()}.pt"',),
        ('"model.pt"',),
    ),
    Promise(
        "names that are also imported from torch.amp",
        "TML501",
        SILENT,
        AMP,
        (
            "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler",
            "scaler = GradScaler()",
            "scaler.scale(net(x).sum()).backward()",
        ),
        ("from torch.cuda.amp import GradScaler", "scaler = GradScaler()", "scaler.scale(net(x).sum()).backward()"),
    ),
    Promise(
        "imports under TYPE_CHECKING",
        "TML501",
        SILENT,
        AMP,
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch.cuda.amp import GradScaler",
            "pass",
            "net(x).sum().backward()",
        ),
        ("from torch.cuda.amp import GradScaler", "scaler = GradScaler()", "scaler.scale(net(x).sum()).backward()"),
    ),
    Promise(
        "names that are only used in isinstance",
        "TML501",
        SILENT,
        AMP,
        ("pass", "print(isinstance(optimizer, torch.cuda.amp.GradScaler))", "net(x).sum().backward()"),
        ("pass", "scaler = torch.cuda.amp.GradScaler()", "scaler.scale(net(x).sum()).backward()"),
    ),
    Promise(
        "a scaler without a replacement",
        "TML501",
        SILENT,
        AMP,
        ("from torch.cuda.amp import GradScaler", "scaler = GradScaler()", "scaler.scale(net(x).sum()).backward()"),
        ("from torch.cuda.amp import GradScaler", "scaler = GradScaler()", "scaler.scale(net(x).sum()).backward()"),
        target=("2.2", "2.3"),
    ),
    Promise(
        "autocast without a replacement",
        "TML501",
        SILENT,
        AMP,
        ("from torch.cuda.amp import autocast", "pass", "with autocast():\n    net(x).sum().backward()"),
        ("from torch.cuda.amp import autocast", "pass", "with autocast():\n    net(x).sum().backward()"),
        target=("1.9", "1.10"),
    ),
    Promise(
        "custom_fwd without a replacement",
        "TML501",
        SILENT,
        AMP,
        ("from torch.cuda.amp import custom_fwd", "run = custom_fwd(print)", "net(x).sum().backward()"),
        ("from torch.cuda.amp import custom_fwd", "run = custom_fwd(print)", "net(x).sum().backward()"),
        target=("2.3", "2.4"),
    ),
    *(
        Promise(f"the project uses {what}", "TML502", SILENT, TRAIN, (".cuda()", before, loss), FULL)
        for what, before, loss in (
            ("autocast", "pass", f"with torch.autocast('cuda', dtype=torch.bfloat16):\n    {LOSS}"),
            ("bfloat16", "net = net.bfloat16()", LOSS),
            ("float16", "kind = torch.float16", LOSS),
            ("half", "net.half()", LOSS),
            ("a scaler", "scaler = torch.amp.GradScaler()", LOSS),
            ("a framework's precision", "trainer = Trainer(precision='bf16-mixed')", LOSS),
            ("mixed_precision of a framework", "accelerator = Accelerator(mixed_precision='fp16')", LOSS),
            ("fp16 of a framework", "arguments = TrainingArguments(fp16=True)", LOSS),
            ("bf16 of a framework", "arguments = TrainingArguments(bf16=True)", LOSS),
            ("TF32", "torch.backends.cuda.matmul.allow_tf32 = True", LOSS),
            ("TF32 by precision", "torch.set_float32_matmul_precision('high')", LOSS),
        )
    ),
    Promise("a program on the host", "TML502", SILENT, TRAIN, ("", "pass", LOSS.replace(".cuda()", "")), FULL),
    Promise(
        "arguments from elsewhere",
        "TML503",
        SILENT,
        CHECKPOINT,
        ("out = net.head(checkpoint(net.body, x, **options).mean((2, 3)))",),
        (REENTRANT,),
    ),
    Promise(
        "grad mode off", "TML503", SILENT, CHECKPOINT, (f"with torch.no_grad():\n    {REENTRANT}\nout = net(x)",), (REENTRANT,)
    ),
    Promise(
        "no use_reentrant, and an input that requires grad",
        "TML503",
        SILENT,
        CHECKPOINT,
        ("out = net.head(checkpoint(net.body, net.body(x)).mean((2, 3)))",),
        ("out = net.head(checkpoint(net.body, x).mean((2, 3)))",),
    ),
    Promise(
        "checkpoint_sequential without an input",
        "TML503",
        ERROR,
        CHECKPOINT,
        ("body = checkpoint_sequential(net.body, segments=4)\nout = body(x).mean((2, 3))",),
        ("out = checkpoint_sequential(net.body, 1, x, use_reentrant=False).mean((2, 3))",),
    ),
    Promise(
        "the reentrant variant without an input that requires grad",
        "TML503",
        ERROR,
        CHECKPOINT,
        (REENTRANT,),
        ("out = checkpoint_sequential(net.body, 1, x, use_reentrant=False).mean((2, 3))",),
    ),
    Promise(
        "attention whose weights are returned", "TML504", SILENT, ATTENTION, (*WRITTEN[:2], "out, weights", WRITTEN[3]), WRITTEN
    ),
    Promise(
        "attention whose weights are kept",
        "TML504",
        SILENT,
        ATTENTION.replace("        return @3", "        @5\n        return @3"),
        (*WRITTEN, "self.last = weights"),
        (*WRITTEN, "pass"),
    ),
    Promise("keys that are a parameter", "TML504", SILENT, ATTENTION, ("self.codes", *WRITTEN[1:]), WRITTEN),
    Promise(
        "a class that also calls scaled_dot_product_attention",
        "TML504",
        SILENT,
        ATTENTION,
        (*WRITTEN[:3], "F.scaled_dot_product_attention(q, k, v)"),
        WRITTEN,
    ),
    Promise("a softmax over the queries", "TML504", SILENT, ATTENTION, ("self.k(x)", "-2", *WRITTEN[2:]), WRITTEN),
    Promise("a torch without the function", "TML504", SILENT, ATTENTION, WRITTEN, WRITTEN, target=("1.13", "2.0")),
    Promise(
        "the gradient of an input",
        "TML505",
        SILENT,
        ZEROED,
        ("x.requires_grad_()", "x.grad.zero_()"),
        ("pass", "for p in net.parameters():\n    p.grad.zero_()"),
    ),
    Promise(
        "a set_to_none that the caller decides",
        "TML505",
        SILENT,
        ZEROED,
        ("pass", "optimizer.zero_grad(set_to_none=to_none)"),
        ("pass", "optimizer.zero_grad(set_to_none=False)"),
    ),
    Promise(
        "a name that is deleted before training", "TML506", SILENT, LOADED, (KEPT[0], KEPT[1] + "\ndel state", "pass"), KEPT
    ),
    Promise(
        "a name that is bound again before training",
        "TML506",
        SILENT,
        LOADED,
        (KEPT[0], KEPT[1] + "\nstate = None", "pass"),
        KEPT,
    ),
    Promise("a copy below 75 MB", "TML506", NOTE, LOADED, ("1024", *KEPT[1:]), KEPT),
    Promise(
        "other contents that an optimizer takes over",
        "TML506",
        NOTE,
        LOADED,
        (
            "3200",
            'state = torch.load("net.pt", map_location="cuda")\nnet.load_state_dict(state["net"])\noptimizer.load_state_dict(state["optimizer"])',
            'torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "net.pt")',
        ),
        (
            "3200",
            'state = torch.load("net.pt", map_location="cuda")\nnet.load_state_dict(state["net"])',
            'torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "net.pt")',
        ),
    ),
    Promise(
        "a copy of unknown size",
        "TML506",
        NOTE,
        LOADED.replace("net = Net()", "net = @4"),
        (*KEPT, "torch.load('whole.pt', weights_only=False, map_location='cpu')"),
        (*KEPT, "Net()"),
    ),
    Promise("without map_location, and dropped at once", "TML506", NOTE, LOADED, LOST, KEPT),
    Promise(
        "several processes, and no map_location",
        "TML506",
        WARNING,
        SEVERAL,
        ("torch.distributed.init_process_group('nccl')", "torch.distributed.barrier()"),
        ("pass", "pass"),
    ),
    Promise(
        "other entries alone, and the state is saved beside them",
        "TML506",
        NOTE,
        LOADED,
        (
            "8192",
            'checkpoint = torch.load("net.pt")\nprint(checkpoint["epoch"])',
            'torch.save({"epoch": 9, "net": net.state_dict()}, "net.pt")',
        ),
        KEPT,
    ),
    Promise(
        "other entries alone, and no state is saved beside them",
        "TML506",
        SILENT,
        LOADED,
        ("8192", 'checkpoint = torch.load("net.pt")\nprint(checkpoint["epoch"])', 'torch.save({"epoch": 9}, "net.pt")'),
        (
            "8192",
            'checkpoint = torch.load("net.pt")\nprint(checkpoint["epoch"])',
            'torch.save({"epoch": 9, "net": net.state_dict()}, "net.pt")',
        ),
    ),
    Promise(
        "with a map_location",
        "TML506",
        SILENT,
        LOADED,
        ("8192", 'net.load_state_dict(torch.load("net.pt", map_location="cpu"))', "pass"),
        LOST,
    ),
    Promise(
        "a map_location that maps devices to the host",
        "TML506",
        SILENT,
        LOADED,
        ("8192", 'state = torch.load("net.pt", map_location={"cuda:0": "cpu"})\nnet.load_state_dict(state)', "pass"),
        ("8192", 'state = torch.load("net.pt", map_location={"cuda:1": "cuda:0"})\nnet.load_state_dict(state)', "pass"),
    ),
    Promise(
        "saved from the host alone",
        "TML506",
        SILENT,
        LOADED,
        (*LOST[:2], 'torch.save(net.cpu().state_dict(), "net.pt")'),
        (*LOST[:2], 'torch.save(net.state_dict(), "net.pt")'),
    ),
    Promise(
        "the state of a scheduler",
        "TML506",
        SILENT,
        LOADED,
        (
            "8192",
            'schedule = torch.optim.lr_scheduler.StepLR(optimizer, 9)\nschedule.load_state_dict(torch.load("schedule.pt"))',
            "pass",
        ),
        LOST,
    ),
    Promise(
        "the state of a scaler",
        "TML506",
        SILENT,
        LOADED,
        ("8192", 'scaler = torch.amp.GradScaler()\nscaler.load_state_dict(torch.load("scaler.pt"))', "pass"),
        LOST,
    ),
    Promise(
        "arguments from elsewhere",
        "TML506",
        SILENT,
        LOADED,
        ("8192", 'net.load_state_dict(torch.load("net.pt", **options))', "pass"),
        LOST,
    ),
    Promise(
        "under a condition that no GPU is used",
        "TML506",
        SILENT,
        LOADED,
        ("8192", 'if not torch.cuda.is_available():\n    net.load_state_dict(torch.load("net.pt"))', "pass"),
        ("8192", 'if torch.cuda.is_available():\n    net.load_state_dict(torch.load("net.pt"))', "pass"),
    ),
    Promise(
        "load_file without a device",
        "TML506",
        SILENT,
        LOADED.replace(
            "import torch\n", "import torch\nfrom accelerate import Accelerator\nfrom safetensors.torch import load_file\n", 1
        ),
        ("8192", 'Accelerator().wait_for_everyone()\nnet.load_state_dict(load_file("net.safetensors"))', "pass"),
        ("8192", 'Accelerator().wait_for_everyone()\nnet.load_state_dict(load_file("net.safetensors", device="cuda"))', "pass"),
    ),
    Promise(
        "one GPU, and one process",
        "TML506",
        SILENT,
        LOADED,
        ("8192", 'net.load_state_dict(torch.load("net.pt", map_location="cuda:0"))', "pass"),
        (
            "8192",
            'torch.distributed.init_process_group("nccl")\nnet.load_state_dict(torch.load("net.pt", map_location="cuda:0"))',
            "pass",
        ),
    ),
    Promise("files with data", "TML506", SILENT, LOADED, ("8192", 'print(torch.load("data.pt")[0])', "pass"), LOST),
    Promise(
        "files with a whole module",
        "TML506",
        SILENT,
        LOADED,
        ("8192", 'other = torch.load("whole.pt", weights_only=False)\nother.eval()', "pass"),
        LOST,
    ),
    Promise(
        "functions that quantize dynamically",
        "TML506",
        SILENT,
        LOADED.replace("def train(loader, **options):", "def train(loader, **options):\n    small = @4"),
        (*LOST, "torch.ao.quantization.quantize_dynamic(Net())"),
        (*LOST, "Net()"),
    ),
    Promise("projects that never use CUDA", "TML506", SILENT, LOADED.replace(".cuda()", "@4"), (*LOST, ""), (*LOST, ".cuda()")),
    Promise(
        "parts of a graph from before the loop",
        "TML507",
        SILENT,
        MICRO,
        (".cuda()", "row in range(64)", "total = total + F.cross_entropy(trunk[row], y[row].cuda())", "total.backward()"),
        (
            ".cuda()",
            "row in range(64)",
            "total = total + F.cross_entropy(net(x[row].cuda()), y[row].cuda())",
            "total.backward()",
        ),
    ),
    Promise(
        "iterations that continue from the previous one",
        "TML507",
        SILENT,
        MICRO,
        (
            ".cuda()",
            PARTS,
            "state = net(part.cuda() + state)\ntotal = total + F.cross_entropy(state, wanted.cuda())",
            "total.backward()",
        ),
        SUMMED,
    ),
    Promise(
        "a loop over models",
        "TML507",
        SILENT,
        MICRO.replace("net = Net()@1", "net = Net()@1; nets = nn.ModuleList([Net() for _ in range(8)])@1"),
        (".cuda()", "each in nets", "total = total + F.cross_entropy(each(x.cuda()), y.cuda())", "total.backward()"),
        SUMMED,
    ),
    Promise(
        "a maximum",
        "TML507",
        SILENT,
        MICRO,
        (
            ".cuda()",
            PARTS,
            "total = torch.maximum(torch.as_tensor(total).cuda(), F.cross_entropy(net(part.cuda()), wanted.cuda()))",
            "total.backward()",
        ),
        SUMMED,
    ),
    Promise("a square", "TML507", SILENT, MICRO, (*SUMMED[:3], "(total ** 2).backward()"), SUMMED),
    Promise(
        "a loss of summed outputs",
        "TML507",
        SILENT,
        MICRO,
        (".cuda()", PARTS, "total = total + net(part.cuda())", "F.cross_entropy(total, y.cuda()).backward()"),
        SUMMED,
    ),
    Promise(
        "a few written-out items",
        "TML507",
        SILENT,
        MICRO,
        (
            ".cuda()",
            "part in (x, x.flip(0))",
            "total = total + F.cross_entropy(net(part.cuda()), y.cuda())",
            "total.backward()",
        ),
        SUMMED,
    ),
    Promise(
        "a while loop",
        "TML507",
        SILENT,
        MICRO.replace("for @2", "@2"),
        (
            ".cuda()",
            "while len(x) > 8",
            "total = total + F.cross_entropy(net(x.cuda()), y.cuda()); x = x[8:]; y = y[8:]",
            "total.backward()",
        ),
        (SUMMED[0], f"for {PARTS}", *SUMMED[2:]),
    ),
    Promise(
        "a program on the host", "TML507", NOTE, MICRO, ("", PARTS, ADDED.replace(".cuda()", ""), "total.backward()"), SUMMED
    ),
    Promise(
        "a plain list, which may have one item",
        "TML507",
        NOTE,
        MICRO,
        (".cuda()", "part in views", "total = total + F.cross_entropy(net(part.cuda()), y.cuda())", "total.backward()"),
        SUMMED,
    ),
    Promise(
        "a slice that moves over a list",
        "TML507",
        WARNING,
        MICRO,
        (
            ".cuda()",
            "part in views[len(x) : len(x) + len(y)]",
            "total = total + F.cross_entropy(net(part.cuda()), y.cuda())",
            "total.backward()",
        ),
        (".cuda()", "part in views", "total = total + F.cross_entropy(net(part.cuda()), y.cuda())", "total.backward()"),
    ),
    Promise(
        "logits of other positions are used, too",
        "TML508",
        SILENT,
        LOGITS,
        ("", "print(outputs.logits.argmax(-1))"),
        ("", "pass"),
    ),
    Promise("calls that limit the positions", "TML508", SILENT, LOGITS, (", logits_to_keep=1", "pass"), ("", "pass")),
]
