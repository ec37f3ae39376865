"""What the server remembers of functions while one types: only what changed, and what depends on it, is run again."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from unittest.mock import ANY

import pytest

from torchmemlint import analysis
from torchmemlint.errors import Cancelled
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
OPTIONS = {"preview": True, "min-confidence": "low", "notes": True}


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


def test_few_files_are_kept(tmp_path: Path) -> None:
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


METHODS = """import torch


class Trainer:
    def __init__(self, model):
        self.model = model

    def train(self, loader, optimizer):
        total = 0
        for batch in loader:
            loss = self.step(batch)
            loss.backward()
            optimizer.step()
            total += loss
        return total

    def silent(self, loader):
        self.model.eval()
        with torch.no_grad():
            return [self.model(batch) for batch in loader]

    def step(self, batch):
        return self.model(batch).mean()
"""


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        ("return self.model(batch)", "# why\n        return self.model(batch)", {"Trainer.step"}),
        ("return self.model(batch)", "return  self.model(batch)", {"Trainer.step"}),
        ("batch).mean()\n", "batch).mean()\n\n    def more(self):\n        return 1\n", set()),
        ("def silent(self, loader)", "def silent(self, loader, more=None)", {"Trainer.silent"}),
    ],
    ids=["comment", "space", "new method", "signature"],
)
def test_what_is_run_inside_a_class(old: str, new: str, again: set[str], tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.py"
    assert {one.code for one in found(path, METHODS)} >= {"TML101"}
    assert {"Trainer.train", "Trainer.silent"} <= {*asked}
    asked.clear()
    changed = METHODS.replace(old, new)
    assert changed != METHODS
    after = found(path, changed)
    assert {*asked} - {"<module>"} <= again
    assert after == fresh(path, changed)


LOADED = """

def snapshots(net, optimizer, path, batches):
    net.cuda()
    states = torch.load(path, map_location="cuda:0")
    net.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    for step, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        (net(x) - y).sum().backward()
        optimizer.step()
        if step % 100 == 0:
            states = [net.state_dict(), optimizer.state_dict()]
            torch.save(states, path)
"""
"""A finding whose words may name a row."""
SEVERAL = SOURCE + METHODS.removeprefix("import torch\n") + LOADED


def with_a_line(text: str, chance: random.Random) -> str:
    """A text with a line more or less, or with two of its definitions in the other order."""
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    if chance.randrange(4):
        indent = len(lines[at]) - len(lines[at].lstrip())
        lines.insert(at, " " * indent + chance.choice(("# c", "x = 1", "print('x')", "", "torch.cuda.empty_cache()")))
    elif chance.randrange(2):
        del lines[at]
    else:
        parts = text.split("\n\n\n")
        one, other = chance.randrange(len(parts)), chance.randrange(len(parts))
        parts[one], parts[other] = parts[other], parts[one]
        return "\n\n\n".join(parts)
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_any_row_of_lines(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    text = SEVERAL
    buffers.forget()
    for _ in range(20):
        text = with_a_line(text, chance) if chance.randrange(8) else SEVERAL
        shown = found(tmp_path / "a.py", text)
        known = dict(buffers._memories)
        assert shown == fresh(tmp_path / "a.py", text), text
        buffers._memories.update(known)
        buffers.collect()


def test_what_only_moved_is_not_run(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.py"
    before = found(path, SEVERAL)
    assert any(one.fix is not None for one in before)
    assert any(one.flow for one in before)
    asked.clear()
    changed = SEVERAL.replace("def helper", "# above all of them\n\ndef helper")
    after = found(path, changed)
    assert {*asked} <= {"<module>", "snapshots"}
    assert after == fresh(path, changed)


def test_what_names_a_row_is_run_where_it_moved(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.py"
    assert [one for one in found(path, SEVERAL) if re.search(r"\bline \d", one.cost)]
    asked.clear()
    changed = f"# above\n{SEVERAL}"
    after = found(path, changed)
    assert "snapshots" in asked
    assert after == fresh(path, changed)


CHAIN = """import torch


def compute(model, batch):
    loss = model(batch).mean()
    loss.backward(retain_graph=True)
    return loss


def train(model, loader, optimizer):
    total = 0
    for batch in loader:
        total += compute(model, batch)
        optimizer.step()
    print(total)


def evaluate(model, loader):
    model.eval()
    return [model(batch) for batch in loader]
"""
EDITED = CHAIN.replace("return loss\n", "return loss.detach()\n")


def places(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    return [(one.code, one.span.start.row) for one in findings]


def checked(
    path: Path, text: str, asked: list[str], stop_at: str = ""
) -> tuple[list[tuple[Finding, ...]], tuple[Finding, ...]]:
    """What is reported first, and in the end; nothing in the end where the check is cancelled as soon as ``stop_at`` is run."""
    name, cancel = buffers.open_path(str(path)), Event()
    first: list[tuple[Finding, ...]] = []

    def publish(findings: Sequence[Finding]) -> None:
        first.append(tuple(findings))
        assert stop_at not in asked
        if stop_at:
            cancel.set()

    try:
        return first, buffers.check(name, text, {name: text}, OPTIONS, publish, cancel).findings
    except Cancelled:
        return first, ()


def test_what_changed_is_published_before_what_depends_on_it_is_run(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.py"
    before = found(path, CHAIN)
    asked.clear()
    ran_first: list[str] = []
    name = buffers.open_path(str(path))
    after = buffers.check(name, EDITED, {name: EDITED}, OPTIONS, lambda _: ran_first.extend(asked)).findings
    assert ran_first == ["compute"]
    assert [*dict.fromkeys(asked)] == ["compute", "train"]
    assert before != after == fresh(path, EDITED)


def test_first_findings_of_what_depends_on_a_change_are_where_it_stands_now(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.py"
    before = [one for one in found(path, CHAIN) if one.function == "train"]
    first, _ = checked(path, EDITED.replace("def compute", "# one\n# more\ndef compute"), asked)
    assert before
    assert places([one for one in first[0] if one.function == "train"]) == [(code, row + 2) for code, row in places(before)]


def test_a_check_that_is_cancelled_keeps_what_was_run(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.py"
    found(path, CHAIN)
    asked.clear()
    assert checked(path, EDITED, asked, stop_at="train") == ([ANY], ())
    again = EDITED + "\n\nVALUE = 1\n"
    asked.clear()
    first, after = checked(path, again, asked)
    assert "train" in {one.function for one in first[0]}  # as it was when it was last run
    assert "compute" not in asked
    assert after == fresh(path, again)


class Soon(Event):
    """Set when it has been looked at so many times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("looks", [0, 1, 50])
def test_a_cancelled_check_ends_within_a_function(looks: int) -> None:
    long = "import torch\n\n\ndef run(model, x):\n" + "    x = model(x)\n" * 200 + "    print(x.sum().item())\n"
    cancel = Soon(looks)
    with pytest.raises(Cancelled):
        buffers.check("a.py", long, {"a.py": long}, OPTIONS, None, cancel)
    assert cancel.left > -5


@pytest.mark.parametrize("seed", range(3))
def test_cancelled_at_random_the_last_check_says_what_one_from_nothing_does(tmp_path: Path, seed: int) -> None:
    chance, path = random.Random(seed), tmp_path / "a.py"
    lines = CHAIN.splitlines(keepends=True)
    for _ in range(12):
        row = chance.randrange(2, len(lines))
        indent = lines[row][: len(lines[row]) - len(lines[row].lstrip())]
        edited = [*lines[:row], chance.choice([f"{indent}print(1)\n", "\n", f"{indent}model = torch.no_grad\n"]), *lines[row:]]
        text = "".join(edited)
        checked(path, text, [], stop_at="anything")
        if chance.random() < 0.5:
            lines = edited
    text = "".join(lines)
    assert found(path, text) == fresh(path, text)


def test_a_text_that_does_not_parse_is_no_reason_to_run_the_rest(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "a.py"
    found(path, CHAIN)
    broken = CHAIN.replace("return [model(batch) for", "return [model(batch for")
    found(path, broken)
    asked.clear()
    after = found(path, broken + "#")
    assert "train" not in asked
    assert after == fresh(path, broken + "#")
