"""Remedies of ``torchmemlint budget``, each on a program that it is for, at sizes that can be counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchmemlint.budget import runs  # noqa: E402
from torchmemlint.budget.worker.attention import Fused, Scores  # noqa: E402

WRITTEN_OUT = """\
import torch
from torch import nn

HEADS, LENGTH, WIDTH, EXAMPLES = 8, 256, 256, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH, dtype=torch.bool)))

    def forward(self, x):
        q, k, v = (t.view(EXAMPLES, LENGTH, HEADS, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        scores = scores.masked_fill(~self.mask, float("-inf"))
        weights = nn.functional.dropout(torch.softmax(scores, dim=-1), 0.1, self.training)
        return x + (weights @ v).transpose(1, 2).reshape(x.shape)


model = nn.Sequential(Attention(), Attention()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.zeros(EXAMPLES, LENGTH, WIDTH).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SCORES = 4 * 8 * 256 * 256 * 4
"""Bytes of the scores of one of the two layers."""

TEACHER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

teacher = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))).cuda()
student = nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.zeros(4096, 256)), batch_size=1024):
    x = x.cuda()
    loss = nn.functional.mse_loss(student(x), teacher(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LAYER = 1024 * 256 * 4


def job(folder: Path, source: str) -> dict[str, object]:
    """The program as the command line would run it."""
    path = folder / "train.py"
    path.write_text(source)
    return {
        "path": str(path), "root": str(folder), "function": "", "arguments": [], "inputs": [], "values": {}, "capability": (8, 0),
        "memory": 40 << 30, "attention": "auto", "batch": 0,
    }  # fmt: skip


def saved(folder: Path, source: str, batch: int, *names: str) -> list[tuple[int, runs.Estimate]]:
    """What each remedy saves, and its run."""
    options = runs.Options(readable=(str(folder),))
    work = job(folder, source)
    first = runs.estimate(work, options)
    others = [other for _, other in runs.with_remedies(work, options, batch, names)]
    assert [one.steps for one in (first, *others)] == [2] * (1 + len(names))
    return [(first.allocated - other.allocated, other) for other in others]


@pytest.mark.slow
def test_written_out_attention_is_run_fused(tmp_path: Path) -> None:
    ((less, other),) = saved(tmp_path, WRITTEN_OUT, 0, "fused attention")
    # of each layer: the softmax, its dropout's mask, the result of it; and what scaling and masking made
    assert less > 4 * SCORES
    assert other.budget["parts"]["parameters"] > 2 * 3 * 256 * 256 * 4  # the same model


@pytest.mark.slow
def test_a_teacher_runs_without_a_graph_and_gradients_are_accumulated_over_smaller_batches(tmp_path: Path) -> None:
    (graph, _), (batches, _) = saved(tmp_path, TEACHER, 1024, "no_grad for frozen parts", "gradient accumulation")
    assert 6 * LAYER <= graph <= 9 * LAYER
    assert 0.7 * 9 * LAYER * 3 // 4 <= batches <= 12 * LAYER * 3 // 4


def test_without_a_known_batch_nothing_is_accumulated(tmp_path: Path) -> None:
    ((_, estimate),) = runs.with_remedies(job(tmp_path, ""), runs.Options(), 0, ["gradient accumulation"])
    assert estimate.reason == "no loader and no --input describes a batch"


def attention(query: Any, key: Any, value: Any) -> Any:
    """As many programs write it."""
    return torch.softmax(query @ key.transpose(-2, -1) * query.size(-1) ** -0.5, -1) @ value


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (6, 5, 4)])
def test_the_fused_operator_gives_the_same_values(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(shape, requires_grad=True) for _ in range(3))
    plain = attention(query, key, value)
    with Fused():
        fused = attention(query, key, value)
    assert isinstance(fused, torch.Tensor)
    assert torch.allclose(plain, fused, atol=1e-6)


def test_scores_that_are_used_otherwise_are_computed() -> None:
    query, key = (torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(2))
    plain = (query @ key.transpose(-2, -1)).sum()
    with Fused():
        scores = query @ key.transpose(-2, -1)
        assert isinstance(scores, Scores)
        assert scores.shape == (2, 3, 5, 5)
        assert torch.equal(torch.softmax(scores, -1).argmax(-1), scores.made().argmax(-1))
        assert torch.equal(scores.sum(), plain)


def test_a_product_of_a_layer_is_none_of_attention() -> None:
    x, weight = torch.randn(4, 5, 6, requires_grad=True), torch.randn(4, 6, 7, requires_grad=True)
    with Fused():
        assert isinstance(x @ weight, torch.Tensor)
