"""The child's first and last lines: read the job, go behind the sandbox, only then import torch and run."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from typing import Any

from torchmemlint.confirm import channel, sandbox


def main(runners: str) -> None:
    """Do the job on standard input with one of the ``RUNNERS`` of the module ``runners``; answers go to the original standard
    output, as ``channel`` writes them."""
    sandbox.end_with_parent()
    job: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    emit, guard = channel.sender(os.dup(1), job.pop("key"))
    os.dup2(2, 1)  # what the code prints is output, not a result
    how, refused = _shut_in(job)
    emit({"sandbox": how, "refused": refused} if refused else {"sandbox": how})
    if not refused:
        _work(job, emit, guard, runners)
    emit({channel.END: True})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads or exit handlers of the code that ran have no say


def _work(job: dict[str, Any], emit: channel.Emit, guard: Any, runners: str) -> None:
    try:
        import torch
    except ImportError as error:
        emit({"failed": f"torch cannot be imported: {error}"})
        return
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # torch's own 300,000 objects need not be looked at again at every sample
    if _how == sandbox.LANDLOCK:
        sandbox.fasten_seat_belt(job["work"])
    from torchmemlint.confirm.worker import experiments

    emit({"torch": torch.__version__, "device": experiments.device_name(job["device"]), "resident": sandbox.resident_bytes()})
    if runners != experiments.__name__:  # which change the stand-ins for themselves first
        importlib.import_module(runners).RUNNERS[job["runner"]](job, emit, guard)
        return
    if job["runner"] != "snippet":  # which is given what answers
        guard()
    experiments.RUNNERS[job["runner"]](job, emit)


_how = ""


def _shut_in(job: dict[str, Any]) -> tuple[str, str]:
    """How this process was shut in, or "" and why it was not, where it had to be."""
    global _how
    limits = sandbox.Limits(**job["limits"])
    sandbox.first_to_go()
    reasons = []
    for wall in job["walls"]:
        try:
            _how = sandbox.WALLS[wall](job["readable"], job["work"], limits, job["device"] != "cpu")
        except OSError as error:
            reasons.append(str(error))
            continue
        return (f"{_how} ({reasons[0]})" if reasons else _how), ""
    sandbox.set_limits(limits)
    return ("", "; ".join(reasons)) if reasons else ("none", "")
