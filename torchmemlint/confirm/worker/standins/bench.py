"""The mode under every torch function that the code calls, where stand-ins are let in: what fails is replaced."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from torchmemlint.confirm.worker.standins.fitting import fitted_target
from torchmemlint.confirm.worker.standins.frames import rows_of_the_code
from torchmemlint.confirm.worker.standins.stage import Stage
from torchmemlint.confirm.worker.standins.standin import StandIn
from torchmemlint.confirm.worker.standins.tensors import (
    SHAPE,
    StandInTensor,
    activations,
    as_standin,
    data,
    guess_of,
    leaves,
    link_to,
    made_by,
    marked,
    plain_data,
    tensors_among,
)
from torchmemlint.torch_facts import TORCH

_CUTS = TORCH.words["gives-no-graph"]
_FACTORIES = TORCH.words["makes-fresh"]
_NUMBERS: dict[str, object] = {
    "item": 0.5,
    "__float__": 0.5,
    "__int__": 1,
    "__index__": 1,
    "__bool__": True,
    "__len__": SHAPE[0],
    "tolist": [0.5],
    "__contains__": True,
    "numel": 16,
    "dim": 2,
    "ndimension": 2,
    "is_floating_point": True,
    "data_ptr": 0,
}
_OF_DICTS = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "pin_memory",
        "__get__",
        "__iter__",
        "__len__",
        "__contains__",
        "__repr__",
        "__format__",
        "__getitem__",
        "__setitem__",
    ]
)
"""What a dict of tensors, or an object that is read like one, may have as a tensor has."""


class Bench(TorchFunctionMode):
    """Sits under every torch function that the code calls: lets stand-ins in, keeps everything on this device, replaces
    what fails."""

    def __init__(self, stage: Stage, device: str) -> None:
        super().__init__()
        self._stage = stage
        self._device = torch.device(device)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":  # a property: nothing to move, and what fails is the code's own mistake
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*args)
            if isinstance(result, torch.Tensor) and isinstance(args[0], StandInTensor):
                marked(as_standin(self._stage, result), guess_of(args))
            return result
        if name == "to" and len(args) > 1 and isinstance(args[1], StandIn):
            args = args[:1]  # a device or a dtype: this device, this dtype
            if not kwargs:
                return args[0]
        if name in _FACTORIES:
            args = tree_map(lambda leaf: SHAPE[0] if isinstance(leaf, StandIn) else leaf, args)
        _refuse_dict(self._stage, name, args)
        args = self._ready(args)
        kwargs = self._ready({key: self._option(key, value) for key, value in kwargs.items()}) if kwargs else {}
        if name == "backward" or func is torch.autograd.grad:
            return _backward(self._stage, func, args, kwargs)
        if name in {"numpy", "__array__"} and isinstance(args[0], StandInTensor):
            with torch._C.DisableTorchFunctionSubclass():
                return args[0].detach().cpu().as_subclass(torch.Tensor).numpy()
        moved = self._move(name, args)
        if moved is not None:
            return moved
        with torch._C.DisableTorchFunctionSubclass():
            try:
                result = func(*args, **kwargs)
            except (
                RuntimeError,
                TypeError,
                ValueError,
                IndexError,
                KeyError,
                AttributeError,
                NotImplementedError,
                AssertionError,
            ) as error:
                if "out of memory" in str(error) or name in {"__get__", "__set__", "__delete__"}:
                    raise
                again = fitted_target(self._stage, name, args)
                try:
                    result = func(*again, **kwargs) if again else self._replace(name, func, args, kwargs, error)
                except (RuntimeError, TypeError, ValueError, IndexError) as second:
                    result = self._replace(name, func, args, kwargs, second)
        self._stage.record.hung = self._stage.record.hung or (isinstance(result, torch.Tensor) and result.grad_fn is not None)
        if any(isinstance(item, StandInTensor) for item in leaves((args, kwargs))):
            guess = guess_of((args, kwargs))
            for item in tensors_among(result):
                marked(as_standin(self._stage, item), guess)
        return result

    def _option(self, key: str, value: object) -> object:
        """A keyword that a stand-in was given for: torch's default, this device."""
        if not isinstance(value, StandIn) or key in {"input", "other", "target", "weight", "mask", "attn_mask"}:
            return value
        if key in {"dim", "axis", "k", "num_samples", "min", "max", "p", "alpha"}:
            return 1
        if key == "retain_graph":
            self._stage.record.may_retain = True
        if key in {"keepdim", "requires_grad", "training", "inplace"}:
            return False
        return self._device if key == "device" else None

    def _ready(self, values: Any) -> Any:
        if not any(isinstance(leaf, (StandIn, torch.device, str)) for leaf in leaves(values)):
            return values
        return tree_map(self._ready_leaf, values)

    def _ready_leaf(self, leaf: object) -> object:
        if isinstance(leaf, StandIn):
            return leaf.tml_tensor()
        if isinstance(leaf, torch.device) and (leaf.type, leaf.index or 0) != (self._device.type, self._device.index or 0):
            return self._device
        if isinstance(leaf, str) and leaf.split(":")[0] in TORCH.words["accelerators"]:
            return str(self._device)
        return leaf

    def _move(self, name: str, args: Any) -> Any:
        """Moves between devices on a machine that has one: to the device they are nothing, to the host a copy that no
        longer counts."""
        if name in TORCH.words["to-accelerator"] and args and isinstance(args[0], torch.Tensor) and self._device.type == "cpu":
            return args[0]
        if name == "pin_memory" and self._device.type == "cpu":
            return args[0]
        if name == "cpu" and self._device.type == "cpu":
            with torch._C.DisableTorchFunctionSubclass():
                copy = args[0].clone()
            self._stage.record.on_host(copy)
            return as_standin(self._stage, copy) if isinstance(args[0], StandInTensor) else copy
        return None

    def _replace(self, name: str, func: Any, args: Any, kwargs: Any, error: Exception) -> Any:
        inputs = tensors_among((args, kwargs))
        known = any(isinstance(tensor, StandInTensor) for tensor in inputs)
        if not known:
            raise error  # the program's own tensors: its own mistake
        if name in _NUMBERS:
            return _NUMBERS[name]
        if name in {"numpy", "__array__"}:
            return inputs[0].detach().numpy() if inputs else 0.5
        if (
            name.endswith("_")
            and len(args) > 1
            and isinstance(args[1], torch.Tensor)
            and (name == "__iadd__" or not name.startswith("_"))
        ):
            try:
                return func(
                    args[0], args[1].mean(), *args[2:], **kwargs
                )  # a scalar total: the stand-in's shape is not the true one
            except (RuntimeError, TypeError):
                pass
        if name in {"__setitem__", "__format__", "__repr__"}:
            return "0.5" if name != "__setitem__" else None
        self._stage.record.fallback(f"{name}: {type(error).__name__}: {str(error)[:80]}")
        floats = [
            tensor for tensor in inputs if (tensor.requires_grad or self._stage.record.apart) and tensor.is_floating_point()
        ]
        result = plain_data()
        if floats and name not in _CUTS and (torch.is_grad_enabled() or self._stage.record.apart):
            result = activations(self._stage, None, link_to(self._stage, floats)) + result
        return as_standin(self._stage, result)


def _refuse_dict(stage: Stage, name: str, args: Any) -> None:
    """What is read by a key is no tensor: a method that only tensors have fails on it, as it would in the program."""
    if not stage.keyed or name in _OF_DICTS or not args or not isinstance(args[0], StandInTensor):
        return
    if made_by(args[0]) in stage.keyed and sys._getframe(2).f_code.co_filename.startswith("<"):  # called by the code
        raise AttributeError(f"'dict' object has no attribute '{name}'")


def _backward(stage: Stage, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a backward (or ``autograd.grad``); of a stand-in that is no scalar, that of its sum; of one without a graph nothing
    (but that is noted)."""
    stage.record.backwards += 1
    rows = rows_of_the_code()
    stage.record.backward_rows.add(rows)
    stage.record.backward_row = next(iter(rows), 0)
    roots = tensors_among(args[:1] or kwargs.get("outputs"))
    standin = any(isinstance(tensor, StandInTensor) for tensor in roots)
    empty = bool(roots) and not any(tensor.requires_grad for tensor in roots)
    stage.record.empty_backwards += empty
    done = stage.record.on_backward(roots) if stage.record.on_backward is not None else None
    with torch._C.DisableTorchFunctionSubclass():
        if func is torch.autograd.grad:
            return _gradients(stage, func, args, kwargs, standin)
        if standin and empty:
            stage.record.fallback("backward on a value without a graph")
            return None
        if standin and roots[0].numel() != 1 and len(args) == 1 and kwargs.get("gradient") is None:
            args = (roots[0].sum(), *args[1:])
        result = func(*args, **kwargs)
    if done is not None:
        done()
    return result


def _gradients(stage: Stage, func: Any, args: Any, kwargs: Any, standin: bool) -> Any:
    try:
        result = func(*args, **kwargs)
    except RuntimeError as error:
        inputs = tensors_among(args[1:2] or kwargs.get("inputs"))
        if not standin or "second time" in str(error):
            raise
        stage.record.fallback(f"grad: {str(error)[:80]}")
        return tuple(data(stage) for _ in inputs)
    return tuple(as_standin(stage, item) if standin and isinstance(item, torch.Tensor) else item for item in result)
