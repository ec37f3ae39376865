"""Each way to get a tensor is asked where its tensor is, by the program itself: on the device if real torch has it there."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchmemlint.budget import command  # noqa: E402
from torchmemlint.budget.worker.guarded import package_of  # noqa: E402

ON_DEVICE = """\
w.weight
w.weight.data
nn.Parameter(torch.zeros(3, device=dev))
nn.BatchNorm1d(3).to(dev).running_mean
copy.deepcopy(w).weight
nn.Linear(2, 2).to(x).weight
nn.Linear(2, 2).to(0).weight
nn.Linear(2, 2).cuda(0).weight
nn.Linear(2, 2).to(device=dev, dtype=torch.bfloat16, non_blocking=True).weight
nn.Linear(2, 2).cuda().to(torch.bfloat16).weight
nn.Linear(2, 2, device="meta").to_empty(device="cuda").weight
nn.Embedding.from_pretrained(torch.zeros(3, 4)).to(x.device).weight
nn.DataParallel(nn.Linear(2, 2)).cuda().module.weight
torch.optim.swa_utils.AveragedModel(w).module.weight
nn.utils.parametrizations.weight_norm(nn.Linear(2, 2).cuda()).weight
nn.utils.spectral_norm(nn.Linear(2, 2)).cuda()(x[:, :2])
nn.utils.parameters_to_vector(w.parameters())
torch.zeros_like(x)
torch.zeros_like(torch.zeros(3), device=dev)
x.new_zeros(3)
x.new_tensor([1.0, 2.0])
x.new(3, 4)
torch.tensor([1, 2], device=x.device)
torch.zeros(3, device=x.get_device())
torch.zeros(3, device=torch.device(0))
torch.zeros(3, device=torch.device("cuda", 0))
torch.zeros(3, device=torch.cuda.current_device())
torch.zeros(3).to(w.weight.device)
torch.zeros(3).type_as(x)
torch.from_numpy(np.zeros(3)).to(x)
torch.from_numpy(x.cpu().numpy()).to(x.device)
torch.zeros(3).pin_memory().to(dev, non_blocking=True)
torch.randn(3, device=dev, generator=torch.Generator(device=x.device).manual_seed(0))
torch.arange(4, out=torch.zeros(4, device=dev))
torch.arange(4).unsqueeze(1).to(x.device) * x[:, :1]
F.one_hot(torch.zeros(3, dtype=torch.long, device=dev), 5)
nn.utils.rnn.pad_sequence([x, x])
F.pad(x, (1, 1))
F.affine_grid(torch.zeros(1, 2, 3, device=dev), (1, 1, 4, 4))
torch.meshgrid(torch.arange(3, device=dev), torch.arange(3, device=dev), indexing="ij")[0]
torch.where(x > 0)[0]
x[torch.tensor([0, 1])]
torch.distributions.Normal(torch.zeros(3, device=dev), torch.ones(3, device=dev)).rsample()
torch.distributions.Categorical(logits=x).sample()
nn.LSTM(8, 4).cuda()(x[None])[1][0]
nn.MultiheadAttention(8, 2).cuda()(x[None], x[None], x[None])[0]
torch.func.functional_call(w, dict(w.named_parameters()), x)
torch.utils.checkpoint.checkpoint(w, x, use_reentrant=False)
torch.load(saved(w.state_dict()), map_location=dev)["weight"]
(w(x).sum().backward(), w.weight.grad)[1]
x if x.device == torch.device("cuda:0") and x.device.index == 0 and w.weight.device == x.device else host
"""
ON_HOST = """\
host
x.cpu()
x.to("cpu")
torch.zeros_like(x, device="cpu")
torch.zeros(3)
torch.zeros(3, device=host.device)
torch.from_numpy(np.zeros(3))
host.new_zeros(3)
host.new_tensor([1.0])
nn.Linear(2, 2).weight
nn.Linear(2, 2).cuda().cpu().weight
nn.Linear(2, 2).to(host).weight
x.type_as(host)
nn.utils.rnn.pad_sequence([host, host])
"""
PROGRAM = """\
import copy, io
import numpy as np
import torch, torch.utils.checkpoint
import torch.nn.functional as F
from torch import nn

def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file

dev = torch.device("cuda")
x, host, w = torch.randn(4, 8).to(dev), torch.zeros(4), nn.Linear(8, 8, device="cuda")
elsewhere = []
"""
STEPS = """\
optimizer = torch.optim.SGD(w.parameters(), lr=0.1)
for _ in range(2):
    w(x).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("ways", "place"), [(ON_DEVICE, "cuda"), (ON_HOST, "cpu")])
def test_tensors_are_where_real_torch_has_them(
    ways: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = "".join(
        f"tensor = {way}\nif tensor.is_cuda != {place == 'cuda'} or tensor.device.type != {place!r}:\n    elsewhere.append({way[:60]!r})\n"
        for way in ways.splitlines()
    )
    path = tmp_path / "train.py"
    path.write_text(f"{PROGRAM}{asked}assert not elsewhere, elsewhere\n{STEPS}", encoding="utf-8")
    command.main([str(path), "--output-format", "json"])
    found: Any = json.loads(capsys.readouterr().out)
    assert (found["reason"], found["skipped"], found["estimated"]) == ("", [], True)


RECOMPUTED = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.full(grad.shape, 2.0, device={device_of_grad})

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def block(self, x):
        y = self.layer(x) + torch.arange(64, device={device_of_input})
        if y.requires_grad:
            y.register_hook(lambda grad: grad + torch.zeros(64, device={device_of_grad}))
        return Double.apply(y)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant={reentrant})

net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters())
for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(lambda each: (each.grad.mul_(torch.ones(1, device="cuda")), None)[1])
for _ in range(2):
    with torch.autograd.graph.save_on_cpu():
        loss = net(torch.randn(32, 64).cuda().requires_grad_()).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(("of_input", "of_grad"), [("x.device", "grad.device"), ('"cuda"', '"cuda"')])
def test_code_that_the_backward_runs_makes_tensors_on_the_device(
    reentrant: bool, of_input: str, of_grad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    program = RECOMPUTED.format(reentrant=reentrant, device_of_input=of_input, device_of_grad=of_grad)
    path.write_text(program, encoding="utf-8")
    assert command.main([str(path), "--output-format", "json"]) == 0, capsys.readouterr()
    found: Any = json.loads(capsys.readouterr().out)
    assert found["reason"] == ""
    assert found["parts"]["parameters"] > 16_000


LIKE_TENSORS = """\
import copy, os
import torch
import torch.nn.functional as F
from torch import nn
from .sizes import WIDTH

net = nn.Sequential(nn.Linear(16, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4)).to(int(os.environ["LOCAL_RANK"]))
assert "WORLD_SIZE" not in os.environ and os.environ.get("RANK") is None
net.share_memory()
average = copy.deepcopy(net)
assert average[0].weight.is_cuda and average[0].weight is not net[0].weight and average[1].num_batches_tracked.item() == 0
assert isinstance(average[0].weight, nn.Parameter) and average[0].weight.requires_grad
clones = nn.ModuleList(copy.deepcopy(net[1]) for _ in range(2)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(2):
    loss = F.cross_entropy(net(torch.randn(8, 16, device="cuda")), torch.zeros(8, dtype=torch.int64, device="cuda"))
    loss.backward()
    optimizer.step()
    print(f"{loss:.3f} {step}")
"""


@pytest.mark.slow
def test_fake_tensors_do_what_torch_does_for_its_own_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "sizes.py").write_text("WIDTH = 256\n", encoding="utf-8")
    path = tmp_path / "package" / "train.py"
    path.write_text(LIKE_TENSORS, encoding="utf-8")
    assert command.main([str(path), "--output-format", "json"]) == 0, capsys.readouterr()
    found: Any = json.loads(capsys.readouterr().out)
    assert (found["reason"], found["skipped"]) == ("", [])
    weights = 4 * (16 * 256 + 256 * 4)
    assert (
        sum(found["parts"].values()) - found["parts"]["workspaces"] > 5 * weights
    )  # with gradients, Adam's state and the average


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("from .b import c\n", "/x/src/train.py", ("/x", "src")),
        ("from ..b import c\n", "/x/src/tools/train.py", ("/x", "src.tools")),
        ("import b\n", "/x/src/train.py", ("/x/src", "")),
        ("from ...b import c\n", "/x/train.py", ("/", "")),
    ],
)
def test_a_program_with_relative_imports_is_run_as_part_of_its_package(text: str, path: str, expected: tuple[str, str]) -> None:
    assert package_of(ast.parse(text), path) == expected


SIZES_OF_DATA = """\
import torch
from torch import nn

rnn, head, loss_of = nn.LSTM(32, 64, batch_first=True).cuda(), nn.Linear(64, 20).cuda(), nn.CTCLoss()
optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
for _ in range(2):
    x, targets = torch.randn(4, 50, 32).cuda(), torch.randint(1, 20, {targets}).cuda()
    scores = head(rnn(x)[0]).log_softmax(2).transpose(0, 1)
    loss = loss_of(scores, targets, torch.full((4,), 50), torch.full((4,), 10))
    sizes = [800]
    assert sizes[int(torch.empty(1).uniform_(0.0, float(len(sizes))).item())] == 800
    assert 2 <= torch.randint(2, 9, (1,)).item() < 9 and torch.randint(1, (1,)).item() == 0
    counts = torch.bincount(targets.flatten(), minlength=20)
    assert counts.shape == (20,) and counts.is_cuda and loss.is_cuda
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("targets", ["(4, 10)", "(40,)"])
def test_a_ctc_loss_keeps_what_its_longest_target_needs(
    targets: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(SIZES_OF_DATA.format(targets=targets), encoding="utf-8")
    assert command.main([str(path), "--output-format", "json"]) == 0, capsys.readouterr()
    found: Any = json.loads(capsys.readouterr().out)
    assert found["reason"] == ""
    real = torch.ops.aten._ctc_loss.Tensor(
        torch.randn(50, 4, 20).log_softmax(2), torch.ones(4, 10, dtype=torch.int64), torch.full((4,), 50), torch.full((4,), 10)
    )
    assert real[1].shape == (4, 50, 21)
    assert any("CTC" in line for line in found["assumed"])
