"""What torch does otherwise in this process, so that nothing of the code reaches outside."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.modules.module import _IncompatibleKeys
from torch.utils.data import DataLoader

from torchmemlint.confirm.worker.standins import SavedFile, Stage, StandIn, StandInTensor, data, entered, loaded

_LEGACY = {
    "FloatTensor": torch.float32,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "DoubleTensor": torch.float64,
    "BoolTensor": torch.bool,
    "HalfTensor": torch.float16,
    "ByteTensor": torch.uint8,
}


def nothing(*args: object, **kwargs: object) -> None:
    """What does nothing."""


def prepare_torch(stage: Stage, device: str) -> None:
    """Make the parts of torch that reach outside do nothing in this process; what is made without saying where, stand-ins above
    all, is made on the device."""
    elsewhere = torch.device(device).type != "cpu"
    if elsewhere:
        torch.set_default_device(device)
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(device)  # where the code's own "cuda" is
    torch.save = nothing
    for name, dtype in _LEGACY.items():
        setattr(torch, name, functools.partial(_legacy, stage, getattr(torch, name), dtype))
    torch.load = functools.partial(_load, stage)
    _let_in(torch.nn.Module, lambda: _IncompatibleKeys([], []))
    _let_in(torch.optim.Optimizer, nothing)
    if torch.device(device).type == "cpu":
        _without_cuda(stage)
    torch.nn.modules.module.register_module_forward_pre_hook(functools.partial(entered, stage))  # type: ignore[arg-type]
    for dropout in (torch.nn.Dropout, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout):
        dropout.__init__ = functools.partialmethod(_dropout, dropout.__init__)  # type: ignore[method-assign, assignment]
    first = DataLoader.__init__

    def plain(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        for name in (
            "num_workers",
            "pin_memory",
            "persistent_workers",
            "prefetch_factor",
            "multiprocessing_context",
            "timeout",
        ):
            kwargs.pop(name, None)
        if elsewhere:  # a sampler shuffles by the default device's generator alone
            kwargs["generator"] = torch.Generator(device)
        first(self, dataset, *args, **kwargs)

    DataLoader.__init__ = plain  # type: ignore[method-assign]
    warnings.simplefilter("ignore")


def _dropout(self: Any, first: Any, p: Any = 0.5, *args: Any, **kwargs: Any) -> None:
    first(self, 0.5 if isinstance(p, StandIn) else p, *args, **kwargs)


def _without_cuda(stage: Stage) -> None:
    """What code asks of a GPU, where there is none and all of it runs on the CPU: to wait, to be chosen, its streams."""
    cuda: Any = torch.cuda
    stream = functools.partial(StandIn, stage, "stream")
    answers: Mapping[str, Callable[[], Any]] = {
        "synchronize": nothing, "set_device": nothing, "empty_cache": nothing, "reset_peak_memory_stats": nothing,
        "current_device": int, "get_device_name": lambda: "cpu", "Event": stream, "Stream": stream, "current_stream": stream,
        "default_stream": stream, "device": contextlib.nullcontext, "stream": contextlib.nullcontext,
    }  # fmt: skip
    for name, answer_of in answers.items():
        setattr(cuda, name, _answering(answer_of))  # each its own: torch._dynamo refuses two names of one function
    cuda.is_available = lambda: sys._getframe(1).f_code.co_filename.startswith("<")  # to the code there is one; not to torch


def _answering(answer_of: Callable[[], Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer_of()


def _legacy(stage: Stage, first: Any, dtype: torch.dtype, *args: Any, **kwargs: Any) -> Any:
    """``torch.FloatTensor(…)``: a class, so no mode sees the call."""
    try:
        return first(*args, **kwargs)
    except (TypeError, ValueError, RuntimeError):
        return data(stage).to(dtype)


def _load(stage: Stage, file: Any = None, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A checkpoint: a stand-in, whose weights are on the device where the flagged call loads them there."""
    return loaded(stage, map_location)


def _let_in(klass: Any, nothing_of: Callable[[], Any]) -> None:
    """Let modules or optimizers of torch load what was saved: nothing is copied."""
    first = klass.load_state_dict

    @functools.wraps(first)
    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state_dict, SavedFile) and klass is torch.nn.Module:
            state_dict.tml_taken("load_state_dict")
        values = list(state_dict.values()) if isinstance(state_dict, Mapping) else []
        if isinstance(state_dict, StandIn) or any(isinstance(value, (StandIn, StandInTensor)) for value in values):
            return nothing_of()
        return first(self, state_dict, *args, **kwargs)

    klass.load_state_dict = load_state_dict
