"""Runs of a job in the child: one as it is, one with a larger batch, one for each remedy."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from torchmemlint.budget.remedies import ACCUMULATION, MICRO_BATCHES, REMEDIES
from torchmemlint.confirm.launch import Ended, launch, printable

_ROOTS = ("pyproject.toml", "setup.py", "setup.cfg", ".git", "requirements.txt")
RUNNERS = "torchmemlint.budget.worker.program"
CONTEXT = 141_426_688
"""The CUDA context with cuBLAS and cuDNN loaded, on a T4: torch-preflight's record. Larger devices have up to 600 MB."""
CUBLASLT = 32 << 20
"""The largest workspace that cuBLASLt gets (CublasHandlePool.cpp, on Hopper)."""
TO_REPORT = 0.05
"""The part of the time limit that a run has to say where it was stopped, and two seconds more."""
MOST_BATCHES = 14
"""As many batches are tried for the largest that fits."""
RESERVED_ERROR = 0.08
"""How far the replayed reserved figure may be off: the cache keeps what runs before the step left, which is not replayed.
On the eight rows of docs/budget.md it is at most 6.6 % off."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The result of a run. ``budget`` is empty where there is no estimate; ``reason`` says why, or why only in part; ``disbelieved``
    where no other argument would change that: it was not run at all, or its answers were forged; ``either_attention``: torch's source
    allows another kernel of attention than the one that was taken; ``ran`` the
    program's files that were run; ``growth`` the bytes that each loop over a loader (by its place) keeps with each batch; ``models``
    those of a program without an estimate; ``inputs`` what was found that a model takes, ``guessed`` what of that is a guess."""

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
    either_attention: bool = False
    ran: frozenset[str] = frozenset()
    growth: Mapping[str, int] = field(default_factory=dict)
    models: tuple[Mapping[str, Any], ...] = ()
    inputs: tuple[tuple[str, str, list[int]], ...] = ()
    guessed: tuple[str, ...] = ()

    @property
    def allocated(self) -> int:
        """Peak of allocated bytes."""
        return int(self.budget.get("allocated", 0))

    @property
    def reserved(self) -> int:
        """Peak of reserved bytes."""
        return int(self.budget.get("reserved", 0))

    @property
    def expandable(self) -> int:
        """Peak of reserved bytes with ``expandable_segments:True``."""
        return int(self.budget.get("expandable", 0))

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


def root_of(path: str) -> str:
    """The project's folder: the nearest one above with a sign of a project, else the file's own."""
    folder = start = os.path.dirname(path)
    while folder != os.path.dirname(folder):
        if any(os.path.exists(os.path.join(folder, name)) for name in _ROOTS):
            return folder
        folder = os.path.dirname(folder)
    return start


def own_module(folder: str) -> dict[str, str]:
    """What a job says of a model whose module is in this folder: that, and the project that the folder is of."""
    return {"root": folder, "project": root_of(os.path.join(folder, "a file"))}


@dataclass(frozen=True, slots=True)
class Advice:
    """A model of a program that could not be run, with inputs that it takes, and what a step of it needs."""

    model: str
    root: str
    inputs: tuple[tuple[str, str, list[int]], ...]
    guessed: tuple[str, ...]
    estimate: Estimate


def advised(job: Mapping[str, object], options: Options, first: Estimate) -> Advice | None:
    """The first of the program's models that can be run alone."""
    kept = {name: job[name] for name in ("capability", "memory", "attention", "batch", "optimizer") if name in job}
    for found in first.models:
        root, project = os.path.realpath(str(found["root"])) if found["root"] else "", str(job["root"])
        if root and os.path.commonpath([root, project]) != project:
            continue  # what the program says makes nothing else readable
        other = {**kept, "model": str(found["model"]), "values": {}, "inputs": []}
        other |= {"root": root, "project": project} if root else {}
        alone = replace(options, readable=(project,) if root else ())
        tried = replace(first, inputs=_inputs(found["inputs"]), guessed=())
        if not tried.inputs:
            tried = estimate({**other, "batch": other["batch"] or first.batch}, alone)
        ran = estimate({**other, "inputs": tried.inputs}, alone) if tried.inputs else None
        if ran is not None and ran.steps >= 2:
            guessed = (*map(printable, found["guessed"]), *tried.guessed)
            return Advice(printable(other["model"]), root, tried.inputs, guessed, ran)
    return None


def estimate(job: Mapping[str, object], options: Options, **changed: object) -> Estimate:
    """Run the job, with some of it changed."""
    until = time.time() + (1 - TO_REPORT) * options.timeout - 2
    return _launched({**job, **changed, "until": until}, options, "cpu")


def checked(job: Mapping[str, object], options: Options) -> Estimate:
    """The same step on this machine's GPU, and what torch's allocator says of it."""
    return _launched({**job, "real": True}, options, "cuda")


def _launched(job: Mapping[str, object], options: Options, device: str) -> Estimate:
    job = {"runner": "budget", **job}
    return from_records(launch(job, options.timeout, options.sandbox, device, runners=RUNNERS, readable=options.readable))


def from_records(ended: Ended) -> Estimate:
    """What the child's records say, where they can be believed; its words are made printable."""
    if ended.refused:
        return _nothing(
            ended, f"not run: no sandbox is available here ({ended.refused}); --no-sandbox runs it without one", True
        )
    if ended.forged:
        return _nothing(ended, f"forged: {ended.forged}; its answers are ignored", True)
    found = next((record["estimate"] for record in ended.records if isinstance(record.get("estimate"), dict)), None)
    if not isinstance(found, dict) or ended.ending:
        failed = next((str(record["failed"]) for record in ended.records if "failed" in record), "")
        return _nothing(ended, failed or f"the run ended before its step: {ended.ending or 'no record'}")
    budget = found.get("budget")
    return Estimate(
        budget if isinstance(budget, dict) else {}, printable(found.get("reason", "")), int(found.get("steps", 0)),
        _lines(found.get("assumed")), _lines(found.get("skipped")), _lines(found.get("missing")),
        int((found.get("batch") or [0])[0]), ended.seconds, ended.sandbox,
        either_attention=bool(found.get("either_attention")),
        ran=frozenset(map(str, found.get("ran") or ())),
        growth={str(place): int(size) for place, size in (found.get("growth") or {}).items()},
        models=tuple(found.get("models") or ()), inputs=_inputs(found.get("inputs") or ()), guessed=_lines(found.get("guessed")),
    )  # fmt: skip


def _inputs(found: Sequence[Any]) -> tuple[tuple[str, str, list[int]], ...]:
    return tuple((printable(name), printable(dtype), [int(size) for size in shape]) for name, dtype, shape in found)


def _nothing(ended: Ended, reason: str, disbelieved: bool = False) -> Estimate:
    return Estimate({}, printable(reason), 0, (), (), (), 0, ended.seconds, ended.sandbox, disbelieved)


def _lines(found: object) -> tuple[str, ...]:
    return tuple(printable(line) for line in found) if isinstance(found, list) else ()


def table(
    job: Mapping[str, Any], options: Options, lengths: Sequence[int], batches: Sequence[int]
) -> list[tuple[int, int, Estimate]]:
    """A run for each length of a sequence, which is the second size of the first input, and each batch; 0 is as given."""
    rows = []
    old = (*job["inputs"][0][2], 0, 0)[1]
    for length in lengths or [0]:
        inputs = [
            (name, dtype, [length if at and length and size == old else size for at, size in enumerate(shape)])
            for name, dtype, shape in job["inputs"]
        ]
        rows += [(length, batch, estimate({**job, "inputs": inputs}, options, batch=batch)) for batch in batches or [0]]
    return rows


def with_remedies(
    job: Mapping[str, object], options: Options, batch: int = 0, names: Sequence[str] = REMEDIES
) -> list[tuple[str, Estimate]]:
    """Each remedy in a run of its own, two at a time. ``batch`` is the size of a batch, 0 where it is not known."""

    def run(name: str) -> Estimate:
        if name != ACCUMULATION:
            return estimate(job, options, remedy=name)
        if batch < MICRO_BATCHES:
            why = (
                f"a batch of {batch} cannot be split into {MICRO_BATCHES}"
                if batch
                else "no loader and no --input describes a batch"
            )
            return Estimate({}, why, 0, (), (), (), 0, 0.0, "")
        return estimate(job, options, remedy=name, batch=batch // MICRO_BATCHES)

    with ThreadPoolExecutor(2) as pool:
        return list(zip(names, pool.map(run, names), strict=True))


def largest_batch(
    job: Mapping[str, object], options: Options, first: Estimate, batch: int, limit: int
) -> tuple[int, Estimate | None]:
    """The largest batch whose need is within ``limit``, to a 64th, and its run; 0 where not even one example fits. Raises
    ValueError where the need does not follow the batch that was set, or a run gives nothing."""
    seen = {batch: first}

    def run(size: int) -> None:
        seen[size] = estimate(job, options, batch=size)
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
