"""Calls in the flagged statement that the harness takes the place of: joins, checkpoints, what fills gradients with zeros.

The mistake is no graph that is kept. Each looks, and in the corrected variant does the work as the corrected code would.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from torchmemlint.confirm.worker.standins import Stage, StandIn, StandInTensor, as_standin, guess_of, leaves, link_to, marked
from torchmemlint.rules.card import Correction
from torchmemlint.torch_facts import TORCH


class Joins:
    """What a flagged ``cat`` gave, and in the corrected variant the room that it is written into."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.bytes: list[int] = []
        self._last: tuple[int, tuple[int, ...]] = (0, ())
        self._room: torch.Tensor | None = None

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any, correction: bool) -> Any:
        """The joined tensor; ``correction``: where it begins with what was given before, only the new parts are copied."""
        arguments = _bound(args, kwargs)
        tensors = arguments.get("tensors")
        if function not in _JOINS or not isinstance(tensors, list) or not all(isinstance(t, torch.Tensor) for t in tensors):
            return function(*args, **kwargs)
        result = None
        with torch._C.DisableTorchFunction():
            again = bool(tensors) and _identity(tensors[0]) == self._last
            if again and correction:
                result = self._written(function, arguments)
            fitted = tensors if result is not None else _fitted(self._stage, function, arguments)
        if result is None:
            result = function(fitted, *args[1:], **{key: value for key, value in kwargs.items() if key != "tensors"})
            self._room = None
        if isinstance(result, torch.Tensor):
            with torch._C.DisableTorchFunction():
                if again:
                    self.bytes.append(result.numel() * result.element_size())
                self._last = _identity(result)
        return result

    def _written(self, function: Callable[..., Any], arguments: dict[str, Any]) -> torch.Tensor | None:
        tensors: list[torch.Tensor] = arguments["tensors"]
        old, *others = (tensor.as_subclass(torch.Tensor) for tensor in tensors)
        dim = _dimension(function, arguments, old)
        if dim is None or any(not _joinable(old, other, dim) for other in others):
            return None
        start = old.shape[dim]
        end = start + sum(other.shape[dim] for other in others)
        room = self._room
        if room is None or room.shape[dim] < end:
            shape = list(old.shape)
            shape[dim] = start + (end - start) * (self._stage.steps + 2)
            room = old.new_empty(shape)
            room.narrow(dim, 0, start).copy_(old)
        for other in others:
            room.narrow(dim, start, other.shape[dim]).copy_(other)
            start += other.shape[dim]
        self._room = room
        result = room.narrow(dim, 0, end)
        if any(isinstance(tensor, StandInTensor) for tensor in tensors):
            return marked(as_standin(self._stage, result), guess_of(tensors))
        return result


_JOINS = frozenset(getattr(torch, name.rpartition(".")[2]) for name in TORCH.concatenations)


def _identity(tensor: torch.Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.untyped_storage()._cdata, tuple(tensor.shape)


def _joinable(old: torch.Tensor, other: torch.Tensor, dim: int) -> bool:
    others = (d for d in range(old.dim()) if d != dim)
    return other.dim() == old.dim() and other.dtype == old.dtype and all(old.shape[d] == other.shape[d] for d in others)


def _bound(args: Any, kwargs: Any) -> dict[str, Any]:
    given = dict(kwargs)
    for name, value in zip(("tensors", "dim"), args, strict=False):
        given[name] = value
    tensors = given.get("tensors")
    if isinstance(tensors, (list, tuple)):
        given["tensors"] = [item.tml_tensor() if isinstance(item, StandIn) else item for item in tensors]
    return given


def _dimension(function: Callable[..., Any], arguments: dict[str, Any], old: torch.Tensor) -> int | None:
    """Along which dimension it joins; None where that is not known, or is none that there is."""
    name = getattr(function, "__name__", "")
    fixed = {"vstack": 0, "row_stack": 0, "hstack": 0 if old.dim() == 1 else 1, "dstack": 2, "column_stack": 1}
    dim = fixed.get(name, arguments.get("dim", arguments.get("axis", 0)))
    if not isinstance(dim, int) or isinstance(dim, bool) or not -old.dim() <= dim < old.dim():
        return None
    return dim % old.dim()


def _fitted(stage: Stage, function: Callable[..., Any], arguments: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors, of which stand-ins take the shape that a real one has in the other dimensions (``torch.zeros(0, 512)``)."""
    tensors: list[torch.Tensor] = arguments["tensors"]
    real = next((t for t in tensors if not isinstance(t, StandInTensor) and t.dim() > 1), None)
    dim = None if real is None else _dimension(function, arguments, real)
    if real is None or dim is None:
        return tensors
    found = []
    for tensor in tensors:
        shape = list(real.shape)
        shape[dim] = tensor.shape[dim] if dim < tensor.dim() else 1
        if isinstance(tensor, StandInTensor) and list(tensor.shape) != shape:
            other = (torch.rand(shape) + link_to(stage, [tensor])).to(real.dtype)
            tensor = marked(as_standin(stage, other), guess_of(tensor))
        found.append(tensor)
    return found


def let_go(stage: Stage, receiver: Any, call: Callable[[], Any], free: bool) -> tuple[Any, int]:
    """A ``zero_grad`` that keeps the gradients, of an optimizer, a module or a stand-in for one, or, with ``free``, one that does not;
    and the bytes of gradients that are allocated after it."""
    if isinstance(receiver, StandIn):
        parameters = [stage.weight()]
        result = call()
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.zero_()
    else:
        parameters = _parameters_of(receiver)
        result = call()
    if free:
        for parameter in parameters:
            parameter.grad = None
    held = {p.grad.untyped_storage()._cdata: p.grad.untyped_storage().nbytes() for p in parameters if p.grad is not None}
    return result, sum(held.values())


def _parameters_of(receiver: Any) -> list[Any]:
    """The parameters of an optimizer or a module; the tensor itself."""
    if isinstance(receiver, torch.Tensor):
        return [receiver]
    groups = getattr(receiver, "param_groups", None)
    if isinstance(groups, list):
        return [p for group in groups for p in group.get("params", ()) if isinstance(p, torch.Tensor)]
    return list(receiver.parameters()) if isinstance(receiver, torch.nn.Module) else []


class Checkpoint:
    """A flagged call of a checkpoint."""

    def __init__(self) -> None:
        self.raised = ""
        self.ungraphed = self.hidden = False

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], correction: Correction | None
    ) -> Any:
        """What the call gives, or what it would give as the corrected code has it."""
        sequential = getattr(function, "__name__", "") == "checkpoint_sequential"
        if getattr(function, "__module__", "") != "torch.utils.checkpoint":
            return function(*args, **kwargs)
        if sequential and not _has_input(function, args, kwargs):
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                self.raised = f"TypeError: {error}"[:200]
                raise
        inputs = [*args[2 if sequential else 1 :], *(value for key, value in kwargs.items() if key not in _OWN)]
        self.hidden = self.hidden or any(isinstance(item, StandIn) for item in inputs)
        asks = any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves(inputs))
        reentrant = kwargs.get("use_reentrant") is not False
        if correction is None:
            result = function(*args, **kwargs)
        elif reentrant and not asks:
            result = function(*args, **{**kwargs, "use_reentrant": False})
        else:
            result = _direct(function, args, kwargs, sequential)
        tensors = [leaf for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
        if torch.is_grad_enabled() and tensors and not any(tensor.requires_grad for tensor in tensors):
            self.ungraphed = True
        return result


_OWN = frozenset({"segments", "functions", "function", "preserve_rng_state", "debug", "context_fn", "use_reentrant", "early_stop",
                  "determinism_check"})  # fmt: skip


def _has_input(function: Any, args: Any, kwargs: Any) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _direct(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], sequential: bool) -> Any:
    """What a checkpoint runs, run as it is."""
    if not sequential:
        first = args[0] if args else kwargs["function"]
        return first(*args[1:], **{key: value for key, value in kwargs.items() if key not in _OWN})
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    functions, value = given["functions"], given["input"]
    parts = list(functions.children()) if isinstance(functions, torch.nn.Sequential) else functions
    for number in range(len(parts)):
        value = parts[number](value)
    return value
