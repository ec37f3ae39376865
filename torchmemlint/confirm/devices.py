"""Which devices experiments run on: as the user names them, as torch sees them."""

from __future__ import annotations

import os
import sys

from torchmemlint.confirm.launch import launch
from torchmemlint.errors import UsageError

KINDS = frozenset({"auto", "cpu", "cuda", "mps"})


def checked(device: str) -> str:
    """The word as it is. Raises UsageError for one that names no device, whatever the machine."""
    kind, _, number = device.partition(":")
    if kind not in KINDS or (number and not number.isdigit()):
        raise UsageError(f"--device {device}: must be auto, cpu, cuda, cuda:N or mps")
    return device


def devices_for(device: str, jobs: int) -> list[str]:
    """A device for each experiment that may run at the same time; ``jobs`` of 0 is one for each GPU, two on a CPU. Raises
    UsageError for a device that is not there."""
    kind, _, number = checked(device).partition(":")
    on_cpu = ["cpu"] * (jobs or min(2, os.cpu_count() or 1))
    if kind == "cpu" or (kind == "auto" and not _may_have_accelerator()):
        return on_cpu
    ended = launch({"runner": "devices"}, 120, sandbox=False, device="cuda")  # code of our own alone
    record = next((record for record in ended.records if "cuda_devices" in record), {})
    count, mps = record.get("cuda_devices", 0), record.get("mps", False)
    assert isinstance(count, int)
    if number:
        if int(number) >= count:
            raise UsageError(f"--device {device}: torch finds {count} CUDA devices")
        return [device]
    if kind in {"auto", "cuda"} and count:
        return [f"cuda:{index}" for index in range(min(count, jobs or count))]
    if kind in {"auto", "mps"} and mps:
        return ["mps"]
    if kind == "auto":
        return on_cpu
    raise UsageError(f"--device {device}: torch finds no such device")


def _may_have_accelerator() -> bool:
    """A cheap look before a child is started only to count devices."""
    return (
        sys.platform == "darwin"
        or os.name == "nt"
        or any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))
    )
