"""What people read of real code is whole: its repositories and commits are listed, its verdicts are known, and nothing is there twice."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from benchmarks.field.evidence import FOLDER, REPOSITORIES, readings, repositories

VERDICTS = {"true", "partly", "part", "false"}
TWO_CALLS = {
    ("ninth", "simclr.py", 127),
    ("tenth", "code/TFC/trainer.py", 184),
    ("twentieth", "offlinerlkit/policy/model_based/combo.py", 159),
    ("twentieth", "offlinerlkit/policy/model_based/combo.py", 195),
    ("twentieth", "offlinerlkit/policy/model_free/cql.py", 133),
}
"""Rows of which one rule had two findings: two calls of one statement."""


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def test_a_repository_is_listed_once_a_sample() -> None:
    lines = [line for line in REPOSITORIES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"\w+ [\w.-]+/[\w.-]+ [0-9a-f]{40}", line) for line in lines)
    assert sum(map(len, repositories().values())) == len(lines)


@pytest.mark.parametrize("name", ["readings.jsonl", "silenced.jsonl", "labelled.jsonl"])
def test_each_row_is_of_a_listed_repository(name: str) -> None:
    known = repositories()
    for row in rows(name):
        commit = known[row["sample"]][row["repo"]]
        assert row.get("commit", commit) == commit, row  # the list alone has those of the labelled repositories


def test_verdicts_are_known() -> None:
    for row in rows("readings.jsonl"):
        assert {*row["verdicts"]} <= VERDICTS, row
        assert len(row["verdicts"]) == len(row["worth"]) == len(row["why"]) in (1, 2), row
    for row in rows("silenced.jsonl"):
        assert {*row["mistakes"], *row["worth"]} <= {True, False}, row
        assert len(row["mistakes"]) == len(row["worth"]) == len(row["why"]) == 2, row
    assert {row["verdict"] for row in rows("labelled.jsonl")} == {"bug", "ok", "debatable"}


def test_nothing_is_there_twice() -> None:
    def twice(name: str, *keys: str) -> set[tuple[Any, ...]]:
        counts = Counter(tuple(row[key] for key in ("sample", "repo", "cell", *keys)) for row in rows(name))
        return {place for place, count in counts.items() if count > 1}

    assert {(sample, path, row) for sample, _, _, path, row, _ in twice("readings.jsonl", "path", "line", "code")} == TWO_CALLS
    assert not twice("silenced.jsonl", "path", "row", "code")
    assert not twice("labelled.jsonl", "path", "line", "family")


def test_the_page_has_a_row_for_each_sample() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for sample in {row["sample"] for row in readings()}:
        assert re.search(rf"^\| {sample}[ |(]", page, re.MULTILINE), sample
