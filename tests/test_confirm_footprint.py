"""Experiments on copied bytes, checkpoints, gradients that stay allocated and caches."""

from __future__ import annotations

import ast
from dataclasses import replace
from textwrap import dedent

import pytest

pytest.importorskip("torch")

from benchmarks.known_answers import FAMILIES, Row, judge, programs
from torchmemlint.confirm.plan import bounded
from torchmemlint.confirm.verdict import (
    CACHED,
    COPIED,
    FULL,
    GRADIENTS,
    REFUSED,
    UNSAVED,
    UNTRAINED,
    Doubts,
    Located,
    Outcome,
    Run,
    decide,
    decide_isolated,
)

CODES = ("TML109", "TML403", "TML503", "TML505")


@pytest.fixture(scope="module")
def judged() -> list[Row]:
    """The verdicts on the programs of all codes: what they are measured against takes one process."""
    return judge([program for program in programs(seed=5, each=1) if program.code in CODES])


@pytest.mark.slow
@pytest.mark.parametrize("code", CODES)
def test_mistakes_are_confirmed_and_clean_twins_are_not(code: str, judged: list[Row]) -> None:
    rows = [row for row in judged if row.program.code == code]
    assert len(rows) == 2 * sum(family.code == code for family in FAMILIES)
    assert [(row.program.name, row.wrong) for row in rows if row.wrong] == []
    assert [row.verdict.outcome for row in rows if row.program.kind] == [Outcome.CONFIRMED] * (len(rows) // 2)


STEPS = tuple(range(0, 900, 100))
FLAT = (100,) * 9
RAN = Run(live_bytes=FLAT, seen="tensor", grad_modes=(True,), backwards=8, went_back=8, attached=True, peak_bytes=100_000)
GROWING = tuple(sum(range(count)) * 100 for count in range(9))
JOINED = replace(RAN, live_bytes=STEPS, allocated_bytes=GROWING, joined_bytes=STEPS[1:])
ZEROED = replace(RAN, left_gradients=40_000)
CHECKED = replace(RAN, value_bytes=60_000)
KEPT = replace(RAN, live_bytes=STEPS, keys="tensor", value_bytes=100)


@pytest.mark.parametrize(
    ("code", "before", "after", "outcome", "words"),
    [
        ("TML403", JOINED, replace(JOINED, allocated_bytes=STEPS), "confirmed", COPIED),
        ("TML403", JOINED, JOINED, "inconclusive", "does not stop it"),
        ("TML403", replace(JOINED, allocated_bytes=STEPS), replace(JOINED, allocated_bytes=STEPS), "inconclusive", "joins its previous result"),
        ("TML403", replace(JOINED, allocated_bytes=STEPS, joined_bytes=()), JOINED, "refuted", "not joined again"),
        ("TML403", replace(JOINED, allocated_bytes=(0,) * 9), JOINED, "inconclusive", "does not report"),
        ("TML403", replace(JOINED, seen="stand-in", errors=(Located(4, "no"),)), JOINED, "inconclusive", "never ran on a tensor: line 4: no"),
        ("TML505", ZEROED, replace(RAN, peak_bytes=80_000), "confirmed", GRADIENTS),
        ("TML505", ZEROED, replace(RAN, peak_bytes=99_999), "inconclusive", "the peak is elsewhere"),
        ("TML505", RAN, RAN, "refuted", "leaves no gradients"),
        ("TML505", replace(ZEROED, backwards=0), replace(RAN, peak_bytes=80_000), "inconclusive", "no backward ran"),
        ("TML503", CHECKED, CHECKED, "confirmed", UNSAVED),
        ("TML503", CHECKED, replace(CHECKED, peak_bytes=200_000), "refuted", "lower than without"),
        ("TML503", CHECKED, replace(CHECKED, peak_bytes=105_000), "inconclusive", "a little lower"),
        ("TML503", CHECKED, replace(CHECKED, value_bytes=1000), "inconclusive", "small part of the peak"),
        ("TML503", replace(CHECKED, went_back=0), CHECKED, "inconclusive", "no backward goes through it"),
        ("TML503", replace(CHECKED, grad_modes=(False,)), CHECKED, "inconclusive", "grad mode is off"),
        ("TML503", replace(CHECKED, ungraphed=True, attached=False), CHECKED, "confirmed", UNTRAINED),
        ("TML503", replace(CHECKED, ungraphed=True, attached=False, hidden_inputs=True), CHECKED, "inconclusive", "it is unknown"),
        ("TML503", replace(CHECKED, ungraphed=True, attached=False), replace(RAN, attached=False), "inconclusive", "nothing that ran inside"),
        ("TML503", Run(raised="TypeError: no input"), None, "confirmed", REFUSED),
        ("TML109", KEPT, replace(KEPT, live_bytes=FLAT), "confirmed", CACHED),
        ("TML109", replace(KEPT, live_bytes=(500,) * 9), replace(KEPT, live_bytes=FLAT), "confirmed", FULL),
        ("TML109", KEPT, KEPT, "refuted", "nothing more is kept"),
        ("TML109", replace(KEPT, keys=""), replace(KEPT, live_bytes=FLAT), "inconclusive", "known to be a tensor or a module"),
        ("TML109", replace(KEPT, errors=(Located(4, "no"),)), replace(KEPT, live_bytes=FLAT), "inconclusive", "4: no"),
    ],
)  # fmt: skip
def test_what_two_runs_prove(code: str, before: Run, after: Run | None, outcome: str, words: str) -> None:
    verdict = decide(code, before, after)
    assert verdict.outcome.value == outcome, verdict
    assert words in (verdict.kind or verdict.reason)


def test_what_may_not_grow_on_is_not_confirmed() -> None:
    doubts = Doubts("on", bounded="line 7 sets `out` again: how long it grows is unknown")
    verdict = decide_isolated("TML403", JOINED, replace(JOINED, allocated_bytes=STEPS), None, doubts)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, doubts.bounded)


@pytest.mark.parametrize(
    ("loop", "row", "claimed", "why"),
    [
        ("for x in loader:\n    out = cat([out, x])", 2, False, ""),
        ("for x in loader:\n    if out is None:\n        out = x\n    else:\n        out = cat([out, x])", 5, True, ""),
        ("for x in loader:\n    out = x if out is None else cat([out, x])", 2, True, ""),
        ("for x in loader:\n    out = cat([out, x])\n    if x:\n        out = cat([out, y])", 2, True, ""),
        ("for x in loader:\n    out = cat([out, x])[-4:]", 2, True, "line 2 keeps a part of what it joins"),
        ("for x in loader:\n    out = cat([out, x])\n    out = out[-4:]", 2, True, "line 3 sets `out` again: how long it grows is unknown"),
        ("for x in loader:\n    self.out = cat([self.out, x])\n    if full:\n        self.out = None", 2, True, "line 4 sets `self.out` again: how long it grows is unknown"),
        ("for x in range(4):\n    out = cat([out, x])", 2, False, "the loop on line 1 runs 4 times"),
        ("for x in range(4):\n    out = cat([out, x])", 2, True, ""),
        ("for x in [a, b]:\n    out = cat([out, x])", 2, False, "the loop on line 1 runs 2 times"),
        ("out = cat([out, x])", 1, True, "it is not in a loop of its function"),
    ],
)  # fmt: skip
def test_what_bounds_a_joined_tensor(loop: str, row: int, claimed: bool, why: str) -> None:
    assert bounded(ast.parse(dedent(loop)), row, claimed) == why
