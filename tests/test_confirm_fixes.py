"""``confirm --fix``: the repaired function beside the original, in every phase; nothing is measured."""

from __future__ import annotations

import ast
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torchmemlint.confirm.command import main, status_of_fixes  # noqa: E402
from torchmemlint.confirm.plan import plan_fix  # noqa: E402
from torchmemlint.confirm.report import fixes  # noqa: E402
from torchmemlint.confirm.settle import Settled  # noqa: E402
from torchmemlint.confirm.verdict import Answer, Comparison, inconclusive  # noqa: E402
from torchmemlint.confirm.worker.compare import Backward, Seen, difference, fingerprint, questions, same  # noqa: E402
from torchmemlint.findings import Confidence, Edit, Finding, Fix, Position, Safety, Severity, Span  # noqa: E402

PROGRAM = """\
import torch.nn.functional as F


def validate(model, loader):
    total = 0.0
    model.eval()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        total += loss
    return float(total)


print(validate(None, None))
"""


@pytest.mark.slow
def test_a_fix_that_changes_nothing_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "validate.py"
    file.write_text(PROGRAM)
    assert main(["--fix", "--device", "cpu", "--output-format", "json", str(file)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["confirm"]["fix"]["answer"] == "same"
    assert file.read_text() == PROGRAM


def test_options_that_measure_do_not_go_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fix", "--watch", "."]) == 2
    assert "--fix cannot be combined with" in capsys.readouterr().err


def finding_with(edits: tuple[Edit, ...]) -> Finding:
    span = Span(Position(9, 9), Position(9, 22))
    fix = Fix("Detach the added tensor", Safety.SAFE, edits)
    return Finding("TML101", "a-rule", Severity.WARNING, Confidence.HIGH, "m", "x.py", span, function="validate", fix=fix)


def settled(answer: Answer, why: str = "", phases: int = 1) -> Settled:
    edit = Edit(Span(Position(9, 22), Position(9, 22)), ".detach()")
    plan = plan_fix(finding_with((edit,)), PROGRAM)
    assert plan.job is not None
    assert plan.job["runner"] == "compared"
    return Settled(plan, replace(inconclusive("only the fix was run"), fix=Comparison(answer, why, phases)))


def test_the_report_names_what_differs() -> None:
    items = [settled(Answer.SAME, phases=3), settled(Answer.DIFFERED, "the backward in row 4 leaves different gradients")]
    text = fixes(items)
    assert "x.py:9:9: TML101 a-rule: same" in text
    assert "run in 3 phases" in text
    assert "because the backward in row 4 leaves different gradients" in text
    assert text.endswith("2 fixes: 1 same, 1 differed.\n")
    assert fixes([]) == "0 fixes.\n"


def test_the_exit_status_is_that_of_the_worst() -> None:
    assert status_of_fixes([settled(Answer.SAME), settled(Answer.DIFFERED)]) == 1
    assert status_of_fixes([settled(Answer.SAME), settled(Answer.NOT_RUN)]) == 0
    assert status_of_fixes([settled(Answer.NOT_RUN)]) == 2
    assert status_of_fixes([]) == 0


def test_what_cannot_be_planned_says_why() -> None:
    assert plan_fix(finding_with(()), PROGRAM).reason == "the fix could not be applied"
    assert plan_fix(finding_with(()), "def f(:\n").reason.startswith("the file cannot be parsed")
    assert plan_fix(finding_with(()), None).reason == "the file cannot be read"


def test_a_number_is_the_same_as_a_tensor_of_it() -> None:
    assert same(fingerprint(torch.tensor(0.5)), fingerprint(0.5))
    assert same(fingerprint([torch.ones(2), {"a": 1}]), fingerprint([torch.ones(2), {"a": 1}]))
    assert not same(fingerprint(torch.ones(2)), fingerprint(torch.ones(1, 2)))
    assert not same(fingerprint(torch.tensor(0.5)), fingerprint(0.6))
    assert not same(fingerprint({"a": 1}), fingerprint({"b": 1}))
    assert not same(fingerprint([1]), fingerprint([1, 2]))


def backward(gradient: float | None = 1.0, nodes: int = 2) -> Backward:
    return Backward(Counter({"MulBackward0": nodes}), [((2,), gradient)], 7)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (Seen(results=[1]), Seen(results=[1]), ""),
        (Seen(results=[1]), Seen(results=[2]), "another result"),
        (Seen(backwards=[backward()]), Seen(backwards=[backward()]), ""),
        (Seen(backwards=[backward()]), Seen(backwards=[backward(None)]), "row 7 leaves different gradients"),
        (Seen(backwards=[backward()]), Seen(backwards=[backward(nodes=1)]), "1 nodes less"),
        (Seen(backwards=[backward()]), Seen(), "a different number of backwards"),
        (Seen(errors=[("KeyError: 'a'", 3)]), Seen(errors=[("KeyError: 'a'", 4)]), ""),
        (Seen(), Seen(errors=[("AttributeError: no", 4)]), "row 4 of the fixed code: AttributeError: no"),
    ],
)
def test_results_gradients_and_exceptions_are_compared(first: Seen, second: Seen, words: str) -> None:
    difference_here = difference(first, second)
    assert words in difference_here
    assert bool(words) == bool(difference_here)


def test_what_asks_the_same_is_turned_together() -> None:
    tree = ast.parse("if a.b:\n    pass\nif not a.b:\n    pass\nif c:\n    pass\n")
    rows = questions(tree)
    assert rows[1] == rows[3] != rows[5]
