"""``python -m benchmarks.known_answers``: verdicts and bytes of ``confirm`` on programs whose answers are known.

A fixed seed makes small whole programs (real modules, shapes and sizes at random), each as a mistake and as its clean twin. What is right
is measured apart from ``confirm``, in a process of its own: the program runs as it is, and a dispatch mode keeps a weak reference to every
storage that an operator returns and asks at the head of each step which of them are alive. A verdict is wrong where a clean program is
confirmed, or a mistake refuted or confirmed as another kind; bytes a step and at the peak must be within a tenth.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from textwrap import dedent, indent

from torchmemlint.confirm.command import _qualname
from torchmemlint.confirm.launch import warmed
from torchmemlint.confirm.plan import plan
from torchmemlint.confirm.settle import Options, settle
from torchmemlint.confirm.verdict import CACHED, COPIED, COPY, GRADIENTS, REFUSED, UNSAVED, UNTRAINED, Outcome, Verdict
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span

STEP, FLAG = "# a step", "  # flagged"
STEPS = 8
TOLERANCE = 0.1
NOISE = 4096
"""Growth of fewer bytes a step is not compared by its share: numbers that are small tensors in one of the two."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program: ``kind`` is what the verdict must say of the growth, "" for a clean twin."""

    name: str
    code: str
    text: str
    kind: str
    in_bytes: bool = True
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """What is alive at the head of each step, and the highest figure from the second step on."""

    live: tuple[int, ...]
    peak: int

    @property
    def growth(self) -> float:
        """Bytes a step, once gradients and buffers exist."""
        steady = self.live[2:]
        return median(later - earlier for earlier, later in pairwise(steady))


# -- the programs


@dataclass(frozen=True, slots=True)
class Shape:
    """What is drawn for one program."""

    batch: int
    width: int
    hidden: int
    classes: int
    layers: int
    in_function: bool


def drawn(dice: random.Random) -> Shape:
    """Sizes that fit a small machine: some kilobytes to some megabytes a step."""
    return Shape(
        batch=dice.choice([8, 17, 32, 64]), width=dice.choice([24, 48, 96]), hidden=dice.choice([64, 130, 256]),
        classes=dice.choice([3, 10, 31]), layers=dice.randint(1, 4), in_function=dice.random() < 0.5,
    )  # fmt: skip


HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width, hidden, classes, layers):
        super().__init__()
        self.first = nn.Linear(width, hidden)
        self.middle = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.last = nn.Linear(hidden, classes)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.middle:
            x = torch.tanh(layer(x))
        return self.last(x)


class Meter:
    def __init__(self):
        self.values = []

    def update(self, value):
        self.values.append(value)


"""
SETUP = """\
model = Net({width}, {hidden}, {classes}, {layers})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
BATCH = """\
x, y = torch.randn({batch}, {width}), torch.randint({classes}, ({batch},))
"""
TRAINED = """\
loss = F.cross_entropy(model(x), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""


@dataclass(frozen=True, slots=True)
class Family:
    """One mistake: what is set up before the loop (``right_before`` without the mistake), the step with the mistake and without, what stands
    after; ``top`` are definitions (``right_top`` those without the mistake). ``in_bytes``: what runs is the program itself, so its bytes can be compared.
    ``holder``: what grows from step to step, in the words of ``torchmemlint run``; "" where nothing does."""

    name: str
    code: str
    kind: str
    before: str
    wrong: str
    right: str
    after: str = ""
    top: str = ""
    right_top: str = ""
    in_bytes: bool = True
    right_before: str = ""
    holder: str = ""


QUIET = BATCH + "with torch.no_grad():\n    y = model(x)\n"
CHECKPOINT = "from torch.utils.checkpoint import checkpoint, checkpoint_sequential\n\n\n"
DEEP = """\
net = nn.Sequential(*(nn.Sequential(nn.Linear({width}, {width}), nn.Tanh()) for _ in range(8)))
head = nn.Linear({width}, {classes})
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01)
"""
TALL = """\
x, y = torch.randn(32 * {batch}, {width}), torch.randint({classes}, (32 * {batch},))
"""
STEPPED = """\
loss = F.cross_entropy(head(out), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""
LOADED = (
    "file = io.BytesIO()\ntorch.save({{'model': model.state_dict(), 'epoch': 3}}, file)\nfile.seek(0)\n"
    "state = torch.load(file)" + FLAG + "\nmodel.load_state_dict(state['model'])\nfirst = state['epoch']\n"
)
TAUGHT = BATCH + (
    "out = model(x)\nwanted = teacher(x)" + FLAG + "\nloss = F.cross_entropy(out, y) + F.mse_loss(out, wanted.detach())\n"
    "optimizer.zero_grad()\nloss.backward()\noptimizer.step()\n"
)
EPOCH = """\
def one_epoch(model, optimizer, batches, validation=False):
    total = 0.0
    for x, y in batches:
        out = model(x){flag}
        loss = F.cross_entropy(out, y)
        {train}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total


"""
CACHES = "from functools import cache, lru_cache\n\n\n"
ROTARY = """\
class Rotary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, width))

    {cached}{flag}
    def table(self, length):
        return torch.arange(length).float()


def fresh(width):
    return Rotary(width)


"""
SCALED = """\
{cached}{flag}
def scaled(points: torch.Tensor, by: float = 2.0):
    return points * by


"""

FAMILIES = (
    Family(
        "outputs kept", "TML102", "whole graph per step", "kept = []\n",
        BATCH + "kept.append(model(x))" + FLAG + "\n", BATCH + "kept.append(model(x).detach())" + FLAG + "\n", "print(len(kept))\n", holder="kept",
    ),
    Family(
        "losses summed", "TML101", "whole graph per step", "total = 0.0\n",
        BATCH + "loss = F.cross_entropy(model(x), y)\ntotal += loss" + FLAG + "\n",
        BATCH + "loss = F.cross_entropy(model(x), y)\ntotal += loss.item()" + FLAG + "\n", "print(float(total))\n", holder="total",
    ),
    Family(
        "losses kept after their backward", "TML102", "nodes per step", "losses = []\n",
        BATCH + TRAINED + "losses.append(loss)" + FLAG + "\n", BATCH + TRAINED + "losses.append(loss.item())" + FLAG + "\n",
        "print(len(losses))\n", holder="losses",
    ),
    Family(
        "losses recorded", "TML103", "whole graph per step", "meter = Meter()\n",
        BATCH + "loss = F.cross_entropy(model(x), y)\nmeter.update(loss)" + FLAG + "\n",
        BATCH + "loss = F.cross_entropy(model(x), y)\nmeter.update(loss.item())" + FLAG + "\n", "print(len(meter.values))\n", holder="meter.values",
    ),
    Family(
        "a state carried on", "TML104", "whole graph per step",
        "cell = nn.GRUCell({width}, {hidden})\nstate = torch.zeros({batch}, {hidden})\n",
        BATCH + "state = cell(x, state)" + FLAG + "\n", BATCH + "state = cell(x, state.detach())" + FLAG + "\n",
        "print(state.sum().item())\n", holder="state",
    ),
    Family(
        "a graph retained", "TML105", "extra graph at peak", "",
        BATCH + "out = model(x)\nloss = F.cross_entropy(out, y)\noptimizer.zero_grad()\n"
        "loss.backward(retain_graph=True)" + FLAG + "\noptimizer.step()\n",
        BATCH + "out = model(x)\nloss = F.cross_entropy(out, y)\noptimizer.zero_grad()\n"
        "loss.backward(retain_graph=True)" + FLAG + "\nout.square().mean().backward()\noptimizer.step()\n",
    ),
    Family(
        "evaluation with a graph", "TML201", "extra graph at peak", "correct = 0\n",
        BATCH + "out = model(x)" + FLAG + "\ncorrect += (out.argmax(1) == y).sum().item()\n",
        BATCH + "with torch.no_grad():\n    out = model(x)" + FLAG + "\ncorrect += (out.argmax(1) == y).sum().item()\n", "print(correct)\n",
    ),
    Family(
        "a view kept", "TML402", "storage kept", "kept = []\n",
        BATCH + "with torch.no_grad():\n    kept.append(model(x)[0])" + FLAG + "\n",
        BATCH + "with torch.no_grad():\n    kept.append(model(x)[0].clone())" + FLAG + "\n", "print(len(kept))\n", holder="kept",
    ),
    Family(
        "outputs joined", "TML403", COPIED, "out = torch.empty(0, {classes})\n",
        QUIET + "out = torch.cat([out, y])" + FLAG + "\n", QUIET + "row = torch.cat([y, y + 1.0])" + FLAG + "\n",
    ),
    Family(
        "outputs joined after the first", "TML403", COPIED, "out = None\n",
        QUIET + "if out is None:\n    out = y\nelse:\n    out = torch.cat((out, y), dim=0)" + FLAG + "\n",
        QUIET + "if out is None:\n    out = y\nelse:\n    out = torch.cat((out, y), dim=0)[-{batch}:]" + FLAG + "\n",
    ),
    Family(
        "columns joined", "TML403", COPIED, "bank = Meter()\nbank.all = torch.empty({batch}, 0)\n",
        QUIET + "bank.all = torch.hstack((bank.all, y, y))" + FLAG + "\n",
        QUIET + "bank.all = torch.hstack((bank.all, y, y))" + FLAG + "\nif bank.all.shape[1] > 2 * {classes}:\n"
        "    bank.all = torch.empty({batch}, 0)\n",
    ),
    Family(
        "a checkpoint in one segment", "TML503", UNSAVED, DEEP,
        TALL + "out = checkpoint_sequential(net, 1, x, use_reentrant=False)" + FLAG + "\n" + STEPPED,
        TALL + "out = checkpoint_sequential(net, 4, x, use_reentrant=False)" + FLAG + "\n" + STEPPED, top=CHECKPOINT,
    ),
    Family(
        "a checkpoint around everything", "TML503", UNSAVED, DEEP,
        TALL + "optimizer.zero_grad()\nout = checkpoint(net, x, use_reentrant=False)" + FLAG + "\n" + STEPPED,
        TALL + "optimizer.zero_grad()\nhalf = checkpoint(net[:4], x, use_reentrant=False)" + FLAG + "\n"
        "out = checkpoint(net[4:], half, use_reentrant=False)\n" + STEPPED, top=CHECKPOINT,
    ),
    Family(
        "a checkpoint that trains nothing", "TML503", UNTRAINED, DEEP,
        TALL + "out = checkpoint(net, x, use_reentrant=True)" + FLAG + "\n" + STEPPED,
        TALL + "x.requires_grad_()\nout = checkpoint(net[:4], x, use_reentrant=True)" + FLAG + "\nout = net[4:](out)\n" + STEPPED,
        top=CHECKPOINT,
    ),
    Family(
        "a checkpoint without input", "TML503", REFUSED, DEEP,
        "try:\n    checkpoint_sequential(net, segments=2)" + FLAG + "\nexcept TypeError:\n    pass\n",
        TALL + "checkpoint_sequential(net, segments=2, input=x, use_reentrant=False)" + FLAG + "\n", top=CHECKPOINT,
    ),
    Family(
        "gradients zeroed by the optimizer", "TML505", GRADIENTS, "",
        BATCH + "loss = F.cross_entropy(model(x), y)\nloss.backward()\noptimizer.step()\n"
        "optimizer.zero_grad(set_to_none=False)" + FLAG + "\n",
        BATCH + "loss = F.cross_entropy(model(x), y)\nloss.backward()\noptimizer.step()\noptimizer.zero_grad()" + FLAG + "\n",
    ),
    Family(
        "gradients zeroed one by one", "TML505", GRADIENTS, "",
        BATCH + "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.zero_()" + FLAG + "\n"
        "loss = F.cross_entropy(model(x), y)\nloss.backward()\noptimizer.step()\n",
        BATCH + "model.zero_grad(True)" + FLAG + "\nloss = F.cross_entropy(model(x), y)\nloss.backward()\noptimizer.step()\n",
    ),
    Family(
        "a cache on a module's method", "TML109", CACHED, "", "fresh({width}).table({batch})\n", "fresh({width}).table({batch})\n",
        top=CACHES + ROTARY.replace("{cached}", "@lru_cache").replace("{flag}", FLAG),
        right_top=CACHES + ROTARY.replace("{cached}", "@lru_cache(maxsize=0)").replace("{flag}", FLAG), in_bytes=False, holder="Rotary.table (cache)",
    ),
    Family(
        "a cache of tensors", "TML109", CACHED, "", BATCH + "scaled(x)\n", BATCH + "scaled(x)\n",
        top=CACHES + SCALED.replace("{cached}", "@cache").replace("{flag}", FLAG),
        right_top=CACHES + SCALED.replace("{cached}", "@lru_cache(0)").replace("{flag}", FLAG), in_bytes=False, holder="scaled (cache)",
    ),
    Family(
        "a checkpoint held", "TML506", COPY, LOADED, BATCH + TRAINED, BATCH + TRAINED, top="import io\n\n\n",
        right_before=LOADED + "del state\n", in_bytes=False,
    ),
    Family(
        "a teacher with a graph", "TML203", "graph", "teacher = Net({width}, {hidden}, {classes}, {layers})\n", TAUGHT, TAUGHT,
        right_before="teacher = Net({width}, {hidden}, {classes}, {layers})\nteacher.requires_grad_(False)\n",
    ),
    Family(
        "a phase without a backward", "TML201", "graph", "", BATCH + "one_epoch(model, optimizer, [(x, y)], step % 2 == 0)\n",
        BATCH + "one_epoch(model, optimizer, [(x, y)])\n", top=EPOCH.replace("{train}", "if not validation:").replace("{flag}", FLAG),
        right_top=EPOCH.replace("{train}", "if out.requires_grad:").replace("{flag}", FLAG), in_bytes=False,
    ),
)  # fmt: skip


def programs(seed: int = 20, each: int = 4, steps: int = STEPS) -> Iterator[Program]:
    """Every family ``each`` times, as a mistake and as its clean twin."""
    dice = random.Random(seed)
    for family in FAMILIES:
        for number in range(each):
            shape = drawn(dice)
            for words, body, kind in (("mistake", family.wrong, family.kind), ("clean", family.right, "")):
                top = family.top if kind else family.right_top or family.top
                before = family.before if kind else family.right_before or family.before
                text = _text(family, before, body, top, shape, steps)
                yield Program(
                    f"{family.name} {number} ({words})", family.code, text, kind, family.in_bytes, family.holder if kind else ""
                )


def _text(family: Family, before: str, body: str, top: str, shape: Shape, steps: int) -> str:
    sizes = {
        "batch": shape.batch,
        "width": shape.width,
        "hidden": shape.hidden,
        "classes": shape.classes,
        "layers": shape.layers,
    }
    loop = f"for step in range({steps}):\n    {STEP}\n" + indent(body, "    ")
    code = (SETUP + before + loop + family.after).format(**sizes)
    return HEAD + top + ("def run():\n" + indent(code, "    ") + "\n\nrun()\n" if shape.in_function else code)


# -- what is right

_RULER = dedent(
    """
    import json, sys, gc
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Ruler(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.known, self.live, self.peak = {}, [], 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    storage = leaf.untyped_storage()
                    self.known[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
            self.peak = max(self.peak, self.alive())
            return result

        def alive(self):
            self.known = {key: item for key, item in self.known.items() if not item[0].expired()}
            return sum(size for _, size in self.known.values())

        def step(self):
            gc.collect()
            if len(self.live) == 2:
                self.peak = self.alive()
            self.live.append(self.alive())

    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # the first one loads torch's compiler
    gc.collect()
    gc.freeze()  # torch's own 600,000 objects need not be looked at at every step
    for line in sys.stdin:
        torch.manual_seed(0)
        with Ruler() as ruler:
            exec(compile(json.loads(line), "program", "exec"), {"__name__": "__main__", "__step__": ruler.step, "print": lambda *a: None})
            ruler.step()
        print(json.dumps([ruler.live, ruler.peak]), flush=True)
        gc.collect()
    """
)


def measured(some: Sequence[Program]) -> list[Measured]:
    """What each program has in memory when it runs as it is."""
    texts = "".join(json.dumps(program.text.replace(STEP, "__step__()")) + "\n" for program in some)
    done = subprocess.run([sys.executable, "-c", _RULER], input=texts, capture_output=True, text=True, check=True)
    return [Measured(tuple(live), peak) for live, peak in map(json.loads, done.stdout.splitlines())]


# -- what confirm says


def verdict_on(program: Program, folder: Path) -> Verdict:
    """The verdict on the flagged line."""
    file = folder / "program.py"
    file.write_text(program.text)
    row, line = next((row, line) for row, line in enumerate(program.text.splitlines(), 1) if line.endswith(FLAG))
    start, end = len(line) - len(line.lstrip()) + 1, len(line) - len(FLAG) + 1
    if program.code in {"TML201", "TML203"}:
        start = line.index("teacher(x)" if program.code == "TML203" else "model(x)") + 1
    span = Span(Position(row, start), Position(row, end))
    function = _qualname(ast.parse(program.text), row)
    finding = Finding(program.code, "known", Severity.WARNING, Confidence.HIGH, "known", str(file), span, function=function)
    return settle(plan(finding, program.text), Options(steps=STEPS)).verdict


@dataclass(frozen=True, slots=True)
class Row:
    """One program's answer beside what is right; ``wrong`` says how they differ, "" for not at all."""

    program: Program
    truth: Measured
    verdict: Verdict
    wrong: str


def judged(program: Program, truth: Measured, verdict: Verdict) -> Row:
    """Whether the verdict and the bytes are right."""
    return Row(
        program, truth, verdict, _verdict_wrong(program, verdict) or (_bytes_wrong(truth, verdict) if program.in_bytes else "")
    )


def _verdict_wrong(program: Program, verdict: Verdict) -> str:
    if not program.kind:
        return f"clean, and {verdict.kind}" if verdict.outcome is Outcome.CONFIRMED else ""
    if verdict.outcome is Outcome.REFUTED:
        return f"refuted: {verdict.reason}"
    if verdict.outcome is Outcome.CONFIRMED and program.kind not in verdict.kind:
        return f"{verdict.kind}, not {program.kind}"
    return ""


def _bytes_wrong(truth: Measured, verdict: Verdict) -> str:
    run = verdict.before
    if run is None or len(run.live_bytes) < STEPS:
        return ""
    for words, mine, right in (
        ("a step", run.live_bytes_per_step, truth.growth), ("at the peak", run.peak_bytes, truth.peak),
    ):  # fmt: skip
        if abs(mine - right) > max(NOISE, TOLERANCE * right):
            return f"{mine:,} bytes {words}, not {right:,.0f}"
    return ""


def judge(some: Sequence[Program], progress: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Settle the programs, one after the other."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, warmed():
        for program, truth in zip(some, measured(some), strict=True):
            rows.append(judged(program, truth, verdict_on(program, Path(folder))))
            progress(rows[-1])
    return rows


def table(rows: Sequence[Row]) -> str:
    """A line for each program and the totals."""
    lines = ["| program | rule | verdict | bytes a step | measured | peak | measured | |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        run = row.verdict.before
        grew, peak = (f"{run.live_bytes_per_step:,}", f"{run.peak_bytes:,}") if run else ("", "")
        kind = row.verdict.kind or row.verdict.outcome.value
        lines.append(
            f"| {row.program.name} | {row.program.code} | {kind} | {grew} | {row.truth.growth:,.0f} | {peak} | {row.truth.peak:,} | {row.wrong} |"
        )
    settled = sum(row.verdict.outcome is not Outcome.INCONCLUSIVE for row in rows)
    clean = sum(not row.program.kind for row in rows)
    lines.append(
        f"\n{len(rows)} programs, {clean} of them clean: {settled} settled, {sum(bool(row.wrong) for row in rows)} wrong."
    )
    for row in rows:
        if row.verdict.outcome is Outcome.INCONCLUSIVE:
            lines.append(f"- {row.program.name}: inconclusive, {row.verdict.reason}")
    return "\n".join(lines)


def main(arguments: Iterable[str] | None = None) -> int:
    """Judge all of them and print the table; 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.known_answers", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--each", type=int, default=4, help="programs of each family, with a clean twin each (default: 4)")
    parser.add_argument("--rule", metavar="CODE", help="programs of one rule only")
    given = parser.parse_args(None if arguments is None else list(arguments))
    rows = judge(
        [program for program in programs(given.seed, given.each) if given.rule in {None, program.code}],
        lambda row: print(row.program.name, row.wrong or "right", file=sys.stderr),
    )
    print(table(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
