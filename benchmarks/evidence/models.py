"""Three small models on which claims are measured: an encoder, a convnet, an LSTM. Sizes are those of the first record,
so that records compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn


class Convnet(nn.Module):
    """Three conv-bn-relu blocks, pooled to ten classes."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 128)
        self.blocks = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in pairwise(widths))
        )
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 3, height, width) to (batch, 10)."""
        out: torch.Tensor = self.head(self.blocks(x).mean((2, 3)))
        return out


class Encoder(nn.Module):
    """A transformer encoder, pooled to ten classes."""

    def __init__(self, layers: int = 6, width: int = 128, dropout: float = 0.1) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 512, dropout, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, width) to (batch, 10)."""
        out: torch.Tensor = self.head(self.body(x).mean(1))
        return out


class Recurrent(nn.Module):
    """A two-layer LSTM, its last step to ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(32, 128, 2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, steps, 32) to (batch, 10)."""
        out: torch.Tensor = self.head(self.rnn(x)[0][:, -1])
        return out


@dataclass(frozen=True)
class Subject:
    """A model and the shape of its batch without the batch dimension."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int

    def data(self, batch: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """A random batch on the default device."""
        size = batch or self.batch
        return torch.randn(size, *self.shape), torch.randint(0, 10, (size,))


SUBJECTS = (
    Subject("encoder", Encoder, (64, 128), 8),
    Subject("convnet", Convnet, (3, 32, 32), 16),
    Subject("lstm", Recurrent, (64, 32), 16),
)
