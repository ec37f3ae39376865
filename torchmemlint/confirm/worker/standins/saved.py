"""What ``torch.load`` gives: a stand-in whose weights are on the device as long as the dict that holds them is alive.

Which part of a file is a dict of weights (``checkpoint["state_dict"]``) is known by its use: something loads it, or reads its items. One run
learns that, the next ones put weights there; numbers and options of the file hold none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchmemlint.confirm.worker.standins.stage import FORWARD_BYTES, Stage
from torchmemlint.confirm.worker.standins.standin import StandIn
from torchmemlint.confirm.worker.standins.tensors import SHAPE, as_standin, data

ON_DEVICE = object()
"""The place of a checkpoint that is loaded onto the device that it was saved from."""
FILE_BYTES = FORWARD_BYTES
"""Of the weights of one dict."""
_WEIGHTS = "weights that were saved"


class SavedFile(StandIn):
    """A file that was loaded, or what it has under some keys."""

    def __new__(cls, stage: Stage | None = None, path: tuple[object, ...] = ()) -> SavedFile:
        self = StandIn.__new__(cls, stage, "loaded" + "".join(f"[{key!r}]" for key in path))
        vars(self)["tml_path"] = path
        return self  # type: ignore[return-value]

    def tml_taken(self, callee: str) -> None:
        """It is an argument of this callee."""
        if callee.rsplit(".", 1)[-1] == "load_state_dict":
            self.tml_stage.dicts.add(self.tml_path)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (str, int)):
            return self.tml_parts.setdefault(("item", key), SavedFile(self.tml_stage, (*self.tml_path, key)))
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """As a dict."""
        return self[key]

    def pop(self, key: Any, default: Any = None) -> Any:
        """As a dict: what is taken out is not held any more."""
        part = self[key]
        self.tml_parts.pop(("item", key), None)
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
        self.tml_stage.dicts.add(self.tml_path)
        weights = self.tml_parts.get(_WEIGHTS)
        if weights is None:
            return [("module.weight", data(self.tml_stage))]
        with torch._C.DisableTorchFunction():
            return [("module.weight", as_standin(self.tml_stage, weights[:16].view(SHAPE)))]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())


def loaded(stage: Stage, map_location: object) -> SavedFile:
    """A file, with weights where those that it was saved from were, or (loaded to the host) none that count."""
    file = SavedFile(stage)
    for path in sorted(stage.dicts, key=repr) or [()] if map_location is ON_DEVICE else []:
        part = file
        for key in path:
            part = part[key]
        part.tml_parts[_WEIGHTS] = torch.zeros(FILE_BYTES // 4)
    return file
