"""The sizes of a tensor whose shape is not known yet (``unsized.Unsized``)."""

from __future__ import annotations

import sys
from typing import Any

import torch

from torchmemlint.confirm.worker.standins import _unpack_count


class Sizes:
    """The sizes of what has none yet: the first is the batch's."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int):
            self._of._has(key + 1)
        if key == slice(1, None, None):
            return _Rest(self._of)
        return self._of._batch if key == 0 else self._of._forced().shape[key]

    def __iter__(self) -> Any:
        return iter(self._of._forced(_unpack_count(sys._getframe(1)) or 0).shape)

    def __len__(self) -> int:
        return len(self._of._forced().shape)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (torch.Size, tuple)):
            self._of._decide(other)
        return True

    __hash__ = None  # type: ignore[assignment]

    def numel(self) -> int:
        """As of ``torch.Size``."""
        return int(self._of._forced().numel())


class _Rest:
    """The sizes behind the batch's, of what has none yet: compared with others they are those."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (torch.Size, tuple)):
            self._of._decide((self._of._batch, *other), torch.int64)
            return True
        return bool(self._all == other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    @property
    def _all(self) -> Any:
        return self._of._forced().shape[1:]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)

    def __iter__(self) -> Any:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, key: Any) -> Any:
        return self._all[key]
