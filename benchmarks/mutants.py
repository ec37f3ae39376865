"""``python -m benchmarks.mutants``: how many of fifty small mistakes in the engine and the rules the tests notice.

The mistakes are drawn once (``draw``) and stand in ``mutants.json``. Each is made in a copy of the tree, where the tests run that
``python -m tests.affected`` names for the file, until one fails: the fast ones, or with ``--all`` the slow ones too. What was found
goes into the file that ``--record`` names, after each mistake; those that stand in it are not run again.
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
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DRAWN = Path(__file__).with_name("mutants.json")
FOLDERS = ("torchmemlint/semantics", "torchmemlint/rules")
FIXTURES = "tests/test_rules.py"
NUMBER = 50
SEED = 46
LIMIT = 900
"""Seconds of CPU that the tests may take, and four times as many by the clock; a mistake that makes them hang is noticed."""

Edit = tuple[ast.expr | ast.stmt, str]
"""What is replaced, and by what."""
COMPARED = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
JOINED = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake in a file: the line that it is made in, and what is there then. ``first`` and ``last`` are rows, from 1."""

    file: str
    first: int
    last: int
    before: str
    after: str


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


def mutant(file: str, text: str, node: ast.expr | ast.stmt, new: str) -> Mutant | None:
    """The mistake in its lines; None where they are no program then, or as before."""
    lines = text.splitlines(keepends=True)
    first, last = node.lineno, node.end_lineno or node.lineno
    start = lines[first - 1].encode()[: node.col_offset].decode()
    end = lines[last - 1].encode()[node.end_col_offset :].decode()
    before = "".join(lines[first - 1 : last])
    bracketed = new if isinstance(node, ast.stmt) else f"({new})"
    after = f"{start}{bracketed}{end}"
    try:
        compile("".join([*lines[: first - 1], after, *lines[last:]]), file, "exec")
    except SyntaxError:
        return None
    return Mutant(file, first, last, before, after)


def draw(number: int, seed: int) -> list[Mutant]:
    """So many mistakes of all that can be made, none twice in a line."""
    possible = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            file, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
            possible += [(file, text, node, new) for node, new in edits(ast.parse(text))]
    random.Random(seed).shuffle(possible)
    found: list[Mutant] = []
    for one in possible:
        made = mutant(*one)
        if made is not None and all((made.file, made.first) != (other.file, other.first) for other in found):
            found.append(made)
        if len(found) == number:
            break
    return found


def made_in(tree: Path, mistake: Mutant) -> None:
    path = tree / mistake.file
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    if "".join(lines[mistake.first - 1 : mistake.last]) == mistake.before:
        changed = "".join([*lines[: mistake.first - 1], mistake.after, *lines[mistake.last :]])
    elif text.count(mistake.before) == 1:  # moved by a later change
        changed = text.replace(mistake.before, mistake.after)
    else:
        raise SystemExit(f"{mistake.file}:{mistake.first}: not what it was; draw again")
    path.write_text(changed, encoding="utf-8")


def affected(file: str) -> list[list[str]]:
    """Arguments of pytest, in the order in which they are tried."""
    command = [sys.executable, "-m", "tests.affected", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = done.stdout.split()[done.stdout.split().index("2") + 1 :]
    files.sort(key=lambda name: name != FIXTURES)  # most mistakes are noticed there
    first = re.search(r"-k '?([^'\n]+)", done.stderr)
    return [*([[FIXTURES, "-k", first[1]]] if first else []), files]


def noticed_by(tree: Path, mistake: Mutant, marker: str) -> str | None:
    """The first test that fails, "hangs", or None."""
    for arguments in affected(mistake.file):
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marker, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(tree), "CI": "true"}
        program = subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1)),
        )
        try:
            output, _ = program.communicate(timeout=4 * LIMIT)
        except subprocess.TimeoutExpired:
            return "hangs"
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
        if program.returncode == -signal.SIGXCPU:
            return "hangs"
        if program.returncode not in (0, 5):  # 5: none of these tests is of this kind
            failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
            return failed[1] if failed else output.strip().splitlines()[-1]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=("draw", "run"), default="run")
    parser.add_argument("--number", type=int, default=NUMBER, help="how many are drawn, or run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--all", action="store_true", help="what no fast test notices is given to the slow ones")
    parser.add_argument("--record", type=Path, default=Path("noticed.json"), help="what was found (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.what == "draw":
        made = [asdict(one) for one in draw(arguments.number, arguments.seed)]
        DRAWN.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        return 0
    drawn = [Mutant(**one) for one in json.loads(DRAWN.read_text(encoding="utf-8"))[: arguments.number]]
    record = json.loads(arguments.record.read_text(encoding="utf-8")) if arguments.record.exists() else {}
    kinds = {"fast": "not slow", **({"slow": "slow"} if arguments.all else {})}
    for number, mistake in enumerate(drawn, 1):
        name = f"{mistake.file}:{mistake.first}"
        for kind, marker in kinds.items():
            found = record.setdefault(name, {})
            if any(found.values()) or kind in found:
                continue
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                tree = Path(folder, "tree")
                ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "site")
                shutil.copytree(ROOT, tree, ignore=ignored, symlinks=True)
                made_in(tree, mistake)
                found[kind] = noticed_by(tree, mistake, marker)
            arguments.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            print(f"{number} {name} {kind}: {found[kind] or 'not noticed'}, {time.monotonic() - started:.0f} s", flush=True)
    ran = [record[f"{one.file}:{one.first}"] for one in drawn]
    print(f"{len(ran)} mistakes; noticed by fast tests {sum(bool(one.get('fast')) for one in ran)}", end="")
    print(f", by any {sum(any(one.values()) for one in ran)}" if arguments.all else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
