"""Runs planned experiments, one child each, on whatever executes calls: threads here, or any
``concurrent.futures.Executor``."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace

from torchmemlint.confirm.launch import launch
from torchmemlint.confirm.plan import Plan
from torchmemlint.confirm.results import run_of
from torchmemlint.confirm.verdict import Verdict, decide_isolated, inconclusive


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. ``device`` is ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``; ``timeout`` in seconds for each
    experiment."""

    device: str = "cpu"
    timeout: float = 60.0
    steps: int = 8
    sandbox: bool = True


@dataclass(frozen=True, slots=True)
class Settled:
    """A plan and its verdict, with what shut the child in and the seconds that it took."""

    plan: Plan
    verdict: Verdict
    sandbox: str = ""
    torch: str = ""
    seconds: float = 0.0


def settle(plan: Plan, options: Options) -> Settled:
    """Run one experiment and decide. A plain function of plain data: any executor, also of another machine, can call it."""
    if plan.job is None:
        return Settled(plan, inconclusive(plan.reason, device=options.device))
    job = {**plan.job, "steps": options.steps}
    ended = launch(job, options.timeout, options.sandbox, options.device)
    version = next((str(record["torch"]) for record in ended.records if "torch" in record), "")
    before, control, fixed = run_of(ended, "before"), run_of(ended, "after"), run_of(ended, "fixed")
    if before is None:
        said = next((str(record["failed"]) for record in ended.records if "failed" in record), "")
        verdict = inconclusive(
            said or ended.ending or _last_line(ended.output) or "the child said nothing", device=options.device
        )
    else:
        inert = run_of(ended, "inert before"), run_of(ended, "inert after")
        verdict = decide_isolated(plan.finding.code, before, control, fixed, plan.doubts, inert)
        if ended.ending and verdict.after is None:
            verdict = replace(verdict, reason=f"{ended.ending}; {verdict.reason}")
    return Settled(plan, verdict, ended.sandbox, version, ended.seconds)


def settle_all(
    plans: Sequence[Plan], options: Options, devices: Sequence[str], executor: Executor | None = None
) -> Iterator[Settled]:
    """Settle every plan, in order, as results come.

    ``devices`` names a device for each experiment that may run at the same time: ``["cpu"] * 2``, or each GPU once. With
    an ``executor`` of
    the caller's (a process pool, ``dask.distributed``'s ``Client.get_executor()``) all run there, each on
    ``options.device`` of its machine.
    """
    if executor is not None:
        futures = [executor.submit(settle, plan, options) for plan in plans]
        yield from (future.result() for future in futures)
        return
    free: queue.Queue[str] = queue.Queue()
    for device in devices:
        free.put(device)

    def on_a_free_device(plan: Plan) -> Settled:
        device = free.get()
        try:
            return settle(plan, replace(options, device=device))
        finally:
            free.put(device)

    with ThreadPoolExecutor(len(devices)) as threads:
        yield from threads.map(on_a_free_device, plans)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
