"""A slice of ``benchmarks.known_growth``: holder, line and bytes against figures that are measured apart."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.known_answers import FAMILIES
from benchmarks.known_growth import QUESTIONS, Row, grown, judge, shares, table

SLICE = {"losses recorded", "a state carried on", "a cache of tensors", "outputs joined"}


@pytest.mark.slow
def test_what_grows_is_found_and_nothing_else() -> None:
    some = [program for program in grown(seed=3, each=1) if program.name.rpartition(" 0 ")[0] in SLICE]
    rows = judge(some)
    assert len(rows) == 2 * len(SLICE) - 1, "the mistake of TML403 is left out"
    assert [(row.program.name, row.wrong) for row in rows if row.wrong] == []
    assert shares(rows) == dict.fromkeys(QUESTIONS, 1.0)


def test_every_mistake_of_which_tensors_pile_up_has_a_holder() -> None:
    assert {family.code for family in FAMILIES if family.holder} == {"TML101", "TML102", "TML103", "TML104", "TML109", "TML402"}
    assert all(program.holder == "" for program in grown(seed=3, each=1) if not program.kind)


def test_a_wrong_answer_is_counted() -> None:
    program = next(program for program in grown(seed=3, each=1) if program.holder == "kept")
    row = next(row for row, line in enumerate(program.text.splitlines(), 1) if line.endswith("# flagged"))
    growth = {"holder": "kept", "bytes_per_step": 1000.0, "line": {"line": row}, "defined": None, "callers": [], "note": False}
    assert Row(program, 1000.0, (growth,), 0).wrong == ""
    assert Row(program, 2000.0, (growth,), 0).wrong == "bytes"
    assert Row(program, 1000.0, ({**growth, "line": {"line": row + 1}},), 0).wrong == "line"
    assert Row(program, 1000.0, ({**growth, "holder": "other"},), 0).wrong == "holder"
    assert Row(program, 1000.0, (), 0).wrong == "found, holder, line, bytes"
    assert "1 programs grow: found 1.00" in table([Row(program, 1000.0, (growth,), 0)])
