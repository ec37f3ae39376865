"""What a layer wants of its input: what no weight determines is a guess."""

from __future__ import annotations

from typing import Any

import torch

from torchmemlint.budget.worker.putoff import Shape

SIDE = 224
"""Width and height of a picture that nobody has: what torchvision's models were trained with."""


def wanted_by(layer: Any, batch: int, maker: Any, rank: int = 0) -> tuple[Shape, torch.dtype, str] | None:
    """What a layer of torch wants of its input, None for other modules."""
    nn = torch.nn
    if isinstance(layer, nn.modules.conv._ConvNd):
        dims = len(layer.kernel_size)
        if not layer.transposed:
            return picture(batch, layer.in_channels, dims, max(layer.kernel_size), maker)
        return picture(batch, layer.in_channels, dims, 1, maker)
    if isinstance(layer, nn.Linear):
        if rank == 3 or _attends(maker):
            return _sequence((batch, maker.length(), layer.in_features), 1)
        return (batch, layer.in_features), torch.float32, ""
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        return indices(batch, maker, rank >= 2 or layer.padding_idx is not None)
    if isinstance(layer, (nn.LSTM, nn.GRU, nn.RNN)):
        size = layer.input_size
        return _sequence((batch, maker.length(), size), 1) if layer.batch_first else _sequence((maker.length(), batch, size), 0)
    if isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)):
        of: Any = layer if isinstance(layer, nn.MultiheadAttention) else layer.self_attn
        size = of.embed_dim
        return _sequence((batch, maker.length(), size), 1) if of.batch_first else _sequence((maker.length(), batch, size), 0)
    return None


def _sequence(shape: Shape, at: int, dtype: torch.dtype = torch.float32) -> tuple[Shape, torch.dtype, str]:
    return shape, dtype, f"the length {shape[at]}"


def picture(batch: int, channels: int, dims: int, kernel: int, maker: Any) -> tuple[Shape, torch.dtype, str]:
    size: tuple[int, ...]
    if dims == 2:
        size = maker.plane(kernel)
    else:
        size = (max(maker.length(), kernel),) if dims == 1 else (16, *(max(SIDE // 2, kernel),) * 2)
    return (batch, channels, *size), torch.float32, "×".join(map(str, size))


def indices(batch: int, maker: Any, sequence: bool = False) -> tuple[Shape, torch.dtype, str]:
    """Of an embedding: a sequence where it has padding, or where the model mixes positions, else one index for each example."""
    nn = torch.nn
    mixes = (nn.RNNBase, nn.MultiheadAttention, nn.LayerNorm, nn.modules.conv._ConvNd, nn.Softmax)
    root = maker.modules[0] if maker.modules else None
    if not sequence and root is not None and not any(isinstance(layer, mixes) for layer in root.modules()):
        return (batch,), torch.int64, ""
    return _sequence((batch, maker.length()), 1, torch.int64)


def _attends(maker: Any) -> bool:
    """Whether the model puts positions of a sequence in relation, by torch's layers or a softmax of its own over them."""
    kinds = (torch.nn.RNNBase, torch.nn.MultiheadAttention)
    root = maker.modules[0] if maker.modules else None
    return root is not None and any(
        isinstance(layer, kinds) or (isinstance(layer, torch.nn.Softmax) and (layer.dim or 0) >= 2) for layer in root.modules()
    )
