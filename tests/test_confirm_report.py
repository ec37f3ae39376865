"""Decisions from figures, the formats of a report, exit statuses, and the command line's own mistakes."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from torchmemlint.confirm import command, html, report
from torchmemlint.confirm.plan import Plan, consumed_later, fixed_twin
from torchmemlint.confirm.settle import Settled
from torchmemlint.confirm.verdict import UNUSED, Doubts, Located, Outcome, Run, Verdict, decide, decide_isolated, slope
from torchmemlint.findings import Confidence, Edit, Finding, Fix, Position, Safety, Severity, Span

GRAPH = 1 << 20
STEPS = 8


def run(per_step: int = 0, nodes: int = 0, peak: int = 4 * GRAPH, graph: int = GRAPH, **more: object) -> Run:
    """A run that grows by so many bytes and nodes each step."""
    figures: dict[str, object] = {
        "live_bytes": tuple(GRAPH + per_step * step for step in range(STEPS)),
        "uncollected_bytes": tuple(GRAPH + per_step * step for step in range(STEPS)),
        "nodes": tuple(nodes * step for step in range(STEPS)),
        "retained_bytes": tuple((per_step if nodes else 0) * step for step in range(STEPS)),
        "peak_bytes": peak,
        "graph_bytes": graph,
        "seen": "tensor",
        "place": "real",
        "grad_modes": (True,),
        "graphs_built": STEPS,
    }
    return Run(**{**figures, **more})  # type: ignore[arg-type]


FLAT = run()


@pytest.mark.parametrize(
    ("code", "before", "after", "outcome", "kind"),
    [
        ("TML102", run(GRAPH, 9), FLAT, Outcome.CONFIRMED, "whole graph per step"),
        ("TML102", run(GRAPH // 2, 9), FLAT, Outcome.CONFIRMED, "part of the graph per step"),
        ("TML101", run(0, 9), FLAT, Outcome.CONFIRMED, "nodes per step"),
        ("TML201", run(peak=5 * GRAPH, attached=True), FLAT, Outcome.CONFIRMED, "extra graph at peak"),
        ("TML402", run(64 * 100), run(100), Outcome.CONFIRMED, "64 × storage kept"),
        ("TML401", run(100), FLAT, Outcome.CONFIRMED, "tensors kept on the device"),
        (
            "TML401",
            run(200, value_bytes=100),
            run(100),
            Outcome.CONFIRMED,
            "tensors kept on the device",
        ),  # another line keeps some
        ("TML401", run(200, value_bytes=150), run(100), Outcome.INCONCLUSIVE, "tensors kept on the device"),
        ("TML201", run(probe_bytes=GRAPH, attached=True), FLAT, Outcome.CONFIRMED, UNUSED),
        ("TML203", run(2 * GRAPH, graph=2 * GRAPH, probe_bytes=GRAPH), run(GRAPH), Outcome.CONFIRMED, "whole graph per step"),
        (
            "TML107",
            run(uncollected_bytes=tuple(range(0, 800, 100))),
            FLAT,
            Outcome.CONFIRMED,
            "until the cyclic collector runs",
        ),
        ("TML201", run(grad_modes=(False,), fallbacks=9, place="local"), FLAT, Outcome.REFUTED, ""),
        ("TML201", run(grad_modes=(False, True), fallbacks=9), FLAT, Outcome.INCONCLUSIVE, ""),
        ("TML102", run(grad_modes=(False,), fallbacks=9), FLAT, Outcome.INCONCLUSIVE, ""),
        ("TML201", run(backwards=8), run(backwards=8, empty_backwards=8), Outcome.REFUTED, ""),
        ("TML201", run(backwards=8, fallbacks=1), run(backwards=8, empty_backwards=8), Outcome.INCONCLUSIVE, ""),
        ("TML102", run(GRAPH, 9), run(GRAPH // 2, 9), Outcome.INCONCLUSIVE, "part of the graph per step"),
        ("TML102", FLAT, FLAT, Outcome.REFUTED, ""),
        ("TML102", run(seen="stand-in"), FLAT, Outcome.INCONCLUSIVE, ""),
        ("TML102", run(seen=""), FLAT, Outcome.INCONCLUSIVE, ""),
        ("TML102", run(fallbacks=1), FLAT, Outcome.INCONCLUSIVE, ""),
        ("TML102", run(place="stand-in"), FLAT, Outcome.INCONCLUSIVE, ""),
        ("TML102", run(GRAPH, 9), None, Outcome.INCONCLUSIVE, ""),
        ("TML102", run(live_bytes=(1, 2, 3)), FLAT, Outcome.INCONCLUSIVE, ""),
        ("TML102", run(GRAPH, 9, seen=""), FLAT, Outcome.INCONCLUSIVE, ""),
    ],
)
def test_what_two_runs_prove(code: str, before: Run, after: Run | None, outcome: Outcome, kind: str) -> None:
    verdict = decide(code, before, after)
    assert (verdict.outcome, verdict.kind) == (outcome, kind)
    assert (verdict.reason == "") == (outcome is Outcome.CONFIRMED)


def test_a_crash_of_carried_state_is_a_verdict() -> None:
    crashed = run(errors=(Located(7, "RuntimeError: Trying to backward through the graph a second time"),))
    assert decide("TML104", crashed, FLAT).kind == "crash at the second step"
    assert decide("TML102", crashed, FLAT).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("before", "doubts", "words"),
    [
        ({"guesses": ("helper.loss",)}, Doubts("on"), "helper.loss"),
        ({"decorators": (Located(4, "guard"),)}, Doubts("on"), "line 4: the decorator `guard`"),
        ({"contexts": (Located(5, "no_gradients"),)}, Doubts("on"), "line 5: `with no_gradients`"),
        ({"forced": (12,)}, Doubts("on"), "line 12"),
        ({}, Doubts("unknown"), "callers"),
        ({}, Doubts("default", claimed=False), "does not report this line"),
        ({}, Doubts("on", frozen="line 3 freezes `model`"), "line 3 freezes"),
        ({}, Doubts("on", consumed=7), "line 7: a later backward"),
    ],
)
def test_growth_is_no_proof_where_something_unseen_could_turn_it(before: dict[str, Any], doubts: Doubts, words: str) -> None:
    grows = run(GRAPH, 9, **before)
    assert decide_isolated("TML102", grows, FLAT, None, Doubts("on")).outcome is (
        Outcome.INCONCLUSIVE if before else Outcome.CONFIRMED
    )
    verdict = decide_isolated("TML102", grows, FLAT, None, doubts)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert words in verdict.reason


def test_a_backward_in_what_ran_settles_the_grad_mode() -> None:
    assert decide_isolated("TML102", run(0, 9, backwards=8), FLAT, None, Doubts("unknown")).outcome is Outcome.CONFIRMED


@pytest.mark.parametrize("more", [{"attached": True}, {"graphs_built": 0}, {"guesses": ("x",)}, {"place": "local"}])
def test_nothing_is_refuted_on_thin_evidence(more: dict[str, object]) -> None:
    assert decide_isolated("TML102", run(**more), FLAT, None, Doubts("on")).outcome is Outcome.INCONCLUSIVE  # type: ignore[arg-type]
    assert decide_isolated("TML102", FLAT, FLAT, None, Doubts("on")).outcome is Outcome.REFUTED


@pytest.mark.parametrize(
    ("before", "after", "doubts", "outcome"),
    [
        ({}, {}, Doubts("on"), Outcome.CONFIRMED),
        ({"went_back": 8}, {}, Doubts("on"), Outcome.INCONCLUSIVE),  # a backward uses it
        ({}, {"probe_bytes": GRAPH}, Doubts("on"), Outcome.INCONCLUSIVE),  # the control builds it too
        ({"escapes": True}, {}, Doubts("on"), Outcome.CONFIRMED),
        ({"escapes": True}, {}, Doubts("on", claimed=False), Outcome.INCONCLUSIVE),
        ({"escapes": False}, {}, Doubts("on", claimed=False), Outcome.CONFIRMED),
        ({"escapes": False, "turned": (7,)}, {}, Doubts("on"), Outcome.CONFIRMED),
    ],
)
def test_a_graph_that_no_backward_uses(
    before: dict[str, object], after: dict[str, object], doubts: Doubts, outcome: Outcome
) -> None:
    built = run(**{"probe_bytes": GRAPH, "attached": True, **before})  # type: ignore[arg-type]
    verdict = decide_isolated("TML201", built, run(**after), None, doubts)  # type: ignore[arg-type]
    assert verdict.outcome is outcome
    assert any("line 7" in note for note in verdict.notes) == ("turned" in before)


def test_growth_per_step_is_the_middle_of_the_steady_differences() -> None:
    assert slope((0, 900, 1000, 1010, 1020, 1500, 1510, 1520)) == 10
    assert slope(()) == 0


def finding(path: str = "train.py", row: int = 2, **more: object) -> Finding:
    span = Span(Position(row, 5), Position(row, 18))
    return Finding("TML101", "a-rule", Severity.WARNING, Confidence.HIGH, "a <message>", path, span, **more)  # type: ignore[arg-type]


def settled(outcome: Outcome = Outcome.CONFIRMED, helped: bool | None = True, **more: object) -> Settled:
    verdict = Verdict(
        outcome, "whole graph per step" if outcome is Outcome.CONFIRMED else "", "", "cpu", run(GRAPH, 9), FLAT, helped
    )
    job = {"runner": "isolated", "fixed_source": "for x in y:\n    total += x.item()\n", "fixed_row": 2}
    return Settled(Plan(finding(), job, Doubts()), verdict, "namespaces", "2.13.0", 1.0)


def test_json_is_the_array_of_check_with_the_verdict_in_each_finding() -> None:
    (row,) = json.loads(report.as_json([settled()]))
    assert row["code"] == "TML101"
    assert row["location"] == {"row": 2, "column": 5}
    confirm = row["confirm"]
    assert confirm["verdict"] == "confirmed"
    assert confirm["kind"] == "whole graph per step"
    assert confirm["device"] == "cpu"
    assert confirm["before"]["live_bytes_per_step"] == GRAPH
    assert confirm["before"]["graphs_per_step"] == 1.0
    assert confirm["before"]["nodes_per_step"] == 9
    assert len(confirm["before"]["live_bytes"]) == STEPS
    assert confirm["after"]["live_bytes_per_step"] == 0


def test_text_names_the_figures_before_and_after() -> None:
    text = report.full([settled()], ascii_only=True)
    assert "confirmed: whole graph per step" in text
    assert "1 MiB/step (1.00 graphs), 9 nodes/step" in text
    assert re.search(r"before +[_.:*#=+-]+  ", text)
    assert text.isascii()


def test_the_page_is_self_contained_and_well_formed() -> None:
    when = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    page = html.render([settled(), settled(Outcome.REFUTED, None)], lambda path: "for x in y:\n    total += x\n", when)
    assert "<script" not in page
    assert not re.search(r"(src|href)=|url\(|@import|https?:", page)
    assert "prefers-color-scheme: dark" in page
    assert "a &lt;message&gt;" in page
    assert "total += x.item()" in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert root.find("title") is not None
        for line in root.iter("polyline"):
            xs = [tuple(map(float, point.split(","))) for point in str(line.get("points")).split()]
            assert len(xs) == STEPS
            assert all(0 <= x <= 460 and 0 <= y <= 150 for x, y in xs)


def test_the_page_marks_what_the_fix_changes_and_says_what_is_to_be_known() -> None:
    reported = replace(settled(), verdict=replace(settled().verdict, notes=("a <note>",)))
    page = html.render([reported], lambda path: "for x in y:\n    total += x\n", datetime.datetime.now(datetime.timezone.utc))
    assert '<mark class="old">   2      total += x</mark>' in page
    assert '<mark class="new">   2      total += x.item()</mark>' in page
    assert "a &lt;note&gt;" in page
    job = {"runner": "isolated", "fixed_source": "@guard\n" + "\n" * 20 + "last\n", "fixed_row": 22}
    far = replace(settled(), plan=Plan(finding(row=21), job, Doubts()))
    page = html.render([far], lambda path: "\n" * 20 + "last\n", datetime.datetime.now(datetime.timezone.utc))
    assert '<pre><mark class="new">   1  @guard</mark>   2  \n   …\n  17  \n' in page
    unsure = html.render([settled(Outcome.INCONCLUSIVE, None)], lambda path: None, datetime.datetime.now(datetime.timezone.utc))
    assert "<svg" not in unsure


@pytest.mark.parametrize(
    ("items", "status"),
    [
        ([], 0),
        ([settled()], 0),
        ([settled(Outcome.INCONCLUSIVE, None)], 0),
        ([settled(), settled(Outcome.REFUTED, None)], 1),
        ([settled(Outcome.CONFIRMED, False)], 1),
    ],
)
def test_exit_status(items: list[Settled], status: int) -> None:
    assert command.status(items) == status


def test_without_torch_there_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert command.main(["x.py"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install torch" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "2", "."], "--steps"),
        (["--timeout", "0", "."], "--timeout"),
        (["--timeout", "nan", "."], "--timeout"),
        (["--jobs", "-1", "."], "--jobs"),
        (["--device", "tpu", "."], "--device tpu"),
        (["--device", "cuda:7", "."], "--device cuda:7"),
        (["quiet.py:1"], "use --rule to try a rule anyway"),
        (["quiet.py:99", "--rule", "TML101"], "no code on this line"),
    ],
)
def test_mistakes_of_the_command_line_are_reported(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quiet.py").write_text("import torch\nx = torch.zeros(1)\n")
    assert command.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_a_fix_moves_the_flagged_row_with_it() -> None:
    text = "def run(model, loader):\n    for x in loader:\n        out = model(x)\n"
    above = Span(Position(1, 1), Position(1, 1))
    fix = Fix("a decorator", Safety.UNSAFE, (Edit(above, "@torch.no_grad()\n"),), needs_import="torch")
    twin = fixed_twin(finding(row=3, fix=fix), text)
    assert twin is not None
    fixed, row = twin
    assert fixed.splitlines()[row - 1] == "        out = model(x)"
    assert "import torch" in fixed


@pytest.mark.parametrize(
    ("text", "consumed"),
    [
        ("def f(a):\n    for x in a:\n        kept.append(x)\n    torch.stack(kept).sum().backward()\n", True),
        ("def f(a):\n    for x in a:\n        kept.append(x)\n    return kept\n\ndef g():\n    sum(f(1)).backward()\n", True),
        ("def f(a):\n    for x in a:\n        kept.append(x)\n    print(len(kept))\n", False),
        ("def f(a):\n    for x in a:\n        kept.append(x)\n    return kept\n\ndef g(loss):\n    loss.backward()\n", False),
    ],
)
def test_a_later_backward_on_what_is_kept_is_seen(text: str, consumed: bool) -> None:
    import ast

    assert bool(consumed_later(ast.parse(text), "kept", "f")) is consumed
