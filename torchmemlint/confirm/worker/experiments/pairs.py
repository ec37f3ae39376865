"""Measures a function ``run(steps)`` of a file against that of its corrected twin: the experiment of a fixture."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchmemlint.confirm.channel import Emit
from torchmemlint.confirm.verdict import Located
from torchmemlint.confirm.worker.graphs import walk
from torchmemlint.confirm.worker.meter import meter_for

STEPS = 8


def run_pair(job: Mapping[str, Any], emit: Emit) -> None:
    """Measure both variants of the job, ``before`` first; each is a mapping of file name to source, with the name of its
    main module."""
    if torch.device(job["device"]).type != "cpu":
        torch.set_default_device(job["device"])
        _by_way_of_the_host()
    for variant in ("before", "after"):
        emit(
            {
                "variant": variant,
                "run": measure(job[variant], job["module"], job["device"], int(job.get("steps", STEPS)), variant),
            }
        )


def _by_way_of_the_host() -> None:
    """Let ``.numpy()`` of the programs, which are written for any machine, copy to the host first."""
    first = torch.Tensor.numpy

    def numpy(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return first(self.cpu(), *args, **kwargs)

    torch.Tensor.numpy = numpy  # type: ignore[method-assign, assignment]


def _load(files: Mapping[str, str], module: str, name: str) -> Callable[[int], object]:
    """The ``run`` of the files, written below the working directory and imported from there."""
    for path, text in files.items():
        target = os.path.join(os.getcwd(), name, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
    for loaded in [
        key for key in sys.modules if key.split(".")[0] in {path.split("/")[0].removesuffix(".py") for path in files}
    ]:
        del sys.modules[loaded]
    sys.path.insert(0, os.path.join(os.getcwd(), name))
    try:
        importlib.invalidate_caches()
        run: Callable[[int], object] = importlib.import_module(module).run
        return run
    finally:
        sys.path.pop(0)


def measure(files: Mapping[str, str], module: str, device: str, steps: int, name: str) -> Mapping[str, object]:
    """Call ``run(1)`` … ``run(steps)``, each time with the result kept while the bytes are read."""
    started = time.monotonic()
    names = ("live_bytes", "uncollected_bytes", "nodes", "retained_bytes", "requested_bytes")
    samples: dict[str, list[int]] = {name: [] for name in names}
    peak = graph = 0
    errors: list[Located] = []
    meter = meter_for(device)
    try:
        with meter:
            run = _load(files, module, name)
            run(2)  # one-time caches
            gc.collect()
            graph = _graph_bytes(run, steps)
            gc.collect()
            for count in range(1, steps + 1):
                base = meter.live_bytes()
                asked = meter.requested_bytes()
                meter.reset_peak()
                kept = run(count)
                peak = meter.peak_bytes() - base
                samples["uncollected_bytes"].append(meter.live_bytes() - base)
                held = walk(kept)
                samples["nodes"].append(held.nodes)
                samples["retained_bytes"].append(held.retained_bytes)
                gc.collect()
                samples["live_bytes"].append(meter.live_bytes() - base)
                if meter.rounds:
                    samples["requested_bytes"].append(meter.requested_bytes() - asked)
                del kept
                gc.collect()
    except Exception as error:  # whatever the code raises is a result
        frames = traceback.extract_tb(error.__traceback__)
        errors.append(Located.raised(frames[-1].lineno or 0, error))
    return {
        **samples, "peak_bytes": peak,
        "graph_bytes": graph, "attached": graph > 0, "seen": "tensor", "place": "real", "errors": [item.packed() for item in errors], "device": device,
        "seconds": time.monotonic() - started, "mode": "run(steps)",
    }  # fmt: skip


def _graph_bytes(run: Callable[[int], object], steps: int) -> int:
    """Bytes that one step saves for a backward, leaves left out: the difference of two runs, in a pass of its own.

    The hook gives back a detached tensor: one that gave back the tensor itself would tie a node to its own output and
    make the growth
    that is to be measured.
    """

    def saved(count: int) -> int:
        sizes: dict[int, int] = {}
        kept: list[torch.Tensor] = []  # an address is not used again while its storage lives

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            root = tensor if tensor._base is None else tensor._base
            alone = tensor.detach()
            if not (root.is_leaf and root.requires_grad):
                kept.append(alone)
                storage = tensor.untyped_storage()
                sizes[storage._cdata] = storage.nbytes()
            return alone

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            run(count)
        return sum(sizes.values())

    return max(0, (saved(steps) - saved(steps // 2)) // (steps - steps // 2))
