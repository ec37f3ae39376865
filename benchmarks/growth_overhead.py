"""``python -m benchmarks.growth_overhead``: the CPU time that ``torchmemlint run`` adds to steps in which nothing grows.

In one run, stretches of steps with the hooks and without them take turns, so that a busy machine slows both halves of a pair. In some
further runs, the time inside of the hook is added up: the tool's own clock, which the noise of other programs hardly reaches.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from textwrap import dedent
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)

PROGRAM = dedent(
    """
    import gc, json, sys, time
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


    def train(steps, after=lambda step: None):
        for step in range(1, steps + 1):
            loss = model(torch.randn(shape)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            after(step)


    def hooks_of_the_run():
        (hooks,) = [one for one in gc.get_objects() if type(one).__module__ == "torchmemlint.growth.worker.attach" and type(one).__name__ == "Hooks"]
        return hooks


    def in_turns(steps, pairs, stretch):
        # the CPU seconds of the pairs: of some steps with the hooks, and of as many without
        hooks, spent = hooks_of_the_run(), [[0.0, 0.0] for _ in range(pairs)]
        without, begin = False, time.process_time()

        def after(step):
            nonlocal without, begin
            if step % stretch == 0:
                spent[(step - 1) // (2 * steps)][without] += time.process_time() - begin
                without = not without
                if without:
                    hooks.remove()
                else:
                    hooks._module(torch), hooks._backward(torch), hooks._loader(torch)
                begin = time.process_time()

        train(2 * pairs * steps, after)
        return spent


    def clock(steps):
        # CPU seconds of the steps, those in the hook, and those of them in looks at the heap
        hooks, own = hooks_of_the_run(), 0.0
        event = hooks._event

        def timed(frame):
            nonlocal own
            begin = time.thread_time()
            event(frame)
            own += time.thread_time() - begin

        hooks._event = timed
        begin = time.process_time()
        train(steps)
        return [time.process_time() - begin, own, event.__self__.spent]


    print(json.dumps(in_turns(steps, *map(int, sys.argv[3:])) if sys.argv[3:] else clock(steps)))
    """
)


def output(kind: str, steps: int, *more: int) -> list[Any]:
    """What one run of the program prints."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.py"
        file.write_text(PROGRAM, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "torchmemlint",
            "run",
            "--output-file",
            os.devnull,
            str(file),
            kind,
            str(steps),
            *map(str, more),
        ]
        given = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=given)
    printed: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the pairs and print the median and the 90 % interval."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth_overhead", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("kind", choices=("small", "transformer"))
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3000, help="of each half of a pair (default: 3000)")
    parser.add_argument(
        "--stretch",
        type=int,
        default=100,
        help="steps with the hooks or without, in turns; a divisor of --steps (default: 100)",
    )
    parser.add_argument("--clocked", type=int, default=3, help="runs with the tool's own clock (default: 3)")
    given = parser.parse_args(None if arguments is None else list(arguments))
    pairs = output(given.kind, given.steps, given.pairs, given.stretch) if given.pairs else []
    if pairs:
        added = sorted(100 * (one / other - 1) for one, other in pairs)
        low, high = added[len(added) // 20], added[-1 - len(added) // 20]
        step = 1000 * median(other for _, other in pairs) / given.steps
        print(
            f"{len(pairs)} pairs of {given.steps:,} steps of {step:.1f} ms: median {median(added):+.1f} % (90 %: {low:+.1f} to {high:+.1f} %).",
            flush=True,
        )
    for spent, own, looks in (output(given.kind, given.steps) for _ in range(given.clocked)):
        step = 1000 * (spent - own) / given.steps
        print(
            f"By its own clock: {100 * own / (spent - own):.2f} % of {given.steps:,} steps of {step:.1f} ms, {looks:.2f} s of it in looks."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
