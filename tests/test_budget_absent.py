"""Checkpoints without their files, and programs without an end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torchmemlint.budget import command
from torchmemlint.budget.worker.checkpoints import sizes_of


def test_a_checkpoint_has_its_published_sizes() -> None:
    assert sizes_of("someone/bert-base-cased", "bert") == ("bert", {"vocab_size": 28996})
    assert sizes_of("bert-base-cased", "") == ("bert", {"vocab_size": 28996})
    assert sizes_of("bert-base-cased", "gpt2") is None
    assert sizes_of("unheard-of", "") is None


ENDLESS = """\
import time, torch
model = torch.nn.Linear(4, 4)
while True:
    answered = time.sleep(0.01)
    if answered:
        break
"""


@pytest.mark.slow
def test_a_program_that_does_not_come_to_a_step_is_stopped_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(ENDLESS)
    assert command.main([str(path), "--timeout", "15"]) == 2
    assert re.search(r"no estimate: train\.py:[345]: still running at the time limit", capsys.readouterr().out)
