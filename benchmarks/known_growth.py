"""``python -m benchmarks.known_growth``: what ``torchmemlint run`` says of programs whose answers are known.

The programs of ``benchmarks.known_answers``, with 60 steps each. The bytes a step are measured apart, as there. Each program runs in a
process of its own, forked from one that has loaded torch. A mistake that grows must be found, with its holder, its line (or a line that
called it) and its bytes, within a tenth; of all others nothing may be said but notes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from benchmarks.known_answers import FLAG, TOLERANCE, Program, measured, programs

STEPS = 60
ROOT = str(Path(__file__).resolve().parent.parent)

_RUNNER = dedent(
    """
    import json, os, sys
    sys.path.append(sys.argv[1])
    import torch, torch.utils.checkpoint, torch.utils.data
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # the first one loads torch's compiler
    torch.set_num_threads(1)
    for line in sys.stdin:
        program, answer = json.loads(line)
        child = os.fork()
        if not child:
            status = 1
            try:
                from torchmemlint.growth.worker import main
                from torchmemlint.growth.worker.running import Running
                sys.stdout = open(os.devnull, "w")
                torch.manual_seed(0)
                running = Running({"format": "json", "python": sys.executable, "root": sys.argv[1]})
                running.begin()
                main._run([program])
                running.ended(None)
                with open(answer, "w") as file:
                    json.dump(running.growths(), file)
                status = 0
            finally:
                os._exit(status)
        os.waitpid(child, 0)
        print(answer, flush=True)
    """
)


@dataclass(frozen=True, slots=True)
class Row:
    """What was said of one program. ``growths`` without notes; ``truth`` are the bytes a step."""

    program: Program
    truth: float
    growths: tuple[Mapping[str, Any], ...]
    notes: int

    @property
    def mine(self) -> Sequence[Mapping[str, Any]]:
        """Growths of the expected holder."""
        return [one for one in self.growths if one["holder"] == self.program.holder]

    @property
    def bytes(self) -> float:
        """Bytes of storages a step, of all growths."""
        return float(sum(one["bytes_per_step"] for one in self.growths))

    def right(self, question: str) -> bool:
        """Whether the answer to one of ``QUESTIONS`` is right."""
        if question == "found":
            return bool(self.growths)
        if question == "holder":
            return bool(self.mine)
        if question == "line":
            return any(_row(self.program) in _rows(one) for one in self.mine or self.growths)
        return bool(self.growths) and abs(self.bytes - self.truth) <= TOLERANCE * self.truth

    @property
    def wrong(self) -> str:
        """What is wrong, "" if nothing is."""
        if not self.program.holder:
            return ", ".join(f"clean, and `{one['holder']}`" for one in self.growths)
        return ", ".join(question for question in QUESTIONS if not self.right(question))


QUESTIONS = ("found", "holder", "line", "bytes")


def _row(program: Program) -> int:
    return next(row for row, line in enumerate(program.text.splitlines(), 1) if line.endswith(FLAG))


def _rows(growth: Mapping[str, Any]) -> list[int]:
    return [place["line"] for place in (growth["line"], growth["defined"], *growth["callers"]) if place]


def grown(seed: int, each: int) -> list[Program]:
    """The programs, but for the mistakes of TML403: these join a few bytes a step, which a copy of the whole makes slow."""
    return [program for program in programs(seed, each, STEPS) if program.code != "TML403" or not program.kind]


def judge(some: Sequence[Program], progress: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Run the programs, one after the other."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _RUNNER, ROOT]
        truths = iter(measured([program for program in some if program.holder]))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder) as runner:
            assert runner.stdin is not None
            assert runner.stdout is not None
            for number, program in enumerate(some):
                file, answer = (os.path.join(folder, f"{number}.{ending}") for ending in ("py", "json"))
                Path(file).write_text(program.text, encoding="utf-8")
                runner.stdin.write(json.dumps([file, answer]) + "\n")
                runner.stdin.flush()
                runner.stdout.readline()
                growths = json.loads(Path(answer).read_text(encoding="utf-8"))
                loud = tuple(one for one in growths if not one["note"] or program.holder)
                truth = next(truths).growth if program.holder else 0.0
                rows.append(Row(program, truth, loud, len(growths) - len(loud)))
                progress(rows[-1])
            runner.stdin.close()
    return rows


def shares(rows: Sequence[Row]) -> dict[str, float]:
    """The share of right answers to each question, of the programs that grow."""
    grow = [row for row in rows if row.program.holder]
    return {question: sum(row.right(question) for row in grow) / max(1, len(grow)) for question in QUESTIONS}


def table(rows: Sequence[Row]) -> str:
    """A line for each program that grows or was said to grow, and the totals."""
    lines = ["| program | holder | bytes a step | measured | wrong |", "|---|---|---|---|---|"]
    for row in rows:
        if row.program.holder or row.growths:
            holders = ", ".join(f"`{one['holder']}`" for one in row.growths)
            lines.append(f"| {row.program.name} | {holders} | {row.bytes:,.0f} | {row.truth:,.0f} | {row.wrong} |")
    clean = [row for row in rows if not row.program.holder]
    found = ", ".join(f"{question} {share:.2f}" for question, share in shares(rows).items())
    lines.append(f"\n{len(rows) - len(clean)} programs grow: {found}.")
    lines.append(
        f"{len(clean)} do not, or keep results without a graph: {sum(bool(row.wrong) for row in clean)} wrong, "
        f"{sum(bool(row.notes) for row in clean)} with notes."
    )
    return "\n".join(lines)


def main(arguments: Iterable[str] | None = None) -> int:
    """Run all of them and print the table; 1 where a clean one is said to grow or a mistake is not found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.known_growth", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--each", type=int, default=4, help="programs of each family, with a clean twin each (default: 4)")
    parser.add_argument("--family", metavar="WORDS", default="", help="programs whose name has these words only")
    given = parser.parse_args(None if arguments is None else list(arguments))
    some = [program for program in grown(given.seed, given.each) if given.family in program.name]
    rows = judge(some, lambda row: print(row.program.name, row.wrong or "right", file=sys.stderr))
    print(table(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
