"""``python -m benchmarks.mutants``: how many of fifty small mistakes in the engine and the rules the tests notice.

The mistakes are drawn once (``draw``) and stand in ``mutants.json``, each with the function that it is made in, wherever that is
moved. With ``--also TREE`` they are drawn in functions that are the same in another tree, an older one say: what the tests of both
trees notice can be compared (``run --tree TREE``).

The fast tests run once on a copy of the tree that writes down which of them come by each place. Then each mistake gets a copy of one
process that has loaded all tests, where it is made alone, and the first of those tests run until one fails. What is not noticed so
soon is made at once, all of it, every test runs, and those that fail are tried for each alone; with ``--all`` so are the slow tests.
What was found goes into the file that ``--record`` names, and what the long runs gave beside it: what stands there is not run again.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DRAWN = Path(__file__).with_name("mutants.json")
PLUGIN = Path(__file__).with_name("mutating.py")
FOLDERS = ("torchmemlint/semantics", "torchmemlint/rules")
FIXTURES = "tests/test_rules.py"
NUMBER = 50
SEED = 46
KINDS = {"fast": "not slow", "slow": "slow"}
LONGEST = {"fast": 300, "slow": 1200}
"""Seconds that one test may take; a mistake that makes it hang is noticed."""
SOON = 100
"""So many tests are tried for a mistake alone."""
MEMORY = 8 << 30
"""Bytes that a process may fill: a loop without end may do so with a list."""

Edit = tuple[ast.expr | ast.stmt, str]
"""What is replaced, and by what."""
COMPARED = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
JOINED = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake in a function: the lines that it is made in, how many rows below the first, and what is there then."""

    file: str
    function: str
    row: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.function}:{self.row}"


@dataclass(frozen=True, slots=True)
class Function:
    """With the lines of its file. ``first`` and ``last`` are rows, from 0, and ``last`` is the one after it."""

    file: str
    node: ast.FunctionDef
    first: int
    last: int
    lines: list[str]

    @property
    def text(self) -> str:
        return "".join(self.lines[self.first : self.last])


def functions(tree: Path) -> dict[str, list[Function]]:
    """Those of modules and classes, by their names."""
    found: dict[str, list[Function]] = defaultdict(list)
    for path in (path for folder in FOLDERS for path in sorted((tree / folder).rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        file, lines = path.relative_to(tree).as_posix(), text.splitlines(keepends=True)
        inside: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
        for name, parent in inside:
            for node in ast.iter_child_nodes(parent):
                if isinstance(node, ast.ClassDef):
                    inside.append((f"{name}{node.name}.", node))
                elif isinstance(node, ast.FunctionDef):
                    found[name + node.name].append(Function(file, node, node.lineno - 1, node.end_lineno or 0, lines))
    return found


def edits(tree: ast.Module) -> Iterator[Edit]:
    """Every small mistake that can be made: a condition the other way round or never true, another operator, number or truth value,
    a statement that does nothing."""
    noted = [
        one for node in ast.walk(tree) for one in (getattr(node, "annotation", None), getattr(node, "returns", None)) if one
    ]
    skipped = {inner for one in noted for inner in ast.walk(one)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.If | ast.IfExp | ast.While) and ast.unparse(node.test) != "TYPE_CHECKING":
            yield node.test, f"not ({ast.unparse(node.test)})"
            yield node.test, "False"
        if isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield test, f"not ({ast.unparse(test)})"
        if isinstance(node, ast.expr):
            yield from ((node, other) for other in others(node))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, "pass"
        if isinstance(node, ast.Continue | ast.Break):
            yield node, "break" if isinstance(node, ast.Continue) else "continue"
        if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
            yield node, "return None"


def others(node: ast.expr) -> Iterator[str]:
    """What an expression may be by mistake."""
    text = ast.unparse(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        yield f"{left} {COMPARED[type(node.ops[0])]} {right}"
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield word.join(f"({ast.unparse(one)})" for one in node.values)
        for dropped in node.values:
            rest = [f"({ast.unparse(one)})" for one in node.values if one is not dropped]
            yield (" and " if isinstance(node.op, ast.And) else " or ").join(rest)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield ast.unparse(node.operand)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield str(not node.value)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield str(node.value + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield f"{ast.unparse(node.left)} {'-' if isinstance(node.op, ast.Add) else '+'} ({ast.unparse(node.right)})"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in JOINED:
        yield JOINED[node.func.id] + text[len(node.func.id) :]


def mutant(name: str, function: Function, node: ast.expr | ast.stmt, new: str) -> Mutant | None:
    """The mistake in its lines; None where they are no program then, or as before."""
    lines = function.lines
    first, last = node.lineno, node.end_lineno or node.lineno
    start = lines[first - 1].encode()[: node.col_offset].decode()
    end = lines[last - 1].encode()[node.end_col_offset :].decode()
    before = "".join(lines[first - 1 : last])
    bracketed = new if isinstance(node, ast.stmt) else f"({new})"
    after = f"{start}{bracketed}{end}"
    try:
        compile("".join([*lines[: first - 1], after, *lines[last:]]), function.file, "exec")
    except SyntaxError:
        return None
    return Mutant(function.file, name, first - 1 - function.first, before, after)


def draw(number: int, seed: int, also: Path | None) -> list[Mutant]:
    """So many mistakes of all that can be made, no two in a line."""
    here = functions(ROOT)
    there = here if also is None else functions(also)
    possible = [
        (name, function, node, new)
        for name, those in sorted(here.items())
        for function in those
        if any(function.text == other.text for other in there.get(name, ()))
        for node, new in edits(ast.Module(function.node.body, []))
    ]
    random.Random(seed).shuffle(possible)
    found: list[Mutant] = []
    taken: set[tuple[str, int]] = set()
    for one in possible:
        made = mutant(*one)
        if made is None or place(there, made) is None:
            continue
        _, rows = place(here, made) or (None, range(0))
        lines = {(made.file, row) for row in rows}
        if not lines & taken:
            found.append(made)
            taken |= lines
        if len(found) == number:
            break
    return found


def place(among: dict[str, list[Function]], mistake: Mutant) -> tuple[Function, range] | None:
    """Where the mistake is made: the function and the rows of its file. None if that is nowhere, or not certain."""
    wanted = mistake.before.splitlines(keepends=True)
    size = len(wanted)
    found = []
    for function in among.get(mistake.function, ()):
        rows = range(function.first, function.last - size + 1)
        same = [row for row in rows if function.lines[row : row + size] == wanted]
        exact = function.first + mistake.row
        if exact in same or len(same) == 1:
            row = exact if exact in same else same[0]
            found.append((function, range(row, row + size)))
    if len(found) > 1:
        found = [(function, rows) for function, rows in found if function.file == mistake.file]
    return found[0] if len(found) == 1 else None


def placed(tree: Path, mistakes: Iterable[Mutant]) -> list[tuple[Function, range]]:
    among = functions(tree)
    found = []
    for mistake in mistakes:
        where = place(among, mistake)
        if where is None:
            raise SystemExit(f"{mistake.file}: {mistake.function}: not what it was; draw again")
        found.append(where)
    return found


def write(tree: Path, edits: Iterable[tuple[Function, range, str]]) -> None:
    """The rows of each are replaced by the text."""
    for function, rows, text in sorted(edits, key=lambda edit: -edit[1].start):  # from below
        path = tree / function.file
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join([*lines[: rows.start], text, *lines[rows.stop :]]), encoding="utf-8")


def watched(tree: Path, mistakes: list[Mutant]) -> None:
    """Each statement with a mistake says first that a test has come by."""
    added = []
    for number, (function, rows) in enumerate(placed(tree, mistakes)):
        row = max(first for first, last in statements(function) if first <= rows.start and rows.stop <= last)
        line = function.lines[row]
        indent = line[: len(line) - len(line.lstrip())]
        added.append((function, range(row, row), f'{indent}__import__("mutating").by({number})\n'))
    write(tree, added)


def statements(function: Function) -> Iterator[tuple[int, int]]:
    """The rows of each, before which another can stand: it begins its line, and not with ``elif``."""
    for node in (inner for one in function.node.body for inner in ast.walk(one) if isinstance(inner, ast.stmt)):
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1
        line = function.lines[first]
        if line[: node.col_offset].isspace() and not re.match(r"\s*elif\b", line):
            yield first, node.end_lineno or node.lineno


@contextmanager
def copy_of(tree: Path) -> Iterator[Path]:
    """The plugin of pytest lies beside it."""
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "site")
        shutil.copytree(tree, Path(folder, "tree"), ignore=ignored, symlinks=True)
        shutil.copy(PLUGIN, folder)
        yield Path(folder, "tree")


def failing(copy: Path, kind: str, arguments: Iterable[str], **told: str) -> list[str]:
    """The tests that fail in a copy of a tree. Where pytest fails and names none, one word."""
    environment = {**os.environ, **told, "PYTHONPATH": os.pathsep.join(map(str, (copy, copy.parent))), "CI": "true"}
    limit = f"timeout={LONGEST[kind]}"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        PLUGIN.stem,
        "-o",
        limit,
        "-m",
        KINDS[kind],
    ]
    program = subprocess.Popen(
        [*command, *arguments],
        cwd=copy,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
    )
    try:
        output, _ = program.communicate()
    finally:
        with suppress(ProcessLookupError):  # what a test has left behind ends as well
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    if program.returncode in (0, 5):  # 5: no test is chosen
        return []
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE) or [output.strip().splitlines()[-1]]


def first_failing(tree: Path, kind: str, chosen: dict[int, tuple[Mutant, list[str]]]) -> Iterator[tuple[int, str]]:
    """For each of these mistakes the first of its tests that fails, or ""."""
    with copy_of(tree) as copy:
        orders, answers = copy.parent / "orders", copy.parent / "answers"
        with orders.open("w", encoding="utf-8") as file:
            places = placed(copy, [mistake for mistake, _ in chosen.values()])
            for (number, (mistake, tests)), (function, rows) in zip(chosen.items(), places, strict=True):
                text = "".join([*function.lines[: rows.start], mistake.after, *function.lines[rows.stop :]])
                path = str(copy / function.file)
                order = {"number": number, "file": path, "function": mistake.function, "text": text, "tests": tests}
                file.write(json.dumps(order) + "\n")
        files = sorted({test.partition("::")[0] for _, tests in chosen.values() for test in tests})
        if wrong := failing(copy, kind, files, ORDERS=str(orders), ANSWERS=str(answers)):
            raise SystemExit(wrong[0])
        for line in answers.read_text(encoding="utf-8").splitlines():
            which, _, failed = line.partition("\t")
            yield int(which), failed


def reached(tree: Path, mistakes: list[Mutant], log: Path) -> list[list[str]]:
    """For each mistake the fast tests that come by it, and those that may meet what such a test has made and kept: those with the same
    parameter, or of the same file. None of those that fail anyway."""
    if not log.exists():
        unfinished = log.with_suffix(".part").absolute()
        unfinished.unlink(missing_ok=True)
        with copy_of(tree) as copy:
            watched(copy, mistakes)
            failed = failing(copy, "fast", ["-n", "2", "tests"], REACHED=str(unfinished))
        failed = anyway(tree, "fast", failed)
        with unfinished.open("a", encoding="utf-8") as file:
            file.writelines(f"fails\t{name}\n" for name in failed)
        unfinished.rename(log)
    tests: dict[str, set[str]] = defaultdict(set)
    for line in log.read_text(encoding="utf-8").splitlines():
        word, _, test = line.partition("\t")
        tests[word].add(test)
    kept = defaultdict(list)
    for test in sorted(tests["runs"] - tests["fails"]):
        kept[shared(test)].append(test)
    return [
        [test for group in sorted({shared(test) for test in tests[str(number)]}, key=mixed) for test in kept[group]]
        for number in range(len(mistakes))
    ]


def together(tree: Path, mistakes: list[Mutant], kind: str, log: Path) -> list[str]:
    """The tests that fail with all of these mistakes, and without them do not."""
    if not log.exists():
        with copy_of(tree) as copy:
            places = placed(copy, mistakes)
            write(copy, [(function, rows, one.after) for (function, rows), one in zip(places, mistakes, strict=True)])
            failed = failing(copy, kind, ["-n", "2", "tests"])
        failed = sorted({*failed} - {*anyway(tree, kind, failed)})
        log.write_text("".join(f"{test}\n" for test in failed), encoding="utf-8")
    return log.read_text(encoding="utf-8").splitlines()


def anyway(tree: Path, kind: str, tests: list[str]) -> list[str]:
    """Those that fail without a mistake."""
    if not tests:
        return []
    with copy_of(tree) as copy:
        return failing(copy, kind, tests)


def mixed(text: str) -> int:
    """An order in which the fixtures of one rule are not side by side."""
    return zlib.crc32(text.encode())


def shared(test: str) -> str:
    file, _, name = test.partition("::")
    return name.partition("[")[2] or file


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=("draw", "run"), default="run")
    parser.add_argument("--number", type=int, default=NUMBER, help="how many are drawn, or run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--also", type=Path, metavar="TREE", help="draw in functions that are the same in this tree")
    parser.add_argument("--tree", type=Path, default=ROOT, help="run the tests of this tree (default: this one)")
    parser.add_argument("--all", action="store_true", help="what no fast test notices is given to the slow ones")
    parser.add_argument("--record", type=Path, default=Path("noticed.json"), help="what was found (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.what == "draw":
        made = [asdict(one) for one in draw(arguments.number, arguments.seed, arguments.also)]
        DRAWN.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        return 0
    drawn = [Mutant(**one) for one in json.loads(DRAWN.read_text(encoding="utf-8"))[: arguments.number]]
    record = json.loads(arguments.record.read_text(encoding="utf-8")) if arguments.record.exists() else {}
    ran = [record.setdefault(one.name, {}) for one in drawn]

    def alone(kind: str, chosen: dict[int, list[str]]) -> None:
        orders = {number: (drawn[number], tests) for number, tests in chosen.items()}
        for number, failed in first_failing(arguments.tree, kind, orders):
            if failed:
                ran[number][kind] = failed
            arguments.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def left(kind: str) -> list[int]:
        return [number for number, found in enumerate(ran) if kind not in found and not any(found.values())]

    for kind in ("fast", "slow") if arguments.all else ("fast",):
        if kind == "fast" and left(kind):
            tests = reached(arguments.tree, drawn, arguments.record.with_suffix(".reached"))
            alone(kind, {number: tests[number][:SOON] for number in left(kind)})
        if numbers := left(kind):
            log = arguments.record.with_suffix(f".{kind}")
            if failed := together(arguments.tree, [drawn[number] for number in numbers], kind, log):
                alone(kind, {number: failed for number in numbers})
        for number in left(kind):
            ran[number][kind] = None
        arguments.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for number, (one, found) in enumerate(zip(drawn, ran, strict=True)):
            if kind in found:
                print(f"{number} {one.name} {kind}: {found[kind] or 'not noticed'}")
    print(f"{len(ran)} mistakes; noticed by fast tests {sum(bool(one.get('fast')) for one in ran)}", end="")
    print(f", by any {sum(any(one.values()) for one in ran)}" if arguments.all else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
