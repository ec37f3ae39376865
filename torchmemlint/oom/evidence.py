"""Figures outside the message: nvidia-smi's tables, PyTorch's memory summary, and the marks of the job's own processes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchmemlint.oom.sizes import GIB, MIB


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the lines around a message give in numbers; every size is in bytes.

    cards      (used, total) of each device that nvidia-smi lists
    residents  (device, process, bytes) of each process that it lists
    allocated  live tensors by the memory summary, None without one
    active     the same with blocks that are freed and wait for another stream
    workers    (process, name) of the job's own workers, as the marks of their lines give them
    pool       the largest pool of an AMD device that the kernel's log names, 0 without one
    listed     (bytes, process, command) of each process in a list of Ray, the largest first
    """

    cards: tuple[tuple[int, int], ...] = ()
    residents: tuple[tuple[int, int, int], ...] = ()
    allocated: int | None = None
    active: int | None = None
    workers: tuple[tuple[int, str], ...] = ()
    pool: int = 0
    listed: tuple[tuple[int, int, str], ...] = ()

    @property
    def full(self) -> tuple[int, int] | None:
        """The fullest card of which less than a twentieth is left, None when there is none."""
        full = [card for card in self.cards if card[0] > 0.95 * card[1]]
        return max(full, default=None)

    @property
    def beside(self) -> tuple[int, int] | None:
        """(device, bytes) of the fullest device on which a process has next to nothing that holds much of another; None for none.

        Such a process has a bare context there: it was to run elsewhere.
        """
        bare = {
            device
            for device, process, size in self.residents
            if size < 1024 * MIB
            and any(other == process and there != device and more > 2 * size for there, other, more in self.residents)
        }
        held = [(sum(size for there, _, size in self.residents if there == device), device) for device in bare]
        return (max(held)[1], max(held)[0]) if held else None


NOTHING = Evidence()
_CARD = re.compile(r"\b(\d{1,7}) ?MiB ?[/,] {0,3}(\d{3,7}) ?MiB\b")
_RESIDENT = re.compile(r"^\W{0,8}(\d{1,3})\s+(?:N/A\s+N/A\s+)?(\d{1,9})\s+(?:C|G|C\+G)\s+\S.{0,120}?\s(\d{1,7}) ?MiB\b")
_SUMMARY = re.compile(r"\| (Allocated|Active) memory\s+\|\s*(\d{1,12}) ([KMGT]?)i?B?\b")
_WORKER = re.compile(r"\W{0,2}([A-Za-z_][\w.:]{1,60})(?:[ \[]\w{1,12}=\w{1,12}\]?)? pid=(\d{1,10})\b")
"""Sources: nvidia-smi; torch/cuda/memory.py, memory_summary; ray and vllm, the marks of their workers."""
_POOL = re.compile(r"\bamdgpu: (\d{3,8})M of (?:VRAM|GTT) memory ready")
_LISTED = re.compile(r"^\W{0,4}(\d{1,9})\s+(\d{1,5}\.\d\d)\s+(\S.{0,80})")
"""Sources: linux drivers/gpu/drm/amd/amdgpu/amdgpu_ttm.c; ray src/ray/raylet/worker_killing_policy.cc."""
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def evidence_of(lines: Sequence[str], own: str) -> Evidence:
    """What ``lines`` give in numbers; ``own`` begins with the mark of the process that failed, which is none of the other workers."""
    cards = [(int(found[1]) * MIB, int(found[2]) * MIB) for line in lines for found in _CARD.finditer(line)]
    residents = [found.groups() for line in lines if (found := _RESIDENT.search(line)) is not None]
    summary = {found[1]: int(found[2]) * 1024 ** _POWERS[found[3]] for line in lines for found in _SUMMARY.finditer(line)}
    listed = [
        (int(float(found[2]) * GIB), int(found[1]), found[3]) for line in lines if (found := _LISTED.search(line)) is not None
    ]
    workers = {int(found[2]): found[1] for line in lines if (found := _WORKER.match(line)) is not None}
    if (mine := _WORKER.match(own)) is not None:
        workers.pop(int(mine[2]), None)
    return Evidence(
        tuple(dict.fromkeys((min(card), max(card)) for card in cards)),
        tuple((int(device), int(process), int(size) * MIB) for device, process, size in residents),
        summary.get("Allocated"),
        summary.get("Active"),
        tuple(workers.items()),
        max((int(found[1]) * MIB for line in lines for found in _POOL.finditer(line)), default=0),
        tuple(sorted(listed, reverse=True)),
    )
