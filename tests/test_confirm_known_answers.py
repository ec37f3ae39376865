"""A slice of ``benchmarks.known_answers``: verdicts and bytes against figures that are measured apart from ``confirm``."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from benchmarks.known_answers import FAMILIES, Measured, Program, judge, judged, programs
from torchmemlint.confirm.verdict import Outcome, Run, Verdict

SLICE = {"outputs kept", "a graph retained"}


@pytest.mark.slow
def test_verdicts_and_bytes_are_those_that_are_measured_apart() -> None:
    some = [program for program in programs(seed=3, each=1) if program.name.rpartition(" 0 ")[0] in SLICE]
    rows = judge(some)
    assert len(rows) == 2 * len(SLICE)
    assert [(row.program.name, row.wrong) for row in rows if row.wrong] == []
    assert all(row.verdict.outcome is Outcome.CONFIRMED for row in rows if row.program.kind)


def test_there_are_sixty_programs_and_half_of_them_are_clean() -> None:
    some = list(programs())
    assert len(some) == 2 * 4 * len(FAMILIES) >= 60
    assert sum(not program.kind for program in some) == len(some) // 2
    assert some == list(programs())
    assert some != list(programs(seed=21))


LIVE = (0, 1000, 101_000, 201_000, 301_000, 401_000, 501_000, 601_000, 701_000)
RIGHT = Verdict(Outcome.CONFIRMED, "whole graph per step", before=Run(live_bytes=LIVE, peak_bytes=800_000))


@pytest.mark.parametrize(
    ("kind", "verdict", "wrong"),
    [
        ("whole graph per step", RIGHT, ""),
        ("", RIGHT, "clean, and whole graph per step"),
        ("nodes per step", RIGHT, "whole graph per step, not nodes per step"),
        ("nodes per step", Verdict(Outcome.REFUTED, reason="nothing grows"), "refuted: nothing grows"),
        ("nodes per step", Verdict(Outcome.INCONCLUSIVE), ""),
        ("whole graph per step", replace(RIGHT, before=Run(live_bytes=LIVE, peak_bytes=900_000)), "at the peak"),
        ("whole graph per step", replace(RIGHT, before=Run(live_bytes=(*LIVE[:2], *[2 * x for x in LIVE[2:]]))), "a step"),
    ],
)
def test_what_is_wrong_is_reported(kind: str, verdict: Verdict, wrong: str) -> None:
    row = judged(Program("a program", "TML102", "", kind), Measured(LIVE, 800_000), verdict)
    assert wrong in row.wrong
    assert bool(wrong) == bool(row.wrong)
