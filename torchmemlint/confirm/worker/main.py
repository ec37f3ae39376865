"""The child's first and last lines: read the job, go behind the sandbox, only then import torch and run."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from torchmemlint.confirm import sandbox

Emit = Callable[[Mapping[str, object]], None]


def main(runners: str) -> None:
    """Do the job on standard input with one of the ``RUNNERS`` of the module ``runners``; records go to the original standard
    output, one JSON object per line."""
    sandbox.end_with_parent()
    job: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    results = os.dup(1)
    os.dup2(2, 1)  # what the code prints is output, not a result

    def emit(record: Mapping[str, object]) -> None:
        os.write(results, json.dumps(record).encode() + b"\n")

    emit({"sandbox": _shut_in(job)})
    try:
        import torch
    except ImportError as error:
        emit({"failed": f"torch cannot be imported: {error}"})
        return
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # torch's own 300,000 objects need not be looked at again at every sample
    if job["sandbox"] and not _has_namespaces:
        sandbox.fasten_seat_belt(job["work"])
    from torchmemlint.confirm.worker import experiments

    emit({"torch": torch.__version__, "device": experiments.device_name(job["device"])})
    importlib.import_module(runners).RUNNERS[job["runner"]](job, emit)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads or exit handlers of the code that ran have no say


_has_namespaces = False


def _shut_in(job: Mapping[str, Any]) -> str:
    global _has_namespaces
    limits = sandbox.Limits(**job["limits"])
    sandbox.first_to_go()
    if not job["sandbox"]:
        sandbox.set_limits(limits)
        return "none"
    try:
        how = sandbox.enter(job["readable"], job["work"], limits, job["device"] != "cpu")
        _has_namespaces = True
        return how
    except OSError as error:
        sandbox.set_limits(limits)
        return f"audit hook ({error})"
