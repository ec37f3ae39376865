"""The programs in ``benchmarks/`` that say something of the tree, or of the machine that they measure on."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tree import decisions, structure

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("program", ["benchmarks.speed", "benchmarks.speed.compare", "benchmarks.speed.keystrokes"])
def test_speed_is_not_measured_where_each_run_compiles_the_program(program: str, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("import torch\n", encoding="utf-8")
    given = str(file if program.endswith("keystrokes") else tmp_path)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-m", program, given], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "PYTHONDONTWRITEBYTECODE" in done.stderr


def test_the_figures_of_a_tree_are_counted_by_hand(tmp_path: Path) -> None:
    package = tmp_path / "torchmemlint"
    for folder in ("rules", "semantics", "index", "lower", "confirm"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").write_text('"""Nothing."""\n', encoding="utf-8")
    (package / "rules" / "api.py").write_text(
        "class Flow:\n    def is_own(self) -> bool:\n        return True\n", encoding="utf-8"
    )
    (package / "rules" / "helper.py").write_text(
        "from torchmemlint.rules import doubts\n\n\ndef is_odd(x) -> bool:\n    return Silent('odd') if x else doubts.MAYBE\n",
        encoding="utf-8",
    )
    (package / "rules" / "one.py").write_text(
        '"""A page."""\nfrom torchmemlint.rules.helper import is_odd\n\nRULE = Rule(\n    code="TML901",\n)\n\n\n'
        "def check(event, flow):\n    if is_odd(event) and flow.is_own():\n        return Severity.NOTE\n    return RecordFlag.EVAL\n",
        encoding="utf-8",
    )
    (package / "semantics" / "a.py").write_text("from torchmemlint.semantics import b\n", encoding="utf-8")
    (package / "semantics" / "b.py").write_text('import re\nWORD = re.compile("a")\n', encoding="utf-8")
    (package / "confirm" / "c.py").write_text("x = 1\n", encoding="utf-8")
    rows = structure(package, {path: ast.parse(path.read_text(encoding="utf-8")) for path in package.rglob("*.py")})
    assert rows["statements of `rules`"] == 3 + 3 + 6
    assert rows["statements of `semantics`"] == 3
    assert rows["statements of the linter proper"] == 15
    assert rows["statements in all"] == 16
    assert rows["longest chain of imports in semantics"] == 2
    assert rows["patterns (`re.compile`) there"] == 1
    assert rows["predicates of rules and semantics"] == 2
    assert decisions(package) == {"TML901": "5 = 1 silences, 1 doubts, 1 notes, 1 predicates, 1 flags"}
