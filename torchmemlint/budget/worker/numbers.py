"""Numbers that nobody knows: the sizes of a vocabulary or of features, which a program has from what is missing, and what it computes
from them."""

from __future__ import annotations

import inspect
import operator
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves, tree_map

from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.unsized import IN_ORDER, Unsized
from torchmemlint.confirm.worker.standins import StandIn


class Data(Protocol):
    """What makes numbers up (``outside.Data``)."""

    def number(self, name: str, of_layer: bool = False) -> int: ...
    def joined(self, name: str, items: Sequence[Any]) -> Any: ...


LARGEST = 1 << 24
"""No layer is larger."""
DEEPEST = 8
"""So many operations on a number are kept, one on the result of another: a total that a loop adds to is a number of its own."""
_NO_LAYERS = frozenset({"torch.nn.modules.container", "torch.nn.modules.module"})
_SCALARS = frozenset({"ignore_index", "padding_idx", "fill_value", "label_smoothing", "eps", "alpha", "beta", "p", "dropout_p"})
"""Arguments of torch's functions that are a number."""
_OF_SIZES = frozenset({"zeros", "ones", "empty", "rand", "randn", "full", "arange", "randint", "randperm", "eye", "linspace"})
"""Functions whose arguments are sizes."""
_JOINING = frozenset({"cat", "concat", "stack", "vstack", "pad_sequence"})
"""Functions that make a batch of examples."""


def install(data: Data) -> None:
    """Where torch or the program wants a number, a stand-in is one."""
    kind = type(torch.autograd.Variable)
    call = kind.__call__

    def variable(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        return data if isinstance(data, (Unsized, StandIn)) else call(cls, data, *args, **kwargs)

    def number(self: Any) -> int:
        code = sys._getframe(1).f_code
        if f"{os.sep}torch{os.sep}" not in code.co_filename:
            return size_of(data, self)
        return size_of(data, self, True) if code.co_name in ("__init__", "_make_param") else 1

    def function(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Beside a tensor, in an operation of each element, it is a number: its value changes no size."""
        name = getattr(func, "__name__", "")
        others = [item for item in tree_leaves((args, kwargs)) if isinstance(item, (torch.Tensor, Unsized))]
        alone = name.strip("_") in IN_ORDER and others

        def value(item: Any) -> Any:
            if not isinstance(item, StandIn):
                return item
            return 1 if alone else size_of(data, item, True) if name in _OF_SIZES else item.tml_tensor()

        if (
            name in _JOINING
            and args
            and isinstance(args[0], (list, tuple))
            and all(isinstance(item, StandIn) for item in args[0])
        ):
            return data.joined(name, args[0])
        named = {key: 1 if key in _SCALARS and isinstance(item, StandIn) else item for key, item in (kwargs or {}).items()}
        args, named = tree_map(value, (args, named))
        return func(*args, **named)

    put(kind, "__call__", variable)
    put(StandIn, "__index__", number)
    put(StandIn, "__int__", number)
    put(StandIn, "__len__", lambda self: data.number(f"len({self._name})"))
    put(StandIn, "__torch_function__", classmethod(function))
    for layer in {base for kind in vars(torch.nn).values() if isinstance(kind, type) for base in kind.__mro__}:
        if (
            layer.__module__.startswith("torch.nn.modules.")
            and layer.__module__ not in _NO_LAYERS
            and "__init__" in vars(layer)
        ):
            put(layer, "__init__", _sized(data, vars(layer)["__init__"]))
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        put(StandIn, f"__{name}__", _binary(getattr(operator, name), False))
        put(StandIn, f"__r{name}__", _binary(getattr(operator, name), True))


def _binary(apply: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def operate(self: Any, other: Any) -> Any:
        if isinstance(other, (torch.Tensor, Unsized)):
            return apply(other, 1) if reflected else apply(1, other)
        made = StandIn(str(self._name))
        depth = 1 + max((vars(item).get("_depth", 0) for item in (self, other) if isinstance(item, StandIn)), default=0)
        object.__setattr__(made, "_depth", depth)
        if isinstance(other, (int, float, StandIn)) and depth <= DEEPEST:
            object.__setattr__(made, "_computed", (apply, other, self) if reflected else (apply, self, other))
        return made

    return operate


def size_of(data: Data, item: Any, of_layer: bool = False) -> int:
    """The number that a stand-in is taken for. What was computed from such numbers (``2 * features``) is computed from those that they
    are taken for; where that gives no size, it is one of its own."""
    computed = vars(item).get("_computed")
    if computed is not None:
        apply, *values = computed
        try:
            made = int(apply(*(size_of(data, value, of_layer) if isinstance(value, StandIn) else value for value in values)))
        except (ArithmeticError, TypeError, ValueError):
            made = 0
        if 0 < made <= LARGEST:
            return made
    return data.number(str(item._name), of_layer)


def _sized(data: Data, begin: Callable[..., None]) -> Callable[..., None]:
    """A layer's constructor: a stand-in that is a size becomes a number, another the parameter's default."""
    parameters = inspect.signature(begin).parameters

    def value(name: str, item: Any) -> Any:
        if not isinstance(item, StandIn):
            return item
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        is_size = name not in _SCALARS and (default is inspect.Parameter.empty or type(default) is int)
        return size_of(data, item, True) if is_size else None if default is inspect.Parameter.empty else default

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if any(isinstance(item, StandIn) for item in (*args, *kwargs.values())):
            names = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_POSITIONAL][1:]
            args = tuple(value(names[at] if at < len(names) else "", item) for at, item in enumerate(args))
            kwargs = {name: value(name, item) for name, item in kwargs.items()}
        begin(self, *args, **kwargs)

    return init
