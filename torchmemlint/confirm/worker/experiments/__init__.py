"""What a child can be asked to run.

``isolated`` is the experiment on a finding: ``measure`` is one run of it, ``cached`` that of a function with a cache; ``compare`` says
whether a fix changes what the program does; ``pairs`` measures a fixture. Next to read: ``confirm/verdict``, which decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchmemlint.confirm.channel import Emit
from torchmemlint.confirm.worker.experiments.compare import compared
from torchmemlint.confirm.worker.experiments.isolated import run_isolated
from torchmemlint.confirm.worker.experiments.pairs import run_pair
from torchmemlint.confirm.worker.harness import prepare_torch
from torchmemlint.confirm.worker.standins import STEPS, Stage

Job = Mapping[str, Any]


def device_name(device: str) -> str:
    """The device in words, for the record."""
    kind = torch.device(device)
    if kind.type == "cuda":
        return torch.cuda.get_device_name(kind) if torch.cuda.is_available() else "cuda (none)"
    return str(kind)


def run_finding(job: Job, emit: Emit) -> None:
    """The experiment on a finding, and after it whether its fix changes what the program does."""
    stage = _stage_of(job)
    run_isolated(stage, job, emit)
    if job.get("fixed_source"):
        emit({"compared": compared(stage, job)})


def run_compared(job: Job, emit: Emit) -> None:
    """Only the fix: nothing is measured."""
    stage = _stage_of(job)
    prepare_torch(stage, str(job["device"]))
    emit({"compared": compared(stage, job)})


def _stage_of(job: Job) -> Stage:
    return Stage(int(job.get("steps", STEPS)), job.get("defaults", {}))


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
