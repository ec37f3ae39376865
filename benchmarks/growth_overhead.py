"""``python -m benchmarks.growth_overhead``: the CPU time that ``torchmemlint run`` adds to steps in which nothing grows.

Pairs of runs, one with and one without it, in turns; each measures the CPU time of its own loop. ``--turns``: pairs of stretches of
one run, with the hooks and without them, between which a busy machine changes less. In some further runs, the time inside
of the hook is added up: the tool's own clock, which the noise of other programs does not reach.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import dedent
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)

PROGRAM = dedent(
    """
    import json, resource, sys, time
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    kind, steps = sys.argv[1], int(sys.argv[2])
    if kind == "small":
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        shape = (64, 64)
    else:
        layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
        model = nn.Sequential(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(128, 10))
        shape = (8, 64, 128)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


    def train(steps):
        total = 0.0
        for step in range(steps):
            loss = model(torch.randn(shape)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total


    own = [0.0]


    def hooks_of_the_run():
        import gc

        (hooks,) = [one for one in gc.get_objects() if type(one).__module__ == "torchmemlint.growth.worker.attach" and type(one).__name__ == "Hooks"]
        return hooks


    def train_in_turns(pairs, steps):
        hooks, times, begin, on = hooks_of_the_run(), [], time.process_time(), True
        for step in range(2 * pairs * steps + 1):
            if step and step % steps == 0:
                times.append(time.process_time() - begin)
                on = not on
                if on:
                    hooks._module(torch), hooks._backward(torch), hooks._loader(torch)
                else:
                    hooks.remove()
                begin = time.process_time()
            loss = model(torch.randn(shape)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return times


    def clock():
        hooks = hooks_of_the_run()
        event = hooks._event

        def timed(frame):
            begin = time.thread_time()
            event(frame)
            own[0] += time.thread_time() - begin

        hooks._event = timed


    if "turns" in sys.argv:
        print(json.dumps(train_in_turns(int(sys.argv[4]), steps)))
        sys.exit()
    if "clock" in sys.argv:
        clock()
    train(10)
    begin, own[0] = time.process_time(), 0.0
    train(steps)
    spent = time.process_time() - begin
    print(json.dumps([spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, own[0]]))
    """
)


@dataclass(frozen=True, slots=True)
class Once:
    """CPU seconds of the loop, the most memory that the process had, in kB, and the seconds in the hook, if they were added up."""

    seconds: float
    memory: int
    own: float


def once(file: Path, kind: str, steps: int, watched: bool, *more: str) -> Once:
    """One run of the program, with ``more`` arguments."""
    return Once(*_output(file, kind, steps, watched, *more))


def _output(file: Path, kind: str, steps: int, watched: bool, *more: str) -> list[Any]:
    before = ["-m", "torchmemlint", "run", "--output-file", os.devnull] if watched else []
    command = [sys.executable, *before, str(file), kind, str(steps), *more]
    given = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=file.parent, env=given)
    output: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return output


def in_turns(kind: str, pairs: int, steps: int) -> str:
    """One run whose loop has the hooks for some steps, then not, and so on."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.py"
        file.write_text(PROGRAM, encoding="utf-8")
        times = _output(file, kind, steps, True, "turns", str(pairs))
    with_it, without = times[::2], times[1::2]
    added = sorted(100 * (one / other - 1) for one, other in zip(with_it, without, strict=True))
    low, high = added[len(added) // 20], added[-1 - len(added) // 20]
    return (
        f"{pairs} pairs of {steps} steps of {1000 * median(without) / steps:.1f} ms in one run: median {median(added):+.1f} % (90 %: {low:+.1f} to "
        f"{high:+.1f} %), {100 * (sum(with_it) / sum(without) - 1):+.1f} % in all."
    )


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the pairs and print the median and the 90 % interval."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth_overhead", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("kind", choices=("small", "transformer"))
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--clocked", type=int, default=3, help="runs with the tool's own clock")
    parser.add_argument("--turns", action="store_true", help="stretches of one run")
    given = parser.parse_args(None if arguments is None else list(arguments))
    if given.turns:
        print(in_turns(given.kind, given.pairs, given.steps))
        return 0
    added: list[float] = []
    steps: list[float] = []
    memory: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.py"
        file.write_text(PROGRAM, encoding="utf-8")
        once(file, given.kind, 10, watched=True)  # compiles what is imported
        for number in range(given.pairs):
            runs = {
                watched: once(file, given.kind, given.steps, watched)
                for watched in ((False, True) if number % 2 else (True, False))
            }
            added.append(100 * (runs[True].seconds / runs[False].seconds - 1))
            steps.append(1000 * runs[False].seconds / given.steps)
            memory.append(runs[True].memory - runs[False].memory)
            print(f"{added[-1]:+.1f} %", file=sys.stderr)
        clocked = [once(file, given.kind, given.steps, True, "clock") for _ in range(given.clocked)]
    added.sort()
    low, high = added[len(added) // 20], added[-1 - len(added) // 20]
    print(
        f"{len(added)} pairs of {given.steps:,} steps of {median(steps):.1f} ms: {median(added):+.1f} % (90 %: {low:+.1f} to {high:+.1f} %), "
        f"{median(memory):+,.0f} kB at most."
    )
    if clocked:
        shares = [100 * one.own / (one.seconds - one.own) for one in clocked]
        print(f"By its own clock: {median(shares):.2f} % ({min(shares):.2f} to {max(shares):.2f} %).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
