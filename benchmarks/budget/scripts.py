"""``python -m benchmarks.budget.scripts PROGRAM [BUDGET OPTIONS] -- ARGUMENTS``: what `budget` says of a program, and a count on real tensors.

Both run in the sandbox. The count is the peak of live bytes (`confirm`'s meter) from the end of the first optimizer step to that of the
second, of the program as it is, on the CPU; if it demands a device, of what it puts there. What only CUDA has (workspaces) is left out of the estimate that it is compared with. The
checkout must be on the interpreter's path (``pip install -e .``), and the program's packages and data be there.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]


class _Counted(BaseException):
    """The second step has been seen."""


def run_counted(job: Mapping[str, Any], emit: Callable[[Mapping[str, object]], None], guard: Callable[[], None]) -> None:
    """In the sandbox: the program, counted by a meter; with ``cuda`` by a tape, in a torch that says it has a device."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    peaks: list[int] = []
    first: list[object] = []
    with contextlib.ExitStack() as modes:
        peak = _on_device(modes) if job["cuda"] else _on_host(modes)

        def stepped(optimizer: object, args: object, kwargs: object) -> None:
            first[:] = first or [optimizer]
            if optimizer is first[0]:
                peaks.append(peak())
                if len(peaks) == 2:
                    raise _Counted

        root, copy = str(job["root"]), os.path.join(str(job["work"]), "project")
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".git"), ignore_dangling_symlinks=True)  # it may write there
        path, folder = (os.path.join(copy, os.path.relpath(str(job[name]), root)) for name in ("path", "folder"))
        module = ".".join(os.path.relpath(path, copy).removesuffix(".py").split(os.sep))
        sys.argv = [path, *job["arguments"]]
        sys.path[:0] = [os.path.dirname(path), copy]
        os.chdir(folder)
        os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
        guard()
        reason = "the program ended before its second step"
        register_optimizer_step_post_hook(stepped)
        modes.enter_context(torch.backends.mkldnn.flags(enabled=False))
        try:
            if os.path.exists(os.path.join(os.path.dirname(path), "__init__.py")):
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(path, run_name="__main__")
        except _Counted:
            reason = ""
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            reason = f"{where.filename}:{where.lineno}: {type(error).__name__}: {error}"[:300]
            traceback.print_exc()
    emit({"counted": {"peaks": peaks, "reason": reason}})


def _on_host(modes: contextlib.ExitStack) -> Callable[[], int]:
    """Counts every tensor; gives the peak since it was last asked."""
    from torchmemlint.confirm.worker.meter import StorageMeter

    meter = modes.enter_context(StorageMeter("cpu"))

    def peak() -> int:
        found = int(meter.peak_bytes())
        meter.reset_peak()
        return found

    return peak


def _on_device(modes: contextlib.ExitStack) -> Callable[[], int]:
    """Counts the real tensors that the program asked a device for: `budget`'s tape and its view of what is where, with real values."""
    import torch

    from torchmemlint.budget.worker import device_queries, launcher, legacy_types
    from torchmemlint.budget.worker.cuda import Gpu
    from torchmemlint.budget.worker.placement import Placement, default_device, in_backward, move_in_place, pretend_cuda
    from torchmemlint.budget.worker.tape import Tape

    class Real(Placement):
        def _values(self, tensor: Any, as_list: bool) -> Any:
            with torch._C.DisableTorchFunction():
                return tensor.tolist() if as_list else tensor.numpy()

    tape = Tape(lambda path: False, all_on_device=False)
    placement = Real(tape)
    torch.Tensor.pin_memory = lambda self, *args: self  # type: ignore[method-assign]  # loaders do it in a thread
    pretend_cuda(Gpu((8, 0), 0, "auto"), tape)
    move_in_place()
    default_device(placement)
    in_backward(placement)
    legacy_types.install(tape)
    launcher.install()
    device_queries.install(tape, placement.is_asked)
    begun = 0

    def peak() -> int:
        nonlocal begun
        highest = live = 0
        for index, (number, sign) in enumerate(tape.events):
            live += sign * tape.blocks[number].size * tape.blocks[number].on_device
            highest = max(highest, live) if index >= begun else live
        begun = len(tape.events)
        return highest

    modes.enter_context(placement)
    modes.enter_context(tape)
    return peak


RUNNERS = {"counted": run_counted}


def main() -> int:
    """Both, and the difference."""
    from torchmemlint.budget import command, runs
    from torchmemlint.confirm.launch import launch

    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    arguments = sys.argv[len(own) + 2 :]
    made = command.parser().parse_args([*own, "--", *arguments])
    job, options, _ = command._job(made)
    estimate = runs.estimate(job, options)
    real = {**{name: job[name] for name in ("path", "root", "folder", "arguments")}, "runner": "counted"}
    for cuda in (False, True):
        ended = launch(
            {**real, "cuda": cuda},
            options.timeout,
            options.sandbox,
            runners=__spec__.name,
            readable=[*options.readable, str(HERE)],
        )
        found: Any = next((record["counted"] for record in ended.records if "counted" in record), None)
        found = found or {
            "peaks": [],
            "reason": ended.ending or str([record for record in ended.records if "failed" in record]),
        }
        if found["peaks"] and found["peaks"][-1]:
            break
        print(ended.output[-int(os.environ.get("COUNTED", "1")) :], file=sys.stderr)
    row: dict[str, object] = {
        "reason": estimate.reason,
        "counted_reason": found["reason"],
        "seconds": round(estimate.seconds, 1),
    }
    if estimate.budget:
        row["estimate"] = estimate.allocated - int(estimate.budget["parts"].get("workspaces", 0))
        row["steps"] = estimate.steps
    if found["peaks"] and found["peaks"][-1]:
        row["counted"], row["as"] = found["peaks"][-1], "device" if cuda else "host"
    if "estimate" in row and "counted" in row:
        row["percent"] = round(100 * (row["estimate"] / row["counted"] - 1), 1)  # type: ignore[operator]
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
