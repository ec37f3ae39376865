"""Names and arguments that Python and libraries have taken away since the program was written. None of them holds memory."""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from torchmemlint.budget.worker.patch import put

_COLLECTIONS = (
    "Mapping", "MutableMapping", "Sequence", "MutableSequence", "Iterable", "Iterator", "Callable", "Hashable", "Set", "Sized", "Container",
)  # fmt: skip
"""Python 3.10, what's new: aliases of ``collections.abc``."""
_NUMPY = {"bool": bool, "int": int, "float": float, "complex": complex, "object": object, "str": str}
"""NumPy 1.24, release notes: expired deprecations."""
_NUMPY_2 = {
    "float_": "float64",
    "Inf": "inf",
    "Infinity": "inf",
    "NaN": "nan",
    "unicode_": "str_",
    "product": "prod",
    "in1d": "isin",
}
"""NumPy 2.0, migration guide."""


def put_back() -> None:
    """What was there, where it is not any more."""
    for name in _COLLECTIONS:
        _restore(collections, name, getattr(collections.abc, name))
    _restore(inspect, "getargspec", inspect.getfullargspec)
    _schedulers()
    if "torch._six" not in sys.modules:
        sys.modules["torch._six"] = _six()
    with contextlib.suppress(Exception):  # not installed, or broken
        numpy = importlib.import_module("numpy")
        for name, kind in _NUMPY.items():
            _restore(numpy, name, kind)
        for name, now in _NUMPY_2.items():
            _restore(numpy, name, getattr(numpy, now))
    with contextlib.suppress(Exception):
        picture = importlib.import_module("PIL.Image")
        _restore(picture, "ANTIALIAS", picture.Resampling.LANCZOS)  # Pillow 10
    with contextlib.suppress(Exception):
        yaml = importlib.import_module("yaml")
        put(yaml, "load", _with_loader(yaml.load, yaml.SafeLoader))


def _restore(place: Any, name: str, value: object) -> None:
    if name not in vars(place):
        put(place, name, value)


def _with_loader(load: Callable[..., Any], loader: Any) -> Callable[..., Any]:
    """PyYAML 6.0: ``load`` wants a loader."""
    return lambda stream, Loader=loader: load(stream, Loader=Loader)


def _schedulers() -> None:
    """torch 2.7 has no ``verbose`` of schedulers any more."""
    module = torch.optim.lr_scheduler
    for kind in list(vars(module).values()):
        if isinstance(kind, type) and issubclass(kind, module.LRScheduler) and "__init__" in vars(kind):
            put(kind, "__init__", _without_verbose(kind.__init__))


def _without_verbose(begin: Callable[..., None]) -> Callable[..., None]:
    if "verbose" in inspect.signature(begin).parameters:
        return begin

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("verbose", None)
        begin(self, *args, **kwargs)

    return init


def _six() -> types.ModuleType:
    """torch 1.13 and before."""
    made = types.ModuleType("torch._six")
    values: dict[str, Any] = {
        "string_classes": (str, bytes), "int_classes": int, "container_abcs": collections.abc, "inf": float("inf"),
        "nan": float("nan"), "with_metaclass": lambda meta, *bases: meta("Base", bases, {}), "PY3": True,
    }  # fmt: skip
    for name, value in values.items():
        setattr(made, name, value)
    return made
