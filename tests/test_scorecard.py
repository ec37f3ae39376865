"""The table of what facts decide: each fact of the code has a row, and each row a fact."""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.field import fit
from benchmarks.field.evidence import HELD_OUT, joined
from torchmemlint.findings import Confidence
from torchmemlint.rules import assumed
from torchmemlint.rules.fact import Fact
from torchmemlint.rules.scorecard import HIDDEN, TABLE, by_hand, confidence_of, probability, rows_of, silences, table, unless_of

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


def test_each_fact_has_its_place_and_each_place_a_fact() -> None:
    groups = by_hand()
    listed = [fact for group in groups.values() for facts in group.values() for fact in facts]
    assert sorted(set(named())) == sorted(listed)  # none is listed twice
    assert table().rows.keys() <= table().known - table().silencing | {HIDDEN}


def test_a_row_says_what_it_rests_on() -> None:
    rows = rows_of([{"fact": "a", "points": -0.5, "n": 8, "error": 0.2, "source": "read"}], "fact")
    assert rows["a"].points == -0.5
    for missing in ("points", "n", "error", "source"):
        row = {"fact": "a", "points": -0.5, "n": 8, "error": 0.2, "source": "read"}
        del row[missing]
        with pytest.raises(KeyError, match=missing):
            rows_of([row], "fact")
    with pytest.raises(KeyError, match="two rows"):
        rows_of([{"fact": "a", "points": 1.0, "n": 8, "error": 0.2, "source": "read"}] * 2, "fact")


def test_no_row_rests_on_little_or_says_nothing() -> None:
    for name, row in table().rows.items():
        assert row.n >= 8, name
        assert abs(row.points) >= 0.3, name


def test_an_assumption_never_speaks_for_a_finding() -> None:
    assert all(table().rows[fact].points < 0 for fact in by_hand()["weighs"]["assumed"] & table().rows.keys())


def test_points_add_up() -> None:
    for name, row in table().rows.items():
        with_it, without = probability("TML201", [Fact(name)]), probability("TML201", [])
        assert math.log(with_it / (1 - with_it)) - math.log(without / (1 - without)) == pytest.approx(row.points)


def test_a_hidden_assumption_hides_whatever_else_is_known() -> None:
    first, second = (Fact(name, unless=name) for name in sorted(by_hand()["weighs"]["hidden"])[:2])
    sure = [Fact(name) for name, row in table().rows.items() if row.points > 0]
    assert confidence_of(probability("TML506", sure)) is Confidence.HIGH
    assert confidence_of(probability("TML506", [first])) is Confidence.LOW
    assert probability("TML506", [first, second]) == probability("TML506", [first])  # they share a row
    assert unless_of([assumed.RETURNED, first, assumed.KEPT]) == f"{first.unless}, or {assumed.RETURNED.unless}"
    assert unless_of(()) == ""


def test_levels_by_probability() -> None:
    levels = [confidence_of(chance) for chance in (0.80, 0.79, 0.50, 0.49)]
    assert levels == [Confidence.HIGH, Confidence.MEDIUM, Confidence.MEDIUM, Confidence.LOW]


def test_what_silences() -> None:
    assert silences(Fact("grad-off"))
    assert silences(Fact("in-a-test"))
    assert not silences(assumed.RETURNED)
    with pytest.raises(KeyError):
        silences(Fact("no-such-fact"))


def test_the_table_is_what_the_data_give() -> None:
    data = [line for line in fit.lines() if line["sample"] not in HELD_OUT]
    fitted = fit.kept_facts(data, fit.signs())
    assert TABLE.read_text(encoding="utf-8") == fit.table_text(fitted, data)


def test_a_fit_finds_what_data_were_made_of() -> None:
    """2,000 findings with known odds: a fact that halves the log-odds of being true, one that does nothing, and one of the wrong sign."""
    rng = random.Random(0)
    rows, outcomes = [], []
    for _ in range(2000):
        known = frozenset(fact for fact in ("heavy", "light", "wrong") if rng.random() < 0.5)
        chance = 1 / (1 + math.exp(-(2.0 - 1.5 * ("heavy" in known) + 1.0 * ("wrong" in known))))
        rows.append(("TML101", known))
        outcomes.append(float(rng.random() < chance))
    signs = {"heavy": -1, "light": -1, "wrong": -1}
    names = fit.columns(rows, signs)
    fitted = fit.fit(fit.matrix(rows, names), np.array(outcomes), names, signs)
    assert fitted["heavy"] == pytest.approx(-1.5, abs=0.3)
    assert fitted["light"] == pytest.approx(0, abs=0.3)
    assert fitted["wrong"] == 0  # it may not speak for a finding


def test_a_fact_is_not_weighed_on_the_sample_that_it_was_made_from() -> None:
    fact, day = "named-as-helper", fit.MADE["facts"]["named-as-helper"]
    assert fit.was_made(day, fit.MADE["samples"]["twentieth"])
    assert not fit.was_made(day, fit.MADE["samples"]["nineteenth"])  # it was recorded before
    line = {"sample": "twentieth-b", "evidence": [fact, "class-resolved"]}
    assert fit.known(line) == {"class-resolved", fit.SURVIVOR}
    assert fit.known({**line, "sample": "ninth"}) == {fact, "class-resolved", fit.SURVIVOR}


def test_two_readers_are_one_piece_of_evidence() -> None:
    assert [fit.outcome({"verdicts": each}) for each in (["true", "partly"], ["true", "false"], ["false", "false"])] == [
        1,
        0.5,
        0,
    ]


def test_the_table_is_for_code_that_nobody_looked_at() -> None:
    """A survivor is a finding whose sample's false ones were mended: how much better such are is no part of the table."""
    fresh = {"sample": "twentyfourth", "evidence": ["class-resolved"], "fresh": True}
    assert fit.known(fresh) == {"class-resolved"}
    assert fit.known({"sample": "ninth", "evidence": ["class-resolved"]}) == {"class-resolved", fit.SURVIVOR}
    data = [line for line in fit.lines() if line["sample"] not in HELD_OUT]
    assert fit.kept_facts(data, fit.signs())[fit.SURVIVOR] > 0
    read = [line for line in data if line.get("fresh")]
    expected = [probability(line["code"], map(Fact, line["evidence"])) for line in read]
    assert sum(expected) / len(read) == pytest.approx(sum(map(fit.outcome, read)) / len(read), abs=0.03)


def test_readings_are_joined_by_place_and_rule() -> None:
    row = {"path": "a.py", "cell": None, "line": 3, "code": "TML201"}
    found = [{"path": "a.py", "cell": None, "location": {"row": row_}, "code": "TML201"} for row_ in (2, 3)]
    assert [finding and finding["location"]["row"] for _, finding in joined([row, {**row, "line": 9}], found)] == [3, None]


def test_a_rule_that_was_hardly_read_is_believed_as_any_rule_is() -> None:
    assert "TML501" not in table().rules
    light, hidden = assumed.RETURNED, Fact(min(by_hand()["weighs"]["hidden"]))
    for facts, level in (((), Confidence.MEDIUM), ((light,), Confidence.MEDIUM), ((hidden,), Confidence.LOW)):
        assert confidence_of(probability("TML501", facts)) is level
