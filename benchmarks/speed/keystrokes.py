"""CPU seconds after a keystroke in a language server: ``python -m benchmarks.speed.keystrokes [--seed N] FILE…``

Each file is opened in the project around it. Then lines are typed above random statements of random functions, one after the other and
of three kinds in turn: a comment, a call, an assignment. Of each the time is taken until the findings of the edited function are shown,
until all functions are checked, and what the server does after that: it frees memory.
"""

from __future__ import annotations

import argparse
import ast
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.speed import refuse_without_bytecode
from torchmemlint.lsp import buffers

KINDS = {"a comment": "# a", "a call": 'print("a")', "an assignment": "a_number = 1"}
EDITS = 15
GOAL = 0.15
"""CPU seconds within which a file of 2,000 lines is to be checked again."""
Taken = tuple[str, float, float, float]
"""The kind of edit, the seconds until the first and the last findings, and those after that."""


def typed(text: str, kind: str, chance: random.Random) -> str:
    """A text with one line more."""
    functions = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef) and len(each.body) > 1]
    statement = chance.choice(chance.choice(functions).body[1:])
    lines = text.split("\n")
    lines.insert(statement.lineno - 1, " " * statement.col_offset + KINDS[kind])
    return "\n".join(lines)


def measured(file: Path, chance: random.Random) -> Iterator[Taken]:
    path, text = buffers.open_path(str(file)), file.read_text(encoding="utf-8")
    buffers.forget()
    buffers.check(path, text, {path: text}, {})
    buffers.collect()
    for number in range(EDITS):
        kind = [*KINDS][number % len(KINDS)]
        text = typed(text, kind, chance)
        shown: list[float] = []
        begin = time.process_time()

        def show(_: object, shown: list[float] = shown, begin: float = begin) -> None:
            shown.append(time.process_time() - begin)

        buffers.check(path, text, {path: text}, {}, show)
        last = time.process_time() - begin
        buffers.collect()
        yield kind, min([*shown, last]), last, time.process_time() - begin - last


def summary(seconds: Sequence[float]) -> str:
    """The median, the 90th percentile, and how many of 100 reach the goal."""
    ordered = sorted(seconds)
    median, most = ordered[len(ordered) // 2], ordered[len(ordered) * 9 // 10]
    return f"{median:.2f}, 90% {most:.2f}, {100 * sum(each <= GOAL for each in ordered) // len(ordered)} of 100 within {GOAL}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    refuse_without_bytecode()
    chance = random.Random(arguments.seed)
    taken = [each for file in arguments.files for each in measured(file, chance)]
    for kind in KINDS:
        own = [each for each in taken if each[0] == kind]
        print(f"{kind} ({len(own)}): first {summary([each[1] for each in own])}; all {summary([each[2] for each in own])}")
        print(f"    after that: {summary([each[3] for each in own])}")


if __name__ == "__main__":
    main()
