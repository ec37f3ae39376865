"""Where a tensor says that it is: ``x.device``, ``x.is_cuda``, ``x.get_device()``.

All fake tensors live on the CPU; the program, its packages and torch's layers are told the place on the tape, so that
``torch.zeros(4, device=x.device)`` is counted. The rest of torch goes on to see the CPU, since it would run CUDA's code for
what it takes to be there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.tape import Tape

CUDA = torch.device("cuda", 0)
_LAYERS = (
    "torch.nn.modules.",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.functional",
    "torch.distributions.",
    "torch.autograd.graph",
)
_OWN = ("torch", "torchmemlint")
_BETWEEN = (
    "torchmemlint.budget.worker.placement",
    "torchmemlint.budget.worker.device_queries",
    "torch.utils._device",
    "torch.overrides",
)
_KINDS: dict[object, bool] = {torch.Tensor.is_cuda: True, torch.Tensor.is_cpu: False}  # the descriptors


def install(tape: Tape, asks: Callable[[], bool]) -> None:
    """Make ``x.device`` of fake tensors answer so where ``asks`` says that the answer is understood."""
    if tape.all_on_device:
        return
    real: Any = FakeTensor.__dict__["device"]

    def device(tensor: Any) -> Any:
        return CUDA if asks() and _is_told() and tape.on_device(tensor) else real.fget(tensor)

    put(FakeTensor, "device", property(device, real.fset))


def answer(func: Callable[..., Any], args: Any, tape: Tape) -> object:
    """What the program is told where it calls this function of torch; None where torch itself answers."""
    name = getattr(func, "__name__", "")
    if tape.all_on_device or not _is_told():
        return None
    if name == "get_device":
        return 0 if tape.on_device(args[0]) else -1
    if name == "__get__":
        kind = _KINDS.get(getattr(func, "__self__", None))
        return None if kind is None else tape.on_device(args[0]) == kind
    return None


def _is_told() -> bool:
    """Whether the function that asks is the program's, a package's or one of torch's layers."""
    frame: Any = sys._getframe(2)
    while str(frame.f_globals.get("__name__", "")).startswith(_BETWEEN):
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] not in _OWN or name.startswith(_LAYERS)
