"""Input that is valid and odd: Python code from the grammar, by hypothesmith, and documents of JSON with other values in them."""

from __future__ import annotations

import json
import keyword
import random
import re
import warnings
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

NODES = ("FunctionDef", "For", "While", "With", "Try", "If", "ClassDef", "SimpleStatementLine")
"""Kinds of statements, by libcst's names."""
WORDS = (
    "", "a", "file.py", "TML101", "high", "error", "/", "..", "\u2028", "\ud800", "é" * 300, "file:///x", "file://%zz", "untitled:1", "1",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2**31, 2**64, -(2**63), 1.5, 1e308, float("inf"), float("nan"))
_NAME = re.compile(r"[^\W\d]\w*")


def examples(strategy: SearchStrategy[str], number: int, count: int) -> list[str]:
    """The same for the same number."""
    found: list[str] = []

    @seed(number)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
    @given(strategy)
    def collect(text: str) -> None:
        found.append(text)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collect()
    return found


def programs(chance: random.Random, files: Sequence[str], count: int) -> list[str]:
    """Generated code: half of it alone, half inside of one of the ``files``, with names of that file in place of some of its own."""
    import hypothesmith  # a second and a half, which tests that generate nothing need not wait for
    import libcst

    if chance.randrange(4) == 0:
        strategy = hypothesmith.from_grammar()
    else:
        strategy = hypothesmith.from_node(getattr(libcst, chance.choice(NODES)))
    return [_placed(chance, text, chance.choice(files)) for text in examples(strategy, chance.randrange(2**32), count)]


def _placed(chance: random.Random, text: str, file: str) -> str:
    if chance.randrange(3) == 0:
        return f"import torch\n{text}"
    names = [name for name in _NAME.findall(file) if not keyword.iskeyword(name)] or ["x"]

    def other(match: re.Match[str]) -> str:
        return match[0] if keyword.iskeyword(match[0]) or chance.randrange(3) == 0 else chance.choice(names)

    lines = file.splitlines(keepends=True) or ["\n"]
    at = chance.randrange(len(lines))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())].rstrip("\n")
    added = [f"{indent}{line}" for line in _NAME.sub(other, text).splitlines(keepends=True)]
    return "".join([*lines[:at], *added, *lines[at:]])


def reshaped(chance: random.Random, data: bytes, times: int = 3) -> bytes:
    """A document of JSON with a few of its values taken away, doubled, swapped, or replaced by others of any type."""
    document = json.loads(data)
    for _ in range(chance.randint(1, times)):
        places = list(_places(document))
        if not places:
            return json.dumps(value(chance)).encode()
        container, key = chance.choice(places)
        match chance.randrange(5):
            case 0:
                del container[key]
            case 1:
                other, name = chance.choice(places)
                container[key] = json.loads(json.dumps(other[name])) if name in other or isinstance(other, list) else None
            case 2 if isinstance(container, list):
                container.append(container[key])
            case _:
                container[key] = value(chance)
    return json.dumps(document).encode()


def _places(document: Any) -> Any:
    """Every value inside, as its container and its key there."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, one in list(pairs):
        yield document, key
        yield from _places(one)


def value(chance: random.Random, depth: int = 2) -> Any:
    match chance.randrange(7 if depth else 5):
        case 0:
            return None
        case 1:
            return chance.random() < 0.5
        case 2 | 3:
            return chance.choice(WORDS)
        case 4:
            return chance.choice(NUMBERS)
        case 5:
            return [value(chance, depth - 1) for _ in range(chance.randrange(3))]
        case _:
            return {chance.choice(WORDS): value(chance, depth - 1) for _ in range(chance.randrange(3))}
