"""Fixture pairs that can be run: the mistake shows, and the corrected twin is flat."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.pairs import Pair, find_pairs, settle_pair
from torchmemlint.confirm.verdict import Outcome

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.mark.slow
def test_pairs_of_each_rule_are_confirmed_and_their_controls_flat() -> None:
    """Two of each rule; that every pair is true is measured without a sandbox, in ``test_fixtures_run.py``."""
    found = list(find_pairs(FIXTURES))
    pairs = [pair for code in sorted({pair.code for pair in found}) for pair in [one for one in found if one.code == code][:2]]
    assert {pair.code for pair in pairs} >= {"TML101", "TML102", "TML103", "TML201", "TML204", "TML402"}
    with ThreadPoolExecutor(2) as threads:
        settled = list(threads.map(settle_pair, pairs))
    wrong = [
        (pair.code, pair.name, verdict.outcome.value, verdict.kind, verdict.reason, ended.output[-200:])
        for pair, (verdict, ended) in zip(pairs, settled, strict=True)
        if verdict.outcome is not Outcome.CONFIRMED or verdict.helped is not True
    ]
    assert not wrong


TWICE = """
import torch
from torch import nn


def run(steps):
    net = nn.Linear(32, 32)
    kept = []
    for _ in range(steps):
        loss = net(torch.ones(8, 32)).exp().sum()
        {line}
    return kept
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "outcome", "kind"),
    [
        ("kept.append(loss)", "kept.append(loss.item())", Outcome.CONFIRMED, "whole graph per step"),
        (
            "loss.backward(); kept.append(loss)",
            "loss.backward(); kept.append(loss.detach())",
            Outcome.CONFIRMED,
            "nodes per step",
        ),
        ("kept.append(loss.item())", "kept.append(float(loss.detach()))", Outcome.REFUTED, ""),
        ("kept.append(loss)", "kept.append(loss.cpu())", Outcome.INCONCLUSIVE, ""),
    ],
)
def test_what_a_pair_proves(before: str, after: str, outcome: Outcome, kind: str) -> None:
    pair = Pair("TML102", "made", "made", {"made.py": TWICE.format(line=before)}, {"made.py": TWICE.format(line=after)})
    verdict, _ = settle_pair(pair)
    assert (verdict.outcome, verdict.kind) == (outcome, kind)
    if kind == "whole graph per step":
        assert verdict.before is not None
        # exp saves its result, the linear its input: 8 x 32 floats each; and the scalar that is kept
        assert verdict.before.graph_bytes == 2 * 8 * 32 * 4
        assert verdict.before.live_bytes_per_step == 2 * 8 * 32 * 4 + 4


@pytest.mark.slow
def test_a_pair_that_fails_says_where() -> None:
    broken = {"made.py": "def run(steps):\n    raise ValueError('no')\n"}
    verdict, _ = settle_pair(Pair("TML102", "made", "made", broken, broken))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "2: ValueError: no" in verdict.reason
