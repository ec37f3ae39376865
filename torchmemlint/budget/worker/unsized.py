"""Batches of a data set that is missing: the shape and type of each tensor are found from its first use.

A convolution's weight says how many channels its input has, a linear layer's how many features, a loss wants a target for each
prediction. What no weight determines (width and height of a picture, the length of a sequence) is a guess, which the report names.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from torchmemlint.budget.worker.order import first_layer
from torchmemlint.budget.worker.putoff import (
    LENGTH,
    MORE,
    SHAPES,
    Inverse,
    Layout,
    Shape,
    before_index,
    before_layout,
    can_wait,
    chosen,
    flat,
    is_row,
    more_dimensions,
)
from torchmemlint.budget.worker.sizes import Sizes
from torchmemlint.budget.worker.wanted import SIDE, indices, picture, wanted_by
from torchmemlint.confirm.worker.standins import StandIn, _unpack_count

PARTS = 4
"""Number of tensors in a batch that is gone through one after the other."""
BATCH = 16
"""Size of a batch where no loader says it."""

_LOOKING = (
    torch.nn.RNNBase, torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer,
)  # fmt: skip
"""Layers that ask for the shape of their input in Python."""


@dataclass(slots=True)
class Maker:
    """Makes the tensors. ``modules`` are the modules whose forward runs, the innermost last; ``note`` notes what was assumed;
    ``stop`` says that the shape cannot be known."""

    make: Callable[[Shape, torch.dtype], torch.Tensor]
    modules: Sequence[Any]
    note: Callable[[str], None]
    stop: Callable[[str], BaseException]
    width: int = SIDE
    height: int = 0
    options: str = ""
    long: int = LENGTH
    guessed: list[str] = field(default_factory=list)
    pictures: int = 0
    sequences: int = 0

    def plane(self, smallest: int = 1) -> tuple[int, int]:
        """A guess at a picture's height and width."""
        self.pictures += 1
        if self.options:
            self.note(f"the size of pictures was taken from the program's options: {self.options}")
        return max(self.height or self.width, smallest), max(self.width, smallest)

    def length(self) -> int:
        """A guess at a sequence's length."""
        self.sequences += 1
        return self.long


class Unsized:
    """A tensor of unknown shape, or a batch of such: unpacked, or read by a key, it has parts.

    Operations that keep the elements in order are put off until the shape is known; then this is its tensor for everything.
    """

    def __init__(self, maker: Maker, name: str, batch: int, parent: Unsized | None = None, unsure: bool = False) -> None:
        self._maker, self._name, self._batch, self._parent, self._unsure = maker, name, batch, parent, unsure
        self._inverse: Inverse = lambda shape: shape
        self._apply: Callable[[Any], Any] = lambda tensor: tensor
        self._made: Any = None
        self._parts: dict[Any, Unsized] = {}
        self._dtype: torch.dtype | None = None
        self._beside: tuple[str, torch.Tensor] | None = None
        self._dims = 0
        self._more = 0
        self._folded = False
        self._row = False
        self._fixed: dict[int, int] = {}
        self._decided_parts: list[str] = []
        self._decided: list[str] = []  # of its batch's parts: names, as a reference to the parts would keep their memory

    # -- what it is
    def _known(self) -> Any:
        """Its tensor, None while nothing has shown its shape."""
        if self._made is None and self._parent is not None:
            above = self._parent._known()
            if above is not None:
                self._made = self._apply(above)
        return self._made

    def _decide(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, guess: str = "") -> Any:
        """Its tensor, of this shape where it has none yet."""
        known = self._known()
        if known is not None:
            return known
        if self._fixed:
            shape = tuple(self._fixed.get(at, size) for at, size in enumerate(shape))
            guess = "×".join(map(str, shape[2:])) if "×" in guess else guess
        if self._parent is not None:
            self._parent._folded |= self._folded
            whole = self._row and len(shape) == 2 and dtype == torch.int64  # ids of sequences, of which this is one row
            self._parent._decide(tuple(shape) if whole else self._inverse(tuple(shape)), dtype, guess)
            return self._known()
        self._made = self._maker.make(tuple(shape), self._dtype or dtype)
        self._decided.append(self._name)
        if self._unsure:
            self._maker.note(f"no loader says the size of a batch of `{self._name}`; {self._batch} was assumed")
            self._maker.guessed.append(f"the size of a batch of {self._name}")
        size = ",".join(map(str, shape))
        words = f"`{self._name}` was taken for {str(self._made.dtype).removeprefix('torch.')}[{size}], from its first use"
        if self._folded:
            guess = f"{guess}{' and ' if guess else ''}the number of examples, which a view changes,"
        if guess:
            words += f"; {guess} is a guess"
            self._maker.guessed.append(f"{self._name} {guess}")
        self._maker.note(words)
        return self._made

    def _has(self, dims: int) -> None:
        """Note that the program takes it for a tensor of at least so many dimensions."""
        if self._parent is not None:
            self._parent._has(dims - self._more)
        self._dims = max(self._dims, dims)

    def _whole(self) -> Unsized:
        """What it was made of by operations that are put off."""
        return self if self._parent is None else self._parent._whole()

    def _rank(self) -> int:
        """So many dimensions it has at least."""
        return max(self._dims, self._parent._rank() + self._more if self._parent is not None else 0)

    def _forced(self, rank: int = 0) -> Any:
        """Its tensor, from the first layer of what runs."""
        known = self._known()
        if known is not None:
            return known
        rank = rank or self._rank()
        for module in reversed(self._maker.modules):
            wanted = self._wanted(module, rank)
            if wanted is not None and self._parent is not None and 0 < len(wanted[0]) < rank:
                self._parent._forced(
                    rank - self._more
                )  # a mask of it that has a dimension more: what the layer gets is the tensor
                return self._known()
            if wanted is not None:
                return self._decide(*wanted)
        if self._beside is not None:
            name, other = self._beside
            return self._decide(*_beside(name, (), other))
        for name, module in _models_at_hand():
            for layer in module.modules():
                wanted = wanted_by(layer, self._batch, self._maker, rank)
                if wanted is not None:
                    shape, dtype, guess = wanted
                    return self._decide(shape, dtype, f"{guess}{', ' if guess else ''}that it is what `{name}` gets,")
        raise self._maker.stop(f"the shape of `{self._name}` is unknown: the data is missing")

    def _wanted(self, module: Any, rank: int) -> tuple[Shape, torch.dtype, str] | None:
        """What a running module wants of it: by the layer that it goes to first, as the module's code has it, else by its first layer."""

        def by(layer: Any, layout: Layout) -> Any:
            found = wanted_by(layer, self._batch, self._maker, rank + more_dimensions(layout))
            shape = before_layout(found[0], layout, self._batch) if found is not None else None
            return (shape, *found[1:]) if found is not None and shape is not None and len(shape) >= rank else None

        for same in (lambda item: item is self, lambda item: item._whole() is self._whole()):
            names = dict.fromkeys(_names_in(module, same), ())
            found = first_layer(module, names, lambda *way: by(*way) is not None) if names else None
            if found is not None:
                return by(*found)  # type: ignore[no-any-return]
        every = [item for layer in module.modules() if (item := wanted_by(layer, self._batch, self._maker, rank)) is not None]
        return next((item for item in every if len(item[0]) >= rank), every[0] if every else None)

    def for_layer(self, layer: Any, inputs: Sequence[Any]) -> Any:
        """What a layer gets: the tensor, where it is known, or where the layer looks at it before any operator does. A loss gets it
        beside a prediction."""
        predictions = [item for item in inputs if isinstance(item, torch.Tensor)]
        if predictions:
            classes = any(isinstance(item, (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss)) for item in layer.modules())
            self._beside = "cross_entropy" if classes else "", predictions[0]
        wanted = wanted_by(layer, self._batch, self._maker) if isinstance(layer, _LOOKING) else None
        known = self._known()
        if known is None and wanted is not None:
            known = self._decide(*wanted)
        return self if known is None else known

    def _then(self, apply: Callable[[Any], Any], inverse: Inverse = lambda shape: shape, more: int = 0) -> Any:
        known = self._known()
        if known is not None:
            return apply(known)
        made = Unsized(self._maker, self._name, self._batch, self)
        made._more = more
        made._apply, made._inverse = apply, inverse
        return made

    # -- a batch and its parts
    def _part(self, key: Any) -> Unsized:
        if key not in self._parts:
            self._parts[key] = made = Unsized(self._maker, f"{self._name}[{key!r}]", self._batch, unsure=self._unsure)
            made._decided = self._decided_parts
        return self._parts[key]

    def _beside_known(self) -> bool:
        """Whether another part of its batch is known: then it is no input of the first layer, but a target, most likely of classes."""
        return any(name != self._name for name in self._decided)

    def __iter__(self) -> Any:
        known = self._known()
        if known is not None:
            return iter(known)
        count = _unpack_count(sys._getframe(1))
        if count is None and self._maker.modules:
            wanted = self._wanted(self._maker.modules[-1], self._rank())
            if wanted is not None and len(wanted[0]) < 4:
                return iter(self._forced())  # rows of a tensor; pictures may be a list
        if count is None:
            count = PARTS
            self._maker.note(f"how many parts `{self._name}` has is unknown; {PARTS} was assumed")
            self._maker.guessed.append(f"the number of parts of {self._name}")
        return iter([self._part(index) for index in range(count)])

    def __getitem__(self, key: Any) -> Any:
        known = self._known()
        if known is not None:
            return known[key]
        if isinstance(key, (str, int)):
            return self._part(key)
        if key is Ellipsis or key == slice(None):
            return self
        if isinstance(key, tuple):
            self._has(sum(1 for item in key if item is not None and item is not Ellipsis))
        if can_wait(key):
            more = sum(item is None for item in key) - sum(isinstance(item, int) for item in key)
            made = self._then(lambda tensor: tensor[key], lambda shape: before_index(shape, key, self._batch), more)
            made._fixed, made._row = chosen(key), is_row(key)
            return made
        return self._forced()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        known = self._known()
        if known is not None:
            known[key] = value
        elif isinstance(key, (str, int)) and isinstance(value, Unsized):
            self._parts[key] = value
        else:
            self._forced()[key] = value

    def __contains__(self, key: object) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dict."""
        return self._part(key)

    def keys(self) -> list[str]:
        """As of a dict: what the model at hand takes by name (``model(**batch)``), else one part."""
        for _, module in _models_at_hand():
            named = set(inspect.signature(getattr(module, "module", module).forward).parameters)
            if "input_ids" in named:  # models of transformers: everything else has a default
                return [name for name in ("input_ids", "attention_mask", "labels") if name in named]
        return list(self._parts) or ["0"]

    def items(self) -> list[tuple[str, Unsized]]:
        """As of a dict."""
        return [(name, self._part(name)) for name in self.keys()]

    def values(self) -> list[Unsized]:
        """As of a dict."""
        return [self._part(name) for name in self.keys()]

    pop = get

    # -- sizes
    def __len__(self) -> int:
        known = self._known()
        return len(known) if known is not None else self._batch

    @property
    def shape(self) -> Any:
        """Its shape, of which the first number alone decides nothing."""
        known = self._known()
        return known.shape if known is not None else Sizes(self)

    def size(self, dim: int | None = None) -> Any:
        """As of a tensor."""
        known = self._known()
        if known is None:
            known = Sizes(self)
            return known if dim is None else known[dim]
        return known.size() if dim is None else known.size(dim)

    # -- operators
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = self._known()
        if known is not None:
            return getattr(known, name)
        if name in _TYPES:
            return self._typed(name)
        if name in IN_ORDER:
            return lambda *args, **kwargs: self._operate(getattr(torch.Tensor, name), (self, *args), kwargs)
        if name in SHAPES:
            return lambda *args, **kwargs: self._shaped(name, args, kwargs)
        if name in ("repeat", "expand"):
            return lambda *sizes: self._widened(name, flat(sizes))
        if name == "dtype":
            return self._dtype or (torch.int64 if self._beside_known() else torch.float32)
        if name in ("data", "requires_grad"):
            return self if name == "data" else False
        if hasattr(torch.Tensor, name):
            return getattr(self._forced(), name)
        return self._part(name)

    def _widened(self, name: str, sizes: Any) -> Any:
        self._has(len(sizes))
        return getattr(self._forced(), name)(*sizes)

    def _shaped(self, name: str, args: Any, kwargs: Any) -> Any:
        numbers = [item for item in flat(args) if isinstance(item, int)]
        if name in ("transpose", "permute") and numbers:
            self._has(max(numbers) + 1)
        made = self._then(
            lambda tensor: getattr(tensor, name)(*args, **kwargs),
            SHAPES[name](self._batch, *flat(args), **kwargs),
            MORE.get(name, 0),
        )
        if isinstance(made, Unsized) and name in ("view", "reshape") and len(numbers) > 2 and numbers[0] == -1:
            made._folded = True  # frames of a video become examples: how many is not known
        return made

    def _typed(self, name: str) -> Callable[..., Any]:
        def convert(*args: Any, **kwargs: Any) -> Any:
            root = self._whole()
            if name in ("long", "int") and root is self:
                self._dtype = torch.int64 if name == "long" else torch.int32
            kept = [item for item in args if isinstance(item, torch.dtype)]
            dtype = kwargs.get("dtype") or (kept[0] if kept else None)
            if name in ("to", "cuda", "cpu", "pin_memory", "type") and dtype is None:
                return self
            if name == "to":
                return self._then(lambda tensor: tensor.to(dtype))
            return self._then(lambda tensor: getattr(tensor, name)(*args, **kwargs))

        return convert

    def _operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        return Unsized.__torch_function__(func, (), args, kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        unknown = [
            item for item in tree_leaves((args, kwargs)) if isinstance(item, Unsized) and item._known() is None
        ]  # fmt: skip
        if unknown:
            name = getattr(func, "__name__", "")
            later = _settle(name, func, args, kwargs, unknown)
            if later is not None:
                return later
        args, kwargs = tree_map(lambda item: item._forced() if isinstance(item, Unsized) else item, (args, kwargs))
        return func(*args, **kwargs)

    # -- where it turns out to be no tensor: a name of a file, an entry of a list
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return StandIn(f"{self._name}()")

    def __fspath__(self) -> str:
        return self._name

    def __str__(self) -> str:
        return self._name

    def __bool__(self) -> bool:
        return True

    def __index__(self) -> int:
        self._maker.note("the program read the value of a tensor; 1 was assumed")
        return 1

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __hash__(self) -> int:
        return id(self)


def _models_at_hand() -> Iterator[tuple[str, Any]]:
    """The models that the program's functions have, the innermost function first: where a batch is looked at before any model runs,
    one of them gets it. A criterion has no parameters."""
    frame: Any = sys._getframe(1)
    seen: set[int] = set()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in ("torch", "torchmemlint"):
            names = dict(frame.f_locals)
            names |= {f"self.{name}": item for name, item in _attributes(names.get("self")).items()}
            for name, item in names.items():
                if isinstance(item, torch.nn.Module) and id(item) not in seen and next(item.parameters(), None) is not None:
                    seen.add(id(item))
                    yield name, item
        frame = frame.f_back


def _names_in(module: Any, same: Callable[[Unsized], bool]) -> set[str]:
    """The names that a running forward has for a tensor."""
    code = getattr(type(module).forward, "__code__", None)
    frame: Any = sys._getframe(1)
    while frame is not None:
        values = frame.f_locals
        if frame.f_code is code and any(item is module for item in values.values()):
            return {name for name, item in values.items() if isinstance(item, Unsized) and same(item)}
        frame = frame.f_back
    return set()


def _attributes(item: Any) -> dict[str, Any]:
    """What an object has; a module's own submodules are found with it."""
    return {} if item is None or isinstance(item, torch.nn.Module) else dict(getattr(item, "__dict__", {}))


# -- which shape an operator wants


def _settle(name: str, func: Any, args: Any, kwargs: Any, unknown: Sequence[Unsized]) -> Any:
    """Give the unknown tensors of a call the shapes that it wants; a value that is put off comes back, else None."""
    first = unknown[0]
    if args and args[0] is first:
        wanted = _of_layer(name, first, args, kwargs)
        if wanted is not None:
            first._decide(*wanted)
            return None
    others = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor) and item.dim()]
    others += [item._known() for item in tree_leaves((args, kwargs)) if isinstance(item, Unsized) and item._known() is not None]
    if name in SHAPES and args and args[0] is first and len(unknown) == 1:
        return first._shaped(name, args[1:], kwargs)
    if others:
        shape, dtype = _beside(name, args, others[0])
        for item in unknown:
            if item._more > 0 and name.strip("_") in _COMPARISONS and shape[0] != item._batch:
                item._whole()._decide((item._batch,), torch.int64)  # lengths of sequences, beside the numbers of the positions
            else:
                item._decide(shape, dtype)
        return None
    if len(unknown) == 1 and (name in IN_ORDER or name.strip("_") in IN_ORDER):
        return first._then(lambda tensor: func(*[tensor if item is first else item for item in args], **kwargs))
    return None


def _beside(name: str, args: Any, other: torch.Tensor) -> tuple[Shape, torch.dtype]:
    """The shape and type of what is put beside a tensor: a loss's target, an operand."""
    shape = tuple(other.shape)
    if name in ("cross_entropy", "nll_loss", "nll_loss_nd") and len(shape) > 1:
        return (shape[0], *shape[2:]), torch.int64
    if name in ("cross_entropy", "nll_loss", "nll_loss_nd"):
        return (), torch.int64
    if name in ("gather", "scatter", "scatter_"):
        return (*shape[:-1], 1), torch.int64
    if name in ("matmul", "mm", "bmm", "__matmul__") and len(shape) > 1:
        return (*shape[:-2], *((shape[-2],) if len(shape) == 2 else (shape[-1], shape[-2]))), other.dtype
    return shape, other.dtype


def _of_layer(name: str, first: Unsized, args: Any, kwargs: Any) -> tuple[Shape, torch.dtype, str] | None:
    """What a functional layer wants of its input, by its weight."""
    weight = args[1] if len(args) > 1 else kwargs.get("weight")
    batch, maker = first._batch, first._maker
    if name == "one_hot":
        return (batch,), torch.int64, ""
    if not isinstance(weight, torch.Tensor):
        return None
    if name == "linear":
        return (batch, weight.size(1)), torch.float32, ""
    if name in ("conv1d", "conv2d", "conv3d"):
        groups = kwargs.get("groups", args[6] if len(args) > 6 else 1)
        return picture(batch, weight.size(1) * groups, weight.dim() - 2, weight.size(-1), maker)
    if name in ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"):
        return picture(batch, weight.size(0), weight.dim() - 2, 1, maker)
    if name == "embedding":
        padding = kwargs.get("padding_idx", args[2] if len(args) > 2 else -1)
        return indices(batch, maker, first._rank() >= 2 or padding not in (-1, None))
    return None


# -- operations that are put off


_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_TYPES = frozenset(
    {"to", "cuda", "cpu", "float", "half", "bfloat16", "double", "long", "int", "bool", "type", "pin_memory", "byte"}
)
IN_ORDER = frozenset(
    {
        "add", "sub", "mul", "div", "neg", "abs", "pow", "sqrt", "exp", "log", "clamp", "clone", "detach", "contiguous", "sigmoid",
        "tanh", "relu", "add_", "sub_", "mul_", "div_", "clamp_", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__",
        "__rmul__", "__truediv__", "__rtruediv__", "__pow__", "__neg__", "requires_grad_", "rsub", "true_divide", "eq", "ne", "gt",
        "lt", "ge", "le", "round", "floor", "sign", "zeros_like", "ones_like", "rand_like", "randn_like", "empty_like", "full_like",
        "normal_", "dropout", "detach_", "record_stream", "logical_not", "bitwise_not", "square", "log1p", "fill_", "flip",
    }
)  # fmt: skip
"""Functions whose result has the shape of their input."""


def _operator(name: str) -> Callable[..., Any]:
    def operate(self: Unsized, *args: Any) -> Any:
        if any(isinstance(item, str) for item in args):
            return str(self)
        return Unsized.__torch_function__(getattr(torch.Tensor, name), (), (self, *args))

    return operate


for _name in (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__pow__", "__neg__",
    "__eq__", "__ne__", "__lt__", "__gt__", "__le__", "__ge__", "__matmul__", "__invert__", "__and__", "__or__", "__floordiv__", "__mod__",
):  # fmt: skip
    setattr(Unsized, _name, _operator(_name))
