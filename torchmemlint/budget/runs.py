"""Jobs for the child, and what comes back: one run, its batch made larger, its remedies."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from torchmemlint.budget import documented
from torchmemlint.budget.remedies import ACCUMULATION, MICRO_BATCHES, REMEDIES
from torchmemlint.confirm.launch import Ended, launch, printable

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

OF_LAYER = "(a size of a layer)"
"""The end of a guess that is the size of a layer."""

OTHER_SIDES = (32, 256, 64, 28, 84)
"""Widths of pictures to try where 224 does not fit a model: those of CIFAR, of crops, Tiny ImageNet, MNIST, Atari."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The result of a run. ``budget`` is empty where there is no estimate; ``reason`` says why, or why only in part; ``disbelieved``
    where no other argument would change that: it was not run at all, or its answers were forged; ``guessed`` what its figures rest
    on that neither the program nor its data says; ``either_attention``: torch's source allows another kernel of attention than the one that
    was taken; ``misfit``: a picture of a guessed size was there when it failed; ``sizes``: what to try in place of a guessed
    size, and ``counts`` in place of a number that was made up;
    ``required``: an option that must be given was guessed; ``timed_out``: it was stopped at the time limit;
    ``open``: a command, or an option of a few choices without a default, was not given; ``started`` the document that says how the program is started; ``ran`` the program's files that were run; ``growth`` the bytes that each loop over
    a loader (by its place) keeps with each batch."""

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
    guessed: tuple[str, ...] = ()
    misfit: bool = False
    sizes: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    either_attention: bool = False
    required: bool = False
    timed_out: bool = False
    open: bool = False
    started: str = ""
    ran: frozenset[str] = frozenset()
    growth: Mapping[str, int] = field(default_factory=dict)

    @property
    def guessed_layers(self) -> bool:
        """Whether the size of a layer is a guess: then the figures may be off by any factor."""
        return any(words.endswith(OF_LAYER) for words in self.guessed)

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


def estimate(job: Mapping[str, object], options: Options, **changed: object) -> Estimate:
    """Run the job, with some of it changed. Where a guessed size did not fit the model, others are tried: first those of the program."""
    found = _once(job, options, **changed)
    for size in found.sizes if not found.steps else ():
        other = _once(job, options, **changed, size=size)
        if other.steps:
            return other
    for count in found.counts if not found.steps else ():
        other = _once(job, options, **changed, count=count)
        if other.steps:
            return other
    for side in OTHER_SIDES if found.misfit and not found.steps else ():
        other = _once(job, options, **changed, side=side)
        if other.steps:
            return other
    return found


MOST_COMMANDS = 3
"""So many documented commands are tried for a program that gives nothing without arguments."""


def started(job: Mapping[str, object], options: Options) -> tuple[Estimate, dict[str, object]]:
    """The first run, and the job with the arguments that it was run with. A program that needs some, and was given none, gets those of
    the commands that its project documents."""
    first, job = estimate(job, options), dict(job)
    if first.disbelieved or not job.get("path") or job.get("arguments") or job.get("function"):
        return first, job
    if (first.steps >= 2 and not first.required) or first.timed_out:
        return first, job
    root = str(job["root"])
    tried = documented.commands(root, str(job["path"]))[:MOST_COMMANDS]
    for command in tried:
        place = f"{os.path.relpath(command.path, root)}:{command.row}"
        other_job = {**job, "arguments": list(command.arguments), "folder": command.folder, "documented": True}
        other = estimate(other_job, options)
        if other.steps >= 2 or (other.budget and not first.budget):
            words = printable(f"{place}: {os.path.basename(str(job['path']))} {shlex.join(command.arguments)}")
            return replace(other, started=words), other_job
        if not first.budget and command is tried[0]:
            first = replace(first, reason=f"{first.reason}; started as in {place}: {other.reason}")
        if other.timed_out:
            break
    if not first.budget and first.open:
        chosen = estimate(job, options, choose=True)
        if chosen.budget:
            return chosen, {**job, "choose": True}
    return first, job


def _once(job: Mapping[str, object], options: Options, **changed: object) -> Estimate:
    until = time.time() + (1 - TO_REPORT) * options.timeout - 2
    ended = launch(
        {"runner": "budget", **job, **changed, "until": until},
        options.timeout,
        options.sandbox,
        runners=RUNNERS,
        readable=options.readable,
    )
    return from_records(ended)


def checked(job: Mapping[str, object], options: Options) -> Estimate:
    """The same step on this machine's GPU, and what torch's allocator says of it."""
    ended = launch(
        {"runner": "budget", **job, "real": True},
        options.timeout,
        options.sandbox,
        "cuda",
        runners=RUNNERS,
        readable=options.readable,
    )
    return from_records(ended)


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
        guessed=_lines(found.get("guessed")), misfit=bool(found.get("misfit")), sizes=tuple(map(int, found.get("sizes") or ())), counts=tuple(map(int, found.get("counts") or ())), either_attention=bool(found.get("either_attention")),
        required=bool(found.get("required")), timed_out=bool(found.get("late")), open=bool(found.get("open")), ran=frozenset(map(str, found.get("ran") or ())),
        growth={str(place): int(size) for place, size in (found.get("growth") or {}).items()},
    )  # fmt: skip


def _nothing(ended: Ended, reason: str, disbelieved: bool = False) -> Estimate:
    late = ended.ending == "time limit"
    return Estimate({}, printable(reason), 0, (), (), (), 0, ended.seconds, ended.sandbox, disbelieved, timed_out=late)


def _lines(found: object) -> tuple[str, ...]:
    return tuple(printable(line) for line in found) if isinstance(found, list) else ()


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
