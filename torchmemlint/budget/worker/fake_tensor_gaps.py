"""What torch does for its own class of tensors only, done for fake ones.

``copy.deepcopy`` of a fake one whose values are known, as a batch norm's count of steps, would copy a storage; a loss could not
be formatted; nothing of it can be shared with another process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.tape import keep_values


def install() -> None:
    """Make fake tensors do it, too."""

    def copied(tensor: Any, memo: dict[int, Any]) -> Any:
        if id(tensor) in memo:
            return memo[id(tensor)]
        if not tensor.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
            )
        with torch.no_grad():
            made = tensor.clone()
        made.requires_grad_(tensor.requires_grad)
        constant, grad = tensor.constant, tensor.grad
        if constant is not None:
            keep_values(made, constant.clone)
        memo[id(tensor)] = made
        if isinstance(tensor, torch.nn.Parameter):
            put(made, "_is_param", True)
        if grad is not None:
            made.grad = copied(grad, memo)
        return made

    def formatted(tensor: Any, words: str) -> str:
        return str(tensor.item().__format__(words)) if tensor.dim() == 0 else object.__format__(tensor, words)

    put(FakeTensor, "__deepcopy__", copied)
    put(FakeTensor, "__format__", formatted)
    put(FakeTensor, "share_memory_", lambda tensor: tensor)
