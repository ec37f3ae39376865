"""What the tape counts, on fake tensors in this process."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from torchmemlint.budget.worker.measure import Mode  # noqa: E402
from torchmemlint.budget.worker.tape import Tape  # noqa: E402

WEIGHT = 64 * 64 * 4


def test_a_view_of_a_copied_parameter_is_no_memory_of_its_own() -> None:
    tape = Tape(lambda path: False)
    with Mode(allow_non_fake_inputs=True), tape:
        first = nn.Linear(64, 64, bias=False)
        second = copy.deepcopy(first)
        assert tape.live == 2 * WEIGHT
        views = [second.weight.t(), second.weight.detach(), second.weight.data[:3]]
        assert tape.live == 2 * WEIGHT
        assert len(views) == 3


def test_a_copied_model_saves_no_weights() -> None:
    """``nn.TransformerEncoder`` makes its layers so."""
    tape = Tape(lambda path: False)
    with Mode(allow_non_fake_inputs=True), tape:
        kept = [copy.deepcopy(nn.Linear(64, 64, bias=False)) for _ in range(3)]
        x = torch.zeros(1, 64)
        before = tape.live
        for layer in kept:
            x = layer(x)
        assert x.requires_grad
        assert tape.live == before + 3 * 64 * 4


def test_numbers_that_rest_on_no_data_keep_their_values() -> None:
    """Rates of stochastic depth, widths of stages: timm's RegNet makes its layers of these."""
    tape = Tape(lambda path: False)
    with Mode(allow_non_fake_inputs=True), tape:
        assert [item.item() for item in torch.linspace(0, 0.5, 3)] == [0.0, 0.25, 0.5]
        widths = torch.round(torch.exp(torch.arange(6) * 0.4)).unique()
        assert [int(item) for item in widths] == [1, 2, 3, 5, 7]
        written = torch.arange(3)
        written += torch.randint(0, 9, (3,))
        assert [item.item() for item in written] == [1, 1, 1]  # drawn: nobody knows them
    assert any("the value of a tensor" in words for words in tape.assumed)


def test_a_number_that_was_drawn_is_in_its_range_and_not_at_its_end() -> None:
    """A layer that is left out with a small probability (wav2vec 2, HuBERT) is not."""
    with Mode(allow_non_fake_inputs=True), Tape(lambda path: False):
        assert not bool(torch.rand([]) < 0.1)
        assert torch.empty(1).uniform_(0.0, 0.5).item() == 0.25
        assert [torch.randint(2, 9, (1,)).item(), torch.randint(1, (1,)).item(), torch.randint(5, (1,)).item()] == [5, 0, 1]


def test_a_truncated_normal_distribution_comes_to_an_end() -> None:
    with Mode(allow_non_fake_inputs=True), Tape(lambda path: False):
        weight = torch.empty(8, 8)
        assert nn.init.trunc_normal_(weight, std=0.02) is weight


def test_experts_products_have_a_shape_in_every_type() -> None:
    offsets = torch.tensor([2, 6], dtype=torch.int32)
    with Mode(allow_non_fake_inputs=True), Tape(lambda path: False):
        one, other = torch.zeros(6, 4), torch.zeros(2, 4, 8)
        assert torch._grouped_mm(one, other, offs=offsets).shape == (6, 8)
        assert torch._grouped_mm(one.t(), torch.zeros(6, 8), offs=offsets).shape == (2, 4, 8)
