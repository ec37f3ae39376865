"""What a confidence promises holds on labelled code, and the count of true and false findings is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.field.calibration import BOUNDS, LEVELS, RECORD, SEVERITIES, Tally, interval, record, tally


def label(number: int, verdict: str, row: int, family: str = "B", **more: Any) -> dict[str, Any]:
    site = {"id": str(number), "package": "pkg", "path": "a.py", "cell": None, "line": row, "end_line": row, "name": "f"}
    return {**site, "family": family, "verdict": verdict, **more}


def found(folder: Path, row: int, code: str = "TML201", confidence: str = "high", severity: str = "warning") -> dict[str, Any]:
    place = {"filename": str(folder / "pkg" / "a.py"), "cell": None, "location": {"row": row}, "end_location": {"row": row}}
    return {**place, "code": code, "confidence": confidence, "severity": severity}


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return figures


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_keeps_its_bound(kept: dict[str, Any], level: str) -> None:
    true, false = (sum(kept["levels"][level][severity][at] for severity in SEVERITIES) for at in (0, 1))
    assert true / (true + false) >= BOUNDS[level]


def test_levels_find_more_and_more(kept: dict[str, Any]) -> None:
    counts = [sum(kept["found"][level].values()) for level in LEVELS]
    assert counts == sorted(counts)
    assert sum(kept["found"]["printed"].values()) <= kept["costly"]


def test_true_and_false_findings(tmp_path: Path) -> None:
    labels = [
        label(1, "bug", 3, cost="error"),
        label(2, "ok", 5),
        label(3, "bug", 9, fn_line=8, fn_end=12, name="g"),
        label(4, "bug", 20, name="h", tiny=True),
        label(5, "debatable", 30),
    ]
    findings = [
        found(tmp_path, 3, severity="error"),
        found(tmp_path, 5, confidence="medium"),
        found(tmp_path, 11, confidence="low"),  # anywhere in the function of a missing guard
        found(tmp_path, 20, code="TML301"),  # of another family
        found(tmp_path, 30),  # counts for nothing
    ]
    sums = Tally()
    tally(sums, findings, labels, tmp_path, {"3": "note"})
    assert dict(sums.true) == {("high", "error"): 1, ("low", "warning"): 1}
    assert dict(sums.false) == {("medium", "warning"): 1}
    figures = record(sums)
    assert figures["mistakes"] == {"B": 3}
    assert figures["costly"] == 1
    assert [figures["found"][level]["B"] for level in ("high", "medium", "low", "printed")] == [1, 1, 2, 1]
    assert figures["cost"] == {"error reported as error": 1, "note reported as warning": 1}


def test_one_cause_answers_for_two_labels(tmp_path: Path) -> None:
    """A store that a missing guard fills is answered by the guard's finding in the same function."""
    labels = [label(1, "bug", 3, fn_line=1, fn_end=9), label(2, "bug", 7, family="A", fn_line=1, fn_end=9)]
    sums = Tally()
    tally(sums, [found(tmp_path, 3)], labels, tmp_path, {})
    assert record(sums)["found"]["high"] == {"A": 1, "B": 1}


def test_the_interval_of_a_share() -> None:
    low, high = interval(95, 100)
    assert 0.88 < low < 0.89
    assert 0.97 < high < 0.98
    assert interval(0, 0) == (0.0, 1.0)
