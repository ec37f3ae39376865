"""Attention that is written out, as the fused operator would run it: ``softmax(q @ k.T / scale + mask) @ v``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_PRODUCTS = frozenset({"matmul", "bmm", "__matmul__"})
_SCALED = frozenset(
    {"mul", "div", "mul_", "div_", "__mul__", "__truediv__", "__rmul__", "true_divide", "__imul__", "__itruediv__"}
)
_MASKED = frozenset({"add", "add_", "__add__", "__radd__", "__iadd__", "masked_fill", "masked_fill_", "where"})
_SAME = frozenset({"to", "float", "half", "bfloat16", "type", "type_as", "contiguous", "dropout"})


class Scores:
    """The scores of attention before they are computed. Scaled, masked and normalized they stay so; multiplied with the values they
    become the fused operator; for everything else they are computed after all."""

    def __init__(
        self, query: Any, key: Any, compute: Callable[[], Any], mask: Any = None, softmax: bool = False, rate: float = 0.0
    ) -> None:
        self.query, self.key, self._compute = query, key, compute
        self.mask, self.softmax, self.rate = mask, softmax, rate
        self._made: Any = None

    def made(self) -> Any:
        """The tensor."""
        if self._made is None:
            with torch._C.DisableTorchFunction():  # or the product would be put off again
                self._made = self._compute()
        return self._made

    def __getattr__(self, name: str) -> Any:
        function = getattr(torch.Tensor, name, None)
        if callable(function) and self._made is None:
            return lambda *args, **kwargs: Scores.__torch_function__(function, (), (self, *args), kwargs)
        return getattr(self.made(), name)

    @property
    def shape(self) -> torch.Size:
        """As of the tensor."""
        return torch.Size((*self.query.shape[:-1], self.key.shape[-1]))

    def size(self, dim: int | None = None) -> Any:
        """As of the tensor."""
        return self.shape if dim is None else self.shape[dim]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = next((item for item in args if isinstance(item, Scores)), None)
        name = getattr(func, "__name__", "")
        if first is not None and first._made is None:
            later = first._continued(name, func, args, kwargs)
            if later is not None:
                return later
        return func(*[item.made() if isinstance(item, Scores) else item for item in args], **kwargs)

    def _continued(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        def compute() -> Any:
            return func(*[item.made() if isinstance(item, Scores) else item for item in args], **kwargs)

        if name == "softmax" and not self.softmax:
            return Scores(self.query, self.key, compute, self.mask, True)
        if name in _PRODUCTS and self.softmax and args[0] is self:
            return self._fused(args[1])
        others = [item for item in args if isinstance(item, torch.Tensor)]
        if name in _MASKED and not self.softmax:
            return Scores(self.query, self.key, compute, self.mask if self.mask is not None or not others else others[0])
        if name in _SAME or (name in _SCALED and not others):
            rate = self.rate
            if name == "dropout":
                rate = (
                    kwargs.get("p", args[1] if len(args) > 1 else 0.5)
                    if kwargs.get("training", args[2] if len(args) > 2 else True)
                    else 0.0
                )
            return Scores(self.query, self.key, compute, self.mask, self.softmax, float(rate))
        return None

    def _fused(self, value: Any) -> Any:
        flat = self.query.dim() == 3
        query, key, value = (item.unsqueeze(0) if flat else item for item in (self.query, self.key.transpose(-2, -1), value))
        mask = self.mask
        if mask is not None:  # its values do not matter here; where it is made for all heads, it is passed on so
            mask = mask.to(query.dtype) if mask.dtype is not torch.bool else mask
            mask = mask.detach()
        made = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=self.rate)
        return made.squeeze(0) if flat else made


for _name in (
    "__add__", "__radd__", "__sub__", "__mul__", "__rmul__", "__truediv__", "__matmul__", "__getitem__", "__neg__", "__iadd__", "__imul__",
    "__itruediv__", "__len__", "__bool__", "__setitem__",
):  # fmt: skip
    setattr(
        Scores,
        _name,
        lambda self, *args, _name=_name: Scores.__torch_function__(getattr(torch.Tensor, _name), (), (self, *args)),
    )


class Fused(TorchFunctionMode):
    """Watches for the first product of attention: of two tensors that need gradients, the second of them transposed."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (
            getattr(func, "__name__", "") in _PRODUCTS
            and len(args) == 2
            and not kwargs
            and not any(isinstance(item, Scores) for item in args)
        ):
            query, key = args
            if _is_scores(query, key):
                return Scores(query, key, lambda: func(query, key))
        return func(*args, **(kwargs or {}))


def _is_scores(query: Any, key: Any) -> bool:
    if (
        not isinstance(query, torch.Tensor)
        or not isinstance(key, torch.Tensor)
        or query.dim() not in (3, 4)
        or query.dim() != key.dim()
    ):
        return False
    turned = key.stride(-2) == 1 or key.stride(-1) != 1  # a transposed view, of whatever layout the heads have
    floats = query.is_floating_point() and key.is_floating_point()
    return floats and query.requires_grad and key.requires_grad and turned and query.shape[:-2] == key.shape[:-2]
