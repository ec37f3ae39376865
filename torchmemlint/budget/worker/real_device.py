"""``--check``: what the allocator of a real device says of the same step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torchmemlint.budget.worker.measure import EndOfRun, Run


class RealRun(Run):
    """Nothing is fake and nothing is taken down: the peaks are those of ``torch.cuda``, from the end of the first step."""

    peaks: tuple[int, int] = (0, 0)
    real = True

    @contextlib.contextmanager
    def running(self) -> Iterator[Run]:
        """The hooks alone."""
        torch.cuda.init()
        hooks = self.hooks()
        try:
            yield self
        finally:
            self._read()
            for hook in hooks:
                hook.remove()

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.optimizers.index(optimizer):
            return
        self._read()
        self.marks.append((len(self.marks), 0))
        if len(self.marks) >= 2:
            raise EndOfRun
        torch.cuda.reset_peak_memory_stats("cuda")

    def _read(self) -> None:
        if len(self.marks) < 2:
            torch.cuda.synchronize("cuda")
            self.peaks = torch.cuda.max_memory_allocated("cuda"), torch.cuda.max_memory_reserved("cuda")
