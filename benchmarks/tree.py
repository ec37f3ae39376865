"""``python -m benchmarks.tree [COMMIT…]``: how the code is divided, at some commits and in the tree as it is, as a table."""

from __future__ import annotations

import ast
import io
import re
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
        **structure(package, trees),
        **{f"decisions of {code}": text for code, text in decisions(package).items()},
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


# --- the figures of statements, and of the judgement

APART = ("confirm", "budget", "oom", "growth")
"""The packages that are no part of the linter proper."""
PARTS = ("rules", "rules/gradmode", "semantics", "index", "lower", "incremental", "confirm", "budget")


def statements(tree: ast.Module) -> int:
    """The statements of a module, without docstrings: a longer line hides none."""
    nodes = list(ast.walk(tree))
    documented = [
        n for n in nodes if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(n) is not None
    ]
    return sum(isinstance(n, ast.stmt) for n in nodes) - len(documented)


def structure(package: Path, trees: dict[Path, ast.Module]) -> dict[str, int | str]:
    """How many statements the parts have, and how the judgement is made up."""
    of_part: Counter[str] = Counter()
    for path, tree in trees.items():
        folders = path.relative_to(package).parts[:-1]
        count = statements(tree)
        of_part.update(dict.fromkeys({folders[0] if folders else "", "/".join(folders[:2])}, count))
        of_part["all"] += count
    judging = {path: tree for path, tree in trees.items() if path.relative_to(package).parts[0] in ("rules", "semantics")}
    texts = [path.read_text(encoding="utf-8") for path in judging]
    predicates = [
        node
        for tree in judging.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.returns is not None
        and ast.unparse(node.returns) in ("bool", "bool | None")
    ]
    return {
        "statements of the linter proper": of_part["all"] - sum(of_part[part] for part in APART),
        "statements in all": of_part["all"],
        **{f"statements of `{part}`": of_part[part] for part in PARTS},
        "predicates of rules and semantics": len(predicates),
        "facts (`Fact(…)`) there": sum(len(re.findall(r"(?<!class )\bFact\(", text)) for text in texts),
        "patterns (`re.compile`) there": sum(text.count("re.compile(") for text in texts),
        "groups of words that are asked for there": len({word for text in texts for word in GROUP.findall(text)}),
        "longest chain of imports in semantics": longest_chain(package / "semantics"),
    }


GROUP = re.compile(r'TORCH\.words\["([^"]+)"\]')


def longest_chain(folder: Path) -> int:
    """The modules of the longest chain of imports in a package."""
    top = folder.parent.parent
    names = {".".join(p.relative_to(top).with_suffix("").parts).removesuffix(".__init__"): p for p in folder.rglob("*.py")}
    uses = {
        name: {used for used in imported(ast.parse(path.read_text(encoding="utf-8"))) if used in names} - {name}
        for name, path in names.items()
    }
    root = ".".join(folder.relative_to(top).parts)
    depths: dict[str, int] = {}

    def depth(name: str, above: frozenset[str]) -> int:
        if name in above:
            return 0
        if name not in depths:
            depths[name] = 1 + max((depth(used, above | {name}) for used in sorted(uses[name] - {root})), default=0)
        return depths[name]

    return max((depth(name, frozenset()) for name in sorted(names)), default=0)


def imported(tree: ast.Module) -> set[str]:
    """The modules, and the names in modules, that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


class Judgement:
    """The functions of ``rules/`` by their names, so that what a rule reaches can be counted."""

    def __init__(self, package: Path) -> None:
        self.functions: dict[tuple[str, str], ast.FunctionDef] = {}
        self.names: dict[str, dict[str, tuple[str, str]]] = {}
        for path in sorted((package / "rules").rglob("*.py")):
            module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            tree = ast.parse(path.read_text(encoding="utf-8"))
            own = self.names[module] = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    self.functions[module, node.name] = node
                    own[node.name] = (module, node.name)
                elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{package.name}.rules"):
                    own.update({alias.asname or alias.name: (node.module, alias.name) for alias in node.names})

    def reached(self, module: str) -> list[ast.FunctionDef]:
        """The functions of ``rules/`` that a rule's own reach, by name; a method of ``Flow`` by its name alone."""
        todo = [key for key in self.functions if key[0] == module]
        seen = dict.fromkeys(todo)
        flow = {name: key for key in self.functions if key[0].endswith("rules.api") for name in (key[1],)}
        while todo:
            here, name = todo.pop()
            for node in ast.walk(self.functions[here, name]):
                key = None
                if isinstance(node, ast.Name):
                    key = self.names[here].get(node.id)
                elif (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id in ("flow", "self", "there")
                ):
                    key = flow.get(node.attr)
                if key in self.functions and key not in seen:
                    seen[key] = None
                    todo.append(key)
        return [self.functions[key] for key in seen]


def decisions(package: Path) -> dict[str, str]:
    """Of each rule, what its judgement may turn on: the facts and notes of the functions that it reaches, and the predicates and flags
    that these ask."""
    judgement = Judgement(package)
    out = {}
    for module in judgement.names:
        path = package.parent.joinpath(*module.split(".")).with_suffix(".py")
        code = RULE_CODE.search(path.read_text(encoding="utf-8")) if path.exists() else None
        if code is None:
            continue
        nodes = [node for function in judgement.reached(module) for node in ast.walk(function)]
        calls = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        attributes = [
            (node.value.id, node.attr) for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        ]
        asked = {name for name in calls if (name.startswith(("is_", "may_", "has_", "_is_", "_may_", "_has_")))}
        flags = {attr for owner, attr in attributes if owner in ("RecordFlag", "Seen")}
        named = {attr for owner, attr in attributes if owner == "assumed" and attr.isupper()}
        notes = sum(pair == ("Severity", "NOTE") for pair in attributes)
        facts = calls.count("Fact") + len(named)
        total = facts + notes + len(asked) + len(flags)
        out[code[1]] = f"{total} = {facts} facts, {notes} notes, {len(asked)} predicates, {len(flags)} flags"
    return dict(sorted(out.items()))


RULE_CODE = re.compile(r'^    code="(TML\d{3})"', re.MULTILINE)


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
