"""``python -m benchmarks.growth_overhead``: the CPU time that ``torchmemlint run`` adds to steps in which nothing grows.

Pairs of runs, one with and one without it, in turns; each measures the CPU time of its own loop. In some further runs, the time inside
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


    def clock():
        import gc

        (hooks,) = [one for one in gc.get_objects() if type(one).__module__ == "torchmemlint.growth.worker.attach" and type(one).__name__ == "Hooks"]
        event = hooks._event

        def timed(frame):
            begin = time.thread_time()
            event(frame)
            own[0] += time.thread_time() - begin

        hooks._event = timed


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
    before = ["-m", "torchmemlint", "run", "--output-file", os.devnull] if watched else []
    command = [sys.executable, *before, str(file), kind, str(steps), *more]
    given = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=file.parent, env=given)
    return Once(*json.loads(done.stdout.splitlines()[-1]))


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the pairs and print the median and the 90 % interval."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth_overhead", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("kind", choices=("small", "transformer"))
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--clocked", type=int, default=3, help="runs with the tool's own clock")
    given = parser.parse_args(None if arguments is None else list(arguments))
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
