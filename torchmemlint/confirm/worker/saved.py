"""What ``torch.load`` gives: a stand-in whose weights are on the device as long as the dict that holds them is alive.

Which part of a file is a dict of weights (``checkpoint["state_dict"]``) is known by its use: something loads it, or reads its items. One run
learns that, the next ones put weights there; numbers and options of the file hold none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.modules.module import _IncompatibleKeys

from torchmemlint.confirm.worker import standins
from torchmemlint.confirm.worker.standins import StandIn, StandInTensor

FILE_BYTES = standins.FORWARD_BYTES
"""Of the weights of one dict."""
_WEIGHTS = "weights that were saved"
_dicts: set[tuple[object, ...]] = set()
"""The keys that lead to the dicts of weights in a file, as the runs so far used it."""


class SavedFile(StandIn):
    """A file that was loaded, or what it has under some keys."""

    def __new__(cls, path: tuple[object, ...] = ()) -> SavedFile:
        self = StandIn.__new__(cls, "loaded" + "".join(f"[{key!r}]" for key in path))
        object.__setattr__(self, "_path", path)
        return self  # type: ignore[return-value]

    def tml_taken(self, callee: str) -> None:
        """It is an argument of this callee."""
        if callee.rsplit(".", 1)[-1] == "load_state_dict":
            _dicts.add(self._path)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (str, int)):
            return self._parts.setdefault(("item", key), SavedFile((*self._path, key)))
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """As a dict."""
        return self[key]

    def pop(self, key: Any, default: Any = None) -> Any:
        """As a dict: what is taken out is not held any more."""
        part = self[key]
        self._parts.pop(("item", key), None)
        return part

    def copy(self) -> Any:
        """As a dict: another one of the same tensors."""
        return self

    def state_dict(self) -> Any:
        """As a module that was saved whole."""
        return self

    def keys(self) -> list[str]:
        """As a dict of weights."""
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        """As a dict of weights."""
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[str, Any]]:
        """As a dict of weights: one tensor on the storage of all of them."""
        _dicts.add(self._path)
        weights = self._parts.get(_WEIGHTS)
        if weights is None:
            return [("module.weight", standins.data())]
        with torch._C.DisableTorchFunction():
            return [("module.weight", standins.as_standin(weights[:16].view(standins.SHAPE)))]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())


def loaded(on_device: bool) -> SavedFile:
    """A file, with weights where those that it was saved from were, or (loaded to the host) none that count."""
    file = SavedFile()
    for path in sorted(_dicts, key=repr) or [()] if on_device else []:
        part = file
        for key in path:
            part = part[key]
        part._parts[_WEIGHTS] = torch.zeros(FILE_BYTES // 4)
    return file


def learned() -> frozenset[tuple[object, ...]]:
    """What is known of files by now."""
    return frozenset(_dicts)


def let_in() -> None:
    """Let modules and optimizers of torch load what was saved: nothing is copied."""
    _let_in(torch.nn.Module, lambda *args, **kwargs: _IncompatibleKeys([], []))
    _let_in(torch.optim.Optimizer, lambda *args, **kwargs: None)


def _let_in(klass: Any, nothing: Any) -> None:
    first = klass.load_state_dict

    @functools.wraps(first)
    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state_dict, SavedFile) and klass is torch.nn.Module:
            state_dict.tml_taken("load_state_dict")
        values = list(state_dict.values()) if isinstance(state_dict, Mapping) else []
        if isinstance(state_dict, StandIn) or any(isinstance(value, (StandIn, StandInTensor)) for value in values):
            return nothing()
        return first(self, state_dict, *args, **kwargs)

    klass.load_state_dict = load_state_dict
