"""The table that says what a mistake costs: which row is taken, and that each is wanted and has a source."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from torchmemlint.findings import Severity
from torchmemlint.rules.cost import table as module
from torchmemlint.rules.cost.table import price, table

PACKAGE = Path(module.__file__).parent.parent
ROOT = PACKAGE.parent.parent
TEXTS = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def test_the_first_row_of_which_the_circumstance_holds_decides() -> None:
    asked: list[str] = []

    def known(name: str, why: str = "") -> Callable[[], str]:
        def answer() -> str:
            asked.append(name)
            return why

        return answer

    assert price("extra-graph", "a graph", {}) == (Severity.WARNING, "a graph")
    both = {"small": known("small", "ten numbers"), "once": known("once", "it runs once"), "on-host": known("on-host")}
    assert price("extra-graph", "a graph", both) == (Severity.NOTE, "a graph; small here: ten numbers")
    assert asked == ["on-host", "small"], "what no row needs is not asked"


def test_the_number_of_iterations_must_be_known_and_small() -> None:
    small = {"small": lambda: "ten numbers"}
    assert price("whole-graphs", "graphs", {}, 3) == (Severity.NOTE, "graphs; little here: the loop has 3 iterations")
    assert price("whole-graphs", "graphs", small, 100) == (Severity.NOTE, "graphs; small here: ten numbers")
    for turns in (-1, 101):
        assert price("whole-graphs", "graphs", small, turns) == (Severity.ERROR, "graphs")
        assert price("whole-graphs", "graphs", {}, turns) == (Severity.ERROR, "graphs")
    assert price("graph-nodes", "nodes", {}, 16).severity is Severity.NOTE
    assert price("graph-nodes", "nodes", {}, 17).severity is Severity.WARNING


def test_every_growth_ends_with_a_row_that_always_matches() -> None:
    for growth, rows in table().items():
        assert [row for row in rows if not row.when and row.at_most is None] == [rows[-1]], growth


def test_no_row_is_left_over() -> None:
    """Each growth is named by a rule, each circumstance by a rule or the extractors."""
    named = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', "".join(TEXTS.values())))
    wanted = {growth for growth in table()} | {row.when for rows in table().values() for row in rows if row.when}
    assert wanted - named == set()


def test_every_row_says_where_it_is_from() -> None:
    for growth, rows in table().items():
        for row in rows:
            page = row.source.partition(":")[0]
            assert (ROOT / page).is_file() or (PACKAGE.parent / page).is_file(), (growth, row.source)


@pytest.mark.parametrize(
    "text",
    [
        '[says]\n[[row]]\ngrowth = "a"\nseverity = "note"\n',
        '[says]\n[[row]]\ngrowth = "a"\nseverity = "note"\nsource = "x"\n[[row]]\ngrowth = "a"\nseverity = "error"\nsource = "x"\n',
        '[says]\n[[row]]\ngrowth = "a"\nwhen = "small"\nseverity = "note"\nsource = "x"\n',
    ],
    ids=["no source", "a row behind the last one", "words that nobody wrote"],
)
def test_a_table_with_holes_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cost.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "table.py"))
    table.cache_clear()
    try:
        with pytest.raises(KeyError):
            table()
    finally:
        table.cache_clear()


def test_what_the_table_does_not_know_is_an_error() -> None:
    with pytest.raises(KeyError):
        price("nothing of the kind", "", {})
