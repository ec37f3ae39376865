"""Fixes as a whole: one run leaves nothing to do, nothing that it writes is useless, and a finding without a fix says why."""

from __future__ import annotations

import json
import random
import textwrap
from pathlib import Path

import pytest
from gaps import alarms, cases, fixed

from benchmarks import fixes as benchmark
from torchmemlint.project.config import CommandLine, Configuration
from torchmemlint.run import fix_paths


@pytest.mark.parametrize("seed", range(6))
def test_a_second_run_changes_nothing_in_any_mixture_of_fixtures(seed: int) -> None:
    chosen = random.Random(seed).sample(cases(), 5)
    texts = {f"{number}/{name}": text for number, case in enumerate(chosen) for name, text in case.texts.items()}
    after = fixed(texts)
    for name, text in after.items():
        compile(text, name, "exec")
    assert fixed(after) == after


def program(tmp_path: Path, text: str, name: str = "a.py") -> str:
    """A program after all fixes, which a second run leaves as it is."""
    path = tmp_path / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    options = {"select": ["ALL"], "unsafe-fixes": True, "notes": True, "min-confidence": "low"}
    configuration = Configuration(CommandLine(options, isolated=True))
    after = fix_paths([str(path)], configuration, 1).after.get(path.as_posix(), textwrap.dedent(text))
    path.write_text(after, encoding="utf-8")
    assert not fix_paths([str(path)], configuration, 1).after
    return after


def test_a_fix_that_does_not_answer_its_finding_is_taken_back(tmp_path: Path) -> None:
    text = """\
        import torch
        from torch import nn


        def adapt(net: nn.Module, head: nn.Module, tasks, criterion):
            optimizer = torch.optim.Adam(head.parameters())
            loss = torch.zeros(1)
            for support, query in tasks:
                for step in range(5):
                    logits = head(net(support[0]).detach())
                    loss = criterion(logits, support[1])
                    head.zero_grad()
                    loss.backward()
                    optimizer.step()
                loss += criterion(head(net(query[0])), query[1])
            print(loss.data)
        """
    assert ".detach().detach()" not in program(tmp_path, text)


def test_statements_that_are_reported_one_by_one_are_all_fixed_at_once(tmp_path: Path) -> None:
    calls = "\n".join(f"                print(net(x + {number}).argmax(1))\n" for number in range(14))
    text = f"""\
        import torch
        from torch import nn


        def watch(net: nn.Module, loader, optimizer):
            for x, y in loader:
                optimizer.zero_grad()
                (net(x) - y).abs().mean().backward()
                optimizer.step()
{calls}
        """
    after = program(tmp_path, text)
    assert "backward()\n" in after
    assert after.count("with torch.no_grad():") in (1, 14)


def test_line_ends_stay_where_blocks_are_joined(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "fixtures/TML201/one_block_for_neighbours.py").read_text(encoding="utf-8")
    path = tmp_path / "a.py"
    path.write_bytes(text.replace("\n", "\r\n").encode())
    options = {"unsafe-fixes": True, "notes": True}
    done = fix_paths([str(path)], Configuration(CommandLine(options, isolated=True)), 1)
    after = next(iter(done.after.values()))
    assert "\n" not in after.replace("\r\n", "")
    assert after.count("with torch.no_grad():\r\n") == 6


def test_a_finding_without_a_fix_says_why() -> None:
    text = (Path(__file__).parent.parent / "fixtures/TML203/no_guard_around_the_rest.py").read_text(encoding="utf-8")
    found = [one for one in alarms({"a.py": text}) if one.code == "TML203"]
    assert found
    assert all(one.fix is None for one in found)
    assert all("there is no automatic fix: `" in one.help for one in found)


def cell(*lines: str) -> dict[str, object]:
    source = [f"{line}\n" for line in lines]
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}


@pytest.mark.parametrize(
    "step",
    [
        ("out, soft = net(x), teacher(x).detach()", "loss = F.mse_loss(out, soft)"),
        ("loss = F.mse_loss(net(x), teacher(x).detach())",),
        ("got = {'out': net(x), 'soft': teacher(x).detach()}", "loss = F.mse_loss(got['out'], got['soft'])"),
    ],
)
def test_what_a_cell_trains_keeps_its_graph(tmp_path: Path, step: tuple[str, ...]) -> None:
    rows = [f"    {row}" for row in (*step, "optimizer.zero_grad()", "loss.backward()", "optimizer.step()")]
    made = "net, teacher = nn.Linear(8, 2), nn.Linear(8, 2)"
    cells = [
        cell("import torch", "import torch.nn.functional as F", "from torch import nn", made),
        cell("optimizer = torch.optim.SGD(net.parameters(), lr=0.1)"),
        cell("for x in torch.randn(10, 4, 8):", *rows),
    ]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    path = tmp_path / "a.ipynb"
    path.write_text(text, encoding="utf-8")
    options = {"unsafe-fixes": True, "notes": True, "min-confidence": "low"}
    done = fix_paths([str(path)], Configuration(CommandLine(options, isolated=True)), 1)
    assert [one.code for one in done.outcome.findings] == ["TML203"]
    assert not done.after


def test_the_benchmark_reports_what_a_fix_must_not_do(tmp_path: Path) -> None:
    good = b"x = 1  # why\n"
    assert list(benchmark.faults_of(good, b"x = 2  # why\n", "a.py")) == []
    assert next(benchmark.faults_of(good, b"x = (\n", "a.py")).startswith("does not compile")
    assert list(benchmark.faults_of(good, b"x = 2\n", "a.py")) == ["lost 1 comments: # why"]
    assert list(benchmark.faults_of(good, b"x = 2  # why\r\n", "a.py")) == ["has other line ends"]


@pytest.mark.slow
def test_the_benchmark_goes_on_where_it_was_broken_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parent.parent / "fixtures/TML201/one_block_for_neighbours.py").read_text(encoding="utf-8")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(text, encoding="utf-8")
    record = tmp_path / "record.json"
    asked = ["--notes", "--record", str(record), "--hunks", str(tmp_path / "hunks.jsonl")]
    assert benchmark.main([str(tmp_path / "one"), *asked]) == 0
    assert benchmark.main([str(tmp_path / "one"), str(tmp_path / "two"), *asked]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("one: ") == 1
    written = json.loads(record.read_text(encoding="utf-8"))
    assert written["total"]["projects"] == 2
    assert written["total"]["broken"] == written["total"]["changed by a second run"] == 0
    assert written["projects"]["one"]["applied"] == written["projects"]["two"]["applied"]
    assert text == (tmp_path / "one" / "a.py").read_text(encoding="utf-8")
