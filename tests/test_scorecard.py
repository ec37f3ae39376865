"""The table of what facts decide: each fact of the code has a row, and each row a fact."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from torchmemlint.findings import Confidence
from torchmemlint.rules import assumed
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.scorecard import confidence_of, silences, table, unless_of

RULES = Path(assumed.__file__).parent


def named() -> Iterator[str]:
    """The names that the code gives facts: the first argument of each, or all texts that a name in its place may stand for."""
    for path in sorted(RULES.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef | ast.Module):
                continue
            texts = {
                name.id: [
                    one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant) and isinstance(one.value, str)
                ]
                for node in function.body
                if isinstance(node, ast.Assign)
                for name in node.targets
                if isinstance(name, ast.Name)
            }
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Fact":
                    first = node.args[0]
                    if isinstance(first, ast.Name) and first.id not in texts:
                        continue  # the function that assigns it is looked at by itself
                    for one in [first] if not isinstance(first, ast.Name) else []:
                        yield from (e.value for e in ast.walk(one) if isinstance(e, ast.Constant) and isinstance(e.value, str))
                    if isinstance(first, ast.Name):
                        yield from texts[first.id]


def test_each_fact_has_a_row_and_each_row_a_fact() -> None:
    assert set(named()) == set(table())


def test_confidence_is_what_the_facts_leave() -> None:
    light, heavy = assumed.RETURNED, assumed.FOR_ITS_EFFECT
    assert confidence_of(()) is Confidence.HIGH
    assert confidence_of((light, light)) is confidence_of((heavy,)) is Confidence.MEDIUM
    assert confidence_of((light, heavy)) is Confidence.LOW
    assert unless_of((light, heavy)) == f"{heavy.words}, or {light.words}"
    assert unless_of(()) == ""


def test_what_silences() -> None:
    assert silences(Fact("grad-off", ""))
    assert silences(Fact("private-uncalled", ""))
    assert not silences(assumed.RETURNED)
