"""``python -m benchmarks.tree [COMMIT…]``: how the code is divided, at some commits and in the tree as it is, as a table."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks import word_lists
from benchmarks.word_lists import ENGINE

ROOT = Path(__file__).parents[1]


def figures(package: Path) -> dict[str, int | str]:
    """What one state of the package has; ``ENGINE`` alone where a row says so."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in trees}
    engine = {path: tree for path, tree in trees.items() if path.relative_to(package).parts[0] in ENGINE}
    functions = [node for tree in engine.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    largest = max(engine, key=lambda path: lines[path])
    kinds = Counter(kind for kind, *_ in word_lists.listed(package))
    return {
        "lines": sum(lines.values()),
        "lines of the engine": sum(lines[path] for path in engine),
        "largest file of the engine": f"{largest.relative_to(package)}, {lines[largest]}",
        "functions of the engine over 60 lines": sum((node.end_lineno or 0) - node.lineno >= 60 for node in functions),
        "C901 over 12 in the engine": complex_functions([package / part for part in ENGINE if (package / part).exists()]),
        "methods of the engine's largest class, with those it inherits": max(methods(engine.values()), default=0),
        "top-level modules": sum(path.parent == package for path in trees),
        "constants that are sets or tables of three words or more, outside torch_facts": kinds.total(),
        "… of names of libraries, in the engine and the rules": kinds[word_lists.LIBRARY],
        "… of names of libraries, in the workers of `confirm` and `budget`": kinds[word_lists.WORKER],
        "… of names of Python": kinds[word_lists.PYTHON],
        "… of the product's own: options, formats, files, messages": kinds[word_lists.OWN],
        "single names of libraries in the engine and the rules": len(word_lists.single_names(package)),
        "imports inside functions": sum(inner_imports(tree) for tree in trees.values()),
    }


def complex_functions(folders: list[Path]) -> int:
    limit = "lint.mccabe.max-complexity=12"
    command = ["ruff", "check", "--isolated", "--no-cache", "--select", "C901", "--config", limit, "--output-format", "concise"]
    printed = subprocess.run([*command, *folders], capture_output=True, text=True, check=False).stdout
    return printed.count("C901")


def methods(trees: Iterable[ast.Module]) -> list[int]:
    """The methods of each class, with those of the bases that have a name of the same package."""
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def names(name: str, above: frozenset[str]) -> set[str]:
        node = classes.get(name)
        if node is None or name in above:
            return set()
        own = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        return own.union(*(names(base.id, above | {name}) for base in node.bases if isinstance(base, ast.Name)))

    return [len(names(name, frozenset())) for name in classes]


def inner_imports(tree: ast.Module) -> int:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return len({id(each) for node in functions for each in ast.walk(node) if isinstance(each, (ast.Import, ast.ImportFrom))})


def main() -> None:
    columns = {}
    for commit in sys.argv[1:]:
        data = subprocess.run(["git", "archive", commit, "torchmemlint"], cwd=ROOT, capture_output=True, check=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(folder)
            columns[commit[:9]] = figures(Path(folder, "torchmemlint"))
    columns["now"] = figures(ROOT / "torchmemlint")
    print(f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for row in columns["now"]:
        print(f"| {row} | {' | '.join(str(column[row]) for column in columns.values())} |")


if __name__ == "__main__":
    main()
