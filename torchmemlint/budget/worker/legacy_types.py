"""The tensor types of before torch 0.4, which a torch without CUDA refuses.

``torch.cuda.LongTensor(4)``, ``x.type(torch.cuda.FloatTensor)``, ``torch.set_default_tensor_type("torch.cuda.FloatTensor")``.

Their names: torch's page on tensors, "torch.Tensor" (data types).
"""

from __future__ import annotations

from typing import Any

import torch

from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.tape import Tape

DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16, "Long": torch.int64,
    "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8, "Bool": torch.bool,
}  # fmt: skip


class _Type(type):
    """The type of one of these types."""

    dtype: torch.dtype
    tape: Tape

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, torch.Tensor) and item.dtype is cls.dtype and cls.tape.on_device(item)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """A tensor of these values, or of these sizes."""
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.as_tensor(args[0], dtype=cls.dtype, device="cuda")
        sizes = tuple(args[0]) if args and isinstance(args[0], torch.Size) else args
        return torch.empty(sizes or (0,), dtype=cls.dtype, device="cuda")


def install(tape: Tape) -> None:
    """Put the types of CUDA where torch has them."""
    for name, dtype in DTYPES.items():
        words = {"dtype": dtype, "tape": tape, "__module__": "torch.cuda"}
        put(torch.cuda, f"{name}Tensor", _Type(f"{name}Tensor", (), words))
    default = torch.set_default_tensor_type

    def set_default_tensor_type(kind: Any) -> None:
        found = wanted(kind)
        if found is None or not found[0]:
            default(kind)
            return
        torch.set_default_dtype(found[1])
        torch.set_default_device("cuda")

    put(torch, "set_default_tensor_type", set_default_tensor_type)


def wanted(kind: object) -> tuple[bool, torch.dtype] | None:
    """Whether a type is one on the device, and its numbers'; None where it is neither a type of tensors nor the name of one."""
    name = kind if isinstance(kind, str) else f"{getattr(kind, '__module__', '')}.{getattr(kind, '__name__', '')}"
    package, _, short = name.rpartition(".")
    dtype = DTYPES.get(short.removesuffix("Tensor"))
    return None if dtype is None or package not in ("torch", "torch.cuda") else (package == "torch.cuda", dtype)


def name_of(tensor: torch.Tensor, on_device: bool) -> str:
    """As ``tensor.type()`` gives it."""
    short = next((name for name, dtype in DTYPES.items() if dtype is tensor.dtype), "")
    return f"torch.{'cuda.' * on_device}{short}Tensor"
