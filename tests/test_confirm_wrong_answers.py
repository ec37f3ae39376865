"""Programs on which a verdict was once wrong: each with the verdict that is right."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

pytest.importorskip("torch")

from torchmemlint.confirm.around import project_of
from torchmemlint.confirm.command import _qualname
from torchmemlint.confirm.plan import plan
from torchmemlint.confirm.settle import Options, settle
from torchmemlint.confirm.verdict import Answer, Verdict
from torchmemlint.findings import Confidence, Edit, Finding, Fix, Position, Safety, Severity, Span


def verdict_on(
    folder: Path,
    source: str,
    code: str,
    flagged: str,
    corrected: tuple[str, str] | None = None,
    timeout: float = 60,
    project: bool = False,
) -> Verdict:
    """The verdict on the line that holds ``flagged``; ``corrected``: what its fix replaces, and by what."""
    text = dedent(source)
    file = folder / "program.py"
    file.write_text(text)
    row = next(number for number, line in enumerate(text.splitlines(), 1) if flagged in line)
    line = text.splitlines()[row - 1]
    column = line.index(flagged) + 1
    fix = None
    if corrected is not None:
        at = text.index(corrected[0])
        edit = Edit(Span(_position(text, at), _position(text, at + len(corrected[0]))), corrected[1])
        fix = Fix("a fix", Safety.UNSAFE, (edit,))
    span = Span(Position(row, column), Position(row, column + len(flagged)))
    function = _qualname(ast.parse(text), row)
    finding = Finding(code, "a-rule", Severity.WARNING, Confidence.HIGH, "m", str(file), span, function=function, fix=fix)
    around = project_of(str(file)) if project else None
    return settle(plan(finding, text, around), Options(timeout=timeout)).verdict


def _position(text: str, offset: int) -> Position:
    return Position(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


RETAINED = """
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        x, y = torch.randn(8, 64), torch.randn(8, 64)
        out = model(x)
        loss = ((out - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True){second}
        optimizer.step()
"""


@pytest.mark.slow
def test_a_graph_that_is_alive_at_the_head_of_the_loop_refutes_nothing(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, RETAINED.format(second=""), "TML105", "loss.backward(retain_graph=True)")
    assert (verdict.outcome.value, verdict.kind) == ("confirmed", "extra graph at peak")


@pytest.mark.slow
def test_a_second_backward_through_the_graph_refutes_for_that_reason(tmp_path: Path) -> None:
    source = RETAINED.format(second="\n        (out ** 2).mean().backward()")
    verdict = verdict_on(tmp_path, source, "TML105", "loss.backward(retain_graph=True)")
    assert verdict.outcome.value == "refuted"
    assert "another backward() goes through this graph" in verdict.reason


@pytest.mark.slow
def test_a_criterion_keeps_no_graph_of_its_own(tmp_path: Path) -> None:
    source = """
        def evaluate(model, criterion, loader):
            total = 0
            for x, y in loader:
                total += criterion(model(x), y)
            print(total.item())


        evaluate(None, None, None)
    """
    verdict = verdict_on(tmp_path, source, "TML101", "total += criterion(model(x), y)")
    assert verdict.before is not None
    assert verdict.kind == "whole graph per step"
    assert verdict.before.live_bytes_per_step == pytest.approx(1 << 20, rel=0.01)
    assert verdict.before.graphs_per_step == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_of_two_graphs_in_a_step_the_one_that_is_kept_is_a_whole_one(tmp_path: Path) -> None:
    source = """
        def agreement(student, teacher, loader):
            kept = []
            for x in loader:
                wanted = teacher(x)
                out = student(x)
                print((wanted - out).mean().item())
                kept.append(out)
            print(len(kept))


        agreement(None, None, None)
    """
    verdict = verdict_on(tmp_path, source, "TML102", "kept.append(out)")
    assert verdict.before is not None
    assert verdict.kind == "whole graph per step"
    assert verdict.before.graphs_per_step == pytest.approx(1, abs=0.01)


KEPT = """
    import torch


    def evaluate(model, loader):
        kept = []
        for batch in loader:
            outputs = model(batch)
            kept.append(outputs)
        {end}


    evaluate(None, None)
"""


@pytest.mark.slow
def test_a_fix_that_moves_the_line_down_stops_the_growth(tmp_path: Path) -> None:
    source = KEPT.format(end="print(len(kept))")
    fix = ("        outputs = model(batch)", "        with torch.no_grad():\n            outputs = model(batch)")
    verdict = verdict_on(tmp_path, source, "TML201", "model(batch)", fix)
    assert (verdict.outcome.value, verdict.helped) == ("confirmed", True)
    assert verdict.fix is not None
    assert verdict.fix.answer is Answer.SAME


@pytest.mark.slow
def test_what_is_read_by_a_key_has_no_method_of_a_tensor(tmp_path: Path) -> None:
    source = KEPT.format(end='print(sum(float(item["loss"]) for item in kept))')
    verdict = verdict_on(tmp_path, source, "TML102", "kept.append(outputs)", ("append(outputs)", "append(outputs.detach())"))
    assert verdict.helped is False
    assert verdict.fix is not None
    assert verdict.fix.answer is Answer.DIFFERED
    assert "'dict' object has no attribute 'detach'" in verdict.fix.why


@pytest.mark.slow
def test_a_fix_is_run_in_every_phase(tmp_path: Path) -> None:
    source = """
        import torch


        def run(net, arc, criterion, loaders, optimizer):
            running = 0
            for phase in ["val", "train"]:
                for x, y in loaders[phase]:
                    optimizer.zero_grad()
                    if phase == "val":
                        with torch.no_grad():
                            f = net(x)
                    else:
                        f = net(x)
                    loss = criterion(f, y)
                    loss += arc(f, y)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                    running += loss.data
            return float(running)
    """
    fix = ("            loss += arc(f, y)", "            with torch.no_grad():\n                loss += arc(f, y)")
    verdict = verdict_on(tmp_path, source, "TML203", "arc(f, y)", fix)
    assert verdict.helped is False
    assert verdict.fix is not None
    assert "the backward on line 18 goes through a different graph" in verdict.fix.why


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["model.training", "opt.is_train"])
def test_a_phase_that_nobody_knows_is_turned(phase: str, tmp_path: Path) -> None:
    source = f"""
        def run(model, criterion, loader, opt):
            total = 0
            for x, y in loader:
                loss = criterion(model(x), y)
                if not {phase}:
                    total += loss
                    continue
                total += loss
            if not {phase}:
                total.backward()
            return total
    """
    fix = ("            total += loss\n            continue", "            total += loss.detach()\n            continue")
    verdict = verdict_on(tmp_path, source, "TML101", "total += loss", fix)
    assert verdict.fix is not None
    assert verdict.fix.answer is Answer.DIFFERED
    assert verdict.fix.phases > 1


LEFT = """
    import sys


    def evaluate(model, loader, args):
        print("nothing to do")
        {way_out}
        kept = []
        for x in loader:
            kept.append(model(x))
        print(len(kept))


    evaluate(None, None, None)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way_out", "reason"),
    [("sys.exit(0)", "line 7: SystemExit: the code leaves the program"), ("return", "line 7 leaves before")],
)
def test_what_the_program_never_comes_to_is_not_confirmed(way_out: str, reason: str, tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, LEFT.format(way_out=way_out), "TML102", "kept.append(model(x))")
    assert verdict.outcome.value == "inconclusive"
    assert reason in verdict.reason


@pytest.mark.slow
def test_a_way_out_behind_a_condition_is_gone_around(tmp_path: Path) -> None:
    source = LEFT.format(way_out="if args.dry_run: sys.exit(0)")
    assert verdict_on(tmp_path, source, "TML102", "kept.append(model(x))").outcome.value == "confirmed"


@pytest.mark.slow
def test_a_line_that_never_ran_says_what_stopped_it(tmp_path: Path) -> None:
    source = """
        def evaluate(model, loader):
            kept = []

            def add(x):
                kept.append(model(x))

            for x in loader:
                add({}["images"])
            print(len(kept))


        evaluate(None, None)
    """
    verdict = verdict_on(tmp_path, source, "TML102", "kept.append(model(x))")
    assert verdict.outcome.value == "inconclusive"
    assert verdict.reason == "the flagged line never ran: line 9: KeyError: 'images'"


@pytest.mark.slow
def test_what_never_ends_says_where_it_is(tmp_path: Path) -> None:
    source = """
        def evaluate(model, loader):
            kept = []
            for x in loader:
                while_it_lasts()
                kept.append(model(x))
            print(len(kept))


        def while_it_lasts():
            count = 0
            for number in iter(int, 1):
                count += number
    """
    verdict = verdict_on(tmp_path, source, "TML102", "kept.append(model(x))", timeout=4)
    assert verdict.outcome.value == "inconclusive"
    assert verdict.reason in {"time limit, on line 13", "time limit, on line 12"}


@pytest.mark.slow
def test_an_if_whose_answer_rests_on_a_stand_in_is_not_known(tmp_path: Path) -> None:
    source = """
        def evaluate(model, loader, args):
            kept = []
            for x in loader:
                if not args.quick:
                    kept.append(model(x))
            print(len(kept))


        evaluate(None, None, None)
    """
    assert verdict_on(tmp_path, source, "TML102", "kept.append(model(x))").outcome.value == "confirmed"


ON_OPTION = """
    import torch

    class Trainer:
        def __init__(self, policy, critic, optimizer, reparametrize=False):
            self.policy, self.critic, self.optimizer = policy, critic, optimizer
            self.reparametrize = reparametrize

        def train(self, loader):
            for x, y in loader:
                score = self.critic(x)
                loss = ((self.policy(x) - y) ** 2).mean() * score.mean().item()
                if self.reparametrize:
                    {other}
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
"""


@pytest.mark.slow
def test_what_holds_with_the_default_of_an_option_says_so(tmp_path: Path) -> None:
    source = ON_OPTION.replace("{other}", "loss = loss - score.mean()")
    verdict = verdict_on(tmp_path, source, "TML201", "self.critic(x)")
    assert verdict.outcome.value == "confirmed"
    assert any("with the default options: if the `if` on line 13 goes the other way" in note for note in verdict.notes)
    verdict = verdict_on(tmp_path, ON_OPTION.replace("{other}", "loss = loss * 2"), "TML201", "self.critic(x)")
    assert verdict.outcome.value == "confirmed"
    assert not any("default options" in note for note in verdict.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "code", "flagged", "words"),
    [
        (
            """
            from elsewhere import trainer

            def run(model, loader):
                total = 0
                for x in loader:
                    loss = model(x)
                    trainer.step(loss)
                    total += loss
                return total
            """, "TML101", "total += loss", "line 8: `elsewhere.trainer.step` is not in this file",
        ),
        (
            """
            from elsewhere import loss_of

            def run(loader):
                total = 0
                for x in loader:
                    loss = loss_of(x)
                    total += loss
                return total
            """, "TML101", "total += loss", "line 7: the value comes from `elsewhere.loss_of`",
        ),
        (
            """
            from elsewhere import guard

            def run(model, loader):
                kept = []
                for x in loader:
                    with guard(x):
                        kept.append(model(x))
                return kept
            """, "TML102", "kept.append(model(x))", "line 7: `with guard",
        ),
        (
            """
            from elsewhere import guard

            @guard
            def run(model, loader):
                kept = []
                for x in loader:
                    kept.append(model(x))
                return kept
            """, "TML102", "kept.append(model(x))", "line 4: the decorator `elsewhere.guard`",
        ),
        (
            """
            def run(model, x):
                out = model(x)
                return out
            """, "TML101", "out = model(x)", "line 3: ",
        ),
    ],
    ids=["a callee", "a value", "a context", "a decorator", "the flagged line"],
)  # fmt: skip
def test_an_abstention_names_the_line_that_it_rests_on(
    source: str, code: str, flagged: str, words: str, tmp_path: Path
) -> None:
    verdict = verdict_on(tmp_path, source, code, flagged)
    assert verdict.outcome.value == "inconclusive"
    assert verdict.reason.startswith(words), verdict.reason


@pytest.mark.slow
def test_names_of_a_star_import_are_those_of_the_module(tmp_path: Path) -> None:
    """`torch`, and what makes the value, come from another file of the project."""
    (tmp_path / "nets.py").write_text("import torch\n\n\ndef loss_of(model, x):\n    return torch.sum(model(x) ** 2)\n")
    source = """
        from nets import *

        def run(model, loader):
            total = 0
            for x in loader:
                loss = loss_of(model, torch.abs(x))
                total += loss
            return float(total)
        """
    verdict = verdict_on(tmp_path, source, "TML101", "total += loss", project=True)
    assert (verdict.outcome.value, verdict.kind) == ("confirmed", "whole graph per step")
