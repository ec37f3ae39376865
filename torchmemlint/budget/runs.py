"""Jobs for the child, and what comes back: one run, its batch made larger, its remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from torchmemlint.confirm.launch import Ended, launch, printable

RUNNERS = "torchmemlint.budget.worker.program"
CONTEXT = 141_426_688
"""The CUDA context with cuBLAS and cuDNN loaded, on a T4: torch-preflight's record. Larger devices have up to 600 MB."""
CUBLASLT = 32 << 20
"""The largest workspace that cuBLASLt gets (CublasHandlePool.cpp, on Hopper)."""
MOST_BATCHES = 14
"""As many batches are tried for the largest that fits."""
RESERVED_ERROR = 0.08
"""How far the replayed reserved figure may be off: the cache keeps what runs before the step left, which is not replayed.
On the eight rows of docs/budget.md it is at most 6.6 % off."""

REMEDIES = (
    "bf16 autocast", "fp16 autocast", "checkpointing", "fused optimizer", "foreach=False", "8-bit AdamW",
    "SGD without momentum", "set_to_none", "chunked loss",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told:
    """What a run told. ``budget`` is empty where nothing could be told; ``reason`` says why, or why only in part; ``disbelieved``
    where no other argument would change that: it was not run at all, or its answers were forged."""

    budget: Mapping[str, Any]
    reason: str
    steps: int
    assumed: tuple[str, ...]
    skipped: tuple[str, ...]
    missing: tuple[str, ...]
    batch: int
    seconds: float
    sandbox: str
    disbelieved: bool = False

    @property
    def allocated(self) -> int:
        """Peak of allocated bytes."""
        return int(self.budget.get("allocated", 0))

    @property
    def reserved(self) -> int:
        """Peak of reserved bytes."""
        return int(self.budget.get("reserved", 0))

    @property
    def allocated_interval(self) -> tuple[int, int]:
        """Without the workspaces, and with the largest that may come."""
        return self.allocated - int(self.budget.get("parts", {}).get("workspaces", 0)), self.allocated + CUBLASLT

    @property
    def reserved_interval(self) -> tuple[int, int]:
        """From no fragmentation at all to the replay with its error."""
        return max(self.allocated, int(self.reserved * (1 - RESERVED_ERROR))), int(self.reserved * (1 + RESERVED_ERROR))

    @property
    def needed(self) -> int:
        """What the device must have: the upper end of what is reserved, and the context."""
        return self.reserved_interval[1] + CONTEXT


@dataclass(frozen=True, slots=True)
class Options:
    """How the child runs."""

    timeout: float = 120.0
    sandbox: bool = True
    readable: Sequence[str] = field(default_factory=tuple)


def told(job: Mapping[str, object], options: Options, **changed: object) -> Told:
    """Run the job once, with some of it changed."""
    ended = launch(
        {"runner": "budget", **job, **changed}, options.timeout, options.sandbox, runners=RUNNERS, readable=options.readable
    )
    return from_records(ended)


def from_records(ended: Ended) -> Told:
    """What the child's records say, where they can be believed; its words are made printable."""
    if ended.refused:
        return _nothing(
            ended, f"not run: no sandbox is available here ({ended.refused}); --no-sandbox runs it without one", True
        )
    if ended.forged:
        return _nothing(ended, f"forged: {ended.forged}; its answers are ignored", True)
    found = next((record["told"] for record in ended.records if isinstance(record.get("told"), dict)), None)
    if not isinstance(found, dict) or ended.ending:
        failed = next((str(record["failed"]) for record in ended.records if "failed" in record), "")
        return _nothing(ended, failed or f"the run ended before its step: {ended.ending or 'no record'}")
    budget = found.get("budget")
    return Told(
        budget if isinstance(budget, dict) else {}, printable(found.get("reason", "")), int(found.get("steps", 0)),
        _lines(found.get("assumed")), _lines(found.get("skipped")), _lines(found.get("missing")),
        int((found.get("batch") or [0])[0]), ended.seconds, ended.sandbox,
    )  # fmt: skip


def _nothing(ended: Ended, reason: str, disbelieved: bool = False) -> Told:
    return Told({}, printable(reason), 0, (), (), (), 0, ended.seconds, ended.sandbox, disbelieved)


def _lines(found: object) -> tuple[str, ...]:
    return tuple(printable(line) for line in found) if isinstance(found, list) else ()


def with_remedies(job: Mapping[str, object], options: Options, names: Sequence[str] = REMEDIES) -> list[tuple[str, Told]]:
    """Each remedy in a run of its own, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(zip(names, pool.map(lambda name: told(job, options, remedy=name), names), strict=True))


def largest_batch(job: Mapping[str, object], options: Options, first: Told, batch: int, limit: int) -> tuple[int, Told | None]:
    """The largest batch whose need is within ``limit``, to a 64th, and its run; 0 where not even one example fits. Raises
    ValueError where the need does not follow the batch that was set, or a run tells nothing."""
    seen = {batch: first}

    def run(size: int) -> None:
        seen[size] = told(job, options, batch=size)
        if not seen[size].budget:
            raise ValueError(f"with a batch of {size}: {seen[size].reason}")

    run(batch // 2 if batch > 1 else 2)
    if len({found.allocated for found in seen.values()}) == 1:
        raise ValueError("the step does not depend on the batch size: name its option with --set")
    low, high = 0, 0
    for _ in range(MOST_BATCHES):
        fitting = [size for size, found in seen.items() if found.needed <= limit]
        low, high = max(fitting, default=0), min((size for size in seen if size not in fitting), default=0)
        if high and high - low <= max(1, high // 64):
            break
        run(_next_batch({size: found.needed for size, found in seen.items()}, low, high, limit))
    return low, seen.get(low)


def _next_batch(needs: Mapping[int, int], low: int, high: int, limit: int) -> int:
    """The batch to try: where a line through two runs meets the limit, and a little beyond it once ``low`` is as near."""
    one, other = (low, high) if low and high else sorted(needs)[-2:] if low else sorted(needs)[:2]
    slope = (needs[other] - needs[one]) / (other - one)
    near = low or high
    guess = int(one + (limit - needs[one]) / slope) if slope > 0 else 2 * near if low else 1
    if low:
        guess = min(max(guess, low + max(1, low // 65)), 64 * low)
    if high:
        guess = min(guess, high - 1) if len(needs) < MOST_BATCHES // 2 else (low + high) // 2
    return max(low + 1, guess)
