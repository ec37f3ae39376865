"""Runs planned experiments, one child each, on whatever executes calls.

Threads here, or any ``concurrent.futures.Executor``.
"""

from __future__ import annotations

import queue
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache

from torchmemlint.confirm.devices import devices_for
from torchmemlint.confirm.launch import Ended, launch, printable, stopping, warmed
from torchmemlint.confirm.plan import Plan
from torchmemlint.confirm.results import comparison_of, run_of, snapshot_of
from torchmemlint.confirm.verdict import (
    Answer,
    Comparison,
    Verdict,
    decide_isolated,
    inconclusive,
    naming_line,
    with_comparison,
)
from torchmemlint.errors import TorchmemlintError


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. ``device`` is ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``; ``timeout`` in seconds for each
    experiment; ``snapshots``: on CUDA, what grows is run once more for a memory snapshot."""

    device: str = "cpu"
    timeout: float = 60.0
    steps: int = 8
    sandbox: bool = True
    snapshots: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """A plan and its verdict, with what shut the child in, the seconds that it took and the memory snapshot (a pickle for
    PyTorch's viewer) where one was wanted."""

    plan: Plan
    verdict: Verdict
    sandbox: str = ""
    torch: str = ""
    seconds: float = 0.0
    snapshot: bytes = b""


def settle(plan: Plan, options: Options) -> Settled:
    """Run one experiment and decide. A plain function of plain data: any executor, also of another machine, can call it."""
    done = _settled(plan, options)
    verdict, fix = done.verdict, done.verdict.fix
    shown = replace(
        verdict,
        reason=plan.in_cells(verdict.reason),
        notes=tuple(map(plan.in_cells, verdict.notes)),
        fix=fix and replace(fix, why=plan.in_cells(fix.why)),
    )
    return replace(done, verdict=shown)


def _settled(plan: Plan, options: Options) -> Settled:
    if plan.job is None:
        return Settled(plan, inconclusive(plan.reason, device=options.device))
    compares = plan.job.get("runner") == "compared"
    measures = {} if compares else {"steps": options.steps, "snapshot": options.snapshots, "timeout": options.timeout}
    ended = launch({**plan.job, **measures}, options.timeout, options.sandbox, options.device)
    version = next((printable(record["torch"], 40) for record in ended.records if "torch" in record), "")
    if ended.refused or ended.forged:
        return Settled(plan, _not_believed(ended, options.device), ended.sandbox, version, ended.seconds)
    if compares:
        return Settled(plan, _compared(ended, options.device), ended.sandbox, version, ended.seconds)
    before, control, fixed = run_of(ended, "before"), run_of(ended, "after"), run_of(ended, "fixed")
    if before is None:
        failure = next((printable(record["failed"]) for record in ended.records if "failed" in record), "")
        verdict = inconclusive(
            failure or _ending(ended) or _last_line(ended.output) or "the child process gave no answer", device=options.device
        )
    else:
        inert = run_of(ended, "inert before"), run_of(ended, "inert after")
        verdict = decide_isolated(plan.finding.code, before, control, fixed, plan.doubts, inert)
        verdict = with_comparison(verdict, comparison_of(ended))
        if ended.ending and verdict.after is None:
            verdict = replace(verdict, reason=f"{_ending(ended)}; {verdict.reason}")
    verdict = naming_line(verdict, _flagged_row(plan))
    snapshot, why_not = snapshot_of(ended)
    if why_not:
        verdict = replace(verdict, notes=(*verdict.notes, f"no memory snapshot: {why_not}"))
    return Settled(plan, verdict, ended.sandbox, version, ended.seconds, snapshot)


def _flagged_row(plan: Plan) -> int:
    """The flagged line; of a notebook, in the module that its cells make."""
    place = (plan.job or {}).get("place")
    return int(place[0]) if isinstance(place, list) else plan.finding.span.start.row


def _not_believed(ended: Ended, device: str) -> Verdict:
    if ended.refused:
        return inconclusive(
            f"not run: no sandbox is available here ({ended.refused}); --no-sandbox runs it without one", device=device
        )
    return inconclusive(f"forged: {ended.forged}; its answers are ignored", device=device)


def _compared(ended: Ended, device: str) -> Verdict:
    """A finding's fix was run beside the original: nothing is measured."""
    fix = comparison_of(ended)
    if fix is None:
        fix = Comparison(Answer.NOT_RUN, ended.ending or _last_line(ended.output) or "the child process gave no answer")
    return replace(inconclusive("only the fix was run", device=device), fix=fix)


def settle_all(
    plans: Sequence[Plan],
    options: Options,
    devices: Sequence[str],
    executor: Executor | None = None,
    on_start: Callable[[Plan], None] = lambda plan: None,
) -> Iterator[Settled]:
    """Settle every plan, in order, as results come.

    ``devices`` names a device for each experiment that may run at the same time: ``["cpu"] * 2``, or each GPU once. With an
    ``executor`` all run there, and ``options.device`` is what it means on the machine that it runs on (``"auto"`` too). An
    experiment that the executor loses is inconclusive; a machine without torch is an error. Here ``on_start`` is called with each
    plan that begins, and torch is imported once for all of them.
    """
    if executor is not None:
        futures = [executor.submit(settle_there, plan, options) for plan in plans]
        yield from (_arrived(plan, future) for plan, future in zip(plans, futures, strict=True))
        return
    free: queue.Queue[str] = queue.Queue()
    for device in devices:
        free.put(device)

    def on_a_free_device(plan: Plan) -> Settled:
        device = free.get()
        if plan.job is not None:
            on_start(plan)
        try:
            return settle(plan, replace(options, device=device))
        finally:
            free.put(device)

    try:
        several = options.sandbox and "cpu" in devices and sum(plan.job is not None for plan in plans) > 1
        with warmed() if several else nullcontext(), ThreadPoolExecutor(len(devices)) as threads:
            try:
                yield from threads.map(on_a_free_device, plans)
            except BaseException:  # whoever interrupts us does not wait for what is still running
                stopping.set()
                raise
    finally:
        stopping.clear()


_turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""In a process of a cluster: who has its device."""


def settle_there(plan: Plan, options: Options) -> Settled:
    """``settle`` where the executor runs it: a device that is no CPU has one experiment at a time, however many threads ask."""
    if plan.job is None:
        return settle(plan, options)
    device = _device_here(options.device)
    with nullcontext() if device == "cpu" else _turns[device]:
        return settle(plan, replace(options, device=device))


@lru_cache(maxsize=8)
def _device_here(device: str) -> str:
    return devices_for(device, 1)[0]


def _arrived(plan: Plan, future: Future[Settled]) -> Settled:
    try:
        return future.result()
    except TorchmemlintError:
        raise
    except Exception as error:  # an executor may raise what it likes when it loses a worker
        return Settled(plan, inconclusive(f"the executor lost it: {type(error).__name__}: {error}"[:300]))


_ROW = re.compile(r'File "<confirmed>", line (\d+)')


def _ending(ended: Ended) -> str:
    """How the child ended; at the time limit with the row that it was in, which the child reports shortly before."""
    _, found, frames = ended.output.rpartition("Timeout (")
    row = _ROW.search(frames) if found and ended.ending == "time limit" else None
    return f"time limit, on line {row[1]}" if row else ended.ending


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1]) if lines else ""
