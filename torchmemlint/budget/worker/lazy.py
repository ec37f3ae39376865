"""Parameters whose sizes the first batch tells (``torch.nn.LazyLinear``).

torch makes them of a tensor's class, fake tensors have one of their own, so they are made here as both.

The classes: ``torch/nn/parameter.py``, ``UninitializedTensorMixin``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.tape import Tape


class _Fake(FakeTensor):
    """What both have in common: their size is fake, and they get their memory where they were moved to."""

    shape = torch.Tensor.shape
    tape: Tape

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch._C._disabled_torch_function_impl(func, types, args, kwargs or {})

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """As torch's: memory of this shape."""
        with self.tape.placed(self.tape.on_device(self) if device is None else str(device).startswith("cuda")):
            self.data = torch.empty(shape, dtype=dtype or self.dtype)
        put(self, "__class__", FakeTensor)


class _FakeParameter(_Fake, UninitializedParameter):
    pass


class _FakeBuffer(_Fake, UninitializedBuffer):
    pass


def install(tape: Tape) -> None:
    """Make both fake where fake tensors are made."""
    put(_Fake, "tape", tape)
    parameter, buffer = UninitializedParameter.__new__, UninitializedBuffer.__new__

    def new_parameter(cls: Any, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        made = torch.empty(0, device=device, dtype=dtype)
        if not isinstance(made, FakeTensor):
            return parameter(cls, requires_grad, device, dtype)
        made.requires_grad_(requires_grad)
        put(made, "_is_param", True)
        put(made, "__class__", _FakeParameter)
        return made

    def new_buffer(
        cls: Any, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        made = torch.empty(0, device=device, dtype=dtype)
        if not isinstance(made, FakeTensor):
            return buffer(cls, requires_grad, device, dtype, persistent)
        put(made, "persistent", persistent)
        put(made, "_is_buffer", True)
        put(made, "__class__", _FakeBuffer)
        return made

    put(UninitializedParameter, "__new__", staticmethod(new_parameter))
    put(UninitializedBuffer, "__new__", staticmethod(new_buffer))
