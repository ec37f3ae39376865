"""Names of libraries stand in ``torch_facts``, and not in lists of the engine and the rules: ``benchmarks/word_lists.py`` lists
them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import word_lists
from benchmarks.word_lists import KNOWN, LIBRARY, OWN, PACKAGE, PYTHON, WORKER, listed, single_names

SINGLE_NAMES = 61
"""So many single names of libraries stand in the engine and the rules beside the tables. It may only fall."""


@pytest.fixture(scope="module")
def constants() -> list[tuple[str, str, str, list[str]]]:
    return listed(PACKAGE)


@pytest.mark.parametrize(
    ("file", "text", "kind"),
    [
        ("semantics/a.py", "A = {'softmax', 'bmm', 'relu'}", LIBRARY),
        ("semantics/a.py", 'A = ("requires_grad=False", "append", "pop")', LIBRARY),
        ("confirm/worker/a.py", "A = {'softmax', 'bmm', 'relu'}", WORKER),
        ("commands/a.py", "A = ('softmax', 'bmm', 'relu')", OWN),
        ("rules/a.py", "A = Rule('TML999', 'softmax-in-loop', 'A softmax of bmm', frozenset({TORCH.words['joins']}))", OWN),
        ("semantics/a.py", "A = {'append', 'pop', 'builtins.list', '**', '__iadd__', 'collections.deque'}", PYTHON),
        ("semantics/a.py", "A: dict[str, int] = {'deque.popleft': 1, 'of-its-own': 2, 'other': 3}", OWN),
    ],
)
def test_words_tell_whose_names_they_are(tmp_path: Path, file: str, text: str, kind: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert [(found, name) for found, _, name, _ in listed(tmp_path)] == [(kind, "A")]


def test_lists_of_two_words_and_locals_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "semantics").mkdir()
    (tmp_path / "semantics/a.py").write_text("A = ('softmax', 'bmm')\ndef f():\n    B = ('softmax', 'bmm', 'relu')\n")
    assert listed(tmp_path) == []


def test_single_names_are_those_that_code_is_compared_with(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    text = '''"softmax"
A = TORCH.names["backward"]
def f(name: "Tensor") -> bool:
    """softmax"""
    return name == "softmax" or name in ("bmm", "append") or f"{name}softmax" == A
'''
    (tmp_path / "rules/a.py").write_text(text)
    assert single_names(tmp_path) == [("rules/a.py", 5, "softmax"), ("rules/a.py", 5, "bmm")]


def test_no_list_of_the_engine_or_a_rule_has_names_of_libraries(constants: list[tuple[str, str, str, list[str]]]) -> None:
    found = [(file, name) for kind, file, name, _ in constants if kind == LIBRARY]
    assert found == [], "put them into torch_facts/LIBRARY.toml, and read them with TORCH.words"


def test_what_is_known_of_a_list_could_not_be_told_from_its_words(constants: list[tuple[str, str, str, list[str]]]) -> None:
    words = {(file, name): each for _, file, name, each in constants}
    for (file, name), (kind, why) in KNOWN.items():
        assert word_lists.kind_by_words(file, words[file, name]) != kind, (file, name)
        assert why


def test_single_names_become_fewer() -> None:
    assert len(single_names(PACKAGE)) <= SINGLE_NAMES
