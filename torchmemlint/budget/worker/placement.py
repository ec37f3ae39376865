"""The device that a program asks for, in name: tensors stay fake on the CPU, the tape knows which are on CUDA."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import BackwardCFunction
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext, _device_constructors
from torch.utils._pytree import tree_iter, tree_map_only

from torchmemlint.budget.worker import device_queries, legacy_types
from torchmemlint.budget.worker.cuda import Gpu
from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.tape import INPUTS, Tape, shortened


class Placement(TorchFunctionMode):
    """Takes ``device=`` out of every call, and makes a move to the device a copy."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape
        self.moved = False

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in ("__get__", "get_device"):
            told = device_queries.answer(func, args, self._tape) if self.moved else None
            if told is not None:
                return told
        if func is torch.Tensor.to:
            return self._to(args, kwargs)
        if func is torch.Tensor.cuda:
            return self._moved(args[0], True, {})
        if func is torch.Tensor.type:
            return self._typed(func, args, kwargs)
        if func is torch.Tensor.type_as:
            return self._as(args[0], args[1] if len(args) > 1 else kwargs["other"])
        if func is torch.Tensor.cpu:
            return self._moved(args[0], False, {})
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func in (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.tolist):
            return self._values(args[0], func is torch.Tensor.tolist)
        if func in (torch.Tensor.view, torch.Tensor.reshape) and not kwargs:
            sizes = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
            args = (shortened(args[0], tuple(sizes)), *args[1:])
        if func in (torch.tensor, torch.as_tensor) and args and isinstance(args[0], (list, tuple)):
            args = (tree_map_only(FakeTensor, lambda item: self._values(item, True), args[0]), *args[1:])
        if kwargs.get("pin_memory"):
            kwargs.pop("pin_memory")
        if func in _device_constructors() and kwargs.get("out") is not None:
            return self._into(func, args, kwargs)
        device = kwargs.get("device")
        if name in ("__get__", "__set__"):
            return func(*args, **kwargs)
        if device is None:
            return self._beside(func, args, kwargs)
        return self.made(func, args, kwargs, device)

    def is_asked(self) -> bool:
        """Whether a call that names a device comes here, and the program has moved something: one that uses no device is counted whole."""
        return self.moved and self in _get_current_function_mode_stack()

    def within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose calls come here."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if self in _get_current_function_mode_stack():
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return run

    def _beside(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What a function makes of tensors on the device is there, too, also where it begins with a new one (``pad_sequence``)."""
        if self._tape.all_on_device or not any(
            isinstance(item, torch.Tensor) and self._tape.on_device(item) for item in tree_iter((args, kwargs))
        ):
            return func(*args, **kwargs)
        with self._tape.placed(True):
            return func(*args, **kwargs)

    def made(self, func: Any, args: Any, kwargs: Any, device: object) -> Any:
        """What ``func`` makes on a device."""
        on_device = _on_device(device)
        kwargs["device"] = "meta" if str(device) == "meta" else "cpu"
        self.moved = self.moved or on_device
        with self._tape.placed(on_device):
            return func(*args, **kwargs)

    def _into(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``torch.arange(4, out=tensor)``, which fake tensors refuse: what is made is copied into a tensor of its size."""
        out = kwargs.pop("out")
        with self._tape.placed(self._tape.on_device(out)):
            made = func(*args, **{**kwargs, "dtype": out.dtype, "device": "cpu"})
        return out.copy_(made) if out.shape == made.shape else made

    def _values(self, tensor: Any, as_list: bool) -> Any:
        """An array or a list of ones, in place of values that nobody has."""
        constant = getattr(tensor, "constant", None)
        if constant is not None:
            with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
                return constant.tolist() if as_list else constant.numpy()
        self._tape.assume("the program read the values of a tensor; ones were assumed")
        with torch.utils._python_dispatch._disable_current_modes():
            made = torch.ones(tuple(tensor.shape), dtype=tensor.dtype)
            with torch._C.DisableTorchFunction():
                return made.tolist() if as_list else made.numpy()

    def _typed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``x.type()`` gives a name, ``x.type(kind)`` a tensor of another type, on the device if the kind is one of CUDA."""
        tensor, kind = args[0], args[1] if len(args) > 1 else kwargs.get("dtype")
        if kind is None:
            return legacy_types.name_of(tensor, self._tape.on_device(tensor))
        found = legacy_types.wanted(kind)
        return func(*args, **kwargs) if found is None else self._moved(tensor, found[0], {"dtype": found[1]})

    def _to(self, args: Any, kwargs: Any) -> Any:
        tensor, rest = args[0], args[1:]
        if rest and isinstance(rest[0], torch.Tensor):
            return self._as(tensor, rest[0])
        if "other" in kwargs:
            return self._as(tensor, kwargs["other"])
        memory = kwargs.pop("memory_format", None)
        copy = kwargs.pop("copy", False) or (len(rest) > 3 and rest[3] is True)
        parsed: Any = torch._C._nn._parse_to(*rest[:3], **kwargs)
        device, dtype, _, layout = parsed
        wanted: dict[str, Any] = {"copy": True} if copy else {}
        if dtype is not None:
            wanted["dtype"] = dtype
        if memory or layout:
            wanted["memory_format"] = memory or layout
        if device is None:
            return tensor.to(**wanted) if wanted else tensor
        return self._moved(tensor, _on_device(device), wanted)

    def _as(self, tensor: Any, other: Any) -> Any:
        """A tensor where another is, of its type."""
        return self._moved(tensor, self._tape.on_device(other), {"dtype": other.dtype})

    def _moved(self, tensor: Any, on_device: bool, wanted: dict[str, Any]) -> Any:
        self.moved = self.moved or on_device
        if self._tape.all_on_device or self._tape.on_device(tensor) == on_device:
            return tensor.to(**wanted) if wanted else tensor
        with self._tape.placed(on_device):
            copied = tensor.to("cpu", **{**wanted, "copy": True})
        if on_device and not copied.requires_grad and not self._tape.modules:
            self._tape.mark(copied, INPUTS)
        return copied


def _placed(parse: Callable[..., Any], tape: Tape) -> Callable[..., Any]:
    """What ``Module.to`` asks: a number is a device of CUDA (torch would ask the driver), a tensor stands for where it is. No call that
    makes something on a device: the mode must not take ``device=`` out of it."""

    def named(device: object) -> object:
        return torch.device("cuda", device) if type(device) is int else device

    def parsed(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = named(kwargs["device"])
        with torch._C.DisableTorchFunction():
            found = parse(*(named(each) if at == 0 else each for at, each in enumerate(args)), **kwargs)
        like = args[0] if args else kwargs.get("tensor")
        return (device_queries.CUDA, *found[1:]) if isinstance(like, torch.Tensor) and tape.on_device(like) else found

    return parsed


def _on_device(device: object) -> bool:
    if isinstance(device, int):
        return True
    return str(device).startswith("cuda")


def in_backward(placement: Placement) -> None:
    """The program's own code that a backward runs (its functions' ``backward``, hooks, forwards that are computed again) asks
    ``placement``, too: autograd's engine leaves the modes of torch functions behind."""
    within, checkpoint = placement.within, torch.utils.checkpoint.checkpoint
    hooks = torch.autograd.graph.saved_tensors_hooks
    put(torch.utils.checkpoint, "checkpoint", lambda function, *args, **kwargs: checkpoint(within(function), *args, **kwargs))
    put(BackwardCFunction, "apply", within(BackwardCFunction.apply))
    start = hooks.__init__
    put(hooks, "__init__", lambda self, pack, unpack: start(self, within(pack), within(unpack)))
    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        put(torch.Tensor, name, _hooking(getattr(torch.Tensor, name), within))


def _hooking(register: Callable[..., Any], within: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
    @functools.wraps(register)
    def hooked(tensor: torch.Tensor, hook: Callable[..., Any]) -> Any:
        return register(tensor, within(hook))

    return hooked


def default_device(placement: Placement) -> None:
    """``torch.set_default_device("cuda")`` adds the device below every other mode; ``with torch.device("cuda"):`` above them."""

    def add(self: Any, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func not in _device_constructors() or kwargs.get("device") is not None:
            return func(*args, **kwargs)
        if placement in _get_current_function_mode_stack():  # it comes next
            return func(*args, **{**kwargs, "device": self.device})
        return placement.made(func, args, kwargs, self.device)

    put(DeviceContext, "__torch_function__", add)


def move_in_place() -> None:
    """``Module.to`` sets ``parameter.data``, as it does with real tensors; fake ones it would swap, which their references forbid."""

    def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        for module in self.children() if recurse else ():
            module._apply(fn)
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                if parameter is not None:
                    made, gradient = fn(parameter), parameter.grad
                    if not torch._has_compatible_shallow_copy_type(parameter, made):  # from the meta device
                        self._parameters[name] = torch.nn.Parameter(made, parameter.requires_grad)
                    elif made is not parameter:
                        parameter.data = made
                    if gradient is not None:
                        parameter.grad = None
                        parameter.grad = fn(gradient)
            for name, buffer in self._buffers.items():
                if is_lazy(buffer):
                    buffer.data = fn(buffer)  # it stays one without sizes
                elif buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    put(torch.nn.Module, "_apply", apply)


def pretend_cuda(gpu: Gpu, tape: Tape) -> None:
    """``torch.cuda`` answers as with one device of this kind; what would reach for it does nothing."""
    memory = gpu.memory or 80 << 30

    class Properties:
        name, total_memory = "a CUDA device", memory
        major, minor = gpu.capability
        multi_processor_count = 108

    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_name": "a CUDA device",
        "get_device_capability": gpu.capability, "get_device_properties": Properties(), "is_initialized": True,
        "is_bf16_supported": gpu.capability >= (8, 0), "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0,
        "max_memory_reserved": 0, "mem_get_info": (memory, memory), "memory_summary": "", "memory_stats": {},
        "get_rng_state": torch.zeros(16, dtype=torch.uint8), "get_rng_state_all": [], "current_stream": _Stream(),
        "default_stream": _Stream(), "utilization": 0, "get_arch_list": [], "max_memory_cached": 0, "memory_cached": 0,
        "is_current_stream_capturing": False,
    }  # fmt: skip
    cuda = torch.cuda
    _answer(cuda, answers)
    put(torch, "Generator", _Generator)
    put(torch._C._nn, "_parse_to", _placed(torch._C._nn._parse_to, tape))
    silent = (
        "set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all", "init", "_lazy_init", "ipc_collect",
        "reset_peak_memory_stats", "reset_max_memory_allocated", "set_rng_state", "set_rng_state_all", "seed", "seed_all",
        "set_per_process_memory_fraction", "reset_accumulated_memory_stats", "set_stream", "reset_max_memory_cached",
    )  # fmt: skip
    _answer(cuda, dict.fromkeys(silent))
    _answer(torch._C, {"_cuda_getCurrentRawStream": 0})  # bitsandbytes takes it when it is imported
    _pretend_accelerator(memory)
    put(cuda, "Stream", _Stream)
    put(cuda, "Event", _Stream)
    put(cuda, "stream", lambda stream: contextlib.nullcontext())
    put(cuda, "device", lambda device: contextlib.nullcontext())
    cuda.amp.common.amp_definitely_not_available = lambda: False
    # a scaler asks tensors whether a gradient overflowed, and skips the step then: here none does
    put(
        torch.amp.GradScaler, "_maybe_opt_step", lambda self, optimizer, state, *args, **kwargs: optimizer.step(*args, **kwargs)
    )


def _pretend_accelerator(memory: int) -> None:
    """``torch.accelerator`` (torch 2.6) names the same device.

    Adam asks it for the current stream in every step, which fails in a torch that was built for CUDA on a machine without a driver.
    """
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return
    _answer(
        accelerator,
        {
            "current_accelerator": torch.device("cuda"), "is_available": True, "device_count": 1, "current_device_index": 0,
            "current_device_idx": 0, "current_stream": _Stream(), "get_memory_info": (memory, memory), "memory_stats": {},
            "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0,
            "set_device_index": None, "set_device_idx": None, "set_stream": None, "synchronize": None, "empty_cache": None,
            "empty_host_cache": None, "reset_accumulated_memory_stats": None, "reset_peak_memory_stats": None,
        },
    )  # fmt: skip
    put(accelerator, "device_index", lambda device: contextlib.nullcontext())


def _answer(module: Any, answers: dict[str, Any]) -> None:
    """Each of these functions of ``module`` gives one value, whatever it is asked."""
    for name, value in answers.items():
        put(module, name, lambda *args, _value=value, **kwargs: _value)


class _Generator(torch._C.Generator):
    """Numbers of the CPU for a generator of CUDA, which torch without CUDA does not have."""

    place: torch.device

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made: _Generator = torch._C.Generator.__new__(cls, "cpu")  # type: ignore[call-arg]  # it takes the device
        made.place = torch.device("cuda", device) if type(device) is int else torch.device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # a property there, too
        return self.place


class _Stream:
    """A stream or an event that orders nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: 0.0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *exc: object) -> None: ...
