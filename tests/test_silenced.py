"""The draw of candidates that soft facts silence: what it holds, and what it does not."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.field import silenced
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.rules.scorecard import by_hand
from torchmemlint.run import Means, check_paths

PROGRAM = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Linear(8192, 8192)

    def forward(self, x):
        return self.layers(x)


def train(loader, optimizer):
    net = Net().cuda()
    for batch in loader:
        net(batch).sum().backward()
        optimizer.step()
        torch.cuda.empty_cache()


def load(batch):
    with open(batch) as file:
        print(file.read())


def evaluate(loader):
    net = Net().cuda().eval()
    for batch in loader:
        print(net(batch).argmax())
        load(batch)
    with torch.no_grad():
        for batch in loader:
            print(net(batch).argmax())


def done(net, batch):
    net(batch).sum().backward()
    torch.cuda.empty_cache()
"""
CELLS = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in ("1", PROGRAM)]
NOTEBOOK = {"cells": CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    folder = tmp_path / "repositories" / "owner+name"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "train.ipynb").write_text(json.dumps(NOTEBOOK))
    return folder.parent


def test_soft_facts_are_collected_and_neither_gates_nor_findings(repositories: Path) -> None:
    found = silenced.collected(repositories / "owner+name")
    assert (found["unplaced"], found["crashes"]) == (0, [])
    lines = PROGRAM.splitlines()
    soft = by_hand()["silences"]["soft"]
    for file, cell in (("train.py", None), ("train.ipynb", 2)):
        here = [one for one in found["candidates"] if one["path"] == file]
        (one,) = [one for one in here if one["code"] == "TML301"]
        assert {
            "cell": cell,
            "row": len(lines),
            "column": 5,
            "callee": "torch.cuda.empty_cache",
            "function": "done",
        }.items() <= one.items()
        assert (one["fact"], one["known_by"], one["also"]) == ("clean-up-loop-elsewhere", "resolved", [])
        # What the evaluation runs is found, or known to build no graph; what `load` runs is judged there.
        assert not [one for one in here if lines[one["row"] - 1].strip().startswith(("print(net", "load("))]
        assert all({one["fact"], *one["also"]} <= soft for one in here)


def test_nothing_is_collected_where_something_is_found_in_another_run(repositories: Path) -> None:
    collector, folder = silenced.Collector(), repositories / "owner+name"
    check_paths([str(folder)], Configuration(CommandLine(isolated=True)), means=Means(profile=collector))
    found = collector.candidates(folder)
    places = {place for place, *_ in collector.seen}
    assert collector.found
    assert found
    collector.found |= places
    assert not collector.candidates(folder)


def candidate(number: int, fact: str, repo: str) -> dict[str, Any]:
    place = {"path": "a.py", "cell": None, "row": number, "column": 1}
    return {"repo": repo, "code": "TML201", "callee": "net", "fact": fact, "words": "why", **place}


def test_the_draw_is_by_fact_and_within_its_bounds() -> None:
    given = [candidate(n, "often", f"o/{n % 40}") for n in range(400)]
    given += [candidate(n, f"fact {n % 30}", f"o/{n % 7}") for n in range(400, 900)]
    given += [candidate(1000, "once", "o/0")]
    taken = silenced.drawn(given, 1)
    assert taken == silenced.drawn(reversed(given), 1) != silenced.drawn(given, 2)
    facts, repos = Counter(one["fact"] for one in taken), Counter(one["repo"] for one in taken)
    assert (facts["once"], facts["often"]) == (1, silenced.OF_A_FACT)
    assert max(facts.values()) <= silenced.OF_A_FACT
    assert max(repos.values()) <= silenced.OF_A_REPOSITORY
    assert len(taken) <= silenced.DRAWN
    of_read = silenced.drawn(given, 1, later=frozenset(f"o/{n}" for n in range(20)))
    assert all(int(one["repo"][2:]) >= 20 for one in of_read if one["fact"] == "often")


def test_one_place_is_drawn_once() -> None:
    given = [candidate(1, "this", "o/n"), candidate(1, "that", "o/n") | {"code": "TML203"}]
    assert len(silenced.drawn(given, 1)) == 1


def test_readers_are_told_nothing_of_facts(
    repositories: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = repositories.parent / "work"
    work.mkdir()
    (work / "owner+name.json").write_text(json.dumps(silenced.collected(repositories / "owner+name")))
    monkeypatch.setattr(silenced, "repositories", lambda: {"first": {"owner/name": "0123", "owner/absent": "4567"}})
    monkeypatch.setattr(sys, "argv", ["silenced", str(repositories), str(work), "--sample", "first"])
    silenced.main()
    assert "1 repositories that are not there" in capsys.readouterr().out
    drawn = [json.loads(line) for line in (work.parent / "work.jsonl").read_text().splitlines()]
    told = [json.loads(line) for line in (work.parent / "work_list.jsonl").read_text().splitlines()]
    assert {(one["sample"], one["commit"]) for one in drawn} == {("first", "0123")}
    assert [one["id"] for one in drawn] == [one["id"] for one in told] == [*range(1, len(told) + 1)]
    assert {*told[0]} == {"id", "repo", "path", "cell", "row", "code", "callee"}
