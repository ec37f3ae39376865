"""How much a run does, in calls of Python functions: the same on every machine, unlike seconds. Notices a doubling."""

import ast
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from benchmarks.speed.trees import synthetic
from torchmemlint import rules
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.run import Outcome, check_paths

CALLS_FOR_A_LINE = 70
"""Measured on this tree; a change that makes it cheaper may lower it."""


def check(folder: Path) -> Outcome:
    return check_paths([str(folder)], Configuration(CommandLine(isolated=True)), 1)


def calls_of(folder: Path) -> int:
    """Calls of Python functions in a check of the folder, by a process that has run one before."""
    count = 0

    def look(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()
    sys.setprofile(look)
    try:
        check(folder)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def lines_of(folder: Path) -> int:
    return sum(path.read_text().count("\n") for path in folder.rglob("*.py"))


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    rules.modules()
    check(synthetic(tmp_path_factory.mktemp("warm"), 600))


def test_a_line_costs_no_more_than_it_did(warm: None, tmp_path: Path) -> None:
    folder = synthetic(tmp_path, 2000)
    assert calls_of(folder) < 2 * CALLS_FOR_A_LINE * lines_of(folder)


@pytest.mark.slow
def test_twice_the_lines_cost_twice_the_work(warm: None, tmp_path: Path) -> None:
    small, large = synthetic(tmp_path, 2000), synthetic(tmp_path, 4000)
    growth = calls_of(large) / calls_of(small)
    assert 0.9 < growth / (lines_of(large) / lines_of(small)) < 1.1


def test_every_file_is_parsed_once(warm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def parse(source: str | bytes, *arguments: Any, real: Callable[..., ast.AST] = ast.parse, **keywords: Any) -> ast.AST:
        parsed.append(len(source))
        return real(source, *arguments, **keywords)

    folder = synthetic(tmp_path, 1500)
    monkeypatch.setattr(ast, "parse", parse)
    check(folder)
    whole = [len(path.read_bytes()) for path in folder.rglob("*.py") if path.stat().st_size]
    assert sorted(size for size in parsed if size >= min(whole)) == sorted(whole)
