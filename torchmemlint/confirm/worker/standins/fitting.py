"""Shapes that a layer or a loss wants, where a stand-in tensor comes."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import is_lazy

from torchmemlint.confirm.worker.standins.stage import Stage
from torchmemlint.confirm.worker.standins.tensors import SHAPE, StandInTensor, as_standin, guess_of, link_to, marked

SPATIAL = 16


def entered(stage: Stage, module: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Before each call of a real module."""
    stage.record.on_forward()
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and not is_lazy(tensor):
            stage.record.owned.add(tensor.untyped_storage()._cdata)
    return fitted(stage, module, args)


def fitted(stage: Stage, module: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments of a layer, of which a stand-in tensor that it would refuse takes the rank and width that it wants: the shape of
    data that nobody has is the first layer's to say."""
    if not args or not isinstance(args[0], StandInTensor):
        return None
    tensor = args[0]
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            if not tensor.is_floating_point():
                return None
            return (as_standin(stage, torch.zeros(tuple(tensor.shape) or SHAPE, dtype=torch.long)), *args[1:])
        wanted = _shape_for(module, tensor)
        if wanted is None:
            return None
        other = torch.rand(wanted) + link_to(stage, [tensor])
    return (marked(as_standin(stage, other), guess_of(tensor)), *args[1:])


def _shape_for(module: Any, tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The shape that a layer of torch wants, where a tensor does not have it."""
    nn, shape = torch.nn, tuple(tensor.shape)
    if isinstance(module, nn.Linear):
        return None if shape and shape[-1] == module.in_features else (*(shape[:-1] or SHAPE[:1]), module.in_features)
    if isinstance(module, nn.modules.conv._ConvNd):
        rank = len(module.kernel_size)
        fits = len(shape) == rank + 2 and shape[1] == module.in_channels
        size = max([SPATIAL, *(2 * kernel for kernel in module.kernel_size)])
        return None if fits else (2, module.in_channels, *[size] * rank)
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        rank = {"BatchNorm1d": 0, "BatchNorm2d": 2, "BatchNorm3d": 3}.get(type(module).__name__, max(0, len(shape) - 2))
        fits = len(shape) > 1 and shape[1] == module.num_features and len(shape) - 2 in ({0, 1} if not rank else {rank})
        return None if fits else (4, module.num_features, *[SHAPE[0]] * rank)
    if isinstance(module, (nn.LSTM, nn.GRU, nn.RNN)):
        return None if len(shape) in {2, 3} and shape[-1] == module.input_size else (4, 4, module.input_size)
    if isinstance(module, (nn.LSTMCell, nn.GRUCell, nn.RNNCell)):
        return None if len(shape) == 2 and shape[-1] == module.input_size else (4, module.input_size)
    if isinstance(module, nn.LayerNorm):
        wanted = tuple(module.normalized_shape)
        return None if shape[-len(wanted) :] == wanted else (*SHAPE[:1], *wanted)
    return None


def fitted_target(stage: Stage, name: str, args: Any) -> Any:
    """The arguments of a loss whose target a stand-in is, in the shape and type that the loss wants; None for others."""
    if len(args) < 2 or not isinstance(args[0], torch.Tensor) or not isinstance(args[1], StandInTensor):
        return None
    shape = tuple(args[0].shape)
    if name in {"cross_entropy", "nll_loss", "cross_entropy_loss"} and len(shape) > 1:
        return (args[0], torch.zeros((shape[0], *shape[2:]), dtype=torch.long), *args[2:])
    if name in {"mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"}:
        return (args[0], torch.full(shape, 0.5) + link_to(stage, [args[1]]), *args[2:])
    return None
