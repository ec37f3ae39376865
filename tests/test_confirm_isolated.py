"""Verdicts on code that is cut out of its file and run on stand-ins; what is expected stands on the flagged lines."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torchmemlint.confirm.around import project_of
from torchmemlint.confirm.command import _qualname
from torchmemlint.confirm.output import text_of
from torchmemlint.confirm.plan import plan
from torchmemlint.confirm.settle import Options, Settled, settle_all
from torchmemlint.findings import Confidence, Finding, Position, Severity, Span

SNIPPETS = Path(__file__).parent / "confirm_snippets" / "isolated"
MARK = re.compile(r"# verdict: (TML\d{3}) (confirmed|refuted|inconclusive) ?(.*)$")


def flagged(file: Path) -> list[tuple[Finding, str, str]]:
    """A finding for each marked line, the outcome that is right for it, and words of its kind."""
    text = file.read_text()
    tree = ast.parse(text)
    found = []
    for row, line in enumerate(text.splitlines(), 1):
        mark = MARK.search(line)
        if mark:
            column, end = len(line) - len(line.lstrip()) + 1, len(line)
            if mark[1] in {"TML201", "TML203"}:
                call = re.search(
                    r"self\.model\(image\[None\]\)|self\.old\(x\)|teacher\(x\)|model\((?:[^()]|\([^()]*\))*\)", line
                )
                assert call is not None
                column, end = call.start() + 1, call.end() + 1
            span = Span(Position(row, column), Position(row, end))
            finding = Finding(
                mark[1],
                "a-rule",
                Severity.WARNING,
                Confidence.MEDIUM,
                "a message",
                str(file),
                span,
                function=_qualname(tree, row),
            )
            found.append((finding, mark[2], mark[3]))
    return found


def settle(findings: list[Finding]) -> list[Settled]:
    plans = [plan(finding, Path(finding.path).read_text(), project_of(finding.path)) for finding in findings]
    return list(settle_all(plans, Options(), ["cpu"] * 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["trainer", "abstain", "shapes", "unseen", "footprint", "loads", "ways", "layers", "libraries"]
)
def test_verdicts_on_our_own_snippets(name: str) -> None:
    expected = flagged(SNIPPETS / f"{name}.py")
    assert expected
    wrong = []
    for item, (finding, outcome, kind) in zip(settle([finding for finding, _, _ in expected]), expected, strict=True):
        verdict = item.verdict
        if verdict.outcome.value != outcome or kind not in verdict.kind:
            wrong.append((finding.span.start.row, finding.code, outcome, verdict.outcome.value, verdict.kind, verdict.reason))
    assert not wrong


@pytest.mark.slow
def test_a_line_that_is_only_asked_about_needs_a_caller_in_sight(tmp_path: Path) -> None:
    file = tmp_path / "lonely.py"
    source = "def run(model, loader):\n    kept = []\n    for x in loader:\n        kept.append(model(x))\n"
    span = Span(Position(4, 9), Position(4, 30))
    for end, message, outcome in (
        ("    return kept\n", "a message", "confirmed"),
        ("    return kept\n", "", "inconclusive"),  # a caller may want the graphs
        ("    return [out.detach() for out in kept]\n", "", "confirmed"),  # nobody can
    ):
        file.write_text(source + end)
        finding = Finding("TML102", "a-rule", Severity.NOTE, Confidence.MEDIUM, message, str(file), span, function="run")
        (item,) = settle([finding])
        assert item.verdict.outcome.value == outcome


@pytest.mark.slow
def test_a_fix_that_does_not_help_is_reported(tmp_path: Path) -> None:
    from torchmemlint.findings import Edit, Fix, Safety

    file = tmp_path / "eval.py"
    file.write_text(
        "def run(model, loader):\n    kept = []\n    for x in loader:\n        kept.append(model(x))\n\n\nrun(None, None)\n"
    )
    end = Position(4, 29)
    span = Span(Position(4, 9), Position(4, 30))
    for content, helped in ((".cpu()", False), (".detach()", True)):
        fix = Fix("a fix", Safety.UNSAFE, (Edit(Span(end, end), content),))
        finding = Finding("TML102", "a-rule", Severity.WARNING, Confidence.HIGH, "m", str(file), span, function="run", fix=fix)
        (item,) = settle([finding])
        assert item.verdict.outcome.value == "confirmed"
        assert item.verdict.helped is helped, item.verdict


@pytest.mark.parametrize("code", ["TML301", "TML305", "TML307"])
def test_rules_about_the_allocator_are_cuda_only(code: str, tmp_path: Path) -> None:
    span = Span(Position(1, 1), Position(1, 2))
    finding = Finding(code, "a-rule", Severity.WARNING, Confidence.HIGH, "m", str(tmp_path / "x.py"), span)
    item = plan(finding, "x = 1\n")
    assert item.job is None
    assert item.reason.startswith("cuda only")


@pytest.mark.slow
def test_a_notebook_is_run_as_the_module_of_its_cells(tmp_path: Path) -> None:
    cells = [
        "# Evaluation\n",
        "%matplotlib inline\nimport torch\nfrom torch import nn\nmodel = nn.Linear(8, 8).cuda()\nloader = [torch.rand(4, 8)] * 9\n",
        "kept = []\nfor x in loader:\n    kept.append(model(x))\nprint(len(kept))\n",
        "def lost(batches):\n    kept = []\n    for x in batches:\n        if False:\n            kept.append(model(x))\n",
    ]
    file = tmp_path / "evaluate.ipynb"
    file.write_text(
        json.dumps(
            {
                "cells": [
                    {"cell_type": "code" if number else "markdown", "metadata": {}, "source": cell, "outputs": []}
                    for number, cell in enumerate(cells)
                ],
                "metadata": {},
                "nbformat": 4,
                "nbformat_minor": 5,
            }
        )
    )
    in_a_loop = Finding("TML102", "a-rule", Severity.WARNING, Confidence.HIGH, "m", str(file),
                        Span(Position(3, 5), Position(3, 26)), cell=3)  # fmt: skip
    never = replace(in_a_loop, span=Span(Position(5, 13), Position(5, 34)), cell=4, function="lost")
    nowhere = replace(in_a_loop, cell=1)
    text = text_of(str(file))
    plans = [plan(finding, text, project_of(str(file))) for finding in (in_a_loop, never, nowhere)]
    first, second, third = (item for item in settle_all(plans, Options(), ["cpu"]))
    assert first.verdict.outcome.value == "confirmed"
    assert first.plan.finding == in_a_loop
    assert second.verdict.reason == "it grows only where the `if` on line 4 of cell 4 holds, which it did not"
    assert third.verdict.reason == "the cell of the notebook cannot be read"
