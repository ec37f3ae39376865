"""What a child can be asked to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchmemlint.confirm.worker.compare import run_compared, run_finding
from torchmemlint.confirm.worker.pairs import run_pair

Job = Mapping[str, Any]
Emit = Callable[[Mapping[str, object]], None]


def device_name(device: str) -> str:
    """The device in words, for the record."""
    kind = torch.device(device)
    if kind.type == "cuda":
        return torch.cuda.get_device_name(kind) if torch.cuda.is_available() else "cuda (none)"
    return str(kind)


def run_snippet(job: Job, emit: Emit) -> None:
    """Run a piece of source as it is: the test of the sandbox itself."""
    namespace: dict[str, object] = {"__name__": "__main__", "emit": emit}
    try:
        exec(compile(job["source"], "<snippet>", "exec"), namespace)
    except BaseException as error:
        emit({"raised": f"{type(error).__name__}: {error}"[:500]})
        return
    emit({"finished": True})


def count_devices(job: Job, emit: Emit) -> None:
    """Say which accelerators torch sees."""
    emit(
        {
            "cuda_devices": torch.cuda.device_count() if torch.cuda.is_available() else 0,
            "mps": torch.backends.mps.is_available(),
        }
    )


def load() -> None:
    """Load what the first optimizer loads, for a process that is copied: torch's compiler takes two seconds, and its objects would be
    looked through at every sample of an experiment that loads them itself."""
    torch.optim.SGD([torch.zeros(1)], lr=0.1)


RUNNERS: dict[str, Callable[[Job, Emit], None]] = {
    "snippet": run_snippet,
    "pair": run_pair,
    "isolated": run_finding,
    "compared": run_compared,
    "devices": count_devices,
}
