"""Each remedy, put in force for one run: what it saves is measured."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from torchmemlint.budget.remedies import ACCUMULATION, MICRO_BATCHES
from torchmemlint.budget.worker.attention import Fused
from torchmemlint.budget.worker.measure import Run
from torchmemlint.budget.worker.patch import put


def apply_remedy(name: str, run: Run) -> None:
    """Put the remedy in force; "" is none."""
    if name:
        _REMEDIES[name](run)


def _autocast(dtype: torch.dtype) -> Callable[[Run], None]:
    """The outermost forward runs under autocast."""

    def apply(run: Run) -> None:
        forward = torch.nn.Module.__call__
        depth = [0]

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            depth[0] += 1
            try:
                if depth[0] > 1 or torch.is_autocast_enabled("cpu"):
                    return forward(self, *args, **kwargs)
                with torch.autocast("cuda", dtype):
                    return forward(self, *args, **kwargs)
            finally:
                depth[0] -= 1

        put(torch.nn.Module, "__call__", call)

    return apply


def _checkpoint(run: Run) -> None:
    """Every repeated block (the children of the longest list of modules) is checkpointed."""
    from torch.utils.checkpoint import checkpoint

    forward = torch.nn.Module.__call__
    lists: dict[int, set[int]] = {}

    def blocks(root: Any) -> set[int]:
        if id(root) not in lists:
            groups = [
                list(module.children())
                for module in root.modules() if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential))
            ]  # fmt: skip
            groups = [group for group in groups if len(group) > 1 and any(True for item in group for _ in item.children())]
            longest = max((len(group) for group in groups), default=0)
            chosen = [group for group in groups if len(group) == longest] if longest > 3 else groups
            lists[id(root)] = {id(item) for group in chosen for item in group}
        return lists[id(root)]

    roots: list[Any] = []

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not roots:
            roots.append(self)
            try:
                return forward(self, *args, **kwargs)
            finally:
                roots.clear()
        if id(self) in blocks(roots[0]) and torch.is_grad_enabled() and self.training:
            return checkpoint(forward, self, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
        return forward(self, *args, **kwargs)

    put(torch.nn.Module, "__call__", call)


def _optimizer(**wanted: Any) -> Callable[[Run], None]:
    """Adam and its like with other arguments."""

    def apply(run: Run) -> None:
        for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
            begin = kind.__init__

            def init(self: Any, *args: Any, _begin: Any = begin, **kwargs: Any) -> None:
                kwargs.pop("foreach" if "fused" in wanted else "fused", None)
                _begin(self, *args, **{**kwargs, **wanted})

            put(kind, "__init__", init)

    return apply


def _sgd(run: Run) -> None:
    """SGD without momentum in place of Adam: no state at all."""
    for name in ("Adam", "AdamW"):
        setattr(torch.optim, name, lambda parameters, lr=1e-3, **kwargs: torch.optim.SGD(parameters, lr=float(lr)))


def _eight_bits(run: Run) -> None:
    """The memory of bitsandbytes' 8-bit AdamW: two states of one byte with a scale for each 256 values, in place and without
    temporaries; small tensors keep 32 bits (``min_8bit_size=4096``)."""

    class Adam8bit(torch.optim.Optimizer):  # here, because torch replaces the ``step`` of every class that is used
        def __init__(self, parameters: Any, lr: Any = 1e-3, **kwargs: Any) -> None:
            super().__init__(parameters, {"lr": lr})

        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None and not self.state[parameter]:
                        self.state[parameter] = _eight_bit_state(parameter)

    for name in ("Adam", "AdamW"):
        setattr(torch.optim, name, Adam8bit)


def _eight_bit_state(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    if parameter.numel() < 4096:
        return {name: torch.zeros(parameter.shape, device="cuda") for name in ("state1", "state2")}
    made = {name: torch.zeros(parameter.shape, dtype=torch.uint8, device="cuda") for name in ("state1", "state2")}
    return made | {f"{name}_scale": torch.zeros(-(-parameter.numel() // 256), device="cuda") for name in made}


def _set_to_none(run: Run) -> None:
    for kind in (torch.nn.Module, torch.optim.Optimizer):
        zero = kind.zero_grad

        def zero_grad(self: Any, set_to_none: bool = True, _zero: Any = zero) -> None:
            _zero(self, set_to_none=True)

        put(kind, "zero_grad", zero_grad)


CHUNKS = 8


class _Chunked(torch.autograd.Function):
    """Cross entropy a part of the rows at a time; the logarithms are computed again in the backward."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(logits, target)
        total = torch.zeros(())
        for rows, wanted in zip(logits.chunk(CHUNKS), target.chunk(CHUNKS), strict=True):
            total = total + torch.log_softmax(rows.float(), -1).gather(1, wanted.clamp(min=0).unsqueeze(1)).sum()
        return -total / logits.size(0)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        logits, _ = ctx.saved_tensors
        made = torch.empty_like(logits)
        for rows, part in zip(logits.chunk(CHUNKS), made.chunk(CHUNKS), strict=True):
            part.copy_(torch.softmax(rows.float(), -1))
        return made, None


def _chunked_loss(run: Run) -> None:
    plain = torch.nn.functional.cross_entropy

    def cross_entropy(logits: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        if logits.dim() == 2 and target.dim() == 1 and logits.size(0) >= CHUNKS and not target.is_floating_point():
            return _Chunked.apply(logits, target)  # type: ignore[no-untyped-call]
        return plain(logits, target, *args, **kwargs)

    put(torch.nn.functional, "cross_entropy", cross_entropy)


def _accumulate(run: Run) -> None:
    """The optimizer steps after so many backward passes; the batch of each is smaller in the same measure."""
    begin = torch.optim.Optimizer.__init__
    counts: dict[int, int] = {}

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        step = type(self).step
        counts[id(self)] = 0

        def every(this: Any, *given: Any, **named: Any) -> Any:
            counts[id(this)] = (counts[id(this)] + 1) % MICRO_BATCHES
            return step(this, *given, **named) if not counts[id(this)] else None

        self.step = types.MethodType(every, self)

    put(torch.optim.Optimizer, "__init__", init)
    for kind in (torch.nn.Module, torch.optim.Optimizer):
        put(kind, "zero_grad", _once_stepped(kind.zero_grad, counts))


def _once_stepped(zero: Callable[..., None], counts: dict[int, int]) -> Callable[..., None]:
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        if not any(counts.values()):
            zero(self, *args, **kwargs)

    return zero_grad


def _no_grad(run: Run) -> None:
    """A module whose parameters no optimizer has, and whose input needs no gradient, runs without a graph. Which they are is known
    after the first step."""
    forward = torch.nn.Module.__call__
    frozen: dict[int, bool] = {}

    def is_frozen(module: Any) -> bool:
        if id(module) not in frozen:
            trained = {id(item) for optimizer in run.optimizers for group in optimizer.param_groups for item in group["params"]}
            own = [id(item) for item in module.parameters()]
            frozen[id(module)] = bool(own) and trained.isdisjoint(own)
        return frozen[id(module)]

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if run.optimizers and torch.is_grad_enabled() and is_frozen(self):
            given = torch.utils._pytree.tree_leaves((args, kwargs))
            if not any(isinstance(item, torch.Tensor) and item.requires_grad for item in given):
                with torch.no_grad():
                    return forward(self, *args, **kwargs)
        return forward(self, *args, **kwargs)

    put(torch.nn.Module, "__call__", call)


def _fused_attention(run: Run) -> None:
    """Attention that is written out becomes ``scaled_dot_product_attention``."""
    run.watching.append(Fused())


_REMEDIES: dict[str, Callable[[Run], None]] = {
    "bf16 autocast": _autocast(torch.bfloat16),
    "fp16 autocast": _autocast(torch.float16),
    "checkpointing": _checkpoint,
    "fused optimizer": _optimizer(fused=True),
    "foreach=False": _optimizer(foreach=False),
    "SGD without momentum": _sgd,
    "8-bit AdamW": _eight_bits,
    "set_to_none": _set_to_none,
    "chunked loss": _chunked_loss,
    ACCUMULATION: _accumulate,
    "no_grad for frozen parts": _no_grad,
    "fused attention": _fused_attention,
}
