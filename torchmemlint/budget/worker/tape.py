"""Records every allocation of a program on fake tensors until it is freed, by its line, its module, its part."""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

aten = torch.ops.aten

PARAMETERS, GRADIENTS, STATE, INPUTS = "parameters", "gradients", "optimizer state", "inputs"
ACTIVATIONS, TEMPORARIES, BUFFERS, OTHER = "saved activations", "temporaries", "buffers", "other"
WORKSPACES, BUCKETS = "workspaces", "buckets"


AT_MOST = "_tml_at_most"
"""Attribute of a tensor that has as many rows as a mask selects: at most all."""
VALUES = 1024
"""Tensors with so few elements keep their values, where these rest on none of the data: rates and widths of a model's layers."""
_RANGES = {aten.arange, aten.linspace, aten.logspace}
_DRAWS = {aten.rand, aten.uniform_, aten.randint}


def _every(index: Any) -> list[Any]:
    """The indices that a mask of ones stands for; another index is itself."""
    if not isinstance(index, torch.Tensor) or index.dtype not in (torch.bool, torch.uint8):
        return [index]
    return [torch.zeros((index.numel(),), dtype=torch.int64) for _ in range(index.dim())]


@dataclass(slots=True)
class Block:
    """One storage: from event ``born`` to event ``died`` (-1 while it lives)."""

    size: int
    born: int
    row: int
    path: str
    module: str
    op: str
    phase: str
    on_device: bool
    kind: str = ""
    died: int = -1


class Tape(TorchDispatchMode):
    """Stands above ``FakeTensorMode``. ``events`` are (block number, +1 or -1) in order; a resize is a free and an allocation.

    own            whether a file name is the program's own: the innermost such line is recorded
    all_on_device  count everything, whatever device the program asked for
    """

    def __init__(self, own: Callable[[str], bool], all_on_device: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._own, self.all_on_device = own, all_on_device
        self.blocks: list[Block] = []
        self.events: list[tuple[int, int]] = []
        self._numbers: dict[int, int] = {}
        self._references: dict[int, Any] = {}
        self._placing: bool | None = None
        self.modules: list[str] = []
        self._sequence: list[tuple[int, str]] = []
        self.assumed: dict[str, int] = {}
        self.before_backward: list[int] = []
        self._in_backward = False
        self.workspace: Callable[[Any, Any, Any], int] = lambda func, args, result: 0
        self.live = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    # -- operators
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        backward = torch._C._current_autograd_node() is not None
        if backward and not self._in_backward:
            self.before_backward.append(len(self.events))
        self._in_backward = backward
        if not backward and self.modules:
            self._note_sequence()
        try:
            result = (
                _grouped(*args, **kwargs) if func is _GROUPED and args[0].dtype is not torch.bfloat16 else func(*args, **kwargs)
            )
        except DataDependentOutputException:
            result = self._scalar(func, args)
        except DynamicOutputShapeException:
            result = self._whole(func, args)
        if func.overloadpacket in _RANGES and isinstance(result, FakeTensor) and result.numel() <= VALUES:
            keep_values(result, lambda: func(*args, **{**kwargs, "device": torch.device("cpu")}))
        if func.overloadpacket in _DRAWS and isinstance(result, FakeTensor) and result.numel() == 1:
            number = _drawn(func, args)
            keep_values(result, lambda: torch.full(tuple(result.shape), number, dtype=result.dtype))
        placed = self._place(args, kwargs)
        if isinstance(result, torch.Tensor):
            self.see(result, func, placed)
        elif result is not None:
            for item in tree_iter(result):
                if isinstance(item, torch.Tensor):
                    self.see(item, func, placed)
        if placed:
            self._scratch(func, args, result)
        return result

    def _place(self, args: Any, kwargs: Any) -> bool:
        if self.all_on_device:
            return True
        if self._placing is not None:
            return self._placing
        return any(isinstance(item, torch.Tensor) and self.on_device(item) for item in tree_iter((args, kwargs)))

    @contextlib.contextmanager
    def placed(self, on_device: bool) -> Iterator[None]:
        """In this block, what is made is made on the device (or on the host)."""
        before, self._placing = self._placing, on_device
        try:
            yield
        finally:
            self._placing = before

    def on_device(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage counts."""
        if self.all_on_device:
            return True
        number = self._numbers.get(_key(tensor))
        return number is not None and self.blocks[number].on_device

    def _scalar(self, func: Any, args: Any) -> Any:
        """A number that depends on the tensor's data."""
        tensor = args[0] if args else None
        dtype = tensor.dtype if isinstance(tensor, torch.Tensor) else torch.float32
        self.assume("the program read the value of a tensor; 1 was assumed")
        return True if func is aten.equal.default or dtype is torch.bool else 1.0 if dtype.is_floating_point else 1

    def _whole(self, func: Any, args: Any) -> Any:
        """The largest result of an operator whose result's size depends on data."""
        tensor = args[0]
        name = func.overloadpacket
        if name is aten.nonzero:
            self.assume("nonzero() was assumed to find every element")
            return torch.empty((tensor.numel(), tensor.dim()), dtype=torch.int64)
        if name is aten.masked_select:
            self.assume("masked_select() was assumed to select every element")
            selected = torch.empty((torch.broadcast_shapes(tensor.shape, args[1].shape).numel(),), dtype=tensor.dtype)
            setattr(selected, AT_MOST, True)
            return selected
        if name in (aten._unique2, aten._unique):
            self.assume("unique() was assumed to find every element")
            made = torch.empty((tensor.numel(),), dtype=tensor.dtype)
            counts = torch.empty((tensor.numel(),), dtype=torch.int64)
            return (made, counts, counts.clone())[: len(func._schema.returns)]
        if name is aten._ctc_loss:
            self.assume("every target of a CTC loss was assumed to be as long as the longest")
            return _ctc(*args[:2])
        if name is aten.bincount:
            self.assume("bincount() was assumed to find no number above its least length")
            weights, least = (*args, None, 0)[1:3] if len(args) < 3 else args[1:3]
            return torch.empty((max(least, 1),), dtype=torch.int64 if weights is None else torch.float64)
        if name is aten.index:
            self.assume("a mask was assumed to select every element")
            selected = func(tensor, [index for item in args[1] for index in _every(item)])
            setattr(selected, AT_MOST, True)
            return selected
        raise DynamicOutputShapeException(func)

    def assume(self, words: str) -> None:
        """Note what was taken for granted, with the line."""
        row, path = self.here()
        text = f"{path}:{row}: {words}" if row else words
        self.assumed[text] = self.assumed.get(text, 0) + 1

    # -- storages
    def see(self, tensor: torch.Tensor, func: Any = "", placed: bool = True) -> None:
        """Take the tensor's storage down, where it is new or has another size."""
        try:
            storage = tensor.untyped_storage()
            size = storage.nbytes()
        except (RuntimeError, NotImplementedError):
            return
        key = int(storage._cdata)
        number = self._numbers.get(key)
        if number is not None:
            if self.blocks[number].size == size:
                return
            self._free(key)
        self._numbers[key] = len(self.blocks)
        self.events.append((len(self.blocks), 1))
        self.blocks.append(self._block(size, str(func), placed))
        self.live += size if placed else 0
        self._references[key] = weakref.ref(storage, lambda _: self._free(key))

    def _block(self, size: int, op: str, placed: bool) -> Block:
        row, path = self.here()
        return Block(size, len(self.events) - 1, row, path, self.module(), op, "backward" if self._in_backward else "", placed)

    def _free(self, key: int) -> None:
        number = self._numbers.pop(key, None)
        self._references.pop(key, None)
        if number is not None:
            self.blocks[number].died = len(self.events)
            self.live -= self.blocks[number].size if self.blocks[number].on_device else 0
            self.events.append((number, -1))

    def _scratch(self, func: Any, args: Any, result: Any) -> None:
        """What a CUDA kernel asks for while it runs, beside its results."""
        size = self.workspace(func, args, result)
        if size:
            block = self._block(size, str(func), True)
            block.kind, block.died = TEMPORARIES, len(self.events) + 1
            number = len(self.blocks)
            block.born = len(self.events)
            self.blocks.append(block)
            self.events += [(number, 1), (number, -1)]

    def lasting(self, size: int, kind: str, op: str) -> None:
        """An allocation that is never given back."""
        self.events.append((len(self.blocks), 1))
        self.blocks.append(Block(size, len(self.events) - 1, 0, "", "", op, "", True, kind))

    def mark(self, tensor: object, kind: str) -> None:
        """Say what part the tensor's storage is of."""
        if isinstance(tensor, torch.Tensor):
            number = self._numbers.get(_key(tensor))
            if number is not None:
                self.blocks[number].kind = kind

    # -- where
    def here(self) -> tuple[int, str]:
        """The innermost line of the program's own code."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            path = frame.f_code.co_filename
            if self._own(path):
                return frame.f_lineno, path
            frame = frame.f_back
        return 0, ""

    def module(self) -> str:
        """The path of the module whose forward, or whose backward, runs."""
        if not self._in_backward:
            return self.modules[-1] if self.modules else ""
        node = torch._C._current_autograd_node()
        if node is None or not self._sequence:
            return ""
        at = bisect_right(self._sequence, (node._sequence_nr(), "\U0010ffff")) - 1
        return self._sequence[at][1] if at >= 0 else ""

    def _note_sequence(self) -> None:
        number = torch._C._autograd._get_sequence_nr()
        if not self._sequence or (self._sequence[-1][1] != self.modules[-1] and self._sequence[-1][0] <= number):
            self._sequence.append((number, self.modules[-1]))


_GROUPED = getattr(getattr(aten, "_grouped_mm", None), "default", None)


def _grouped(one: Any, other: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """The products of experts. The kernel takes every type, its fake one bfloat16 alone (GroupedMMUtils.h, ``_grouped_mm_fallback``)."""
    dtype = out_dtype or one.dtype
    if one.dim() == 2 and other.dim() == 2:
        return one.new_empty((offs.size(0), one.size(0), other.size(1)), dtype=dtype)
    if one.dim() == 2 or other.dim() == 2:
        return one.new_empty((one.size(-2), other.size(-1)), dtype=dtype)
    return one.new_empty((one.size(0), one.size(1), other.size(2)), dtype=dtype)


def _drawn(func: Any, args: Any) -> float:
    """The number that ``rand(size)``, ``uniform_(low, high)`` or ``randint(low, high, size)`` drew: 1, as of all that nobody knows, or the
    middle where 1 is never drawn: what happens with a small probability (a layer that is left out) does not."""
    numbers = [item for item in args if isinstance(item, (int, float))][:2]
    low, high = (0, *numbers)[-2:] if func.overloadpacket is aten.randint else (*numbers, *(0.0, 1.0)[len(numbers) :])
    return 1 if low <= 1 < high else (low + high) / 2


def _ctc(log_probs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A loss for each example, and its alphas: (batch, steps, 2 * longest target + 1), aten/src/ATen/native/cuda/LossCTC.cu."""
    steps, batch = log_probs.shape[:2]
    longest = targets.size(1) if targets.dim() == 2 else -(-targets.numel() // max(batch, 1))
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, steps, 2 * longest + 1))


def keep_values(tensor: FakeTensor, values: Callable[[], torch.Tensor]) -> None:
    """Make the real ``values`` known as those of a fake tensor."""
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        tensor.constant = values()
    tensor.fake_mode.fake_tensor_converter.add_constant_storage_mapping(tensor)


def shortened(tensor: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    """What a mask selected is as long as the program then says (``x[mask].view(8, 4)``): at most every element."""
    if not getattr(tensor, AT_MOST, False) or not all(type(size) is int and size >= 0 for size in sizes):
        return tensor
    row = tensor.shape[1:].numel()
    rows = math.prod(sizes) // max(row, 1)
    return tensor[:rows].clone() if rows < tensor.size(0) and rows * row == math.prod(sizes) else tensor


def _key(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return 0
