"""``confirm --fix``: the corrected function beside the original, in every phase; nothing is measured."""

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
from torchmemlint.confirm.settle import Options, Settled, settle  # noqa: E402
from torchmemlint.confirm.verdict import Answer, Comparison, Located, inconclusive  # noqa: E402
from torchmemlint.confirm.worker.experiments.compare import difference  # noqa: E402
from torchmemlint.confirm.worker.experiments.fingerprints import fingerprint, same  # noqa: E402
from torchmemlint.confirm.worker.experiments.watching import Backward, Seen, questions  # noqa: E402
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
    assert main(["--fix", "--output-format", "html", "."]) == 2
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
    items = [settled(Answer.SAME, phases=3), settled(Answer.DIFFERED, "the backward on line 4 leaves different gradients")]
    text = fixes(items)
    assert "x.py:9:9: TML101 a-rule: same" in text
    assert "run in 3 phases" in text
    assert "because the backward on line 4 leaves different gradients" in text
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
        (Seen(backwards=[backward()]), Seen(backwards=[backward(None)]), "line 7 leaves different gradients"),
        (Seen(backwards=[backward()]), Seen(backwards=[backward(nodes=1)]), "1 nodes less"),
        (Seen(backwards=[backward()]), Seen(), "a different number of backwards"),
        (Seen(errors=[Located(3, "KeyError: 'a'")]), Seen(errors=[Located(4, "KeyError: 'a'")]), ""),
        (
            Seen(errors=[Located(3, "RecursionError: maximum recursion depth exceeded")]),
            Seen(errors=[Located(4, "RecursionError: maximum recursion depth exceeded in __instancecheck__")]),
            "",
        ),
        (Seen(), Seen(errors=[Located(4, "AttributeError: no")]), "line 4 of the fixed code: AttributeError: no"),
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


def test_what_is_infinite_in_both_is_the_same() -> None:
    assert same(fingerprint(float("inf")), fingerprint(float("inf")))
    assert same(fingerprint({"best": float("nan")}), fingerprint({"best": float("nan")}))
    assert not same(fingerprint(float("inf")), fingerprint(0.0))


def test_what_differs_is_named() -> None:
    words = difference(Seen(results=[[1, {"a": 0.5}]]), Seen(results=[[1, {"a": 0.25}]]))
    assert words == "another result: call 1 leaves 0.25 instead of 0.5 in the receiver at ['a']"
    words = difference(Seen(results=[[fingerprint(torch.ones(2))]]), Seen(results=[[fingerprint(torch.ones(3))]]))
    assert words == (
        "another result: call 1 leaves a tensor of shape (3,) and sum 3 instead of a tensor of shape (2,) and sum 2 in the return value"
    )
    assert difference(Seen(results=[1]), Seen()) == "another result of call 1"


TEACHER = """\
import torch
import torch.nn.functional as F


def train(student, teacher, loader):
    for x in loader:
        out = student(x)
        wanted = teacher(x)
        loss = F.mse_loss(out, wanted)
        loss.backward()
"""


def compared(code: str, text: str, span: Span, edit: Edit, safety: Safety = Safety.UNSAFE, function: str = "run") -> Comparison:
    """The answer on a fix of one edit."""
    fix = Fix("Change it", safety, (edit,))
    finding = Finding(code, "a-rule", Severity.WARNING, Confidence.HIGH, "m", "x.py", span, function=function, fix=fix)
    done = settle(plan_fix(finding, text), Options()).verdict.fix
    assert done is not None
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "text", "line", "fixed", "answer"),
    [
        ("TML203", TEACHER, "        wanted = teacher(x)", "        with torch.no_grad():\n            wanted = teacher(x)", "same"),
        ("TML201", TEACHER, "        wanted = teacher(x)", "        with torch.no_grad():\n            wanted = teacher(x)", "differed"),
        # one network in both parts: what is taken are gradients of parameters that are trained
        (
            "TML203", TEACHER.replace("teacher(x)", "student(x)"), "        wanted = student(x)",
            "        with torch.no_grad():\n            wanted = student(x)", "differed",
        ),
        ("TML203", TEACHER, "        wanted = teacher(x)", "        wanted = teacher(x); out = out.detach()", "differed"),
    ],
    ids=["a teacher", "a rule that cuts nothing on purpose", "the same network", "the student, too"],
)  # fmt: skip
def test_only_what_the_fix_is_meant_to_take_may_be_gone(code: str, text: str, line: str, fixed: str, answer: str) -> None:
    row = text.split("\n").index(line) + 1
    span = Span(Position(row, line.index("=") + 3), Position(row, len(line) + 1))
    edit = Edit(Span(Position(row, 1), Position(row, len(line) + 1)), fixed)
    done = compared(code, text, span, edit, function="train")
    assert done.answer.value == answer, done.why


@pytest.mark.slow
def test_results_of_unseen_networks_do_not_depend_on_their_graphs() -> None:
    """One network on the output of another: under no_grad it gets an input without a graph, and gives the same."""
    text = "import torch\n\n\ndef run(encoder, decoder, loader):\n    kept = []\n    for x in loader:\n        out = decoder(encoder(x))\n        kept.append(out.detach())\n    return kept\n"
    edit = Edit(Span(Position(7, 9), Position(7, 34)), "with torch.no_grad():\n            out = decoder(encoder(x))")
    span = Span(Position(7, 15), Position(7, 34))
    done = compared("TML201", text, span, edit)
    assert done.answer.value == "same", done.why


@pytest.mark.slow
def test_a_fix_that_removes_the_flagged_statement_is_run() -> None:
    text = "import torch\n\n\ndef run(model, loader):\n    for x in loader:\n        model(x).sum().backward()\n        torch.cuda.empty_cache()\n"
    edit = Edit(Span(Position(7, 1), Position(8, 1)), "")
    span = Span(Position(7, 9), Position(7, 33))
    done = compared("TML301", text, span, edit, Safety.SAFE)
    assert done.answer.value == "same", done.why


@pytest.mark.slow
@pytest.mark.parametrize("result", ["torch.tml_runs // 2 % 2", "torch.tml_runs % 3 == 0", "torch.tml_runs % 3 == 1"])
def test_a_program_whose_results_vary_is_not_said_to_be_changed(result: str) -> None:
    """Some of its runs agree by chance."""
    text = f"import torch\n\n\ndef run(model, loader):\n    torch.tml_runs = getattr(torch, 'tml_runs', 0) + 1\n    kept = [torch.ones(2) * ({result})]\n    for x in loader:\n        model(x).sum().backward()\n        torch.cuda.empty_cache()\n    return kept\n"
    edit = Edit(Span(Position(9, 1), Position(10, 1)), "")
    span = Span(Position(9, 9), Position(9, 33))
    done = compared("TML301", text, span, edit, Safety.SAFE)
    assert (done.answer.value, done.why) == ("could not be run", "two runs of the original differ")


@pytest.mark.slow
def test_the_last_statement_of_a_function_is_removed() -> None:
    """What stands in its row then belongs to the next function, which is not the one to compare."""
    text = "import torch\n\n\nclass Agent:\n    def update(self, states):\n        states.encoded = self.model(states.x)\n\n        torch.cuda.empty_cache()\n\n    def read(self, states):\n        pass\n"
    edit = Edit(Span(Position(8, 1), Position(9, 1)), "")
    span = Span(Position(8, 9), Position(8, 33))
    done = compared("TML301", text, span, edit, function="Agent.update")
    assert done.answer.value == "same", done.why


@pytest.mark.slow
def test_a_flagged_statement_that_raises_is_not_compared() -> None:
    text = "import torch\n\n\ndef run(model, loader):\n    kept = []\n    for x in loader:\n        kept.append(int('x'))\n    return kept\n"
    edit = Edit(Span(Position(7, 9), Position(7, 30)), "kept.append(1)")
    span = Span(Position(7, 9), Position(7, 30))
    done = compared("TML102", text, span, edit)
    assert done.answer.value == "could not be run"
    assert done.why.startswith("line 7: ValueError")
