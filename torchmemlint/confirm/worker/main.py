"""The child, from its job to its last word: nothing of torch before it is behind the sandbox."""

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
    wall, lacks = _shut_in(job)
    if wall:
        emit({"sandbox": f"{wall} ({lacks})" if lacks else wall})
        _work(job, emit, guard, runners, wall)
    else:
        emit({"sandbox": "", "refused": lacks})
    emit({channel.END: True})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads or exit handlers of the code that ran have no say


def _work(job: dict[str, Any], emit: channel.Emit, guard: Any, runners: str, wall: str) -> None:
    try:
        import torch
    except ImportError as error:
        emit({"failed": f"torch cannot be imported: {error}"})
        return
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # torch's own 300,000 objects need not be looked at again at every sample
    if wall == sandbox.LANDLOCK:
        sandbox.fasten_seat_belt(job["work"])
    from torchmemlint.confirm.worker import experiments

    emit({"torch": torch.__version__, "device": experiments.device_name(job["device"]), "resident": sandbox.resident_bytes()})
    if runners != experiments.__name__:  # which change the stand-ins for themselves first
        importlib.import_module(runners).RUNNERS[job["runner"]](job, emit, guard)
        return
    if job["runner"] != "snippet":  # which is given what answers
        guard()
    experiments.RUNNERS[job["runner"]](job, emit)


def _shut_in(job: dict[str, Any]) -> tuple[str, str]:
    """What this process was shut in by, "" where nothing could be had; and why not by what comes first."""
    limits = sandbox.Limits(**job["limits"])
    sandbox.first_to_go()
    reasons = []
    for wall in job["walls"]:
        try:
            shut_in = sandbox.WALLS[wall](job["readable"], job["work"], limits, job["device"] != "cpu")
        except OSError as error:
            reasons.append(str(error))
            continue
        return shut_in, "; ".join(reasons)
    sandbox.set_limits(limits)
    return "" if reasons else "none", "; ".join(reasons)
