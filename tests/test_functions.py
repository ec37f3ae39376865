"""What the server remembers of functions while one types: only what changed, and what depends on it, is run again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torchmemlint import analysis
from torchmemlint.findings import Finding
from torchmemlint.lsp import buffers

SOURCE = """import torch


def helper(model, batch):
    return model(batch).mean()


def evaluate(model, loader):
    model.eval()
    total = 0
    for batch in loader:
        total += helper(model, batch)
    return total


def train(model, loader, optimizer):
    total = 0
    for batch in loader:
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        total += loss
    return total


def other(model, batch):
    model.eval()
    return [model(each) for each in batch]
"""
OPTIONS = {"preview": True, "min-confidence": "low"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that were run."""
    run: list[str] = []

    def watch(runs, ref, *arguments, real=analysis.bounded_drafts_of):  # type: ignore[no-untyped-def]
        run.append(ref.qualname)
        return real(runs, ref, *arguments)

    monkeypatch.setattr(analysis, "bounded_drafts_of", watch)
    buffers.forget()
    return run


def found(path: Path, text: str) -> tuple[Finding, ...]:
    name = buffers.open_path(str(path))
    return buffers.check(name, text, {name: text}, OPTIONS).findings


def fresh(path: Path, text: str) -> tuple[Finding, ...]:
    buffers.forget()
    return found(path, text)


def test_only_what_changed_and_what_depends_on_it_is_run(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.py"
    assert {one.code for one in found(path, SOURCE)} >= {"TML101", "TML201"}
    asked.clear()
    found(path, SOURCE)
    assert asked == []
    silent = SOURCE.replace("[model(each) for each in batch]", "None")
    found(path, silent)
    asked.clear()
    found(path, silent.replace("total += loss\n", "total += loss * 2\n"))
    assert "train" in asked
    assert "other" not in asked


def test_a_caller_is_run_again_when_what_it_calls_changes(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.py"
    source = SOURCE.replace("helper(model, batch)\n    return total", "helper(model, batch)\n    print(total)")
    found(path, source)
    asked.clear()
    changed = source.replace("model(batch).mean()", "model(batch).mean().item()")
    after = found(path, changed)
    assert {"helper", "evaluate"} & {*asked}
    assert after == fresh(path, changed)


def test_settings_have_their_own_results(tmp_path: Path) -> None:
    name = buffers.open_path(str(tmp_path / "a.py"))
    buffers.forget()
    everything = buffers.check(name, SOURCE, {name: SOURCE}, OPTIONS).findings
    some = buffers.check(name, SOURCE, {name: SOURCE}, {**OPTIONS, "select": ["TML101"]}).findings
    assert {one.code for one in everything} > {one.code for one in some} == {"TML101"}


def test_another_open_file_counts(tmp_path: Path) -> None:
    path, beside = (buffers.open_path(str(tmp_path / name)) for name in ("a.py", "b.py"))
    caller = "import torch\nfrom a import helper\n\n\ndef run(model, x):\n    with torch.no_grad():\n        return helper(model, x)\n"
    alone = SOURCE[: SOURCE.index("def evaluate")]
    buffers.forget()
    for text in (caller, caller.replace("torch.no_grad()", "torch.enable_grad()"), caller):
        texts = {path: alone, beside: text}
        shown = buffers.check(path, alone, texts, OPTIONS).findings
        buffers.forget()
        assert shown == buffers.check(path, alone, texts, OPTIONS).findings


def test_files_that_are_remembered_are_few(tmp_path: Path) -> None:
    for number in range(buffers.MOST_FILES + 3):
        found(tmp_path / f"m{number}.py", SOURCE)
    assert len(buffers._memories) == buffers.MOST_FILES
    buffers.forget(buffers.open_path(str(tmp_path / f"m{buffers.MOST_FILES + 2}.py")))
    assert len(buffers._memories) == buffers.MOST_FILES - 1


@pytest.mark.parametrize("seed", range(3))
def test_any_row_of_keystrokes(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    text = SOURCE
    buffers.forget()
    for _ in range(25):
        at = chance.randrange(len(text) + 1)
        if chance.randrange(3):
            text = text[:at] + chance.choice(("x", " ", "\n", "1", ".", "()", "\n# c\n", "loss", "    ")) + text[at:]
        else:
            text = text[:at] + text[at + 1 :]
        if chance.randrange(8) == 0:
            text = SOURCE
        shown = found(tmp_path / "a.py", text)
        known = dict(buffers._memories)
        assert shown == fresh(tmp_path / "a.py", text), text
        buffers._memories.update(known)
