"""What must be true of the whole tree: which way imports point, and that the package says the same of itself everywhere."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torchmemlint

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "torchmemlint"
MODULES = sorted(PACKAGE.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_imports_point_one_way() -> None:
    pytest.importorskip("importlinter")
    command = [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports_command as run; sys.exit(run())"]
    done = subprocess.run([*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_version_is_the_same_everywhere() -> None:
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "torchmemlint/__init__.py"
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {torchmemlint.__version__}\n" in citation


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_says_what_it_is_and_parses_on_the_oldest_python(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    assert ast.get_docstring(tree) or not tree.body, "no docstring"


ENGINE = [path for path in MODULES if path.relative_to(PACKAGE).parts[0] in ("index", "lower", "semantics")]
MOST_LINES, MOST_IN_A_FUNCTION, MOST_METHODS, MOST_BRANCHES, MOST_AT_THE_TOP = 600, 60, 40, 12, 12
"""What one can pick up: lines of a file and of a function, methods of a class, McCabe's complexity, modules at the top."""


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_part_of_the_engine_can_be_picked_up(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < MOST_IN_A_FUNCTION, node.name
        elif isinstance(node, ast.ClassDef):
            assert sum(isinstance(part, ast.FunctionDef) for part in node.body) <= MOST_METHODS, node.name


def test_no_function_of_the_engine_has_too_many_branches() -> None:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("needs ruff")
    command = [ruff, "check", "--isolated", "--no-cache", "--select", "C901", "--output-format", "concise"]
    limit = ["--config", f"lint.mccabe.max-complexity={MOST_BRANCHES}"]
    done = subprocess.run([*command, *limit, *ENGINE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_few_modules_lie_at_the_top() -> None:
    assert len([path for path in MODULES if path.parent == PACKAGE]) <= MOST_AT_THE_TOP


def test_every_package_is_one() -> None:
    folders = {path.parent for path in MODULES}
    assert {folder for folder in folders if not (folder / "__init__.py").is_file()} == set()
    assert (PACKAGE / "py.typed").is_file()


def test_errors_survive_the_way_home_from_a_worker() -> None:
    import pickle

    from torchmemlint import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TorchmemlintError)]
    assert len(kinds) >= 6
    for kind in kinds:
        error = kind("a", 2, 3) if kind is errors.SourceError else kind("a")
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), vars(back)) == (kind, "a", vars(error))


def test_few_names_of_the_incremental_part_are_used_elsewhere() -> None:
    import torchmemlint.incremental

    used: set[str] = set()
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if path.parent.name != "incremental" and "torchmemlint.incremental" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchmemlint.incremental"):
                    used.update(alias.name for alias in node.names)
    names = "cache_for clean location_for Cache CachedRun word_index PreviousRun FindingsStore FunctionResults"
    assert used == set(names.split())
    assert all(name in (torchmemlint.incremental.__doc__ or "") for name in used)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_imports_no_private_name_of_another(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchmemlint"):
            private = [alias.name for alias in node.names if alias.name.startswith("_") and not alias.name.startswith("__")]
            assert not private, node.lineno


WORKERS = [path for path in MODULES if path.relative_to(PACKAGE).parts[:2] in (("confirm", "worker"), ("budget", "worker"))]


@pytest.mark.parametrize("path", WORKERS, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_worker_keeps_no_state_in_a_module(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Global)]
    for node in tree.body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        empty = isinstance(value, (ast.List, ast.Set, ast.Dict)) and not any(True for _ in ast.iter_child_nodes(value))
        made = isinstance(value, ast.Call) and ast.unparse(value.func) in (
            "list",
            "set",
            "dict",
            "defaultdict",
            "Record",
            "Stage",
        )
        assert not empty, f"line {node.lineno} is filled later"
        assert not made, f"line {node.lineno} is filled later"
