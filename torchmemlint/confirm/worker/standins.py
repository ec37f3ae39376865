"""Objects that stand in for what a cut-out piece of code needs and does not have: decided by use, not by name.

``StandIn`` is container, context manager, loader, module, criterion or number, as it is used. ``StandInTensor`` is a
real tensor
that never fails: an operation that raises is replaced by a result on the same graph, and counted as a *fallback*. Each
forward of a stand-in
saves exactly ``FORWARD_BYTES`` for the backward, so growth divides into graphs.
"""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from torchmemlint.confirm.verdict import Located
from torchmemlint.torch_facts import TORCH

FORWARD_BYTES = 1 << 20
CODE = "<confirmed>"
"""The file name under which the flagged file is compiled."""


def words(text: str) -> list[str]:
    """The words of a long list of names."""
    return text.split()


LAYERS = 4
STEPS = 8
SHAPE = (4, 4)


class Record:
    """What happened during one run, for the verdict; one per child and run.

    ``inert`` names callees that are not visible and whose results are plain data in this run: what still grows then does not
    rest on them. ``modules`` names attributes of the flagged method's class that some line of it sets to a module. ``asked``
    counts how often something depended on whether a stand-in is true; ``hung`` says that an operation of the code gave a value
    with a graph. ``apart``: each stand-in model has a parameter of its own, else they share one. ``owned`` are the storages of
    the parameters and buffers of the real modules that ran: what a graph saves of frozen weights or running means is there
    without it.
    """

    def __init__(self, inert: frozenset[str] = frozenset(), modules: frozenset[str] = frozenset(), apart: bool = False) -> None:
        self.modules = modules
        self.apart = apart
        self.fallbacks: list[Located] = []
        self.graph_forwards = 0
        self.unknown_decorators: list[tuple[str, str]] = []
        self.open_contexts: list[Located] = []
        self.backwards = 0
        self.trusted = False
        self.inert = inert
        self.empty_backwards = 0
        self.backward_rows: set[tuple[int, ...]] = set()
        self.backward_row = 0
        self.guess_rows: dict[str, int] = {}
        self.swallowed: list[Located] = []
        self.asked = 0
        self.hung = False
        self.owned: set[int] = set()
        self.may_retain = False
        self.on_backward: Callable[[list[torch.Tensor]], Callable[[], None]] | None = None
        self.on_host: Callable[[torch.Tensor], None] = lambda tensor: None
        self.on_forward: Callable[[], None] = lambda: None

    def fallback(self, what: str) -> None:
        """Note that an operation was replaced."""
        if len(self.fallbacks) < 200:
            self.fallbacks.append(Located(_row_of_the_code(), what))

    def swallow(self, name: str, row: int) -> None:
        """Note that a callee that is not visible was handed a graph and that the code makes nothing of its result: it may run a
        backward on it."""
        callee = Located(row, name)
        if name.rsplit(".", 1)[-1] not in _KEEPERS and callee not in self.swallowed:
            self.swallowed.append(callee)


_KEEPERS = frozenset(
    words(
        """
    append extend appendleft extendleft add insert put set write log info debug warning print add_scalar set_postfix set_description
    register_hook retain_grad log_metric log_metrics
    """
    )
)  # fmt: skip
"""Callees that by their name keep or print what they are given."""
_TRAINERS = frozenset(words("backward step optimize optimise train update"))
"""Words in names of callees that may run a backward even where their result is used."""

defaults: dict[str, float] = {}
"""What the code itself gives as the default of an option that is a fraction."""
_OPTIONS = re.compile(
    r"(^|[._])(args?|opts?|options|flags|cfg|conf|config|hparams|hyper\w*|params|hp|parse_args\(\)|settings)$", re.I
)
ON_DEVICE = object()
"""The place of a checkpoint that is loaded onto the device that it was saved from."""
record = Record()
_roles: dict[str, str] = {}
_keyed: set[str] = set()
"""Callees whose result some run read by a key: it is a dict, and has no method of a tensor."""
_weights: dict[str, torch.Tensor] = {}


def begin(fresh: Record) -> None:
    """Start a run; the parts that stand-ins play stay as the first run saw them."""
    global record
    record = fresh
    _weights.clear()


def weight(name: str = "") -> torch.Tensor:
    """The parameter of a stand-in model: the same one for all, unless the run keeps them apart."""
    owner = name if record.apart else ""
    if owner not in _weights:
        _weights[owner] = torch.full((FORWARD_BYTES // 4,), 0.5, requires_grad=True)
    return _weights[owner]


def _plain_data() -> torch.Tensor:
    return torch.rand(SHAPE).clamp_(0.1, 0.9)


def as_standin(tensor: torch.Tensor) -> torch.Tensor:
    """The same object, from now on one that never fails."""
    if type(tensor) is torch.Tensor:
        tensor.__class__ = StandInTensor
    return tensor


def data() -> torch.Tensor:
    """A batch's part: a small tensor without a graph."""
    return as_standin(_plain_data())


def leaves(values: object) -> list[Any]:
    """What the containers in ``values`` hold. (``torch.utils._pytree`` does the same eight times slower, and this runs
    at every operation.)"""
    found: list[Any] = []
    waiting = [values]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (tuple, list)):
            waiting.extend(item[::-1])
        elif isinstance(item, dict):
            waiting.extend(item.values())
        else:
            found.append(item)
    return found


def guess_of(values: object) -> str:
    """Of what unseen callee a value was made, "" when nothing in it rests on a guess."""
    for item in leaves(values):
        if isinstance(item, StandInTensor) and "_tml_guess" in item.__dict__:
            return str(item._tml_guess)
    return ""


def forward(name: str, inputs: list[torch.Tensor], guess: str = "") -> torch.Tensor:
    """What a stand-in model (or criterion) returns for ``inputs``; saves ``FORWARD_BYTES`` when grad mode is on and it
    has something to train.

    A callee that first saw a tensor with a graph is taken for one without parameters of its own, unless it is known or named as a
    network; with several tensors it is a criterion, gives a scalar and saves no more than that. One that is named as a criterion has no
    parameters, whatever it sees.
    """
    if guess and guess in record.inert:
        return marked(data(), guess, True)
    with torch._C.DisableTorchFunctionSubclass():
        hangs = any(tensor.requires_grad for tensor in inputs)
        loses = _CRITERION.search(name) is not None
        model = (_is_network(name) and not loses) or not (hangs or loses)
        role = _roles.setdefault(name, "model" if model else "criterion" if len(inputs) > 1 or loses else "layer")
        link = link_to(inputs)
        record.on_forward()
        plain = _plain_data()
        if role == "criterion":
            result = link.sin() + plain.mean()  # saves as good as nothing, as losses do
        else:
            result = _activations(weight(name) if role == "model" else None, link) + plain
            record.graph_forwards += result.requires_grad
    result._tml_made = name  # type: ignore[attr-defined]
    return marked(as_standin(result), guess or guess_of(inputs), bool(guess))


def _shape_for(module: Any, tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The shape that a layer of torch wants, where a tensor does not have it."""
    nn, shape = torch.nn, tuple(tensor.shape)
    if isinstance(module, nn.Linear):
        return None if shape and shape[-1] == module.in_features else (*(shape[:-1] or SHAPE[:1]), module.in_features)
    if isinstance(module, nn.modules.conv._ConvNd):
        rank = len(module.kernel_size)
        fits = len(shape) == rank + 2 and shape[1] == module.in_channels
        size = max([SPATIAL, *(2 * kernel for kernel in module.kernel_size)])
        return None if fits else (2, module.in_channels, *[size] * rank)
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        rank = {"BatchNorm1d": 0, "BatchNorm2d": 2, "BatchNorm3d": 3}.get(type(module).__name__, max(0, len(shape) - 2))
        fits = len(shape) > 1 and shape[1] == module.num_features and len(shape) - 2 in ({0, 1} if not rank else {rank})
        return None if fits else (4, module.num_features, *[SHAPE[0]] * rank)
    if isinstance(module, (nn.LSTM, nn.GRU, nn.RNN)):
        return None if len(shape) in {2, 3} and shape[-1] == module.input_size else (4, 4, module.input_size)
    if isinstance(module, (nn.LSTMCell, nn.GRUCell, nn.RNNCell)):
        return None if len(shape) == 2 and shape[-1] == module.input_size else (4, module.input_size)
    if isinstance(module, nn.LayerNorm):
        wanted = tuple(module.normalized_shape)
        return None if shape[-len(wanted) :] == wanted else (*SHAPE[:1], *wanted)
    return None


SPATIAL = 16


def entered(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Before each call of a real module."""
    record.on_forward()
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and not is_lazy(tensor):
            record.owned.add(tensor.untyped_storage()._cdata)
    return fitted(module, args)


def fitted(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments of a layer, of which a stand-in tensor that it would refuse takes the rank and width that it wants: the shape of
    data that nobody has is the first layer's to say."""
    if not args or not isinstance(args[0], StandInTensor):
        return None
    tensor = args[0]
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            if not tensor.is_floating_point():
                return None
            return (as_standin(torch.zeros(tuple(tensor.shape) or SHAPE, dtype=torch.long)), *args[1:])
        wanted = _shape_for(module, tensor)
        if wanted is None:
            return None
        other = torch.rand(wanted) + link_to([tensor])
    return (marked(as_standin(other), guess_of(tensor)), *args[1:])


def _fitted_target(name: str, args: Any) -> Any:
    """The arguments of a loss whose target a stand-in is, in the shape and type that the loss wants; None for others."""
    if len(args) < 2 or not isinstance(args[0], torch.Tensor) or not isinstance(args[1], StandInTensor):
        return None
    shape = tuple(args[0].shape)
    if name in {"cross_entropy", "nll_loss", "cross_entropy_loss"} and len(shape) > 1:
        return (args[0], torch.zeros((shape[0], *shape[2:]), dtype=torch.long), *args[2:])
    if name in {"mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"}:
        return (args[0], torch.full(shape, 0.5) + link_to([args[1]]), *args[2:])
    return None


SHARE = 1e-3


def link_to(inputs: list[torch.Tensor]) -> torch.Tensor:
    """A zero (or what is as good as that) that is attached to the graphs of all inputs; nothing is saved for it."""
    total = torch.zeros(())
    for tensor in inputs:
        # Where results are compared, they are the same with a graph and without one.
        if (tensor.requires_grad or record.apart) and tensor.is_floating_point():
            total = total + tensor.sum() * (_share() / max(1, tensor.numel()))
    return total


def _share() -> float:
    """What of its inputs and parameters is in a stand-in's result: nothing, or, where gradients are compared, as much as shows in them."""
    return SHARE if record.apart else 0.0


def _activations(parameters: torch.Tensor | None, link: torch.Tensor) -> torch.Tensor:
    """A zero whose graph saves ``FORWARD_BYTES``, made layer by layer: without grad mode each layer is freed before the
    next, as in a model."""
    result = link
    for layer in range(LAYERS):
        size = FORWARD_BYTES // 4 // LAYERS
        start = parameters[layer * size : (layer + 1) * size] if parameters is not None else torch.full((size,), 0.5) + link
        result = result + start.exp().sum() * (_share() / size)
    return result


def marked(tensor: torch.Tensor, guess: str, direct: bool = False) -> torch.Tensor:
    """The tensor, with the name of the unseen callee that it rests on; ``direct``: the very result of that callee."""
    if guess:
        tensor._tml_guess = guess  # type: ignore[attr-defined]
        tensor._tml_direct = direct  # type: ignore[attr-defined]
    return tensor


def _tensors(values: object) -> list[torch.Tensor]:
    return [item for item in leaves(values) if isinstance(item, torch.Tensor)]


def unpack_count(frame: Any) -> int | None:
    """How many names the caller unpacks into, None when it does something else (a loop, ``list()``)."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if at < 0 or at + 1 >= len(code):
        return None
    name = dis.opname[code[at]]
    if name.startswith("UNPACK_SEQUENCE"):
        return int(code[at + 1])
    if name == "UNPACK_EX":
        return int(code[at + 1]) + 1
    return None


def _discards(frame: Any) -> bool:
    """Whether the caller makes nothing of the result: the call is a statement of its own."""
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while 0 < at < len(code):
        name = dis.opname[code[at]]
        if name not in {"CACHE", "EXTENDED_ARG", "NOP"}:
            return bool(name == "POP_TOP")
        at += 2
    return False


_CUTS = TORCH.words["gives-no-graph"]
_FACTORIES = TORCH.words["makes-fresh"]
_NUMBERS: dict[str, object] = {
    "item": 0.5,
    "__float__": 0.5,
    "__int__": 1,
    "__index__": 1,
    "__bool__": True,
    "__len__": SHAPE[0],
    "tolist": [0.5],
    "__contains__": True,
    "numel": 16,
    "dim": 2,
    "ndimension": 2,
    "is_floating_point": True,
    "data_ptr": 0,
}
_ON_HOST = TORCH.words["on-host"]


class Bench(TorchFunctionMode):
    """Sits under every torch function that the code calls: lets stand-ins in, keeps everything on this device, replaces
    what fails."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = torch.device(device)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":  # a property: nothing to move, and what fails is the code's own mistake
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*args)
            if isinstance(result, torch.Tensor) and isinstance(args[0], StandInTensor):
                marked(as_standin(result), guess_of(args))
            return result
        if name == "to" and len(args) > 1 and isinstance(args[1], StandIn):
            args = args[:1]  # a device or a dtype: this device, this dtype
            if not kwargs:
                return args[0]
        if name in _FACTORIES:
            args = tree_map(lambda leaf: SHAPE[0] if isinstance(leaf, StandIn) else leaf, args)
        _refuse_dict(name, args)
        args = self._ready(args)
        kwargs = self._ready({key: self._option(key, value) for key, value in kwargs.items()}) if kwargs else {}
        if name == "backward" or func is torch.autograd.grad:
            return _backward(func, args, kwargs)
        if name in {"numpy", "__array__"} and isinstance(args[0], StandInTensor):
            with torch._C.DisableTorchFunctionSubclass():
                return args[0].detach().cpu().as_subclass(torch.Tensor).numpy()
        moved = self._move(name, args)
        if moved is not None:
            return moved
        with torch._C.DisableTorchFunctionSubclass():
            try:
                result = func(*args, **kwargs)
            except (
                RuntimeError,
                TypeError,
                ValueError,
                IndexError,
                KeyError,
                AttributeError,
                NotImplementedError,
                AssertionError,
            ) as error:
                if "out of memory" in str(error) or name in {"__get__", "__set__", "__delete__"}:
                    raise
                again = _fitted_target(name, args)
                try:
                    result = func(*again, **kwargs) if again else self._replace(name, func, args, kwargs, error)
                except (RuntimeError, TypeError, ValueError, IndexError) as second:
                    result = self._replace(name, func, args, kwargs, second)
        record.hung = record.hung or (isinstance(result, torch.Tensor) and result.grad_fn is not None)
        if any(isinstance(item, StandInTensor) for item in leaves((args, kwargs))):
            guess = guess_of((args, kwargs))
            for item in _tensors(result):
                marked(as_standin(item), guess)
        return result

    def _option(self, key: str, value: object) -> object:
        """A keyword that a stand-in was given for: torch's default, this device."""
        if not isinstance(value, StandIn) or key in {"input", "other", "target", "weight", "mask", "attn_mask"}:
            return value
        if key in {"dim", "axis", "k", "num_samples", "min", "max", "p", "alpha"}:
            return 1
        if key == "retain_graph":
            record.may_retain = True
        if key in {"keepdim", "requires_grad", "training", "inplace"}:
            return False
        return self._device if key == "device" else None

    def _ready(self, values: Any) -> Any:
        if not any(isinstance(leaf, (StandIn, torch.device, str)) for leaf in leaves(values)):
            return values
        return tree_map(self._ready_leaf, values)

    def _ready_leaf(self, leaf: object) -> object:
        if isinstance(leaf, StandIn):
            return leaf.tml_tensor()
        if isinstance(leaf, torch.device) and (leaf.type, leaf.index or 0) != (self._device.type, self._device.index or 0):
            return self._device
        if isinstance(leaf, str) and leaf.split(":")[0] in TORCH.words["accelerators"]:
            return str(self._device)
        return leaf

    def _move(self, name: str, args: Any) -> Any:
        """Moves between devices on a machine that has one: to the device they are nothing, to the host a copy that no
        longer counts."""
        if name in TORCH.words["to-accelerator"] and args and isinstance(args[0], torch.Tensor) and self._device.type == "cpu":
            return args[0]
        if name == "pin_memory" and self._device.type == "cpu":
            return args[0]
        if name == "cpu" and self._device.type == "cpu":
            with torch._C.DisableTorchFunctionSubclass():
                copy = args[0].clone()
            record.on_host(copy)
            return as_standin(copy) if isinstance(args[0], StandInTensor) else copy
        return None

    def _replace(self, name: str, func: Any, args: Any, kwargs: Any, error: Exception) -> Any:
        inputs = _tensors((args, kwargs))
        known = any(isinstance(tensor, StandInTensor) for tensor in inputs)
        if not known:
            raise error  # the program's own tensors: its own mistake
        if name in _NUMBERS:
            return _NUMBERS[name]
        if name in {"numpy", "__array__"}:
            return inputs[0].detach().numpy() if inputs else 0.5
        if (
            name.endswith("_")
            and len(args) > 1
            and isinstance(args[1], torch.Tensor)
            and (name == "__iadd__" or not name.startswith("_"))
        ):
            try:
                return func(
                    args[0], args[1].mean(), *args[2:], **kwargs
                )  # a scalar total: the stand-in's shape is not the true one
            except (RuntimeError, TypeError):
                pass
        if name in {"__setitem__", "__format__", "__repr__"}:
            return "0.5" if name != "__setitem__" else None
        record.fallback(f"{name}: {type(error).__name__}: {str(error)[:80]}")
        floats = [tensor for tensor in inputs if (tensor.requires_grad or record.apart) and tensor.is_floating_point()]
        result = _plain_data()
        if floats and name not in _CUTS and (torch.is_grad_enabled() or record.apart):
            result = _activations(None, link_to(floats)) + result
        return as_standin(result)


_OF_DICTS = frozenset(
    words("to cuda cpu pin_memory __get__ __iter__ __len__ __contains__ __repr__ __format__ __getitem__ __setitem__")
)
"""What a dict of tensors, or an object that is read like one, may have as a tensor has."""


def _refuse_dict(name: str, args: Any) -> None:
    """What is read by a key is no tensor: a method that only tensors have fails on it, as it would in the program."""
    if not _keyed or name in _OF_DICTS or not args or not isinstance(args[0], StandInTensor):
        return
    if args[0].__dict__.get("_tml_made") in _keyed and sys._getframe(2).f_code.co_filename.startswith(
        "<"
    ):  # called by the code
        raise AttributeError(f"'dict' object has no attribute '{name}'")


def _backward(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a backward (or ``autograd.grad``); of a stand-in that is no scalar, that of its sum; of one without a graph nothing
    (but that is noted)."""
    record.backwards += 1
    rows = _rows_of_the_code()
    record.backward_rows.add(rows)
    record.backward_row = next(iter(rows), 0)
    roots = _tensors(args[:1] or kwargs.get("outputs"))
    standin = any(isinstance(tensor, StandInTensor) for tensor in roots)
    empty = bool(roots) and not any(tensor.requires_grad for tensor in roots)
    record.empty_backwards += empty
    done = record.on_backward(roots) if record.on_backward is not None else None
    with torch._C.DisableTorchFunctionSubclass():
        if func is torch.autograd.grad:
            return _gradients(func, args, kwargs, standin)
        if standin and empty:
            record.fallback("backward on a value without a graph")
            return None
        if standin and roots[0].numel() != 1 and len(args) == 1 and kwargs.get("gradient") is None:
            args = (roots[0].sum(), *args[1:])
        result = func(*args, **kwargs)
    if done is not None:
        done()
    return result


def _row_of_the_code() -> int:
    """The innermost of these rows, 0 for none."""
    return next(iter(_rows_of_the_code()), 0)


def _rows_of_the_code() -> tuple[int, ...]:
    """The rows of the flagged file that are being executed, the innermost first."""
    rows: list[int] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == CODE:
            rows.append(frame.f_lineno)
        frame = frame.f_back
    return tuple(rows)


def _gradients(func: Any, args: Any, kwargs: Any, standin: bool) -> Any:
    try:
        result = func(*args, **kwargs)
    except RuntimeError as error:
        inputs = _tensors(args[1:2] or kwargs.get("inputs"))
        if not standin or "second time" in str(error):
            raise
        record.fallback(f"grad: {str(error)[:80]}")
        return tuple(data() for _ in inputs)
    return tuple(as_standin(item) if standin and isinstance(item, torch.Tensor) else item for item in result)


class StandInTensor(torch.Tensor):
    """A tensor that never fails (see ``Bench``) and that may also be used as a model's output object or a batch."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # reached where no Bench is active (inside the harness itself)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        for item in _tensors(result):
            as_standin(item)
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_tml")):
            raise AttributeError(name)
        if name == "keys":
            return lambda: ["input_ids", "labels"]
        if name == "values":
            return lambda: [self, data()]
        if name == "items":
            return lambda: [("input_ids", self), ("labels", data())]
        if name in {"size", "shape"}:
            raise AttributeError(name)
        return _part(self, f".{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs = _tensors((args, kwargs))
        return forward("an item", inputs) if inputs else _part(self, "()")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return _of_output(self, key)
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        count = unpack_count(sys._getframe(1))
        if count is None:
            count = SHAPE[0]
        return iter([_part(self, f"[{index}]") for index in range(count)])

    def __bool__(self) -> bool:
        record.asked += 1
        return super().__bool__()

    def __contains__(self, item: object) -> bool:
        return True

    def __format__(self, spec: str) -> str:
        return "0.5"

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # torch gives it another name
        return "StandInTensor"

    def __reduce_ex__(self, protocol: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return self.detach().__reduce_ex__(protocol)

    def __deepcopy__(self, memory: Any) -> Any:
        if self.grad_fn is not None:
            raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol at the moment")
        with torch._C.DisableTorchFunctionSubclass():
            return as_standin(self.detach().clone().requires_grad_(self.requires_grad))


def _of_output(output: torch.Tensor, key: str) -> torch.Tensor:
    """What a callee's result holds under a key: that it is read so, says that it is a dict."""
    if "_tml_made" in output.__dict__:
        _keyed.add(output._tml_made)  # type: ignore[attr-defined]
    return _part(output, f"[{key!r}]")


def _part(tensor: torch.Tensor, which: str) -> torch.Tensor:
    """``out.logits``, ``batch["x"]``, an element of a returned tuple: a value on the same graph. Of a guess each part is one
    of its own: a callee may well return a loss with a graph and figures without."""
    guess, direct = guess_of(tensor), getattr(tensor, "_tml_direct", False)
    if guess and direct:
        guess = f"{guess}{which}"[:200]
        if guess in record.inert:
            return marked(data(), guess, True)
    with torch._C.DisableTorchFunction():
        if tensor.is_floating_point():  # with a graph or without: the same figures
            return marked(as_standin((tensor + 0.0).as_subclass(torch.Tensor)), guess, direct)
    return marked(data(), guess, direct)


_TENSOR_MEMBERS = TORCH.words["tensor-members"]
_ALONE = TORCH.words["alone"]
"""Of these the ones that a tensor does without arguments: ``accelerator.log(info, step=…)`` is no logarithm."""
_SAME_DATA = TORCH.words["same-data"]
_NETWORK = re.compile(
    r"(^|_)(model|net|network|module|encoder|decoder|generator|discriminator|critic|actor|policy|backbone|head|classifier|embedding|"
    r"embeddings|rnn|lstm|gru|transformer|bert|unet|resnet|teacher|student|agent|q|qnet|criterion|loss_fn|loss_func|fc\d*|conv\d*|linear\d*)\d*$"
)
"""Attributes that no visible line sets, and that a verb would not be called by: taken for modules (a name alone decides
nothing else)."""


_CRITERION = re.compile(r"(^|[._])(criterion|loss_fn|loss_func)\w*$")


def _is_network(name: str) -> bool:
    """Whether a callee that is not visible is taken for a module: a visible line makes one of it, or its name says so."""
    last = name.rsplit(".", 1)[-1]
    return last in record.modules or _NETWORK.search(last) is not None


_FALSE_NAMES = (
    "dry_run",
    "debug",
    "fp16",
    "ddp",
    "distributed",
    "resume",
    "verbose",
    "half",
    "amp",
    "dist",
    "none",
    "empty",
    "error",
    "exit",
)


class _Alone:
    """``out.log``: of a tensor when it is called without arguments, else of an object that logs."""

    def __init__(self, owner: StandIn, name: str) -> None:
        self._owner, self._name = owner, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return self._owner._part(self._name)(*args, **kwargs)
        return getattr(self._owner.tml_tensor(), self._name)()


_UNIMPLEMENTED = torch.nn.Module.forward
"""The ``forward`` of a module whose subclasses have one."""


class Guess(int):
    """The answer of a comparison with a stand-in: a bool, except that nobody knows it."""


class StandIn:
    """One object for everything that is not there.

    origin  "given" (an argument, an instance that the code made, a name that it bound), "own" (an attribute of ``self``
    that no line in
            sight sets), "part" (an attribute of another stand-in), "unseen" (imported, or bound by code that was left out)
    """

    def __new__(cls, name: str = "", klass: type | None = None, origin: str = "given", called: Any = None) -> StandIn:
        self = object.__new__(cls)
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_klass", klass)
        object.__setattr__(self, "_parts", {})
        object.__setattr__(self, "_origin", origin)
        object.__setattr__(self, "_called", called)
        object.__setattr__(self, "_value", None)
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: code that calls ``Base.__init__(self, …)`` on a base that is a stand-in comes here."""

    # -- attributes and items
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        klass = self._klass
        if klass is not None:
            for base in klass.__mro__:
                if name in vars(base) and base is not object and not base.__module__.startswith("torch"):
                    found = vars(base)[name]
                    return found.__get__(self, klass) if hasattr(found, "__get__") else found
        if self._called is not None and name in _TENSOR_MEMBERS:
            return _Alone(self, name) if name in _ALONE else getattr(self.tml_tensor(), name)
        return self._part(name)

    def _part(self, name: str) -> Any:
        parts = self._parts
        if name not in parts:
            if name in defaults and _OPTIONS.search(self._name):
                return defaults[name]
            same = name in {"forward", "module"}
            origin = self._origin if same else "own" if self._klass is not None else "part"
            parts[name] = StandIn(f"{self._name}.{name}", origin=origin)
        return parts[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._parts[name] = value

    def __delattr__(self, name: str) -> None:
        self._parts.pop(name, None)

    def __getitem__(self, key: Any) -> Any:
        if self._called is not None and isinstance(key, str) and ("item", key) not in self._parts:
            return _of_output(self.tml_tensor(), key)
        if isinstance(key, (str, int, bytes, bool, type(None))):
            return self._parts.setdefault(("item", key), StandIn(f"{self._name}[{key!r}]"))
        return data()

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, (str, int, bytes, bool, type(None))):
            self._parts["item", key] = value

    def __delitem__(self, key: Any) -> None:
        self._parts.pop(("item", key), None)

    def __contains__(self, item: object) -> bool:
        record.asked += 1
        return True

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Iterator[Any]:
        count = unpack_count(sys._getframe(1))
        if count is not None:
            if self._called is not None:
                return iter([_part(self.tml_tensor(), f"[{index}]") for index in range(count)])
            return iter([StandIn(f"{self._name}[{index}]") for index in range(count)])
        return (data() for _ in range(STEPS))

    def __next__(self) -> Any:
        return data()

    def keys(self) -> list[str]:
        """As a mapping: one key."""
        return ["key"]

    # -- calls
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        klass = self._klass
        if klass is not None and getattr(klass, "forward", _UNIMPLEMENTED) is not _UNIMPLEMENTED:
            return klass.forward(self, *args, **kwargs)
        if (
            len(args) == 1
            and not kwargs
            and (isinstance(args[0], type) or type(args[0]).__name__ in {"function", "staticmethod", "classmethod"})
        ):
            record.unknown_decorators.append((getattr(args[0], "__name__", ""), self._name))
            return args[0]
        inputs = _tensors((args, kwargs))
        if self._origin == "part" and self._name.rsplit(".", 1)[-1] in _SAME_DATA:
            return StandIn(self._name.rsplit(".", 1)[0])  # data moved, cast or reshaped is data
        if inputs:
            return self._forward(inputs, sys._getframe(1))
        unknown = [item for item in leaves((args, kwargs)) if isinstance(item, StandIn)]
        for item in unknown:
            item.tml_taken(self._name)
        return StandIn(f"{self._name}()", called=(self, unknown, torch.is_grad_enabled()) if unknown else None)

    def _forward(self, inputs: list[torch.Tensor], caller: Any) -> Any:
        discarded = _discards(caller)
        attached = [tensor for tensor in inputs if tensor.requires_grad]
        last = self._name.rsplit(".", 1)[-1]
        if discarded and "backward" in last and inputs:  # accelerator.backward(loss), engine.backward(loss)
            return inputs[0].backward()  # type: ignore[no-untyped-call, unused-ignore]
        if attached and (discarded or not _TRAINERS.isdisjoint(last.split("_"))):
            record.swallow(self._name, _row_of_the_code())
        guess = self._guess()
        if guess:
            record.guess_rows.setdefault(guess, _row_of_the_code())
        return forward(self._name, inputs, guess)

    def _guess(self) -> str:
        """Whether this callee, called with tensors, may be no model at all: then its name."""
        noun = self._origin in {"own", "part"} and _is_network(self._name)
        trusted = (record.trusted or noun) and not self._name.endswith((".generate", ".sample"))
        return "" if self._origin == "given" or trusted else str(self._name)

    def tml_taken(self, callee: str) -> None:
        """It is an argument of this callee."""

    # -- contexts
    def __enter__(self) -> Any:
        record.open_contexts.append(Located(_row_of_the_code(), self._name))
        return self

    def __exit__(self, *exc: Any) -> None:
        record.open_contexts.pop()

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(self, *exc: Any) -> None:
        self.__exit__()

    def __await__(self) -> Iterator[Any]:
        return iter(())

    async def __aiter__(self) -> Any:
        for _ in range(STEPS):
            yield data()

    # -- as a tensor
    def tml_tensor(self) -> torch.Tensor:
        """What a torch function gets in its place.

        The result of a call with stand-ins turns out to be a model's output when it is used as a tensor: the forward is
        done now, under the grad
        mode of then. For anything else it is unknown whether the true value is attached to a graph, so it counts as a fallback.
        """
        if self._value is None:
            if self._called is not None:
                callee, unknown, grad = self._called
                with torch.set_grad_enabled(grad):
                    value = forward(callee._name, [item.tml_tensor() for item in unknown], callee._guess())
                object.__setattr__(self, "_value", value)
            else:
                record.fallback(f"{self._name} used as a tensor")
                return data()
        value = self._value
        assert isinstance(value, torch.Tensor)
        return value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(lambda leaf: leaf.tml_tensor() if isinstance(leaf, StandIn) else leaf, (args, kwargs or {}))
        return func(*args, **kwargs)

    # -- as a number, a text, a class
    def _truth(self) -> bool:
        record.asked += 1
        last = self._name.lower().rsplit(".", 1)[-1]
        return not any(word in last for word in _FALSE_NAMES)

    def __bool__(self) -> bool:
        return self._truth()

    def __int__(self) -> int:
        return STEPS

    def __index__(self) -> int:
        return STEPS

    def __float__(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return str(self._name)

    def __repr__(self) -> str:
        return f"StandIn({self._name})"

    def __format__(self, spec: str) -> str:
        return str(self._name)

    def __fspath__(self) -> str:
        return "stand-in"

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return Guess(self._truth())  # type: ignore[return-value]

    def __ne__(self, other: object) -> bool:
        return Guess(not self._truth())  # type: ignore[return-value]

    def _compare(self, other: object) -> Guess:
        return Guess(self._truth())

    __lt__ = __le__ = __gt__ = __ge__ = _compare

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, StandIn) and self._truth()

    def __subclasscheck__(self, subclass: type) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()


def _binary(name: str) -> Callable[[StandIn, object], object]:
    def operate(self: StandIn, other: object) -> object:
        if isinstance(other, torch.Tensor):
            own = self.tml_tensor()
            return getattr(own, name)(other)
        return StandIn(f"{self._name}")

    operate.__name__ = name
    return operate


for _name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"]:
    setattr(StandIn, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(StandIn, f"__r{_name}__", _binary(f"__r{_name}__"))
for _name in ["neg", "pos", "invert", "abs"]:
    setattr(StandIn, f"__{_name}__", lambda self: StandIn(self._name))
StandIn.__round__ = lambda self, digits=0: 1  # type: ignore[attr-defined]
